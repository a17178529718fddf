"""Counting in tiles of features: what the filter leaves in doubt is decided canonically.

`count_features` counts the values of a tile that lie clear of every edge, and puts the others
on a list of `Doubts`. `settle` decides these by their canonical distance: column by column, so
that each gallery row comes into the cache once for all queries that ask for it; or, where there
are many, after a second filter (`doubtful`).
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.counting.canonical import EUCLIDEAN, LANES, distance, distances_of
from streameval.counting.doubtful import NEAREST, FineColumns, settle_many
from streameval.counting.edges import Edges
from streameval.counting.filtering import Filter, Operand, filter_value, guard_band
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
    slot_of,
)
from streameval.counting.tiles import Columns, Counts, Doubts

MANY = 0.5  # of the pairs of the queries in doubt: above it a second filter pays


@numba.njit(nogil=True, cache=True)
def count_features(  # type: ignore[no-untyped-def]
    tile, row, first, offset_row, columns, filter_, queries, gallery, edges, counts, doubts, filled
):
    """Count rows of a tile of filter values, until the list of doubts might not hold a row more.

    Parameters
    ----------
    tile : [m, n] float32
        Products; +inf where the pair is not a negative.
    row : int
        The row to begin with.
    first : int
        The query of the block that row 0 belongs to.
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` for each query.
    columns : Columns
    filter_ : Filter
    queries, gallery : Operand
        Of all queries of the block, and of the tile's columns.
    edges : Edges
        Of the block.
    counts : Counts
        Added to.
    doubts : Doubts
        Of capacity 2n at least; appended to.
    filled : int
        How many doubts there are.

    Returns
    -------
    the row to go on with (m where all are counted), how many doubts there are
    """
    n = tile.shape[1]
    histogram = np.zeros(CELLS, np.uint32)
    cells = np.empty(BLOCK, np.uint16)
    is_touched = np.empty(CELLS, np.uint8)
    first_edge = np.empty(CELLS, np.uint32)
    touched = np.empty(n + 1, np.uint32)
    most = 0
    for i in range(first, first + tile.shape[0]):
        most = max(most, edges.indptr[i + 1] - edges.indptr[i])
    level = np.empty(most)
    gap_begin, gap_end = np.empty(most + 1, np.int32), np.empty(most + 1, np.int32)
    pitch = edges.pitch * filter_.scale if edges.pitch > 0 else 0.0
    if filter_.metric == EUCLIDEAN:  # thresholds on distances are not even in their squares
        pitch = 0.0
    # Taken out of their tuples: looked up there, each would count references.
    weight, offset = columns.weight, columns.offset
    slots, nearest = counts.slots, counts.nearest
    indptr, distances = edges.indptr, edges.distance
    doubt_query, doubt_column, doubt_edge = doubts.query, doubts.column, doubts.edge
    while row < tile.shape[0] and filled + 2 * n <= len(doubt_query):
        i = first + row
        values, add = tile[row], offset[offset_row[i]]
        begin, end = indptr[i], indptr[i + 1]
        m = end - begin
        norm = queries.norms[i]
        band = guard_band(filter_, norm)
        reach = filter_value(filter_, nearest[i], norm) + band
        nearer = True
        of_row = filled
        if m > 0:
            for e in range(m):
                level[e] = filter_value(filter_, distances[begin + e], norm)
            first_slot = 2 * begin + i
            origin, scale, top = lay_grid(
                level[:m], band, pitch, values, first_edge, is_touched, gap_begin, gap_end
            )
            found = bin_row(
                values, weight, add, origin, scale, top, is_touched, histogram, cells, touched
            )
            for t in range(found):
                k = touched[t]
                value = values[k] * weight[k] + add[k]
                e = first_edge[cell_of(value, origin, scale, top)]
                e += np.uint32(level[e] + band < value)  # either way as likely: no branch
                while e < m and level[e] + band < value:
                    e += np.uint32(1)
                if e == m or value < level[e] - band:
                    slots[first_slot + 2 * e] += 1
                elif value != np.inf:
                    doubt_query[filled] = i
                    doubt_column[filled] = k
                    doubt_edge[filled] = e
                    filled += 1
            nearer = any_up_to(histogram, cell_of(np.float32(reach), origin, scale, top))
            fold(histogram, gap_begin, gap_end, m, slots, first_slot)
        if nearer:  # note all that may be the nearest negative, or nearer than what is known
            least = np.float64(least_value(values, weight, add))
            if least <= reach and least < np.inf:
                reach = min(reach, least + 2.0 * band)
                noted, last = of_row, filled
                for k in range(n):
                    value = values[k] * weight[k] + add[k]
                    if value <= reach and value != np.inf:
                        while noted < last and doubt_column[noted] < k:
                            noted += 1
                        if noted == last or doubt_column[noted] != k:
                            doubt_query[filled] = i
                            doubt_column[filled] = k
                            doubt_edge[filled] = NEAREST
                            filled += 1
        row += 1
    return row, filled


def settle(
    columns: Columns,
    fine: FineColumns | None,
    filter_: Filter,
    queries: Operand,
    gallery: Operand,
    edges: Edges,
    counts: Counts,
    doubts: Doubts,
    filled: int,
) -> FineColumns | None:
    """Decide the doubts of one set of columns by their canonical distances.

    Parameters
    ----------
    columns : Columns
    fine : FineColumns, optional
        What this returned for the same columns before.
    filter_, queries, gallery, edges, counts, doubts, filled
        As in `count_features`.
    """
    if not filled:
        return fine
    asked = int(doubts.query[filled - 1] - doubts.query[0] + 1) * len(columns.item)
    if not filter_.usable or filled <= MANY * asked:
        _settle_each(columns, filter_, queries, gallery, edges, counts, doubts, filled)
        return fine
    fine = fine or FineColumns.of(filter_, gallery)
    settle_many(columns, fine, filter_, queries, gallery, edges, counts, doubts, filled)
    return fine


@numba.njit(nogil=True, cache=True)
def _settle_each(columns, filter_, queries, gallery, edges, counts, doubts, filled):  # type: ignore[no-untyped-def]
    """Decide each doubt by itself."""
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
    tile, first, offset_row, columns, filter_, queries, gallery
        As in `count_features`, with +inf for ignored pairs only.
    least, most : float
        Least and greatest so far; +inf and −inf at first.
    """
    lanes = np.empty(LANES)
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
                filter_.metric, queries.rows, i, gallery.rows, k, norm, gallery.norms[k], lanes
            )
            least, most = min(least, exact), max(most, exact)
            low = filter_value(filter_, least, norm) + band
            high = filter_value(filter_, most, norm) - band
    return least, most
