"""Lists of neighbours counted: made or read block by block, ranked, and bounded; k auto grown.

Lists are ranked by canonical distances; how far FAISS's float32 lets them be certain is their
horizon.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.identity import unchanging
from streameval.errors import InputError, StreamevalWarning
from streameval.metrics.bounds import ListReading, compute_list_metrics
from streameval.metrics.selection import PARTS
from streameval.neighbors.bounds import Extremes, as_deployed, find_extremes
from streameval.neighbors.faiss_index import faiss_metric
from streameval.neighbors.lists import Lists, Places, Repairs
from streameval.planning.plan import Plan, Task, pieces, ranges
from streameval.planning.range import Range
from streameval.result.groups import with_mean_groups
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import listed_distances, whole_range, wider
from streameval.run.preparation import Prepared
from streameval.run.progress import Watch
from streameval.run.rounds import keeping
from streameval.run.session import Session
from streameval.source import Counted
from streameval.sources.features import Features
from streameval.typing import FloatArray, IntArray, Span

if TYPE_CHECKING:
    from streameval.neighbors.source import ListSource

DEEPER = 4  # times as deep each time, of k auto
ROUNDINGS = 24  # beside those of a sum: of normalising, of rows, and of what is added up
LEAST_NORM, MOST_NORM = 1e-12, 1e12  # lengths that float32 can square, and add up


def count_lists(source: ListSource, prepared: Prepared, session: Session) -> Counted:
    """Count lists of k items; where k is auto, ever longer ones until they do."""
    begin_work(source, prepared, session)
    used, features, plan = prepared.range, source.features, prepared.plan
    if used is not None and used.unit and features is not None:
        for block in ranges(features.shape[0], plan.block):
            used.check_unit(features.read_query(*block).norms)
        used.check_unit(gallery_lengths(features, plan, session))
    arrays = [item.data for item in source.inputs() if isinstance(item.data, Array)]
    with unchanging(*arrays), source.built(plan, session) as (ready, facts):
        counted = count_built(ready, prepared, session)
    if facts:
        counted.facts["lists"]["index"] = facts
    return counted


def begin_work(source: ListSource, prepared: Prepared, session: Session) -> None:
    """Tell the progress how much there is to do, as far as that is known."""
    queries, gallery = source.shape
    pairs = queries * (gallery * source.searches + source.depth * source.by_distance)
    session.progress.begin(max(pairs, 1), prepared.plan.bytes_read)


def count_built(source: ListSource, prepared: Prepared, session: Session) -> Counted:
    """Count lists of a source whose index, if it has one, is built; warn of repairs."""
    gallery, auto = source.shape[1], source.k == "auto"
    if auto:
        session = replace(session, collect=None)
        source = replace(source, k=source.depth)
    longest = math.nan  # of the gallery's vectors; not needed, or a search tells it
    if source.needs_lengths:
        features = cast("Features", source.features)
        longest = float(gallery_lengths(features, prepared.plan, session)[1])
    while True:
        counter = _ListCounter(source, prepared, session, longest)
        counted = counter.count()
        close = not auto or source.depth >= gallery
        if close or _widest(counted, prepared) <= source.width:
            counter.repairs.warn(deployed=source.reading == "never")
            return counted
        source = replace(source, k=source.depth * DEEPER)
        prepared = replace(prepared, plan=source.plan(prepared.problem, prepared.limits))


def _widest(counted: Counted, prepared: Prepared) -> float:
    """Return the width of the widest interval; infinite where a metric has no bounds yet.

    Where no metrics are named, those of GOM and of verification are not waited for: they have
    thresholds up to the greatest distance, and ask for the whole gallery.
    """
    options = prepared.request.options
    statistics, reading = with_mean_groups(
        counted.statistics, counted.reading, options.average, prepared.columns
    )
    if reading is None:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        metrics = compute_list_metrics(statistics, reading, options)
    parts = PARTS if options.metrics else ("retrieval", "open-set")
    widths = [0.0]
    for name, detail in metrics.details.items():
        if detail.part in parts:
            low, high = metrics.bounds.get(name, (0.0, math.inf if detail.open else 0.0))
            widths.append(high - low)
    return max(widths)


class _ListCounter:
    """Ranks and counts the lists of a source, block by block.

    What the latest lists leave possible, their `repairs`, the seconds that searches took, and the
    `least` and `most` distance of valid items, +inf and −inf of none, stay.
    """

    def __init__(
        self, source: ListSource, prepared: Prepared, session: Session, longest: float
    ) -> None:
        self.source, self.prepared, self.session = source, prepared, session
        self.features, self.longest = cast("Features", source.features), longest

    def count(self) -> Counted:
        """Count lists at the thresholds of the range; one from the data needs every distance."""
        problem, used = self.prepared.problem, self.prepared.range
        if used is None:
            self._count_at(np.empty(0), None)
            self.session = replace(self.session, collect=None)  # the lists are the same at others
            if not self.complete or not self.least <= self.most:
                return self._counted(Range(math.nan, math.nan))
            used = Range(self.least, self.most)
        thresholds, edges = used.limits(problem.thresholds, problem.edges)
        self._count_at(thresholds, edges)
        limit = thresholds[-1] if problem.thresholds else math.inf
        if used.strict and (self.least < used.low or self.most > limit):
            raise InputError(
                f"lists hold distances from {self.least!r} to {self.most!r}, outside the given "
                f"range [{used.low!r}, {used.high!r}]: widen --range"
            )
        return self._counted(used)

    @property
    def complete(self) -> bool:
        """Whether every valid item of every query is known to be listed."""
        _, best, _, *missing = self.extremes
        return best is not None and not np.any(missing)

    def _count_at(self, thresholds: FloatArray, edges: FloatArray | None) -> None:
        """Make or read the lists of all queries, block by block, and count them."""
        source, plan, session, numbers = self.source, self.prepared.plan, self.session, []
        sides = 1 if source.reading == "never" else 2
        kept = keeping([self.prepared.counts] * sides, plan, session)
        self.repairs = Repairs(source.name, source.shape[1])
        least, most, self.seconds = math.inf, -math.inf, 0.0
        for queries in ranges(source.shape[0], plan.tile[0]):
            begin = time.perf_counter()
            raw, longest = source.read(queries, plan, session, self.repairs)
            self.seconds += (time.perf_counter() - begin) * source.searches
            lists = self._rank(raw, longest, queries)
            places = Places(self.prepared.pairs.block(*queries), lists)
            if session.collect is not None:
                session.collect(lists)
            distance = lists.distance[places.valid]
            least, most = distance.min(initial=least), distance.max(initial=most)
            if source.reading == "never":
                found = as_deployed(places, thresholds)
            else:
                known = self._missing_distances(places, queries) if source.tighten else None
                found = find_extremes(places, thresholds, edges, known)
            for side, statistics in enumerate(found.sides):
                kept.add(side, statistics)
            numbers.append(found.numbers)
        self.extremes = Extremes.of(kept.finish(), map(np.concatenate, zip(*numbers, strict=True)))
        self.least, self.most = float(least), float(most)

    def _counted(self, used: Range) -> Counted:
        """Return what is counted, with facts for the provenance."""
        source, (worst, best, effective, missing, _) = self.source, self.extremes
        if best is not None and not self.complete:  # the histogram lacks missing items
            worst, best = (one.without_histogram() for one in (worst, best))
        reading = ListReading(
            source.reading, source.depth, effective, missing, source.tighten, best
        )
        facts = {
            "missing": source.reading,
            "k": source.depth,
            "distances": "canonical" if source.by_distance else "as returned",
            "tightened": source.tighten,
            "complete": self.complete,
            "effective_k": {
                "least": int(effective.min()),
                "median": float(np.median(effective)),
                "most": int(effective.max()),
            },
            "missing_positives": int(missing.sum()),
            "queries_missing_positives": int(np.count_nonzero(missing)),
            "repaired": dict(self.repairs.count),
            "search_seconds": round(self.seconds, 3),
        }
        return Counted(worst, used, reading, {"lists": facts})

    def _rank(self, lists: Lists, longest: float, queries: Span) -> Lists:
        """Return the nearest k of each list of a block, by the distances that it is read by.

        Lists come with the distances that are stored, or FAISS's own, and with the length of the
        longest gallery vector that the search has looked at, NaN where that isn't known.
        """
        source, size, ranked = self.source, np.diff(lists.indptr), lists
        horizon = np.where(size < source.shape[1], -np.inf, np.inf)
        some = (size > 0) & (horizon < 0)
        if source.by_distance:
            ranked = replace(lists, distance=self._distances(lists.query, lists.item, queries))
        if source.reading == "never":
            horizon[:] = np.inf
        elif source.by_distance:
            horizon[some] = self._certain(lists, ranked, longest, queries)[some]
        else:
            horizon[some] = lists.distance[lists.indptr[1:][some] - 1]
        return replace(ranked, horizon=horizon).nearest(source.depth)

    def _distances(self, query: IntArray, item: IntArray, queries: Span) -> FloatArray:
        query = query + queries[0]
        return distances_of(
            self.features, self.prepared.plan, self.session, query, item, "distances"
        )

    def _certain(self, told: Lists, ranked: Lists, longest: float, queries: Span) -> FloatArray:
        """Return the least distance that an item missing from each list may have, [m] float64."""
        metric, norms = faiss_metric(self.features), self.features.read_query(*queries).norms
        longest = float(np.fmax(self.longest, longest))
        for side, size in (("query", norms.max(initial=0)), ("gallery", longest)):
            if not metric.normalised and (size > MOST_NORM or 0 < size < LEAST_NORM):
                raise InputError(
                    f"the longest vector of the {side} features has length {size:g}, which float32 "
                    f"can't square without loss; lengths from {LEAST_NORM:g} to {MOST_NORM:g} are "
                    "needed for FAISS: scale the features"
                )
        # γ = n u / (1 − n u), u = 2⁻²⁴, with n = D (Higham, §3.1), in any order of summation.
        n = (self.features.width + ROUNDINGS) * 2.0**-24
        error = metric.faiss_error(n / (1 - n) * (1 + 1e-6), norms, longest)
        theirs, values = metric.value(told.distance), metric.value(ranked.distance)
        if not np.isnan(theirs).all():
            rounding = self.source.precision * (1 + np.abs(theirs) + np.abs(values))
            slack = error[told.query] + 16 * rounding
            for at in np.flatnonzero(np.abs(theirs - values) > slack)[:1]:
                raise InputError(
                    f"the lists of {self.source.name} have gallery item {told.item[at]} at "
                    f"{float(told.distance[at])!r} from query {queries[0] + told.query[at]}; the "
                    f"{self.features.metric} distance of the features is "
                    f"{float(ranked.distance[at])!r}: they are of other features, or of another "
                    "metric (squared, or a similarity)"
                )
        # Of stored lists, the values of FAISS may have been less.
        reach = theirs if self.source.searches else values - error[told.query]
        last = np.full(len(norms), -np.inf)
        np.maximum.at(last, told.query, reach)
        return np.maximum(metric.distance(last - error), metric.least)

    def _missing_distances(self, places: Places, queries: Span) -> FloatArray:
        """Return the distances of positives that are missing from lists, [m] float64."""
        (query, item), horizon = places.missing_positives(), places.lists.horizon
        distance = self._distances(query, item, queries)
        for at in np.flatnonzero(distance < horizon[query])[:1]:
            raise InputError(
                f"gallery item {item[at]} is at {float(distance[at])!r} from query "
                f"{query[at] + queries[0]}, closer than the end of its list "
                f"({float(horizon[query[at]])!r}), and not in it: the lists are not those of "
                "an exact search; read them as of a system deployed: --missing never"
            )
        return distance


def lengths(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the least and the greatest length of a task's gallery vectors, [2] float64."""
    ends = np.array([np.inf, 0.0])
    for rows in pieces(task.gallery, job.plan.block):
        _, norms = cast("Features", job.source).read_gallery(*rows)
        ends = wider(ends, np.array([norms.min(), norms.max()]))
    watch.advance(task.pairs)
    return ends


LENGTHS: Pass[Task, FloatArray] = Pass("lengths", lengths, wider, whole_range)


def gallery_lengths(features: Features, plan: Plan, session: Session) -> FloatArray:
    """Return the least and the greatest length of all gallery vectors, in one pass over them."""
    items = features.shape[1]
    step = max(-(-items // (4 * plan.threads * max(plan.workers, 1))), plan.block)
    tasks = tuple(Task((0, 1), part) for part in ranges(items, step))
    job = Job(features, replace(plan, tasks=tasks))
    return session.sums(LENGTHS, job)[None]


def distances_of(
    features: Features, plan: Plan, session: Session, query: IntArray, item: IntArray, name: str
) -> FloatArray:
    """Return the canonical distances of pairs, [p] float64, in a pass of this name.

    `query` ascends.
    """
    tasks = tuple(Task(block, (0, 0)) for block in ranges(features.shape[0], plan.tile[0]))
    job = Job(features, replace(plan, tasks=tasks))
    indptr = np.searchsorted(query, np.arange(features.shape[0] + 1))
    return listed_distances(job, indptr, item, session, name=name)
