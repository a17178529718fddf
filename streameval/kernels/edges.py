"""Edges: the distances that a query's negatives are counted against, and the slots they make.

The edges of a query are its positives' distances and the thresholds, sorted, without
repetition: E_0 < E_1 < … < E_{m−1}. They cut the line into 2m + 1 *slots*: slot 2k + 1 holds
the negatives at exactly E_k, slot 2k those strictly between E_{k−1} and E_k. How many are
closer than a positive, tied with it or within a threshold are sums over slots.
Thresholds are the distances that lie within τ_t = t / 100 of a range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streameval.compilation import compiled
from streameval.sorting import sort_within
from streameval.stretches import cumulated
from streameval.typing import BoolArray, FloatArray, IntArray

STEPS = 100  # of τ


def threshold_distances(low: float, high: float, *, clipped: bool = False) -> FloatArray:
    """Return, for each τ_t, the greatest distance that lies within it.

    A distance d lies within τ_t where ``(d − low) / (high − low) <= t / 100``, all in float64
    (GOM paper, §5: distances are normalised to [0, 1]). As the left side never falls with d,
    the condition is ``d <= edge`` for one float64 edge, found by bisection over the floats.
    With ``low == high`` every distance is normalised to 0.

    Parameters
    ----------
    low, high : float
        What τ = 0 and τ = 1 stand for; low <= high.
    clipped : bool
        Whether normalised distances beyond 1 count as 1.

    Returns
    -------
    [101] float64, ascending
    """
    tau = np.arange(STEPS + 1) / STEPS

    def within(order: IntArray) -> BoolArray:
        if low == high:
            return _float(order) <= high
        with np.errstate(over="ignore", invalid="ignore"):
            return (_float(order) - low) / (high - low) <= tau

    guess = _order(low + tau * (high - low))  # nearly always next to the edge
    inside = np.where(within(guess - 4), guess - 4, _order(low))
    outside = np.where(within(guess + 4), _order(np.inf), guess + 4)
    while (outside - 1 > inside).any():
        middle = (inside & outside) + ((inside ^ outside) >> 1)  # never beyond 64 bits
        known = within(middle)
        inside, outside = np.where(known, middle, inside), np.where(known, outside, middle)
    edges = _float(inside)
    if clipped:
        edges[-1] = np.inf
    return edges


def _flipped(bits: IntArray) -> IntArray:
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def _order(value: npt.ArrayLike) -> IntArray:
    """Return the places of floats among all floats in ascending order."""
    return _flipped(np.asarray(value, np.float64).view(np.int64))


def _float(order: IntArray) -> FloatArray:
    """Return the floats at places given by `_order`."""
    return _flipped(order).view(np.float64)


class Positives(NamedTuple):
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
    def sort(
        cls, indptr: IntArray, distance: FloatArray, item: IntArray, threads: int = 1
    ) -> Positives:
        """Sort within each query, in place; within a query, `item` is ascending already.

        NaN come in any order.
        """
        sort_within(indptr, distance, item, threads)
        return cls(indptr, distance, item)

    @classmethod
    def none(cls, queries: int) -> Positives:
        """Return those of queries without positives."""
        return cls(np.zeros(queries + 1, np.int64), np.empty(0), np.empty(0, np.int64))

    def furthest(self) -> FloatArray:
        """Return the greatest distance of each query's positives, [Q]; −inf without any."""
        has_positive, furthest = np.diff(self.indptr) > 0, np.full(len(self.indptr) - 1, -np.inf)
        if has_positive.any():
            starts = self.indptr[:-1][has_positive]
            furthest[has_positive] = np.maximum.reduceat(self.distance, starts)
        return furthest

    def all_differ(self) -> bool:
        """Return whether no two positives of a query are as far as each other."""
        distance, further = self.distance, np.ones(len(self.distance), np.bool_)
        np.less(distance[:-1], distance[1:], out=further[1:])
        further[self.indptr[:-1][np.diff(self.indptr) > 0]] = True  # the first of each query
        return bool(further.all())

    def nearest(self) -> Positives:
        """Return the first positive of each query alone."""
        has_positive = np.diff(self.indptr) > 0
        starts = self.indptr[:-1][has_positive]
        return Positives(cumulated(has_positive), self.distance[starts], self.item[starts])

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
    positives : Positives
    thresholds : [T] float64
        Ascending; may end in +inf, which needs no edge: every negative is within it.
    """

    indptr: IntArray
    distance: FloatArray
    positives: Positives
    thresholds: FloatArray

    @classmethod
    def build(cls, positives: Positives, thresholds: FloatArray) -> Edges:
        """Merge the positives' distances and the thresholds of each query.

        Positives alone, none as far as another of its query, are edges as they are.
        """
        finite = thresholds[np.isfinite(thresholds)]
        if not len(finite) and positives.all_differ():
            return cls(positives.indptr, positives.distance, positives, thresholds)
        indptr, queries = np.zeros_like(positives.indptr), len(positives.indptr) - 1
        distance = np.empty(len(positives.distance) + queries * len(finite))
        _merge_edges(positives.indptr, positives.distance, finite, indptr, distance)
        if indptr[-1] < len(distance):
            distance = distance[: indptr[-1]].copy()  # what follows is let go of
        return cls(indptr, distance, positives, thresholds)


@compiled
def _merge_edges(indptr, positives, thresholds, begins, out):  # type: ignore[no-untyped-def]
    """Merge two ascending lists a query, dropping repetitions; write where each begins, and it."""
    end = 0
    for i in range(len(indptr) - 1):
        p, t = indptr[i], 0
        while p < indptr[i + 1] or t < len(thresholds):
            if t == len(thresholds) or (p < indptr[i + 1] and positives[p] <= thresholds[t]):
                value = positives[p]
                p += 1
            else:
                value = thresholds[t]
                t += 1
            if end == begins[i] or value > out[end - 1]:
                out[end] = value
                end += 1
        begins[i + 1] = end


def read_slots(
    edges: Edges, slots: npt.NDArray[np.uint32], ties: IntArray, negatives: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Turn slot counts into counts per positive and per threshold.

    Parameters
    ----------
    edges : Edges
    slots : [2E + m] uint32
    ties : [P] int64
        As `note_tie` notes them.
    negatives : [m] int64
        Negatives of each query among those counted.

    Returns
    -------
    closer, tied, tied_before : [P] int64
    within : [m, T] int64
    """
    closer, (tied, before) = np.empty_like(ties), np.zeros((2, len(ties)), np.int64)
    within = np.empty((len(edges.indptr) - 1, len(edges.thresholds)), np.int64)
    _read_slots(edges, slots, ties, negatives, closer, tied, before, within)
    return closer, tied, before, within


@compiled
def _read_slots(edges, slots, ties, negatives, closer, tied, before, within):  # type: ignore[no-untyped-def]
    """Write what `read_slots` returns; ties are few: memory of zeros is not taken."""
    indptr, distance, known, thresholds = edges
    of_query, positives, _ = known
    for i in range(len(indptr) - 1):
        slot = 2 * indptr[i] + i
        p, t, below = of_query[i], 0, 0
        for k in range(indptr[i], indptr[i + 1]):
            below += slots[slot]
            equal, ahead = slots[slot + 1], 0
            while p < of_query[i + 1] and positives[p] == distance[k]:
                closer[p] = below
                if equal > 0:
                    ahead += ties[p]
                    tied[p], before[p] = equal, ahead
                p += 1
            below += equal
            while t < len(thresholds) and thresholds[t] == distance[k]:
                within[i, t] = below
                t += 1
            slot += 2
        within[i, t:] = negatives[i]  # +inf


@compiled
def first_reached(value, edges, band, low, high):  # type: ignore[no-untyped-def]
    """Return the first edge, from `low` on, whose band does not end before the value, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if edges[middle] + band < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def slot_of(value, near, edges, begin, end):  # type: ignore[no-untyped-def]
    """Return the slot of a canonical distance, from the query's first: odd where it is at an edge.

    The query's own edges are those from `begin` to `end`; `near`, counted from its first, is looked
    at first.
    """
    k = begin + np.int64(near)
    while k < end and edges[k] < value:
        k += 1
    while k > begin and edges[k - 1] >= value:
        k -= 1
    return 2 * (k - begin) + (k < end and edges[k] == value)


@compiled
def note_tie(value, item, positives, items, first, last, ties):  # type: ignore[no-untyped-def]
    """Note a negative that ties with positives, at the first of them that it is ahead of.

    It is ahead of all that follow at the same distance: `read_slots` adds it to those, once for
    all negatives. The query's own positives are those from `first` to `last`. Return where to
    begin for a negative that follows in the gallery, and is as far.
    """
    low, high, probe = first, last, first
    while low < high:  # the first positive that is further, or as far and later in the gallery
        if positives[probe] < value or (positives[probe] == value and items[probe] <= item):
            low = probe + 1
        else:
            high = probe
        probe = (low + high) // 2
    if low < last and positives[low] == value:
        ties[low] += 1
    return low
