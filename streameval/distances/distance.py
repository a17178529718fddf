"""What a distance declares: its sums, and its filter, whose values FAISS has in its place.

A filter value is the product of a query's row and a gallery row, times the `weight` and plus the
`offset` of the gallery row's column. It ascends with the distance:

    cosine                   −q̂·ĝ                    = distance − 1
    dot                      −s q·g                   = s distance
    euclidean, sqeuclidean   s (|g|² − 2 q·g)         = s (distance² − |q|²)

with s a power of two that keeps float32 in range, and q and g less a centre in the last row, where
rows are alike but for little (`kernels.query_block`). In general it is s (`value` of the distance −
`squares` of the query's norm). It differs from that by at most the guard band. The bound is the
classical one for an inner product (Higham, Accuracy and Stability of Numerical Algorithms, §3.1),
with eight more roundings for scaling, normalising, weight and offset:

    |filter value − canonical| ≤ γ · |q| |g|,   γ = n u / (1 − n u),   u = 2⁻²⁴

where n is D + 8 of BLAS, which sums in any order (of more than 1,024 columns, which it sums in
slices, the columns and the number of these), and of the matrix unit what its digits leave out,
some 40 of ordinary rows (`panels.roundings`). A smaller, statistical band, (2 √D + 8) u,
would not do: constant vectors meet the same rounding error at every addition, and leave it
(benchmarks/NOTES.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import ClassVar

import numpy as np

from streameval.choices import DISTANCES
from streameval.distances.sums import Vectors, block_sums, pair_sums
from streameval.errors import OptionError
from streameval.typing import FloatArray, Indices

_PART = 8192  # pairs finished at a time: their temporaries stay in cache


# Norms between which float32 rows can be multiplied as they are.
LEAST_FLOAT32, MOST_FLOAT32 = 1e-12, 1e12
# Products of norms below which products of elements may be subnormal in float64.
_SUBNORMAL = 1e-280


@dataclass(frozen=True)
class Filter:
    """Float32 values that ascend with a distance; of inner products, −q·g.

    Attributes
    ----------
    value : callable
        Returns what ascends evenly with filter values, for distances; FAISS has these values in
        place of distances.
    distance : callable
        Returns the distances that values of FAISS stand for.
    normalised : bool
        Whether norms cancel: values are not scaled, one band serves all gallery rows, and FAISS
        takes vectors of length 1.
    squared : bool
        Whether values are of squared differences; else of inner products.
    lost : float
        What is lost where numbers fall below the smallest normal float32, 1e-38 each.
    least : float
        A bound that no distance is below.
    """

    value: Callable[[FloatArray], FloatArray] = lambda distance: distance
    distance: Callable[[FloatArray], FloatArray] = lambda value: value
    normalised: ClassVar[bool] = False
    squared: ClassVar[bool] = False
    lost: ClassVar[float] = 1e-24
    least: ClassVar[float] = -math.inf

    def factor(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return what each query's row is multiplied by before the product, [m]: −s, or −2 s."""
        return np.full(len(norms), -2.0 * scale if self.squared else -scale)

    def weight(self, norms: FloatArray) -> FloatArray:
        """Return what each column is multiplied by, [n]; of the norms of the rows multiplied."""
        return np.ones(len(norms))

    def squares(self, norms: FloatArray) -> FloatArray:
        """Return what is added to each column by s, [n]; and, of queries, taken from `value`."""
        return np.zeros(len(norms))

    def magnitudes(self, norms: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Return bounds on products and on values for queries of these norms, each [m].

        Parameters
        ----------
        norms : [m] float64
        largest : float
            The greatest norm of the gallery rows.
        """
        return norms * largest, norms * largest

    def fits(self, longest: float, norms: FloatArray, factor: float, scale: float) -> bool:
        """Tell whether float32 can hold the values: products of elements are ordinary numbers.

        Parameters
        ----------
        longest : float
            The greatest norm of the queries.
        norms : [n] float64
            Of the gallery rows.
        factor : float
            The power of two in the gallery rows that are multiplied.
        scale : float
            s of the module's overview.
        """
        largest = float(norms.max(initial=0.0))
        return largest * max(largest, longest) > _SUBNORMAL

    def band(
        self,
        gamma: float | FloatArray,
        width: int,
        norms: FloatArray,
        largest: float,
        scale: float,
    ) -> FloatArray:
        """Return how far filter values may be from the distances of queries, [m] float64.

        Beside the part of the filter: the float64 roundings of the canonical distance (sums of
        D / 32 terms in each of 32 lanes, and of the lanes, for a product and two norms) and of
        its conversion to a filter value; and what is lost to small numbers.
        """
        if np.isinf(gamma).any():
            return np.full(len(norms), np.inf)
        size, reach = self.magnitudes(norms, largest)
        rounded = (width / 8 + 40) * 2.0**-53 * (reach * scale)
        return gamma * (size * scale) + rounded + self.lost

    def faiss_error(self, gamma: float, norms: FloatArray, longest: float) -> FloatArray:
        """Return a bound on the error of FAISS's values, [m] float64.

        Parameters
        ----------
        gamma : float
            Relative error of a float32 sum of products.
        norms : [m] float64
            Of the queries.
        longest : float
            Norm of the longest gallery vector.
        """
        return gamma * self.magnitudes(norms, longest)[1]


class SquaredFilter(Filter):
    """The filter of squared differences: |g|² − 2 q·g."""

    squared, least = True, 0.0

    def squares(self, norms: FloatArray) -> FloatArray:
        """Return |q|², or |g|²."""
        return norms * norms

    def magnitudes(self, norms: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Return bounds on |g|² − 2 q·g and on (|q| + |g|)²."""
        return (2.0 * norms + largest) * largest, (norms + largest) ** 2

    def fits(self, longest: float, norms: FloatArray, factor: float, scale: float) -> bool:
        """Tell whether s |g|² fits, too, and stays well above the smallest float32."""
        most = max(float(norms.max(initial=0.0)), longest)
        return super().fits(longest, norms, factor, scale) and 1e-20 < most**2 * scale < 1e30


class NormalisedFilter(Filter):
    """The filter of inner products of vectors of length 1: −q̂·ĝ."""

    normalised, least = True, 0.0
    lost = 1e-20  # with norms of 1e-12

    def factor(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return −1 / |q|."""
        return -1.0 / norms

    def weight(self, norms: FloatArray) -> FloatArray:
        """Return 1 / |ĝ|."""
        return 1.0 / norms

    def magnitudes(self, norms: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Return 1, twice."""
        return np.ones(len(norms)), np.ones(len(norms))

    def fits(self, longest: float, norms: FloatArray, factor: float, scale: float) -> bool:
        """Tell whether no weight is too large."""
        return float(norms.min(initial=np.inf)) * factor > LEAST_FLOAT32


@dataclass(frozen=True)
class Distance:
    """A distance of vectors: smaller is closer.

    Attributes
    ----------
    name : str
    term : int
        What is summed over the elements of two rows: see `sums`.
    finish : callable
        Returns distances from the sums of pairs and the norms of their rows: query, item.
    bounds : (float, float), optional
        Least and greatest distance of any two vectors.
    unit_bounds : (float, float), optional
        Least and greatest distance of any two vectors of length 1.
    uses_lengths : bool
        Whether scaling single vectors changes the ranking; else zero vectors have no distance.
    filter : Filter, optional
        What float32 products tell of distances; without one every distance is computed.
    faiss : str, optional
        FAISS's metric whose values are those of the filter: ``METRIC_L2``. Without one, FAISS has
        no equivalent.
    """

    name: str
    term: int
    finish: Callable[[FloatArray, FloatArray | float, FloatArray], FloatArray]
    bounds: tuple[float, float] | None = None
    unit_bounds: tuple[float, float] | None = None
    uses_lengths: bool = True
    filter: Filter | None = None
    faiss: str | None = None

    def pairs(self, queries: Vectors, items: Vectors, query: Indices, item: Indices) -> FloatArray:
        """Return the canonical distances of listed pairs, [p] float64.

        Parameters
        ----------
        queries, items : Vectors
            Of one dtype.
        query, item : [p] integers
            Pair t is row ``query[t]`` of the queries with row ``item[t]`` of the items.
        """
        out = np.empty(len(query))
        pair_sums(self.term, queries.rows, items.rows, query, item, out)
        for start in range(0, len(out), _PART):
            part = slice(start, start + _PART)
            norms = queries.norms[query[part]], items.norms[item[part]]
            out[part] = self.finish(out[part], *norms)
        return out

    def block(self, queries: Vectors, items: Vectors, out: FloatArray | None = None) -> FloatArray:
        """Return the canonical distances of all queries with all items, [m, n] float64."""
        if out is None:
            out = np.empty((len(queries.norms), len(items.norms)))
        block_sums(self.term, queries.rows, items.rows, out)
        for row, norm in zip(out, queries.norms.tolist(), strict=True):
            row[:] = self.finish(row, norm, items.norms)
        return out


@cache
def find_distance(name: str) -> Distance:
    """Return the distance of a name."""
    if name not in DISTANCES:
        raise OptionError(f"unknown metric {name!r}; known metrics: {', '.join(DISTANCES)}")
    distance: Distance = import_module(f"streameval.distances.{name}").DISTANCE
    return distance
