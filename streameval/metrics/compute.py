"""The evaluation of metrics: values, curves and columns of one set of statistics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import StreamevalWarning
from streameval.metrics.kind import FRACTION, Kind
from streameval.metrics.metric import EMPTY, Measure, Population, Value
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.selection import available_fields, measures_of
from streameval.statistics import RankStatistics

MOST_TOLD = 14  # metrics in a repr: as many as there are usually


@dataclass(frozen=True)
class Detail:
    """What there is to say of a scalar beside its value.

    Attributes
    ----------
    part : str
        Where it belongs: "retrieval", "open-set", "gom", "verification".
    reason : str
        Why it is NaN; empty where it is not.
    threshold : float, optional
        The distance at which it is reached.
    error, threshold_error : float
        Bounds on the errors of the value and of the threshold.
    kind : Kind
        What the value is.
    open : bool
        Whether it is NaN as lists of neighbours leave it open: longer ones may tell.
    """

    part: str
    reason: str = ""
    threshold: float | None = None
    error: float = 0.0
    threshold_error: float = 0.0
    kind: Kind = FRACTION
    open: bool = False


@dataclass(frozen=True)
class Metrics:
    """All metrics of one evaluation.

    Attributes
    ----------
    scalars : dict of str to float
        ``CMC@1``, ``mAP``, .. ; NaN where undefined.
    details : dict of str to Detail
        Of each scalar: why it is NaN, where it is reached, how far it may be off.
    intervals : dict of str to (float, float)
        The scalars that differ between the pessimistic and the optimistic tie rule, with the
        two values in ascending order. Empty where there are no ties.
    curves : dict of str to [n] array
        ``CMC`` [K]; ``tau``, ``mRP``, ``mVP``, ``mReP``, ``mFR`` [T]; ``ROC_tau``, ``FAR``,
        ``DIR@1`` [points of the ROC]; and what other metrics are read off.
    per_query : dict of str to [Q] array
        NaN where undefined.
    counts : dict of str to int
    """

    scalars: dict[str, float]
    details: dict[str, Detail]
    intervals: dict[str, tuple[float, float]]
    curves: dict[str, npt.NDArray[Any]]
    per_query: dict[str, npt.NDArray[Any]]
    counts: dict[str, int]

    def __repr__(self) -> str:
        return f"<Metrics: {scalars_text(self.scalars)}>"


def scalars_text(scalars: Mapping[str, float]) -> str:
    """Return the first metrics in a line, as a repr has them."""
    told = [f"{name} {value:.6g}" for name, value in scalars.items()]
    return ", ".join([*told[:MOST_TOLD], "..."] if len(told) > MOST_TOLD else told)


def compute_metrics(stats: RankStatistics, options: MetricOptions = DEFAULT_OPTIONS) -> Metrics:
    """Compute the metrics of the options, or the usual ones that the statistics allow.

    Metrics over an empty set of queries or pairs are NaN.

    Raises
    ------
    OptionError
        If a metric is unknown, or is named and needs what the statistics do not hold.

    Warns
    -----
    StreamevalWarning
        If Q+ is empty; names the scalars that are NaN for it. An empty Q− is the ordinary
        closed-world setting, and nothing to warn of.
    """
    measures = measures_of(options, available_fields(stats))
    metrics = metrics_of(stats, options, measures)
    if not stats.has_positive.any():
        undefined = [one.name for one in measures if "Q+" in one.metric.over]
        warnings.warn(_no_positives_message(stats, undefined), StreamevalWarning, stacklevel=2)
    return metrics


def metrics_of(
    stats: RankStatistics, options: MetricOptions, measures: Iterable[Measure]
) -> Metrics:
    """Compute some metrics, all of which the statistics allow; without a warning."""
    ranked = RankedQueries(stats, options)
    empty = empty_populations(stats)
    scalars: dict[str, float] = {}
    details: dict[str, Detail] = {}
    curves: dict[str, npt.NDArray[Any]] = {}
    per_query = query_columns(stats)
    computed = list(measures)
    for measure in computed:
        value = measure.compute(ranked)
        if empty.intersection(measure.metric.over):
            value = replace(value, value=math.nan)
        scalars[measure.name] = value.value
        details[measure.name] = value_detail(measure, value, empty)
        curves.update(value.curves)
        per_query.update(value.per_query)
    intervals = tie_intervals(ranked, computed)
    return Metrics(scalars, details, intervals, curves, per_query, query_counts(stats))


def empty_populations(stats: RankStatistics) -> set[Population]:
    """Return what there is nothing of, of what metrics are means or rates over."""
    empty: dict[Population, bool] = {
        "Q+": not stats.has_positive.any(),
        "Q−": not stats.identity_absent.any(),
        "negatives": not stats.negatives.any(),
    }
    return {population for population, is_empty in empty.items() if is_empty}


def value_detail(measure: Measure, value: Value, empty: set[Population]) -> Detail:
    """Return what there is to say of a value, where these populations are empty."""
    metric = measure.metric
    reason = ""
    if math.isnan(value.value):
        reasons = [EMPTY[one] for one in reversed(metric.over) if one in empty]
        reason = reasons[0] if reasons else value.reason or "undefined"
    return Detail(
        metric.part, reason, value.threshold, value.error, value.threshold_error, metric.kind
    )


def tie_intervals(
    ranked: RankedQueries, measures: Iterable[Measure]
) -> dict[str, tuple[float, float]]:
    """Return the scalars that the pessimistic and the optimistic rule disagree on.

    Returns
    -------
    dict of str to (float, float)
        The lower and the upper of the two. They bound the scalar under every tie rule, but for
        tau_max, which is a place and not a score.
    """
    if not ranked.stats.tied.any():
        return {}
    options = ranked.options
    pessimistic = RankedQueries(ranked.stats, replace(options, ties="pessimistic"))
    optimistic = RankedQueries(ranked.stats, replace(options, ties="optimistic"))
    intervals: dict[str, tuple[float, float]] = {}
    for measure in measures:
        if measure.metric.depends_on_ties:
            one, other = (measure.compute(rule).value for rule in (pessimistic, optimistic))
            if one != other and not math.isnan(one):
                intervals[measure.name] = (min(one, other), max(one, other))
    return intervals


def query_columns(stats: RankStatistics) -> dict[str, npt.NDArray[Any]]:
    """Return what is known of each query before any metric, [Q] each.

    ``class`` is "positive" (Q+), "negative" (Q−) or "excluded"; ``ties`` the number of
    positive-negative pairs at the same distance; ``nearest_positive`` and ``nearest_negative``
    distances, NaN where there is none.
    """
    per_query: dict[str, npt.NDArray[Any]] = {
        "class": np.select(
            [stats.has_positive, stats.identity_absent], ["positive", "negative"], "excluded"
        ),
        "positives": stats.positives,
        "negatives": stats.negatives,
        "ignored": stats.ignored,
    }
    ties_before = np.append(0, np.cumsum(stats.tied))
    per_query["ties"] = np.diff(ties_before[stats.indptr])
    nearest = np.full(stats.queries, math.nan)
    nearest[stats.has_positive] = stats.positive_distance[stats.indptr[:-1][stats.has_positive]]
    per_query["nearest_positive"] = nearest
    per_query["nearest_negative"] = np.where(stats.negatives > 0, stats.nearest_negative, math.nan)
    return per_query


def query_counts(stats: RankStatistics) -> dict[str, int]:
    """Return the numbers of queries of each class, of pairs, and of ties."""
    return {
        "queries": stats.queries,
        "queries_positive": int(stats.has_positive.sum()),
        "queries_negative": int(stats.identity_absent.sum()),
        "queries_excluded": int(stats.excluded.sum()),
        "pairs_positive": len(stats.positive_distance),
        "pairs_ignored": int(stats.ignored.sum()),
        "ties": int(stats.tied.sum()),
    }


def _no_positives_message(stats: RankStatistics, undefined: Iterable[str]) -> str:
    message = (
        "no query has a positive in the gallery (Q+ is empty), so these are NaN: "
        + ", ".join(undefined)
    )
    excluded = int(stats.excluded.sum())
    if excluded:
        message += f"; of {excluded} queries every item of the same identity is ignored"
    return message
