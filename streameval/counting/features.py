"""Counting in tiles of features: BLAS as a filter, the canonical distance where it matters.

A tile's values are *filter values*: float32, ascending with the distance,

    cosine                   −q̂·ĝ                    = distance − 1
    dot                      −s q·g                   = s distance
    euclidean, sqeuclidean   s (|g|² − 2 q·g)         = s (distance² − |q|²)

with s a power of two that keeps float32 in range. They differ from the canonical distance by
at most the guard band. The bound is the classical one for an inner product of width D summed
in any order (Higham, Accuracy and Stability of Numerical Algorithms, §3.1), with eight more
roundings for scaling, normalising and adding the offset:

    |filter − canonical| ≤ γ · |q| |g|,   γ = n u / (1 − n u),  n = D + 8,  u = 2⁻²⁴

A smaller, statistical band, (2 √D + 8) u, would not do: constant vectors meet the same rounding
error at every addition, and leave it (benchmarks/NOTES.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from streameval.counting.canonical import (
    COSINE,
    DOT,
    EUCLIDEAN,
    LANES,
    METRIC_CODES,
    FloatMatrix,
    Metric,
    distance,
)
from streameval.counting.edges import Edges
from streameval.counting.prefetch import prefetch_row
from streameval.counting.rows import (
    BLOCK,
    CELLS,
    any_up_to,
    bin_row,
    cell_of,
    fold,
    lay_grid,
    place,
)

AHEAD = 4  # doubtful pairs whose gallery rows are asked for in advance

Float32Matrix = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def band_factor(width: int) -> float:
    """Return γ of the guard band for vectors of this width."""
    roundings = (width + 8) * 2.0**-24
    return math.inf if roundings >= 0.5 else roundings / (1 - roundings)


@numba.njit(nogil=True, cache=True)
def _to_float32(rows, factor, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        scale = factor[i]
        for d in range(rows.shape[1]):
            out[i, d] = np.float32(np.float64(rows[i, d]) * scale)


def _power_of_two_below(value: float) -> float:
    """Return the power of two that brings a positive value into [1, 2)."""
    return 2.0 ** -math.floor(math.log2(value)) if 1e-300 < value < 1e300 else 1.0


@dataclass(frozen=True, eq=False)
class Operand:
    """One side of the GEMM: rows of features and what the filter made of them.

    Attributes
    ----------
    rows : [n, D] float32 or float64
        As stored.
    norms : [n] float64
        Canonical norms.
    filter : [n, D] float32
        Scaled rows; of the queries −q̂, −s q or −2 s q.
    scale : float
        The power of two in `filter`; 1 for cosine.
    """

    rows: FloatMatrix
    norms: FloatArray
    filter: Float32Matrix
    scale: float

    def block(self, start: int, stop: int) -> Operand:
        """Return the operand of some of the rows."""
        return Operand(
            self.rows[start:stop], self.norms[start:stop], self.filter[start:stop], self.scale
        )


def prepare(
    rows: FloatMatrix,
    norms: FloatArray,
    metric: Metric,
    *,
    queries: bool,
    out: Float32Matrix | None = None,
) -> Operand:
    """Prepare one side of the GEMM.

    Parameters
    ----------
    rows : [n, D] float32 or float64
        Finite; under cosine, no row is zero.
    norms : [n] float64
        Their canonical norms.
    metric : {"cosine", "euclidean", "sqeuclidean", "dot"}
    queries : bool
        Which side: the queries carry the sign and the factor 2.
    out : [>= n, D] float32, optional
        Where to put the scaled rows.
    """
    if metric == "cosine":
        scale, factor = 1.0, 1.0 / norms
    else:
        scale = _power_of_two_below(float(norms.max(initial=0.0)))
        factor = np.full(len(rows), scale)
    if queries:
        factor *= -1.0 if metric in ("cosine", "dot") else -2.0
    scaled = np.empty(rows.shape, np.float32) if out is None else out[: len(rows)]
    _to_float32(rows, factor, scaled)
    return Operand(rows, norms, scaled, scale)


@dataclass(frozen=True, eq=False)
class Filter:
    """What filter values of a gallery block mean: their offset, scale and error.

    Attributes
    ----------
    metric : int
        Code of the metric.
    scale : float
        s of the module's overview; 1 for cosine.
    largest : float
        The greatest norm of the gallery block.
    gamma : float
        γ of the guard band; +inf where float32 cannot hold the values, and every value is
        decided canonically.
    """

    metric: int
    scale: float
    largest: float
    gamma: float

    @classmethod
    def of(cls, metric: Metric, queries: Operand, gallery: Operand) -> Filter:
        """Describe the filter values of all `queries` with one gallery block."""
        largest = float(gallery.norms.max(initial=0.0))
        gamma = band_factor(gallery.rows.shape[1])
        scale = queries.scale * gallery.scale
        if metric in ("euclidean", "sqeuclidean"):
            # |g|² s must fit, and stay well above the smallest float32.
            magnitude = max(largest, float(queries.norms.max(initial=0.0))) ** 2 * scale
            if not 1e-20 < magnitude < 1e20:
                gamma = math.inf
        return cls(METRIC_CODES[metric], scale, largest, gamma)

    @property
    def usable(self) -> bool:
        """Whether float32 can hold the values."""
        return math.isfinite(self.gamma)

    def offset(self, norms: FloatArray) -> npt.NDArray[np.float32]:
        """Return what is added to each column of the tile, [n] float32: s |g|², or 0."""
        if self.metric in (COSINE, DOT) or not self.usable:
            return np.zeros(len(norms), np.float32)
        return (norms * norms * self.scale).astype(np.float32)


@numba.njit(nogil=True, cache=True)
def _filter_value(metric, value, norm, scale):  # type: ignore[no-untyped-def]
    """Return the filter value that a distance corresponds to."""
    if metric == COSINE:
        return value - 1.0
    if metric == DOT:
        return value * scale
    if value < 0.0:
        return -np.inf
    if metric == EUCLIDEAN:
        return (value * value - norm * norm) * scale
    return (value - norm * norm) * scale


@numba.njit(nogil=True, cache=True)
def _band(metric, width, norm, largest, scale, gamma):  # type: ignore[no-untyped-def]
    """Return the guard band of a query: the float32 part, and the float64 roundings.

    The float64 part covers the canonical distance itself and its conversion to a filter
    value; 1e-30 covers products that fall below the smallest float32.
    """
    if gamma == np.inf:
        return np.inf
    if metric == COSINE:
        size, reach = 1.0, 1.0
    elif metric == DOT:
        size = norm * largest * scale
        reach = size
    else:
        size = (2.0 * norm + largest) * largest * scale
        reach = (norm + largest) ** 2 * scale
    return gamma * size + (width + 16) * 2.0**-51 * reach + 1e-30


def guard_band(filter_: Filter, norm: float, width: int) -> float:
    """Return how far a query's filter values may be from its canonical distances.

    Parameters
    ----------
    filter_ : Filter
    norm : float
        Norm of the query.
    width : int
        D.
    """
    band: float = _band(filter_.metric, width, norm, filter_.largest, filter_.scale, filter_.gamma)
    return band


@numba.njit(nogil=True, cache=True)
def _count(  # type: ignore[no-untyped-def]
    tile,
    offset,
    offset_row,
    item,
    metric,
    scale,
    largest,
    gamma,
    queries,
    query_norms,
    rows,
    norms,
    edge_indptr,
    edges,
    pitch,
    positive_indptr,
    positives,
    items,
    slots,
    tied_before,
    nearest,
):
    histogram = np.zeros(CELLS, np.uint32)
    cells = np.empty(BLOCK, np.uint16)
    is_touched = np.empty(CELLS, np.uint8)
    first_edge = np.empty(CELLS, np.int32)
    touched = np.empty(tile.shape[1] + 1, np.int32)
    edge = np.empty(tile.shape[1], np.int32)
    lanes = np.empty(LANES)
    most = 0
    for i in range(tile.shape[0]):
        most = max(most, edge_indptr[i + 1] - edge_indptr[i])
    level = np.empty(most)
    gap_begin, gap_end = np.empty(most + 1, np.int32), np.empty(most + 1, np.int32)
    even = 0.0 if metric == EUCLIDEAN else pitch * scale
    recomputed = 0
    for i in range(tile.shape[0]):
        values, add = tile[i], offset[offset_row[i]]
        own = edges[edge_indptr[i] : edge_indptr[i + 1]]
        m = len(own)
        norm = query_norms[i]
        band = _band(metric, rows.shape[1], norm, largest, scale, gamma)
        reach = _filter_value(metric, nearest[i], norm, scale) + band
        nearer = True
        if m > 0:
            for e in range(m):
                level[e] = _filter_value(metric, own[e], norm, scale)
            first_slot = 2 * edge_indptr[i] + i
            own_slots = slots[first_slot : first_slot + 2 * m + 1]
            p, q = positive_indptr[i], positive_indptr[i + 1]
            origin, cell_scale, top = lay_grid(
                level[:m], band, even, values, first_edge, is_touched, gap_begin, gap_end
            )
            found = bin_row(
                values, add, origin, cell_scale, top, is_touched, histogram, cells, touched
            )
            doubtful = 0
            for t in range(found):
                k = touched[t]
                value = values[k] + add[k]
                if value == np.inf:
                    continue
                e = first_edge[cell_of(value, origin, cell_scale, top)]
                e += level[e] + band < value  # either way as likely: no branch
                while e < m and level[e] + band < value:
                    e += 1
                if e == m or value < level[e] - band:
                    own_slots[2 * e] += 1
                else:
                    touched[doubtful] = k
                    edge[doubtful] = e
                    doubtful += 1
            recomputed += doubtful
            for t in range(min(AHEAD, doubtful)):
                prefetch_row(rows, touched[t])
            for t in range(doubtful):
                k = touched[t]
                if t + AHEAD < doubtful:
                    prefetch_row(rows, touched[t + AHEAD])
                place(
                    distance(metric, queries[i], rows[k], norm, norms[k], lanes),
                    item[k],
                    edge[t],
                    own,
                    own_slots,
                    positives,
                    items,
                    p,
                    q,
                    tied_before,
                )
            reach_cell = cell_of(values.dtype.type(reach), origin, cell_scale, top)
            nearer = any_up_to(histogram, reach_cell)
            fold(histogram, gap_begin, gap_end, own_slots)
        if not nearer:
            continue
        # The nearest negative: all that may be it, or nearer than what is known.
        least = np.float64(np.inf)
        for k in range(len(values)):
            least = min(least, np.float64(values[k] + add[k]))
        reach = min(reach, least + 2.0 * band)
        if least > reach or least == np.inf:
            continue
        for k in range(len(values)):
            value = values[k] + add[k]
            if value <= reach and value != np.inf:
                recomputed += 1
                nearest[i] = min(
                    nearest[i], distance(metric, queries[i], rows[k], norm, norms[k], lanes)
                )
    return recomputed


def count_features(
    tile: Float32Matrix,
    offset: Float32Matrix,
    offset_row: IntArray,
    item: IntArray,
    filter_: Filter,
    queries: Operand,
    gallery: Operand,
    edges: Edges,
    slots: IntArray,
    tied_before: IntArray,
    nearest: FloatArray,
) -> int:
    """Count a tile of filter values.

    Parameters
    ----------
    tile : [m, n] float32
        Filter values without their offset; +inf where the pair is not a negative.
    offset : [b, n] float32
        Added to each row: `Filter.offset`, +inf for items that take no part.
    offset_row : [m] int64
        The row of `offset` for each query.
    item : [n] int64
        Gallery index of each column.
    filter_ : Filter
    queries, gallery : Operand
        Of the m queries and n gallery items.
    edges : Edges
        Of these m queries.
    slots : [2E + m] int64, added to
    tied_before : [P] int64, added to
    nearest : [m] float64, lowered to the nearest negative

    Returns
    -------
    int
        How many pairs were decided by their canonical distance.
    """
    if not tile.size:
        return 0
    recomputed: int = _count(
        tile,
        offset,
        offset_row,
        item,
        filter_.metric,
        filter_.scale,
        filter_.largest,
        filter_.gamma,
        queries.rows,
        queries.norms,
        gallery.rows,
        gallery.norms,
        edges.indptr,
        edges.distance,
        edges.pitch,
        edges.positive_indptr,
        edges.positive_distance,
        edges.positive_item,
        slots,
        tied_before,
        nearest,
    )
    return recomputed


@numba.njit(nogil=True, cache=True)
def _extremes(  # type: ignore[no-untyped-def]
    tile,
    offset,
    offset_row,
    metric,
    scale,
    largest,
    gamma,
    queries,
    query_norms,
    rows,
    norms,
    least,
    most,
):
    lanes = np.empty(LANES)
    for i in range(tile.shape[0]):
        values, add = tile[i], offset[offset_row[i]]
        norm = query_norms[i]
        band = _band(metric, rows.shape[1], norm, largest, scale, gamma)
        for k in range(len(values)):
            value = values[k] + add[k]
            if value == np.inf:
                continue
            if (
                value <= _filter_value(metric, least, norm, scale) + band
                or value >= _filter_value(metric, most, norm, scale) - band
            ):
                exact = distance(metric, queries[i], rows[k], norm, norms[k], lanes)
                least = min(least, exact)
                most = max(most, exact)
    return least, most


def feature_extremes(
    tile: Float32Matrix,
    offset: Float32Matrix,
    offset_row: IntArray,
    filter_: Filter,
    queries: Operand,
    gallery: Operand,
    known: tuple[float, float],
) -> tuple[float, float]:
    """Return the least and greatest canonical distance of a tile and what is known already.

    Parameters
    ----------
    tile, offset, offset_row, filter_, queries, gallery
        As in `count_features`, with +inf for ignored pairs only.
    known : (float, float)
        Least and greatest so far; (inf, −inf) at first.
    """
    if not tile.size:
        return known
    least, most = _extremes(
        tile,
        offset,
        offset_row,
        filter_.metric,
        filter_.scale,
        filter_.largest,
        filter_.gamma,
        queries.rows,
        queries.norms,
        gallery.rows,
        gallery.norms,
        known[0],
        known[1],
    )
    return float(least), float(most)
