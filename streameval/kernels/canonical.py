"""The canonical distance of a pair: float64 arithmetic in one fixed order.

Element d of the vectors goes to lane ``d % 32``; each lane is summed in ascending d; the lanes
are summed in halves (lane i with lane i + 16, then + 8, 4, 2, 1). The order is part of the
promise: the same pair has the same bits in any tile, on any machine. `lanes` has the sums.

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

from streameval.kernels.lanes import inner_product, squared_difference

Metric = Literal["cosine", "euclidean", "sqeuclidean", "dot"]

COSINE, EUCLIDEAN, SQEUCLIDEAN, DOT = 0, 1, 2, 3
METRIC_CODES: Mapping[str, int] = {
    "cosine": COSINE,
    "euclidean": EUCLIDEAN,
    "sqeuclidean": SQEUCLIDEAN,
    "dot": DOT,
}

FloatMatrix = npt.NDArray[np.floating]


@numba.njit(nogil=True, cache=True, inline="always")
def distance(metric, a, i, b, k, norm_a, norm_b):  # type: ignore[no-untyped-def]
    """Return the canonical distance of rows a[i] and b[k] with the given norms.

    Whole matrices and row numbers, no slices: each slice would count references, one at a time
    across all threads.
    """
    if metric == COSINE:
        value = 1.0 - inner_product(a, i, b, k) / (norm_a * norm_b)
        return min(max(value, 0.0), 2.0)
    if metric == DOT:
        return -inner_product(a, i, b, k)
    squared = squared_difference(a, i, b, k)
    if metric == EUCLIDEAN:
        return math.sqrt(squared)
    return squared


@numba.njit(nogil=True, cache=True)
def distances_of(metric, a, norms_a, b, norms_b, i, k, order, out):  # type: ignore[no-untyped-def]
    """Write the canonical distances of listed pairs, in the order given.

    Parameters
    ----------
    metric : int
    a, b : [m, D], [n, D] float32 or float64
    norms_a, norms_b : [m], [n] float64
    i, k : [p] integers
        Pair t is a[i[t]] with b[k[t]].
    order : [p] integers
    out : [p] float64, written
    """
    for t in order:
        out[t] = distance(metric, a, i[t], b, k[t], norms_a[i[t]], norms_b[k[t]])


@numba.njit(nogil=True, cache=True)
def _norms(rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = math.sqrt(inner_product(rows, i, rows, i))


def row_norms(rows: FloatMatrix) -> npt.NDArray[np.float64]:
    """Return the Euclidean norm of each row, [n] float64; not finite where the row is not."""
    out = np.empty(len(rows))
    _norms(rows, out)
    return out


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
    code, order = METRIC_CODES[metric], np.arange(len(query))
    norms, others = row_norms(queries), row_norms(rows)
    distances_of(code, queries, norms, rows, others, query, row, order, out)
    return out
