"""Counting in tiles of features: what the filter leaves in doubt is decided canonically.

`count_features` counts the values of a tile that lie clear of every edge, and puts the others
on a list of `Doubts`. `settle` decides these by their canonical distance: column by column, so
that each gallery row comes into the cache once for all queries that ask for it. Rows of which
most values are in doubt are left to `doubtful`.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.canonical import distance, distances_of
from streameval.kernels.cells import quantise
from streameval.kernels.edges import note_tie, slot_of
from streameval.kernels.filtering import (
    even_levels,
    filter_value,
    guard_band,
)
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

NEAREST = -1  # in place of an edge: close to none, but perhaps the query's nearest negative


@numba.njit(nogil=True, cache=True)
def count_features(  # type: ignore[no-untyped-def]
    tile,
    row,
    query,
    offset_row,
    columns,
    filter_,
    queries,
    edges,
    code,
    counts,
    doubts,
    filled,
    crowd,
    crowded,
):
    """Count rows of a tile of filter values, until the list of doubts might not hold a row more.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        Products; +inf where the pair is not a negative.
    row : int
        The row to begin with.
    query : [m] int64
        The query of the block that each row belongs to.
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` for each query.
    columns : Columns
    filter_ : Filter
    queries : Operand
        Of all queries of the block.
    edges : Edges
        Of the block.
    code : [CELLS + RUN] uint8 or uint16
        Memory for the codes of a grid.
    counts : Counts
        Added to.
    doubts : Doubts
        Of capacity 2n at least; appended to.
    filled : int
        How many doubts there are.
    crowd : int
        A row with more values in touched cells is not counted.
    crowded : [m] bool, written
        Whether that is so.

    Returns
    -------
    the row to go on with (m where all are counted), how many doubts there are
    """
    n = tile.shape[1]
    padded = n + -n % 4
    bins, bit = bins_for(code), touched_bit(code)
    values = np.full(padded, np.inf, tile.dtype)
    cells = np.full(padded, LAST, np.uint16)
    fours, touched = np.empty(padded // 4 + 1, np.uint32), np.empty(padded + 4, np.uint32)
    # Taken out of their tuples: looked up there, each would count references.
    weight, offset = columns.weight, columns.offset
    slots, nearest = counts.slots, counts.nearest
    indptr, distances, norms = edges.indptr, edges.distance, queries.norms
    doubt_query, doubt_column, doubt_edge = doubts.query, doubts.column, doubts.edge
    most = 0
    for i in query:
        most = max(most, indptr[i + 1] - indptr[i])
    level = np.empty(most)
    while row < tile.shape[0] and filled + 2 * n <= len(doubt_query):
        i = query[row]
        begin, m = indptr[i], indptr[i + 1] - indptr[i]
        first_slot, of_row = 2 * begin + i, filled
        add = offset[offset_row[i]]
        band = guard_band(filter_, norms[i])
        for e in range(m):
            level[e] = filter_value(filter_, distances[begin + e], norms[i])
        pitch, phase = even_levels(filter_, edges.pitch, edges.phase, norms[i])
        origin, scale, far, base, stop = lay_grid(
            level, m, band, pitch, phase, tile[row], weight, add, code
        )
        lowest, _ = quantise(tile[row], weight, add, origin, scale, far, values, cells)
        found = bin_row(cells, code, bins, fours, touched)
        crowded[row] = found > crowd
        if crowded[row]:
            bins[:] = 0
            row += 1
            continue
        reach = filter_value(filter_, nearest[i], norms[i]) + band
        least = np.inf
        for t in range(found):
            k = touched[t]
            value = values[k]
            least = min(least, np.float64(value))
            e = edge_of(value, code[cells[k]], bit, base, level, m, band)
            if e == m or value < level[e] - band:
                slots[first_slot + 2 * e] += 1
            elif value != np.inf:
                doubt_query[filled] = i
                doubt_column[filled] = k
                doubt_edge[filled] = e
                filled += 1
        fold(bins, stop - base, slots, first_slot + 2 * base)
        if may_be_within(lowest, tile.dtype.type(reach), origin, scale):
            least = np.float64(least_of(values))
        if least <= reach and least < np.inf:  # perhaps the nearest negative, or one of them
            reach = min(reach, least + 2 * band)
            filled = _note_nearest(i, values, tile.dtype.type(reach), doubts, of_row, filled)
        row += 1
    return row, filled


@numba.njit(nogil=True, cache=True)
def _note_nearest(i, values, reach, doubts, of_row, filled):  # type: ignore[no-untyped-def]
    """Put all values up to `reach` on the list of doubts, in which the row begins at `of_row`."""
    noted, last = of_row, filled
    for start in range(0, len(values), 64):
        stop = min(start + 64, len(values))
        some = 0
        for k in range(start, stop):  # vectorises; there are few such values
            some += values[k] <= reach
        if some == 0:
            continue
        for k in range(start, stop):
            if values[k] <= reach and values[k] != np.inf:
                while noted < last and doubts.column[noted] < k:
                    noted += 1
                if noted == last or doubts.column[noted] != k:
                    doubts.query[filled] = i
                    doubts.column[filled] = k
                    doubts.edge[filled] = NEAREST
                    filled += 1
    return filled


@numba.njit(nogil=True, cache=True)
def settle(columns, filter_, queries, gallery, edges, counts, doubts, filled):  # type: ignore[no-untyped-def]
    """Decide the doubts of one set of columns by their canonical distances.

    Parameters
    ----------
    columns, filter_, queries, edges, counts, filled
        As in `count_features`.
    gallery : Operand
        Of the columns.
    doubts : Doubts
        Where a doubt is near an edge, `edge` becomes the slot that it is in, counted from its
        query's first.
    """
    item, doubt_query, doubt_column = columns.item, doubts.query, doubts.column
    start = np.zeros(len(item) + 1, np.int64)
    for t in range(filled):
        start[doubt_column[t] + 1] += 1
    for k in range(len(item)):
        start[k + 1] += start[k]
    order = np.empty(filled, np.int32)
    for t in range(filled):
        k = doubt_column[t]
        order[start[k]] = t
        start[k] += 1
    exact = np.empty(filled)
    distances_of(
        filter_.metric,
        queries.rows,
        queries.norms,
        gallery.rows,
        gallery.norms,
        doubt_query,
        doubt_column,
        order,
        exact,
    )
    indptr, distances, slots = edges.indptr, edges.distance, counts.slots
    positive_indptr, ties = edges.positive_indptr, counts.ties
    positives, items = edges.positive_distance, edges.positive_item
    doubt_edge, nearest = doubts.edge, counts.nearest
    for t in range(filled):  # query by query again, with the query's edges in the cache
        i = doubt_query[t]
        nearest[i] = min(nearest[i], exact[t])
        if doubt_edge[t] == NEAREST:
            continue
        slot = slot_of(exact[t], doubt_edge[t], distances, indptr[i], indptr[i + 1])
        slots[2 * indptr[i] + i + slot] += 1
        doubt_edge[t] = slot
        if slot & 1:  # at an edge
            note_tie(
                exact[t],
                item[doubt_column[t]],
                positives,
                items,
                positive_indptr[i],
                positive_indptr[i + 1],
                ties,
            )


@numba.njit(nogil=True, cache=True)
def feature_extremes(  # type: ignore[no-untyped-def]
    tile, first, offset_row, columns, filter_, queries, gallery, least, most
):
    """Return the least and greatest canonical distance of a tile and what is known already.

    Parameters
    ----------
    tile, offset_row, columns, filter_, queries
        As in `count_features`, with +inf for ignored pairs only.
    first : int
        The query of the block that row 0 belongs to.
    gallery : Operand
        Of the columns.
    least, most : float
        Least and greatest so far; +inf and −inf at first.
    """
    weight = columns.weight
    for row in range(tile.shape[0]):
        i = first + row
        values, add = tile[row], columns.offset[offset_row[i]]
        norm = queries.norms[i]
        band = guard_band(filter_, norm)
        low = filter_value(filter_, least, norm) + band
        high = filter_value(filter_, most, norm) - band
        for k in range(len(values)):
            value = values[k] * weight[k] + add[k]
            if value == np.inf or (low < value < high):
                continue
            exact = distance(
                filter_.metric, queries.rows, i, gallery.rows, k, norm, gallery.norms[k]
            )
            least, most = min(least, exact), max(most, exact)
            low = filter_value(filter_, least, norm) + band
            high = filter_value(filter_, most, norm) - band
    return least, most
