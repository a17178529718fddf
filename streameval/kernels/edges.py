"""Edges: the distances that a query's negatives are counted against, and the slots they make.

The edges of a query are its positives' distances and the thresholds, sorted, without
repetition: E_0 < E_1 < … < E_{m−1}. They cut the line into 2m + 1 *slots*: slot 2k + 1 holds
the negatives at exactly E_k, slot 2k those strictly between E_{k−1} and E_k. How many are
closer than a positive, tied with it or within a threshold are sums over slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Positives:
    """The positives of every query, ascending in distance, then in gallery index.

    Attributes
    ----------
    indptr : [Q + 1] int64
    distance : [P] float64
    item : [P] int64
    """

    indptr: IntArray
    distance: FloatArray
    item: IntArray

    @classmethod
    def sort(cls, indptr: IntArray, distance: FloatArray, item: IntArray) -> Positives:
        """Sort within each query; within a query, `item` is ascending already."""
        query = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((item, distance, query))
        return cls(indptr, distance[order], item[order])

    def block(self, start: int, stop: int) -> Positives:
        """Return the positives of some of the queries."""
        begin, end = self.indptr[start], self.indptr[stop]
        return Positives(
            self.indptr[start : stop + 1] - begin, self.distance[begin:end], self.item[begin:end]
        )


class Edges(NamedTuple):
    """The edges of a block of m queries.

    Attributes
    ----------
    indptr : [m + 1] int64
        Where each query's edges begin in `distance`.
    distance : [E] float64
        Finite edges, strictly ascending within a query.
    positive_indptr : [m + 1] int64
        Where each query's positives begin.
    positive_distance : [P] float64
        Ascending within a query.
    positive_item : [P] int64
        Gallery index of each positive, ascending where distances are equal.
    thresholds : [T] float64
        Ascending; may end in +inf, which needs no edge: every negative is within it.
    pitch, phase : float
        How far apart most thresholds are, and the last of them; 0 where there are none.
    """

    indptr: IntArray
    distance: FloatArray
    positive_indptr: IntArray
    positive_distance: FloatArray
    positive_item: IntArray
    thresholds: FloatArray
    pitch: float
    phase: float

    @classmethod
    def build(cls, positives: Positives, thresholds: FloatArray) -> Edges:
        """Merge the positives' distances and the thresholds of each query."""
        finite = thresholds[np.isfinite(thresholds)]
        queries = len(positives.indptr) - 1
        counts = np.zeros(queries + 1, np.int64)
        buffer = np.empty(len(positives.distance) + queries * len(finite))
        _merge_edges(positives.indptr, positives.distance, finite, counts, buffer)
        indptr = np.cumsum(counts)
        return cls(
            indptr,
            buffer[: indptr[-1]].copy(),
            positives.indptr,
            positives.distance,
            positives.item,
            thresholds,
            float(np.median(np.diff(finite))) if len(finite) > 1 else 0.0,
            float(finite[-1]) if len(finite) else 0.0,
        )

    @property
    def slots(self) -> int:
        """Number of slots, 2E + m; those of query i begin at 2·indptr[i] + i."""
        return 2 * int(self.indptr[-1]) + len(self.indptr) - 1

    def read_slots(
        self, slots: IntArray, negatives: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Turn slot counts into counts per positive and per threshold.

        Parameters
        ----------
        slots : [2E + m] int64
        negatives : [m] int64
            Negatives of each query among those counted.

        Returns
        -------
        closer, tied : [P] int64
        within : [m, T] int64
        """
        closer = np.empty(len(self.positive_distance), np.int64)
        tied = np.empty_like(closer)
        within = np.empty((len(self.indptr) - 1, len(self.thresholds)), np.int64)
        _read_slots(
            self.indptr,
            self.distance,
            self.positive_indptr,
            self.positive_distance,
            self.thresholds,
            slots,
            negatives,
            closer,
            tied,
            within,
        )
        return closer, tied, within


@numba.njit(nogil=True, cache=True)
def _merge_edges(indptr, positives, thresholds, counts, out):  # type: ignore[no-untyped-def]
    """Merge two ascending lists a query, dropping repetitions; counts[i + 1] edges each."""
    end = 0
    for i in range(len(indptr) - 1):
        begin = end
        p, t = indptr[i], 0
        while p < indptr[i + 1] or t < len(thresholds):
            if t == len(thresholds) or (p < indptr[i + 1] and positives[p] <= thresholds[t]):
                value = positives[p]
                p += 1
            else:
                value = thresholds[t]
                t += 1
            if end == begin or value > out[end - 1]:
                out[end] = value
                end += 1
        counts[i + 1] = end - begin


@numba.njit(nogil=True, cache=True)
def _read_slots(  # type: ignore[no-untyped-def]
    indptr,
    edges,
    positive_indptr,
    positives,
    thresholds,
    slots,
    negatives,
    closer,
    tied,
    within,
):
    for i in range(len(indptr) - 1):
        slot = 2 * indptr[i] + i
        p, t = positive_indptr[i], 0
        below = 0
        for k in range(indptr[i], indptr[i + 1]):
            below += slots[slot]
            equal = slots[slot + 1]
            while p < positive_indptr[i + 1] and positives[p] == edges[k]:
                closer[p] = below
                tied[p] = equal
                p += 1
            below += equal
            while t < len(thresholds) and thresholds[t] == edges[k]:
                within[i, t] = below
                t += 1
            slot += 2
        for rest in range(t, len(thresholds)):  # +inf
            within[i, rest] = negatives[i]


@numba.njit(nogil=True, cache=True)
def first_not_below(edges, value):  # type: ignore[no-untyped-def]
    """Return the number of edges below the value: the first index with edges[k] >= value."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(nogil=True, cache=True)
def slot_of(value, near, edges, begin, end):  # type: ignore[no-untyped-def]
    """Return the slot of a canonical distance: odd where it is at an edge.

    Parameters
    ----------
    value : float64
    near : int
        The edge to look at first, counted from the query's first.
    edges : [E] float64
        All edges, as canonical distances.
    begin, end : int
        The query's own among them.
    """
    k = begin + np.int64(near)
    while k < end and edges[k] < value:
        k += 1
    while k > begin and edges[k - 1] >= value:
        k -= 1
    return 2 * (k - begin) + (k < end and edges[k] == value)


@numba.njit(nogil=True, cache=True)
def note_tie(value, item, positives, items, first, last, ties):  # type: ignore[no-untyped-def]
    """Note a negative that ties with positives, at the first of them that it is ahead of.

    It is ahead of all that follow at the same distance: `spread_ties` adds it to those, once
    for all negatives.

    Parameters
    ----------
    value : float64
        Canonical distance of the negative.
    item : int
        Its gallery index.
    positives, items : [P] float64, int64
        All positives: distance, gallery index.
    first, last : int
        The query's own among them.
    ties : [P] int64, added to
    """
    low, high = first, last
    while low < high:  # the first positive that is further, or as far and later in the gallery
        middle = (low + high) // 2
        if positives[middle] < value or (positives[middle] == value and items[middle] <= item):
            low = middle + 1
        else:
            high = middle
    if low < last and positives[low] == value:
        ties[low] += 1


@numba.njit(nogil=True, cache=True)
def spread_ties(indptr, positives, ties):  # type: ignore[no-untyped-def]
    """Return how many tied negatives are ahead of each positive, from what `note_tie` noted.

    Parameters
    ----------
    indptr : [m + 1] int64
        Where each query's positives begin.
    positives : [P] float64
    ties : [P] int64

    Returns
    -------
    [P] int64
    """
    ahead = ties.copy()
    for i in range(len(indptr) - 1):
        for p in range(indptr[i] + 1, indptr[i + 1]):
            if positives[p] == positives[p - 1]:
                ahead[p] += ahead[p - 1]
    return ahead
