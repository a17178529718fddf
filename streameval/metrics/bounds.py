"""Metrics of lists of neighbours: intervals, or those of a system as deployed.

Lists leave items out. The labels tell how many, nothing tells where they stand. Read as
*bounds*, each metric is an interval between its values of the worst and of the best statistics
that the lists allow (`neighbors.bounds`), as far as its declaration says that it moves one way
(`Metric.tail`); a value, where the two coincide. Read as *never*, what is not returned is not
found, and the list is the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from streameval.choices import Missing
from streameval.metrics.blocks import Totals, totals_of
from streameval.metrics.compute import (
    Metrics,
    check_matched,
    metrics_of,
    tie_intervals,
    value_detail,
)
from streameval.metrics.metric import RANK_FIELDS, Bounds, Measure, Value
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import available_fields, in_order, wanted_measures, with_named
from streameval.sorting import order_within
from streameval.statistics import FIELDS, ROW_FIELDS, RankStatistics
from streameval.typing import AnyArray, IntArray

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
        k: the largest number of items in a list.
    effective : [Q] int64
        Number of certain places in each query's ranking.
    missing_positives : [Q] int64
        Number of positives missing from the list.
    distances_known : bool
        Whether the distances of the missing positives are known.
    best : RankStatistics, optional
        With ``bounds``: the best possible statistics; those of the evaluation are the worst
        possible. None with ``never``.
    """

    missing: Missing
    depth: int
    effective: IntArray
    missing_positives: IntArray
    distances_known: bool = False
    best: RankStatistics | None = None

    def take(self, queries: AnyArray) -> ListReading:
        """Return what is known of the lists of some of the queries; see `RankStatistics.take`."""
        return replace(
            self,
            effective=self.effective[queries],
            missing_positives=self.missing_positives[queries],
            best=None if self.best is None else self.best.take(queries),
        )

    @property
    def columns(self) -> dict[str, AnyArray]:
        """What is known of each query's list, [Q] each, by name."""
        return {"effective_k": self.effective, "missing_positives": self.missing_positives}


def compute_list_metrics(
    stats: RankStatistics, reading: ListReading, options: MetricOptions
) -> Metrics:
    """Compute the metrics of the options: bounds, or those of a system as deployed."""
    check_matched(stats.positives, options)
    cut = cut_names(reading.depth)
    if reading.best is None and not options.metrics:
        options = with_named(options, cut)
    named, listed = wanted_measures(options)
    # A part of the list does not ask for draws, which lists never have.
    wanted = in_order([*named, *(one for one in listed if "sampled_shots" not in one.metric.needs)])
    available = available_fields(stats)
    reasons: dict[Measure, str] = {}
    for measure in wanted:
        if not measure.metric.needs_under(options) <= available:
            ranged = "negatives_within" in measure.metric.needs
            reasons[measure] = NO_RANGE if ranged else ALL_DISTANCES
        elif reading.best is None and not measure.metric.deployed:
            reasons[measure] = (
                f"asks where positives stand that are never found: read {', '.join(cut)}"
            )
    measures = [one for one in wanted if one not in reasons]
    if reading.best is not None:
        found = _bounded(stats, reading.best, reading, options, measures)
    else:  # what is not returned has no rank and no distance
        found, finite = metrics_of(stats, options, measures), np.finfo(np.float64).max
        columns, gallery = found.per_query, stats.valid + stats.ignored
        for name, most in (("first_rank", gallery), ("nearest_positive", finite)):
            if name in columns:
                columns[name] = np.where(columns[name] <= most, columns[name], np.nan)
    details = {
        one.name: value_detail(one, Value(math.nan, reason=reasons.get(one, ""))) for one in wanted
    }
    return replace(
        found,
        scalars=dict.fromkeys(details, math.nan) | found.scalars,
        details=details | found.details,
        per_query=found.per_query | reading.columns,
    )


def _bounded(
    stats: RankStatistics,
    best: RankStatistics,
    reading: ListReading,
    options: MetricOptions,
    measures: list[Measure],
) -> Metrics:
    """Compute the metrics between the worst statistics and the best."""
    alike = {name for name in FIELDS if _same(name, stats, best)}
    hidden = not alike.issuperset(RANK_FIELDS)
    demands = [demand for measure in measures for demand in measure.demands()]
    ends = worst_end, best_end = [
        totals_of(one, options, demands, hidden=hidden) for one in (stats, best)
    ]
    shown = totals_of(_ShownTies(stats, best), options)
    ties = {"ties": shown.columns["ties"]}
    columns = _merged(worst_end.columns, best_end.columns | ties)
    found = Metrics({}, {}, {}, {}, columns, shown.counts)
    settled: list[Measure] = []
    for measure in measures:
        name = measure.name
        known = measure.metric.needs_under(options) <= alike
        one = measure.finish(worst_end)
        other = one if known else measure.finish(best_end)
        low, high, reason = one.value, other.value, ""
        if not known and not measure.lacks(worst_end):
            low, high, reason = _between(measure, stats, ends, (low, high), reading)
        if one.threshold != other.threshold or (reason and math.isnan(low)):
            one = replace(one, threshold=None, threshold_error=0.0)
        found.scalars[name] = low if low == high else math.nan
        value = replace(one, value=found.scalars[name], reason=reason or one.reason)
        found.details[name] = value_detail(measure, value, left_open=reason != "")
        if not math.isnan(low):
            found.bounds[name] = low, high
        if "tied" in measure.metric.needs and (known or low == high):
            settled.append(measure)
        if known or name in found.bounds or measure.tail == "monotone":
            found.curves.update(_merged(one.curves, other.curves))
            columns.update(_merged(one.per_query, other.per_query))
        if low != high and (name in found.bounds or measure.tail == "cutoff"):
            found.places[name] = closing_places(measure, stats, reading)
    settled = [one for one in settled if best_end.counts["ties"] or one.metric.pooled]
    if settled:  # ties of returned items: from pessimistic at worst to optimistic at best
        demands = [demand for measure in settled for demand in measure.demands()]
        worst_ties = totals_of(stats, replace(options, ties="pessimistic"), demands)
        best_ties = totals_of(best, replace(options, ties="optimistic"), demands)
        found.intervals.update(tie_intervals((worst_ties, best_ties), settled))
    return found


def _between(
    measure: Measure,
    stats: RankStatistics,
    ends: Sequence[Totals],
    values: Bounds,
    reading: ListReading,
) -> tuple[float, float, str]:
    """Return what a metric lies between, by its values of the extremes, and why it isn't known."""
    if measure.tail == "cutoff":
        counted = np.minimum(stats.valid, measure.values[0])
        if np.any(stats.has_positive & (reading.effective < counted)):
            return math.nan, math.nan, NEEDS_PLACES
    between = measure.call(measure.metric.between, *ends) if measure.tail == "own" else values
    if measure.tail == "withheld" or between is None or sum(map(math.isnan, between)) == 1:
        return math.nan, math.nan, MOVES_BOTH_WAYS
    low, high = sorted(between)
    return low, high, ITEMS_MISSING if low < high else ""


def closing_places(
    measure: Measure, stats: RankStatistics, reading: ListReading
) -> tuple[int, int]:
    """Return the least k that may do to know a metric, and one that certainly does.

    Ignored items take places of a list: with k = x + (their number) + 1 the first x places are
    certain, but for rounding and ties at the end. Where all positives count, lists may have to
    be as long as the gallery.
    """
    gallery = int((stats.valid + stats.ignored).max(initial=0))
    first = next(iter(measure.metric.parameters), None)
    if measure.metric.part == "retrieval" and first in ("x", "k"):  # a rank beyond which none count
        x = int(measure.values[0])
        open_ = reading.effective < stats.valid
        least = reading.depth + 1
        most = x + int(stats.ignored[open_].max(initial=0)) + 1
        return min(least, gallery), min(max(most, least), gallery)
    missing = int(reading.missing_positives.max(initial=1))
    return min(reading.depth + missing, gallery), gallery


def _merged(worst: Mapping[str, AnyArray], best: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return arrays that are equal as they are, others as ``name/lower`` and ``name/upper``.

    An array that one of the two has not got is left out; a value that one has not got is NaN.
    """
    merged: dict[str, AnyArray] = {}
    for name in (one for one in worst if one in best):
        one, other = worst[name], best[name]
        if np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            merged[name] = one
        elif one.shape == other.shape and one.dtype.kind in "if":
            merged[f"{name}/lower"] = np.minimum(one, other)
            merged[f"{name}/upper"] = np.maximum(one, other)
    return merged


def _same(name: str, one: RankStatistics, other: RankStatistics) -> bool:
    """Return whether statistics of the same positives are equal in a field, read by blocks."""
    if name not in ROW_FIELDS or name not in one.held:
        return np.array_equal(getattr(one, name), getattr(other, name))
    cuts = np.unique(one.spans)
    if FIELDS[name].axes[0] == "positive":
        cuts = one.indptr[cuts]
    return all(
        np.array_equal(one.stretch(name, *span), other.stretch(name, *span))
        for span in pairwise(cuts.tolist())
    )


class _ShownTies:
    """The best extreme with the ties that the lists show: see `Blocks`."""

    def __init__(self, worst: RankStatistics, best: RankStatistics) -> None:
        self._worst, self._best, self.spans = worst, best, best.spans

    def block(self, start: int, stop: int) -> RankStatistics:
        """Return the statistics of one of the blocks."""
        worst, best = (one.block(start, stop) for one in (self._worst, self._best))
        return replace(best, tied=_shown_ties(worst, best))


def _shown_ties(worst: RankStatistics, best: RankStatistics) -> IntArray:
    """Return the ties of each positive of the best extreme that the lists show, [P] int64.

    A positive whose distance is not known has none: where it is put may be as far as others.
    """
    item, elsewhere = best.positive_item, worst.positive_item
    if item is None or elsewhere is None:
        return best.tied
    own, others = (order_within(best.indptr, items) for items in (item, elsewhere))
    tied = best.tied.copy()
    tied[own[best.positive_distance[own] != worst.positive_distance[others]]] = 0
    return tied


def cut_names(depth: int) -> tuple[str, ...]:
    """Return the names of what stands in for mAP and mINP of lists of k items."""
    return f"mAP@{depth}/total", f"recall@{depth}"
