"""Lists of neighbours on an executor: searched, ranked again, and counted, block by block."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from streameval.errors import InputError
from streameval.metrics.extremes import ListReading
from streameval.neighbors import faiss_index
from streameval.neighbors.faiss_index import Found
from streameval.neighbors.returned import (
    Places,
    Returned,
    as_deployed,
    find_extremes,
    missing_positives,
)
from streameval.neighbors.source import Neighbors
from streameval.neighbors.stored_lists import Clean, Repairs, clean
from streameval.planning import Plan, Task
from streameval.planning.range import UNIT_TOLERANCE, NotUnitError
from streameval.protocols.pairs import Pairs
from streameval.run.executor import Executor, Pass
from streameval.run.job import Job
from streameval.run.passes import listed_distances, pairs_of, queries_of, wider
from streameval.run.progress import Watch
from streameval.sources.sources import Features
from streameval.statistics import FloatArray, IntArray, RankStatistics


def search(job: Job, task: Task, watch: Watch) -> Found:
    """Search a task: its queries in its shard of the gallery, or in the index."""
    source: Neighbors = job.source
    features = source.features
    if features is None:
        raise TypeError("the source of this job is no features to search")
    rows, norms = features.read_query(*task.queries)
    queries = faiss_index.vectors(rows, norms, features.metric)
    depth = source.searched
    if source.is_flat:
        return faiss_index.nearest_in(
            features,
            queries,
            task.gallery,
            job.plan.block,
            depth,
            lambda done: watch.advance(done * len(queries)),
        )
    if source.path is None:
        raise TypeError("the index of this job is in no file")
    index = faiss_index.open_index(source.path, source.search)
    found = faiss_index.search_index(index, queries, depth)
    watch.advance(task.pairs)
    return found


def lengths(job: Job, task: Task, watch: Watch) -> tuple[float, float]:
    """Return the least and the greatest length of a task's gallery vectors."""
    least, most = math.inf, 0.0
    for start in range(*task.gallery, job.plan.block):
        _, norms = job.source.read_gallery(start, min(start + job.plan.block, task.gallery[1]))
        least, most = min(least, float(norms.min())), max(most, float(norms.max()))
    watch.advance(task.pairs)
    return least, most


SEARCH = Pass("search", search, Found.merge, queries_of, pairs_of)
LENGTHS = Pass("lengths", lengths, wider, queries_of, pairs_of)


@dataclass(frozen=True, eq=False)
class CountedLists:
    """What lists of neighbours give.

    Attributes
    ----------
    statistics : RankStatistics
        Read as bounds, the worst; else those of the system as deployed.
    reading : ListReading
    complete : bool
        Whether every valid item of every query is returned.
    least, most : float
        Of the distances of all valid items that are returned; +inf and −inf of none.
    repairs : Repairs
    search_seconds : float
        That searches have taken; 0 of stored lists.
    """

    statistics: RankStatistics
    reading: ListReading
    complete: bool
    least: float
    most: float
    repairs: Repairs
    search_seconds: float


Collect = Callable[[Returned], None]


def gallery_lengths(
    features: Features, plan: Plan, executor: Executor, watch: Watch
) -> tuple[float, float]:
    """Return the least and the greatest length of all gallery vectors, in one pass over them.

    Parameters
    ----------
    features : Features
    plan : Plan
        Whose block is read at a time.
    executor, watch
    """
    step = max(-(-features.shape[1] // (4 * plan.threads * max(plan.workers, 1))), plan.block)
    tasks = tuple(
        Task((0, 1), (start, min(start + step, features.shape[1])))
        for start in range(0, features.shape[1], step)
    )
    job = _job(features, replace(plan, tasks=tasks))
    found = math.inf, 0.0
    watch.start("lengths", features.shape[1])
    with closing(executor.run(LENGTHS, job, dict(enumerate(tasks)), watch)) as done:
        for _, part in done:
            found = wider(found, part)
    watch.finish()
    return found


def check_unit(features: Features, plan: Plan, executor: Executor, watch: Watch) -> None:
    """Check that all vectors have length 1, where the range relies on that.

    Raises
    ------
    NotUnitError
    """
    for start in range(0, features.shape[0], plan.block):
        _, norms = features.read_query(start, min(start + plan.block, features.shape[0]))
        if np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            raise NotUnitError
    if max(abs(one - 1) for one in gallery_lengths(features, plan, executor, watch)) > (
        UNIT_TOLERANCE
    ):
        raise NotUnitError


def _job(source: Features | Neighbors, plan: Plan) -> Job:
    """Return a job that needs no pairs: what they are is asked for here alone."""
    return Job(source, Pairs.assumed(0, 0, 0), plan)


def count_lists(
    source: Neighbors,
    pairs: Pairs,
    plan: Plan,
    thresholds: FloatArray,
    histogram_edges: FloatArray | None,
    executor: Executor,
    watch: Watch,
    collect: Collect | None = None,
) -> CountedLists:
    """Make or read the lists of all queries, and count them.

    Parameters
    ----------
    source : Neighbors
        Its index, where it has one, in a file.
    pairs : Pairs
    plan : Plan
    thresholds : [T] float64
    histogram_edges : [E] float64, optional
    executor, watch
    collect : callable, optional
        Is given the lists of each block of queries, in order.

    Raises
    ------
    InputError
        If lists hold what can't be repaired, or are not of these features or this metric.
    """
    features, repairs = source.features, Repairs()
    longest = math.nan
    if features is not None and source.reading == "bounds" and not source.is_flat:
        _, longest = gallery_lengths(features, plan, executor, watch)
    worst: list[RankStatistics] = []
    best: list[RankStatistics] = []
    effective: list[IntArray] = []
    missing: list[IntArray] = []
    complete, least, most, searching = True, math.inf, -math.inf, 0.0
    for first in range(0, source.shape[0], plan.tile[0]):
        last = min(first + plan.tile[0], source.shape[0])
        own = pairs.block(first, last)
        begin = time.perf_counter()
        lists, found = _lists(source, plan, (first, last), executor, watch, repairs)
        searching += time.perf_counter() - begin if found is not None else 0.0
        returned, places, away = _returned(
            source, own, lists, found, (first, last), longest, plan, executor, watch
        )
        if collect is not None:
            collect(returned)
        entries = returned.distance[places.positive | places.negative]
        least = min(least, float(entries.min(initial=math.inf)))
        most = max(most, float(entries.max(initial=-math.inf)))
        if source.reading == "never":
            statistics, count = as_deployed(own, returned, places, thresholds)
            worst.append(statistics)
            effective.append(count)
            missing.append(_missing(own, places))
            continue
        ends = find_extremes(own, returned, places, thresholds, histogram_edges, away)
        worst.append(ends.worst)
        best.append(ends.best)
        effective.append(ends.effective)
        missing.append(ends.missing_positives)
        complete &= bool(ends.complete.all())
    reading = ListReading(
        source.reading,
        source.depth,
        np.concatenate(effective),
        np.concatenate(missing),
        source.tighten,
        RankStatistics.stack(best) if best else None,
    )
    statistics = RankStatistics.stack(worst)
    if reading.best is not None and not complete and histogram_edges is not None:
        reading = replace(reading, best=_without_histogram(reading.best))
        statistics = _without_histogram(statistics)
    complete &= reading.best is not None
    return CountedLists(statistics, reading, complete, least, most, repairs, searching)


def _without_histogram(statistics: RankStatistics) -> RankStatistics:
    return replace(statistics, impostor_histogram=None, histogram_edges=None)


def _missing(pairs: Pairs, places: Places) -> IntArray:
    query, _ = missing_positives(pairs, places)
    return np.bincount(query, minlength=pairs.queries).astype(np.int64)


def _lists(
    source: Neighbors,
    plan: Plan,
    queries: tuple[int, int],
    executor: Executor,
    watch: Watch,
    repairs: Repairs,
) -> tuple[Clean, Found | None]:
    """Return the lists of a block of queries; and what FAISS has found, where it has made them."""
    if source.index is None or source.features is None:
        return source.read(*queries, repairs), None
    tasks = {
        at: task for at, task in enumerate(plan.tasks) if queries[0] <= task.queries[0] < queries[1]
    }
    parts: dict[int, Found] = {}
    watch.start("search", sum(task.pairs for task in tasks.values()))
    job = _job(source, plan)
    with closing(executor.run(SEARCH, job, tasks, watch)) as done:
        for indices, part in done:
            first = plan.tasks[indices[0]].queries[0]
            parts[first] = parts[first].merge(part) if first in parts else part
    watch.finish()
    found = Found.stack([parts[first] for first in sorted(parts)])
    lists = clean(
        found.item,
        np.where(
            found.item < 0, np.inf, faiss_index.distance_of(found.value, source.features.metric)
        ),
        gallery=source.shape[1],
        first_query=queries[0],
        where=f"the lists of index {source.index}",
        repairs=Repairs() if source.reading == "never" or source.is_flat else repairs,
    )
    return lists, found


def _returned(
    source: Neighbors,
    pairs: Pairs,
    lists: Clean,
    found: Found | None,
    queries: tuple[int, int],
    longest: float,
    plan: Plan,
    executor: Executor,
    watch: Watch,
) -> tuple[Returned, Places, FloatArray | None]:
    """Return the lists with the distances that they are ranked by, and how far each is certain.

    With them, what the protocol makes of the entries; and the distances of positives that are
    not returned, where these are asked for.
    """
    features = source.features
    everything = np.diff(lists.indptr) >= source.shape[1]
    horizon = np.where(everything, np.inf, -np.inf)
    some = (np.diff(lists.indptr) > 0) & ~everything
    returned = Returned(lists.indptr, lists.item, lists.distance, horizon)
    if source.reading == "never":
        horizon[:] = np.inf  # there is nothing beyond
    elif features is None:
        horizon[some] = lists.distance[lists.indptr[1:][some] - 1]
    if features is None or not source.canonical:
        returned = nearest_of(returned, source.depth)
        return returned, Places.of(pairs, returned), None
    job = _job(features, replace(plan, tasks=(Task(queries, (0, source.shape[1])),)))

    def computed(query: IntArray, item: IntArray) -> FloatArray:
        return listed_distances(job, query + queries[0], item, executor, watch, "distances")

    returned = replace(returned, distance=computed(returned.query, lists.item))
    if source.reading == "bounds":
        _, norms = features.read_query(*queries)
        known = found.longest if found is not None and source.is_flat else longest
        faiss_index.check_lengths(features, norms, known)
        error = faiss_index.value_error(features.metric, features.width, norms, known)
        values = values_of(returned.distance, features.metric)
        _check_values(source, lists, values, error[returned.query], queries[0], returned.query)
        furthest = np.full(len(norms), -np.inf)
        if found is not None:  # FAISS tells its own last value
            furthest = np.where(found.item >= 0, found.value, -np.inf).max(axis=1).astype("f8")
        else:
            np.maximum.at(furthest, returned.query, values)
            furthest -= error  # the value of FAISS may have been less
        horizon[some] = faiss_index.least_beyond(furthest[some], error[some], features.metric)
    returned = nearest_of(returned, source.depth)
    places = Places.of(pairs, returned)
    if not source.tighten:
        return returned, places, None
    query, item = missing_positives(pairs, places)
    beyond = computed(query, item)
    closer = np.flatnonzero(beyond < returned.horizon[query])
    if len(closer):
        at = int(closer[0])
        raise InputError(
            f"gallery item {item[at]} is at {float(beyond[at])!r} from query "
            f"{query[at] + queries[0]}, closer than the end of its list "
            f"({float(returned.horizon[query[at]])!r}), and not in it: the lists are not those of "
            "an exact search; read them as of a system deployed: --missing never"
        )
    return returned, places, beyond


def nearest_of(returned: Returned, k: int) -> Returned:
    """Return the nearest k items of each list, certain up to the next one.

    Where that is before the horizon, these are the nearest of all, and nothing depends on the
    order in which float32 has ranked. Where it is not (more items are about as far as float32
    can tell apart), the list ends at its last distance within the horizon. A list of no more
    than k items stays as it is.
    """
    query = returned.query
    order = np.lexsort((returned.item, returned.distance, query))
    item, distance = returned.item[order], returned.distance[order]
    place = np.arange(len(order)) - returned.indptr[query]
    following = place == k
    following_at = np.full(len(returned.horizon), np.inf)
    following_at[query[following]] = distance[following]
    within = distance <= returned.horizon[query]
    last = np.full(len(returned.horizon), -np.inf)
    np.maximum.at(last, query[within], distance[within])
    whole = np.isinf(following_at) | np.isinf(returned.horizon)
    certain = whole | (following_at < returned.horizon)
    horizon = np.where(certain, np.minimum(following_at, returned.horizon), last)
    kept = (place < k) & (certain[query] | (distance <= last[query]))
    indptr = np.searchsorted(query[kept], np.arange(len(horizon) + 1)).astype(np.int64)
    return Returned(indptr, item[kept], distance[kept], horizon)


def values_of(distance: FloatArray, metric: str) -> FloatArray:
    """Return the values that FAISS has for distances, float64; see `faiss_index`."""
    return faiss_index.equivalent(metric).value(distance)


def _check_values(
    source: Neighbors,
    lists: Clean,
    values: FloatArray,
    error: FloatArray,
    first_query: int,
    query: IntArray,
) -> None:
    """Check the distances of lists against the canonical ones.

    Raises
    ------
    InputError
        If they differ by more than rounding explains.
    """
    features = source.features
    if features is None or np.isnan(lists.distance).all():
        return
    told = values_of(lists.distance, features.metric)
    stored = getattr(source.distances, "dtype", np.dtype(np.float32))
    digits = float(np.finfo(stored).eps) if stored.kind == "f" else 1.0
    slack = error + 16 * digits * (1 + np.abs(told) + np.abs(values))
    wrong = np.flatnonzero(np.abs(told - values) > slack)
    if len(wrong):
        at = int(wrong[0])
        where = f"index {source.index}" if source.index is not None else source.stored.uri
        canonical = _distance(values[at], features.metric)
        raise InputError(
            f"the lists of {where} have gallery item {lists.item[at]} at "
            f"{float(lists.distance[at])!r} from query {first_query + query[at]}; the "
            f"{features.metric} distance of the features is {canonical!r}: they are of other "
            "features, or of another metric (squared, or a similarity)"
        )


def _distance(value: float, metric: str) -> float:
    return float(faiss_index.distance_of(np.array([value]), metric)[0])
