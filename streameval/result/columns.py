"""The labels of queries that are kept with a result, and that it may be grouped by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.protocols.labels import CAMERA_PAIRS, AnyArray, label_column
from streameval.statistics import IntArray

GROUP = "group"
LABELS = ("id", "cam", GROUP)
"""Columns of the per-query table that are labels, and not computed."""

MOST_GROUPS = 100  # of queries that have a histogram of impostors of their own

_FURTHER = "label:"  # before the names of further labels there: a computed column may have one


def table_columns(columns: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
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


def check_group_column(name: str, columns: Mapping[str, AnyArray]) -> None:
    """Check that queries have a column to be grouped by.

    Raises
    ------
    InputError
    """
    if name not in columns:
        raise InputError(
            f"there is no column {name!r} to group by; the queries have {', '.join(columns)}: "
            "give one of these, or a label a query"
        )


def check_camera_pairs(columns: Mapping[str, AnyArray], positive_cams: object | None) -> None:
    """Check that queries and positives have cameras to be grouped by.

    Raises
    ------
    InputError
    """
    if "cam" not in columns or positive_cams is None:
        whose = "positives" if "cam" in columns else "queries"
        raise InputError(
            f"the {whose} have no cameras to group by {CAMERA_PAIRS}: evaluate with cameras of "
            "both sides (--query-cams and --gallery-cams, or a column cam of both tables)"
        )


def check_not_of_lists(lists: object | None, what: str) -> None:
    """Refuse what asks of every positive where it stands.

    Raises
    ------
    InputError
        If lists of neighbours may leave some out.
    """
    if lists is not None:
        raise InputError(
            f"{what} needs the place of every positive, and lists of neighbours may leave some "
            "out: evaluate the features or distances"
        )


def group_labels(labels: npt.ArrayLike, queries: int) -> AnyArray:
    """Return labels of groups as an array, [Q].

    Raises
    ------
    InputError
        If they are no labels, or not one a query.
    """
    column = label_column(labels, "the column of groups")
    if len(column) != queries:
        raise InputError(
            f"the column of groups has {len(column)} entries, and there are {queries} queries: "
            "one label a query is needed"
        )
    return column


def histogram_groups(
    group_by: str | npt.ArrayLike, columns: Mapping[str, AnyArray]
) -> IntArray | None:
    """Return which group each query is in, [Q] int64; None of too many groups, or of none known.

    Parameters
    ----------
    group_by : str or [Q] array_like
        A column of labels, or a label a query.
    columns : mapping of str to [Q] array
    """
    if isinstance(group_by, str):
        if group_by not in columns:
            return None
        labels = columns[group_by]
    else:
        labels = group_labels(group_by, len(columns["id"]))
    known, group = np.unique(labels, return_inverse=True)
    return group.astype(np.int64) if len(known) <= MOST_GROUPS else None


def group_name(label: Any) -> str:
    """Return what a group is called: its label; of a pair of cameras, both."""
    return " → ".join(map(str, label)) if isinstance(label, tuple) else str(label)
