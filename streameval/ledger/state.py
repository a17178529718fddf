"""The state of a ledger: its positives, the statistics of its gallery, and nearest negatives.

What a segment adds to the counts of positives is sparse: a *cell* holds what it adds to one
positive, unless both counts are 0. Cells are [4, c] int64: the serial of the positive, the number
of the segment, closer, tied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streameval.ledger.head import Head, Settings
from streameval.statistics import RankStatistics
from streameval.store import Arrays
from streameval.typing import AnyArray, BoolArray, FloatArray, Int32Array, IntArray

Nearest = Sequence[tuple[int, FloatArray]]
"""Nearest negatives of queries, [q, m], each with the number of a segment."""


@dataclass(frozen=True, eq=False)
class Positives:
    """Positive pairs, by query, then distance, then place in the gallery.

    Attributes
    ----------
    serial : [P] int64
        Identifies a positive in the records; never given twice.
    query : [P] int64
    segment, index : [P] int64
        Number of the segment, and the item's index in it, forgotten items included.
    distance : [P] float64
    """

    serial: IntArray
    query: IntArray
    segment: IntArray
    index: IntArray
    distance: FloatArray

    @classmethod
    def none(cls) -> Positives:
        """Return no positives."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, empty, np.empty(0))

    def __len__(self) -> int:
        return len(self.serial)

    def take(self, chosen: AnyArray) -> Positives:
        """Return the positives of an index or a mask."""
        return Positives(*(column[chosen] for column in vars(self).values()))

    def join(self, more: Positives) -> tuple[Positives, IntArray]:
        """Return both, sorted, and the place of each in their concatenation."""
        both = Positives(*_stacked(self, more))
        order = np.lexsort((both.index, both.segment, both.distance, both.query))
        return both.take(order), order.astype(np.int64)

    def indptr(self, queries: IntArray) -> IntArray:
        """Return the first positive of each of these queries, ascending, and the end, [q + 1]."""
        return np.append(np.searchsorted(self.query, queries), len(self)).astype(np.int64)

    def sum_cells(self, cells: IntArray) -> IntArray:
        """Return the sums of closer and of tied over the cells of each positive, [2, P] int64."""
        sums = np.zeros((2, len(self)), np.int64)
        if len(self):
            order = np.argsort(self.serial)
            at = np.searchsorted(self.serial, cells[0], sorter=order)
            place = order[np.minimum(at, len(self) - 1)]
            known = self.serial[place] == cells[0]
            for counts, added in zip(sums, cells[2:, known], strict=True):
                np.add.at(counts, place[known], added)
        return sums


@dataclass(frozen=True, eq=False)
class Near:
    """The nearest negatives of each query: all that are nearer than its reach.

    Attributes
    ----------
    distance : [Q, M] float64
        Ascending; +inf behind the last.
    segment : [Q, M] int32
        Number of the segment; −1 behind the last.
    reach : [Q] float64
        +inf where these are all negatives; −inf where none are kept.
    """

    distance: FloatArray
    segment: Int32Array
    reach: FloatArray

    @classmethod
    def none(cls, queries: int, most: int) -> Near:
        """Return the nearest negatives in an empty gallery."""
        shape = queries, most
        return cls(np.full(shape, np.inf), np.full(shape, -1, np.int32), np.full(queries, np.inf))

    def sorted(self, most: int) -> Near:
        """Return those nearer than the reach in ascending order, `most` columns wide."""
        near = np.where(self.distance < self.reach[:, None], self.distance, np.inf)
        order = np.argsort(near, axis=1, kind="stable")[:, : most + 1]
        spare = (0, 0), (0, most + 1 - order.shape[1])
        near = np.pad(np.take_along_axis(near, order, axis=1), spare, constant_values=np.inf)
        segment = np.pad(np.take_along_axis(self.segment, order, axis=1), spare)
        reach = np.minimum(self.reach, near[:, most])
        beyond = near >= reach[:, None]
        near, segment = np.where(beyond, np.inf, near), np.where(beyond, np.int32(-1), segment)
        return Near(near[:, :most], segment[:, :most], reach)

    def merge(self, further: Nearest) -> Near:
        """Return these and those of further segments, at most M of each query.

        Beside a segment are its nearest negatives [q, m]: all that are within the reach, or m of
        them; −inf throughout where float32 can't tell them apart.
        """
        distances, owners, reach = [self.distance], [self.segment], self.reach
        for number, values in further:
            finite = values[:, : int(np.isfinite(values).sum(axis=1).max(initial=0)) + 1]
            distances.append(finite)
            owners.append(np.full(finite.shape, number, np.int32))
            reach = np.minimum(reach, values[:, -1])  # m of a segment, and there may be more of it
        every = Near(np.concatenate(distances, axis=1), np.concatenate(owners, axis=1), reach)
        return every.sorted(self.distance.shape[1])

    def without(self, gone: BoolArray) -> Near:
        """Return the negatives without those of a mask, [Q, M]."""
        left = replace(self, distance=np.where(gone, np.inf, self.distance))
        return left.sorted(gone.shape[1])

    def without_distances(self, segment: int, values: FloatArray) -> Near:
        """Return the negatives without some of a segment, given by their distances, [Q, m]."""
        gone = np.zeros(self.distance.shape, np.bool_)
        reach = np.where(values[:, 0] == -np.inf, -np.inf, self.reach)
        for i in np.flatnonzero(np.isfinite(values[:, 0])).tolist():
            inside = np.flatnonzero(self.segment[i] == segment)
            at = np.searchsorted(self.distance[i, inside], values[i])
            at += np.arange(len(at)) - np.searchsorted(values[i], values[i])  # of equal distances
            known = at < len(inside)
            known[known] &= self.distance[i, inside[at[known]]] == values[i][known]
            gone[i, inside[at[known]]] = True
        return replace(self, reach=reach).without(gone)

    def stack(self, other: Near) -> Near:
        """Return these and those of further queries, at most as many of each as of the latter."""
        return Near(*_stacked(self.sorted(other.distance.shape[1]), other))

    def few(self) -> BoolArray:
        """Return a mask of queries with under half of their nearest negatives left, [Q]."""
        few: BoolArray = 2 * np.isfinite(self.distance).sum(axis=1) < self.distance.shape[1]
        return few & (self.reach < np.inf)

    def put(self, queries: IntArray, other: Near) -> Near:
        """Return the negatives with those of some queries replaced."""
        both = Near(*map(np.copy, vars(self).values()))
        for name, values in vars(other).items():
            getattr(both, name)[queries] = values
        return both


@dataclass(frozen=True, eq=False)
class State:
    """The state of a ledger after a change.

    Attributes
    ----------
    head : Head
    positives : Positives
    statistics : RankStatistics
        Of all queries against the gallery, with these positives.
    near : Near
    forgotten : [f] int64
        Forgotten items, ascending, as indices into all items that were ever appended.
    """

    head: Head
    positives: Positives
    statistics: RankStatistics
    near: Near
    forgotten: IntArray

    @classmethod
    def empty(cls, head: Head, queries: int) -> State:
        """Return the state of so many of the queries without a gallery."""
        near = Near.none(queries, head.settings.near(head.queries))
        positives = Positives.none()
        statistics = no_statistics(queries, positives, head.settings)
        return cls(head, positives, statistics, near, np.empty(0, np.int64))


def no_statistics(queries: int, positives: Positives, settings: Settings) -> RankStatistics:
    """Return the statistics of queries and their positives against an empty gallery."""
    return RankStatistics.zero(
        positives.indptr(np.arange(queries)), positives.distance, *settings.limits
    )


def add_positives(
    statistics: RankStatistics, positives: Positives, order: IntArray
) -> RankStatistics:
    """Return statistics with further positives, whose counts are 0; see `Positives.join`."""
    more = np.zeros(len(positives) - len(statistics.closer), np.int64)
    counts = {
        name: np.append(getattr(statistics, name), more)[order]
        for name in ("closer", "tied", "tied_before")
    }
    indptr = positives.indptr(np.arange(statistics.queries))
    return replace(statistics, indptr=indptr, positive_distance=positives.distance, **counts)


def arrays_of(statistics: RankStatistics) -> dict[str, AnyArray]:
    """Return the counts of queries as they are written: see `Record`."""
    histogram = statistics.impostor_histogram
    counts = statistics.valid, statistics.ignored, statistics.same_identity
    return {
        "per_query": np.stack(counts, axis=1),
        "within": statistics.negatives_within,
        "nearest": statistics.nearest_negative,
        "histogram": np.zeros(0, np.int64) if histogram is None else histogram,
    }


def statistics_from(
    arrays: Arrays, settings: Settings, positives: Positives, counts: Sequence[IntArray]
) -> RankStatistics:
    """Return statistics from (closer, tied, tied_before) and counts of queries by `arrays_of`."""
    (thresholds, edges), (closer, tied, before) = settings.limits, counts
    valid, ignored, same_identity = np.ascontiguousarray(arrays["per_query"].T)
    return RankStatistics(
        positives.indptr(np.arange(len(valid))),
        positives.distance,
        thresholds,
        closer,
        tied,
        before,
        arrays["within"],
        arrays["nearest"],
        valid,
        ignored,
        same_identity,
        impostor_histogram=None if edges is None else arrays["histogram"],
        histogram_edges=edges,
    )


def cells_of(
    serial: IntArray, segment: int | IntArray, closer: IntArray, tied: IntArray
) -> IntArray:
    """Return the cells of positives whose counts are not all 0, [4, c] int64."""
    every = np.stack(np.broadcast_arrays(serial, segment, closer, tied)).astype(np.int64)
    return every[:, (closer != 0) | (tied != 0)]


def join_cells(cells: Sequence[IntArray]) -> IntArray:
    """Return cells one after the other."""
    return np.concatenate([np.empty((4, 0), np.int64), *cells], axis=1)


def _stacked(one: object, other: object) -> list[AnyArray]:
    """Return each array of a dataclass, with that of another appended."""
    return [*map(np.concatenate, zip(vars(one).values(), vars(other).values(), strict=True))]
