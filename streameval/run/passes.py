"""The passes of an evaluation, and the merging of their parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import attrgetter

import numpy as np

from streameval.kernels.edges import Positives
from streameval.kernels.stretches import StretchCounter
from streameval.metrics.blocks import totals_of
from streameval.metrics.metric import Measure
from streameval.metrics.options import MetricOptions
from streameval.metrics.verification import settling_edges
from streameval.planning.plan import Task
from streameval.planning.range import Range
from streameval.run.executor import Pass
from streameval.run.job import Job, PairPart
from streameval.run.progress import Watch
from streameval.run.record import NO_RECORD, Record
from streameval.run.session import Session
from streameval.run.share import Several, Share, Thresholds
from streameval.run.task import check_range, count, extremes, masked_tiles, pair_distances
from streameval.stacked import stack
from streameval.statistics import RankStatistics
from streameval.stretches import cumulated, rows_of
from streameval.typing import FloatArray, IntArray, Span

PER_PASS = 1000  # edges that a pass of refining counts: no more than the pass before


def whole_range(task: Task) -> None:
    """Return the one group of all tasks that look for the range of the distances."""


def wider(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the least and the greatest of both, [.., 2]."""
    least, most = np.minimum(one, other)[..., 0], np.maximum(one, other)[..., 1]
    return np.stack([least, most], axis=-1)


def merge_each(one: Several, other: Several) -> Several:
    """Merge the statistics of each evaluation."""
    return tuple(mine.merge(theirs) for mine, theirs in zip(one, other, strict=True))


def stack_each(blocks: Iterable[Several]) -> Several:
    """Stack the statistics of each evaluation."""
    return tuple(stack(own) for own in zip(*blocks, strict=True))


by_queries = attrgetter("queries")
"""Group of a task: parts of the same queries merge."""

FIND_RANGE: Pass[Task, FloatArray] = Pass("range", extremes, wider, whole_range)
FIND_POSITIVES: Pass[PairPart, FloatArray] = Pass("positives", pair_distances)
COUNT: Pass[Task, Several] = Pass("counting", count, merge_each, by_queries)


def find_positives(job: Job, session: Session) -> Job:
    """Return the job with its positives' canonical distances.

    A job in strips of a stored matrix is returned as it is: its strips hold their positives.
    """
    if job.plan.layout == "strips":
        return job
    positives = [share.pairs.positives(session.threads) for share in job.shares]
    queries, gallery = job.plan.queries, job.source.shape[1]
    own = zip(job.shares, positives, strict=True)
    wanted = [share.in_source(*listed, queries) for share, listed in own]
    cuts = cumulated([len(item) for _, item in wanted]).tolist()
    indptr, item = wanted[0]
    place: IntArray | slice = slice(None)
    if len(wanted) > 1:  # each pair once
        each = [rows_of(begins) * gallery + item for begins, item in wanted]
        key, place = np.unique(np.concatenate(each), return_inverse=True)
        query, item = np.divmod(key, max(gallery, 1))
        indptr = np.searchsorted(query, np.arange(queries[1] - queries[0] + 1))
    distance = listed_distances(job, indptr, item, session, session.record)[place]
    shares = []
    for share, (indptr, of_view), span in zip(job.shares, positives, pairwise(cuts), strict=True):
        mine = distance[slice(*span)]
        found = mine.copy() if job.plan.layout == "rectangles" else None
        known = Positives.sort(indptr, mine, of_view, session.threads)
        check_range(share, known, share.first)
        shares.append(replace(share, positives=known, found=found))
    return replace(job, shares=tuple(shares))


def listed_distances(
    job: Job,
    indptr: IntArray,
    item: IntArray,
    session: Session,
    record: Record = NO_RECORD,
    name: str = "positives",
) -> FloatArray:
    """Return the canonical distances of listed pairs, [p] float64; nothing else holds them.

    Parameters
    ----------
    job : Job
    indptr, item : [q + 1], [p] int64
        The pairs: where those of each of the plan's queries begin, and their items.
    session : Session
    record : Record
        Keeps them.
    name : str
        Of the pass.
    """
    chosen = job.tiled.pair_parts(job.plan, indptr, item)
    parts = [part for _, part in chosen]
    stage = record.stage(job.stage("positives"), parts)
    distance: FloatArray = stage.state.setdefault("distance", np.empty(len(item)))
    for indices, values in session.run(replace(FIND_POSITIVES, name=name), job, parts, stage):
        distance[chosen[indices[0]][0].astype(np.int64)] = values
        stage.keep(indices, "distance", distance)
    counted: FloatArray = stage.counted("distance")
    return counted


def find_extremes(job: Job, session: Session) -> FloatArray:
    """Return the least and greatest distance over each share's valid pairs, [shares, 2].

    They are (inf, −inf) of none.
    """
    stage = session.record.stage(job.stage("range"), job.plan.tasks)
    return session.sums(FIND_RANGE, job, stage)[None]


def count_all(job: Job, session: Session, refined: int = 0) -> Several:
    """Count every pair, in the pass that counts or in one that refines, by its number from 1.

    Shards merge, blocks of queries stack. Returns the statistics of each evaluation.
    """
    work, stage = COUNT, COUNT.name
    if refined:
        work, stage = replace(COUNT, name="refining"), f"refining {refined}"
    kept = session.record.stage(job.stage(stage), job.plan.tasks)
    blocks = session.sums(work, job, kept)
    return stack_each(blocks.values())


def stretch_of(ends: Sequence[int], task: Task) -> tuple[int, Span]:
    """Return the group of a task that lies in one stretch: the stretch's number, the queries."""
    return bisect_right(ends, task.gallery[0]), task.queries


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
    work = replace(COUNT, group=partial(stretch_of, ends))
    stretches: list[list[RankStatistics]] = [[] for _ in ends]
    for (number, _), (part,) in session.sums(work, job).items():
        stretches[number].append(part)
    return [stack(parts) for parts in stretches]


def ranks(ends: Sequence[int], job: Job, task: Task, watch: Watch) -> IntArray:
    """Count negatives closer than each positive of a task's queries, and as far, [s, 2, p].

    The s stretches of the gallery that the task lies in stay apart.
    """
    left, right = task.gallery
    inside = slice(bisect_right(ends, left), bisect_right(ends, right - 1))
    positives = job.only.positives_of(task.queries)
    cuts = np.array([left, *ends[inside], right])
    counter = StretchCounter(positives, cuts)
    for _, tile in masked_tiles(job, task, watch, wanted=counter.wanted):
        counter.add(tile)
    return counter.ahead


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
    tasks, indptr = job.plan.tasks, job.only.known_positives().indptr
    work: Pass[Task, IntArray] = Pass(COUNT.name, partial(ranks, ends))
    ahead = np.zeros((len(ends), 2, int(indptr[-1])), np.int64)
    for indices, part in session.run(work, job, tasks):
        first, queries = stretch_of(ends, tasks[indices[0]])
        begin, end = (indptr[query] for query in queries)
        ahead[first : first + len(part), :, begin:end] += part
    return ahead


def refine(
    rounds: Callable[[], Iterable[Job]],
    range_: Range,
    counted: RankStatistics,
    measures: Sequence[Measure],
    session: Session,
) -> RankStatistics:
    """Return the statistics with edges of the histogram that settle the metrics' thresholds.

    One pass does where there are fewer genuine distances in the bin of a threshold than edges
    are counted at a time; otherwise each leaves a part of these, as small as the share of the
    edges in them.

    Parameters
    ----------
    rounds : callable
        Gives the jobs of all queries.
    range_ : Range
    counted : RankStatistics
        With a histogram.
    measures : sequence of Measure
    session : Session
    """
    range_ = replace(range_, strict=False)  # it has been checked
    number = 0
    while len(edges := _settling_edges(counted, measures)):
        number += 1
        thresholds = Thresholds(range_, np.empty(0), edges)
        finer = [
            # Without positives and identities, which are counted.
            count_all(job.counting(_without_positives(job.only, thresholds)), session, number)
            for job in rounds()
        ]
        (refined,) = stack_each(finer)
        counted = counted.merge_edges(refined)
    return counted


def _without_positives(share: Share, thresholds: Thresholds) -> Share:
    """Return the share that counts negatives within thresholds alone."""
    none = Positives.none(share.pairs.queries)
    return replace(share, thresholds=thresholds, identities=None, positives=none)


def _settling_edges(counted: RankStatistics, measures: Sequence[Measure]) -> FloatArray:
    demands = [demand for measure in measures for demand in measure.demands()]
    totals = totals_of(counted, MetricOptions(), demands)
    edges: FloatArray = np.empty(0)
    for measure in measures:
        between = measure.finish(totals).between
        if between is not None:
            own = settling_edges(totals, between, PER_PASS // len(measures))
            edges = np.union1d(edges, own)
    return edges
