"""Galleries: several lists of items that are drawn from one gallery, and what lies in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streameval.compilation import compiled
from streameval.kernels.edges import Edges, Positives
from streameval.stretches import cumulated, left_of, rows_of, sums_of
from streameval.typing import Int32Array, IntArray

WAYS = 4  # counters of a slot: an addition would wait for the one before to the same


class Galleries(NamedTuple):
    """T galleries of items out of G, or of columns out of n.

    Attributes
    ----------
    indptr : [T + 1] int64
        Where the items of each gallery begin.
    item : [N] int32
        Ascending within a gallery, if items are numbered in order.
    of_item : [G + 1] int64
        Where the galleries of each item begin.
    gallery : [N] int32
    """

    indptr: IntArray
    item: Int32Array
    of_item: IntArray
    gallery: Int32Array

    @classmethod
    def of(cls, drawn: Sequence[IntArray], items: int) -> Galleries:
        """Return galleries of so many items, by the items of each."""
        indptr = cumulated(np.array([len(own) for own in drawn], np.int64))
        return cls._of_pairs(indptr, np.concatenate(drawn), items)

    @classmethod
    def _of_pairs(cls, indptr: IntArray, item: IntArray, items: int) -> Galleries:
        order = np.argsort(item, kind="stable")
        of_item = cumulated(np.bincount(item, minlength=items))
        gallery = rows_of(indptr)[order]
        return cls(indptr, item.astype(np.int32), of_item, gallery.astype(np.int32))

    def columns(self, item: IntArray) -> Galleries:
        """Return which columns are in each, of some columns with these items."""
        column = np.full(len(self.of_item) - 1, -1)
        column[item] = np.arange(len(item))
        own = column[self.item]
        kept = own >= 0
        return self._of_pairs(left_of(kept, self.indptr), own[kept], len(item))

    @property
    def number(self) -> int:
        """Number of galleries T."""
        return len(self.indptr) - 1

    def sizes(self, start: int, stop: int) -> IntArray:
        """Return how many items of a range are in each gallery, [T]."""
        return sums_of((self.item >= start) & (self.item < stop), self.indptr)

    def numbers_of(self, indptr: IntArray, item: IntArray) -> IntArray:
        """Return how many of the listed items of each query are in each gallery, [T, m]."""
        numbers: IntArray = _numbers(indptr, item, self)
        return numbers


class Found(NamedTuple):
    """The positives of m queries in each of T galleries, and what is ahead of them.

    Attributes
    ----------
    indptr : [T, m + 1] int64
        Where the positives of each query begin, in each gallery.
    place : [P] int64
        Which of the positives in all galleries each is: ascending within a query.
    edge : [P] int32
        Which of the distinct distances of the query's positives it has.
    ahead : [3, P] int64
        Negatives closer, tied, and tied and before it in the gallery.
    """

    indptr: IntArray
    place: IntArray
    edge: Int32Array
    ahead: IntArray

    @classmethod
    def of(cls, positives: Positives, galleries: Galleries) -> Found:
        """Return the positives in each gallery, with nothing ahead."""
        numbers = galleries.numbers_of(positives.indptr, positives.item)
        count, queries = numbers.shape
        begins = cumulated(numbers.ravel())
        indptr = begins[queries * np.arange(count)[:, None] + np.arange(queries + 1)]
        size = int(numbers.sum())
        place, edge = np.empty(size, np.int64), np.empty(size, np.int32)
        _spread(positives, galleries, indptr.copy(), place, edge)
        return cls(indptr, place, edge, np.zeros((3, size), np.int64))


class Meanings(NamedTuple):
    """What the slots of a query's edges mean: to its positives, and to the limits of all queries.

    Limits are the finite thresholds and edges of a histogram, L of them, ascending.

    Attributes
    ----------
    indptr : [m + 1] int64
        Where each query's slots begin: as many as its edges twice, and three more.
    positive : [S] uint16
        The slot between the distinct distances of the positives alone.
    limit : [S] uint16
        How many limits are below. Of pairs that are no negatives, both are the last and one more.
    """

    indptr: IntArray
    positive: npt.NDArray[np.uint16]
    limit: npt.NDArray[np.uint16]

    @classmethod
    def of(cls, edges: Edges) -> Meanings:
        """Return what the slots of a block of queries mean."""
        limits = edges.thresholds[np.isfinite(edges.thresholds)]
        queries = np.arange(len(edges.indptr))
        indptr = 2 * edges.indptr + 3 * queries
        positive, limit = np.empty((2, int(indptr[-1])), np.uint16)
        _tell(edges.indptr, edges.distance, edges.positives, limits, (indptr, positive, limit))
        return cls(indptr, positive, limit)


@compiled
def _numbers(indptr, item, galleries):  # type: ignore[no-untyped-def]
    numbers = np.zeros((len(galleries.indptr) - 1, len(indptr) - 1), np.int64)
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            for s in range(galleries.of_item[item[p]], galleries.of_item[item[p] + 1]):
                numbers[galleries.gallery[s], i] += 1
    return numbers


@compiled
def _spread(positives, galleries, begins, place, edge):  # type: ignore[no-untyped-def]
    indptr, distance, item = positives
    for i in range(len(indptr) - 1):
        e = -1
        for p in range(indptr[i], indptr[i + 1]):
            e += p == indptr[i] or distance[p] != distance[p - 1]
            for s in range(galleries.of_item[item[p]], galleries.of_item[item[p] + 1]):
                at = begins[galleries.gallery[s], i]
                place[at], edge[at] = p, e
                begins[galleries.gallery[s], i] += 1


@compiled
def _tell(indptr, distance, positives, limits, out):  # type: ignore[no-untyped-def]
    begins, positive, limit = out
    of_query, known, _ = positives
    for i in range(len(indptr) - 1):
        s, p, own, below = begins[i], of_query[i], 0, 0
        for k in range(indptr[i], indptr[i + 1]):
            at = p < of_query[i + 1] and known[p] == distance[k]
            positive[s], positive[s + 1] = 2 * own, 2 * own + at
            limit[s], limit[s + 1] = below, below
            own += at
            while p < of_query[i + 1] and known[p] == distance[k]:
                p += 1
            below += below < len(limits) and limits[below] == distance[k]
            s += 2
        positive[s], limit[s] = 2 * own, below
        positive[s + 1], limit[s + 1] = 0, 0  # no slot has that number
        positive[s + 2], limit[s + 2] = 2 * own + 2, len(limits) + 1


@compiled
def look_up(places, of, columns, meanings, found, counted):  # type: ignore[no-untyped-def]
    """Add what each gallery holds of the pairs of some rows to the counts.

    Parameters
    ----------
    places : [m, n] uint16
    of : tuple
        The query of each row, whether to leave it out, the item of each column, and the item of
        each positive of the block.
    columns : Galleries
        Of the columns.
    meanings : Meanings
    found : Found
        ``ahead`` is added to.
    counted : tuple
        ``step`` [L + 1], the threshold that each limit is, or the next that follows; ``group`` of
        each query; ``negatives`` [T, queries], ``within`` [T, queries, thresholds] and
        ``histogram`` [T, groups, L + 2], which are added to.
    """
    query, left_out, item, positive_item = of
    step, group, negatives, within, histogram = counted
    n, limits = places.shape[1], histogram.shape[2]
    limited = within.shape[2] > 0 or limits > 2
    begins, positive_of, limit_of = meanings
    own, limit = np.empty(n, np.uint16), np.empty(n, np.uint16)
    most = 1
    for number in positive_of:
        most = max(most, int(number) + 1)
    ahead, bins = np.zeros((WAYS, most), np.uint32), np.zeros((WAYS, limits), np.uint32)
    steps = np.zeros(within.shape[2] + 1, np.uint32)
    for r in range(len(query)):
        if left_out[r]:
            continue
        i = query[r]
        first, last = begins[i], begins[i + 1] - 1
        for k in range(n):
            own[k] = positive_of[first + places[r, k]]
        low, high = limits, 0  # of the limits that any pair of the row has
        for k in range(n if limited else 0):
            limit[k] = limit_of[first + places[r, k]]
            low = min(low, limit[k])
            high = max(high, limit[k] if limit[k] < limits - 1 else 0)
        nothing = np.int64(positive_of[last])
        for t in range(len(columns.indptr) - 1):
            held = columns.item[columns.indptr[t] : columns.indptr[t + 1]]
            _count(own, held, ahead, 0, nothing + 1)
            negatives[t, i] += len(held) - ahead[0, nothing]
            span = found.indptr[t, i], found.indptr[t, i + 1]
            _rank(ahead[0], span, found, (own, held, item, positive_item))
            ahead[0, : nothing + 1] = 0
            if limited:
                _count(limit, held, bins, low, high + 1)
                _sum(bins, low, high + 1, step, steps, within[t, i], histogram[t, group[i]])


@compiled
def _count(own, held, counts, low, high):  # type: ignore[no-untyped-def]
    """Count the values of some columns; those from `low` to `high` are summed in the first way."""
    first, second, third, fourth = counts[0], counts[1], counts[2], counts[3]
    one, whole = np.uint32(1), len(held) // 4
    for four in range(whole):
        k = 4 * four
        first[own[np.uint32(held[k])]] += one
        second[own[np.uint32(held[k + 1])]] += one
        third[own[np.uint32(held[k + 2])]] += one
        fourth[own[np.uint32(held[k + 3])]] += one
    for k in range(4 * whole, len(held)):
        first[own[np.uint32(held[k])]] += one
    for s in range(low, high):
        first[s] += second[s] + third[s] + fourth[s]
        second[s], third[s], fourth[s] = 0, 0, 0


@compiled
def _rank(counts, span, found, tied):  # type: ignore[no-untyped-def]
    """Add what is ahead of the positives of a query in a gallery, from the counts of slots."""
    closer, equal = found.ahead[0], found.ahead[1]
    below, s, any_tied = 0, 0, False
    for p in range(span[0], span[1]):
        slot = 2 * np.int64(found.edge[p]) + 1
        while s < slot:
            below += counts[s]
            s += 1
        closer[p] += below
        equal[p] += counts[slot]
        any_tied |= counts[slot] > 0
    if any_tied:
        _add_tied(span, found, *tied)


@compiled
def _add_tied(span, found, own, held, item, positive_item):  # type: ignore[no-untyped-def]
    """Add the negatives that tie with positives and come before them in the gallery."""
    first, end = span
    edge, place, before = found.edge, found.place, found.ahead[2]
    noted = np.zeros(end - first + 1, np.int64)  # at the first positive that each is ahead of
    for k in held:
        slot = np.int64(own[k])
        if slot & 1:
            e, low, high = slot >> 1, first, end
            while low < high:
                middle = (low + high) // 2
                at = positive_item[place[middle]]
                if edge[middle] < e or (edge[middle] == e and at <= item[k]):
                    low = middle + 1
                else:
                    high = middle
            noted[low - first] += low < end and edge[low] == e
    ahead = 0
    for p in range(first, end):
        ahead = noted[p - first] + (ahead if p > first and edge[p] == edge[p - 1] else 0)
        before[p] += ahead


@compiled
def _sum(bins, low, high, step, steps, within, histogram):  # type: ignore[no-untyped-def]
    """Add counted limits, from `low` to `high`, to the histogram and the thresholds; zero them."""
    for b in range(low, high):
        count = bins[0, b]
        histogram[b] += count
        steps[step[b]] += count
        bins[0, b] = 0
    for way in range(bins.shape[0]):
        bins[way, bins.shape[1] - 1] = 0  # no negatives
    below = 0
    for t in range(len(within)):
        below += steps[t]
        within[t] += below
    steps[:] = 0
