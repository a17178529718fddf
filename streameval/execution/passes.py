"""The passes of an evaluation over an executor, and the merging of their parts."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from streameval.execution.job import Job, PositivePart, Positives
from streameval.execution.progress import Watch
from streameval.execution.task import (
    check_range,
    count,
    extremes,
    feature_positives,
    matrix_positives,
)
from streameval.execution.threads import Executor
from streameval.inputs.sources import Features
from streameval.statistics import RankStatistics

PART_BYTES = 4 << 20  # gallery rows of positives that are read at a time


def find_positives(job: Job, executor: Executor, watch: Watch) -> Job:
    """Return the job with its positives' canonical distances.

    A job in strips of a stored matrix is returned as it is: its strips hold their positives.
    """
    if job.plan.layout == "strips":
        return job
    indptr, item = job.pairs.positives()
    query = np.repeat(np.arange(job.pairs.queries), np.diff(indptr))
    distance = np.empty(len(item))
    if isinstance(job.source, Features):
        chosen, parts = _feature_parts(job, query, item)
        watch.start("positives", len(item))
        with closing(executor.run(partial(feature_positives, job), parts, watch)) as done:
            for index, values in done:
                distance[chosen[index]] = values
    else:
        watch.start("positives", job.plan.pairs)
        tasks = job.plan.tasks
        with closing(executor.run(partial(matrix_positives, job), tasks, watch)) as done:
            for index, values in done:
                (first, last), (left, right) = tasks[index].queries, tasks[index].gallery
                own = item[indptr[first] : indptr[last]]
                inside = np.flatnonzero((own >= left) & (own < right))
                distance[indptr[first] + inside] = values
    watch.finish()
    positives = Positives.sort(indptr, distance, item)
    check_range(job, positives, 0)
    return replace(job, positives=positives)


def _feature_parts(
    job: Job, query: np.ndarray, item: np.ndarray
) -> tuple[list[np.ndarray], list[PositivePart]]:
    """Cut the positive pairs into parts whose gallery rows take little memory."""
    row_bytes = job.features.width * job.features.dtype.itemsize
    step = max(min(PART_BYTES // row_bytes, job.plan.block), 1)
    chosen: list[np.ndarray] = []
    parts: list[PositivePart] = []
    for queries in sorted({task.queries for task in job.plan.tasks}):
        own = np.flatnonzero((query >= queries[0]) & (query < queries[1]))
        own = own[np.argsort(item[own], kind="stable")]
        for start in range(0, len(own), step):
            part = own[start : start + step]
            chosen.append(part)
            parts.append(PositivePart(queries, query[part] - queries[0], item[part]))
    return chosen, parts


def find_extremes(job: Job, executor: Executor, watch: Watch) -> tuple[float, float]:
    """Return the least and greatest distance over all non-ignored pairs; (inf, −inf) of none."""
    least, most = np.inf, -np.inf
    watch.start("range", job.plan.pairs)
    with closing(executor.run(partial(extremes, job), job.plan.tasks, watch)) as done:
        for _, (low, high) in done:
            least, most = min(least, low), max(most, high)
    watch.finish()
    return float(least), float(most)


def count_all(
    job: Job, executor: Executor, watch: Watch, *, stage: str = "counting"
) -> RankStatistics:
    """Count every pair: shards merge, blocks of queries stack."""
    merged: dict[int, RankStatistics] = {}
    watch.start(stage, job.plan.pairs)
    with closing(executor.run(partial(count, job), job.plan.tasks, watch)) as done:
        for index, part in done:
            first = job.plan.tasks[index].queries[0]
            merged[first] = merged[first].merge(part) if first in merged else part
    watch.finish()
    return RankStatistics.stack([merged[first] for first in sorted(merged)])
