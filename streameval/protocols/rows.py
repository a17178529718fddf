"""Rows: queries or gallery items that are given by their numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, entry_point, refuse
from streameval.protocols.labels import Labels, as_numpy
from streameval.typing import IntArray


@dataclass(frozen=True)
class Rows:
    """Rows of the queries or of the gallery, for a `Protocol`; equal to others of the same numbers.

    Parameters
    ----------
    rows : [n] integer array_like
        Row numbers, counted from 0, in any order.

    Attributes
    ----------
    count : int
    digest : str
        Of the numbers. A saved result has `count` and `digest` alone.

    Raises
    ------
    InputError
        If there are no rows, a row comes twice, or they are no numbers of rows.
    """

    rows: InitVar[npt.ArrayLike]
    count: int = field(init=False)
    digest: str = field(init=False)

    @entry_point
    def __post_init__(self, rows: npt.ArrayLike) -> None:
        numbers = ascending(rows, "rows")
        numbers.flags.writeable = False
        digest = hashlib.blake2b(numbers.astype("<i8").tobytes(), digest_size=16).hexdigest()
        vars(self).update(numbers=numbers, count=len(numbers), digest=digest)

    @classmethod
    def saved(cls, told: Mapping[str, Any]) -> Rows:
        """Return what a saved result tells of rows, without their numbers."""
        rows = cls.__new__(cls)
        vars(rows).update(told)
        return rows

    @cached_property
    def numbers(self) -> IntArray:
        """The row numbers, [n] int64, ascending."""
        raise RuntimeError("a saved result has a digest of its rows, and not their numbers")

    def __str__(self) -> str:
        """Say how many there are."""
        return f"{self.count} row{'s that are' if self.count > 1 else ' that is'} given"


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
