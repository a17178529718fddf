"""Negatives ahead of each positive, found in tiles: the kernels that fill the list of `ahead`."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from streameval.kernels.edges import Edges, Positives, slot_of
from streameval.kernels.levels import product, weight_at
from streameval.kernels.tiles import IntArray
from streameval.single_shot.ahead import ROWS

SHOT_DOUBTS = 1 << 17  # pairs close to a positive that are kept, to be decided together
_PIECE = 8  # values looked at together, a byte each; in most rows there are few to count


class Leading(NamedTuple):
    """The distances of the positives of a block of m queries.

    Attributes
    ----------
    edges : Edges
        Of the positives alone.
    first : [E] int64
        The first of the positives at each edge.
    """

    edges: Edges
    first: IntArray

    @classmethod
    def of(cls, positives: Positives) -> Leading:
        """Return the distances of positives."""
        edges = Edges.build(positives, np.empty(0))
        before = np.diff(edges.positive_distance, prepend=np.nan) != 0
        starts = edges.positive_indptr[:-1]
        before[starts[starts < len(before)]] = True
        return cls(edges, np.flatnonzero(before).astype(np.int64))


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _pieces_within(values, weight, offset, reach, out, within, pieces):  # type: ignore[no-untyped-def]
    """Write ``values * weight + offset``, or without weights ``values + offset``.

    Note the pieces in which any is up to `reach`.

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
        value = product(values, weight, k) + offset[k]
        out[k] = value
        within[k] = yes if value <= reach else no
    eights, found = within.view(np.uint64), np.uint64(0)
    for p in range(np.uint64(eights.shape[0])):
        pieces[found] = p
        found += np.uint64(eights[p] != 0)
    return np.int64(found)


@numba.njit(nogil=True, cache=True)
def collect(  # type: ignore[no-untyped-def]
    tile, row, rows, columns, identity, leading, levels, ahead, size, room, doubts, filled
):
    """List the values of a tile that are clearly ahead of a positive, and those in doubt.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        +inf where the pair is not a negative.
    row : int
        The row to begin with.
    rows : Rows
    columns : Columns
    identity : [n] int32
        Identity of each column.
    leading : Leading
    levels : Levels
        Of the positives.
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
    indptr, first, closer, tied = leading.edges.indptr, leading.first, levels.closer, levels.tied
    doubt_query, doubt_column, doubt_edge = doubts.query, doubts.column, doubts.edge
    entries, cut = ahead.entries, ahead.cut
    row_bit, identity_bit = ahead.packing.row, ahead.packing.identity
    while row < tile.shape[0] and filled + n <= len(doubt_query) and size + n <= room:
        i, band = rows.query[row], rows.band[row]
        begin, end = indptr[i], indptr[i + 1]
        while begin < end and ROWS * first[end - 1] >= cut[i]:
            end -= 1
        if begin < end:
            shift = rows.begin[row] - begin  # from edges to their levels
            furthest = tile.dtype.type(tied[end - 1 + shift] + band)
            reach = np.nextafter(furthest, tile.dtype.type(np.inf))  # never rounded down
            offset = columns.offset[rows.offset[row]]
            found = _pieces_within(tile[row], columns.weight, offset, reach, values, within, pieces)
            for p in range(found):
                start = _PIECE * np.int64(pieces[p])
                for k in range(start, start + _PIECE):
                    if not within[k] or values[k] == np.inf:
                        continue
                    value = np.float64(values[k])
                    low, high = begin, end
                    while low < high:
                        middle = (low + high) // 2
                        if tied[middle + shift] + band < value:
                            low = middle + 1
                        else:
                            high = middle
                    if low == end:
                        continue
                    if value < closer[low + shift] - band:
                        entries[size] = (
                            np.uint64(ROWS * first[low]) << row_bit
                            | np.uint64(identity[k]) << identity_bit
                            | np.uint64(1)
                        )
                        size += 1
                    else:
                        doubt_query[filled], doubt_column[filled] = i, k
                        doubt_edge[filled] = low - begin
                        filled += 1
        row += 1
    return row, size, filled


@numba.njit(nogil=True, cache=True)
def narrow(tile, place, rows, columns, indptr, levels, doubts, begin, end, open_doubts):  # type: ignore[no-untyped-def]
    """Decide doubts by the values of a finer tile; list those that stay open.

    Parameters
    ----------
    tile : [r, u] float64
    place : [n] int64
        The column of the tile's values for each column that doubts name.
    rows : Rows
        Its queries ascending.
    columns : Columns
    indptr : [queries of the block + 1] int64
        Where each query's edges begin.
    levels : Levels
    doubts : Doubts
        Query by query; `edge` becomes the slot that each decided one is in.
    begin, end : int
        Which of the doubts; those of other queries are passed over.
    open_doubts : [>= end - begin] int64, written
        Which of them stay open.

    Returns
    -------
    how many stay open
    """
    left, row = 0, 0
    for t in range(begin, end):
        i, k = doubts.query[t], doubts.column[t]
        while row < len(rows.query) and rows.query[row] < i:
            row += 1
        if row == len(rows.query) or rows.query[row] != i:
            continue
        first, band = rows.begin[row], rows.band[row]
        e, last = first + doubts.edge[t], first + indptr[i + 1] - indptr[i]
        add = columns.offset[rows.offset[row], k]
        value = tile[row, place[k]] * weight_at(columns.weight, k) + add
        while e < last and levels.tied[e] + band < value:
            e += 1
        if e == last or value < levels.closer[e] - band:
            doubts.edge[t] = 2 * (e - first)
        elif band == 0.0:
            doubts.edge[t] = 2 * (e - first) + 1
        else:
            doubts.edge[t] = e - first
            open_doubts[left] = t
            left += 1
    return left


@numba.njit(nogil=True, cache=True)
def settle(exact, which, leading, doubts):  # type: ignore[no-untyped-def]
    """Put the slot of doubts in place of their edge, by their canonical distances.

    Parameters
    ----------
    exact : [p] float64
    which : [p] int64
        Of the doubts.
    leading : Leading
    doubts : Doubts
    """
    indptr, distances = leading.edges.indptr, leading.edges.distance
    for t in range(len(which)):
        i = doubts.query[which[t]]
        edge = doubts.edge[which[t]]
        slot = slot_of(exact[t], edge, distances, indptr[i], indptr[i + 1])
        doubts.edge[which[t]] = slot


@numba.njit(nogil=True, cache=True)
def place(item, identity, leading, ahead, size, doubts, filled):  # type: ignore[no-untyped-def]
    """List the doubts, once they are decided.

    Parameters
    ----------
    item : [n] int64
        Gallery index of each column.
    identity : [n] int32
    leading : Leading
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
    edges, first = leading.edges, leading.first
    indptr, last, items = edges.indptr, edges.positive_indptr, edges.positive_item
    doubt_query, doubt_column, doubt_slot = doubts.query, doubts.column, doubts.edge
    entries, cut = ahead.entries, ahead.cut
    row_bit, identity_bit = ahead.packing.row, ahead.packing.identity
    for t in range(filled):
        i, k, slot = doubt_query[t], doubt_column[t], doubt_slot[t]
        e = indptr[i] + slot // 2
        if e == indptr[i + 1]:
            continue
        row = ROWS * first[e]
        if slot & 1:
            low, end = first[e], first[e + 1] if e + 1 < indptr[i + 1] else last[i + 1]
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
