"""Tiles of features: float32 products, and float64 where these leave rows in doubt as a whole.

Rows are in doubt as a whole where a model has collapsed. Where gallery rows are copies of one
another, each distinct row's canonical distance is computed once a query. Where they only nearly
are, a second filter in float64, with a band some 2²⁹ times narrower, decides most pairs; and
where it doesn't either, all distances of a row are computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streameval.compilation import compiled
from streameval.distances.distance import LEAST_FLOAT32, MOST_FLOAT32, Distance, Filter
from streameval.distances.sums import Vectors
from streameval.kernels.multiplier import Multiplier, choose_multiplier
from streameval.kernels.tiles import FINE_QUERIES, Columns, Levels, Tile
from streameval.typing import ByteArray, Float32Array, FloatArray, FloatingArray, Indices, IntArray

COPIES = 4  # of each distinct row, from which on distances are computed once
LEVELS = 1 << 15  # computed at a time: their temporaries stay in cache


def _power_of_two(value: float) -> float:
    """Return the power of two that brings a positive value into [1, 2)."""
    return 2.0 ** -math.floor(math.log2(value)) if 1e-300 < value < 1e300 else 1.0


@compiled
def _scaled(rows, factor):  # type: ignore[no-untyped-def]
    """Return rows times factors, rounded to float32 once."""
    out = np.empty(rows.shape, np.float32)
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[i, d] = np.float32(np.float64(rows[i, d]) * factor[i])
    return out


class QueryBlock:
    """A block of queries, prepared once for all gallery rows.

    Parameters
    ----------
    vectors : Vectors
        Finite; no row is zero where lengths don't count.
    distance : Distance
    offset_row : [m] int64
        The row of ``columns.offset`` that serves each query.

    Attributes
    ----------
    undecided : [m] bool
        Queries whose pairs a filter in float64 was tried on, and could not decide: noted by one
        task for those that follow, none of which has to know.
    filter : Filter
        Of the distance; it and what follows are there if the distance has one.
    scale : float
        The power of two in the rows that are multiplied.
    multiplier : Multiplier
        Of the rows, which carry the sign and the factor 2.
    """

    filter: Filter
    scale: float
    multiplier: Multiplier

    def __init__(self, vectors: Vectors, distance: Distance, offset_row: IntArray) -> None:
        self.vectors, self.distance, self.offset_row = vectors, distance, offset_row
        self.undecided = np.zeros(len(vectors.norms), np.bool_)
        if distance.filter is not None:
            self.filter, longest = distance.filter, float(vectors.norms.max(initial=0.0))
            self.scale = 1.0 if self.filter.normalised else _power_of_two(longest)
            factor = self.filter.factor(vectors.norms, self.scale)
            self.multiplier = choose_multiplier(_scaled(vectors.rows, factor))

    def exact(self, query: IntArray, items: Vectors, out: FloatArray | None = None) -> FloatArray:
        """Return the canonical distances of some queries, [q, n] float64."""
        return self.distance.block(self.vectors.take(query), items, out)


class ExactColumns:
    """Gallery rows against a block of queries, of a distance without a filter.

    Parameters
    ----------
    queries, items, item, ruled_out, memory
        As of `FeatureColumns`.
    """

    def __init__(
        self,
        queries: QueryBlock,
        items: Vectors,
        item: IntArray,
        ruled_out: Float32Array,
        memory: ByteArray,
    ) -> None:
        self._queries, self._items = queries, items.take(slice(None))
        self.columns = Columns(item, None, ruled_out.astype(np.float64))

    def tile(self, top: int, values: FloatArray, *, last: bool) -> Tile:
        """Return the tile of some queries: see `FeatureColumns.tile`."""
        query, queries = np.arange(top, top + len(values)), self._queries
        values = queries.exact(query, self._items, values)
        return Tile(values, query, queries.offset_row[query], self.columns, last)


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterTile(Tile):
    """A tile of products: filter values once weighted and offset.

    Attributes
    ----------
    of : FeatureColumns or FineColumns
        The columns that the tile is part of.
    """

    of: FeatureColumns | FineColumns

    @property
    def unit(self) -> float:
        """The scale of the values."""
        return self.of.scale

    @property
    def refinable(self) -> bool:
        """Whether finer tiles say more."""
        return self.of.usable

    @property
    def band(self) -> FloatArray:
        """The guard band of each row."""
        return self.of.band[self.query]

    def levels(self, query: IntArray, indptr: IntArray, distances: FloatArray) -> Levels:
        """Return the filter values that distances correspond to."""
        filter_, norms = self.of.queries.filter, self.of.queries.vectors.norms[query]
        level = np.empty_like(distances)
        step = max(LEVELS * len(query) // max(len(level), 1), 1)
        for start in range(0, len(query), step):
            own = indptr[start : start + step + 1]
            part = slice(own[0], own[-1])
            with np.errstate(over="ignore", invalid="ignore"):
                squares = np.repeat(filter_.squares(norms[start : start + step]), np.diff(own))
                level[part] = (filter_.value(distances[part]) - squares) * self.of.scale
        return Levels(level, level)

    def resolve(self, query: Indices, column: Indices) -> FloatArray:
        """Return the canonical distances of pairs."""
        queries = self.of.queries
        return queries.distance.pairs(queries.vectors, self.of.items, query, column)

    def finer(self, rows: IntArray) -> Iterator[Tile]:
        """Yield these rows as float64 or canonical distances decide them."""
        return self.of.finer(self.values[rows], self.query[rows])


class FilterColumns:
    """Gallery rows against a block of queries, told apart by a filter.

    Parameters
    ----------
    queries : QueryBlock
    items : Vectors
        Of the columns.
    error : float
        Bound on what a product loses, by the norms of its rows: n u of `distances.distance`.
    scale : float
        s of `distances.distance`.

    Attributes
    ----------
    usable : bool
        Whether numbers can hold the values, so that finer tiles say more.
    gamma : float
        γ of the guard band; +inf where every value is decided canonically.
    band : [queries of the block] float64
    """

    def __init__(self, queries: QueryBlock, items: Vectors, error: float, scale: float) -> None:
        self.queries, self.items, self.scale = queries, items, scale
        self.usable = error < 0.5
        self.gamma = error / (1 - error) if self.usable else math.inf
        width, largest = items.rows.shape[1], float(items.norms.max(initial=0.0))
        norms = queries.vectors.norms
        self.band = queries.filter.band(self.gamma, width, norms, largest, scale)


class FeatureColumns(FilterColumns):
    """Columns of float32 products.

    Parameters
    ----------
    queries : QueryBlock
    items : Vectors
        Of the columns; float32 rows of ordinary norms are multiplied as they are.
    item : [n] int64
        Gallery index of each column.
    ruled_out : [b, n] float32
        0, or +inf for items that take no part: see `column_offsets`.
    memory : uint8 array
        For the gallery rows as the multiplier needs them.
    """

    def __init__(
        self,
        queries: QueryBlock,
        items: Vectors,
        item: IntArray,
        ruled_out: Float32Array,
        memory: ByteArray,
    ) -> None:
        (rows, norms), filter_, factor, scale = items, queries.filter, 1.0, 1.0
        most, least = float(norms.max(initial=0.0)), float(norms.min(initial=np.inf))
        if rows.dtype != np.float32 or least <= LEAST_FLOAT32 or most >= MOST_FLOAT32:
            factor = _power_of_two(most)
            rows = _scaled(rows, np.full(len(rows), factor))
        if not filter_.normalised:
            scale = queries.scale * factor
        self._product = queries.multiplier(rows.astype(np.float32, copy=False), memory)
        longest = float(queries.vectors.norms.max(initial=0.0))
        fits = filter_.fits(longest, norms, factor, scale)
        error = (self._product.roundings + 8) * 2.0**-24 if fits else 1.0
        super().__init__(queries, items, error, scale if fits else 1.0)
        weight, offset = np.ones(len(norms)), np.zeros(len(norms))
        if self.usable:
            weight, offset = filter_.weight(norms * factor), filter_.squares(norms) * scale
        single, self._ruled_out = np.float32, ruled_out
        self.columns = Columns(item, weight.astype(single), ruled_out + offset.astype(single))

    def tile(self, top: int, values: Float32Array, *, last: bool) -> Tile:
        """Return the tile of some queries.

        Parameters
        ----------
        top : int
            The first query of the block.
        values : [m, n] float32, written; of `ExactColumns` float64
        last : bool
            As of `Tile`.
        """
        if self.usable:
            self._product.write(top, values)
        else:
            values[:] = 0
        query = np.arange(top, top + len(values))
        return FilterTile(
            values, query, self.queries.offset_row[query], self.columns, last, of=self
        )

    @cached_property
    def _fine(self) -> FineColumns:
        return FineColumns(self.queries, self.items, self.columns.item, self._ruled_out)

    def finer(self, values: FloatingArray, query: IntArray) -> Iterator[Tile]:
        """Yield products of queries that float64 may decide, and distances of others."""
        fine = self._fine
        for start in range(0, len(query), FINE_QUERIES):
            part = slice(start, start + FINE_QUERIES)
            undecided = self.queries.undecided[query[part]] | fine.copied
            for some, make in ((~undecided, fine.products), (undecided, fine.distances)):
                if some.any():
                    yield make(values[part][some], query[part][some])


class FineColumns(FilterColumns):
    """Columns of float64 products, and of canonical distances.

    Parameters
    ----------
    queries : QueryBlock
    items : Vectors
        Of the columns.
    item, ruled_out
        As of `FeatureColumns`.
    """

    def __init__(
        self, queries: QueryBlock, items: Vectors, item: IntArray, ruled_out: Float32Array
    ) -> None:
        super().__init__(queries, items, (items.rows.shape[1] + 8) * 2.0**-53, 1.0)
        distinct, place = np.unique(_first_equal_row(items.rows), return_inverse=True)
        self.copied = COPIES * len(distinct) <= len(item)
        self._rows = items.take(distinct if self.copied else slice(None))
        offset = ruled_out.astype(np.float64)
        weights = queries.filter.weight(items.norms)
        self.columns = Columns(item, weights, offset + queries.filter.squares(items.norms))
        if self.copied:  # they are counted fast where they follow one another
            self._order = np.argsort(place, kind="stable")
            self._place = place[self._order]
            item, offset = item[self._order], np.take(offset, self._order, axis=1)
        self._exact = Columns(item, None, offset)

    def finer(self, values: FloatingArray, query: IntArray) -> Iterator[Tile]:
        """Yield the canonical distances of queries."""
        self.queries.undecided[query] = True
        yield self.distances(values, query)

    def products(self, given: FloatingArray, query: IntArray) -> Tile:
        """Return float64 products of some queries; +inf where `given` is."""
        rows, norms = self.queries.vectors.take(query)
        values = (rows * self.queries.filter.factor(norms, 1.0)[:, None]) @ self._rows.rows.T
        np.copyto(values, np.inf, where=np.isinf(given))
        row = self.queries.offset_row[query]
        return FilterTile(values, query, row, self.columns, last=False, of=self)

    def distances(self, given: FloatingArray, query: IntArray) -> Tile:
        """Return canonical distances of some queries; +inf where `given` is."""
        values, absent = self.queries.exact(query, self._rows), np.isinf(given)
        if self.copied:
            values = np.take(values, self._place, axis=1)
            absent = np.take(absent, self._order, axis=1)
        np.copyto(values, np.inf, where=absent)
        return Tile(values, query, self.queries.offset_row[query], self._exact, last=False)


def _first_equal_row(rows: FloatingArray) -> IntArray:
    """Return the first row with the same bits for each row; its own of rows with few copies."""
    first: dict[bytes, int] = {}
    out = np.arange(len(rows))
    for k, row in enumerate(rows):
        out[k] = first.setdefault(row.tobytes(), k)
        if COPIES * len(first) > len(rows):
            return np.arange(len(rows))
    return out
