"""Groups of queries: their metrics, their confidence, and groups.csv with a row a group."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from streameval.metrics import Metrics
from streameval.metrics.confidence import Confidence
from streameval.metrics.groups import confidence_by_group, metrics_by_camera_pair, metrics_by_group
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.result.cells import harmless
from streameval.result.columns import check_not_of_lists

if TYPE_CHECKING:
    from streameval.result import Evaluation


def metrics_of_groups(result: Evaluation) -> Mapping[Any, Metrics]:
    """Return the metrics of each group of a result; none where it is not grouped."""
    by = result.group_by
    if by is None:
        return {}
    if by == CAMERA_PAIRS and result.positive_cams is not None:
        return metrics_by_camera_pair(
            result.statistics, result.columns["cam"], result.positive_cams, result.options
        )
    labels = result.columns[by]
    return metrics_by_group(result.statistics, labels, result.options, result.lists)


def confidence_of_groups(result: Evaluation) -> Mapping[Any, Confidence]:
    """Return the intervals of each group of a result; none where it has none, or camera pairs."""
    by = result.group_by
    if result.resampling is None or by is None or by == CAMERA_PAIRS:
        return {}
    check_not_of_lists(result.lists, "a confidence interval")
    result.identities()  # raises InputError without a column id
    return confidence_by_group(
        result.statistics,
        result.groups,
        result.columns[by],
        result.columns["id"],
        result.options,
        result.resampling,
    )


def write_groups(
    file: TextIO, by: str, groups: Mapping[Any, Metrics], intervals: Mapping[Any, Confidence]
) -> None:
    """Write the labels, counts and metrics of each group; what is undefined is empty.

    Parameters
    ----------
    file : text file
    by : str
        The column that groups are of; of ``cam-pair``, two: ``query_cam`` and ``gallery_cam``.
    groups : mapping of label to Metrics
    intervals : mapping of label to Confidence
        Of all groups, or of none: two more columns a metric, ``mAP low`` and ``mAP high``.
    """
    labels = ("query_cam", "gallery_cam") if by == CAMERA_PAIRS else (by,)
    writer = csv.writer(file, lineterminator="\n")
    for at, (label, metrics) in enumerate(groups.items()):
        if at == 0:
            bounds = [f"{name} {end}" for name in metrics.scalars for end in ("low", "high")]
            names = (*metrics.scalars, *(bounds if intervals else ()))
            writer.writerow((*map(harmless, labels), *metrics.counts, *names))
        values = [*metrics.scalars.values()]
        for name in metrics.scalars if intervals else ():
            values += intervals[label].intervals.get(name, (math.nan, math.nan))
        cells = ("" if math.isnan(one) else repr(float(one)) for one in values)
        own = label if by == CAMERA_PAIRS else (label,)
        writer.writerow((*(harmless(str(one)) for one in own), *metrics.counts.values(), *cells))
