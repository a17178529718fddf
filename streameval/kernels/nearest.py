"""The nearest negatives of each query: a heap of M canonical distances, fed tile by tile.

A value is looked at where it may be nearer than the furthest of the M that are known, and within
the reach of the search; where its tile has a band, its distance decides.

Tasks lower the reach to the furthest of their M. It is never below the M-th least distance of
all; and as what is at the reach is still taken, the M least of all tasks together are those of
the whole, whichever tasks run first, or again.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.doubts import Doubts
from streameval.kernels.levels import Rows, round_up, row_levels, weighted
from streameval.kernels.tiles import FloatArray, IntArray, Tile

_STRIDE = 64  # values looked at together


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
        query, band = tile.query, tile.band
        within = self._reach[query]
        bound = np.minimum(within, self.heaps[query, 0])
        limit = row_levels(tile, bound).tied + band
        rows = Rows(query, self._offset_row[query], band, query)
        self._doubts = self._doubts.enlarged(2 * tile.values.shape[1])
        row = 0
        while row < len(query):
            row, filled = _find(
                tile.values,
                row,
                rows,
                tile.columns,
                within,
                bound,
                limit,
                self._reach,
                self.heaps,
                self._doubts,
            )
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
def _count_within(row, limit, some):  # type: ignore[no-untyped-def]
    """Write how many values of each stretch are within a limit, but for +inf; return the sum."""
    n, total = row.shape[0], 0
    finite = min(limit, np.finfo(row.dtype).max)
    for block in range(len(some)):
        left = block * _STRIDE
        count = 0
        if left + _STRIDE <= n:
            for k in range(_STRIDE):  # vectorises
                count += row[left + k] <= finite
        else:
            for k in range(left, n):
                count += row[k] <= finite
        some[block] = count
        total += count
    return total


@numba.njit(nogil=True, cache=True)
def _find(  # type: ignore[no-untyped-def]
    tile, row, rows, columns, within, bound, limit, reach, heaps, doubts
):
    """List the values of a tile that may be among the nearest; keep those that are exact.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        +inf where the pair is not a negative.
    row : int
        The row to begin with.
    rows : Rows
    columns : Columns
    within, bound : [m] float64
        The reach of each row; and the least of it and the furthest in the heap.
    limit : [m] float64
        A value up to it may be within the bound.
    reach : [queries of the block] float64
        −inf where there are too many values to be told apart.
    heaps : [queries of the block, M] float64
    doubts : Doubts
        Of capacity n at least; written.

    Returns
    -------
    the row to go on with (m where all are looked at), how many doubts there are
    """
    n, most, filled = tile.shape[1], heaps.shape[1], 0
    values, some = np.empty(n, tile.dtype), np.empty(-(-n // _STRIDE), np.int32)
    doubt_query, doubt_column = doubts.query, doubts.column
    while row < tile.shape[0] and filled + n <= len(doubt_query):
        i, band = rows.query[row], rows.band[row]
        heap, cut = heaps[i], limit[row]
        if bound[row] == -np.inf:
            heap[:] = -np.inf
            row += 1
            continue
        weighted(tile[row], columns.weight, columns.offset[rows.offset[row]], values)
        if band == 0.0:
            for k in range(n):
                value = np.float64(values[k])
                if value <= within[row] and value < heap[0]:
                    _put(heap, value)
            row += 1
            continue
        if bound[row] == np.inf:
            cut = np.inf
            if n > most:
                cut = np.float64(np.partition(values, most - 1)[most - 1]) + 2 * band
        up_to = round_up(cut, values)
        found = _count_within(values, up_to, some)
        if found > 4 * most + n // 4:  # a model that has collapsed: of no use, at any price
            heap[:] = -np.inf
            reach[i] = -np.inf
            found = 0
        for block in range(len(some) if found else 0):
            if some[block] == 0:
                continue
            for k in range(block * _STRIDE, min((block + 1) * _STRIDE, n)):
                if values[k] <= up_to and values[k] != np.inf:
                    doubt_query[filled], doubt_column[filled] = i, k
                    filled += 1
        row += 1
    return row, filled
