"""Counting in tiles of stored distances: a stored entry is its own canonical value."""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.cells import quantise
from streameval.kernels.edges import note_tie
from streameval.kernels.grids import (
    LAST,
    bins_for,
    edge_of,
    fold,
    lay_grid,
    may_be_within,
    touched_bit,
)
from streameval.kernels.rows import bin_row, least_of
from streameval.kernels.tiles import FloatTile

COLUMNS = 16384  # counted at a time: their weights and offsets stay in L2


@numba.njit(nogil=True, cache=True)
def count_stored(tile, query, offset_row, columns, edges, code, counts):  # type: ignore[no-untyped-def]
    """Count a tile of stored distances.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        Distances; +inf where the pair is not a negative.
    query : [m] int64
        The query of the block that each row belongs to.
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` for each query.
    columns : Columns
        Of weight 1.
    edges : Edges
        Of the block.
    code : [CELLS + RUN] uint8 or uint16
        Memory for the codes of a grid.
    counts : Counts
        Added to; of no use where a distance is not finite.

    Returns
    -------
    how many entries of the tile are NaN or ±inf
    """
    bins, bit = bins_for(code), touched_bit(code)
    all_values = np.empty(COLUMNS, tile.dtype)
    all_cells = np.empty(COLUMNS, np.uint16)
    fours, touched = np.empty(COLUMNS // 4 + 1, np.uint32), np.empty(COLUMNS + 4, np.uint32)
    slots, ties, nearest = counts.slots, counts.ties, counts.nearest
    indptr, positive_indptr = edges.indptr, edges.positive_indptr
    positives, items = edges.positive_distance, edges.positive_item
    not_finite = 0
    for left in range(0, tile.shape[1], COLUMNS):
        right = min(left + COLUMNS, tile.shape[1])
        weight, item = columns.weight[left:right], columns.item[left:right]
        n = right - left
        all_cells[n : n + -n % 4] = LAST
        values, cells, padded = all_values[:n], all_cells[:n], all_cells[: n + -n % 4]
        for r in range(tile.shape[0]):
            i = query[r]
            row, add = tile[r][left:right], columns.offset[offset_row[i]][left:right]
            level = edges.distance[indptr[i] : indptr[i + 1]]
            m, first_slot = len(level), 2 * indptr[i] + i
            origin, scale, far, base, stop = lay_grid(
                level, m, 0.0, edges.pitch, edges.phase, row, weight, add, code
            )
            lowest, odd = quantise(row, None, add, origin, scale, far, values, cells)
            not_finite += odd
            found = bin_row(padded, code, bins, fours, touched)
            least = np.inf
            for t in range(found):
                k = touched[t]
                value = np.float64(values[k])
                least = min(least, value)
                e = edge_of(value, code[cells[k]], bit, base, level, m, 0.0)
                if e == m or value < level[e]:
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
            fold(bins, stop - base, slots, first_slot + 2 * base)
            if may_be_within(lowest, tile.dtype.type(nearest[i]), origin, scale):
                least = np.float64(least_of(values))
            nearest[i] = min(nearest[i], least)
    return not_finite


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
