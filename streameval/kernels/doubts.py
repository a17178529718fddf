"""Doubts: pairs that a tile's values do not decide, listed for their canonical distances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streameval.kernels.tiles import FloatArray, Tile

DOUBTS = 1 << 20  # pairs that a task keeps, to be decided column by column


class Doubts(NamedTuple):
    """Pairs to be decided by their canonical distance.

    Attributes
    ----------
    query, column, edge : [capacity] int32
        Query of the block, column of the tile, and the edge that the pair is close to.
    """

    query: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    edge: npt.NDArray[np.int32]

    @classmethod
    def of(cls, capacity: int) -> Doubts:
        """Return an empty list; memory that is not written to is not taken."""
        return cls(*(np.empty(capacity, np.int32) for _ in cls._fields))

    def enlarged(self, needed: int, usual: int = DOUBTS) -> Doubts:
        """Return a list that holds at least `needed` pairs, `usual` by default."""
        return self if len(self.query) >= needed else Doubts.of(max(needed, usual))

    def resolve(self, tile: Tile, filled: int) -> FloatArray:
        """Return the canonical distances of the first pairs."""
        return tile.resolve(self.query[:filled], self.column[:filled])
