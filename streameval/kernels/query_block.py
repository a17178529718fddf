"""A block of queries, prepared once for all gallery rows that they are compared with.

Squared differences are the same of rows less any vector. Rows that are alike but for little, as
of a model that has collapsed, are multiplied less their centre: the guard band is by the lengths
of what is multiplied. Each subtraction is rounded once, relative to its result.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from streameval.compilation import compiled
from streameval.distances.distance import Distance, Filter
from streameval.distances.sums import SQUARED_DIFFERENCE, Vectors, block_sums
from streameval.kernels.multiplier import (
    FEW_ROWS,
    Product,
    blas_product,
    choose_multiplier,
    is_coarse,
    sieve_of,
)
from streameval.kernels.sieve import Digits
from streameval.typing import (
    BoolArray,
    ByteArray,
    Float32Array,
    FloatArray,
    FloatingArray,
    Indices,
    IntArray,
)

UNTRIED, MADE = -1, 0  # no product was made; the last was made, and not found to be of no use
SAMPLED = 16  # queries that tell whether rows are alike
SAME, ALIKE = 2.0**-100, 1 / 16  # what the squares of lengths fall to where a centre is taken off
DOUBTED = 1 / 16  # of a query's pairs: from there on BLAS is faster than words
FEWEST = 16  # doubts that say so, of few pairs
SOON, AGAIN = 4, 16  # one product in so many is made, where none has been of use: at first, later


def power_of_two(value: float) -> float:
    """Return the power of two that brings a positive value into [1, 2)."""
    return 2.0 ** -math.floor(math.log2(value)) if 1e-300 < value < 1e300 else 1.0


@compiled
def scaled(rows, factor, centre):  # type: ignore[no-untyped-def]
    """Return rows less a centre [D] float64, times factors, in float32."""
    out = np.empty(rows.shape, np.float32)
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[i, d] = np.float32((np.float64(rows[i, d]) - centre[d]) * factor[i])
    return out


def centre_of(rows: FloatingArray) -> FloatArray:
    """Return the mean of rows that are alike but for little, [D]; zeros of others and of copies."""
    some = rows[:: max(len(rows) // SAMPLED, 1)][:SAMPLED].astype(np.float64)
    first = some[:1].sum(axis=0)  # less which copies are zeros
    centre: FloatArray = first + (some - first).sum(axis=0) / max(len(some), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        apart, size = np.sum((some - centre) ** 2), np.sum(some**2)
    alike = SAME * size < apart < ALIKE * size < np.inf
    return centre if alike else np.zeros(rows.shape[1])


class Trials:
    """Of which queries float32 products tell nothing, so that they need not be made.

    From time to time one is made nonetheless: soon at first, so that a few rows that are nearly
    alike do not slow down all that follow.
    What is noted by one task is for those that follow, none of which has to know.

    Parameters
    ----------
    queries : int
        Of a block.
    """

    def __init__(self, queries: int) -> None:
        self._told = np.zeros(queries, np.bool_)  # whether any product was of use
        self._left = np.full(queries, UNTRIED)  # tiles until one is made again
        self._pause = np.full(queries, SOON)  # the same, once the next is of no use

    def hopeless(self, query: IntArray) -> BoolArray:
        """Tell which queries to make no product of now: none has been of use, and one was made."""
        return ~self._told[query] & (self._left[query] > 1)

    def leave_out(self, query: IntArray) -> None:
        """Note that products are not made."""
        self._left[query] -= 1

    def make(self, query: IntArray) -> None:
        """Note that products are made: of use, unless it is noted that they are not."""
        self._told[query] |= self._left[query] == MADE
        self._left[query] = MADE

    def refine(self, query: IntArray) -> None:
        """Note that the last products were of no use; it may be noted more than once."""
        useless = query[self._left[query] == MADE]
        self._left[useless] = self._pause[useless]
        self._pause[useless] = np.minimum(2 * self._pause[useless], AGAIN)


class QueryBlock:
    """A block of queries, prepared once for all gallery rows.

    Parameters
    ----------
    vectors : Vectors
        Finite; no row is zero where lengths don't count.
    distance : Distance
    offset_row : [m] int64
        The row of ``columns.offset`` that serves each query.
    asked : [n] int64, optional
        The queries that tiles are of, ascending; all by default.

    Attributes
    ----------
    undecided : [m] bool
        Queries whose pairs a filter in float64 was tried on, and could not decide: noted by one
        task for those that follow, none of which has to know.
    crowded : [m] bool
        Queries of which the sieve marks too many pairs, noted likewise.
    sampled : bool
        Whether a sample has told which are crowded, noted likewise.
    narrow : [m] bool
        Queries of which coarse products leave too many pairs in doubt, noted likewise.
    trials : Trials
        Of float32 products.
    filter : Filter
        Of the distance; it and what follows are there if the distance has one.
    scale : float
        The power of two in the rows that are multiplied.
    centre : [D] float64
        What is taken off all rows before; zeros in most.
    norms : [m] float64
        Of the rows less the centre.
    rows : [m, D] float32
        These rows; they carry the sign and the factor 2.
    digits : Digits or None
        Of these rows, for the sieve, where there is one.
    """

    filter: Filter
    scale: float
    centre: FloatArray
    norms: FloatArray
    rows: Float32Array
    digits: Digits | None

    def __init__(
        self,
        vectors: Vectors,
        distance: Distance,
        offset_row: IntArray,
        asked: IntArray | None = None,
    ) -> None:
        self.vectors, self.distance, self.offset_row = vectors, distance, offset_row
        self.asked = np.arange(len(offset_row)) if asked is None else asked
        self.undecided, self.crowded, self.narrow = np.zeros((3, len(vectors.norms)), np.bool_)
        self.sampled, self.trials = False, Trials(len(vectors.norms))
        if distance.filter is not None:
            self.filter, self.centre = distance.filter, np.zeros(vectors.rows.shape[1])
            if self.filter.squared:
                self.centre = centre_of(vectors.rows)
            self.norms = self.lengths(vectors)
            longest = float(self.norms.max(initial=0.0))
            self.scale = 1.0 if self.filter.normalised else power_of_two(longest)
            factor = self.filter.factor(self.norms, self.scale)
            self.rows = scaled(vectors.rows, factor, self.centre)
            self._multiplier, self._coarse = choose_multiplier(self.rows), is_coarse()
            way = sieve_of(self.rows.shape[1])
            self.digits = Digits.of(self.rows, way) if way else None

    @property
    def centred(self) -> bool:
        """Whether a centre is taken off."""
        return bool(self.centre.any())

    def lengths(self, vectors: Vectors) -> FloatArray:
        """Return the norms of rows less the centre, [n] float64."""
        if not self.centred:
            return vectors.norms
        out = np.empty((len(vectors.rows), 1))
        block_sums(SQUARED_DIFFERENCE, vectors.rows, self.centre[None], out)
        norms: FloatArray = np.sqrt(out[:, 0])
        return norms

    def product(
        self, items: Float32Array, memory: ByteArray, count: int, *, narrow: bool = False
    ) -> Product:
        """Return the products of so many of the queries: see `multiplier`; or those by BLAS."""
        few = narrow or count <= FEW_ROWS
        make = partial(blas_product, self.rows) if few else self._multiplier
        return make(items, memory)

    def note_doubts(self, query: Indices, columns: int) -> None:
        """Note of which queries coarse products leave too many pairs in doubt."""
        if not self._coarse:
            return
        doubts = np.bincount(query, minlength=len(self.narrow))
        self.narrow |= doubts > max(DOUBTED * columns, FEWEST)

    def exact(self, query: IntArray, items: Vectors, out: FloatArray | None = None) -> FloatArray:
        """Return the canonical distances of some queries, [q, n] float64."""
        return self.distance.block(self.vectors.take(query), items, out)
