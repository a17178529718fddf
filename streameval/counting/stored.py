"""Counting in tiles of stored distances: a stored entry is its own canonical value."""

from __future__ import annotations

import numba
import numpy as np

from streameval.counting.rows import (
    BLOCK,
    CELLS,
    any_up_to,
    bin_row,
    cell_of,
    fold,
    lay_grid,
    least_value,
    note_tie,
)
from streameval.counting.tiles import FloatTile

COLUMNS = 16384  # counted at a time: their weights and offsets stay in L2


@numba.njit(nogil=True, cache=True)
def count_stored(tile, offset_row, columns, edges, counts):  # type: ignore[no-untyped-def]
    """Count a tile of stored distances.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        Finite distances; +inf where the pair is not a negative.
    offset_row : [m] int64
        The row of ``columns.offset`` for each query.
    columns : Columns
        Of weight 1.
    edges : Edges
        Of these m queries.
    counts : Counts
        Added to.
    """
    histogram = np.zeros(CELLS, np.uint32)
    cells = np.empty(BLOCK, np.uint16)
    is_touched = np.empty(CELLS, np.uint8)
    first_edge = np.empty(CELLS, np.uint32)
    touched = np.empty(COLUMNS + 1, np.uint32)
    most = 0
    for i in range(tile.shape[0]):
        most = max(most, edges.indptr[i + 1] - edges.indptr[i])
    gap_begin, gap_end = np.empty(most + 1, np.int32), np.empty(most + 1, np.int32)
    slots, ties, nearest = counts.slots, counts.ties, counts.nearest
    indptr, distances = edges.indptr, edges.distance
    positive_indptr = edges.positive_indptr
    positives, items = edges.positive_distance, edges.positive_item
    for left in range(0, tile.shape[1], COLUMNS):
        right = min(left + COLUMNS, tile.shape[1])
        weight, item = columns.weight[left:right], columns.item[left:right]
        for i in range(tile.shape[0]):
            values, add = tile[i][left:right], columns.offset[offset_row[i]][left:right]
            begin, end = indptr[i], indptr[i + 1]
            m = end - begin
            nearer = True
            if m > 0:
                first_slot = 2 * begin + i
                origin, scale, top = lay_grid(
                    distances[begin:end],
                    0.0,
                    edges.pitch,
                    values,
                    first_edge,
                    is_touched,
                    gap_begin,
                    gap_end,
                )
                found = bin_row(
                    values, weight, add, origin, scale, top, is_touched, histogram, cells, touched
                )
                for t in range(found):
                    k = touched[t]
                    stored = values[k] + add[k]
                    value = np.float64(stored)
                    e = first_edge[cell_of(stored, origin, scale, top)]
                    e += np.uint32(distances[begin + e] < value)  # either way as likely: no branch
                    while e < m and distances[begin + e] < value:
                        e += np.uint32(1)
                    if e == m or value < distances[begin + e]:
                        slots[first_slot + 2 * e] += 1
                    else:
                        slots[first_slot + 2 * e + 1] += 1
                        note_tie(
                            value,
                            item[k],
                            positives,
                            items,
                            positive_indptr[i],
                            positive_indptr[i + 1],
                            ties,
                        )
                reach = cell_of(values.dtype.type(nearest[i]), origin, scale, top)
                nearer = any_up_to(histogram, reach)
                fold(histogram, gap_begin, gap_end, m, slots, first_slot)
            if nearer:  # perhaps
                nearest[i] = min(nearest[i], np.float64(least_value(values, weight, add)))


@numba.njit(nogil=True, cache=True)
def _all_finite(tile):  # type: ignore[no-untyped-def]
    bad = 0
    for i in range(tile.shape[0]):
        for k in range(tile.shape[1]):
            difference = tile[i, k] - tile[i, k]  # 0, or NaN where not finite
            bad += difference != 0
    return bad == 0


def first_not_finite(tile: FloatTile) -> tuple[int, int] | None:
    """Return (row, column) of the first NaN or ±inf of a tile, or None."""
    if _all_finite(tile):
        return None
    row, column = np.argwhere(~np.isfinite(tile))[0]
    return int(row), int(column)


@numba.njit(nogil=True, cache=True)
def stored_extremes(tile, offset_row, columns, least, most):  # type: ignore[no-untyped-def]
    """Return the least and greatest distance of a tile and what is known already.

    Parameters
    ----------
    tile, offset_row, columns
        As in `count_stored`, with +inf for ignored pairs only.
    least, most : float
        Least and greatest so far; +inf and −inf at first.
    """
    for i in range(tile.shape[0]):
        add = columns.offset[offset_row[i]]
        for k in range(tile.shape[1]):
            value = np.float64(tile[i, k] + add[k])
            if value != np.inf:
                least = min(least, value)
                most = max(most, value)
    return least, most
