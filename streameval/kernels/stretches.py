"""Negatives ahead of a few positives, by stretch of the gallery: for ranks, and nothing else.

A row of a tile is compared with each limit as a whole, in a loop that vectorises; what lies
within the band of a limit is decided by its distance. Of marks, the pairs that are listed are
compared.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.edges import Positives, first_reached
from streameval.kernels.limits import Sides, up_to
from streameval.kernels.selection import list_values
from streameval.kernels.tiles import (
    Doubts,
    Levels,
    LevelTable,
    Rows,
    Tile,
    greatest_finite,
    round_up,
    weighted,
)
from streameval.typing import IntArray


class StretchCounter:
    """Counts negatives ahead of given positives, each stretch of the gallery apart.

    Parameters
    ----------
    positives : Positives
        Of a block of queries.
    cuts : [s + 1] int64
        Gallery index that each stretch begins with, and the end of the last.

    Attributes
    ----------
    ahead : [s, 2, P] int64
        Negatives closer than each positive, and as far as it.
    """

    def __init__(self, positives: Positives, cuts: IntArray) -> None:
        self.ahead = np.zeros((len(cuts) - 1, 2, len(positives.distance)), np.int64)
        self._positives, self._cuts = positives, cuts
        self._table = LevelTable(positives.indptr, positives.distance)
        self._furthest, self._doubts = positives.furthest(), Doubts.of(0)

    def wanted(self, item: IntArray) -> Sides:
        """Return up to which distance of each query negatives are counted."""
        return up_to(self._furthest)

    def add(self, tile: Tile) -> None:
        """Count a tile."""
        begin = np.searchsorted(tile.columns.item, self._cuts)
        rows, levels = self._table.rows(tile)
        if tile.sparse:
            self._list(tile, rows, levels, begin)
            return
        row, done = 0, 0
        self._doubts = self._doubts.enlarged(2 * tile.values.shape[1])
        while row < len(tile.query):
            where = begin, self._positives.indptr, self.ahead, self._doubts
            row, done, filled = _count(rows, levels, row, done, *where)
            self._settle(tile, begin, filled)

    def _list(self, tile: Tile, rows: Rows, levels: Levels, begin: IntArray) -> None:
        """Count the pairs of a tile that are marked."""
        indptr = self._positives.indptr
        band = np.full(len(indptr) - 1, -np.inf)
        band[tile.query] = rows.band
        self._doubts = self._doubts.enlarged(int(np.diff(indptr).max(initial=0)))
        for listed, values in tile.listed():
            done = 0
            while done < len(values):
                where = begin, indptr, self.ahead, self._doubts
                done, filled = _place(values, listed, done, levels, band, *where)
                self._settle(tile, begin, filled)

    def _settle(self, tile: Tile, begin: IntArray, filled: int) -> None:
        """Count pairs in doubt by their canonical distances."""
        if not filled:
            return
        exact, edge = self._doubts.resolve(tile, filled), self._doubts.edge[:filled]
        stretch = np.searchsorted(begin, self._doubts.column[:filled], side="right") - 1
        limit = self._positives.distance[edge]
        for kind, chosen in enumerate((exact < limit, exact == limit)):
            np.add.at(self.ahead[:, kind], (stretch[chosen], edge[chosen]), 1)


@compiled
def _place(values, listed, done, levels, band, begin, indptr, ahead, doubts):  # type: ignore[no-untyped-def]
    """Count listed pairs ahead of each positive, from one on; list those in doubt.

    Return the pair to go on with (p where all are counted), and how many doubts there are.
    """
    queries, columns, _ = listed
    filled = 0
    while done < len(values):
        i, k, value = queries[done], columns[done], np.float64(values[done])
        if filled + indptr[i + 1] - indptr[i] > len(doubts.query):
            break
        stretch = first_reached(k + 1, begin, 0, 0, len(begin)) - 1
        for p in range(indptr[i], indptr[i + 1]):
            if value < levels.closer[p] - band[i]:
                ahead[stretch, 0, p] += 1
            elif value <= levels.tied[p] + band[i]:
                doubts.query[filled], doubts.column[filled], doubts.edge[filled] = i, k, p
                filled += 1
        done += 1
    return done, filled


@compiled
def _compare(values, left, right, low, high):  # type: ignore[no-untyped-def]
    """Return how many values of a part of a row are below one limit, and up to another."""
    below, within = 0, 0
    for k in range(left, right):
        below += values[k] < low
        within += values[k] <= high
    return below, within


@compiled
def _count(rows, levels, row, done, begin, indptr, ahead, doubts):  # type: ignore[no-untyped-def]
    """Count the negatives of a tile ahead of each positive; list those in doubt, at least n.

    A doubt's edge is the positive. `begin` [s + 1] are the columns that stretches begin with, and
    n; `done` is how many positives of the first row are done. Return the row to go on with (m where
    all are counted), the positives of it that are done, and how many doubts there are.
    """
    tile, columns, filled = rows.values, rows.columns, 0
    n = tile.shape[1]
    values, nothing = np.empty(n, tile.dtype), np.zeros(n, tile.dtype)
    finite = greatest_finite(tile)
    while row < tile.shape[0]:
        i, band = rows.query[row], rows.band[row]
        if done < indptr[i + 1] - indptr[i]:
            weighted(tile[row], columns.weight, columns.offset[rows.offset[row]], values)
        for p in range(indptr[i] + done, indptr[i + 1]):
            if filled + n > len(doubts.query):
                return row, p - indptr[i], filled
            low, high = levels.closer[p] - band, levels.tied[p] + band
            least, most = -round_up(-low, values), round_up(min(high, finite), values)
            doubtful = 0
            for s in range(len(begin) - 1):
                below, within = _compare(values, begin[s], begin[s + 1], least, most)
                ahead[s, 0, p] += below
                doubtful += within - below
            if doubtful > 0:
                for k in list_values(values, None, nothing, -np.inf, low, high):
                    doubts.query[filled], doubts.column[filled], doubts.edge[filled] = i, k, p
                    filled += 1
        row, done = row + 1, 0
    return row, done, filled
