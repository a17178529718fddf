"""Negatives ahead of a few positives, by stretch of the gallery: for ranks, and nothing else.

A row of a tile is compared with each limit as a whole, in a loop that vectorises; what lies
within the band of a limit is decided by its distance.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.canonical import distance
from streameval.kernels.filtering import filter_value, guard_band
from streameval.kernels.near import round_up, write_values

_STRIDE = 256  # values among which those in doubt are looked for


@numba.njit(nogil=True, cache=True)
def _compare(row, first, last, low, high):  # type: ignore[no-untyped-def]
    """Return how many values of a part of a row are below one limit, and up to another."""
    below, within = 0, 0
    for k in range(first, last):
        below += row[k] < low
        within += row[k] <= high
    return below, within


@numba.njit(nogil=True, cache=True)
def ranks_features(  # type: ignore[no-untyped-def]
    tile, start, offset_row, columns, filter_, queries, gallery, begin, indptr, limit, ahead
):
    """Count the negatives of a tile of filter values that are ahead of each limit.

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
    begin : [s + 1] int64
        The column that each stretch begins with, and n.
    indptr : [queries of the block + 1] int64
        Where the limits of each query begin.
    limit : [P] float64
        Distances.
    ahead : [s, 2, P] int64, added to
        Negatives closer than the limit, and as far as it.
    """
    row = np.empty(tile.shape[1], tile.dtype)
    most = row.dtype.type(np.finfo(row.dtype).max)
    for r in range(tile.shape[0]):
        i = start + r
        if indptr[i] == indptr[i + 1]:
            continue
        band = guard_band(filter_, queries.norms[i])
        write_values(tile[r], columns.weight, columns.offset[offset_row[i]], row)
        for p in range(indptr[i], indptr[i + 1]):
            at = filter_value(filter_, limit[p], queries.norms[i])
            low, high = -round_up(band - at, row), round_up(at + band, row)
            high = high if high < most else most  # and not what is no negative
            for s in range(len(begin) - 1):
                below, within = _compare(row, begin[s], begin[s + 1], low, high)
                ahead[s, 0, p] += below
                left, doubts = begin[s], within - below
                while doubts > 0:
                    right = min(left + _STRIDE, begin[s + 1])
                    below, within = _compare(row, left, right, low, high)
                    doubts -= within - below
                    for k in range(left, right if within > below else left):
                        if low <= row[k] <= high:
                            value = distance(
                                filter_.metric,
                                queries.rows,
                                i,
                                gallery.rows,
                                k,
                                queries.norms[i],
                                gallery.norms[k],
                            )
                            ahead[s, 0, p] += value < limit[p]
                            ahead[s, 1, p] += value == limit[p]
                    left = right


@numba.njit(nogil=True, cache=True)
def ranks_stored(tile, offset_row, columns, begin, indptr, limit, ahead):  # type: ignore[no-untyped-def]
    """Count the negatives of a tile of stored distances; see `ranks_features`."""
    for i in range(tile.shape[0]):
        add = columns.offset[offset_row[i]]
        for p in range(indptr[i], indptr[i + 1]):
            for s in range(len(begin) - 1):
                for k in range(begin[s], begin[s + 1]):
                    value = np.float64(tile[i, k] + add[k])
                    ahead[s, 0, p] += value < limit[p]
                    ahead[s, 1, p] += value == limit[p]
