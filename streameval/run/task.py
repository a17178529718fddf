"""One task of each pass: tiles of its rectangle of pairs, masked and given to counters.

A task sees the whole job and its own rectangle of (query, gallery) pairs, opens nothing that
the job does not name, and returns something small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streameval.arrays.witness import read_otherwise
from streameval.errors import InputError
from streameval.kernels.counting import RankCounter
from streameval.kernels.drawn import DrawnCounter
from streameval.kernels.edges import Edges, Positives
from streameval.kernels.extremes import ExtremesCounter, NearestCounter
from streameval.kernels.limits import Sides, Wanted
from streameval.kernels.tiles import Tile
from streameval.planning.plan import Task
from streameval.planning.range import Range
from streameval.protocols.pairs import Pairs
from streameval.protocols.views import rows_at
from streameval.run.counted import counted_statistics, histogram_fields, statistics_of
from streameval.run.job import Job, PairPart
from streameval.run.progress import Watch
from streameval.run.share import Ahead, Share
from streameval.statistics import RankStatistics
from streameval.stretches import rows_of
from streameval.typing import BoolArray, ByteArray, FloatArray, IntArray


def count(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    """Count a task: the statistics of its queries against its gallery items.

    Those of each evaluation, share by share and member by member.
    """
    tallies = [
        (Tally if share.galleries is None else DrawnTally)(job, share, task) for share in job.shares
    ]
    first, sole = tallies[0], job.sole
    wanted = first.wanted if sole is not None and sole.ranks_alone else None
    tiles = job.tiled.tiles(job, task, watch, check=False, wanted=wanted)
    with job.cache.lend("part", (_part_bytes(job, task),)) as memory:
        for tile in tiles:
            for tally in tallies:
                tally.begin(tile)  # a strip, the one tile of its task, holds its own positives
            for tally in tallies:
                tally.add(tile, memory)
    return tuple(one for tally in tallies for one in tally.finish(watch))


def _part_bytes(job: Job, task: Task) -> int:
    """Return the bytes of a part of a tile."""
    rows, items = job.plan.tile
    rows, items = min(rows, task.queries[1] - task.queries[0]), min(items, job.plan.block)
    return 0 if job.sole is not None else 8 * rows * items


class Tally:
    """What a task counts for one share.

    Parameters
    ----------
    job : Job
    share : Share
        Of the job.
    task : Task
    """

    ranks: RankCounter
    _counter: RankCounter | DrawnCounter

    def __init__(self, job: Job, share: Share, task: Task) -> None:
        self._job, self._share, self._task = job, share, task
        self._own = own = share.own(task)
        self._pairs, self._cutter = share.pairs_of(own.queries), None
        if job.sole is None:
            self._cutter = share.cutter(own.queries, task.queries[0])
        self._every_pair = np.ones(len(self._pairs.item), np.bool_)
        self._taken = _room(share, self._pairs)
        self._positives: Positives | None = None
        self._masked: int | None = None  # of the tile that `begin` was given
        if share.positives is not None:
            self._start(share.positives_of(own.queries))

    def _start(self, positives: Positives) -> None:
        share = self._share
        self._positives = positives
        self.ranks = self._counter = RankCounter(Edges.build(positives, share.thresholds.edges))
        self._identities = None
        if share.identities is not None:
            self._identities = share.identities.counter(positives)
        self._nearest = None
        if share.near is not None:
            reach = share.near.reach[slice(*self._own.queries)]
            self._nearest = NearestCounter(share.near.most, reach)

    def wanted(self, item: IntArray) -> Sides:
        """Return which pairs with some items change what is counted."""
        return self.ranks.wanted(item)

    def begin(self, tile: Tile) -> None:
        """Take the positives from the first tile, where they are not known."""
        if self._positives is not None:
            return
        share, pairs = self._share, self._pairs
        indptr, item = pairs.positives()
        if self._job.sole is not None and tile.is_exact:
            self._taken = np.empty(len(pairs.item))  # once: each is in a cache line of its own
            self._masked = tile.mask(pairs.indptr, pairs.item, self._every_pair, self._taken)
            distances = self._taken[pairs.positive]
        else:
            query = rows_of(indptr) + self._own.queries[0]
            query = rows_at(share.view.queries, query) - self._task.queries[0]
            column = rows_at(share.view.items, item) - self._task.gallery[0]
            distances = tile.resolve(query, column)
        positives = Positives.sort(indptr, distances, item)
        if np.isfinite(positives.distance).all():
            check_range(share, positives, self._own.queries[0])
        self._start(positives)

    def add(self, tile: Tile, memory: ByteArray) -> None:
        """Count a tile."""
        pairs, before = self._pairs, self._counter.not_finite
        part = tile if self._cutter is None else self._cutter.cut(tile, memory)
        masked, self._masked = self._masked, None
        if masked is None:
            masked = part.mask(pairs.indptr, pairs.item, self._every_pair, self._taken)
        for counter in (self._counter, self._identities, self._nearest):
            if counter is not None and part.columns.item.size and (part.values.size or part.last):
                counter.add(part)
        if part.locate is not None and self._counter.not_finite - before != masked:
            part.locate()

    def finish(self, watch: Watch) -> Iterator[RankStatistics]:
        """Yield the statistics of each member."""
        share, own = self._share, self._own
        if self._positives is None:
            raise RuntimeError("a strip without a tile")
        _check_found(self._job, share, self._task, self._pairs, self._taken)
        numbers = self._pairs.counts_in(*own.gallery)
        positive, ignored, _ = numbers
        negatives = own.gallery[1] - own.gallery[0] - ignored - positive
        closer, tied, before, within = self.ranks.read(negatives)
        nearest = self.ranks.counts.nearest
        ahead = Ahead(self._positives, closer, tied, before, within, nearest)
        more: dict[str, Any] = {}
        if self._identities is not None:
            more |= self._identities.finish(self._pairs, ahead.tied, own.queries[0])
        if self._nearest is not None:
            more["nearest_negatives"] = self._nearest.sorted()
        evaluations = [(numbers, ahead)]
        if share.members:
            evaluations = [
                (
                    one.pairs.counts_in(*own.gallery),
                    ahead.of(one, self._pairs, own.gallery, share.thresholds.edges),
                )
                for one in share.members_of(own.queries)
            ]
        for of_pairs, counted in evaluations:
            statistics, negatives = counted_statistics(share, own, of_pairs, counted, more)
            if share.thresholds.range.strict:
                self._check_negatives(statistics, negatives, watch)
            yield statistics

    def _check_negatives(
        self, statistics: RankStatistics, negatives: IntArray, watch: Watch
    ) -> None:
        """Raise RangeError where one of the negatives lies outside a range that is given."""
        range_, first = self._share.thresholds.range, self._own.queries[0]
        above = statistics.negatives_within[:, -1] < negatives
        below = statistics.nearest_negative < range_.low
        for query in np.flatnonzero(above | below)[:1].tolist():
            _refuse_negative(self._job, self._share, first + query, self._task, watch)


class DrawnTally(Tally):
    """What a task counts for several galleries that are drawn from one: see `DrawnCounter`."""

    def _start(self, positives: Positives) -> None:
        share, own = self._share, self._own
        if share.galleries is None:
            raise RuntimeError("nothing is drawn")
        self._positives, self._identities, self._nearest = positives, None, None
        groups = np.zeros(len(positives.indptr) - 1, np.int64), 1
        if share.groups is not None:
            groups = share.groups[slice(*own.queries)], int(share.groups.max()) + 1
        edges, thresholds = Edges.build(positives, share.thresholds.edges), share.thresholds.values
        self._counter = self._drawn = DrawnCounter(edges, thresholds, share.galleries, *groups)

    def finish(self, watch: Watch) -> Iterator[RankStatistics]:
        """Yield the statistics of each gallery."""
        share, own, pairs, found = self._share, self._own, self._pairs, self._positives
        if share.galleries is None or found is None:
            raise RuntimeError("a strip without a tile")
        _check_found(self._job, share, self._task, pairs, self._taken)
        positive, same_identity = (
            share.galleries.numbers_of(*pairs.listed_in(*own.gallery, chosen))
            for chosen in (pairs.positive, pairs.same_identity)
        )
        sizes, counts = share.galleries.sizes(*own.gallery), self._drawn.counts
        for number, size in enumerate(sizes.tolist()):
            indptr, place, closer, tied, before = self._drawn.read(number)
            known = Positives(indptr, found.distance[place], found.item[place])
            negatives, within = counts.negatives[number], counts.within[number]
            valid = negatives + positive[number]
            sums = np.cumsum(counts.histogram[number, :, :-1], axis=1)
            if np.isinf(share.thresholds.edges[-1:]).any():  # no pair is beyond
                sums = np.column_stack([sums, sums[:, -1]])
            statistics = statistics_of(
                share,
                (valid, size - valid, same_identity[number]),
                Ahead(known, closer, tied, before, within, counts.nearest[number]),
                histogram_fields(share, own, sums),
            )
            if share.thresholds.range.strict:
                self._check_negatives(statistics, negatives, watch)
            yield statistics


def masked_tiles(
    job: Job,
    task: Task,
    watch: Watch,
    masked: Sequence[BoolArray] | None = None,
    wanted: Wanted | None = None,
) -> Iterator[tuple[int, Tile]]:
    """Yield the tiles of a task without listed pairs, and the number of the share of each.

    Parameters
    ----------
    job, task, watch
    masked : sequence of [L] bool, optional
        Of each share, which of the listed pairs of the task's queries to leave out; all by default.
    wanted : callable, optional
        Which pairs may not be left out: see `TiledSource.tiles`. Not asked of parts of tiles.
    """
    own = [share.own(task) for share in job.shares]
    pairs = [share.pairs_of(one.queries) for share, one in zip(job.shares, own, strict=True)]
    if masked is None:
        masked = [np.ones(len(one.item), np.bool_) for one in pairs]
    taken = [_room(share, one) for share, one in zip(job.shares, pairs, strict=True)]
    cutters = [
        None if job.sole is not None else share.cutter(one.queries, task.queries[0])
        for share, one in zip(job.shares, own, strict=True)
    ]
    if job.sole is None:  # parts of tiles are cut from values
        wanted = None
    for tile in job.tiled.tiles(job, task, watch, wanted=wanted):
        for number, cutter in enumerate(cutters):
            part = tile if cutter is None else cutter.cut(tile)
            listed = pairs[number]
            part.mask(listed.indptr, listed.item, masked[number], taken[number])
            yield number, part
    for share, one, values in zip(job.shares, pairs, taken, strict=True):
        _check_found(job, share, task, one, values)


def _room(share: Share, pairs: Pairs) -> FloatArray:
    """Return memory for the values of listed pairs, where those of positives must be as found."""
    return np.empty(0 if share.found is None else len(pairs.item))


def _check_found(job: Job, share: Share, task: Task, pairs: Pairs, taken: FloatArray) -> None:
    """Raise ChangedError where tiles of a task hold other positives than were found before."""
    if share.found is None:
        return
    first, (left, right) = share.own(task).queries[0], share.own(task).gallery
    begin = int(np.count_nonzero(share.pairs.positive[: share.pairs.indptr[first - share.first]]))
    at = np.flatnonzero(pairs.positive)
    found = share.found[begin : begin + len(at)]
    inside = (pairs.item[at] >= left) & (pairs.item[at] < right)
    for other in at[inside & (taken[at] != found)][:1]:
        number = first + int(np.searchsorted(pairs.indptr, other, side="right")) - 1
        row = int(rows_at(share.view.queries, np.array([number]))[0])
        (read,) = job.source.inputs()
        raise read_otherwise(f"{read.name} {read.uri}", f"rows {row}:{row + 1}")


def extremes(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the least and greatest distance over a task's non-ignored pairs, [shares, 2]."""
    counters = [ExtremesCounter() for _ in job.shares]
    kept = [~share.pairs_of(share.own(task).queries).positive for share in job.shares]
    for number, tile in masked_tiles(job, task, watch, kept):
        if tile.values.size:
            counters[number].add(tile)
    return np.array([(counter.least, counter.most) for counter in counters])


def pair_distances(job: Job, part: PairPart, watch: Watch) -> FloatArray:
    """Return the canonical distances of listed pairs, [p] float64."""
    distances = job.tiled.pair_distances(job, part)
    watch.advance(part.pairs)
    return distances


def check_range(share: Share, positives: Positives, first_query: int) -> None:
    """Raise where a positive's distance lies outside a range that is given."""
    thresholds = share.thresholds
    if thresholds.range.strict:
        for at in np.flatnonzero(thresholds.outside(positives.distance))[:1]:
            query = int(np.searchsorted(positives.indptr, at, side="right")) - 1 + first_query
            distance = float(positives.distance[at])
            raise _range_error(share, query, int(positives.item[at]), distance)


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


def _range_error(share: Share, query: int, item: int, value: float) -> RangeError:
    """Return the error of a pair, which is numbered as in the share's view."""
    rows = share.view.queries, share.view.items
    of, to = (
        int(rows_at(index, np.array([number]))[0])
        for index, number in zip(rows, (query, item), strict=True)
    )
    return RangeError(share.thresholds.range, of, to, value)


def _refuse_negative(job: Job, share: Share, query: int, task: Task, watch: Watch) -> None:
    """Raise RangeError for the first distance of a query that lies outside the range."""
    row = int(rows_at(share.view.queries, np.array([query]))[0])
    job = job.counting(share)
    for _, tile in masked_tiles(job, Task((row, row + 1), task.gallery), watch):
        valid = np.flatnonzero(tile.values[0] + tile.columns.offset[tile.offset_row[0]] < np.inf)
        values = tile.resolve(np.zeros(len(valid), np.int64), valid)
        for at in np.flatnonzero(share.thresholds.outside(values))[:1]:
            item, value = int(tile.columns.item[valid[at]]), float(values[at])
            raise _range_error(share, query, item, value)
