"""What lists of neighbours tell: the statistics that they leave possible, at best and at worst.

A list holds the nearest items of a query as far as its *horizon*: an item that is not returned
is at least so far. What is returned is known to the bit. Of what is not returned only its number
is known, from the labels: m positives and n negatives, each at the horizon or anywhere beyond.
So every statistic lies between two extremes,

    best     missing positives at the horizon, missing negatives beyond everything
    worst    missing negatives at the horizon, missing positives beyond everything

where each field is the best, or the worst, that it can be, alone. A metric that improves
whenever a positive comes closer or a negative goes further lies between its values of the two.
A positive whose distance is known, being returned or computed, keeps it in both.

Ties at the horizon stay open, too: a missing negative may be as far as a positive there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from streameval.histograms import histogram_of
from streameval.kernels.edges import first_not_below
from streameval.protocols.pairs import Pairs
from streameval.statistics import FloatArray, IntArray, RankStatistics

BoolArray = npt.NDArray[np.bool_]

FURTHEST = np.finfo(np.float64).max
NEVER = 1 << 40  # negatives ahead of a positive that is never found: beyond every cutoff


@dataclass(frozen=True, eq=False)
class Returned:
    """Lists of Q queries, L items in all, each item at most once in a list.

    Attributes
    ----------
    indptr : [Q + 1] int64
        Where each list begins.
    item : [L] int64
        Gallery index.
    distance : [L] float64
    horizon : [Q] float64
        No item that is not returned is closer.
    """

    indptr: IntArray
    item: IntArray
    distance: FloatArray
    horizon: FloatArray

    @property
    def query(self) -> IntArray:
        """The query of each entry, [L] int64."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


@dataclass(frozen=True, eq=False)
class Places:
    """What the protocol makes of the entries of lists.

    Attributes
    ----------
    positive, negative : [L] bool
        Neither where the entry is ignored.
    listed : [P] int64
        The entry of each positive pair, in the order of `Pairs.positives`; −1 where it is not
        returned.
    """

    positive: BoolArray
    negative: BoolArray
    listed: IntArray

    @classmethod
    def of(cls, pairs: Pairs, returned: Returned) -> Places:
        """Find the entries of the positives, and those that are ignored."""
        gallery, query, item = max(pairs.gallery, 1), returned.query, returned.item
        own = np.repeat(np.arange(pairs.queries), np.diff(pairs.indptr)) * gallery + pairs.item
        entry = query * gallery + item
        found, at = _look_up(own, entry)
        positive, ignored = np.zeros(len(item), np.bool_), pairs.junk[item]
        positive[found] = pairs.positive[at[found]]
        ignored = ignored | (found & ~positive)
        if pairs.query_camera is not None and pairs.gallery_camera is not None:
            ignored |= pairs.query_camera[query] == pairs.gallery_camera[item]
        order = np.argsort(entry, kind="stable")
        there, place = _look_up(entry[order], own[pairs.positive])
        listed = np.full(len(there), -1, np.int64)
        listed[there] = order[place[there]]
        return cls(positive, ~positive & ~ignored, listed)


def _look_up(known: IntArray, wanted: IntArray) -> tuple[BoolArray, IntArray]:
    """Return which values are among the ascending known ones, and where."""
    if not len(known):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return known[at] == wanted, at


@dataclass(frozen=True, eq=False)
class Extremes:
    """What lists leave possible.

    Attributes
    ----------
    worst, best : RankStatistics
        Equal where nothing is left open. Their histogram, where they have one, is of the
        returned negatives: it is that of all where none is missing.
    effective : [Q] int64
        Places of the ranking that are certain: those of the valid items before the horizon.
    returned : [Q] int64
        Valid items that are returned.
    missing_positives, missing_negatives : [Q] int64
    """

    worst: RankStatistics
    best: RankStatistics
    effective: IntArray
    returned: IntArray
    missing_positives: IntArray
    missing_negatives: IntArray

    @property
    def complete(self) -> BoolArray:
        """[Q] bool: whether every valid item is returned."""
        complete: BoolArray = (self.missing_positives == 0) & (self.missing_negatives == 0)
        return complete


def missing_positives(pairs: Pairs, places: Places) -> tuple[IntArray, IntArray]:
    """Return (query, item), both [m] int64, of the positives that are not returned."""
    indptr, item = pairs.positives()
    query = np.repeat(np.arange(pairs.queries), np.diff(indptr))
    missing = places.listed < 0
    return query[missing], item[missing]


def find_extremes(
    pairs: Pairs,
    returned: Returned,
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
    returned : Returned
    places : Places
        Of these lists.
    thresholds : [T] float64
    histogram_edges : [E] float64, optional
    missing_distance : [m] float64, optional
        Of the positives that are not returned, in the order of `missing_positives`; none of
        them before the horizon.
    """
    negatives = _negatives(pairs, returned, places)
    positive, ignored, same_identity = pairs.counts_in(0, pairs.gallery)
    valid = pairs.gallery - ignored
    of_lists = np.diff(negatives.indptr)
    away = valid - positive - of_lists  # negatives that are not returned
    shared: dict[str, Any] = {"valid": valid, "ignored": ignored, "same_identity": same_identity}

    indptr, item = pairs.positives()
    query = np.repeat(np.arange(pairs.queries), np.diff(indptr))
    horizon = returned.horizon[query]
    missing = places.listed < 0
    distance = np.full(len(item), np.nan)
    distance[~missing] = returned.distance[places.listed[~missing]]
    if missing_distance is not None:
        distance[missing] = missing_distance
    unknown = np.isnan(distance)
    at_best = np.where(unknown, horizon, distance)
    closer, tied, before = negatives.ahead(indptr, at_best, item)
    within = negatives.within(thresholds)
    nearest = negatives.nearest()
    histogram = None
    if histogram_edges is not None:
        at_edges = negatives.within(histogram_edges).sum(axis=0)
        histogram = histogram_of(at_edges, int(of_lists.sum()))
    shared |= {"thresholds": thresholds, "histogram_edges": histogram_edges}
    shared |= {"impostor_histogram": histogram}

    # A stranger does best where its nearest item is far; another query, where it is near.
    outside = np.where(thresholds >= returned.horizon[:, None], away[:, None], 0)
    near = np.where(away > 0, np.minimum(nearest, returned.horizon), nearest)
    far = np.where((away > 0) & np.isinf(nearest), FURTHEST, nearest)
    found = positive > 0
    best = _statistics(
        indptr,
        at_best,
        item,
        {"closer": closer, "tied": tied, "tied_before": before},
        negatives_within=within,
        nearest_negative=np.where(found, near, far),
        **shared,
    )
    more, beyond = away[query], ~unknown & (distance > horizon)
    level = ~unknown & (distance == horizon)
    worst = _statistics(
        indptr,
        np.where(unknown, _furthest(indptr, unknown), at_best),
        item,
        {
            "closer": np.where(unknown, (valid - positive)[query], closer + more * beyond),
            "tied": np.where(unknown, 0, tied + more * level),
            "tied_before": np.where(unknown, 0, before + np.minimum(more, item) * level),
        },
        negatives_within=within + outside,
        nearest_negative=np.where(found, far, near),
        **shared,
    )
    missing_count = np.bincount(query[missing], minlength=pairs.queries).astype(np.int64)
    counted = places.positive | places.negative
    own = returned.query
    certain = counted & (returned.distance < returned.horizon[own])
    certain |= counted & ((missing_count == 0) & (away == 0))[own]
    return Extremes(
        worst,
        best,
        np.bincount(own[certain], minlength=pairs.queries).astype(np.int64),
        np.bincount(own[counted], minlength=pairs.queries).astype(np.int64),
        missing_count,
        away,
    )


def as_deployed(
    pairs: Pairs, returned: Returned, places: Places, thresholds: FloatArray
) -> tuple[RankStatistics, IntArray]:
    """Return the statistics of a system that finds what it returns and nothing else.

    A positive that is not returned is at an infinite distance, behind `NEVER` negatives; a
    negative that is not returned is within no threshold.

    Parameters
    ----------
    pairs, returned, places, thresholds
        As in `find_extremes`; no threshold is infinite in the result.

    Returns
    -------
    RankStatistics
    [Q] int64
        Valid items that are returned.
    """
    negatives = _negatives(pairs, returned, places)
    _, ignored, same_identity = pairs.counts_in(0, pairs.gallery)
    indptr, item = pairs.positives()
    missing = places.listed < 0
    distance = np.where(missing, np.inf, 0.0)
    distance[~missing] = returned.distance[places.listed[~missing]]
    counted = negatives.ahead(indptr, distance, item)
    closer, tied, before = (np.where(missing, 0, count) for count in counted)
    limits = np.minimum(thresholds, FURTHEST)
    statistics = _statistics(
        indptr,
        distance,
        item,
        {"closer": np.where(missing, NEVER, closer), "tied": tied, "tied_before": before},
        thresholds=limits,
        negatives_within=negatives.within(limits),
        nearest_negative=negatives.nearest(),
        valid=pairs.gallery - ignored,
        ignored=ignored,
        same_identity=same_identity,
    )
    entries = returned.query[places.positive | places.negative]
    return statistics, np.bincount(entries, minlength=pairs.queries).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Negatives:
    """The returned negatives, by query, distance and index."""

    indptr: IntArray
    item: IntArray
    distance: FloatArray

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


def _negatives(pairs: Pairs, returned: Returned, places: Places) -> _Negatives:
    query, distance = returned.query[places.negative], returned.distance[places.negative]
    item = returned.item[places.negative]
    order = np.lexsort((item, distance, query))
    indptr = np.searchsorted(query, np.arange(pairs.queries + 1)).astype(np.int64)
    return _Negatives(indptr, item[order], distance[order])


def _statistics(
    indptr: IntArray,
    distance: FloatArray,
    item: IntArray,
    counted: dict[str, Any],
    **others: Any,
) -> RankStatistics:
    """Return statistics whose positives are sorted by distance, then index."""
    query = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((item, distance, query))
    return RankStatistics(
        indptr=indptr,
        positive_distance=distance[order],
        positive_item=item[order],
        **{name: values[order].astype(np.int64) for name, values in counted.items()},
        **others,
    )


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
