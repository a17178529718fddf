"""Row numbers: what is given of them, checked and in ascending order."""

from __future__ import annotations

import numpy as np

from streameval.errors import InputError, refuse
from streameval.protocols.labels import Labels, as_numpy
from streameval.typing import IntArray


def ascending(given: object, what: str, first: int = 0) -> IntArray:
    """Return row numbers in ascending order, [n] int64, counted from 0.

    Parameters
    ----------
    given : [n] integer array_like
    what : str
        What messages call it.
    first : int
        What they are counted from.

    Raises
    ------
    InputError
        If there are no rows, a row comes twice, or they are no numbers of rows.
    """
    rows = as_numpy(given, what)
    refuse(
        InputError,
        rows.ndim == 1 and not rows.size and f"{what} has no rows, and at least one is needed",
        (rows.ndim != 1 or rows.dtype.kind not in "iu")
        and f"{what} is {rows.dtype} {rows.shape}; row numbers, a 1-d list of integers, are needed",
    )
    known, count = np.unique(rows, return_counts=True)
    twice = known[count > 1]
    refuse(
        InputError,
        len(twice) and f"{what} names row {twice[0]} twice: give each row once",
        known[0] < first and f"{what} has row {known[0]}, and rows are said to be {first}-based",
    )
    return known.astype(np.int64) - first


def check_rows(rows: IntArray, labels: Labels, what: str) -> None:
    """Raise InputError for row numbers, ascending, that labels don't have."""
    outside = rows[(rows < 0) | (rows >= len(labels))]
    if len(outside):
        raise InputError(
            f"{what} has row {outside[0]}; the {len(labels)} rows of {labels.source} are numbered "
            f"0 to {len(labels) - 1}: do the rows count from 1?"
        )
