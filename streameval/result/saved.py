"""The files of a saved result, written and read.

    summary.json       metrics, their details and tie intervals, counts, options, provenance
    curves.npz         every curve by name
    per_query.parquet  a row a query
    statistics.zarr    the RankStatistics, from which all of the above can be computed again
    best.zarr          of lists of neighbours read as bounds: the best that they allow, the
                       statistics being the worst
    positives.parquet  a row a positive: query, gallery item, camera, distance, recall, precision
    groups.csv         a row a group: its labels, counts and metrics; where there are groups

What has no finite value, being undefined or infinite, is null in the summary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OutputError
from streameval.metrics import MetricOptions
from streameval.metrics.bounds import ListReading
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.result.columns import check_camera_pairs, label_columns
from streameval.result.folder import (
    BEST,
    CURVES,
    GROUPS,
    PER_QUERY,
    POSITIVES,
    STATISTICS,
    SUMMARY,
    load_statistics,
    save_statistics,
)
from streameval.result.groups import write_groups
from streameval.result.positives import read_positive_cams
from streameval.result.summary import check_counts, read_resampling, read_summary

if TYPE_CHECKING:
    from streameval.result import Evaluation


def write_files(result: Evaluation, folder: Path) -> None:
    """Write the files of a result into a folder that is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = json.dumps(result.summary(), indent=2, ensure_ascii=False, allow_nan=False)
    escaped = "backslashreplace"  # as JSON has it: of a path that is no UTF-8
    (folder / SUMMARY).write_text(text + "\n", encoding="utf-8", errors=escaped)
    np.savez(folder / CURVES, allow_pickle=False, **dict(result.curves))
    pq.write_table(pa.table(dict(result.per_query)), folder / PER_QUERY)
    save_statistics(result.statistics, folder / STATISTICS)
    if result.lists is not None and result.lists.best is not None:
        save_statistics(result.lists.best, folder / BEST)
    if result.statistics.positive_item is not None and result.lists is None:
        pq.write_table(pa.table(dict(result.positives)), folder / POSITIVES)
    if result.group_by is not None:
        with (folder / GROUPS).open("w", encoding="utf-8", newline="") as file:
            write_groups(file, result.group_by, result.groups, result.group_confidence)


def load_result(kind: type[Evaluation], folder: Path) -> Evaluation:
    """Read a saved result; its metrics are computed again from the statistics.

    Raises
    ------
    OutputError
        See `Evaluation.load`.
    """
    import pyarrow.parquet as pq

    summary = read_summary(folder)
    statistics = load_statistics(folder / STATISTICS)
    try:
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in summary["options"].items()
        }
        value_range = options.pop("range")
        table = pq.read_table(folder / PER_QUERY)
        columns = {
            name: table[column].to_numpy()
            for name, column in label_columns(table.column_names).items()
        }
        loaded = kind.compute(
            statistics,
            MetricOptions(**options),
            range=value_range,
            columns=columns,
            provenance={
                name: value
                for name, value in summary["provenance"].items()
                if name not in ("streameval", "format")
            },
            positive_cams=read_positive_cams(folder, statistics),
            lists=_read_lists(folder, summary["provenance"].get("lists"), table),
            resampling=read_resampling(summary),
        )
        loaded = replace(loaded, group_by=summary.get("groups", {}).get("by"))
        if loaded.group_by == CAMERA_PAIRS:
            check_camera_pairs(columns, loaded.positive_cams)
        check_counts(folder, loaded.counts, summary["counts"])
    except (MemoryError, OutputError):
        raise
    except Exception as error:  # an option or a column of another kind, a file that is cut
        raise OutputError(
            f"{folder} is damaged ({type(error).__name__}: {error}); evaluate again, or "
            "restore the folder"
        ) from error
    if table.num_rows != loaded.counts["queries"]:
        raise OutputError(
            f"{folder} is damaged: {PER_QUERY} has {table.num_rows} rows, {SUMMARY} says "
            f"{loaded.counts['queries']} queries; evaluate again, or restore the folder"
        )
    return loaded


def _read_lists(folder: Path, told: Mapping[str, Any] | None, table: Any) -> ListReading | None:
    """Return how the lists of a saved result are read; None where it is of none."""
    if told is None:
        return None
    effective, missing = (
        table[name].to_numpy().astype(np.int64) for name in ("effective_k", "missing_positives")
    )
    best = load_statistics(folder / BEST) if told["missing"] == "bounds" else None
    return ListReading(told["missing"], told["k"], effective, missing, told["tightened"], best)
