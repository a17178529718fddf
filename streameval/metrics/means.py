"""Sums and means that do not depend on the order of their terms."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from streameval.statistics import FloatArray

# Every float64 is a whole multiple of 2**-1074.
_UNIT = 1 << 1074


def mean(values: FloatArray) -> float:
    """Return the exactly rounded sum of [n] float64, divided by n; NaN where n is 0."""
    return math.fsum(values.tolist()) / len(values) if len(values) else math.nan


def prefix_sums(values: FloatArray) -> FloatArray:
    """Return the exactly rounded sums of the first 0, 1, .. n of [n] float64, [n + 1] float64.

    Each equals ``math.fsum(values[:k])``, whatever the order of those k.
    """
    units = (top * (_UNIT // bottom) for top, bottom in map(float.as_integer_ratio, values))
    return np.array([total / _UNIT for total in accumulate(units, initial=0)])


def trapezoid(y: FloatArray, x: FloatArray) -> float:
    """Return the exactly rounded sum of ``(x[t+1] - x[t]) * (y[t] + y[t+1]) / 2``."""
    return math.fsum((np.diff(x) * (y[:-1] + y[1:]) / 2).tolist())
