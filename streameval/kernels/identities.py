"""Which gallery identities have a negative ahead of the first positive of each query.

Such a task is a block of queries with the whole gallery: what a shard of it tells of an identity
adds up to no number of identities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.edges import Positives
from streameval.kernels.selection import list_values
from streameval.kernels.tiles import Doubts, LevelTable, Tile, product
from streameval.typing import AnyArray, Int32Array

IDENTITY_DOUBTS = 1 << 17  # pairs close to a positive that are kept, to be decided together
MANY = 8  # an eighth of the pairs of a query in doubt: from there on finer tiles pay
LATER, EARLIER, CLOSER = 1, 2, 3  # the most that is known of an identity: as far, or closer


@dataclass(frozen=True, eq=False)
class GalleryIdentities:
    """The H identities of a gallery of G items.

    Attributes
    ----------
    code : [G] int32
        Index of each item's identity, 0 .. H − 1.
    count : int
        H.
    """

    code: Int32Array
    count: int

    def counter(self, positives: Positives) -> IdentityCounter:
        """Return the counter of a block of queries, by their positives."""
        return IdentityCounter(self, positives)


class IdentityCounter:
    """Counts the identities with a negative ahead of the first positive of each query.

    Parameters
    ----------
    identities : GalleryIdentities
    positives : Positives
        Of a block of m queries.

    Attributes
    ----------
    marks : [m, H] uint8
        `CLOSER` where an item of the identity is closer than the first positive. Where one is as
        far, `EARLIER` or `LATER` in the gallery. Else 0, as of queries without positives.
    """

    def __init__(self, identities: GalleryIdentities, positives: Positives) -> None:
        self._code, self._first = identities.code, positives.nearest()
        self._table = LevelTable(self._first.indptr, self._first.distance)
        self._doubts = Doubts.of(0)
        self.marks = np.zeros((len(positives.indptr) - 1, identities.count), np.uint8)

    def add(self, tile: Tile) -> None:
        """Mark the identities of a tile; rows with many values in doubt are left to finer tiles."""
        (m, n), row = tile.values.shape, 0
        self._doubts = self._doubts.enlarged(n, IDENTITY_DOUBTS)
        rows, levels = self._table.rows(tile)
        item, doubts, marks, crowded = tile.columns.item, self._doubts, self.marks, np.zeros(m, "?")
        code, crowd = self._code[item], n // MANY if tile.refinable else n
        while row < m:
            where = self._first.indptr, code, marks, doubts
            row, filled = _mark(rows, levels, row, *where, crowd, crowded)
            _decide(self._first, item, code, marks, doubts, doubts.resolve(tile, filled))
        for finer in tile.finer(np.flatnonzero(crowded)) if crowded.any() else ():
            self.add(finer)

    def finish(self, *_: object) -> dict[str, AnyArray]:
        """Return `identities_ahead`, once the whole gallery is counted."""
        least = CLOSER, EARLIER, LATER  # optimistic, stable, pessimistic
        ahead = [np.count_nonzero(self.marks >= mark, axis=1) for mark in least]
        return {"identities_ahead": np.stack(ahead, axis=1).astype(np.int64, copy=False)}


@compiled
def _mark(  # type: ignore[no-untyped-def]
    rows, levels, row, indptr, code, marks, doubts, crowd, crowded
):
    """Mark the identities of values that are clearly closer, and list those that are in doubt.

    Parameters
    ----------
    rows, levels : Rows, Levels
        Of the tile, and of the first positives.
    row : int
        The row to begin with.
    indptr : [queries of the block + 1] int64
        Whether each query has a positive: 0 or 1 more than before.
    code : [n] int32
        Identity of each column.
    marks : [queries of the block, H] uint8
        Written.
    doubts : Doubts
        Of capacity n at least; written.
    crowd, crowded : int, [m] bool
        A row with more values in doubt is not listed, but noted.

    Returns
    -------
    the row to go on with (m where all are looked at), and how many doubts there are
    """
    tile, columns, filled = rows.values, rows.columns, 0
    n = tile.shape[1]
    # Taken out of their tuples: looked up there, each would count references.
    doubt_query, doubt_column, _ = doubts
    weight, closer, tied = columns.weight, levels.closer, levels.tied
    while row < tile.shape[0] and filled + n <= len(doubt_query):
        i, band, before = rows.query[row], rows.band[row], filled
        p, values, own = indptr[i], tile[row], marks[i]
        if p < indptr[i + 1]:
            offset = columns.offset[rows.offset[row]]
            for k in list_values(values, weight, offset, tied[p] + band, np.inf, np.inf):
                if np.float64(product(values, weight, k) + offset[k]) < closer[p] - band:
                    own[code[k]] = CLOSER
                elif own[code[k]] < CLOSER:
                    doubt_query[filled], doubt_column[filled] = i, k
                    filled += 1
        crowded[row] = filled - before > crowd
        if crowded[row]:
            filled = before
        row += 1
    return row, filled


@compiled
def _decide(first, item, code, marks, doubts, exact):  # type: ignore[no-untyped-def]
    """Mark the identities of pairs that were in doubt, by their canonical distances."""
    indptr, distance, own = first
    query, column, _ = doubts
    for t in range(len(exact)):
        i, k = query[t], column[t]
        p = indptr[i]
        if exact[t] < distance[p]:
            marks[i, code[k]] = CLOSER
        elif exact[t] == distance[p]:
            tied = EARLIER if item[k] < own[p] else LATER
            marks[i, code[k]] = max(marks[i, code[k]], tied)
