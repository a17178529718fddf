"""The passes of an evaluation, and the merging of their parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from streameval.kernels.edges import Positives
from streameval.planning import Task
from streameval.run.executor import Pass
from streameval.run.job import Job, PairPart
from streameval.run.record import NO_RECORD, Stage
from streameval.run.session import Session
from streameval.run.task import check_range, count, extremes, pair_distances
from streameval.statistics import FIELDS, FloatArray, RankStatistics


def queries_of(task: Task) -> tuple[int, int]:
    """Return the group of a counting task: parts of the same queries merge."""
    return task.queries


def whole_range(task: Task) -> None:
    """Return the one group of all tasks that look for the range of the distances."""


def pairs_of(task: Task) -> int:
    """Return the pairs that a task on a rectangle of them works off."""
    return task.pairs


def work_of(part: PairPart) -> int:
    """Return the pairs that a task on listed pairs works off."""
    return part.pairs


def wider(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the greatest of both."""
    return min(one[0], other[0]), max(one[1], other[1])


FIND_RANGE = Pass("range", extremes, wider, whole_range, pairs_of)
FIND_POSITIVES = Pass("positives", pair_distances, None, str, work_of)
COUNT = Pass("count", count, RankStatistics.merge, queries_of, pairs_of)


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
    stage: Callable[[str, int], Stage] | None = None,
    label: str = "positives",
) -> FloatArray:
    """Return the canonical distances of listed pairs, [p] float64.

    Parameters
    ----------
    job : Job
    query, item : [p] int64
        The pairs, in ascending order of query.
    session : Session
    stage : callable, optional
        Begins the stage that keeps them; None where they are not kept.
    label : str
        Name of the pass.
    """
    chosen = job.source.pair_parts(job.plan, query, item)
    parts = [part for _, part in chosen]
    kept = (stage or NO_RECORD.stage)("positives", len(parts))
    known = kept.state.get("distance", {})
    distance = np.array(known["values"]) if known else np.empty(len(item))
    for indices, values in session.run(FIND_POSITIVES, job, parts, label, kept):
        distance[chosen[indices[0]][0]] = values
        kept.keep(indices, "distance", {"values": distance})
    return distance


def find_extremes(job: Job, session: Session) -> tuple[float, float]:
    """Return the least and greatest distance over all non-ignored pairs; (inf, −inf) of none."""
    stage = session.stage("range", len(job.plan.tasks))
    found = np.inf, -np.inf
    if "found" in stage.state:
        low, high = stage.state["found"]["range"]
        found = float(low), float(high)
    for indices, part in session.run(FIND_RANGE, job, job.plan.tasks, "range", stage):
        found = wider(found, part)
        stage.keep(indices, "found", {"range": np.array(found)})
    return found


def count_all(job: Job, session: Session, name: str = "counting") -> RankStatistics:
    """Count every pair: shards merge, blocks of queries stack."""
    tasks = job.plan.tasks
    stage = session.stage(name, len(tasks))
    merged = {
        int(first): RankStatistics(**{name: np.array(one) for name, one in arrays.items()})
        for first, arrays in stage.state.items()
    }
    for indices, part in session.run(COUNT, job, tasks, name.split()[0], stage):
        first = tasks[indices[0]].queries[0]
        merged[first] = merged[first].merge(part) if first in merged else part
        stage.keep(indices, str(first), _fields(merged[first]))
    return RankStatistics.stack([merged[first] for first in sorted(merged)])


@dataclass(frozen=True)
class StretchOf:
    """Tells the group of a counting task where stretches of the gallery stay apart.

    Attributes
    ----------
    ends : tuple of int
        Where each stretch ends, ascending.
    """

    ends: tuple[int, ...]

    def __call__(self, task: Task) -> tuple[tuple[int, int], int]:
        """Return the queries of a task, and the number of its stretch."""
        return task.queries, bisect_right(self.ends, task.gallery[0])


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
    of = StretchOf(tuple(ends))
    bounds = list(pairwise([0, *ends]))
    tasks = tuple(
        Task(task.queries, (max(left, task.gallery[0]), min(right, task.gallery[1])))
        for task in job.plan.tasks
        for left, right in bounds
        if left < task.gallery[1] and task.gallery[0] < right
    )
    job = replace(job, plan=replace(job.plan, tasks=tasks))
    merged: dict[tuple[tuple[int, int], int], RankStatistics] = {}
    work = replace(COUNT, group=of)
    for indices, part in session.run(work, job, tasks, "counting"):
        key = of(tasks[indices[0]])
        merged[key] = merged[key].merge(part) if key in merged else part
    stretches: list[list[RankStatistics]] = [[] for _ in bounds]
    for key in sorted(merged):
        stretches[key[1]].append(merged[key])
    return [parts[0] if len(parts) == 1 else RankStatistics.stack(parts) for parts in stretches]


def _fields(statistics: RankStatistics) -> dict[str, np.ndarray]:
    values = {name: getattr(statistics, name) for name in FIELDS}
    return {name: array for name, array in values.items() if array is not None}
