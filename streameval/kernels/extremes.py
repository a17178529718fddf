"""The least and the greatest distance of all pairs, and the nearest negatives of each query.

Both look at the values of a tile up to a limit, or from another on, and at the distances of these
pairs alone. Limits come nearer tile by tile.

The nearest are kept in a heap of M canonical distances. A value is looked at where it may be
nearer than the furthest of the M that are known, and within the reach of the search. Tasks lower
the reach to the furthest of their M. It is never below the M-th least distance of all; and as what
is at the reach is still taken, the M least of all tasks together are those of the whole, whichever
tasks run first, or again.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.selection import list_values
from streameval.kernels.tiles import Doubts, Rows, Tile, product
from streameval.typing import BoolArray, FloatArray


@compiled
def _find(rows, row, low, high, doubts, crowd, crowded):  # type: ignore[no-untyped-def]
    """List the values of a tile up to one limit, or from another on, as doubts.

    Parameters
    ----------
    rows : Rows
    row : int
        The row to begin with.
    low, high : [m] float64
        The limits of each row.
    doubts : Doubts
        Of capacity n at least; written.
    crowd, crowded : int, [m] bool
        A row with more such values is not listed, but noted.

    Returns
    -------
    the row to go on with (m where all are looked at), and how many doubts there are
    """
    tile, columns, filled = rows.values, rows.columns, 0
    while row < tile.shape[0] and filled + tile.shape[1] <= len(doubts.query):
        offset = columns.offset[rows.offset[row]]
        found = list_values(tile[row], columns.weight, offset, low[row], high[row], np.inf)
        crowded[row] = len(found) > crowd
        if not crowded[row]:
            for k in found:
                doubts.query[filled], doubts.column[filled] = rows.query[row], k
                filled += 1
        row += 1
    return row, filled


class ExtremesCounter:
    """Finds the least and the greatest distance.

    Attributes
    ----------
    least, most : float
        So far; +inf and −inf of no pair.
    """

    def __init__(self) -> None:
        self.least, self.most, self._doubts = np.inf, -np.inf, Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Look at a tile, in which ignored pairs are +inf."""
        (m, n), rows, row = tile.values.shape, Rows.of(tile), 0
        if self.least > self.most and tile.values.size:
            self._sample(tile, rows)
        self._doubts = self._doubts.enlarged(2 * n)
        while row < m:
            low = tile.row_levels(np.full(m, self.least)).tied + rows.band
            high = tile.row_levels(np.full(m, self.most)).closer - rows.band
            if not rows.band.any():  # what is equal is nothing new
                low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
            row, filled = _find(rows, row, low, high, self._doubts, n, np.empty(m, np.bool_))
            self._widen(self._doubts.resolve(tile, filled))

    def _sample(self, tile: Tile, rows: Rows) -> None:
        """Look at the least and the greatest value of a row, so that few others are left."""
        values = rows.weighted(0)
        column = np.array([values.argmin(), np.where(values < np.inf, values, -np.inf).argmax()])
        if np.isfinite(values[column]).all():
            self._widen(tile.resolve(tile.query[[0, 0]], column))

    def _widen(self, distances: FloatArray) -> None:
        self.least = float(min(self.least, distances.min(initial=np.inf)))
        self.most = float(max(self.most, distances.max(initial=-np.inf)))


class NearestCounter:
    """Keeps the nearest negatives of a block of queries.

    Parameters
    ----------
    most : int
        How many of each query.
    reach : [queries of the block] float64, lowered
        Only those no further are wanted; −inf where there are too many to be told apart.

    Attributes
    ----------
    heaps : [queries of the block, M] float64
        Max-heaps; of −inf alone where there are too many values to be told apart.
    """

    def __init__(self, most: int, reach: FloatArray) -> None:
        self.heaps = np.full((len(reach), most), np.inf)
        self._reach, self._doubts = reach, Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Note the nearest negatives of a tile."""
        query, rows = tile.query, Rows.of(tile)
        bound = np.minimum(self._reach[query], self.heaps[query, 0])
        limit, untold = tile.row_levels(bound).tied + rows.band, bound == -np.inf
        if rows.band.any():
            untold |= self._decide(tile, rows, bound, limit)
        else:
            _put_exact(rows, limit, self._reach, self.heaps)
        self.heaps[query[untold]] = -np.inf
        self._reach[query] = np.minimum(self._reach[query], self.heaps[query, 0])

    def _decide(self, tile: Tile, rows: Rows, bound: FloatArray, limit: FloatArray) -> BoolArray:
        """Note the distances of values up to a limit; return the rows with too many, [m]."""
        (m, n), most, row = tile.values.shape, self.heaps.shape[1], 0
        for first in np.flatnonzero(bound == np.inf).tolist() if n > most else ():
            nearest = np.partition(rows.weighted(first), most - 1)[most - 1]
            limit[first] = float(nearest) + 2 * rows.band[first]
        # A model that has collapsed has more within the band than are of use.
        crowd, crowded, never = 4 * most + n // 4, np.zeros(m, np.bool_), np.full(m, np.inf)
        self._doubts = self._doubts.enlarged(2 * n)
        while row < m:
            row, filled = _find(rows, row, limit, never, self._doubts, crowd, crowded)
            exact = self._doubts.resolve(tile, filled)
            _put_all(exact, self._doubts.query, self._reach, self.heaps)
        return crowded

    def sorted(self) -> FloatArray:
        """Return the distances of each query, ascending, [queries of the block, M]."""
        return np.sort(self.heaps, axis=1)


@compiled
def _put(value, reach, heap):  # type: ignore[no-untyped-def]
    """Put a distance within reach in place of the greatest of a heap, if it is less."""
    if value > reach or value >= heap[0]:
        return
    at, child, size = 0, 1, len(heap)
    while child < size:
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = value


@compiled
def _put_all(exact, query, reach, heaps):  # type: ignore[no-untyped-def]
    """Put canonical distances into the heaps of their queries."""
    for t in range(len(exact)):
        _put(exact[t], reach[query[t]], heaps[query[t]])


@compiled
def _put_exact(rows, limit, reach, heaps):  # type: ignore[no-untyped-def]
    """Put the values of an exact tile, up to the limits of its rows, into the heaps."""
    for row in range(len(rows.query)):
        i, given, weight = rows.query[row], rows.values[row], rows.columns.weight
        offset = rows.columns.offset[rows.offset[row]]
        for k in list_values(given, weight, offset, limit[row], np.inf, np.inf):
            _put(np.float64(product(given, weight, k) + offset[k]), reach[i], heaps[i])
