"""What tiles of both kinds share: what is known of their columns, and what is counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatTile = npt.NDArray[np.floating]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DOUBTS = 1 << 20  # pairs in doubt that a task keeps, to be decided column by column
FINE_QUERIES = 64  # rows of a float64 tile, where a model has collapsed


class Columns(NamedTuple):
    """What is known of the columns of a tile.

    Attributes
    ----------
    item : [n] int64
        Gallery index, ascending.
    weight : [n] float32 or float64
        Multiplied into each row.
    offset : [b, n] of the same dtype
        Added to each row: +inf for items that take no part.
    """

    item: IntArray
    weight: FloatTile
    offset: FloatTile


class Counts(NamedTuple):
    """What is counted for a block of queries.

    Attributes
    ----------
    slots : [2E + m] int64
    ties : [P] int64
        Negatives that tie with a positive, as `edges.note_tie` notes them.
    nearest : [m] float64
    """

    slots: IntArray
    ties: IntArray
    nearest: FloatArray

    @classmethod
    def zero(cls, slots: int, positives: int, queries: int) -> Counts:
        """Return the counts of nothing."""
        return cls(
            np.zeros(slots, np.int64), np.zeros(positives, np.int64), np.full(queries, np.inf)
        )


class Doubts(NamedTuple):
    """Pairs to be decided by their canonical distance.

    Attributes
    ----------
    query, column, edge : [capacity] int32
        Query of the block, column of the tile, and the edge that the pair is close to; −1
        where it is close to none, but may be the query's nearest negative.
    """

    query: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    edge: npt.NDArray[np.int32]

    @classmethod
    def of(cls, capacity: int) -> Doubts:
        """Return an empty list."""
        return cls(*(np.empty(capacity, np.int32) for _ in cls._fields))
