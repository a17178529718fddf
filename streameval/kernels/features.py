"""Tiles of features: float32 products, and the band within which they tell distances."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import numpy.typing as npt

from streameval.distances.distance import Distance
from streameval.distances.filter import LEAST_FLOAT32, MOST_FLOAT32
from streameval.distances.sums import FloatMatrix, Vectors
from streameval.kernels.finer import FineColumns, filter_levels
from streameval.kernels.multiplier import Multiplier, Product, choose_multiplier
from streameval.kernels.panels import Float32Matrix, Memory
from streameval.kernels.tiles import BoolArray, Columns, FloatArray, IntArray, Tile


@numba.njit(nogil=True, cache=True)
def _to_float32(rows, factor, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        scale = factor[i]
        for d in range(rows.shape[1]):
            out[i, d] = np.float32(np.float64(rows[i, d]) * scale)


def _power_of_two(value: float) -> float:
    """Return the power of two that brings a positive value into [1, 2)."""
    return 2.0 ** -math.floor(math.log2(value)) if 1e-300 < value < 1e300 else 1.0


def _scaled(rows: FloatMatrix, factor: FloatArray) -> Float32Matrix:
    out = np.empty(rows.shape, np.float32)
    _to_float32(rows, factor, out)
    return out


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """A block of queries, prepared once for all gallery rows.

    Attributes
    ----------
    vectors : Vectors
    distance : Distance
    scale : float
        The power of two in the rows that are multiplied.
    multiplier : Multiplier, optional
        Of these rows, which carry the sign and the factor 2; None where nothing is multiplied.
    undecided : [m] bool
        See `FineColumns`.
    """

    vectors: Vectors
    distance: Distance
    scale: float
    multiplier: Multiplier | None
    undecided: BoolArray

    @classmethod
    def prepare(cls, vectors: Vectors, distance: Distance) -> QueryBlock:
        """Prepare queries; they are finite, and none is zero where the distance needs lengths."""
        filter_, scale, multiplier = distance.filter, 1.0, None
        if filter_ is None:
            vectors = Vectors(vectors.rows.astype(np.float64), vectors.norms)
        else:
            if not filter_.normalised:
                scale = _power_of_two(float(vectors.norms.max(initial=0.0)))
            factor = filter_.factor(vectors.norms, scale)
            multiplier = choose_multiplier(_scaled(vectors.rows, factor))
        undecided = np.zeros(len(vectors.norms), np.bool_)
        return cls(vectors, distance, scale, multiplier, undecided)


@dataclass(frozen=True, eq=False)
class GalleryBlock:
    """A block of gallery rows, prepared for products.

    Attributes
    ----------
    vectors : Vectors
    filter : [n, D] float32
        The rows, scaled where they have to be.
    scale : float
        The power of two in `filter`.
    """

    vectors: Vectors
    filter: Float32Matrix
    scale: float

    @classmethod
    def prepare(cls, vectors: Vectors, distance: Distance) -> GalleryBlock:
        """Prepare gallery rows; float32 rows of ordinary norms are used as they are.

        In float64 where the distance has no filter, and nothing is multiplied.
        """
        rows, norms = vectors
        if distance.filter is None:
            return cls(Vectors(rows.astype(np.float64), norms), np.empty((len(rows), 0), "f4"), 1.0)
        most = float(norms.max(initial=0.0))
        least = float(norms.min(initial=np.inf))
        if rows.dtype == np.float32 and least > LEAST_FLOAT32 and most < MOST_FLOAT32:
            return cls(vectors, rows.astype(np.float32, copy=False), 1.0)
        scale = _power_of_two(most)
        return cls(vectors, _scaled(rows, np.full(len(rows), scale)), scale)

    def part(self, start: int, stop: int) -> GalleryBlock:
        """Return some of the rows."""
        return GalleryBlock(self.vectors.part(start, stop), self.filter[start:stop], self.scale)


def group_by_norm(norms: FloatArray, distance: Distance) -> tuple[IntArray, list[int]]:
    """Group gallery rows of like norms, so that one long row widens the band of few others.

    Parameters
    ----------
    norms : [n] float64
    distance : Distance
        Where its band does not depend on norms, all rows are one group.

    Returns
    -------
    order : [n] int64
        Rows by group; within a group in their own order.
    cuts : list of int
        Where the groups begin in that order, and n.
    """
    n, filter_ = len(norms), distance.filter
    if filter_ is None or filter_.normalised or not n or norms.max() <= 8 * norms.min():
        return np.arange(n), [0, n]
    group = np.floor(np.log2(np.maximum(norms, norms.max() * 1e-12)) / 3)
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    return order, [0, *cuts.tolist(), n]


class FeatureColumns:
    """Gallery rows against a block of queries: what the tiles of these columns share.

    Parameters
    ----------
    queries : QueryBlock
    gallery : GalleryBlock
        Of the columns.
    item : [n] int64
        Gallery index of each column.
    ruled_out : [b, n] float32
        0, or +inf for items that take no part: see `column_offsets`.
    memory : uint8 array
        For the gallery rows as the multiplier needs them.

    Attributes
    ----------
    scale : float
        s of `filter`.
    gamma : float
        γ of the guard band; +inf where float32 cannot hold the values, and every value is
        decided canonically.
    band : [queries of the block] float64
    columns : Columns
    """

    def __init__(
        self,
        queries: QueryBlock,
        gallery: GalleryBlock,
        item: IntArray,
        ruled_out: Float32Matrix,
        memory: Memory,
    ) -> None:
        self.queries, self.gallery = queries, gallery
        self.scale, self.gamma, self._product = 1.0, math.inf, self._multiply(memory)
        self.band = np.zeros(len(queries.vectors.norms))
        self.columns = Columns.exact(item, ruled_out.astype(np.float64))
        filter_, norms = queries.distance.filter, gallery.vectors.norms
        if filter_ is None or self._product is None:
            return
        weight, offset = np.ones(len(norms)), np.zeros(len(norms))
        longest = float(queries.vectors.norms.max(initial=0.0))
        scale = 1.0 if filter_.normalised else queries.scale * gallery.scale
        if filter_.fits(longest, norms, gallery.scale, scale):
            error = (self._product.roundings + 8) * 2.0**-24
            self.gamma, self.scale = error / (1 - error) if error < 0.5 else math.inf, scale
        if self.usable:
            weight = filter_.weight(norms * gallery.scale)
            offset = filter_.offset(norms, scale)
        largest, width = float(norms.max(initial=0.0)), gallery.vectors.rows.shape[1]
        self.band = filter_.band(self.gamma, width, queries.vectors.norms, largest, self.scale)
        single = np.float32
        self.columns = Columns(item, weight.astype(single), ruled_out + offset.astype(single))

    def _multiply(self, memory: Memory) -> Product | None:
        multiplier = self.queries.multiplier
        return None if multiplier is None else multiplier.times(self.gallery.filter, memory)

    @property
    def usable(self) -> bool:
        """Whether float32 can hold the values."""
        return math.isfinite(self.gamma)

    @cached_property
    def fine(self) -> FineColumns:
        """The columns for rows that are in doubt as a whole."""
        queries, items = self.queries, self.gallery.vectors
        return FineColumns(
            queries.distance, queries.vectors, items, self.columns, queries.undecided
        )

    def tile(self, top: int, rows: int, memory: Memory, *, last: bool) -> Tile:
        """Return the tile of some queries, its values in `memory`.

        Parameters
        ----------
        top, rows : int
            The first query of the block, and how many.
        memory : uint8 array
        last : bool
        """
        shape = rows, len(self.columns.item)
        query = np.arange(top, top + rows)
        if self._product is None:
            exact = memory[: 8 * math.prod(shape)].view(np.float64).reshape(shape)
            vectors, distance = self.queries.vectors, self.queries.distance
            distance.block(vectors.part(top, top + rows), self.gallery.vectors, exact)
            return Tile(exact, query, self.columns, last)
        values = memory[: 4 * math.prod(shape)].view(np.float32).reshape(shape)
        if self.usable:
            self._product.write(top, values)
        else:
            values[:] = 0
        return FeatureTile(values, query, self.columns, last, None, self)


@dataclass(frozen=True, eq=False)
class FeatureTile(Tile):
    """A tile of float32 products: filter values once weighted and offset.

    Attributes
    ----------
    of : FeatureColumns
    """

    of: FeatureColumns | None = None

    @property
    def shared(self) -> FeatureColumns:
        """What the tiles of these columns share."""
        if self.of is None:
            raise TypeError("a tile of features needs the columns that it was made from")
        return self.of

    @property
    def unit(self) -> Hashable:
        """The scale of the values."""
        return self.shared.scale

    @property
    def refinable(self) -> bool:
        """Whether float64 says more than float32."""
        return self.shared.usable

    @property
    def band(self) -> FloatArray:
        """The guard band of each row."""
        return self.shared.band[self.query]

    def levels(
        self, query: IntArray, indptr: IntArray, distances: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the filter values that distances correspond to."""
        block, scale = self.shared.queries, self.shared.scale
        return filter_levels(block.distance, block.vectors.norms[query], indptr, distances, scale)

    def resolve(
        self, query: npt.NDArray[np.integer], column: npt.NDArray[np.integer]
    ) -> FloatArray:
        """Return the canonical distances of pairs."""
        block = self.shared.queries
        return block.distance.pairs(block.vectors, self.shared.gallery.vectors, query, column)

    def finer(self, rows: IntArray) -> Iterator[Tile]:
        """Yield these rows as the float64 filter or canonical distances decide them."""
        return self.shared.fine.tiles(self.values, self.query, rows)
