"""What lists of neighbours tell: the statistics that they leave possible, at best and at worst.

A list holds the nearest items of a query as far as its *horizon*: a missing item is at least so
far. Distances of listed items are known to the bit. Of missing items only the number is known,
from the labels: m positives and n negatives, each at the horizon or anywhere beyond. So every
statistic lies between two extremes,

    best     missing positives at the horizon, missing negatives beyond everything
    worst    missing negatives at the horizon, missing positives beyond everything

where each field is the best, or the worst, that it can be, alone. A metric that improves
whenever a positive comes closer or a negative goes further lies between its values of the two.
A positive whose distance is known, being listed or computed, keeps it in both.

Ties at the horizon stay open, too: a missing negative may be as far as a positive there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from streameval.kernels.edges import first_not_below
from streameval.neighbors.lists import BoolArray, Lists, Places
from streameval.protocols.pairs import Pairs
from streameval.statistics import FloatArray, IntArray, RankStatistics, histogram_of

FURTHEST = np.finfo(np.float64).max
NEVER = 1 << 40  # negatives ahead of a positive that is never found: beyond every cutoff


@dataclass(frozen=True, eq=False)
class Extremes:
    """Statistics that lists leave possible, or those of a system as deployed.

    Attributes
    ----------
    worst : RankStatistics
        As deployed: the statistics of that system.
    best : RankStatistics or None
        Equal to the worst where nothing is left open; None as deployed. The histogram of either,
        if any, is of the listed negatives: it is that of all where none is missing.
    effective : [Q] int64
        Places of the ranking that are certain: those of the valid items before the horizon. As
        deployed: all valid items of the list.
    missing_positives, missing_negatives : [Q] int64
    """

    worst: RankStatistics
    best: RankStatistics | None
    effective: IntArray
    missing_positives: IntArray
    missing_negatives: IntArray

    @property
    def complete(self) -> BoolArray:
        """[Q] bool: whether every valid item is listed."""
        complete: BoolArray = (self.missing_positives == 0) & (self.missing_negatives == 0)
        return complete

    @classmethod
    def stack(cls, parts: Sequence[Extremes]) -> Extremes:
        """Return the extremes of the queries of all parts."""
        best = [part.best for part in parts if part.best is not None]
        return cls(
            RankStatistics.stack([part.worst for part in parts]),
            RankStatistics.stack(best) if best else None,
            np.concatenate([part.effective for part in parts]),
            np.concatenate([part.missing_positives for part in parts]),
            np.concatenate([part.missing_negatives for part in parts]),
        )


def find_extremes(
    pairs: Pairs,
    lists: Lists,
    places: Places,
    thresholds: FloatArray,
    histogram_edges: FloatArray | None = None,
    missing_distance: FloatArray | None = None,
) -> Extremes:
    """Return the statistics that lists leave possible.

    Parameters
    ----------
    pairs : Pairs
        Of the Q queries with the whole gallery.
    lists : Lists
    places : Places
        Of these lists.
    thresholds : [T] float64
    histogram_edges : [E] float64, optional
    missing_distance : [m] float64, optional
        Of the missing positives, in the order of `Places.missing_positives`; none of them before
        the horizon.
    """
    told = _Listed.of(pairs, lists, places)
    distance, query, away, negatives = told.distance.copy(), told.query, told.away, told.negatives
    if missing_distance is not None:
        distance[told.missing] = missing_distance
    unknown, horizon = np.isnan(distance), lists.horizon[query]
    at_best = np.where(unknown, horizon, distance)
    closer, tied, before = negatives.ahead(told.indptr, at_best, told.item)
    within, nearest = negatives.within(thresholds), negatives.nearest()
    outside = np.where(thresholds >= lists.horizon[:, None], away[:, None], 0)
    histogram = None
    if histogram_edges is not None:
        at_edges = negatives.within(histogram_edges).sum(axis=0)
        histogram = histogram_of(at_edges, len(negatives.item))
    shared = {
        "thresholds": thresholds,
        "histogram_edges": histogram_edges,
        "impostor_histogram": histogram,
    }
    # A stranger does best where its nearest item is far; another query, where it is near.
    near = np.where(away > 0, np.minimum(nearest, lists.horizon), nearest)
    far = np.where((away > 0) & np.isinf(nearest), FURTHEST, nearest)
    some = told.positives > 0
    nearest_at_best, nearest_at_worst = np.where(some, near, far), np.where(some, far, near)
    best = told.statistics(
        at_best,
        (closer, tied, before),
        shared | {"negatives_within": within, "nearest_negative": nearest_at_best},
    )
    more, all_negatives = away[query], (told.valid - told.positives)[query]
    beyond, level = ~unknown & (distance > horizon), ~unknown & (distance == horizon)
    worst = told.statistics(
        np.where(unknown, _furthest(told.indptr, unknown), at_best),
        (
            np.where(unknown, all_negatives, closer + more * beyond),
            np.where(unknown, 0, tied + more * level),
            np.where(unknown, 0, before + np.minimum(more, told.item) * level),
        ),
        shared | {"negatives_within": within + outside, "nearest_negative": nearest_at_worst},
    )
    entry, lacking = lists.query, told.missing_positives
    certain = (lists.distance < lists.horizon[entry]) | ((lacking == 0) & (away == 0))[entry]
    return Extremes(worst, best, told.count(entry[places.valid & certain]), lacking, away)


def as_deployed(pairs: Pairs, lists: Lists, places: Places, thresholds: FloatArray) -> Extremes:
    """Return the statistics of a system that finds what it returns and nothing else.

    A missing positive is at an infinite distance, behind `NEVER` negatives; a missing negative is
    within no threshold.

    Parameters
    ----------
    pairs, lists, places, thresholds
        As in `find_extremes`; no threshold is infinite in the result.
    """
    told = _Listed.of(pairs, lists, places)
    limits = np.minimum(thresholds, FURTHEST)
    distance = np.where(told.missing, np.inf, told.distance)
    closer, tied, before = told.negatives.ahead(told.indptr, distance, told.item)
    statistics = told.statistics(
        distance,
        (
            np.where(told.missing, NEVER, closer),
            np.where(told.missing, 0, tied),
            np.where(told.missing, 0, before),
        ),
        {
            "thresholds": limits,
            "negatives_within": told.negatives.within(limits),
            "nearest_negative": told.negatives.nearest(),
        },
    )
    effective = told.count(lists.query[places.valid])
    return Extremes(statistics, None, effective, told.missing_positives, told.away)


@dataclass(frozen=True, eq=False)
class _Listed:
    """The positives of every query, as far as lists tell, and the listed negatives.

    Attributes
    ----------
    indptr : [Q + 1] int64
    item : [P] int64
    distance : [P] float64
        NaN of a missing positive.
    positives, ignored, same_identity, valid : [Q] int64
    negatives : _Negatives
    """

    indptr: IntArray
    item: IntArray
    distance: FloatArray
    positives: IntArray
    ignored: IntArray
    same_identity: IntArray
    valid: IntArray
    negatives: _Negatives

    @classmethod
    def of(cls, pairs: Pairs, lists: Lists, places: Places) -> _Listed:
        indptr, item = pairs.positives()
        distance = np.full(len(item), np.nan)
        listed = places.listed >= 0
        distance[listed] = lists.distance[places.listed[listed]]
        positives, ignored, same_identity = pairs.counts_in(0, pairs.gallery)
        valid = pairs.gallery - ignored
        negatives = _Negatives.of(pairs, lists, places)
        return cls(indptr, item, distance, positives, ignored, same_identity, valid, negatives)

    @property
    def query(self) -> IntArray:
        """The query of each positive, [P] int64."""
        return np.repeat(np.arange(len(self.valid)), np.diff(self.indptr))

    @property
    def missing(self) -> BoolArray:
        """Positives that are missing, [P] bool."""
        missing: BoolArray = np.isnan(self.distance)
        return missing

    @property
    def missing_positives(self) -> IntArray:
        """The number of missing positives of each query, [Q] int64."""
        return self.count(self.query[self.missing])

    @property
    def away(self) -> IntArray:
        """The number of missing negatives of each query, [Q] int64."""
        return self.valid - self.positives - np.diff(self.negatives.indptr)

    def count(self, query: IntArray) -> IntArray:
        """Return how often each query is named, [Q] int64."""
        return np.bincount(query, minlength=len(self.valid)).astype(np.int64)

    def statistics(
        self,
        distance: FloatArray,
        ahead: tuple[IntArray, IntArray, IntArray],
        others: Mapping[str, Any],
    ) -> RankStatistics:
        """Return statistics whose positives are sorted by distance, then index.

        Parameters
        ----------
        distance : [P] float64
        ahead : three [P] arrays of int64
            Negatives closer than each positive, as far, and as far but before it.
        others : mapping of str to array
            Further fields.
        """
        order = np.lexsort((self.item, distance, self.query))
        closer, tied, before = (counts[order].astype(np.int64) for counts in ahead)
        return RankStatistics(
            indptr=self.indptr,
            positive_distance=distance[order],
            positive_item=self.item[order],
            closer=closer,
            tied=tied,
            tied_before=before,
            valid=self.valid,
            ignored=self.ignored,
            same_identity=self.same_identity,
            **others,
        )


@dataclass(frozen=True, eq=False)
class _Negatives:
    """The listed negatives, by query, distance and index."""

    indptr: IntArray
    item: IntArray
    distance: FloatArray

    @classmethod
    def of(cls, pairs: Pairs, lists: Lists, places: Places) -> _Negatives:
        query, distance = lists.query[places.negative], lists.distance[places.negative]
        item = lists.item[places.negative]
        order = np.lexsort((item, distance, query))
        indptr = np.searchsorted(query, np.arange(pairs.queries + 1)).astype(np.int64)
        return cls(indptr, item[order], distance[order])

    def ahead(
        self, indptr: IntArray, distance: FloatArray, item: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return how many are closer than each positive, as far, and as far but before it, [P]."""
        counts = tuple(np.empty(len(item), np.int64) for _ in range(3))
        _ahead(self.indptr, self.distance, self.item, indptr, distance, item, *counts)
        return counts[0], counts[1], counts[2]

    def within(self, limits: FloatArray) -> IntArray:
        """Return how many of each query are within each limit, [Q, T] int64."""
        out = np.empty((len(self.indptr) - 1, len(limits)), np.int64)
        _within(self.indptr, self.distance, limits, out)
        return out

    def nearest(self) -> FloatArray:
        """Return the least distance of each query, [Q]; +inf of none."""
        some = np.diff(self.indptr) > 0
        least = np.full(len(some), np.inf)
        least[some] = self.distance[self.indptr[:-1][some]]
        return least


def _furthest(indptr: IntArray, unknown: BoolArray) -> FloatArray:
    """Return for each unknown distance one of its own among the greatest there are, [P].

    All of a query differ: as equal ones they would count as one group of ties.
    """
    number = np.append(0, np.cumsum(unknown))
    left: IntArray = np.repeat(number[indptr[1:]], np.diff(indptr)) - number[1:]
    bits = np.float64(FURTHEST).view(np.int64) - left
    distances: FloatArray = bits.view(np.float64)
    return distances


@numba.njit(nogil=True, cache=True)
def _ahead(  # type: ignore[no-untyped-def]
    negative_indptr, negative, negative_item, indptr, distance, item, closer, tied, before
):
    for i in range(len(indptr) - 1):
        own = negative[negative_indptr[i] : negative_indptr[i + 1]]
        items = negative_item[negative_indptr[i] : negative_indptr[i + 1]]
        for p in range(indptr[i], indptr[i + 1]):
            first = first_not_below(own, distance[p])
            k, ahead = first, 0
            while k < len(own) and own[k] == distance[p]:
                ahead += items[k] < item[p]
                k += 1
            closer[p], tied[p], before[p] = first, k - first, ahead


@numba.njit(nogil=True, cache=True)
def _within(indptr, distance, limits, out):  # type: ignore[no-untyped-def]
    for i in range(len(indptr) - 1):
        k = indptr[i]
        for t in range(len(limits)):
            while k < indptr[i + 1] and distance[k] <= limits[t]:
                k += 1
            out[i, t] = k - indptr[i]
