"""Filters: what float32 products of rows tell of their distances, and how far they may be off.

A filter value is the product of a query's row and a gallery row, times the `weight` and plus the
`offset` of the gallery row's column. It ascends with the distance:

    cosine                   −q̂·ĝ                    = distance − 1
    dot                      −s q·g                   = s distance
    euclidean, sqeuclidean   s (|g|² − 2 q·g)         = s (distance² − |q|²)

with s a power of two that keeps float32 in range. In general it is s (`base` of the distance −
`shift` of the query's norm). It differs from that by at most the guard band. The bound is the
classical one for an inner product (Higham, Accuracy and Stability of Numerical Algorithms, §3.1),
with eight more roundings for scaling, normalising, weight and offset:

    |filter value − canonical| ≤ γ · |q| |g|,   γ = n u / (1 − n u),   u = 2⁻²⁴

where n is D + 8 of BLAS, which sums in any order, and of the matrix unit what its digits leave
out, some 40 of ordinary rows (`panels.roundings`). A smaller, statistical band, (2 √D + 8) u,
would not do: constant vectors meet the same rounding error at every addition, and leave it
(benchmarks/NOTES.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from streameval.distances.sums import FloatArray

# Norms between which float32 rows can be multiplied as they are.
LEAST_FLOAT32, MOST_FLOAT32 = 1e-12, 1e12
# Products of norms below which products of elements may be subnormal in float64.
_SUBNORMAL = 1e-280


class Filter(ABC):
    """Float32 values that ascend with a distance.

    Attributes
    ----------
    normalised : bool
        Whether norms cancel: values are not scaled, and one band serves all gallery rows.
    lost : float
        What is lost where numbers fall below the smallest normal float32, 1e-38 each.
    """

    normalised: ClassVar[bool] = False
    lost: ClassVar[float] = 1e-24

    @abstractmethod
    def factor(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return what each query's row is multiplied by before the product, [m]."""

    def weight(self, norms: FloatArray) -> FloatArray:
        """Return what each column is multiplied by, [n]; of the norms of the rows multiplied."""
        return np.ones(len(norms))

    def offset(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return what is added to each column, [n]."""
        return np.zeros(len(norms))

    def base(self, distance: FloatArray) -> FloatArray:
        """Return what ascends evenly with filter values, for distances."""
        return distance

    @abstractmethod
    def shift(self, norms: FloatArray) -> FloatArray:
        """Return what is subtracted from the base for queries of these norms, [m]."""

    @abstractmethod
    def magnitudes(self, norms: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Return bounds on products and on values for queries of these norms, each [m].

        Parameters
        ----------
        norms : [m] float64
        largest : float
            The greatest norm of the gallery rows.
        """

    @abstractmethod
    def fits(self, longest: float, norms: FloatArray, factor: float, scale: float) -> bool:
        """Tell whether float32 can hold the values.

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

    def band(
        self, gamma: float, width: int, norms: FloatArray, largest: float, scale: float
    ) -> FloatArray:
        """Return how far filter values may be from the distances of queries, [m] float64.

        Beside the part of the filter: the float64 roundings of the canonical distance (sums of
        D / 32 terms in each of 32 lanes, and of the lanes, for a product and two norms) and of
        its conversion to a filter value; and what is lost to small numbers.
        """
        if math.isinf(gamma):
            return np.full(len(norms), np.inf)
        size, reach = self.magnitudes(norms, largest)
        rounded = (width / 8 + 40) * 2.0**-53 * (reach * scale)
        return gamma * (size * scale) + rounded + self.lost


class SquaredFilter(Filter):
    """The filter of squared differences: |g|² − 2 q·g."""

    def factor(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return −2 s."""
        return np.full(len(norms), -2.0 * scale)

    def offset(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return s |g|²."""
        return norms * norms * scale

    def base(self, distance: FloatArray) -> FloatArray:
        """Return squared distances; none is negative."""
        return np.where(distance < 0.0, -np.inf, distance)

    def shift(self, norms: FloatArray) -> FloatArray:
        """Return |q|²."""
        return norms * norms

    def magnitudes(self, norms: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Return bounds on |g|² − 2 q·g and on (|q| + |g|)²."""
        return (2.0 * norms + largest) * largest, (norms + largest) ** 2

    def fits(self, longest: float, norms: FloatArray, factor: float, scale: float) -> bool:
        """Tell whether s |g|² fits, and stays well above the smallest float32."""
        largest = float(norms.max(initial=0.0))
        if not largest * max(largest, longest) > _SUBNORMAL:
            return False  # the canonical distance itself loses digits
        return 1e-20 < max(largest, longest) ** 2 * scale < 1e30


class ProductFilter(Filter):
    """The filter of inner products: −q·g."""

    def factor(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return −s."""
        return np.full(len(norms), -scale)

    def shift(self, norms: FloatArray) -> FloatArray:
        """Return 0."""
        return np.zeros(len(norms))

    def magnitudes(self, norms: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Return |q| |g|, twice."""
        return norms * largest, norms * largest

    def fits(self, longest: float, norms: FloatArray, factor: float, scale: float) -> bool:
        """Tell whether products of elements are ordinary numbers in float64."""
        largest = float(norms.max(initial=0.0))
        return largest * max(largest, longest) > _SUBNORMAL


class NormalisedFilter(Filter):
    """The filter of inner products of vectors of length 1: −q̂·ĝ."""

    normalised = True
    lost = 1e-20  # with norms of 1e-12

    def factor(self, norms: FloatArray, scale: float) -> FloatArray:
        """Return −1 / |q|."""
        return -1.0 / norms

    def weight(self, norms: FloatArray) -> FloatArray:
        """Return 1 / |ĝ|."""
        return 1.0 / norms

    def shift(self, norms: FloatArray) -> FloatArray:
        """Return 1: the distance is 1 − q̂·ĝ."""
        return np.ones(len(norms))

    def magnitudes(self, norms: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Return 1, twice."""
        return np.ones(len(norms)), np.ones(len(norms))

    def fits(self, longest: float, norms: FloatArray, factor: float, scale: float) -> bool:
        """Tell whether no weight is too large."""
        return float(norms.min(initial=np.inf)) * factor > LEAST_FLOAT32
