"""One task of each pass: tiles of its rectangle of pairs, masked and given to counters.

A task sees the whole job and its own rectangle of (query, gallery) pairs, opens nothing that
the job does not name, and returns something small.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from streameval.arrays.witness import read_otherwise
from streameval.errors import InputError
from streameval.kernels.counting import RankCounter
from streameval.kernels.edges import Edges, Positives
from streameval.kernels.extremes import ExtremesCounter, NearestCounter
from streameval.kernels.features import Reach
from streameval.kernels.tiles import Tile
from streameval.planning.plan import Task
from streameval.planning.range import Range
from streameval.protocols.pairs import Pairs
from streameval.run.job import Job, PairPart, Thresholds
from streameval.run.progress import Watch
from streameval.single_shot.counter import ShotCounter
from streameval.statistics import RankStatistics
from streameval.stretches import histogram_of, rows_of
from streameval.typing import BoolArray, FloatArray, IntArray, Span


def count(job: Job, task: Task, watch: Watch) -> RankStatistics:
    """Count a task: the statistics of its queries against its gallery items."""
    first, last = task.queries
    pairs, thresholds = job.pairs_of(task.queries), job.thresholds
    every_pair, taken = np.ones(len(pairs.item), np.bool_), _room(job, pairs)
    ranks: RankCounter
    reach = (lambda: ranks.reach()) if job.ranks_alone else None
    tiles = job.tiled.tiles(job, task, watch, check=False, reach=reach)
    if job.positives is None:  # a strip, the one tile of its task, holds its own positives
        strip = next(tiles)
        positives, tiles = _positives_of(pairs, strip), chain([strip], tiles)
        if np.isfinite(positives.distance).all():
            check_range(thresholds, positives, first)
    else:
        positives = job.positives_of(task.queries)
    ranks = RankCounter(Edges.build(positives, thresholds.edges))
    shots = None if job.shots is None else ShotCounter(job.shots, positives)
    nearest = None
    if job.near is not None:
        nearest = NearestCounter(job.near.most, job.near.reach[first:last])
    for tile in tiles:
        masked, before = tile.mask(pairs.indptr, pairs.item, every_pair, taken), ranks.not_finite
        for counter in (ranks, shots, nearest):
            if counter is not None and tile.values.size:
                counter.add(tile)
        if tile.locate is not None and ranks.not_finite - before != masked:
            tile.locate()
    _check_found(job, task, pairs, taken)
    positive, ignored, same_identity = pairs.counts_in(*task.gallery)
    valid = task.gallery[1] - task.gallery[0] - ignored
    negatives = valid - positive
    closer, tied, tied_before, within = ranks.read(negatives)
    more = _histogram(job, task, within, negatives)
    if more:  # beside the thresholds there are edges
        within = within[:, np.searchsorted(thresholds.edges, thresholds.values)]
    if shots is not None:
        more["single_shot"], more["sampled_shots"] = shots.finish(pairs, tied, first)
    if nearest is not None:
        more["nearest_negatives"] = nearest.sorted()
    statistics = RankStatistics(
        indptr=positives.indptr,
        positive_distance=positives.distance,
        thresholds=thresholds.values,
        closer=closer,
        tied=tied,
        tied_before=tied_before,
        negatives_within=within,
        nearest_negative=ranks.counts.nearest,
        valid=valid,
        ignored=ignored,
        same_identity=same_identity,
        positive_item=positives.item,
        **more,
    )
    if thresholds.range.strict:
        above = within[:, -1] < negatives
        below = statistics.nearest_negative < thresholds.range.low
        for query in np.flatnonzero(above | below)[:1].tolist():
            _refuse_negative(job, (first + query, first + query + 1), task.gallery, watch)
    return statistics


def _histogram(job: Job, task: Task, within: IntArray, negatives: IntArray) -> dict[str, Any]:
    """Return the histogram of impostors and its edges, and that of each group, where wanted.

    `within` [q, E] are the negatives within each threshold and edge, `negatives` [q] all.
    """
    thresholds, groups = job.thresholds, job.groups
    if thresholds.histogram is None:
        return {}
    edges = np.searchsorted(thresholds.edges, thresholds.histogram)
    histogram = histogram_of(within.sum(axis=0)[edges], negatives.sum())
    found = {"impostor_histogram": histogram, "histogram_edges": thresholds.histogram}
    if groups is None:
        return found
    group = groups[slice(*task.queries)]
    sums = np.zeros((int(groups.max()) + 1, within.shape[1] + 1), np.int64)
    np.add.at(sums, group, np.column_stack([within, negatives]))
    by_group = histogram_of(sums[:, edges], sums[:, -1])
    return found | {"group": group, "group_histogram": by_group}


def masked_tiles(
    job: Job,
    task: Task,
    watch: Watch,
    masked: BoolArray | None = None,
    reach: Reach | None = None,
) -> Iterator[Tile]:
    """Yield the tiles of a task without listed pairs.

    Parameters
    ----------
    job, task, watch
    masked : [L] bool, optional
        Which of the listed pairs of the task's queries to leave out; all by default.
    reach : callable, optional
        Beyond which pairs may be left out, too: see `TiledSource.tiles`.
    """
    pairs = job.pairs_of(task.queries)
    if masked is None:
        masked = np.ones(len(pairs.item), np.bool_)
    taken = _room(job, pairs)
    for tile in job.tiled.tiles(job, task, watch, reach=reach):
        tile.mask(pairs.indptr, pairs.item, masked, taken)
        yield tile
    _check_found(job, task, pairs, taken)


def _room(job: Job, pairs: Pairs) -> FloatArray:
    """Return memory for the values of listed pairs, where those of positives must be as found."""
    return np.empty(0 if job.found is None else len(pairs.item))


def _check_found(job: Job, task: Task, pairs: Pairs, taken: FloatArray) -> None:
    """Raise ChangedError where tiles of a task hold other positives than were found before."""
    if job.found is None:
        return
    first, (left, right) = task.queries[0], task.gallery
    begin = int(np.count_nonzero(job.pairs.positive[: job.pairs.indptr[first - job.first]]))
    at = np.flatnonzero(pairs.positive)
    found = job.found[begin : begin + len(at)]
    inside = (pairs.item[at] >= left) & (pairs.item[at] < right)
    for other in at[inside & (taken[at] != found)][:1]:
        row = first + int(np.searchsorted(pairs.indptr, other, side="right")) - 1
        (read,) = job.source.inputs()
        raise read_otherwise(f"{read.name} {read.uri}", f"rows {row}:{row + 1}")


def extremes(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the least and greatest distance over a task's non-ignored pairs, [2] float64."""
    counter = ExtremesCounter()
    for tile in masked_tiles(job, task, watch, ~job.pairs_of(task.queries).positive):
        counter.add(tile)
    return np.array([counter.least, counter.most])


def pair_distances(job: Job, part: PairPart, watch: Watch) -> FloatArray:
    """Return the canonical distances of listed pairs, [p] float64."""
    distances = job.tiled.pair_distances(job, part)
    watch.advance(part.pairs)
    return distances


def _positives_of(pairs: Pairs, tile: Tile) -> Positives:
    """Return the positives of queries from a tile with all of the gallery."""
    indptr, item = pairs.positives()
    query = rows_of(indptr)
    return Positives.sort(indptr, tile.resolve(query, item), item)


def check_range(thresholds: Thresholds, positives: Positives, first_query: int) -> None:
    """Raise where a positive's distance lies outside a range that is given."""
    if thresholds.range.strict:
        for at in np.flatnonzero(thresholds.outside(positives.distance))[:1]:
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
        super().__init__(wanted, query, item, value)
        self.wanted, self.query, self.item, self.value = wanted, query, item, value

    def __str__(self) -> str:
        return (
            f"the distance of query {self.query} to gallery item {self.item} is {self.value!r}, "
            f"outside the given range [{self.wanted.low!r}, {self.wanted.high!r}]: widen --range, "
            "or use --range minmax"
        )


def _refuse_negative(job: Job, query: Span, gallery: Span, watch: Watch) -> None:
    """Raise RangeError for the first distance of a query that lies outside the range."""
    for tile in masked_tiles(job, Task(query, gallery), watch):
        valid = np.flatnonzero(tile.values[0] + tile.columns.offset[tile.offset_row[0]] < np.inf)
        values = tile.resolve(np.zeros(len(valid), np.int64), valid)
        for at in np.flatnonzero(job.thresholds.outside(values))[:1]:
            item, value = int(tile.columns.item[valid[at]]), float(values[at])
            raise RangeError(job.thresholds.range, query[0], item, value)
