"""One task of each pass: tiles of its rectangle of pairs, masked and given to counters.

A task sees the whole job and its own rectangle of (query, gallery) pairs, opens nothing that
the job does not name, and returns something small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.kernels.counting import RankCounter
from streameval.kernels.edges import Edges, Positives
from streameval.kernels.extremes import ExtremesCounter, NearestCounter
from streameval.kernels.tiles import Tile
from streameval.planning.plan import Task
from streameval.planning.range import Range
from streameval.protocols.pairs import Pairs
from streameval.run.job import Job, PairPart, Thresholds
from streameval.run.progress import Watch
from streameval.single_shot.counter import ShotCounter
from streameval.statistics import FloatArray, IntArray, RankStatistics, histogram_of


def count(job: Job, task: Task, watch: Watch) -> RankStatistics:
    """Count a task: the statistics of its queries against its gallery items."""
    first, last = task.queries
    pairs = job.pairs.block(first, last)
    every_pair = np.ones(len(pairs.item), np.bool_)
    counter: TaskCounter | None = None
    if job.positives is not None:
        counter = TaskCounter(job, task, job.positives.block(first, last))
    for tile in job.source.tiles(job, task, watch, check=False):
        if counter is None:  # a strip, the one tile of its task, holds its own positives
            positives = _positives_of(pairs, tile)
            if np.isfinite(positives.distance).all():
                check_range(job.thresholds, positives, first)
            counter = TaskCounter(job, task, positives)
        counter.add(tile, tile.mask(pairs.indptr, pairs.item, every_pair))
    if counter is None:
        raise RuntimeError("a task without tiles has no positives")
    statistics = counter.statistics(pairs)
    _check_negatives_in_range(job, task, statistics, watch)
    return statistics


def masked_tiles(
    job: Job, task: Task, watch: Watch, masked: npt.NDArray[np.bool_] | None = None
) -> Iterator[Tile]:
    """Yield the tiles of a task without listed pairs.

    Parameters
    ----------
    job, task, watch
    masked : [L] bool, optional
        Which of the listed pairs of the task's queries to leave out; all by default.
    """
    pairs = job.pairs.block(*task.queries)
    if masked is None:
        masked = np.ones(len(pairs.item), np.bool_)
    for tile in job.source.tiles(job, task, watch):
        tile.mask(pairs.indptr, pairs.item, masked)
        yield tile


def extremes(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the least and greatest distance over a task's non-ignored pairs, [2] float64."""
    counter = ExtremesCounter(job.offset_rows(*task.queries))
    for tile in masked_tiles(job, task, watch, ~job.pairs.block(*task.queries).positive):
        counter.add(tile)
    return np.array([counter.least, counter.most])


def pair_distances(job: Job, part: PairPart, watch: Watch) -> FloatArray:
    """Return the canonical distances of listed pairs, [p] float64."""
    distances: FloatArray = job.source.pair_distances(job, part)
    watch.advance(part.pairs)
    return distances


class TaskCounter:
    """The counters of a task, and the statistics of what they count.

    Parameters
    ----------
    job : Job
    task : Task
    positives : Positives
        Of the task's queries.
    """

    def __init__(self, job: Job, task: Task, positives: Positives) -> None:
        self._job, self._task, self._positives = job, task, positives
        offset_row = job.offset_rows(*task.queries)
        self._ranks = RankCounter(Edges.build(positives, job.thresholds.edges), offset_row)
        self._shots = None if job.shots is None else ShotCounter(job.shots, positives, offset_row)
        self._nearest = None
        if job.near is not None:
            reach = job.near.reach[slice(*task.queries)]
            self._nearest = NearestCounter(job.near.most, reach, offset_row)

    def add(self, tile: Tile, masked: int) -> None:
        """Count a tile, of which so many finite values have been masked."""
        before = self._ranks.not_finite
        for counter in (self._ranks, self._shots, self._nearest):
            if counter is not None and tile.values.size:
                counter.add(tile)
        if tile.locate is not None and self._ranks.not_finite - before != masked:
            tile.locate()

    def statistics(self, pairs: Pairs) -> RankStatistics:
        """Return the statistics of the task's queries, whose pairs are given."""
        task, thresholds, positives = self._task, self._job.thresholds, self._positives
        positive, ignored, same_identity = pairs.counts_in(*task.gallery)
        valid = task.gallery[1] - task.gallery[0] - ignored
        closer, tied, tied_before, within = self._ranks.read(valid - positive)
        more: dict[str, Any] = self._histogram(within, valid - positive)
        if self._shots is not None:
            expected, sampled = self._shots.finish(pairs, tied, task.queries[0])
            more |= {"single_shot": expected, "sampled_shots": sampled}
        if self._nearest is not None:
            more["nearest_negatives"] = self._nearest.sorted()
        if thresholds.histogram is not None:
            within = within[:, np.searchsorted(thresholds.edges, thresholds.values)]
        return RankStatistics(
            indptr=positives.indptr,
            positive_distance=positives.distance,
            thresholds=thresholds.values,
            closer=closer,
            tied=tied,
            tied_before=tied_before,
            negatives_within=within,
            nearest_negative=self._ranks.counts.nearest,
            valid=valid,
            ignored=ignored,
            same_identity=same_identity,
            positive_item=positives.item,
            histogram_edges=thresholds.histogram,
            **more,
        )

    def _histogram(self, within: IntArray, negatives: IntArray) -> dict[str, Any]:
        """Return the histogram of impostors, and that of each group, where they are wanted."""
        thresholds, groups = self._job.thresholds, self._job.groups
        if thresholds.histogram is None:
            return {}
        edges = np.searchsorted(thresholds.edges, thresholds.histogram)
        histogram = histogram_of(within.sum(axis=0)[edges], negatives.sum())
        if groups is None:
            return {"impostor_histogram": histogram}
        group = groups[slice(*self._task.queries)]
        sums = np.zeros((int(groups.max()) + 1, within.shape[1] + 1), np.int64)
        np.add.at(sums, group, np.column_stack([within, negatives]))
        by_group = histogram_of(sums[:, edges], sums[:, -1])
        return {"impostor_histogram": histogram, "group": group, "group_histogram": by_group}


def _positives_of(pairs: Pairs, tile: Tile) -> Positives:
    """Return the positives of queries from a tile with all of the gallery."""
    indptr, item = pairs.positives()
    query = np.repeat(np.arange(pairs.queries), np.diff(indptr))
    return Positives.sort(indptr, tile.resolve(query, item), item)


def check_range(thresholds: Thresholds, positives: Positives, first_query: int) -> None:
    """Raise where a positive's distance lies outside a range that is given."""
    if thresholds.range.strict:
        outside = np.flatnonzero(thresholds.outside(positives.distance))
        if outside.size:
            at = outside[0]
            query = int(np.searchsorted(positives.indptr, at, side="right")) - 1 + first_query
            item, distance = int(positives.item[at]), float(positives.distance[at])
            raise RangeError(thresholds.range, query, item, distance)


class RangeError(InputError):
    """A distance outside a range that is given.

    Attributes
    ----------
    wanted : Range
    query, item : int
    value : float
    """

    def __init__(self, wanted: Range, query: int, item: int, value: float) -> None:
        super().__init__(
            f"the distance of query {query} to gallery item {item} is {value!r}, outside the given "
            f"range [{wanted.low!r}, {wanted.high!r}]: widen --range, or use --range minmax"
        )
        self.wanted, self.query, self.item, self.value = wanted, query, item, value

    def __reduce__(self) -> tuple[type[RangeError], tuple[Range, int, int, float]]:
        return type(self), (self.wanted, self.query, self.item, self.value)


def _check_negatives_in_range(
    job: Job, task: Task, statistics: RankStatistics, watch: Watch
) -> None:
    """Raise where a counted negative lies outside a range that is given."""
    thresholds = job.thresholds
    if not thresholds.range.strict:
        return
    positive, ignored, _ = job.pairs.block(*task.queries).counts_in(*task.gallery)
    negatives = task.gallery[1] - task.gallery[0] - ignored - positive
    above = statistics.negatives_within[:, -1] < negatives
    below = statistics.nearest_negative < thresholds.range.low
    offending = np.flatnonzero(above | below)
    if not offending.size:
        return
    query = task.queries[0] + int(offending[0])
    row = job.offset_rows(query, query + 1)[0]
    for tile in masked_tiles(job, Task((query, query + 1), task.gallery), watch):
        valid = np.flatnonzero(tile.values[0] + tile.columns.offset[row] < np.inf)
        values = tile.resolve(np.zeros(len(valid), np.int64), valid)
        outside = np.flatnonzero(thresholds.outside(values))
        if outside.size:
            item = int(tile.columns.item[valid[outside[0]]])
            raise RangeError(thresholds.range, query, item, float(values[outside[0]]))
