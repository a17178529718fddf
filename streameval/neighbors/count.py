"""Lists of neighbours counted: made or read block by block, ranked, and bounded; k auto grown."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.metrics.bounds import ListReading, compute_list_metrics
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import PARTS
from streameval.neighbors.bounds import Extremes, as_deployed, find_extremes
from streameval.neighbors.lists import Places
from streameval.neighbors.ranking import Ranking
from streameval.neighbors.repair import Repairs
from streameval.neighbors.search import check_unit
from streameval.planning.range import Range
from streameval.source import Counted
from streameval.statistics import FloatArray, RankStatistics

if TYPE_CHECKING:
    from streameval.neighbors.source import ListSource
    from streameval.run.preparation import Prepared
    from streameval.run.session import Session

DEEPER = 4  # times as deep each time, of k auto


@dataclass(frozen=True, eq=False)
class Tally:
    """Lists of all queries, counted.

    Attributes
    ----------
    source : ListSource
        Of lists of k items.
    extremes : Extremes
    least, most : float
        Of the distances of all valid items of lists; +inf and −inf of none.
    repairs : Repairs
    seconds : float
        That searches have taken; 0 of stored lists.
    """

    source: ListSource
    extremes: Extremes
    least: float
    most: float
    repairs: Repairs
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every valid item of every query is known to be listed."""
        return self.extremes.best is not None and bool(self.extremes.complete.all())

    @property
    def statistics(self) -> RankStatistics:
        """The statistics of an evaluation: read as bounds, the worst."""
        return self._told(self.extremes.worst)

    @property
    def reading(self) -> ListReading:
        """What is known of each list."""
        best, source = self.extremes.best, self.source
        return ListReading(
            source.reading,
            source.depth,
            self.extremes.effective,
            self.extremes.missing_positives,
            source.tighten,
            None if best is None else self._told(best),
        )

    def _told(self, statistics: RankStatistics) -> RankStatistics:
        """Return statistics without the histogram, where that lacks missing items."""
        if self.extremes.best is None or self.complete:
            return statistics
        return replace(statistics, impostor_histogram=None, histogram_edges=None)

    def counted(self, used: Range) -> Counted:
        """Return what is counted, with facts for the provenance; warn of repairs."""
        source, reading = self.source, self.reading
        self.repairs.warn(source.name, source.reading)
        effective, missing = reading.effective, reading.missing_positives
        facts = {
            "missing": reading.missing,
            "k": reading.depth,
            "distances": "canonical" if source.canonical else "as returned",
            "tightened": source.tighten,
            "complete": self.complete,
            "effective_k": {
                "least": int(effective.min()),
                "median": float(np.median(effective)),
                "most": int(effective.max()),
            },
            "missing_positives": int(missing.sum()),
            "queries_missing_positives": int((missing > 0).sum()),
            "repaired": dict(self.repairs.count),
            "search_seconds": round(self.seconds, 3),
        }
        return Counted(self.statistics, used, reading, {"lists": facts})


def count_lists(source: ListSource, prepared: Prepared, session: Session) -> Counted:
    """Count lists of k items; where k is auto, ever longer ones until they do.

    Raises
    ------
    InputError
        If lists hold what can't be repaired, or are not of these features or this metric.
    NotUnitError
        If the range relies on vectors of length 1, and there are others.
    """
    begin_work(source, prepared, session)
    used, features = prepared.range, source.features
    if used is not None and used.unit and features is not None:
        check_unit(features, prepared.plan, session)
    with source.built(prepared.plan, session) as (ready, facts):
        counted = count_built(ready, prepared, session)
    if facts:
        counted.facts["lists"]["index"] = facts
    return counted


def begin_work(source: ListSource, prepared: Prepared, session: Session) -> None:
    """Tell the progress how much there is to do, as far as that is known."""
    queries, gallery = source.shape
    pairs = queries * gallery * source.searches
    if source.canonical:
        pairs += queries * min(source.depth, gallery)
    session.watch.begin(max(pairs, 1), prepared.plan.bytes_read)


def count_built(source: ListSource, prepared: Prepared, session: Session) -> Counted:
    """Count lists of a source whose index, if it has one, is built."""
    if source.k != "auto":
        tally, used = _in_range(source, prepared, session)
        return tally.counted(used)
    gallery, session = source.shape[1], replace(session, collect=None)
    if source.reading == "never":
        raise OptionError("k auto closes bounds, and missing is never: give a number")
    depth = source.depth
    while True:
        deep = source.at_depth(min(depth, gallery))
        if depth > source.depth:
            prepared = replace(prepared, plan=deep.plan(prepared.problem, prepared.limits))
        tally, used = _in_range(deep, prepared, session)
        if depth >= gallery or _widest(tally, prepared.request.options) <= source.width:
            return tally.counted(used)
        depth *= DEEPER


def _widest(tally: Tally, options: MetricOptions) -> float:
    """Return the width of the widest interval; infinite where a metric has no bounds yet.

    Where no metrics are named, those of GOM and of verification are not waited for: they have
    thresholds up to the greatest distance, and ask for the whole gallery.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        metrics = compute_list_metrics(tally.statistics, tally.reading, options)
    parts = ("retrieval", "open-set") if not options.metrics else PARTS
    widths = [0.0]
    for name, detail in metrics.details.items():
        if detail.part in parts:
            low, high = metrics.bounds.get(name, (0.0, math.inf if detail.open else 0.0))
            widths.append(high - low)
    return max(widths)


def _in_range(source: ListSource, prepared: Prepared, session: Session) -> tuple[Tally, Range]:
    """Count lists at the thresholds of the range; one from the data needs every distance."""
    problem, used = prepared.problem, prepared.range
    if used is None:
        tally = _tally(source, prepared, session, np.empty(0), None)
        session = replace(session, collect=None)  # the lists are the same at the thresholds
        if not tally.complete or not tally.least <= tally.most:
            return tally, Range(math.nan, math.nan)
        used = Range(tally.least, tally.most)
    thresholds, edges = used.limits(problem.thresholds, problem.edges)
    limit = thresholds[-1] if problem.thresholds else math.inf
    tally = _tally(source, prepared, session, thresholds, edges)
    if used.strict and (tally.least < used.low or tally.most > limit):
        raise InputError(
            f"lists hold distances from {tally.least!r} to {tally.most!r}, outside the given "
            f"range [{used.low!r}, {used.high!r}]: widen --range"
        )
    return tally, used


def _tally(
    source: ListSource,
    prepared: Prepared,
    session: Session,
    thresholds: FloatArray,
    edges: FloatArray | None,
) -> Tally:
    """Make or read the lists of all queries, block by block, and count them."""
    ranking = Ranking.of(source, prepared.plan, session)
    parts: list[Extremes] = []
    repairs, least, most, seconds = Repairs(), math.inf, -math.inf, 0.0
    for first in range(0, source.shape[0], prepared.plan.tile[0]):
        queries = first, min(first + prepared.plan.tile[0], source.shape[0])
        pairs = prepared.pairs.block(*queries)
        begin = time.perf_counter()
        raw, hits = source.read(queries, prepared.plan, session, repairs)
        seconds += (time.perf_counter() - begin) * source.searches
        lists = ranking.rank(raw, hits, queries)
        places = Places.of(pairs, lists)
        if session.collect is not None:
            session.collect(lists)
        distance = lists.distance[places.valid]
        least = min(least, float(distance.min(initial=math.inf)))
        most = max(most, float(distance.max(initial=-math.inf)))
        if source.reading == "never":
            parts.append(as_deployed(pairs, lists, places, thresholds))
            continue
        known = None
        if source.tighten:
            known = ranking.missing_distances(lists, places.missing_positives(pairs), queries)
        parts.append(find_extremes(pairs, lists, places, thresholds, edges, known))
    return Tally(source, Extremes.stack(parts), least, most, repairs, seconds)
