"""Negatives ahead of each positive, found in tiles: the kernels that fill the list of `ahead`."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from streameval.kernels.canonical import distance
from streameval.kernels.edges import Edges, slot_of
from streameval.kernels.filtering import Filter, filter_value, guard_band
from streameval.kernels.tiles import FloatArray, IntArray
from streameval.single_shot.ahead import ROWS

SHOT_DOUBTS = 1 << 17  # pairs close to a positive that are kept, to be decided together
_PIECE = 8  # values looked at together, a byte each; in most rows there are few to count


class Levels(NamedTuple):
    """The distances of the positives of a block of m queries, in the unit of a tile's values.

    Attributes
    ----------
    edges : Edges
        Of the positives alone.
    leading : [E] int64
        The first of the positives at each edge.
    level : [E] float64
    band : [m] float64
        How far the values may be off; 0 for stored distances.
    """

    edges: Edges
    leading: IntArray
    level: FloatArray
    band: FloatArray

    @classmethod
    def of(cls, edges: Edges) -> Levels:
        """Return the levels of stored distances."""
        before = np.diff(edges.positive_distance, prepend=np.nan) != 0
        starts = edges.positive_indptr[:-1]
        before[starts[starts < len(before)]] = True
        leading = np.flatnonzero(before).astype(np.int64)
        return cls(edges, leading, edges.distance, np.zeros(len(edges.indptr) - 1))

    def under(self, filter_: Filter, norms: FloatArray) -> Levels:
        """Return the levels of filter values, for queries of these norms, [m] float64."""
        level, band = np.empty_like(self.edges.distance), np.empty(len(norms))
        _filter_levels(filter_, norms, self.edges.indptr, self.edges.distance, level, band)
        return self._replace(level=level, band=band)


@numba.njit(nogil=True, cache=True)
def _filter_levels(filter_, norms, indptr, distances, level, band):  # type: ignore[no-untyped-def]
    for i in range(len(norms)):
        band[i] = guard_band(filter_, norms[i])
        for e in range(indptr[i], indptr[i + 1]):
            level[e] = filter_value(filter_, distances[e], norms[i])


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _pieces_within(values, weight, offset, reach, out, within, pieces):  # type: ignore[no-untyped-def]
    """Write ``values * weight + offset``; note the pieces in which any is up to `reach`.

    Written so that it vectorises: first a byte a value, 0 or 1; then eight of them at a time,
    and a piece is kept only where `found` moves on behind it.

    Parameters
    ----------
    values, weight, offset : [n] float32 or float64
    reach : of the same dtype
    out : [n] of the same dtype, written
    within : [8 p] uint8, written
        p pieces, the last one perhaps beyond n; 0 there.
    pieces : [p + 1] uint32, written
        Numbers of the pieces.

    Returns
    -------
    how many pieces are noted
    """
    yes, no = np.uint8(1), np.uint8(0)
    for k in range(values.shape[0]):
        value = values[k] * weight[k] + offset[k]
        out[k] = value
        within[k] = yes if value <= reach else no
    eights, found = within.view(np.uint64), np.uint64(0)
    for p in range(np.uint64(eights.shape[0])):
        pieces[found] = p
        found += np.uint64(eights[p] != 0)
    return np.int64(found)


@numba.njit(nogil=True, cache=True)
def collect(  # type: ignore[no-untyped-def]
    tile, row, first, offset_row, columns, identity, levels, ahead, size, room, doubts, filled
):
    """List the values of a tile that are clearly ahead of a positive, and those in doubt.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        +inf where the pair is not a negative.
    row : int
        The row to begin with.
    first : int
        The query of the block that row 0 belongs to.
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` for each query.
    columns : Columns
    identity : [n] int32
        Identity of each column.
    levels : Levels
        Of the block.
    ahead : Ahead
        Appended to.
    size, room : int
        How many entries it has, and may have before it is to be folded.
    doubts : Doubts
        Of capacity n at least; appended to.
    filled : int
        How many doubts there are.

    Returns
    -------
    the row to go on with (m where all are looked at), how many entries and doubts there are
    """
    n = tile.shape[1]
    number = -(-n // _PIECE)
    values, pieces = np.empty(n, tile.dtype), np.empty(number + 1, np.uint32)
    within = np.zeros(_PIECE * number, np.uint8)
    # Taken out of their tuples: looked up there, each would count references.
    weight, offset = columns.weight, columns.offset
    indptr, leading = levels.edges.indptr, levels.leading
    level, bands = levels.level, levels.band
    doubt_query, doubt_column, doubt_edge = doubts.query, doubts.column, doubts.edge
    entries, cut, row_bit, identity_bit = (
        ahead.entries,
        ahead.cut,
        ahead.packing.row,
        ahead.packing.identity,
    )
    while row < tile.shape[0] and filled + n <= len(doubt_query) and size + n <= room:
        i = first + row
        begin, end = indptr[i], indptr[i + 1]
        while begin < end and ROWS * leading[end - 1] >= cut[i]:
            end -= 1
        if begin < end:
            band = bands[i]
            furthest = tile.dtype.type(level[end - 1] + band)
            reach = np.nextafter(furthest, tile.dtype.type(np.inf))  # never rounded down
            found = _pieces_within(
                tile[row], weight, offset[offset_row[i]], reach, values, within, pieces
            )
            for p in range(found):
                start = _PIECE * np.int64(pieces[p])
                for k in range(start, start + _PIECE):
                    if not within[k] or values[k] == np.inf:
                        continue
                    value = np.float64(values[k])
                    low, high = begin, end
                    while low < high:
                        middle = (low + high) // 2
                        if level[middle] + band < value:
                            low = middle + 1
                        else:
                            high = middle
                    if low == end:
                        continue
                    if value < level[low] - band:
                        entries[size] = (
                            np.uint64(ROWS * leading[low]) << row_bit
                            | np.uint64(identity[k]) << identity_bit
                            | np.uint64(1)
                        )
                        size += 1
                    else:
                        doubt_query[filled] = i
                        doubt_column[filled] = k
                        doubt_edge[filled] = low - begin
                        filled += 1
        row += 1
    return row, size, filled


@numba.njit(nogil=True, cache=True)
def settle_fine(  # type: ignore[no-untyped-def]
    tile, first, offset_row, columns, same_as, metric, queries, gallery, levels, doubts, begin, end
):
    """Decide doubts by float64 values; the rest, with one canonical distance for all copies.

    Parameters
    ----------
    tile : [m, n] float64
        Of all columns, as `fine_tile` gives it.
    first : int
        The query of the block that row 0 belongs to.
    offset_row : [queries of the block] int64
    columns : Columns
        In float64.
    same_as : [n] int64
        The first row with the same bits.
    metric : int
    queries, gallery : Operand
        Of all queries of the block, and of the columns.
    levels : Levels
        Of the block, for values in float64.
    doubts : Doubts
        Query by query; `edge` becomes the slot that each is in.
    begin, end : int
        Which of the doubts.
    """
    n = tile.shape[1]
    known_for, known = np.full(n, -1, np.int64), np.empty(n)
    weight, offset = columns.weight, columns.offset
    rows, norms, query_rows, query_norms = gallery.rows, gallery.norms, queries.rows, queries.norms
    indptr, distances = levels.edges.indptr, levels.edges.distance
    level, bands = levels.level, levels.band
    doubt_query, doubt_column, doubt_edge = doubts.query, doubts.column, doubts.edge
    for t in range(begin, end):
        i, k = doubt_query[t], doubt_column[t]
        value = tile[i - first, k] * weight[k] + offset[offset_row[i], k]
        e, last, band = indptr[i] + doubt_edge[t], indptr[i + 1], bands[i]
        while e < last and level[e] + band < value:
            e += 1
        if e == last or value < level[e] - band:
            doubt_edge[t] = 2 * (e - indptr[i])
            continue
        same = same_as[k]
        if known_for[same] != i:
            known_for[same] = i
            known[same] = distance(metric, query_rows, i, rows, same, query_norms[i], norms[same])
        doubt_edge[t] = slot_of(known[same], e - indptr[i], distances, indptr[i], last)


@numba.njit(nogil=True, cache=True)
def place(item, identity, levels, ahead, size, doubts, filled):  # type: ignore[no-untyped-def]
    """List the doubts, once they are decided.

    Parameters
    ----------
    item : [n] int64
        Gallery index of each column.
    identity : [n] int32
    levels : Levels
    ahead : Ahead
        Appended to.
    size : int
        How many entries it has.
    doubts : Doubts
        Their `edge` is the slot that each was found to be in.
    filled : int

    Returns
    -------
    how many entries there are
    """
    edges, leading = levels.edges, levels.leading
    indptr, last, items = edges.indptr, edges.positive_indptr, edges.positive_item
    doubt_query, doubt_column, doubt_slot = doubts.query, doubts.column, doubts.edge
    entries, cut, row_bit, identity_bit = (
        ahead.entries,
        ahead.cut,
        ahead.packing.row,
        ahead.packing.identity,
    )
    for t in range(filled):
        i, k, slot = doubt_query[t], doubt_column[t], doubt_slot[t]
        e = indptr[i] + slot // 2
        if e == indptr[i + 1]:
            continue
        row = ROWS * leading[e]
        if slot & 1:
            low, end = leading[e], leading[e + 1] if e + 1 < indptr[i + 1] else last[i + 1]
            high = end
            while low < high:
                middle = (low + high) // 2
                if items[middle] < item[k]:
                    low = middle + 1
                else:
                    high = middle
            row = ROWS * (end - 1) + 2 if low == end else ROWS * low + 1
        if row < cut[i]:
            entries[size] = (
                np.uint64(row) << row_bit | np.uint64(identity[k]) << identity_bit | np.uint64(1)
            )
            size += 1
    return size
