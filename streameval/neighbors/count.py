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
from streameval.neighbors.lists import Places, Repairs
from streameval.neighbors.ranking import Ranking, gallery_lengths
from streameval.planning.plan import ranges
from streameval.planning.range import Range
from streameval.run.preparation import Prepared
from streameval.run.session import Session
from streameval.source import Counted
from streameval.statistics import FloatArray

if TYPE_CHECKING:
    from streameval.neighbors.source import ListSource

DEEPER = 4  # times as deep each time, of k auto


@dataclass(frozen=True, eq=False)
class _Tally:
    """Lists of all queries, counted; what was repaired, and the seconds that searches took.

    `least` and `most` are of the distances of all valid items of lists; +inf and −inf of none.
    """

    extremes: Extremes
    least: float
    most: float
    repairs: Repairs
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every valid item of every query is known to be listed."""
        return self.extremes.best is not None and bool(self.extremes.complete.all())

    def counted(self, source: ListSource, used: Range) -> Counted:
        """Return what is counted, with facts for the provenance."""
        extremes, missing = self.extremes, self.extremes.missing_positives
        worst, best, effective = extremes.worst, extremes.best, extremes.effective
        if best is not None and not self.complete:  # the histogram lacks missing items
            worst, best = (
                replace(one, impostor_histogram=None, histogram_edges=None) for one in (worst, best)
            )
        reading = ListReading(
            source.reading, source.depth, effective, missing, source.tighten, best
        )
        facts = {
            "missing": source.reading,
            "k": source.depth,
            "distances": "canonical" if source.canonical else "as returned",
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


def count_lists(source: ListSource, prepared: Prepared, session: Session) -> Counted:
    """Count lists of k items; where k is auto, ever longer ones until they do."""
    begin_work(source, prepared, session)
    used, features, plan = prepared.range, source.features, prepared.plan
    if used is not None and used.unit and features is not None:
        for block in ranges(features.shape[0], plan.block):
            used.check_unit(features.read_query(*block).norms)
        used.check_unit(gallery_lengths(features, plan, session))
    with source.built(plan, session) as (ready, facts):
        counted = count_built(ready, prepared, session)
    if facts:
        counted.facts["lists"]["index"] = facts
    return counted


def begin_work(source: ListSource, prepared: Prepared, session: Session) -> None:
    """Tell the progress how much there is to do, as far as that is known."""
    queries, gallery = source.shape
    pairs = queries * (gallery * source.searches + min(source.depth, gallery) * source.canonical)
    session.progress.begin(max(pairs, 1), prepared.plan.bytes_read)


def count_built(source: ListSource, prepared: Prepared, session: Session) -> Counted:
    """Count lists of a source whose index, if it has one, is built; warn of repairs."""
    gallery, deployed, auto = source.shape[1], source.reading == "never", source.k == "auto"
    if auto:
        session = replace(session, collect=None)
        if deployed:
            raise OptionError("k auto closes bounds, and missing is never: give a number")
        source = replace(source, k=min(source.depth, gallery))
    while True:
        tally, used = _in_range(source, prepared, session)
        counted = tally.counted(source, used)
        close = not auto or source.depth >= gallery
        if close or _widest(counted, prepared.request.options) <= source.width:
            tally.repairs.warn(deployed=deployed)
            return counted
        source = replace(source, k=min(source.depth * DEEPER, gallery))
        prepared = replace(prepared, plan=source.plan(prepared.problem, prepared.limits))


def _widest(counted: Counted, options: MetricOptions) -> float:
    """Return the width of the widest interval; infinite where a metric has no bounds yet.

    Where no metrics are named, those of GOM and of verification are not waited for: they have
    thresholds up to the greatest distance, and ask for the whole gallery.
    """
    if counted.reading is None:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        metrics = compute_list_metrics(counted.statistics, counted.reading, options)
    parts = PARTS if options.metrics else ("retrieval", "open-set")
    widths = [0.0]
    for name, detail in metrics.details.items():
        if detail.part in parts:
            low, high = metrics.bounds.get(name, (0.0, math.inf if detail.open else 0.0))
            widths.append(high - low)
    return max(widths)


def _in_range(source: ListSource, prepared: Prepared, session: Session) -> tuple[_Tally, Range]:
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
) -> _Tally:
    """Make or read the lists of all queries, block by block, and count them."""
    plan, parts = prepared.plan, []
    repairs = Repairs(source.name, source.shape[1])
    ranking = Ranking(source, plan, session)
    least, most, seconds = math.inf, -math.inf, 0.0
    for queries in ranges(source.shape[0], plan.tile[0]):
        begin = time.perf_counter()
        raw, longest = source.read(queries, plan, session, repairs)
        seconds += (time.perf_counter() - begin) * source.searches
        lists = ranking.rank(raw, longest, queries)
        places = Places(prepared.pairs.block(*queries), lists)
        if session.collect is not None:
            session.collect(lists)
        distance = lists.distance[places.valid]
        least, most = distance.min(initial=least), distance.max(initial=most)
        if source.reading == "never":
            parts.append(as_deployed(places, thresholds))
            continue
        known = ranking.missing_distances(places, queries) if source.tighten else None
        parts.append(find_extremes(places, thresholds, edges, known))
    return _Tally(Extremes.stack(parts), float(least), float(most), repairs, seconds)
