"""The statistics that lists of neighbours leave possible, at best and at worst.

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

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streameval.metrics.ranks import NEVER
from streameval.neighbors.lists import Places
from streameval.sorting import order_within
from streameval.statistics import RankStatistics
from streameval.stretches import cumulated
from streameval.typing import AnyArray, BoolArray, FloatArray, IntArray

FURTHEST = np.finfo(np.float64).max

Ahead = tuple[IntArray, IntArray, IntArray]  # closer, tied, tied_before of positives


class Extremes(NamedTuple):
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

    @classmethod
    def of(cls, sides: Sequence[RankStatistics], numbers: Iterable[IntArray]) -> Extremes:
        """Return extremes of these `sides` and `numbers`."""
        worst, *best = sides
        return cls(worst, best[0] if best else None, *numbers)

    @property
    def sides(self) -> list[RankStatistics]:
        """The worst statistics, and the best, where there are any."""
        return [self.worst] if self.best is None else [self.worst, self.best]

    @property
    def numbers(self) -> tuple[IntArray, IntArray, IntArray]:
        """Certain places, missing positives and missing negatives of each query."""
        return self[2:]


def find_extremes(
    places: Places,
    thresholds: FloatArray,
    histogram_edges: FloatArray | None = None,
    missing_distance: FloatArray | None = None,
) -> Extremes:
    """Return the statistics that lists leave possible.

    Parameters
    ----------
    places : Places
        Of the Q queries' pairs with the whole gallery, and their lists, which are sorted by
        distance, then item, as `Lists.nearest` returns them.
    thresholds : [T] float64
    histogram_edges : [E] float64, optional
    missing_distance : [m] float64, optional
        Of the missing positives, in the order of `Places.missing_positives`; none of them before
        the horizon.
    """
    lists, known = places.lists, _Known(places, thresholds, histogram_edges)
    away, some = known.missing_negatives, known.positives > 0
    distance, horizon = known.distance.copy(), lists.horizon[known.query]
    if missing_distance is not None:
        distance[known.missing] = missing_distance
    unknown, level = np.isnan(distance), distance == horizon
    at_best = np.where(unknown, horizon, distance)
    closer, tied, before = known.ahead(at_best)
    # A stranger does best where its nearest item is far; another query, where it is near.
    near = np.where(away > 0, np.minimum(known.nearest, lists.horizon), known.nearest)
    far = np.where((away > 0) & np.isinf(known.nearest), FURTHEST, known.nearest)
    best = known.statistics(
        at_best, (closer, tied, before), known.within, np.where(some, near, far)
    )
    more, negatives = away[known.query], (known.valid - known.positives)[known.query]
    worst = known.statistics(
        np.where(unknown, _furthest(known.indptr, unknown), distance),
        (
            np.where(unknown, negatives, closer + more * (distance > horizon)),
            np.where(unknown, 0, tied + more * level),
            np.where(unknown, 0, before + np.minimum(more, known.item) * level),
        ),
        known.within + away[:, None] * (thresholds >= lists.horizon[:, None]),
        np.where(some, far, near),
    )
    entry, lacking = lists.query, known.missing_positives
    certain = (lists.distance < lists.horizon[entry]) | (lacking + away == 0)[entry]
    return Extremes(worst, best, known.count(entry[places.valid & certain]), lacking, away)


def as_deployed(places: Places, thresholds: FloatArray) -> Extremes:
    """Return the statistics of a system that finds what it returns and nothing else.

    A missing positive is at an infinite distance, behind `NEVER` negatives; a missing negative is
    within no threshold.

    Parameters
    ----------
    places, thresholds
        As in `find_extremes`; no threshold is infinite in the result.
    """
    known = _Known(places, np.minimum(thresholds, FURTHEST))
    distance = np.where(known.missing, np.inf, known.distance)
    closer, tied, before = known.ahead(distance)
    ahead = np.where(known.missing, NEVER, closer), tied, before
    statistics = known.statistics(distance, ahead, known.within, known.nearest)
    effective = known.count(places.lists.query[places.valid])
    return Extremes(statistics, None, effective, known.missing_positives, known.missing_negatives)


class _Known:
    """The positives of every query, as far as lists tell, and the listed negatives.

    `query`, `item` and `distance` are of the positives, [P]; a missing one's distance is NaN.
    """

    def __init__(
        self, places: Places, thresholds: FloatArray, edges: FloatArray | None = None
    ) -> None:
        pairs, lists = places.pairs, places.lists
        self.indptr, self.item = pairs.positives()
        self.query, listed = pairs.query[pairs.positive], places.listed >= 0
        self.missing = ~listed
        self.distance = np.full(len(listed), np.nan)
        self.distance[listed] = lists.distance[places.listed[listed]]
        self.positives, self._ignored, self._same = pairs.counts_in(0, pairs.gallery)
        self.valid = pairs.gallery - self._ignored
        self._thresholds, self._edges, self._histogram = thresholds, edges, None
        query, self._item = lists.query[places.negative], lists.item[places.negative]
        self._distance = lists.distance[places.negative]
        self._start = np.searchsorted(query, np.arange(pairs.queries))
        self._key = _key(query, self._distance)
        self.missing_positives = self.count(self.query[self.missing])
        self.missing_negatives = self.valid - self.positives - self.count(query)
        slot = np.searchsorted(thresholds, self._distance) + query * (len(thresholds) + 1)
        shape = pairs.queries, len(thresholds) + 1
        counts = np.bincount(slot, minlength=math.prod(shape)).reshape(shape)
        self.within = np.cumsum(counts[:, :-1], axis=1)
        if edges is not None:
            bins = np.searchsorted(edges, self._distance)
            self._histogram = np.bincount(bins, minlength=len(edges) + 1)
        self.nearest = np.full(pairs.queries, np.inf)
        np.minimum.at(self.nearest, query, self._distance)

    def count(self, query: IntArray) -> IntArray:
        """Return how often each query is named, [Q] int64."""
        return np.bincount(query, minlength=len(self.valid))

    def ahead(self, distance: FloatArray) -> Ahead:
        """Return the listed negatives closer than each positive, as far, and as far but before."""
        wanted = _key(self.query, distance)
        first, last = (np.searchsorted(self._key, wanted, side) for side in ("left", "right"))
        new = np.append(True, self._key[1:] != self._key[:-1])[: len(self._key)]
        level = np.maximum.accumulate(np.arange(len(new)) * new)  # the first entry as far
        before = np.searchsorted(_key(level, self._item), _key(first, self.item)) - first
        return first - self._start[self.query], last - first, np.where(last > first, before, 0)

    def statistics(
        self, distance: FloatArray, ahead: Ahead, within: IntArray, nearest: FloatArray
    ) -> RankStatistics:
        """Return statistics, the positives sorted by distance, then index."""
        order = order_within(self.indptr, distance)
        closer, tied, before = (counts[order] for counts in ahead)
        return RankStatistics(
            indptr=self.indptr,
            positive_distance=distance[order],
            thresholds=self._thresholds,
            closer=closer,
            tied=tied,
            tied_before=before,
            negatives_within=within,
            nearest_negative=nearest,
            valid=self.valid,
            ignored=self._ignored,
            same_identity=self._same,
            positive_item=self.item[order],
            impostor_histogram=self._histogram,
            histogram_edges=self._edges,
        )


def _key(first: IntArray, second: AnyArray) -> npt.NDArray[np.complex128]:
    """Return numbers that are in the order of two, the first before the second."""
    key = np.empty(len(first), np.complex128)
    key.real, key.imag = first, second
    return key


def _furthest(indptr: IntArray, unknown: BoolArray) -> FloatArray:
    """Return for each unknown distance one of its own among the greatest there are, [P].

    All of a query differ: as equal ones they would count as one group of ties.
    """
    number = cumulated(unknown)
    left = np.repeat(number[indptr[1:]], np.diff(indptr)) - number[1:]
    return np.asarray(FURTHEST.view(np.int64) - left).view(np.float64)
