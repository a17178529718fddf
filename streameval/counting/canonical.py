"""The canonical distance of a pair: float64 arithmetic in one fixed order.

Element d of the vectors goes to lane ``d % 32``; each lane is summed in ascending d; the lanes
are summed in halves (lane i with lane i + 16, then + 8, 4, 2, 1). The order is part of the
promise: the same pair has the same bits in any tile, on any machine. Lanes make the sum
vectorisable without leave to reorder it.

    cosine       1 − q·g / (|q| |g|), clipped to [0, 2]
    euclidean    sqrt(Σ (q − g)²)
    sqeuclidean  Σ (q − g)²
    dot          −q·g
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numba
import numpy as np
import numpy.typing as npt

Metric = Literal["cosine", "euclidean", "sqeuclidean", "dot"]

LANES = 32
COSINE, EUCLIDEAN, SQEUCLIDEAN, DOT = 0, 1, 2, 3
METRIC_CODES: Mapping[str, int] = {
    "cosine": COSINE,
    "euclidean": EUCLIDEAN,
    "sqeuclidean": SQEUCLIDEAN,
    "dot": DOT,
}

FloatMatrix = npt.NDArray[np.floating]


@numba.njit(nogil=True, cache=True)
def _fold(lanes):  # type: ignore[no-untyped-def]
    """Sum the lanes in halves."""
    half = LANES // 2
    while half > 0:
        for i in range(half):
            lanes[i] += lanes[i + half]
        half //= 2
    return lanes[0]


@numba.njit(nogil=True, cache=True)
def inner_product(a, b, lanes):  # type: ignore[no-untyped-def]
    """Return Σ a·b; `lanes` is scratch, [32] float64."""
    width = a.shape[0]
    whole = width - width % LANES
    for i in range(LANES):
        lanes[i] = 0.0
    for start in range(0, whole, LANES):
        for i in range(LANES):
            lanes[i] += np.float64(a[start + i]) * np.float64(b[start + i])
    for i in range(width - whole):
        lanes[i] += np.float64(a[whole + i]) * np.float64(b[whole + i])
    return _fold(lanes)


@numba.njit(nogil=True, cache=True)
def squared_difference(a, b, lanes):  # type: ignore[no-untyped-def]
    """Return Σ (a − b)²; `lanes` is scratch, [32] float64."""
    width = a.shape[0]
    whole = width - width % LANES
    for i in range(LANES):
        lanes[i] = 0.0
    for start in range(0, whole, LANES):
        for i in range(LANES):
            difference = np.float64(a[start + i]) - np.float64(b[start + i])
            lanes[i] += difference * difference
    for i in range(width - whole):
        difference = np.float64(a[whole + i]) - np.float64(b[whole + i])
        lanes[i] += difference * difference
    return _fold(lanes)


@numba.njit(nogil=True, cache=True)
def distance(metric, a, b, norm_a, norm_b, lanes):  # type: ignore[no-untyped-def]
    """Return the canonical distance of two vectors with the given norms."""
    if metric == COSINE:
        value = 1.0 - inner_product(a, b, lanes) / (norm_a * norm_b)
        return min(max(value, 0.0), 2.0)
    if metric == DOT:
        return -inner_product(a, b, lanes)
    squared = squared_difference(a, b, lanes)
    if metric == EUCLIDEAN:
        return math.sqrt(squared)
    return squared


@numba.njit(nogil=True, cache=True)
def _norms(rows, out):  # type: ignore[no-untyped-def]
    lanes = np.empty(LANES)
    for i in range(rows.shape[0]):
        out[i] = math.sqrt(inner_product(rows[i], rows[i], lanes))


def row_norms(rows: FloatMatrix) -> npt.NDArray[np.float64]:
    """Return the Euclidean norm of each row, [n] float64; not finite where the row is not."""
    out = np.empty(len(rows))
    _norms(rows, out)
    return out


@numba.njit(nogil=True, cache=True)
def _pair_distances(metric, queries, rows, query_norms, norms, query, row, out):  # type: ignore[no-untyped-def]
    lanes = np.empty(LANES)
    for p in range(len(query)):
        i, k = query[p], row[p]
        out[p] = distance(metric, queries[i], rows[k], query_norms[i], norms[k], lanes)


def pair_distances(
    metric: Metric,
    queries: FloatMatrix,
    rows: FloatMatrix,
    query: npt.NDArray[np.int64],
    row: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Return the canonical distances of listed pairs.

    Parameters
    ----------
    metric : {"cosine", "euclidean", "sqeuclidean", "dot"}
    queries : [m, D] float32 or float64
    rows : [n, D] of the same dtype
        Gallery rows.
    query, row : [p] int64
        Pair p is ``queries[query[p]]`` with ``rows[row[p]]``.

    Returns
    -------
    [p] float64
    """
    out = np.empty(len(query))
    _pair_distances(
        METRIC_CODES[metric], queries, rows, row_norms(queries), row_norms(rows), query, row, out
    )
    return out
