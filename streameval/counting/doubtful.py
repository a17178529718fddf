"""Deciding many doubts: float64 BLAS as a second filter, and each distinct row once.

Where a model has collapsed, nearly every pair lies within the guard band of an edge. A second
filter in float64, with a band some 2²⁹ times narrower, decides the pairs that differ at all;
the pairs left are mostly copies of one another, whose canonical distance is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from streameval.counting.canonical import COSINE, DOT, LANES, distance
from streameval.counting.edges import Edges, note_tie
from streameval.counting.filtering import Filter, Operand, filter_value, guard_band
from streameval.counting.tiles import FINE_QUERIES, Columns, Counts, Doubts

FloatArray = npt.NDArray[np.float64]

NEAREST = -1  # in place of an edge: close to none, but perhaps the query's nearest negative


class FineColumns(NamedTuple):
    """The columns of a tile, for the second filter.

    Attributes
    ----------
    rows : [n, D] float64
    weight, offset : [n] float64
        As of `Filter`, in float64.
    same_as : [n] int64
        The first row with the same bits.
    """

    rows: FloatArray
    weight: FloatArray
    offset: FloatArray
    same_as: npt.NDArray[np.int64]

    @classmethod
    def of(cls, filter_: Filter, gallery: Operand) -> FineColumns:
        """Prepare the columns."""
        n = len(gallery.norms)
        cosine, dot = filter_.metric == COSINE, filter_.metric == DOT
        return cls(
            gallery.rows.astype(np.float64),
            1.0 / gallery.norms if cosine else np.ones(n),
            np.zeros(n) if cosine or dot else gallery.norms * gallery.norms,
            first_equal_row(gallery.rows),
        )


def settle_many(
    columns: Columns,
    fine_columns: FineColumns,
    filter_: Filter,
    queries: Operand,
    gallery: Operand,
    edges: Edges,
    counts: Counts,
    doubts: Doubts,
    filled: int,
) -> None:
    """Decide the doubts of one set of columns; the parameters are those of `settle`."""
    fine = filter_.in_float64()
    begin = 0
    while begin < filled:
        first = int(doubts.query[begin])
        end = int(np.searchsorted(doubts.query[:filled], first + FINE_QUERIES))
        last = int(doubts.query[end - 1]) + 1
        rows = queries.rows[first:last].astype(np.float64)
        if filter_.metric == COSINE:
            rows /= -queries.norms[first:last, None]
        else:
            rows *= -1.0 if filter_.metric == DOT else -2.0
        tile = rows @ fine_columns.rows.T
        _settle_rows(
            tile,
            first,
            fine_columns,
            columns.item,
            fine,
            queries,
            gallery,
            edges,
            counts,
            doubts,
            begin,
            end,
        )
        begin = end


@numba.njit(nogil=True, cache=True)
def _settle_rows(  # type: ignore[no-untyped-def]
    tile, first, fine_columns, item, fine, queries, gallery, edges, counts, doubts, begin, end
):
    """Decide the doubts `begin` to `end`, query by query, from a tile of float64 values."""
    n = tile.shape[1]
    known = np.empty(n)  # canonical distance of each distinct row to the query at hand
    known_for = np.full(n, -1, np.int64)
    lanes = np.empty(LANES)
    weight, offset, same_as = fine_columns.weight, fine_columns.offset, fine_columns.same_as
    metric, rows, norms = fine.metric, gallery.rows, gallery.norms
    query_rows, query_norms = queries.rows, queries.norms
    indptr, distances, slots = edges.indptr, edges.distance, counts.slots
    positives, items = edges.positive_distance, edges.positive_item
    positive_indptr, ties = edges.positive_indptr, counts.ties
    nearest = counts.nearest
    doubt_query, doubt_column, doubt_edge = doubts.query, doubts.column, doubts.edge
    most = 0
    for i in range(first, first + len(tile)):
        most = max(most, indptr[i + 1] - indptr[i])
    level = np.empty(most)
    t = begin
    while t < end:
        i = doubt_query[t]
        band = guard_band(fine, query_norms[i])
        first_edge, last_edge = indptr[i], indptr[i + 1]
        for e in range(first_edge, last_edge):
            level[e - first_edge] = filter_value(fine, distances[e], query_norms[i])
        stop, least = t, np.inf
        while stop < end and doubt_query[stop] == i:
            k = doubt_column[stop]
            least = min(least, tile[i - first, k] * weight[k] + offset[k])
            stop += 1
        reach = min(least + band, filter_value(fine, nearest[i], query_norms[i])) + band
        for s in range(t, stop):
            k = doubt_column[s]
            value = tile[i - first, k] * weight[k] + offset[k]
            e = first_edge
            counted = doubt_edge[s] == NEAREST
            if not counted:
                e += doubt_edge[s]
                while e < last_edge and level[e - first_edge] + band < value:
                    e += 1
                if e == last_edge or value < level[e - first_edge] - band:
                    slots[2 * first_edge + i + 2 * (e - first_edge)] += 1
                    doubt_edge[s] = 2 * (e - first_edge)
                    counted = True
            if counted and value > reach:
                continue
            r = same_as[k]
            if known_for[r] != i:
                known_for[r] = i
                known[r] = distance(metric, query_rows, i, rows, r, query_norms[i], norms[r], lanes)
            exact = known[r]
            nearest[i] = min(nearest[i], exact)
            if counted:
                continue
            # What `slot_of` does, written out: a call here costs collapsed models a fifth.
            while e < last_edge and distances[e] < exact:
                e += 1
            while e > first_edge and distances[e - 1] >= exact:
                e -= 1
            slot = 2 * first_edge + i + 2 * (e - first_edge)
            doubt_edge[s] = 2 * (e - first_edge)
            if e < last_edge and distances[e] == exact:
                slots[slot + 1] += 1
                doubt_edge[s] += 1
                note_tie(
                    exact,
                    item[k],
                    positives,
                    items,
                    positive_indptr[i],
                    positive_indptr[i + 1],
                    ties,
                )
            else:
                slots[slot] += 1
        t = stop


@numba.njit(nogil=True, cache=True)
def _first_equal_row(bits, out):  # type: ignore[no-untyped-def]
    """Open addressing on a hash of the bits; equality is checked."""
    n, width = bits.shape
    size = 1
    while size < 2 * n:
        size *= 2
    table = np.full(size, -1, np.int64)
    for k in range(n):
        key = np.uint64(14695981039346656037)
        for d in range(width):
            key = (key ^ np.uint64(bits[k, d])) * np.uint64(1099511628211)
        at = np.int64((key >> np.uint64(20)) & np.uint64(size - 1))
        while True:
            other = table[at]
            if other < 0:
                table[at] = k
                out[k] = k
                break
            equal = True
            for d in range(width):
                if bits[k, d] != bits[other, d]:
                    equal = False
                    break
            if equal:
                out[k] = other
                break
            at = (at + 1) & (size - 1)


def first_equal_row(rows: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """Return, for each row, the first row with the same bits, [n] int64."""
    out = np.empty(len(rows), np.int64)
    _first_equal_row(rows.view(np.uint32 if rows.itemsize == 4 else np.uint64), out)
    return out
