"""Finer tiles: rows that float32 leaves in doubt as a whole, as where a model has collapsed.

Where gallery rows are copies of one another, each distinct row's canonical distance is computed
once a query and counted for all copies. Where they only nearly are, a second filter in float64,
with a band some 2²⁹ times narrower, decides most pairs; and where it doesn't either, all
distances of a row are computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from streameval.distances.distance import Distance
from streameval.distances.sums import Vectors
from streameval.kernels.edges import Edges, slot_of
from streameval.kernels.tiles import (
    FINE_QUERIES,
    BoolArray,
    Columns,
    FloatArray,
    IntArray,
    Tile,
)

COPIES = 4  # of each distinct row, from which on they are counted together


class FineColumns:
    """The columns of a tile, for rows that are in doubt as a whole.

    Parameters
    ----------
    distance : Distance
    queries : Vectors
        Of the block.
    items : Vectors
        Of the columns.
    columns : Columns
        Of the tile.
    undecided : [queries of the block] bool
        Queries whose pairs a filter in float64 was tried on, and could not decide: noted by one
        task for those that follow, none of which has to know.
    """

    def __init__(
        self,
        distance: Distance,
        queries: Vectors,
        items: Vectors,
        columns: Columns,
        undecided: BoolArray,
    ) -> None:
        self.distance, self.queries, self.undecided = distance, queries, undecided
        self.same_as = first_equal_row(items.rows)
        self.given = items
        number = np.arange(len(self.same_as))
        self._distinct = np.flatnonzero(self.same_as == number)
        self._copied = COPIES * len(self._distinct) <= len(self.same_as)
        self.items = items.take(self._distinct if self._copied else number)
        self.place = np.searchsorted(self._distinct, self.same_as) if self._copied else number
        self.exact = Columns.exact(columns.item, columns.offset.astype(np.float64))
        self.width = items.rows.shape[1]

    @cached_property
    def columns(self) -> Columns:
        """Weights and offsets of the filter in float64."""
        filter_, norms = self.distance.filter, self.items.norms
        if filter_ is None:
            return self.exact
        offset = self.exact.offset + filter_.offset(norms, 1.0)
        return Columns(self.exact.item, filter_.weight(norms), offset)

    @cached_property
    def band(self) -> FloatArray:
        """The guard band of the filter in float64, [queries of the block]."""
        filter_, largest = self.distance.filter, float(self.items.norms.max(initial=0.0))
        if filter_ is None:
            return np.zeros(len(self.queries.norms))
        error = (self.width + 8) * 2.0**-53
        return filter_.band(error / (1 - error), self.width, self.queries.norms, largest, 1.0)

    def tiles(
        self, values: npt.NDArray[np.floating], query: IntArray, rows: IntArray
    ) -> Iterator[Tile]:
        """Yield tiles of some rows of a tile.

        Parameters
        ----------
        values : [m, n] float32
            +inf where the pair is not a negative.
        query : [m] int64
        rows : [r] int64
        """
        for start in range(0, len(rows), FINE_QUERIES):
            chosen = rows[start : start + FINE_QUERIES]
            if self._copied:
                exact = self.distance.block(self.queries.take(query[chosen]), self.items)
                own = query[chosen], self.exact, False, None, self
                yield CopiedTile(exact, *own, values, chosen)
                continue
            undecided = self.undecided[query[chosen]]
            for some, make in ((~undecided, fine_tile), (undecided, exact_tile)):
                if some.any():
                    yield make(self, values[chosen[some]], query[chosen[some]])


@dataclass(frozen=True, eq=False)
class FinerTile(Tile):
    """A tile of canonical distances of rows that are in doubt as a whole.

    Attributes
    ----------
    fine : FineColumns
    """

    fine: FineColumns | None = None

    @property
    def unit(self) -> Hashable:
        """None: levels are those of these rows alone."""
        return None

    @property
    def shared(self) -> FineColumns:
        """What the tiles of these columns share."""
        if self.fine is None:
            raise TypeError("a finer tile needs the columns that it was made from")
        return self.fine

    @property
    def place(self) -> IntArray:
        """The column of `values` that holds each column of the tile, [n]."""
        return self.shared.place

    def resolve(
        self, query: npt.NDArray[np.integer], column: npt.NDArray[np.integer]
    ) -> FloatArray:
        """Return the canonical distances of pairs, query by query; copies together."""
        fine = self.shared
        first, which = _distinct_pairs(query, fine.same_as[column], len(fine.same_as))
        exact = fine.distance.pairs(fine.queries, fine.given, query[first], column[first])
        resolved: FloatArray = exact[which]
        return resolved


class FineTile(FinerTile):
    """A tile of filter values in float64."""

    @property
    def refinable(self) -> bool:
        """Whether canonical distances are yet to be computed."""
        return True

    @property
    def band(self) -> FloatArray:
        """The guard band in float64."""
        return self.shared.band[self.query]

    def levels(
        self, query: IntArray, indptr: IntArray, distances: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the filter values in float64 that distances correspond to."""
        fine = self.shared
        return filter_levels(fine.distance, fine.queries.norms[query], indptr, distances, 1.0)

    def finer(self, rows: IntArray) -> Iterator[Tile]:
        """Yield the canonical distances of these rows."""
        self.shared.undecided[self.query[rows]] = True
        yield exact_tile(self.shared, self.values[rows], self.query[rows])


@dataclass(frozen=True, eq=False)
class CopiedTile(FinerTile):
    """Canonical distances of queries to the distinct rows among the columns.

    Attributes
    ----------
    given : [m, n] float32
        Values of the tile that these rows are of: +inf where the pair is not a negative.
    rows : [r] int64
        Which of its rows.
    """

    given: npt.NDArray[np.floating] | None = None
    rows: IntArray | None = None

    def count(
        self, offset_row: IntArray, edges: Edges, counts: tuple[npt.NDArray[Any], ...]
    ) -> None:
        """Count the rows, all copies of a gallery row alike.

        Parameters
        ----------
        offset_row : [r] int64
        edges : Edges
        counts : Counts
            Added to.
        """
        _count_copies(
            self.values,
            self.given,
            self.rows,
            self.place,
            self.query,
            offset_row,
            self.columns,
            edges,
            counts,
        )


def fine_tile(fine: FineColumns, given: npt.NDArray[np.floating], query: IntArray) -> Tile:
    """Return filter values in float64 of some queries; +inf where `given` is."""
    filter_, norms = fine.distance.filter, fine.queries.norms[query]
    if filter_ is None:
        return exact_tile(fine, given, query)
    factor = filter_.factor(norms, 1.0)
    values = (fine.queries.rows[query].astype(np.float64) * factor[:, None]) @ fine.items.rows.T
    values[np.isinf(given)] = np.inf
    return FineTile(values, query, fine.columns, False, None, fine)


def exact_tile(fine: FineColumns, given: npt.NDArray[np.floating], query: IntArray) -> Tile:
    """Return canonical distances of some queries; +inf where `given` is."""
    values = fine.distance.block(fine.queries.take(query), fine.items)
    values[np.isinf(given)] = np.inf
    return FinerTile(values, query, fine.exact, False, None, fine)


def filter_levels(
    distance: Distance, norms: FloatArray, indptr: IntArray, distances: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray]:
    """Return the filter values of distances of queries of these norms: see `Tile.levels`."""
    filter_ = distance.filter
    if filter_ is None:
        return distances, distances
    levels = np.empty_like(distances)
    for start in range(0, len(norms), FINE_QUERIES):  # temporaries stay in cache
        begin, end = indptr[start], indptr[min(start + FINE_QUERIES, len(norms))]
        own = indptr[start : start + FINE_QUERIES + 1] - begin
        with np.errstate(over="ignore"):
            base = filter_.base(distances[begin:end])
        shift = filter_.shift(norms[start : start + FINE_QUERIES])
        _shift_and_scale(base, own, shift, scale, levels[begin:end])
    return levels, levels


@numba.njit(nogil=True, cache=True)
def _shift_and_scale(base, indptr, shift, scale, out):  # type: ignore[no-untyped-def]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = (base[e] - shift[i]) * scale


@numba.njit(nogil=True, cache=True)
def _distinct_pairs(query, same, n):  # type: ignore[no-untyped-def]
    """Return which pairs are the first of their query with a gallery row, and which each is.

    Parameters
    ----------
    query : [p] integers
        Equal ones are next to one another.
    same : [p] int64
        Number of the distinct row, below n.
    """
    known_for, known = np.full(n, -1, np.int64), np.empty(n, np.int64)
    first, which = np.empty(len(query), np.int64), np.empty(len(query), np.int64)
    count = 0
    for t in range(len(query)):
        if known_for[same[t]] != query[t]:
            known_for[same[t]] = query[t]
            known[same[t]] = count
            first[count] = t
            count += 1
        which[t] = known[same[t]]
    return first[:count], which


@numba.njit(nogil=True, cache=True)
def _count_copies(  # type: ignore[no-untyped-def]
    exact, given, rows, place, query, offset_row, columns, edges, counts
):
    """Count rows, with one canonical distance for all copies of a gallery row.

    Parameters
    ----------
    exact : [r, u] float64
        Canonical distances to the distinct rows.
    given : [m, n] float32
        +inf where the pair is not a negative.
    rows : [r] int64
        The rows of `given`.
    place : [n] int64
        The distinct row of each column.
    query, offset_row : [r] int64
    columns : Columns
    edges : Edges
    counts : Counts
        Added to.
    """
    distinct = exact.shape[1]
    known_for = np.full(distinct, -1, np.int64)
    slot = np.empty(distinct, np.int64)
    tied, tied_end = np.empty(distinct, np.int64), np.empty(distinct, np.int64)
    item, offset = columns.item, columns.offset
    indptr, distances, slots, nearest = edges.indptr, edges.distance, counts.slots, counts.nearest
    positive_indptr, ties = edges.positive_indptr, counts.ties
    positives, items = edges.positive_distance, edges.positive_item
    for r in range(len(query)):
        i = query[r]
        values, add = given[rows[r]], offset[offset_row[r]]
        begin, end, first_slot, near = indptr[i], indptr[i + 1], 2 * indptr[i] + i, 0
        for k in range(len(item)):
            if values[k] == np.inf or add[k] == np.inf:
                continue
            same = place[k]
            if known_for[same] != i:
                known_for[same] = i
                value = exact[r, same]
                nearest[i] = min(nearest[i], value)
                slot[same] = slot_of(value, near, distances, begin, end)
                near = slot[same] // 2
                first, last = positive_indptr[i], positive_indptr[i + 1]
                if slot[same] % 2 == 0:  # not at an edge
                    first = last
                while first < last and positives[first] != value:
                    first += 1
                tied[same] = tied_end[same] = first
                while tied_end[same] < last and positives[tied_end[same]] == value:
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
