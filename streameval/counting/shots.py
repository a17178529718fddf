"""Negatives ahead of each positive, by identity: what CMC under single gallery shot is made of.

Only a negative that is not further than its query's furthest positive matters, mostly a small
part of them. It is counted once, for the first positive p that it is ahead of, in one of three
rows with a counter an identity:

    closer[p]      closer than p, and further than the positives before
    tied[2 p]      as far as p, which is the first of those as far that come later in the gallery
    tied[2 p + 1]  as far as p, the first of those as far, which all come earlier in the gallery

so that sums of rows are the negatives ahead of each positive under any tie rule. Ties are rare:
the rows for them are mostly never written to, and so take no memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from streameval.counting.canonical import distance
from streameval.counting.edges import Edges, slot_of
from streameval.counting.filtering import Filter, filter_value, guard_band
from streameval.counting.tiles import FloatArray, IntArray

SHOT_DOUBTS = 1 << 17  # pairs close to a positive that are kept, to be decided together
_PIECE = 8  # values looked at together, a byte each; in most rows there are few to count


class Counters(NamedTuple):
    """Negatives counted by the positive that they are ahead of, and by identity.

    Attributes
    ----------
    closer, tied : [P, H], [2 P, H] unsigned
        See the module's overview.
    """

    closer: npt.NDArray[np.unsignedinteger]
    tied: npt.NDArray[np.unsignedinteger]

    @classmethod
    def zero(cls, positives: int, identities: int, itemsize: int) -> Counters:
        """Return counters of nothing, of 1, 2 or 4 bytes."""
        shape, dtype = (positives, identities), f"u{itemsize}"
        return cls(np.zeros(shape, dtype), np.zeros((2 * positives, identities), dtype))

    @staticmethod
    def size(positives: int, identities: int, itemsize: int) -> int:
        """Return their bytes."""
        return 3 * positives * identities * itemsize

    def of(self, begin: int, end: int) -> Counters:
        """Return the counters of some of the positives."""
        return Counters(self.closer[begin:end], self.tied[2 * begin : 2 * end])


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
    tile, row, first, offset_row, columns, identity, levels, closer, doubts, filled
):
    """Count the values of a tile that are clearly ahead of a positive, and list the doubtful.

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
    closer : [P, H] unsigned, added to
        Of `Counters`.
    doubts : Doubts
        Of capacity n at least; appended to.
    filled : int
        How many doubts there are.

    Returns
    -------
    the row to go on with (m where all are counted), how many doubts there are
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
    while row < tile.shape[0] and filled + n <= len(doubt_query):
        i = first + row
        begin, end = indptr[i], indptr[i + 1]
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
                        closer[leading[low], identity[k]] += 1
                    else:
                        doubt_query[filled] = i
                        doubt_column[filled] = k
                        doubt_edge[filled] = low - begin
                        filled += 1
        row += 1
    return row, filled


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
def place(item, identity, levels, counters, doubts, filled):  # type: ignore[no-untyped-def]
    """Count the doubts, once they are decided.

    Parameters
    ----------
    item : [n] int64
        Gallery index of each column.
    identity : [n] int32
    levels : Levels
    counters : Counters
        Added to.
    doubts : Doubts
        Their `edge` is the slot that each was found to be in.
    filled : int
    """
    edges, leading, closer, tied = levels.edges, levels.leading, counters.closer, counters.tied
    indptr, last, items = edges.indptr, edges.positive_indptr, edges.positive_item
    doubt_query, doubt_column, doubt_slot = doubts.query, doubts.column, doubts.edge
    for t in range(filled):
        i, k, slot = doubt_query[t], doubt_column[t], doubt_slot[t]
        e = indptr[i] + slot // 2
        if e == indptr[i + 1]:
            continue
        p = leading[e]
        if slot & 1:
            low, end = p, leading[e + 1] if e + 1 < indptr[i + 1] else last[i + 1]
            high = end
            while low < high:
                middle = (low + high) // 2
                if items[middle] < item[k]:
                    low = middle + 1
                else:
                    high = middle
            row = 2 * p + 1 if low == end else 2 * low
            tied[row, identity[k]] += 1
        else:
            closer[p, identity[k]] += 1
