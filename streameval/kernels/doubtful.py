"""Rows that the filter leaves in doubt as a whole: a model that has collapsed.

Where gallery rows are copies of one another, each distinct row's canonical distance is computed
once a query and counted for all copies. Where they only nearly are, a second filter in float64,
with a band some 2²⁹ times narrower, decides most pairs; and where it doesn't either, all
distances of a row are computed, and counted as stored ones are.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from streameval.kernels.canonical import COSINE, DOT, distance
from streameval.kernels.edges import slot_of
from streameval.kernels.filtering import Filter, Operand
from streameval.kernels.tiles import Columns, FloatTile

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

L1_ELEMENTS = 1 << 12  # float64 that are used again while they are in L1
COPIES = 4  # of each distinct row, from which on they are counted together


class FineColumns(NamedTuple):
    """The columns of a tile, for rows that are in doubt as a whole.

    Attributes
    ----------
    rows : [n, D] float64
    columns : Columns
        Weights and offsets as of `Filter`, in float64.
    exact : Columns
        Of canonical distances.
    same_as : [n] int64
        The first row with the same bits.
    distinct : int
        Number of different rows.
    """

    rows: FloatArray
    columns: Columns
    exact: Columns
    same_as: IntArray
    distinct: int

    @classmethod
    def of(cls, filter_: Filter, gallery: Operand, columns: Columns) -> FineColumns:
        """Prepare the columns."""
        n = len(gallery.norms)
        squared = filter_.metric not in (COSINE, DOT)
        offset = gallery.norms * gallery.norms if squared else np.zeros(n)
        absent = np.isinf(columns.offset)
        same_as = first_equal_row(gallery.rows)
        return cls(
            gallery.rows.astype(np.float64),
            Columns(
                columns.item,
                1.0 / gallery.norms if filter_.metric == COSINE else np.ones(n),
                np.where(absent, np.inf, offset),
            ),
            Columns(columns.item, np.ones(n), np.where(absent, np.inf, 0.0)),
            same_as,
            int(np.count_nonzero(same_as == np.arange(n))),
        )

    @property
    def copied(self) -> bool:
        """Whether most rows are copies."""
        return COPIES * self.distinct <= len(self.same_as)


def fine_tile(
    tile: FloatTile, row: IntArray, query: IntArray, metric: int, queries: Operand, rows: FloatArray
) -> FloatArray:
    """Return filter values in float64 for some rows of a tile, [r, n].

    Parameters
    ----------
    tile : [m, n] float32
        +inf where the pair is not a negative; so is the result.
    row, query : [r] int64
        Rows of the tile, and the queries of the block that they belong to.
    metric : int
    queries : Operand
        Of all queries of the block.
    rows : [n, D] float64
        The columns.
    """
    factor = np.full(len(query), -1.0 if metric == DOT else -2.0)
    if metric == COSINE:
        factor = -1.0 / queries.norms[query]
    fine: FloatArray = (queries.rows[query].astype(np.float64) * factor[:, None]) @ rows.T
    fine[np.isinf(tile[row])] = np.inf
    return fine


@numba.njit(nogil=True, cache=True)
def exact_tile(tile, row, metric, query_rows, query_norms, rows, norms):  # type: ignore[no-untyped-def]
    """Return the canonical distances of some rows of a tile, [r, n] float64.

    Parameters
    ----------
    tile : [m, n] float32
        +inf where the pair is not a negative; so is the result.
    row : [r] int64
        Rows of the tile.
    metric : int
    query_rows, query_norms : [r, D] float64, [r] float64
    rows, norms : [n, D] float64, [n] float64
        The columns. In float64, as sums in lanes take longer to convert than to add.
    """
    n, width = rows.shape
    exact = np.empty((len(row), n))
    block = max(L1_ELEMENTS // max(width, 1), 1)
    for left in range(0, n, block):
        right = min(left + block, n)
        for r in range(len(row)):
            values, out, norm = tile[row[r]], exact[r], query_norms[r]
            for k in range(left, right):
                out[k] = np.inf
                if values[k] != np.inf:
                    out[k] = distance(metric, query_rows, r, rows, k, norm, norms[k])
    return exact


@numba.njit(nogil=True, cache=True)
def count_copies(  # type: ignore[no-untyped-def]
    tile, row, query, offset_row, columns, same_as, metric, queries, gallery, edges, counts
):
    """Count some rows of a tile, with one canonical distance for all copies of a gallery row.

    Parameters
    ----------
    tile, row, query, metric, queries
        As in `fine_tile`.
    offset_row : [queries of the block] int64
    columns : Columns
    same_as : [n] int64
    gallery : Operand
        Of the columns.
    edges : Edges
        Of the block.
    counts : Counts
        Added to.
    """
    n = tile.shape[1]
    known_for = np.full(n, -1, np.int64)
    slot = np.empty(n, np.int64)
    tied, tied_end = np.empty(n, np.int64), np.empty(n, np.int64)
    item, offset = columns.item, columns.offset
    rows, norms, query_rows, query_norms = gallery.rows, gallery.norms, queries.rows, queries.norms
    indptr, distances, slots, nearest = edges.indptr, edges.distance, counts.slots, counts.nearest
    positive_indptr, ties = edges.positive_indptr, counts.ties
    positives, items = edges.positive_distance, edges.positive_item
    for r in range(len(row)):
        i = query[r]
        values, add = tile[row[r]], offset[offset_row[i]]
        begin, end, first_slot, near = indptr[i], indptr[i + 1], 2 * indptr[i] + i, 0
        for k in range(n):
            if values[k] == np.inf or add[k] == np.inf:
                continue
            same = same_as[k]
            if known_for[same] != i:
                known_for[same] = i
                exact = distance(metric, query_rows, i, rows, same, query_norms[i], norms[same])
                nearest[i] = min(nearest[i], exact)
                slot[same] = slot_of(exact, near, distances, begin, end)
                near = slot[same] // 2
                first, last = positive_indptr[i], positive_indptr[i + 1]
                if slot[same] % 2 == 0:  # not at an edge
                    first = last
                while first < last and positives[first] != exact:
                    first += 1
                tied[same] = tied_end[same] = first
                while tied_end[same] < last and positives[tied_end[same]] == exact:
                    tied_end[same] += 1
            slots[first_slot + slot[same]] += 1
            # As `note_tie`: at the first tied positive that follows in the gallery.
            while tied[same] < tied_end[same] and items[tied[same]] <= item[k]:
                tied[same] += 1
            if tied[same] < tied_end[same]:
                ties[tied[same]] += 1


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
