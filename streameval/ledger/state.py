"""The state of a ledger: its positives, the statistics of its gallery, and nearest negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.ledger.head import Head, Settings
from streameval.statistics import FloatArray, IntArray, RankStatistics
from streameval.store import Arrays


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

    def take(self, chosen: npt.NDArray[Any]) -> Positives:
        """Return the positives of an index or a mask."""
        return Positives(*(getattr(self, column.name)[chosen] for column in fields(self)))

    def join(self, more: Positives) -> tuple[Positives, IntArray]:
        """Return both, sorted, and the place of each in their concatenation."""
        both = Positives(
            *(
                np.concatenate([getattr(self, column.name), getattr(more, column.name)])
                for column in fields(self)
            )
        )
        order = np.lexsort((both.index, both.segment, both.distance, both.query))
        return both.take(order), order.astype(np.int64)

    def indptr(self, queries: IntArray) -> IntArray:
        """Return the first positive of each of these queries, ascending, and the end, [q + 1]."""
        begin = np.searchsorted(self.query, queries)
        return np.append(begin, len(self)).astype(np.int64)


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
    segment: npt.NDArray[np.int32]
    reach: FloatArray

    @classmethod
    def none(cls, queries: int, most: int) -> Near:
        """Return the nearest negatives in an empty gallery."""
        shape = queries, most
        return cls(np.full(shape, np.inf), np.full(shape, -1, np.int32), np.full(queries, np.inf))

    def merge(self, further: Sequence[tuple[int, FloatArray]], most: int) -> Near:
        """Return these and those of further segments, at most so many of each query.

        Parameters
        ----------
        further : sequence of (int, [Q, m] float64)
            A segment, and its nearest negatives: all that are within the reach, or m of them;
            −inf where float32 can't tell them apart.
        most : int
        """
        distances, owners = [self.distance], [self.segment]
        for number, values in further:
            finite = values[:, : int(np.isfinite(values).sum(axis=1).max(initial=0)) + 1]
            distances.append(finite)
            owners.append(np.full(finite.shape, number, np.int32))
        distance, segment = np.concatenate(distances, axis=1), np.concatenate(owners, axis=1)
        reach = np.where((distance == -np.inf).any(axis=1), -np.inf, self.reach)
        distance = np.where(distance < reach[:, None], distance, np.inf)
        order = np.argsort(distance, axis=1, kind="stable")[:, : most + 1]
        distance = np.take_along_axis(distance, order, axis=1)
        segment = np.take_along_axis(segment, order, axis=1)
        for _, values in further:  # m of a segment, and there may be more of it
            reach = np.minimum(reach, values[:, -1])
        if distance.shape[1] > most:
            reach = np.minimum(reach, distance[:, most])
        return Near(distance, segment, reach)._within_reach(most)

    def _within_reach(self, most: int) -> Near:
        """Return what is nearer than the reach, `most` columns wide."""
        inside = self.distance < self.reach[:, None]
        more = [(0, 0), (0, max(most - self.distance.shape[1], 0))]
        distance = np.pad(np.where(inside, self.distance, np.inf), more, constant_values=np.inf)
        segment = np.pad(np.where(inside, self.segment, -1), more, constant_values=-1)
        return Near(distance[:, :most], segment[:, :most].astype(np.int32), self.reach)

    def without(self, gone: npt.NDArray[np.bool_]) -> Near:
        """Return the negatives without those of a mask, [Q, M]."""
        distance = np.where(gone, np.inf, self.distance)
        order = np.argsort(distance, axis=1, kind="stable")
        segment = np.take_along_axis(np.where(gone, -1, self.segment), order, axis=1)
        return Near(np.take_along_axis(distance, order, axis=1), segment, self.reach)

    def without_distances(self, segment: int, values: FloatArray) -> Near:
        """Return the negatives without some of a segment, given by their distances, [Q, m]."""
        gone = np.zeros(self.distance.shape, np.bool_)
        reach = np.where((values == -np.inf).any(axis=1), -np.inf, self.reach)
        for i in np.flatnonzero(np.isfinite(values[:, 0])).tolist():
            inside = np.flatnonzero(self.segment[i] == segment)
            at = np.searchsorted(self.distance[i, inside], values[i])
            earlier = np.arange(values.shape[1]) - np.searchsorted(values[i], values[i])
            at = at + earlier  # of equal distances, the first for the first
            known = at < len(inside)
            known[known] &= self.distance[i, inside[at[known]]] == values[i][known]
            gone[i, inside[at[known]]] = True
        gone |= reach[:, None] == -np.inf
        return Near(self.distance, self.segment, reach).without(gone)

    def stack(self, other: Near, most: int) -> Near:
        """Return these and those of further queries, at most so many of each."""
        parts = self.merge([], most), other.merge([], most)
        return Near(
            *(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(self))
        )

    def few(self) -> npt.NDArray[np.bool_]:
        """Return a mask of queries with under half of their nearest negatives left, [Q]."""
        left = np.isfinite(self.distance).sum(axis=1)
        few: npt.NDArray[np.bool_] = 2 * left < self.distance.shape[1]
        return few & (self.reach < np.inf)

    def put(self, queries: IntArray, other: Near) -> Near:
        """Return the negatives with those of some queries replaced."""
        arrays = []
        for column in fields(self):
            values = getattr(self, column.name).copy()
            values[queries] = getattr(other, column.name)
            arrays.append(values)
        return Near(*arrays)


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
    def empty(cls, head: Head) -> State:
        """Return the state of a ledger without segments."""
        queries, settings = head.queries, head.settings
        near = Near.none(queries, settings.near(queries))
        statistics = no_statistics(queries, settings)
        return cls(head, Positives.none(), statistics, near, np.empty(0, np.int64))

    def with_entry(self, entry: Mapping[str, Any]) -> State:
        """Return the state with a further entry of its trajectory."""
        return replace(self, head=self.head.with_entry(entry))


def no_statistics(queries: int, settings: Settings) -> RankStatistics:
    """Return the statistics of so many queries against an empty gallery."""
    indptr = np.zeros(queries + 1, np.int64)
    return RankStatistics.zero(indptr, np.empty(0), *settings.limits)


def add_positives(
    statistics: RankStatistics, positives: Positives, order: IntArray
) -> RankStatistics:
    """Return statistics with further positives, whose counts are 0; see `Positives.join`."""
    more = np.zeros(len(positives) - len(statistics.closer), np.int64)
    counts = {
        name: np.concatenate([getattr(statistics, name), more])[order]
        for name in ("closer", "tied", "tied_before")
    }
    indptr = positives.indptr(np.arange(statistics.queries))
    return replace(statistics, indptr=indptr, positive_distance=positives.distance, **counts)


def arrays_of(statistics: RankStatistics) -> dict[str, npt.NDArray[Any]]:
    """Return the counts of queries as they are written.

    Returns
    -------
    dict of str to array
        per_query [Q, 3] int64 (valid, ignored, same_identity), within [Q, T] int64,
        nearest [Q] float64, histogram [E + 1] int64, empty where there is none.
    """
    histogram = statistics.impostor_histogram
    counts = statistics.valid, statistics.ignored, statistics.same_identity
    return {
        "per_query": np.stack(counts, axis=1),
        "within": statistics.negatives_within,
        "nearest": statistics.nearest_negative,
        "histogram": np.zeros(0, np.int64) if histogram is None else histogram,
    }


def statistics_from(
    arrays: Arrays,
    settings: Settings,
    positives: Positives,
    closer: IntArray,
    tied: IntArray,
    tied_before: IntArray,
) -> RankStatistics:
    """Return statistics from the counts of positives, and those of queries by `arrays_of`."""
    thresholds, edges = settings.limits
    valid, ignored, same_identity = np.ascontiguousarray(arrays["per_query"].T)
    return RankStatistics(
        indptr=positives.indptr(np.arange(len(valid))),
        positive_distance=positives.distance,
        thresholds=thresholds,
        closer=closer,
        tied=tied,
        tied_before=tied_before,
        negatives_within=arrays["within"],
        nearest_negative=arrays["nearest"],
        valid=valid,
        ignored=ignored,
        same_identity=same_identity,
        impostor_histogram=None if edges is None else arrays["histogram"],
        histogram_edges=edges,
    )
