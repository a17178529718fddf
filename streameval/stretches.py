"""Stretches: what belongs to rows, one row after the other, and where each begins (`indptr`).

Where stretches begin are counts, cumulated; a histogram is what is left between cumulated counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from streameval.compilation import compiled
from streameval.typing import AnyArray, BoolArray, IntArray


def rows_of(indptr: IntArray) -> IntArray:
    """Return the row of each entry of a list that begins at `indptr` in each row."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def cumulated(counts: AnyArray | list[int]) -> IntArray:
    """Return the sums of the first 0, 1, .. n counts or flags, [n + 1] int64.

    Of stretches of so many: where each begins, and the last one ends.
    """
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def sums_of(values: AnyArray, indptr: IntArray) -> IntArray:
    """Return the sum of each stretch of counts or flags, [n] int64."""
    sums = np.zeros(len(indptr) - 1, np.int64)
    if values.dtype == np.bool_:
        if indptr[-1] > len(values):
            raise IndexError(f"{len(values)} flags, in stretches that end at {indptr[-1]}")
        _count_flags(values, indptr, sums)
        return sums
    filled = indptr[1:] > indptr[:-1]
    if filled.any():
        numbers = values[: indptr[-1]]
        sums[filled] = np.add.reduceat(numbers, indptr[:-1][filled], dtype=np.int64)
    return sums


@compiled
def _count_flags(flags, indptr, counts):  # type: ignore[no-untyped-def]
    """Write how many flags of each stretch are set; vectorises, unlike `np.add.reduceat`."""
    for i in range(len(counts)):
        count = 0
        for k in range(indptr[i], indptr[i + 1]):
            count += flags[k]
        counts[i] = count


def left_of(kept: BoolArray, indptr: IntArray) -> IntArray:
    """Return where stretches, the first at 0, begin once some entries are kept, by a mask."""
    return cumulated(sums_of(kept, indptr))


def entries_of(begin: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the entries of stretches, one after the other: (indptr [n + 1], entry).

    Parameters
    ----------
    begin, counts : [n] int64
        Where each stretch begins in a list, and how many entries it has.
    """
    indptr = cumulated(counts)
    entry = np.repeat(begin - indptr[:-1], counts)
    entry += np.arange(indptr[-1])
    return indptr, entry


def histogram_of(within: IntArray, pairs: IntArray | int) -> IntArray:
    """Return the histogram [.., E + 1] of `pairs` [..], of which `within` [.., E] are within edges.

    A distance d is in bin ``np.searchsorted(edges, d, side="left")``.
    """
    return np.diff(within, prepend=0, append=np.asarray(pairs)[..., None])


def joined(parts: Sequence[AnyArray]) -> AnyArray:
    """Return arrays one after the other, along their first axis.

    Without a copy, where there is one, or they follow one another in one array.
    """
    if len(parts) == 1:
        return parts[0]
    first, whole = parts[0], parts[0].base
    if not isinstance(whole, np.ndarray) or not (whole.ndim == 1 and whole.flags.c_contiguous):
        return np.concatenate(parts)
    begin = (first.ctypes.data - whole.ctypes.data) // whole.itemsize
    ends = begin + cumulated(list(map(len, parts)))
    views = [whole[start:stop] for start, stop in pairwise(ends)]
    same = (
        one.base is whole and one.__array_interface__ == view.__array_interface__
        for one, view in zip(parts, views, strict=True)
    )
    return whole[begin : ends[-1]] if all(same) else np.concatenate(parts)
