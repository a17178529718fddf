"""Tiles of filter values: float32 products, and float64 where these leave rows in doubt as a whole.

Rows are in doubt as a whole where a model has collapsed. Where gallery rows are copies of one
another, each distinct row's canonical distance is computed once a query. Where they only nearly
are, a second filter in float64, with a band some 2²⁹ times narrower, decides most pairs; and
where it doesn't either, all distances of a row are computed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from streameval.compilation import compiled
from streameval.distances.sums import FLOAT_LANES, FLOAT_PRODUCT, Vectors, pair_sums
from streameval.kernels.query_block import QueryBlock
from streameval.kernels.settling import Closer
from streameval.kernels.tiles import FINE_QUERIES, Columns, Levels, Tile
from streameval.typing import (
    BoolArray,
    ByteArray,
    Float32Array,
    FloatArray,
    FloatingArray,
    Indices,
    IntArray,
)

COPIES = 4  # of each distinct row, from which on distances are computed once
ROUNDINGS = 16  # of a product of a pair, beyond those of its sum, and of what it is compared with
LEVELS = 1 << 15  # computed at a time: their temporaries stay in cache


@dataclass(frozen=True, eq=False)
class Operands:
    """What is multiplied with a block of queries.

    Attributes
    ----------
    queries : QueryBlock
    items : Vectors
        Of the columns.
    rows : [n, D] float32
        The same, as they are multiplied.
    norms : [n] float64
        Of these, but for a common factor.
    length : float
        The greatest norm of these, each times the weight of its column.
    columns : Columns
    ruled_out : [b, n] float32
        0, or +inf for items that take no part: see `column_offsets`.
    scale : float
        s of `distances.distance`.
    fits : bool
        Whether float32 can hold the values.
    memory : uint8 array
        For the rows as the multiplier needs them.
    """

    queries: QueryBlock
    items: Vectors
    rows: Float32Array
    norms: FloatArray
    length: float
    columns: Columns
    ruled_out: Float32Array
    scale: float
    fits: bool
    memory: ByteArray

    @property
    def width(self) -> int:
        """D."""
        return int(self.items.rows.shape[1])

    @cached_property
    def fine(self) -> FineColumns:
        """The same columns, of products in float64."""
        return FineColumns(self.queries, self.items, self.columns.item, self.ruled_out)

    @cached_property
    def pairs(self) -> PairColumns:
        """The same columns, of products of single pairs."""
        return PairColumns(self)

    def release(self) -> None:
        """Let go of rows in float64, which the last tile holds until there is another."""
        fine = vars(self).pop("fine", None)  # the cached one, if any
        if fine is not None:
            fine.release()


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterTile(Tile):
    """A tile of products: filter values once weighted and offset.

    Attributes
    ----------
    of : FilterColumns
        The columns that the tile is part of.
    """

    of: FilterColumns

    @property
    def unit(self) -> tuple[float, bool]:
        """The scale of the values, and whether a centre was taken off."""
        return self.of.scale, self.of.centred

    @property
    def refinable(self) -> bool:
        """Whether finer tiles say more."""
        return self.of.usable

    @property
    def closer(self) -> Closer | None:
        """Products of single pairs, where they are closer."""
        return self.of.closer

    @property
    def band(self) -> FloatArray:
        """The guard band of each row."""
        return self.of.band[self.query]

    def levels(self, query: IntArray, indptr: IntArray, distances: FloatArray) -> Levels:
        """Return the filter values that distances correspond to."""
        filter_, norms = self.of.queries.filter, self.of.norms[query]
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


class FilterColumns(ABC):
    """Gallery rows against a block of queries, told apart by a filter.

    Parameters
    ----------
    queries : QueryBlock
    items : Vectors
        Of the columns.
    norms : [n] float64
        Of the columns' rows, as they are multiplied.
    error : float or [queries of the block] float64
        Bound on what a product loses, by the norms of its rows: n u of `distances.distance`.
    scale : float
        s of `distances.distance`.

    Attributes
    ----------
    norms : [queries of the block] float64
        Of the queries' rows, as they are multiplied.
    usable : bool
        Whether numbers can hold the values, so that finer tiles say more.
    gamma : float or [queries of the block] float64
        γ of the guard band; +inf where every value is decided canonically.
    band : [queries of the block] float64
    """

    fine: ClassVar[bool] = False
    """Whether rows are multiplied in float64, as they are."""

    def __init__(
        self,
        queries: QueryBlock,
        items: Vectors,
        norms: FloatArray,
        error: float | FloatArray,
        scale: float,
    ) -> None:
        self.queries, self.items, self.scale = queries, items, scale
        self.usable = bool(np.all(error < 0.5))
        self.gamma: float | FloatArray = error / (1 - error) if self.usable else math.inf
        self.norms = queries.norms if self.centred else queries.vectors.norms
        width, largest = items.rows.shape[1], float(norms.max(initial=0.0))
        self.band = queries.filter.band(self.gamma, width, self.norms, largest, scale)

    @property
    def centred(self) -> bool:
        """Whether a centre is taken off the rows that are multiplied."""
        return self.queries.centred and not self.fine

    @property
    def closer(self) -> Closer | None:
        """What tells single pairs closer; None where nothing but their canonical distances does."""
        return None

    @abstractmethod
    def finer(self, values: FloatingArray, query: IntArray) -> Iterator[Tile]:
        """Yield tiles that decide some queries better."""


class PairColumns(FilterColumns):
    """Columns of float32 products of single pairs: their sums lose less than those of a tile."""

    def __init__(self, of: Operands) -> None:
        roundings = of.width / FLOAT_LANES + ROUNDINGS
        error = (roundings + 8) * 2.0**-24 if of.fits else 1.0
        super().__init__(of.queries, of.items, of.norms, error, of.scale)
        self.columns, self._rows = of.columns, of.rows

    def estimates(self, query: Indices, column: Indices) -> Float32Array:
        """Return the values of pairs that a tile leaves in doubt."""
        self.queries.note_doubts(query, len(self.columns.item))
        return self.products(query, column)

    def products(self, query: Indices, column: Indices) -> Float32Array:
        """Return float32 products of pairs, weighted and offset."""
        out, columns = np.empty(len(query), np.float32), self.columns
        pair_sums(FLOAT_PRODUCT, self.queries.rows, self._rows, query, column, out)
        _weigh(out, query, column, columns.weight, self.queries.offset_row, columns.offset)
        return out

    def finer(self, values: FloatingArray, query: IntArray) -> Iterator[Tile]:
        """Raise: pairs are listed, and leave no row in doubt."""
        raise NotImplementedError


class ProductColumns(FilterColumns):
    """Columns of float32 products of so many of the queries.

    Parameters
    ----------
    of : Operands
    count : int
    fine : int
        Rows of a finer tile.
    narrow : bool
        Whether products are to be as close as those by BLAS.
    """

    def __init__(
        self, of: Operands, count: int, fine: int = FINE_QUERIES, *, narrow: bool = False
    ) -> None:
        self._of, self._fine_rows = of, fine
        self._product = of.queries.product(of.rows, of.memory, count, narrow=narrow)
        error = (self._product.roundings + 8) * 2.0**-24 if of.fits else 1.0
        super().__init__(of.queries, of.items, of.norms, error, of.scale)

    @property
    def closer(self) -> Closer | None:
        """Products of single pairs."""
        return self._of.pairs if self.usable else None

    def tile(self, query: IntArray, values: Float32Array, *, last: bool) -> Tile:
        """Return the tile of some queries, ascending; its values are written."""
        if not self._product.coarse:
            self.queries.trials.make(query)
        if self.usable:
            self._product.write(query, values)
        else:
            values[:] = 0
        row = self.queries.offset_row[query]
        return FilterTile(values, query, row, self._of.columns, last, of=self)

    def finer(self, values: FloatingArray, query: IntArray) -> Iterator[Tile]:
        """Yield products of queries that float64 may decide, and distances of others.

        Before, products by BLAS where these were coarse.
        """
        if self._product.coarse:
            yield from self._narrower(values, query)
            return
        fine = self._of.fine
        self.queries.trials.refine(query)
        for start in range(0, len(query), self._fine_rows):
            part = slice(start, start + self._fine_rows)
            told = fine.decides(query[part])
            for some, make in ((told, fine.products), (~told, fine.distances)):
                if some.any():
                    yield make(values[part][some], query[part][some])

    def _narrower(self, values: FloatingArray, query: IntArray) -> Iterator[Tile]:
        """Yield the products of queries by BLAS; +inf where the values are."""
        self.queries.narrow[query] = True
        columns = ProductColumns(self._of, len(query), self._fine_rows, narrow=True)
        for start in range(0, len(query), self._fine_rows):
            part = slice(start, start + self._fine_rows)
            out = np.empty(values[part].shape, np.float32)
            tile = columns.tile(query[part], out, last=False)
            np.copyto(out, np.inf, where=np.isinf(values[part]))
            yield tile


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

    fine = True

    def __init__(
        self, queries: QueryBlock, items: Vectors, item: IntArray, ruled_out: Float32Array
    ) -> None:
        super().__init__(queries, items, items.norms, (items.rows.shape[1] + 8) * 2.0**-53, 1.0)
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
        for start in range(0, len(query), FINE_QUERIES):
            part = slice(start, start + FINE_QUERIES)
            yield self.distances(values[part], query[part])

    def release(self) -> None:
        """Let go of the rows: no tile of these columns is asked for any more."""
        del self._rows

    def decides(self, query: IntArray) -> BoolArray:
        """Tell of which queries products may decide most pairs, as far as is known."""
        return ~(self.queries.undecided[query] | self.copied)

    def products(self, given: FloatingArray, query: IntArray) -> Tile:
        """Return float64 products of some queries; +inf where `given` is."""
        values = np.empty(given.shape)
        tile = self.tile(query, values, last=False)
        np.copyto(values, np.inf, where=np.isinf(given))
        return tile

    def tile(self, query: IntArray, values: FloatArray, *, last: bool) -> Tile:
        """Return the tile of some queries, ascending; its values are written."""
        rows, norms = self.queries.vectors.take(query)
        rows *= self.queries.filter.factor(norms, 1.0)[:, None]
        np.matmul(rows, self._rows.rows.T, out=values)
        row = self.queries.offset_row[query]
        return FilterTile(values, query, row, self.columns, last, of=self)

    def distances(self, given: FloatingArray, query: IntArray) -> Tile:
        """Return canonical distances of some queries; +inf where `given` is."""
        values, absent = self.queries.exact(query, self._rows), np.isinf(given)
        if self.copied:
            values = np.take(values, self._place, axis=1)
            absent = np.take(absent, self._order, axis=1)
        np.copyto(values, np.inf, where=absent)
        return Tile(values, query, self.queries.offset_row[query], self._exact, last=False)


@compiled
def _weigh(out, query, column, weight, offset_row, offset):  # type: ignore[no-untyped-def]
    """Weight and offset the products of pairs."""
    for t in range(len(out)):
        out[t] = out[t] * weight[column[t]] + offset[offset_row[query[t]], column[t]]


def _first_equal_row(rows: FloatingArray) -> IntArray:
    """Return the first row with the same bits for each row; its own of rows with few copies."""
    first: dict[bytes, int] = {}
    out = np.arange(len(rows))
    for k, row in enumerate(rows):
        out[k] = first.setdefault(row.tobytes(), k)
        if COPIES * len(first) > len(rows):
            return np.arange(len(rows))
    return out
