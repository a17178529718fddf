"""Confidence intervals of metrics, by bootstrap over identities: see `resampling`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streameval.metrics.metric import Measure, Population
from streameval.metrics.options import MetricOptions
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.resampling import Identities, Resamples, Resampling
from streameval.statistics import FloatArray, RankStatistics

ONE_IDENTITY = "the queries are of one identity: there is nothing to draw from"
UNDEFINED_SHARE = 0.05
"""Share of resamples without a value beyond which there is no interval."""


@dataclass(frozen=True, eq=False)
class Confidence:
    """Percentile intervals of metrics.

    Attributes
    ----------
    how : Resampling
    identities : int
        How many were drawn from, and how many were drawn for each resample.
    intervals : mapping of str to (float, float)
        By metric: lower and upper bound, percentiles of the resamples (Efron and Tibshirani 1993,
        §13.3).
    reasons : mapping of str to str
        Why a metric that has a value has no interval.
    """

    how: Resampling
    identities: int
    intervals: Mapping[str, tuple[float, float]]
    reasons: Mapping[str, str]


def confidence_of(
    stats: RankStatistics,
    options: MetricOptions,
    measures: Iterable[Measure],
    identities: Identities,
    how: Resampling,
) -> Confidence:
    """Return the intervals of metrics that have a value.

    Parameters
    ----------
    stats : RankStatistics
    options : MetricOptions
    measures : iterable of Measure
        Metrics with a value, not NaN.
    identities : Identities
        Of the queries.
    how : Resampling
    """
    wanted = list(measures)
    reasons = {one.name: reason for one in wanted if (reason := withheld(one, identities))}
    possible = [one for one in wanted if one.name not in reasons]
    intervals: dict[str, tuple[float, float]] = {}
    for name, values in resampled_values(stats, options, possible, identities, how).items():
        undefined = int(np.isnan(values).sum())
        if undefined > UNDEFINED_SHARE * len(values):
            reasons[name] = f"without a value in {undefined:,} of {len(values):,} resamples"
        else:
            intervals[name] = interval(values, how.level)
    return Confidence(how, identities.count, intervals, reasons)


def withheld(measure: Measure, identities: Identities) -> str:
    """Return why a metric can't be resampled; an empty text where it can."""
    if not measure.metric.resamples:
        return measure.metric.no_interval
    return ONE_IDENTITY if identities.count < 2 else ""


def interval(values: FloatArray, level: float) -> tuple[float, float]:
    """Return the quantiles that enclose a share of the values; those of NaN are left out."""
    tail = (1 - level) / 2
    low, high = np.quantile(values[~np.isnan(values)], (tail, 1 - tail))
    return float(low), float(high)


def resampled_values(
    stats: RankStatistics,
    options: MetricOptions,
    measures: Iterable[Measure],
    identities: Identities,
    how: Resampling,
) -> dict[str, FloatArray]:
    """Return each metric's value in each resample, [R] float64; NaN where it has none.

    Equal, but for rounding, to the metric of ``stats.take`` of the queries that are drawn. The
    same identities and `how` give the same draws, whatever the statistics: values of two runs on
    the same queries are pairs.
    """
    ranked, wanted = RankedQueries(stats, options), list(measures)
    parts: dict[str, list[FloatArray]] = {one.name: [] for one in wanted}
    for drawn in identities.draws(how) if wanted else ():
        resamples = Resamples(ranked, identities, drawn)
        for one in wanted:
            values = np.where(_is_empty(resamples, one), math.nan, one.resampled(resamples))
            parts[one.name].append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def _is_empty(resamples: Resamples, measure: Measure) -> npt.NDArray[np.bool_]:
    """Return in which resamples there is nothing of what the metric is over, [R] bool."""
    negatives = resamples.ranked.stats.negatives.astype(np.float64)
    numbers: Mapping[Population, FloatArray] = {
        "Q+": resamples.known,
        "Q−": resamples.strangers,
        "negatives": resamples.sums(negatives),
    }
    empty: npt.NDArray[np.bool_] = np.any(
        [numbers[one] == 0 for one in measure.metric.over], axis=0
    )
    return empty
