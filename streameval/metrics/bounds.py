"""Metrics of lists of neighbours: between the extremes that they leave, or as a system deployed.

Lists leave out items, of which the labels tell the number and nothing tells the place. Read as
*bounds*, each metric is an interval: between its values of the worst and of the best statistics
that the lists allow (`counting.returned`), as far as its declaration says that it moves one way
(`Metric.tail`); a value, where the two coincide. Read as *never*, what is not returned is not
found, and the list is the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.choices import Missing
from streameval.metrics.compute import (
    Detail,
    Metrics,
    empty_populations,
    metrics_of,
    value_detail,
)
from streameval.metrics.metric import Measure, Value
from streameval.metrics.options import MetricOptions
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.selection import (
    available_fields,
    find_measure,
    in_order,
    wanted_measures,
    with_named,
)
from streameval.metrics.totals import facts_of, query_columns, query_counts
from streameval.statistics import FIELDS, IntArray, RankStatistics

Bounds = tuple[float, float]

NO_RANGE = (
    "needs thresholds, and lists alone don't tell the range of all distances: give one (--range)"
)
ALL_DISTANCES = "needs the distances of all pairs, and items are missing from lists"
MOVES_BOTH_WAYS = "may move either way with what is missing from lists: no bound is given"
ITEMS_MISSING = "lies between its bounds: items are missing from lists"
NEEDS_PLACES = "needs the places of positives that were not returned"


@dataclass(frozen=True, eq=False)
class ListReading:
    """How lists of neighbours are read, and what is known of each.

    Attributes
    ----------
    missing : {"bounds", "never"}
    depth : int
        k: the most items of a list.
    effective : [Q] int64
        Places of each query's ranking that are certain.
    missing_positives : [Q] int64
        Positives that were not returned.
    distances_known : bool
        Whether the distances of these are known.
    best : RankStatistics, optional
        With ``bounds``: the statistics of an evaluation are the worst that there can be, and
        these the best. None with ``never``.
    """

    missing: Missing
    depth: int
    effective: IntArray
    missing_positives: IntArray
    distances_known: bool = False
    best: RankStatistics | None = None

    def take(self, queries: npt.NDArray[Any]) -> ListReading:
        """Return what is known of the lists of some of the queries; see `RankStatistics.take`."""
        return replace(
            self,
            effective=self.effective[queries],
            missing_positives=self.missing_positives[queries],
            best=None if self.best is None else self.best.take(queries),
        )


@dataclass(frozen=True)
class ListMetrics(Metrics):
    """Metrics of lists of neighbours.

    Attributes
    ----------
    bounds : dict of str to (float, float)
        Of every metric that can be bounded, the least and the greatest value that the lists
        allow; equal where it is known.
    places : dict of str to (int, int)
        Of a metric that is not known, the k that may do to know it: none below the first can,
        the second certainly does.
    """

    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def compute_list_metrics(
    stats: RankStatistics, reading: ListReading, options: MetricOptions
) -> ListMetrics:
    """Compute the metrics of the options: bounds, or those of a system as deployed.

    Raises
    ------
    OptionError
        If a metric is unknown.
    """
    if reading.best is None:
        return _as_deployed(stats, reading, options)
    measures, without = _possible(stats, options)
    best = reading.best
    if _alike(stats, best, FIELDS):
        known = metrics_of(stats, options, measures)
        bounds = {name: (one, one) for name, one in known.scalars.items() if not math.isnan(one)}
        known = replace(known, per_query=known.per_query | _list_columns(reading))
        return _list_metrics(known, without, bounds, {})
    ends = RankedQueries(stats, options), RankedQueries(best, options)
    shown = replace(best, tied=_shown_ties(stats, best))
    between = _Between(reading, ends)
    scalars: dict[str, float] = {}
    details: dict[str, Detail] = {}
    found: dict[str, Bounds] = {}
    curves, columns = {}, _merged(query_columns(stats), query_columns(shown))
    for measure in measures:
        one, other = measure.compute(ends[0]), measure.compute(ends[1])
        scalars[measure.name], details[measure.name], interval = between.read(measure, one, other)
        if interval is not None:
            found[measure.name] = interval
        if interval is not None or measure.tail == "monotone":
            curves.update(_merged(one.curves, other.curves))
            columns.update(_merged(one.per_query, other.per_query))
    ties = _tie_intervals(ends, [one for one in measures if not math.isnan(scalars[one.name])])
    columns |= _list_columns(reading)
    metrics = Metrics(scalars, details, ties, curves, columns, query_counts(shown))
    places = {
        one.name: closing_places(one, stats, reading)
        for one in measures
        if math.isnan(scalars[one.name]) and (one.name in found or one.tail == "cutoff")
    }
    return _list_metrics(metrics, without, found, places)


def _possible(
    stats: RankStatistics, options: MetricOptions
) -> tuple[list[Measure], dict[str, Detail]]:
    """Return the metrics that the statistics allow, and of named others why they don't."""
    named, listed = wanted_measures(options)
    available = available_fields(stats)
    # A part of the list does not ask for draws, which lists never have.
    wanted = in_order([*named, *(one for one in listed if "sampled_shots" not in one.metric.needs)])
    possible = [one for one in wanted if set(one.metric.needs_under(options)) <= available]
    reasons = {
        one.name: Detail(
            one.metric.part,
            NO_RANGE if "negatives_within" in one.metric.needs else ALL_DISTANCES,
            kind=one.metric.kind,
        )
        for one in wanted
        if one not in possible
    }
    return possible, reasons


def _alike(one: RankStatistics, other: RankStatistics, fields: Iterable[str]) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


@dataclass(frozen=True, eq=False)
class _Between:
    """Reads metrics between the two extremes."""

    reading: ListReading
    ends: tuple[RankedQueries, RankedQueries]

    def read(
        self, measure: Measure, one: Value, other: Value
    ) -> tuple[float, Detail, Bounds | None]:
        """Return the value (NaN where it is open), what is to be said, and the interval."""
        worst, best = (end.stats for end in self.ends)
        empty = empty_populations(self.ends[0].once(facts_of))
        tail, reason = measure.tail, ""
        if _alike(worst, best, measure.metric.needs_under(self.ends[0].options)):
            tail = "monotone"
        elif empty.intersection(measure.metric.over):
            return math.nan, value_detail(measure, replace(one, value=math.nan), empty), None
        elif tail == "cutoff":
            reason = NEEDS_PLACES if self._uncertain(cutoff_of(measure)).any() else ""
        elif tail == "own":
            own = measure.between(*self.ends)
            reason = MOVES_BOTH_WAYS if own is None else ""
            one, other = (
                replace(value, value=end)
                for value, end in zip((one, other), own or (math.nan, math.nan), strict=True)
            )
        elif tail == "withheld":
            reason = MOVES_BOTH_WAYS
        undefined = math.isnan(one.value) + math.isnan(other.value)
        if not reason and undefined == 1:
            reason = MOVES_BOTH_WAYS
        if reason:
            return (
                math.nan,
                Detail(measure.metric.part, reason, kind=measure.metric.kind, open=True),
                None,
            )
        detail = value_detail(measure, one, empty)
        if one.threshold != other.threshold:
            detail = replace(detail, threshold=None, threshold_error=0.0)
        if undefined:
            return math.nan, detail, None
        low, high = sorted((one.value, other.value))
        if low == high:
            return low, detail, (low, high)
        detail = replace(detail, reason=ITEMS_MISSING, open=True)
        return math.nan, detail, (low, high)

    def _uncertain(self, place: int | None) -> npt.NDArray[np.bool_]:
        """[Q] bool: whether places up to one are uncertain, of queries with positives."""
        stats = self.ends[0].stats
        whole = self.reading.effective >= stats.valid
        short = np.True_ if place is None else self.reading.effective < place
        uncertain: npt.NDArray[np.bool_] = stats.has_positive & ~whole & short
        return uncertain


def cutoff_of(measure: Measure) -> int | None:
    """Return the rank beyond which nothing counts for a metric; None where everything does."""
    first = next(iter(measure.metric.parameters), None)
    return int(measure.values[0]) if first in ("x", "k") else None


def closing_places(
    measure: Measure, stats: RankStatistics, reading: ListReading
) -> tuple[int, int]:
    """Return the least k that may do to know a metric, and one that certainly does.

    Ignored items take places of a list: with k = x + (their number) + 1 the first x places are
    certain, but for rounding and ties at the end. Where all positives count, lists may have to
    be as long as the gallery.
    """
    gallery = int((stats.valid + stats.ignored).max(initial=0))
    open_ = reading.effective < stats.valid
    least = reading.depth + 1
    x = cutoff_of(measure)
    if measure.metric.part == "retrieval" and x is not None:
        most = x + int(stats.ignored[open_].max(initial=0)) + 1
        return min(least, gallery), min(max(most, least), gallery)
    missing = int(reading.missing_positives.max(initial=0))
    return min(reading.depth + max(missing, 1), gallery), gallery


def _merged(
    worst: Mapping[str, npt.NDArray[Any]], best: Mapping[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Return arrays that are equal as they are, others as ``name/lower`` and ``name/upper``.

    An array that one of the two has not got is left out.
    """
    merged: dict[str, npt.NDArray[Any]] = {}
    for name in (one for one in worst if one in best):
        one, other = worst[name], best[name]
        numbers = one.dtype.kind in "if"
        if one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            merged[name] = one
        elif one.shape == other.shape and numbers:
            merged[f"{name}/lower"] = np.fmin(one, other)
            merged[f"{name}/upper"] = np.fmax(one, other)
    return merged


def _shown_ties(worst: RankStatistics, best: RankStatistics) -> IntArray:
    """Return the ties of each positive of the best extreme that the lists show, [P] int64.

    A positive whose distance is not known has none: where it is put may be as far as others.
    """
    item, elsewhere = best.positive_item, worst.positive_item
    if item is None or elsewhere is None:
        return best.tied
    query = np.repeat(np.arange(best.queries), best.positives)
    own, others = np.lexsort((item, query)), np.lexsort((elsewhere, query))
    tied = best.tied.copy()
    tied[own[best.positive_distance[own] != worst.positive_distance[others]]] = 0
    return tied


def _tie_intervals(
    ends: tuple[RankedQueries, RankedQueries], measures: Iterable[Measure]
) -> dict[str, Bounds]:
    """Return the metrics that are known, and that ties of returned items leave open.

    From the pessimistic rule at worst to the optimistic one at best.
    """
    if not ends[1].stats.tied.any():
        return {}
    options = ends[0].options
    worst = RankedQueries(ends[0].stats, replace(options, ties="pessimistic"))
    best = RankedQueries(ends[1].stats, replace(options, ties="optimistic"))
    intervals: dict[str, Bounds] = {}
    for measure in measures:
        if measure.metric.depends_on_ties:
            low, high = sorted((measure.compute(worst).value, measure.compute(best).value))
            if low != high and not math.isnan(low + high):
                intervals[measure.name] = (low, high)
    return intervals


def _list_columns(reading: ListReading) -> dict[str, npt.NDArray[Any]]:
    return {"effective_k": reading.effective, "missing_positives": reading.missing_positives}


def _list_metrics(
    metrics: Metrics,
    without: Mapping[str, Detail],
    bounds: Mapping[str, Bounds],
    places: Mapping[str, tuple[int, int]],
) -> ListMetrics:
    """Return the metrics, and those without a value, in the order of the list of all."""
    scalars = {**metrics.scalars, **dict.fromkeys(without, math.nan)}
    details = {**metrics.details, **without}
    order = [one.name for one in in_order([find_measure(name) for name in scalars])]
    return ListMetrics(
        {name: scalars[name] for name in order},
        {name: details[name] for name in order},
        metrics.intervals,
        metrics.curves,
        metrics.per_query,
        metrics.counts,
        bounds,
        places,
    )


def _as_deployed(
    stats: RankStatistics, reading: ListReading, options: MetricOptions
) -> ListMetrics:
    """Compute the metrics of a system that finds what it returns and nothing else."""
    if not options.metrics:
        options = with_named(options, [find_measure(one) for one in cut_names(reading.depth)])
    possible, without = _possible(stats, options)
    cut = ", ".join(cut_names(reading.depth))
    for measure in possible:
        if not measure.metric.deployed:
            without[measure.name] = Detail(
                measure.metric.part,
                f"asks where positives stand that are never found: read {cut}",
                kind=measure.metric.kind,
            )
    metrics = metrics_of(stats, options, [one for one in possible if one.metric.deployed])
    columns = metrics.per_query | _list_columns(reading)
    if "first_rank" in columns:
        found = columns["first_rank"] <= (stats.valid + stats.ignored)
        columns["first_rank"] = np.where(found, columns["first_rank"], np.nan)
    columns["nearest_positive"] = np.where(
        np.isfinite(columns["nearest_positive"]), columns["nearest_positive"], np.nan
    )
    metrics = replace(metrics, per_query=columns)
    return _list_metrics(metrics, without, {}, {})


def cut_names(depth: int) -> tuple[str, ...]:
    """Return the names of what stands in for mAP and mINP of lists of k items."""
    return f"mAP@{depth}/total", f"recall@{depth}"
