"""Tiles: values of some queries with some gallery items, and what they say of distances.

A tile is passive: counters ask it for levels, the guard band, and the distances of the pairs
that the values leave in doubt. The values of this base class are canonical distances.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from streameval.compilation import compiled
from streameval.kernels.edges import first_reached
from streameval.kernels.settling import Closer
from streameval.typing import (
    BoolArray,
    ByteArray,
    Float32Array,
    FloatArray,
    FloatingArray,
    Indices,
    Int32Array,
    IntArray,
)

FINE_QUERIES = 64  # rows of a finer tile of as many columns as a tile may have
DISTANCE = "distance"  # the unit of canonical distances
DOUBTS = 1 << 20  # pairs that a task keeps, to be decided column by column
MOST_SINGLE, MOST_DOUBLE = (float(np.finfo(kind).max) for kind in (np.float32, np.float64))


class Columns(NamedTuple):
    """The columns of a tile.

    Attributes
    ----------
    item : [n] int64
        Gallery index, ascending.
    weight : [n] float32 or float64, or None
        Multiplied into each row, if given.
    offset : [b, n] of the same dtype
        Added to each row: +inf for items that take no part.
    """

    item: IntArray
    weight: FloatingArray | None
    offset: FloatingArray


class Levels(NamedTuple):
    """Distances in the unit of a tile's values: two bounds each, which are equal in most sources.

    Attributes
    ----------
    closer, tied : [E] float64
        A pair whose value is below `closer`, by more than the band, is closer than the
        distance; one whose value is above `tied`, by more than the band, is further.
    """

    closer: FloatArray
    tied: FloatArray


@dataclass(frozen=True, eq=False)
class Tile:
    """Canonical distances of some queries with some gallery items.

    Attributes
    ----------
    values : [m, n] float32 or float64
        Counters leave out +inf.
    query : [m] int64
        The query of each row, ascending, counted from the first of a block of queries.
    offset_row : [m] int64
        The row of ``columns.offset`` that serves each.
    columns : Columns
    last : bool
        Whether these columns come with no further queries: what they are made from is
        overwritten then.
    locate : callable, optional
        Raises InputError for the first value that is not finite; None where all are known to be.
    """

    values: FloatingArray
    query: IntArray
    offset_row: IntArray
    columns: Columns
    last: bool = True
    locate: Callable[[], None] | None = None
    sparse: ClassVar[bool] = False
    """Whether `values` are marks, that list the pairs which may be of interest."""

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(self.query) * len(self.columns.item)

    @property
    def unit(self) -> Hashable:
        """Tiles of one unit have the same levels."""
        return DISTANCE

    @property
    def refinable(self) -> bool:
        """Whether `finer` has tiles with a narrower band."""
        return False

    @property
    def band(self) -> FloatArray:
        """How far the values of each row may be from its levels, [m]; 0 where they are exact."""
        return np.zeros(len(self.query))

    @property
    def is_exact(self) -> bool:
        """Whether the values are the canonical distances."""
        return self.unit == DISTANCE and not self.band.any()

    def levels(self, query: IntArray, indptr: IntArray, distances: FloatArray) -> Levels:
        """Return what distances are in the unit of the values.

        Parameters
        ----------
        query : [r] int64
            Queries of the block.
        indptr : [r + 1] int64
            Where the distances of each of them begin.
        distances : [E] float64
        """
        return Levels(distances, distances)

    @property
    def closer(self) -> Closer | None:
        """What tells pairs in doubt closer; None where canonical distances come next."""
        return None

    def row_levels(self, distances: FloatArray) -> Levels:
        """Return the levels of one distance a row, [m] float64."""
        return self.levels(self.query, np.arange(len(self.query) + 1), distances)

    def resolve(self, query: Indices, column: Indices) -> FloatArray:
        """Return the canonical distances of pairs, [p] float64.

        Parameters
        ----------
        query, column : [p] integers
            Query of the block, and column of the tile.
        """
        row = np.full(int(self.query[-1]) + 1 if len(self.query) else 0, -1)
        row[self.query] = np.arange(len(self.query))
        exact = np.empty(len(query))
        _take(self.values, row, query, column, exact)
        return exact

    def finer(self, rows: IntArray) -> Iterator[Tile]:
        """Yield tiles with a narrower band that hold these rows."""
        raise NotImplementedError

    def listed(self) -> Iterator[tuple[Doubts, Float32Array]]:
        """Yield the pairs that `values` mark, and their values; each part overwrites the last."""
        raise NotImplementedError

    def mask(self, indptr: IntArray, item: IntArray, masked: BoolArray, taken: FloatArray) -> int:
        """Overwrite listed pairs with +inf; return how many of them were finite.

        Parameters
        ----------
        indptr : [queries of the block + 1] int64
            Where the listed pairs of each query begin.
        item : [L] int64
            Gallery indices, ascending within a query.
        masked : [L] bool
            Which of the listed pairs to overwrite.
        taken : [L] float64, written
            The values that are overwritten; of length 0 where nobody asks.
        """
        return int(_mask(self.values, self.query, self.columns.item, indptr, item, masked, taken))


class Rows(NamedTuple):
    """A tile, for kernels.

    Attributes
    ----------
    values : [m, n] float32 or float64
    query : [m] int64
        Query of the block.
    offset : [m] int64
        The row of ``columns.offset`` that serves it.
    band : [m] float64
    columns : Columns
    """

    values: FloatingArray
    query: IntArray
    offset: IntArray
    band: FloatArray
    columns: Columns

    @classmethod
    def of(cls, tile: Tile) -> Rows:
        """Return the rows of a tile."""
        return cls(tile.values, tile.query, tile.offset_row, tile.band, tile.columns)

    def weighted(self, row: int) -> FloatingArray:
        """Return the values of a row, weighted and offset, [n]."""
        columns = self.columns
        values: FloatingArray = np.empty_like(self.values[row])
        weighted(self.values[row], columns.weight, columns.offset[self.offset[row]], values)
        return values


class Doubts(NamedTuple):
    """Pairs that a tile's values do not decide, listed for their canonical distances.

    Attributes
    ----------
    query, column, edge : [capacity] int32
        Query of the block, column of the tile, and the edge that the pair is close to.
    """

    query: Int32Array
    column: Int32Array
    edge: Int32Array

    @classmethod
    def of(cls, capacity: int) -> Doubts:
        """Return an empty list; memory that is not written to is not taken."""
        return cls(*(np.empty(capacity, np.int32) for _ in cls._fields))

    def enlarged(self, needed: int, least: int = DOUBTS) -> Doubts:
        """Return a list that holds at least `needed` pairs, and `least` if there is a new one."""
        return self if len(self.query) >= needed else Doubts.of(max(needed, least))

    def estimates(self, closer: Closer, filled: int) -> Float32Array:
        """Return closer values of the first pairs."""
        return closer.estimates(self.query[:filled], self.column[:filled])

    def resolve(self, tile: Tile, filled: int) -> FloatArray:
        """Return the canonical distances of the first pairs."""
        return tile.resolve(self.query[:filled], self.column[:filled])


class LevelTable:
    """The levels of all edges of a block of queries, kept while tiles are of one unit.

    Parameters
    ----------
    indptr : [queries of the block + 1] int64
        Where each query's edges begin.
    distances : [E] float64
    """

    def __init__(self, indptr: IntArray, distances: FloatArray) -> None:
        self._indptr, self._distances = indptr, distances
        self._kept: dict[Hashable, Levels] = {}

    def clear(self) -> None:
        """Let go of the levels; they are found again where there are more tiles."""
        self._kept.clear()

    def rows(self, tile: Tile) -> tuple[Rows, Levels]:
        """Return the rows of a tile and the levels of all edges of the block."""
        if tile.unit == DISTANCE:
            return Rows.of(tile), Levels(self._distances, self._distances)
        if tile.unit not in self._kept:
            self.clear()  # their memory is free before more is taken
            block = np.arange(len(self._indptr) - 1)
            self._kept[tile.unit] = tile.levels(block, self._indptr, self._distances)
        return Rows.of(tile), self._kept[tile.unit]


def as_matrix(memory: ByteArray, kind: npt.DTypeLike, rows: int, columns: int) -> Any:
    """Return the beginning of some memory as a matrix."""
    size = rows * columns * np.dtype(kind).itemsize
    return memory[:size].view(kind).reshape(rows, columns)


def column_offsets(
    base: FloatingArray, junk: BoolArray | None, classes: int, ignored: Iterable[BoolArray]
) -> FloatingArray:
    """Return what is added to each column of a tile: +inf for items ruled out.

    Parameters
    ----------
    base : [n] float32 or float64
        The offset of items that take part.
    junk : [n] bool, optional
        Items that take part for no query.
    classes : int
        Number of classes C of queries that ignore items; 0 where none does.
    ignored : iterable of [n] bool
        Items that the queries of each class ignore.

    Returns
    -------
    [max(C, 1), n] of the dtype of `base`
        Row c serves the queries of class c.
    """
    offset: FloatingArray = np.repeat(base[None], max(classes, 1), axis=0)
    if junk is not None:
        offset[:, junk] = np.inf
    for row, own in zip(offset, ignored, strict=False):
        row[own] = np.inf
    return offset


@compiled
def _take(tile, row, query, column, out):  # type: ignore[no-untyped-def]
    """Write the values of pairs; `row` is that of each query of the block."""
    for k in range(len(query)):
        out[k] = tile[row[query[k]], column[k]]


@compiled
def _mask(tile, query, item, indptr, listed, masked, taken):  # type: ignore[no-untyped-def]
    finite = 0
    if tile.shape[1] == 0:
        return finite
    for r in range(tile.shape[0]):
        i, k = query[r], 0
        first = first_reached(item[0], listed, 0, indptr[i], indptr[i + 1])
        for entry in range(first, indptr[i + 1]):
            if listed[entry] > item[-1]:
                break
            most = min(k + max(listed[entry] - item[k], 0), len(item) - 1)
            if item[most] == listed[entry]:  # no item between is missing
                k = most
            else:
                k = first_reached(listed[entry], item, 0, k, most)
            if masked[entry] and item[k] == listed[entry]:
                if len(taken):
                    taken[entry] = tile[r, k]
                finite += np.isfinite(tile[r, k])
                tile[r, k] = np.inf
    return finite


@compiled
def all_finite(values):  # type: ignore[no-untyped-def]
    """Tell whether all values of a matrix are finite."""
    bad = 0
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            difference = values[i, k] - values[i, k]  # 0, or NaN where not finite
            bad += difference != 0
    return bad == 0


@compiled
def product(row, weight, k):  # type: ignore[no-untyped-def]
    """Return ``row[k] * weight[k]``, or ``row[k]`` where `weight` is None."""
    if weight is None:
        return row[k]
    return row[k] * weight[k]


@compiled
def weighted(row, weight, offset, out):  # type: ignore[no-untyped-def]
    """Write ``row * weight + offset``; vectorises."""
    for k in range(row.shape[0]):
        out[k] = product(row, weight, k) + offset[k]


@compiled
def round_up(value, like):  # type: ignore[no-untyped-def]
    """Return a float64 as a value of another dtype that is not less."""
    rounded = like.dtype.type(value)
    return rounded if rounded >= value else np.nextafter(rounded, like.dtype.type(np.inf))


@compiled
def greatest_finite(like):  # type: ignore[no-untyped-def]
    """Return the greatest finite value of an array's dtype, float64."""
    return MOST_SINGLE if like.itemsize == 4 else MOST_DOUBLE
