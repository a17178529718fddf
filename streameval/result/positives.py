"""positives.parquet: a row a positive, nearest first within its query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import OutputError
from streameval.metrics.groups import PositiveCameras
from streameval.result.folder import POSITIVES
from streameval.statistics import FloatArray, RankStatistics


def positive_columns(
    statistics: RankStatistics,
    cams: PositiveCameras | None,
    precision_recall: tuple[FloatArray, FloatArray],
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns by name, [P] each.

    Parameters
    ----------
    statistics : RankStatistics
    cams : PositiveCameras, optional
    precision_recall : ([P], [P]) float64
        Recall and precision at each positive.
    """
    query = np.repeat(np.arange(statistics.queries), statistics.positives)
    columns: dict[str, npt.NDArray[Any]] = {"query": query}
    if statistics.positive_item is not None:
        columns["item"] = statistics.positive_item
    if cams is not None:
        columns["cam"] = cams.labels
    recall, precision = precision_recall
    distance = statistics.positive_distance
    return {**columns, "distance": distance, "recall": recall, "precision": precision}


def read_positive_cams(folder: Path, statistics: RankStatistics) -> PositiveCameras | None:
    """Read the cameras of positives; None where the result has none.

    Raises
    ------
    OutputError
        If there is not one a positive.
    """
    import pyarrow.parquet as pq

    path = folder / POSITIVES
    if not path.exists() or "cam" not in pq.read_schema(path).names:
        return None
    cams = PositiveCameras.of(pq.read_table(path, columns=["cam"])["cam"].to_numpy())
    if len(cams.code) != len(statistics.positive_distance):
        raise OutputError(
            f"{folder} is damaged: {POSITIVES} has {len(cams.code)} rows, and there are "
            f"{len(statistics.positive_distance)} positives; evaluate again, or restore the folder"
        )
    return cams
