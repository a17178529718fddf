"""Sums and means that do not depend on the order of their terms, or on how these are split."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

import numpy as np

from streameval.typing import FloatArray

# Every float64 is a whole multiple of 2**-1074.
_UNIT = 1 << 1074
_WHOLE = 2.0**53  # up to it, sums of whole numbers are exact
_BATCH = 1 << 15  # terms that are split together

Parts = Sequence[Sequence[float]]
"""For each of K sums, float64 values that add up to it exactly; of blocks, all are added."""


def mean(values: FloatArray) -> float:
    """Return the exactly rounded sum of [n] float64, divided by n; NaN where n is 0."""
    return math.fsum(values.tolist()) / len(values) if len(values) else math.nan


def prefix_sums(values: FloatArray) -> FloatArray:
    """Return the exactly rounded sums of the first 0, 1, .. n of [n] float64, [n + 1] float64.

    Each equals ``math.fsum(values[:k])``, whatever the order of those k.
    """
    if (values == np.rint(values)).all() and np.abs(values).sum() < _WHOLE:
        return np.append(0.0, np.cumsum(values))  # as usual: shares that are 0 or 1
    units = (top * (_UNIT // bottom) for top, bottom in map(float.as_integer_ratio, values))
    return np.array([total / _UNIT for total in accumulate(units, initial=0)])


def trapezoid(y: FloatArray, x: FloatArray) -> float:
    """Return the exactly rounded sum of ``(x[t+1] - x[t]) * (y[t] + y[t+1]) / 2``."""
    return math.fsum((np.diff(x) * (y[:-1] + y[1:]) / 2).tolist())


def exact_parts(terms: Iterable[FloatArray]) -> Parts:
    """Return the exact sums over the last axis of finite [k, n] float64, in order.

    A few float64 hold each sum, so that sums of blocks are put together without rounding. An array
    that follows itself is added up once.
    """
    parts: list[list[float]] = []
    batch: list[FloatArray] = []
    times: list[int] = []
    size = 0
    for each in terms:
        if batch and each is batch[-1]:
            times[-1] += 1
            continue
        if batch and size + each.size > _BATCH:
            parts += _repeated(batch, times)
            batch, times, size = [], [], 0
        batch.append(each)
        times.append(1)
        size += each.size
    return [*parts, *_repeated(batch, times)] if batch else parts


def _repeated(batch: Sequence[FloatArray], times: Sequence[int]) -> list[list[float]]:
    """Return the exact sums of each array so many times."""
    sums = iter(_split(np.concatenate(batch)))
    rows = ([next(sums) for _ in each] for each in batch)
    return [row for own, number in zip(rows, times, strict=True) for row in own * number]


def rounded(blocks: Iterable[Parts]) -> FloatArray:
    """Return sums over blocks, each rounded once, [K] float64."""
    together = zip(*blocks, strict=True)
    return np.array([math.fsum(chain.from_iterable(parts)) for parts in together])


def _split(terms: FloatArray) -> list[list[float]]:
    """Return values that add up exactly to each row of [k, n] float64.

    The leading bits of all terms, as multiples of one power of two, are added without rounding;
    then those of what is left (Rump, Ogita and Oishi 2008, Accurate floating-point summation I,
    Algorithm 3.3).
    """
    if not np.isfinite(terms).all():
        raise ValueError("the terms of an exact sum are finite numbers")
    spare = (terms.shape[1] + 1).bit_length()  # 2**spare >= n + 2
    parts = []
    largest = np.abs(terms).max(axis=1, initial=0.0)
    while largest.any():
        step = np.ldexp(1.0, np.frexp(largest)[1] + spare)[:, None]
        leading = (step + terms) - step
        parts.append(leading.sum(axis=1))
        terms = terms - leading
        largest = np.abs(terms).max(axis=1)
    return np.array(parts).T.tolist() if parts else [[] for _ in terms]
