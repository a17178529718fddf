"""The nearest negatives of each query: a heap of M canonical distances, fed tile by tile.

A value is looked at where it may be nearer than the furthest of the M that are known, and within
the reach of the search. Of a tile of features the filter says so, within its band, and the
distance itself decides.

Tasks lower the reach to the furthest of their M. It is never below the M-th least distance of
all; and as what is at the reach is still taken, the M least of all tasks together are those of
the whole, whichever tasks run first, or again.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.canonical import distance
from streameval.kernels.filtering import filter_value, guard_band

_STRIDE = 64  # values looked at together


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
def round_up(value, like):  # type: ignore[no-untyped-def]
    """Return a float64 as a value of another dtype that is not less."""
    rounded = like.dtype.type(value)
    return rounded if rounded >= value else np.nextafter(rounded, like.dtype.type(np.inf))


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def write_values(tile_row, weight, add, row):  # type: ignore[no-untyped-def]
    """Write the filter values of a row of a tile; vectorises."""
    for k in range(tile_row.shape[0]):
        row[k] = tile_row[k] * weight[k] + add[k]


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
def near_features(  # type: ignore[no-untyped-def]
    tile, start, offset_row, columns, filter_, queries, gallery, first, reach, heaps
):
    """Note the nearest negatives in a tile of filter values.

    Parameters
    ----------
    tile : [m, n] float32
        Products; +inf where the pair is not a negative.
    start : int
        The query of the block that the first row belongs to.
    offset_row, columns, filter_, queries
        As in `count_features`.
    gallery : Operand
        Of the columns.
    first : int
        The block's first query, counted as those of `reach`.
    reach : [Q] float64, lowered
    heaps : [queries of the block, M] float64, changed
        Max-heaps; of −inf alone where there are too many values to be told apart.
    """
    n, most = tile.shape[1], heaps.shape[1]
    weight, offset = columns.weight, columns.offset
    row, some = np.empty(n, tile.dtype), np.empty(-(-n // _STRIDE), np.int32)
    for r in range(tile.shape[0]):
        i = start + r
        heap, add, within = heaps[i], offset[offset_row[i]], reach[first + i]
        bound = min(within, heap[0])
        if bound == -np.inf:
            heap[:] = -np.inf
            continue
        band = guard_band(filter_, queries.norms[i])
        write_values(tile[r], weight, add, row)
        if bound < np.inf:
            cut = filter_value(filter_, bound, queries.norms[i]) + band
        elif n > most:
            cut = np.float64(np.partition(row, most - 1)[most - 1]) + 2 * band
        else:
            cut = np.inf
        limit = round_up(cut, row)
        found = _count_within(row, limit, some)
        if found > 4 * most + n // 4:  # a model that has collapsed: of no use, at any price
            heap[:] = -np.inf
            reach[first + i] = -np.inf
            continue
        for block in range(len(some) if found else 0):
            if some[block] == 0:
                continue
            left, right = block * _STRIDE, min((block + 1) * _STRIDE, n)
            for k in range(left, right):
                if row[k] <= limit and row[k] != np.inf:
                    value = distance(
                        filter_.metric,
                        queries.rows,
                        i,
                        gallery.rows,
                        k,
                        queries.norms[i],
                        gallery.norms[k],
                    )
                    if value <= within and value < heap[0]:
                        _put(heap, value)
        reach[first + i] = min(reach[first + i], heap[0])


@numba.njit(nogil=True, cache=True)
def near_stored(tile, offset_row, columns, first, reach, heaps):  # type: ignore[no-untyped-def]
    """Note the nearest negatives in a tile of stored distances; see `near_features`."""
    for i in range(tile.shape[0]):
        heap, add, within = heaps[i], columns.offset[offset_row[i]], reach[first + i]
        if within == -np.inf:
            heap[:] = -np.inf
            continue
        for k in range(tile.shape[1]):
            value = np.float64(tile[i, k] + add[k])
            if value <= within and value < heap[0]:
                _put(heap, value)
        reach[first + i] = min(reach[first + i], heap[0])
