"""Searches by FAISS: the passes over an index, or over features without one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.neighbors.faiss_index import (
    NOTHING,
    faiss_metric,
    faiss_vectors,
    load,
    metric_code,
    open_index,
)
from streameval.planning import Plan, Task
from streameval.planning.plan import ranges
from streameval.planning.range import UNIT_TOLERANCE, NotUnitError
from streameval.protocols.pairs import Pairs
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import by_queries, listed_distances, whole_range, wider
from streameval.run.progress import Watch
from streameval.source import Source
from streameval.sources.features import Features
from streameval.statistics import FloatArray, IntArray

LEAST_NORM, MOST_NORM = 1e-12, 1e12  # lengths that float32 can square, and add up

if TYPE_CHECKING:
    from streameval.neighbors.index_search import IndexSearch
    from streameval.run.session import Session


@dataclass(frozen=True, eq=False)
class Hits:
    """What FAISS returns for m queries, nearest first.

    Attributes
    ----------
    item : [m, k] int64
        Gallery indices; −1 where there is nothing more.
    value : [m, k] float32
        FAISS's own, ascending; +inf where there is nothing more.
    longest : float
        Length of the longest gallery vector that was looked at; NaN where that isn't known.
    """

    item: IntArray
    value: npt.NDArray[np.float32]
    longest: float

    @classmethod
    def of(cls, features: Features, value: Any, item: IntArray, start: int, longest: float) -> Hits:
        """Return a result of FAISS on gallery rows from `start` on."""
        ascending = -value if faiss_metric(features).inner_product else value
        nothing = item < 0
        return cls(
            np.where(nothing, NOTHING, item + start),
            np.where(nothing, np.float32(np.inf), ascending),
            longest,
        )

    def merge(self, other: Hits) -> Hits:
        """Return the nearest k of two shards of the gallery."""
        item = np.concatenate([self.item, other.item], axis=1)
        value = np.concatenate([self.value, other.value], axis=1)
        order = np.lexsort((item, value), axis=1)[:, : max(self.item.shape[1], other.item.shape[1])]
        return Hits(
            np.take_along_axis(item, order, axis=1),
            np.take_along_axis(value, order, axis=1),
            max(self.longest, other.longest),
        )

    @classmethod
    def stack(cls, parts: Sequence[Hits]) -> Hits:
        """Return the hits of consecutive queries."""
        return cls(
            np.concatenate([part.item for part in parts]),
            np.concatenate([part.value for part in parts]),
            max(part.longest for part in parts),
        )

    @property
    def last(self) -> FloatArray:
        """The greatest value of each query, [m] float64; −inf of none."""
        last: FloatArray = np.where(self.item >= 0, self.value, -np.inf).max(axis=1)
        return last.astype(np.float64)


def search(job: Job, task: Task, watch: Watch) -> Hits:
    """Search the queries of a task in its shard of the gallery, or in the index."""
    source = cast("IndexSearch", job.source)
    queries = faiss_vectors(source.features, source.features.read_query(*task.queries))
    if source.path is None:
        return _scan(source, queries, task, job.plan.block, watch)
    load().omp_set_num_threads(1)
    index = open_index(source.path, source.search)
    value, item = index.search(queries, source.searched)
    watch.advance(task.pairs)
    return Hits.of(source.features, value, item, 0, math.nan)


def _scan(
    source: IndexSearch, queries: npt.NDArray[np.float32], task: Task, block: int, watch: Watch
) -> Hits:
    """Search a range of the gallery, block by block, with no index."""
    faiss, features, k = load(), source.features, source.searched
    faiss.omp_set_num_threads(1)
    shape, code = (len(queries), k), metric_code(features)
    hits = Hits(np.full(shape, NOTHING, np.int64), np.full(shape, np.inf, np.float32), 0.0)
    for start in range(*task.gallery, block):
        stop = min(start + block, task.gallery[1])
        vectors = features.read_gallery(start, stop)
        rows = faiss_vectors(features, vectors)
        value, item = faiss.knn(queries, rows, min(k, stop - start), metric=code)
        longest = float(vectors.norms.max(initial=0))
        hits = hits.merge(Hits.of(features, value, item, start, longest))
        watch.advance((stop - start) * len(queries))
    return hits


def lengths(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the least and the greatest length of a task's gallery vectors, [2] float64."""
    features, (least, most) = cast("Features", job.source), (math.inf, 0.0)
    for start in range(*task.gallery, job.plan.block):
        _, norms = features.read_gallery(start, min(start + job.plan.block, task.gallery[1]))
        least, most = min(least, float(norms.min())), max(most, float(norms.max()))
    watch.advance(task.pairs)
    return np.array([least, most])


SEARCH: Pass[Task, Hits] = Pass("search", search, Hits.merge, by_queries)
LENGTHS: Pass[Task, FloatArray] = Pass("lengths", lengths, wider, whole_range)


def search_block(
    source: IndexSearch, plan: Plan, queries: tuple[int, int], session: Session
) -> Hits:
    """Search the queries of a block."""
    tasks = [task for task in plan.tasks if queries[0] <= task.queries[0] < queries[1]]
    parts = session.sums(SEARCH, _job(source, plan), tasks, "search")
    return Hits.stack(list(parts.values()))


def gallery_lengths(features: Features, plan: Plan, session: Session) -> FloatArray:
    """Return the least and the greatest length of all gallery vectors, in one pass over them."""
    items = features.shape[1]
    step = max(-(-items // (4 * plan.threads * max(plan.workers, 1))), plan.block)
    tasks = tuple(
        Task((0, 1), (start, min(start + step, items))) for start in range(0, items, step)
    )
    job = _job(features, replace(plan, tasks=tasks))
    return session.sums(LENGTHS, job, tasks, "lengths")[None]


def check_unit(features: Features, plan: Plan, session: Session) -> None:
    """Check that all vectors have length 1, where the range relies on that.

    Raises
    ------
    NotUnitError
    """
    for start in range(0, features.shape[0], plan.block):
        _, norms = features.read_query(start, min(start + plan.block, features.shape[0]))
        if np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            raise NotUnitError
    if np.any(np.abs(gallery_lengths(features, plan, session) - 1) > UNIT_TOLERANCE):
        raise NotUnitError


def check_lengths(features: Features, norms: FloatArray, longest: float) -> None:
    """Check that float32 can square the features, so that the bound on its error holds.

    Raises
    ------
    InputError
    """
    if faiss_metric(features).normalised:
        return
    for side, size in (("query", float(norms.max(initial=0))), ("gallery", longest)):
        if size > MOST_NORM or 0 < size < LEAST_NORM:
            raise InputError(
                f"the longest vector of the {side} features has length {size:g}, which float32 "
                f"can't square without loss; lengths from {LEAST_NORM:g} to {MOST_NORM:g} are "
                "needed for FAISS: scale the features"
            )


def distances_of(
    features: Features, plan: Plan, session: Session, query: IntArray, item: IntArray, label: str
) -> FloatArray:
    """Return the canonical distances of pairs, [p] float64.

    Parameters
    ----------
    features : Features
    plan : Plan
        Whose blocks of queries are read at a time.
    session : Session
    query, item : [p] int64
    label : str
        What the pass is called.
    """
    blocks = ranges(features.shape[0], plan.tile[0])
    job = _job(features, replace(plan, tasks=tuple(Task(one, (0, 0)) for one in blocks)))
    return listed_distances(job, query, item, session, label=label)


def _job(source: Source, plan: Plan) -> Job:
    """Return a job that needs no pairs: it searches, or computes distances that are listed."""
    return Job(source, Pairs.assumed(0, 0, 0), plan)
