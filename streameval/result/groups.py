"""Groups of queries: their labels, metrics and confidence; and groups.csv with a row a group."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import numpy.typing as npt

from streameval.display.table import harmless, number_csv
from streameval.errors import InputError, refuse
from streameval.metrics.bounds import ListReading
from streameval.metrics.compute import Metrics
from streameval.metrics.confidence import Confidence
from streameval.metrics.groups import confidence_by_group, metrics_by_camera_pair, metrics_by_group
from streameval.protocols.labels import CAMERA_PAIRS, first_fraction, label_column, missing
from streameval.statistics import RankStatistics
from streameval.typing import AnyArray, IntArray

if TYPE_CHECKING:
    from streameval.result.values import EvaluationValues

Columns = Mapping[str, AnyArray]
"""Arrays by name, an entry a query, a positive or a point of a curve."""

GROUP = "group"
LABELS = ("id", "cam", GROUP)
"""Columns of the per-query table that are labels, and not computed."""

MOST_GROUPS = 100  # of queries that have a histogram of impostors of their own

_FURTHER = "label:"  # before the names of further labels there: a computed column may have one


def table_columns(columns: Columns) -> dict[str, AnyArray]:
    """Return labels by the names that they have in the per-query table."""
    return {
        name if name in LABELS else f"{_FURTHER}{name}": values for name, values in columns.items()
    }


def label_columns(names: Iterable[str]) -> dict[str, str]:
    """Return which columns of a per-query table are labels, by the names of the labels."""
    return {
        name.removeprefix(_FURTHER): name
        for name in names
        if name in LABELS or name.startswith(_FURTHER)
    }


def check_group_column(name: str, columns: Columns, positive_cams: object | None) -> None:
    """Refuse a column that queries don't have, or not all; and cameras that a side lacks."""
    column = "cam" if name == CAMERA_PAIRS else name
    values = columns.get(column, np.empty(0))
    absent = np.flatnonzero(missing(values))
    broken = first_fraction(values)
    refuse(
        InputError,
        len(absent)
        and f"{len(absent)} queries have no {column} to group by, the first of them query "
        f"{absent[0]}: give each a label, such as 'none', or group by another column",
        broken is not None
        and f"column {column!r} to group by holds numbers that are no integers, such as "
        f"{values[broken or 0]} of query {broken}: give a label a query",
    )
    if name == CAMERA_PAIRS:
        if "cam" not in columns or positive_cams is None:
            whose = "positives" if "cam" in columns else "queries"
            raise InputError(
                f"the {whose} have no cameras to group by {CAMERA_PAIRS}: evaluate with a camera "
                "of every query and item (--query-cams and --gallery-cams, or a column cam of both "
                "tables)"
            )
    elif name not in columns:
        raise InputError(
            f"there is no column {name!r} to group by; the queries have {', '.join(columns)}: "
            "give one of these, or a label a query"
        )


def check_mean_column(name: str, columns: Columns) -> None:
    """Refuse a column of groups whose means are averaged, if queries don't have it."""
    if name and name not in columns:
        raise InputError(
            f"there is no column {name!r} of groups to average over; the queries have "
            f"{', '.join(columns)}: give one of these"
        )


def with_mean_groups(
    statistics: RankStatistics, lists: ListReading | None, name: str, columns: Columns
) -> tuple[RankStatistics, ListReading | None]:
    """Return statistics, also the best ones of lists, with the groups that means are over."""
    check_mean_column(name, columns)
    if not name:
        return statistics, lists
    group = np.unique(columns[name], return_inverse=True)[1].astype(np.int64)
    if lists is not None and lists.best is not None:
        lists = replace(lists, best=lists.best.with_mean_group(group))
    return statistics.with_mean_group(group), lists


def check_not_of_lists(lists: object | None, what: str) -> None:
    """Refuse, with an InputError, what asks of every positive where it stands."""
    if lists is not None:
        raise InputError(
            f"{what} needs the place of every positive, and lists of neighbours may leave some "
            "out: evaluate the features or distances"
        )


def group_labels(labels: npt.ArrayLike, queries: int) -> AnyArray:
    """Return labels of groups as an array, [Q]; refuse what is no labels, or not one a query."""
    column = label_column(labels, "the column of groups")
    if len(column) != queries:
        raise InputError(
            f"the column of groups has {len(column)} entries, and there are {queries} queries: "
            "one label a query is needed"
        )
    return column


def histogram_groups(group_by: str | npt.ArrayLike, columns: Columns) -> IntArray | None:
    """Return which group each query is in, [Q] int64; None of too many groups, or of none known.

    `group_by` is a column of labels, or a label a query.
    """
    if isinstance(group_by, str):
        labels = columns.get(group_by)
    else:
        labels = group_labels(group_by, len(columns["id"]))
    if labels is None:
        return None
    known, group = np.unique(labels, return_inverse=True)
    return group.astype(np.int64) if len(known) <= MOST_GROUPS else None


def metrics_of_groups(result: EvaluationValues) -> Mapping[Any, Metrics]:
    """Return the metrics of each group of a result; none where it is not grouped."""
    by, statistics, options = result.group_by, result.statistics, result.options
    if by is None:
        return {}
    if by == CAMERA_PAIRS and result.positive_cams is not None:
        cams = result.columns["cam"]
        return metrics_by_camera_pair(statistics, cams, result.positive_cams, options)
    return metrics_by_group(statistics, result.columns[by], options, result.lists)


def confidence_of_groups(result: EvaluationValues) -> Mapping[Any, Confidence]:
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


def write_groups(file: TextIO, result: EvaluationValues) -> None:
    """Write the labels, counts and metrics of each group, with intervals if it has them.

    Labels of ``cam-pair`` are two columns: ``query_cam`` and ``gallery_cam``. What is undefined is
    empty.
    """
    pairs = result.group_by == CAMERA_PAIRS
    heads = ("query_cam", "gallery_cam") if pairs else (str(result.group_by),)
    rows: list[tuple[object, ...]] = []
    for label, metrics in result.groups.items():
        values = dict(metrics.scalars)
        if label in result.group_confidence:
            intervals = result.group_confidence[label].intervals
            for name in metrics.scalars:
                ends = intervals.get(name, (math.nan, math.nan))
                values[f"{name} low"], values[f"{name} high"] = ends
        if not rows:
            rows.append((*map(harmless, heads), *metrics.counts, *values))
        labels = map(str, label if pairs else (label,))
        numbers = map(number_csv, values.values())
        rows.append((*map(harmless, labels), *metrics.counts.values(), *numbers))
    csv.writer(file, lineterminator="\n").writerows(rows)
