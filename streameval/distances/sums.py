"""Canonical sums over pairs of rows: float64 arithmetic in one fixed order.

Element d of the vectors goes to lane ``d % 32``; each lane is summed in ascending d; the lanes
are summed in halves (lane i with lane i + 16, then + 8, 4, 2, 1). The order is part of the
promise: the same pair has the same bits in any tile, on any machine. A distance is one of these
sums, followed by a few operations on whole arrays, which round alike everywhere.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from streameval.distances.lane_sums import (
    absolute_difference,
    inner_product,
    squared_difference,
)

FloatMatrix = npt.NDArray[np.floating]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Indices = npt.NDArray[np.integer]

PRODUCT, SQUARED_DIFFERENCE, ABSOLUTE_DIFFERENCE = 0, 1, 2
L1_ELEMENTS = 1 << 12  # float64 that are used again while they are in L1


class Vectors(NamedTuple):
    """Rows of features and their norms.

    Attributes
    ----------
    rows : [n, D] float32 or float64
    norms : [n] float64
        Canonical Euclidean norms.
    """

    rows: FloatMatrix
    norms: FloatArray

    @classmethod
    def of(cls, rows: FloatMatrix) -> Vectors:
        """Return rows with their norms."""
        return cls(rows, row_norms(rows))

    def part(self, start: int, stop: int) -> Vectors:
        """Return some of the rows."""
        return Vectors(self.rows[start:stop], self.norms[start:stop])

    def chosen(self, index: npt.NDArray[Any]) -> Vectors:
        """Return a copy of chosen rows."""
        return Vectors(self.rows[index], self.norms[index])

    def take(self, index: IntArray) -> Vectors:
        """Return a copy of chosen rows, in float64: long sums are faster without conversion."""
        return Vectors(self.rows[index].astype(np.float64), self.norms[index])


@numba.njit(nogil=True, cache=True, inline="always")
def _sum(term, a, i, b, k):  # type: ignore[no-untyped-def]
    """Return the sum of a term over rows a[i] and b[k].

    Whole matrices and row numbers, no slices: each slice would count references, one at a time
    across all threads.
    """
    if term == PRODUCT:
        return inner_product(a, i, b, k)
    if term == SQUARED_DIFFERENCE:
        return squared_difference(a, i, b, k)
    return absolute_difference(a, i, b, k)


@numba.njit(nogil=True, cache=True)
def pair_sums(term, a, b, i, k, out):  # type: ignore[no-untyped-def]
    """Write the sums of listed pairs, column by column: each b[k] is fetched once.

    Parameters
    ----------
    term : int
        PRODUCT, SQUARED_DIFFERENCE or ABSOLUTE_DIFFERENCE.
    a, b : [m, D], [n, D] float32 or float64
    i, k : [p] integers
        Pair t is a[i[t]] with b[k[t]].
    out : [p] float64, written
    """
    start = np.zeros(b.shape[0] + 1, np.int64)
    for t in range(len(k)):
        start[k[t] + 1] += 1
    for column in range(b.shape[0]):
        start[column + 1] += start[column]
    order = np.empty(len(k), np.int32)
    for t in range(len(k)):
        order[start[k[t]]] = t
        start[k[t]] += 1
    for t in order:  # type: ignore[assignment]
        out[t] = _sum(term, a, i[t], b, k[t])


@numba.njit(nogil=True, cache=True)
def block_sums(term, a, b, out):  # type: ignore[no-untyped-def]
    """Write the sums of all rows of a with all rows of b, [m, n] float64."""
    block = max(L1_ELEMENTS // max(b.shape[1], 1), 1)
    for left in range(0, b.shape[0], block):
        for i in range(a.shape[0]):
            for k in range(left, min(left + block, b.shape[0])):
                out[i, k] = _sum(term, a, i, b, k)


@numba.njit(nogil=True, cache=True)
def _norms(rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = math.sqrt(inner_product(rows, i, rows, i))


def row_norms(rows: FloatMatrix) -> FloatArray:
    """Return the Euclidean norm of each row, [n] float64; not finite where the row is not."""
    out = np.empty(len(rows))
    _norms(rows, out)
    return out
