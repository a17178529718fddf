"""The filter: float32 products, what they mean, and how far off they may be.

A tile's values are *filter values*: float32, ascending with the distance,

    cosine                   −q̂·ĝ                    = distance − 1
    dot                      −s q·g                   = s distance
    euclidean, sqeuclidean   s (|g|² − 2 q·g)         = s (distance² − |q|²)

with s a power of two that keeps float32 in range. Each is the product of a query's row and a
gallery row, times the `weight` and plus the `offset` of its column, so that the gallery's rows
serve as they are read. Filter values differ from the canonical distance by at most the guard
band. The bound is the classical one for an inner product (Higham, Accuracy and Stability of
Numerical Algorithms, §3.1), with eight more roundings for scaling, normalising, weight and
offset:

    |filter − canonical| ≤ γ · |q| |g|,   γ = n u / (1 − n u),   u = 2⁻²⁴

where n is D + 8 of BLAS, which sums in any order, and of the matrix unit what its digits leave
out, some 40 of ordinary rows (`products.roundings`). A smaller, statistical band,
(2 √D + 8) u, would not do: constant vectors meet the same rounding error at every addition, and
leave it (benchmarks/NOTES.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from streameval.kernels.canonical import (
    COSINE,
    DOT,
    EUCLIDEAN,
    METRIC_CODES,
    FloatMatrix,
    Metric,
)
from streameval.kernels.products import (
    FEW_ROWS,
    NO_PANELS,
    Float32Matrix,
    Memory,
    Panels,
    gallery_panels,
    multiply,
    multiply_few,
    query_panels,
    roundings,
)

FloatArray = npt.NDArray[np.float64]

# Norms between which float32 rows can be multiplied as they are.
_LEAST, _MOST = 1e-12, 1e12
# Products of norms below which products of elements may be subnormal in float64.
_SUBNORMAL = 1e-280


class Operand(NamedTuple):
    """One side of the GEMM: rows of features, and what is multiplied in their place.

    Attributes
    ----------
    rows : [n, D] float32 or float64
        As stored.
    norms : [n] float64
        Canonical norms.
    filter : [n, D] float32
        The rows, scaled where they have to be; of the queries −q̂, −s q or −2 s q.
    scale : float
        The power of two in `filter`; 1 for the queries of cosine.
    panels : Panels
        Of `filter`, for the matrix unit; none where BLAS multiplies, nor of gallery rows before
        `packed`.
    """

    rows: FloatMatrix
    norms: FloatArray
    filter: Float32Matrix
    scale: float
    panels: Panels = NO_PANELS

    def block(self, start: int, stop: int) -> Operand:
        """Return the operand of some of the gallery's rows."""
        return Operand(
            self.rows[start:stop], self.norms[start:stop], self.filter[start:stop], self.scale
        )

    def packed(self, memory: Memory) -> Operand:
        """Return the operand of gallery rows with its panels, which are written to `memory`."""
        return self._replace(panels=gallery_panels(self.filter, memory))


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


def prepare_queries(rows: FloatMatrix, norms: FloatArray, metric: Metric) -> Operand:
    """Prepare the queries for the GEMM: they carry the sign, and the factor 2.

    Parameters
    ----------
    rows : [m, D] float32 or float64
        Finite; under cosine, no row is zero.
    norms : [m] float64
        Their canonical norms.
    metric : {"cosine", "euclidean", "sqeuclidean", "dot"}
    """
    if metric == "cosine":
        scale, factor = 1.0, -1.0 / norms
    else:
        scale = _power_of_two(float(norms.max(initial=0.0)))
        factor = np.full(len(rows), -scale if metric == "dot" else -2.0 * scale)
    left = _scaled(rows, factor)
    panels = NO_PANELS if len(rows) <= FEW_ROWS else query_panels(left)
    return Operand(rows, norms, left, scale, panels)


def prepare_gallery(rows: FloatMatrix, norms: FloatArray) -> Operand:
    """Prepare gallery rows for the GEMM; float32 rows of ordinary norms are used as they are.

    Parameters
    ----------
    rows : [n, D] float32 or float64
        Finite.
    norms : [n] float64
        Their canonical norms.
    """
    most = float(norms.max(initial=0.0))
    least = float(norms.min(initial=np.inf))
    if rows.dtype == np.float32 and least > _LEAST and most < _MOST:
        return Operand(rows, norms, rows.astype(np.float32, copy=False), 1.0)
    scale = _power_of_two(most)
    return Operand(rows, norms, _scaled(rows, np.full(len(rows), scale)), scale)


def write_products(
    queries: Operand, start: int, gallery: Operand, out: npt.NDArray[np.float32]
) -> None:
    """Write the products of some queries with gallery rows.

    Parameters
    ----------
    queries : Operand
    start : int
        The query that the first row of `out` belongs to.
    gallery : Operand
        Packed, where the queries are.
    out : [m, n] float32, written
        In C order.
    """
    if queries.panels.digits.size:
        multiply(queries.panels, start, gallery.panels, gallery.rows.shape[1], out)
    elif len(queries.filter) <= FEW_ROWS:
        multiply_few(queries.filter[start : start + len(out)], gallery.filter, out)
    else:
        np.matmul(queries.filter[start : start + len(out)], gallery.filter.T, out=out)


def group_by_norm(norms: FloatArray, metric: Metric) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Group gallery rows of like norms, so that one long row widens the band of few others.

    Parameters
    ----------
    norms : [n] float64
    metric : {"cosine", "euclidean", "sqeuclidean", "dot"}
        Under cosine the band does not depend on norms, and all rows are one group.

    Returns
    -------
    order : [n] int64
        Rows by group; within a group in their own order.
    cuts : list of int
        Where the groups begin in that order, and n.
    """
    n = len(norms)
    if metric == "cosine" or not n or norms.max() <= 8 * norms.min():
        return np.arange(n), [0, n]
    group = np.floor(np.log2(np.maximum(norms, norms.max() * 1e-12)) / 3)
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    return order, [0, *cuts.tolist(), n]


class Filter(NamedTuple):
    """What filter values of a gallery block mean, and how far off they may be.

    Attributes
    ----------
    metric : int
        Code of the metric.
    width : int
        D.
    scale : float
        s of the module's overview; 1 for cosine.
    largest : float
        The greatest norm of the gallery block.
    gamma : float
        γ of the guard band; +inf where float32 cannot hold the values, and every value is
        decided canonically.
    """

    metric: int
    width: int
    scale: float
    largest: float
    gamma: float

    @classmethod
    def of(cls, metric: Metric, queries: Operand, gallery: Operand) -> Filter:
        """Describe the filter values of all `queries` with one gallery block, as `packed`."""
        width = gallery.rows.shape[1]
        error = (roundings(width, queries.panels, gallery.panels) + 8) * 2.0**-24
        gamma = error / (1 - error) if error < 0.5 else math.inf
        largest = float(gallery.norms.max(initial=0.0))
        scale = queries.scale * gallery.scale
        longest = float(queries.norms.max(initial=0.0))
        if metric != "cosine" and not largest * max(largest, longest) > _SUBNORMAL:
            gamma, scale = math.inf, 1.0  # the canonical distance itself loses digits
        elif metric == "cosine":
            scale = 1.0
            least = float(gallery.norms.min(initial=np.inf)) * gallery.scale
            if not least > _LEAST:  # a weight would be too large
                gamma = math.inf
        elif metric != "dot":
            # |g|² s must fit, and stay well above the smallest float32.
            magnitude = max(largest, longest) ** 2 * scale
            if not 1e-20 < magnitude < 1e30:
                gamma = math.inf
        return cls(METRIC_CODES[metric], width, scale, largest, gamma)

    def in_float64(self) -> Filter:
        """Return what the same values mean, unscaled, where they are computed in float64."""
        error = (self.width + 8) * 2.0**-53
        return self._replace(scale=1.0, gamma=error / (1 - error))

    @property
    def usable(self) -> bool:
        """Whether float32 can hold the values."""
        return math.isfinite(self.gamma)

    def weight(self, gallery: Operand) -> Float32Matrix:
        """Return what each column of the tile is multiplied by, [n]: 1/|ĝ| under cosine, or 1."""
        if self.metric != COSINE or not self.usable:
            return np.ones(len(gallery.norms), np.float32)
        return (1.0 / (gallery.norms * gallery.scale)).astype(np.float32)

    def offset(self, gallery: Operand) -> Float32Matrix:
        """Return what is added to each column of the tile, [n]: s |g|² of euclidean, or 0."""
        if self.metric in (COSINE, DOT) or not self.usable:
            return np.zeros(len(gallery.norms), np.float32)
        return (gallery.norms * gallery.norms * self.scale).astype(np.float32)


@numba.njit(nogil=True, cache=True)
def filter_value(filter_, value, norm):  # type: ignore[no-untyped-def]
    """Return the filter value that a distance of a query with this norm corresponds to."""
    if filter_.metric == COSINE:
        return value - 1.0
    if filter_.metric == DOT:
        return value * filter_.scale
    if value < 0.0:
        return -np.inf
    if filter_.metric == EUCLIDEAN:
        return (value * value - norm * norm) * filter_.scale
    return (value - norm * norm) * filter_.scale


@numba.njit(nogil=True, cache=True)
def guard_band(filter_, norm):  # type: ignore[no-untyped-def]
    """Return how far filter values of a query with this norm may be from its distances.

    Beside the part of the filter: the float64 roundings of the canonical distance (sums of D / 32
    terms in each of 32 lanes, and of the lanes, for a product and two norms) and of its
    conversion to a filter value; and what is lost where numbers fall below the smallest normal
    float32, 1e-38 each: with norms of 1e-12 under cosine, less than 1e-20.
    """
    if filter_.gamma == np.inf:
        return np.inf
    scale, largest, lost = filter_.scale, filter_.largest, 1e-24
    if filter_.metric == COSINE:
        size, reach, lost = 1.0, 1.0, 1e-20
    elif filter_.metric == DOT:
        size = norm * largest * scale
        reach = size
    else:
        size = (2.0 * norm + largest) * largest * scale
        reach = (norm + largest) ** 2 * scale
    return filter_.gamma * size + (filter_.width / 8 + 40) * 2.0**-53 * reach + lost


@numba.njit(nogil=True, cache=True)
def even_levels(filter_, pitch, threshold, norm):  # type: ignore[no-untyped-def]
    """Return how far apart evenly spaced thresholds are as filter values, and one of these.

    (0, 0) where there are none, or where distances are even and filter values, their squares,
    are not.

    Parameters
    ----------
    filter_ : Filter
    pitch, threshold : float
        How far apart the distances are, and one of them.
    norm : float
        Of the query.
    """
    phase = filter_value(filter_, threshold, norm)
    if pitch <= 0.0 or filter_.metric == EUCLIDEAN or phase == -np.inf:
        return 0.0, 0.0
    return pitch * filter_.scale, phase
