"""Sums of rows in float64, in one fixed order, and powers whose bits no processor changes."""

from __future__ import annotations

import math

import numpy as np

from streameval.compilation import compiled
from streameval.distances.sums import Vectors
from streameval.typing import FloatArray, Indices


class RowSums:
    """Rows in the making, in float64: each begins as a row of features, and takes others up.

    Parameters
    ----------
    vectors : Vectors
        [m, D]: what the rows begin as.
    normalised : bool
        Whether rows are divided by their norms first.

    Attributes
    ----------
    values : [m, D] float64
    """

    def __init__(self, vectors: Vectors, *, normalised: bool) -> None:
        self._normalised = normalised
        self.values: FloatArray = np.empty(vectors.rows.shape)
        _begin(vectors.rows, self._divisors(vectors), self.values)

    def _divisors(self, vectors: Vectors) -> FloatArray:
        return vectors.norms if self._normalised else np.ones(len(vectors.norms))

    def add(self, vectors: Vectors, into: Indices, row: Indices, weight: FloatArray) -> None:
        """Add rows times a weight, one after the other.

        Parameters
        ----------
        vectors : Vectors
        into, row : [p] integers
            Which of these rows is changed, and which of the vectors is added.
        weight : [p] float64
        """
        _add(vectors.rows, self._divisors(vectors), into, row, weight, self.values)

    def raise_to(self, vectors: Vectors, into: Indices, row: Indices) -> None:
        """Replace elements by those of other rows where these are greater; see `add`."""
        _raise(vectors.rows, self._divisors(vectors), into, row, self.values)


def powers(values: FloatArray, exponent: float) -> FloatArray:
    """Return max(x, 0) to a power, [n] float64; 0 to the power of 0 is 1.

    A whole exponent is multiplied by squaring. The binary digits of a fraction stand for roots:
    x^0.75 = √x · √√x. Products and square roots are correctly rounded, so that the result has the
    same bits on any processor; its relative error is below 1e-13.

    Parameters
    ----------
    values : [n] float64
    exponent : float
        At least 0.
    """
    out = np.empty_like(values)
    _powers(values, exponent, out)
    return out


@compiled
def _begin(rows, divisor, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[i, d] = np.float64(rows[i, d]) / divisor[i]


@compiled
def _add(rows, divisor, into, row, weight, out):  # type: ignore[no-untyped-def]
    for t in range(len(into)):
        i, r = into[t], row[t]
        for d in range(rows.shape[1]):
            out[i, d] += weight[t] * (np.float64(rows[r, d]) / divisor[r])


@compiled
def _raise(rows, divisor, into, row, out):  # type: ignore[no-untyped-def]
    for t in range(len(into)):
        i, r = into[t], row[t]
        for d in range(rows.shape[1]):
            out[i, d] = max(out[i, d], np.float64(rows[r, d]) / divisor[r])


@compiled
def _powers(values, exponent, out):  # type: ignore[no-untyped-def]
    whole = math.floor(exponent)
    for t in range(len(values)):
        base, left, result = max(values[t], 0.0), whole, 1.0
        square = base
        while left > 0:
            if left % 2:
                result *= square
            left //= 2
            if left > 0:
                square *= square
        root, fraction = base, exponent - whole
        while fraction > 0.0:
            root, fraction = math.sqrt(root), 2.0 * fraction
            if fraction >= 1.0:
                result, fraction = result * root, fraction - 1.0
        out[t] = result
