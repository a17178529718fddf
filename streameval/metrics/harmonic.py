"""Sums of 1/k over a span of k, accurate relative to themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.statistics import FloatArray, IntArray

_SMALL = 64
_HARMONIC = np.array(  # [low, high]: 1/(low+1) + .. + 1/high, each correctly rounded
    [
        [math.fsum(1 / k for k in range(low + 1, high + 1)) for high in range(_SMALL + 1)]
        for low in range(_SMALL + 1)
    ]
)


def harmonic_difference(low: IntArray, high: IntArray) -> FloatArray:
    """Return H_high − H_low = 1/(low+1) + .. + 1/high for 0 <= low <= high, [n] float64.

    Accurate relative to the difference itself, which subtracting two digammas of a million is
    not: up to 64 it is tabled, beyond that the asymptotic series of ψ(x + ½) is differenced term
    by term (Abramowitz and Stegun, 6.3.18, shifted by a half).
    """
    small = _HARMONIC[np.minimum(low, _SMALL), np.minimum(high, _SMALL)]
    a, b = np.maximum(low, _SMALL) + 0.5, np.maximum(high, _SMALL) + 0.5
    difference: FloatArray = small + np.log1p((b - a) / a) + _corrections(a, b)
    return difference


def harmonic_shortfall(low: IntArray, high: IntArray) -> FloatArray:
    """Return (high − low) − (low+1)(H_high − H_low) = Σ_k (k−1)/(low+k), [n] float64.

    Accurate relative to itself: where the two terms nearly cancel (low > 64), x − log(1+x) is
    taken by its series.
    """
    plain = (high - low) - (low + 1) * harmonic_difference(low, high)
    a, b = np.float64(0.5) + low, np.float64(0.5) + high
    x = (b - a) / a
    powers = np.arange(2, 14)
    series = np.sum((-x[:, None]) ** powers / powers, axis=1)
    excess = np.where(x < 0.05, series, x - np.log1p(x))
    close = a * excess - np.log1p(x) / 2 - (a + 0.5) * _corrections(a, b)
    shortfall: FloatArray = np.where((low > _SMALL) & (high > low), close, plain)
    return shortfall


def _corrections(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> FloatArray:
    """Return the terms of ψ(b + ½) − ψ(a + ½) beyond log b − log a."""
    terms: FloatArray = np.zeros(len(a))
    for power, factor in ((2, 1 / 24), (4, -7 / 960), (6, 31 / 8064)):
        terms += factor * (b**-power - a**-power)
    return terms
