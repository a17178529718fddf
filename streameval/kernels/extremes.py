"""The least and the greatest distance of all pairs, and the nearest negatives of each query.

The nearest are kept in a heap of M canonical distances, fed tile by tile. A value is looked at
where it may be nearer than the furthest of the M that are known, and within the reach of the
search; where its tile has a band, its distance decides.

Tasks lower the reach to the furthest of their M. It is never below the M-th least distance of
all; and as what is at the reach is still taken, the M least of all tasks together are those of
the whole, whichever tasks run first, or again.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.tiles import (
    Doubts,
    FloatArray,
    IntArray,
    Rows,
    Tile,
    list_values,
    product,
    weighted,
)


class ExtremesCounter:
    """Finds the least and the greatest distance.

    Parameters
    ----------
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` that serves each query.

    Attributes
    ----------
    least, most : float
        So far; +inf and −inf of no pair.
    """

    def __init__(self, offset_row: IntArray) -> None:
        self.least, self.most = np.inf, -np.inf
        self._offset_row, self._doubts = offset_row, Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Look at a tile, in which ignored pairs are +inf."""
        rows = Rows.of(tile, self._offset_row)
        if self.least > self.most and tile.values.size:
            self._sample(tile, rows)
        self._doubts = self._doubts.enlarged(2 * tile.values.shape[1])
        row, every_row = 0, np.ones(len(tile.query))
        while row < len(tile.query):
            low = tile.row_levels(self.least * every_row).tied + rows.band
            high = tile.row_levels(self.most * every_row).closer - rows.band
            row, filled = _find(rows, row, low, high, self._doubts)
            if filled:
                self._widen(self._doubts.resolve(tile, filled))

    def _sample(self, tile: Tile, rows: Rows) -> None:
        """Look at the least and the greatest value of a row, so that few others are left."""
        item, weight, offset = tile.columns
        values = np.empty(len(item), tile.values.dtype)
        weighted(tile.values[0], weight, offset[rows.offset[0]], values)
        column = np.array([values.argmin(), np.where(values < np.inf, values, -np.inf).argmax()])
        if np.isfinite(values[column]).all():
            self._widen(tile.resolve(tile.query[[0, 0]], column))

    def _widen(self, distances: FloatArray) -> None:
        self.least = float(min(self.least, distances.min(initial=np.inf)))
        self.most = float(max(self.most, distances.max(initial=-np.inf)))


@numba.njit(nogil=True, cache=True)
def _find(rows, row, low, high, doubts):  # type: ignore[no-untyped-def]
    """List the values of a tile that may be extreme, from a row on, in at least n doubts.

    Values between `low` and `high`, [m] float64, are not; nor are exact ones that are equal. Return
    the row to go on with (m where all are looked at), and how many doubts there are.
    """
    tile, columns, filled = rows.values, rows.columns, 0
    while row < tile.shape[0] and filled + tile.shape[1] <= len(doubts.query):
        below, above = low[row], high[row]
        if rows.band[row] == 0.0:
            below, above = np.nextafter(below, -np.inf), np.nextafter(above, np.inf)
        offset = columns.offset[rows.offset[row]]
        for k in list_values(tile[row], columns.weight, offset, below, above, np.inf):
            doubts.query[filled], doubts.column[filled] = rows.query[row], k
            filled += 1
        row += 1
    return row, filled


class NearestCounter:
    """Keeps the nearest negatives of a block of queries.

    Parameters
    ----------
    most : int
        How many of each query.
    reach : [queries of the block] float64, lowered
        Only those no further are wanted.
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` that serves each query.

    Attributes
    ----------
    heaps : [queries of the block, M] float64
        Max-heaps; of −inf alone where there are too many values to be told apart.
    """

    def __init__(self, most: int, reach: FloatArray, offset_row: IntArray) -> None:
        self.heaps = np.full((len(offset_row), most), np.inf)
        self._reach, self._offset_row = reach, offset_row
        self._doubts = Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Note the nearest negatives of a tile."""
        query, rows = tile.query, Rows.of(tile, self._offset_row)
        bound = np.minimum(self._reach[query], self.heaps[query, 0])
        limit = tile.row_levels(bound).tied + rows.band
        self._doubts = self._doubts.enlarged(2 * tile.values.shape[1])
        row = 0
        while row < len(query):
            kept = self._reach, self.heaps, self._doubts
            row, filled = _find_nearest(rows, row, bound, limit, *kept)
            exact = self._doubts.resolve(tile, filled)
            _put_all(exact, self._doubts.query, self._reach, self.heaps)
        self._reach[query] = np.minimum(self._reach[query], self.heaps[query, 0])

    def sorted(self) -> FloatArray:
        """Return the distances of each query, ascending, [queries of the block, M]."""
        return np.sort(self.heaps, axis=1)


@numba.njit(nogil=True, cache=True)
def _put(heap, value):  # type: ignore[no-untyped-def]
    """Put a value in place of the greatest of a max-heap."""
    at, size = 0, len(heap)
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value


@numba.njit(nogil=True, cache=True)
def _put_all(exact, query, reach, heaps):  # type: ignore[no-untyped-def]
    """Put canonical distances into the heaps of their queries."""
    for t in range(len(exact)):
        i = query[t]
        if exact[t] <= reach[i] and exact[t] < heaps[i, 0]:
            _put(heaps[i], exact[t])


@numba.njit(nogil=True, cache=True)
def _find_nearest(rows, row, bound, limit, reach, heaps, doubts):  # type: ignore[no-untyped-def]
    """List the values of a tile that may be among the nearest; keep those that are exact.

    Parameters
    ----------
    bound : [m] float64
        The least of the reach of each row and the furthest in its heap.
    limit : [m] float64
        A value up to it may be within the bound.
    reach : [queries of the block] float64
        −inf where there are too many values to be told apart.
    doubts : Doubts
        Of capacity n at least; written.

    Returns
    -------
    the row to go on with (m where all are looked at), how many doubts there are
    """
    tile, columns, filled = rows.values, rows.columns, 0
    n, most = tile.shape[1], heaps.shape[1]
    values = np.empty(n, tile.dtype)
    while row < tile.shape[0] and filled + n <= len(doubts.query):
        i, band, cut = rows.query[row], rows.band[row], limit[row]
        given, weight, offset = tile[row], columns.weight, columns.offset[rows.offset[row]]
        heap = heaps[i]
        if bound[row] == -np.inf:
            heap[:] = -np.inf
            row += 1
            continue
        if bound[row] == np.inf and n > most and band > 0.0:
            weighted(given, weight, offset, values)
            cut = np.float64(np.partition(values, most - 1)[most - 1]) + 2 * band
        near = list_values(given, weight, offset, cut, np.inf, np.inf)
        if band > 0.0 and len(near) > 4 * most + n // 4:  # a model that has collapsed: of no use
            heap[:] = -np.inf
            reach[i] = -np.inf
            near = near[:0]
        for k in near:
            if band > 0.0:
                doubts.query[filled], doubts.column[filled] = i, k
                filled += 1
                continue
            value = np.float64(product(given, weight, k) + offset[k])
            if value <= reach[i] and value < heap[0]:
                _put(heap, value)
        row += 1
    return row, filled
