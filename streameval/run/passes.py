"""The passes of an evaluation, and the merging of their parts."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, itemgetter

import numpy as np

from streameval.kernels.edges import Positives
from streameval.kernels.stretches import StretchCounter
from streameval.metrics.blocks import RankedQueries
from streameval.metrics.metric import Measure
from streameval.metrics.options import MetricOptions
from streameval.metrics.verification import settling_edges
from streameval.planning.plan import Task
from streameval.run.executor import Pass
from streameval.run.job import Job, PairPart, Thresholds
from streameval.run.progress import Watch
from streameval.run.record import NO_RECORD, Arrays, Stage
from streameval.run.session import Session
from streameval.run.task import check_range, count, extremes, masked_tiles, pair_distances
from streameval.statistics import FIELDS, FloatArray, IntArray, RankStatistics

PER_PASS = 1000  # edges that a pass of refining counts: no more than the pass before


def whole_range(task: Task) -> None:
    """Return the one group of all tasks that look for the range of the distances."""


def wider(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the least and the greatest of both."""
    return np.array([min(one[0], other[0]), max(one[1], other[1])])


by_queries = attrgetter("queries")
"""Group of a task: parts of the same queries merge."""

FIND_RANGE: Pass[Task, FloatArray] = Pass("range", extremes, wider, whole_range)
FIND_POSITIVES: Pass[PairPart, FloatArray] = Pass("positives", pair_distances)
COUNT: Pass[Task, RankStatistics] = Pass("count", count, RankStatistics.merge, by_queries)


def find_positives(job: Job, session: Session) -> Job:
    """Return the job with its positives' canonical distances.

    A job in strips of a stored matrix is returned as it is: its strips hold their positives.
    """
    if job.plan.layout == "strips":
        return job
    indptr, item = job.pairs.positives()
    query = np.repeat(np.arange(job.pairs.queries), np.diff(indptr))
    distance = listed_distances(job, query, item, session, session.stage)
    positives = Positives.sort(indptr, distance, item)
    check_range(job.thresholds, positives, 0)
    return replace(job, positives=positives)


def listed_distances(
    job: Job,
    query: np.ndarray,
    item: np.ndarray,
    session: Session,
    stage: Callable[[str, int], Stage] = NO_RECORD.stage,
    label: str = "positives",
) -> FloatArray:
    """Return the canonical distances of listed pairs, [p] float64.

    Parameters
    ----------
    job : Job
    query, item : [p] int64
        The pairs, in ascending order of query.
    session : Session
    stage : callable
        Begins the stage that keeps them.
    label : str
        Name of the pass.
    """
    chosen = job.source.pair_parts(job.plan, query, item)
    parts = [part for _, part in chosen]
    kept = stage("positives", len(parts))
    known = kept.state.get("distance", {})
    distance = np.array(known["values"]) if known else np.empty(len(item))
    for indices, values in session.run(FIND_POSITIVES, job, parts, label, kept):
        distance[chosen[indices[0]][0]] = values
        kept.keep(indices, "distance", {"values": distance})
    return distance


def find_extremes(job: Job, session: Session) -> FloatArray:
    """Return the least and greatest distance over all non-ignored pairs; (inf, −inf) of none."""
    tasks = job.plan.tasks
    stage = session.stage("range", len(tasks))
    pack = _pack_range, itemgetter("range")
    return session.sums(FIND_RANGE, job, tasks, "range", stage, pack)[None]


def _pack_range(range_: FloatArray) -> Arrays:
    return {"range": range_}


def count_all(job: Job, session: Session, name: str = "counting") -> RankStatistics:
    """Count every pair: shards merge, blocks of queries stack."""
    tasks = job.plan.tasks
    stage = session.stage(name, len(tasks))
    parts = session.sums(COUNT, job, tasks, name.split()[0], stage, (_pack, _unpack))
    return RankStatistics.stack(list(parts.values()))


def _pack(statistics: RankStatistics) -> Arrays:
    values = {name: getattr(statistics, name) for name in FIELDS}
    return {name: array for name, array in values.items() if array is not None}


def _unpack(arrays: Arrays) -> RankStatistics:
    return RankStatistics(**{name: np.array(array) for name, array in arrays.items()})


@dataclass(frozen=True)
class Stretch:
    """Group of a counting task where stretches of the gallery stay apart.

    Attributes
    ----------
    ends : tuple of int
        Where each stretch ends, ascending.
    """

    ends: tuple[int, ...]

    def __call__(self, task: Task) -> tuple[int, tuple[int, int]]:
        """Return the number of a task's stretch, and its queries."""
        return bisect_right(self.ends, task.gallery[0]), task.queries


def count_stretches(job: Job, ends: Sequence[int], session: Session) -> list[RankStatistics]:
    """Count every pair, and keep stretches of the gallery apart.

    Parameters
    ----------
    job, session
    ends : sequence of int
        Where each stretch ends, strictly ascending; the last is the end of the gallery.

    Returns
    -------
    list of RankStatistics
        Of all queries against each stretch.
    """
    tasks = tuple(
        Task(task.queries, (max(left, task.gallery[0]), min(right, task.gallery[1])))
        for task in job.plan.tasks
        for left, right in pairwise([0, *ends])
        if left < task.gallery[1] and task.gallery[0] < right
    )
    job = replace(job, plan=replace(job.plan, tasks=tasks))
    work = replace(COUNT, group=Stretch(tuple(ends)))
    stretches: list[list[RankStatistics]] = [[] for _ in ends]
    for (number, _), part in session.sums(work, job, tasks, "counting").items():
        stretches[number].append(part)
    return [RankStatistics.stack(parts) for parts in stretches]


@dataclass(frozen=True)
class Stretches(Task):
    """A task, and the stretches of the gallery that it is in.

    Attributes
    ----------
    cuts : tuple of int
        Where in the gallery they begin, within the task, and its end.
    first : int
        The number of the first.
    """

    cuts: tuple[int, ...]
    first: int


def ranks(job: Job, task: Stretches, watch: Watch) -> IntArray:
    """Count negatives closer than each positive of a task's queries, and as far, [s, 2, p]."""
    positives = job.known_positives().block(*task.queries)
    counter = StretchCounter(positives, np.array(task.cuts), job.offset_rows(*task.queries))
    for tile in masked_tiles(job, task, watch):
        counter.add(tile)
    return counter.ahead


RANKS: Pass[Stretches, IntArray] = Pass("count", ranks)


def rank_stretches(job: Job, ends: Sequence[int], session: Session) -> IntArray:
    """Count the negatives ahead of the positives of a job, each stretch of the gallery apart.

    Parameters
    ----------
    job : Job
        With its positives.
    ends : sequence of int
        Where each stretch ends, strictly ascending; the last is the end of the gallery.
    session : Session

    Returns
    -------
    [stretches, 2, P] int64
        Negatives closer than each positive, and as far as it.
    """
    items: list[Stretches] = []
    for task in job.plan.tasks:
        left, right = task.gallery
        first, last = bisect_right(ends, left), bisect_right(ends, right - 1)
        cuts = left, *ends[first:last], right
        items.append(Stretches(task.queries, task.gallery, cuts, first))
    indptr = job.known_positives().indptr
    ahead = np.zeros((len(ends), 2, int(indptr[-1])), np.int64)
    for indices, part in session.run(RANKS, job, items, "counting"):
        item = items[indices[0]]
        begin, end = (indptr[query] for query in item.queries)
        ahead[item.first : item.first + len(part), :, begin:end] += part
    return ahead


def refine(
    job: Job, counted: RankStatistics, measures: Sequence[Measure], session: Session
) -> RankStatistics:
    """Return the statistics with edges of the histogram that settle the metrics' thresholds.

    One pass does where there are fewer genuine distances in the bin of a threshold than edges
    are counted at a time; otherwise each leaves a part of these, as small as the share of the
    edges in them.

    Parameters
    ----------
    job : Job
    counted : RankStatistics
        With a histogram.
    measures : sequence of Measure
    session : Session
    """
    # The range has been checked, and single shots are counted.
    range_ = replace(job.thresholds.range, strict=False)
    beside = replace(job, shots=None)
    for number in itertools.count(1):
        edges = _settling_edges(counted, measures)
        if not len(edges):
            break
        further = replace(beside, thresholds=Thresholds(range_, np.empty(0), edges))
        finer = count_all(further, session, f"refining {number}")
        counted = counted.merge_edges(finer)
    return counted


def _settling_edges(counted: RankStatistics, measures: Sequence[Measure]) -> FloatArray:
    totals = RankedQueries(counted, MetricOptions()).totals
    edges: FloatArray = np.empty(0)
    for measure in measures:
        between = measure.call(measure.metric.unsettled, totals)
        if between is not None:
            own = settling_edges(totals, between, PER_PASS // len(measures))
            edges = np.union1d(edges, own)
    return edges
