"""Rows: queries or gallery items that are given by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streameval.errors import entry_point

if TYPE_CHECKING:
    import numpy.typing as npt

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
        import hashlib

        from streameval.protocols.row_numbers import ascending  # protocols are light to import

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
