"""The list of metrics, and their evaluation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import StreamevalWarning
from streameval.metrics.gom import MFR, MREP
from streameval.metrics.metric import Metric
from streameval.metrics.openset import DIR_FAR
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.retrieval import CMC, MAP, MINP
from streameval.statistics import RankStatistics

METRICS: tuple[Metric, ...] = (CMC, MAP, MINP, MREP, MFR, DIR_FAR)


@dataclass(frozen=True)
class Metrics:
    """All metrics of one evaluation.

    Attributes
    ----------
    scalars : dict of str to float
        ``CMC@1``, ``mAP``, .. ; NaN where undefined.
    intervals : dict of str to (float, float)
        The scalars that differ between the pessimistic and the optimistic tie rule, with the
        two values in ascending order. Empty where there are no ties.
    curves : dict of str to [n] float64
        ``CMC`` [K]; ``tau``, ``mRP``, ``mVP``, ``mReP``, ``mFR`` [T]; ``ROC_tau``, ``FAR``,
        ``DIR@1`` [points of the ROC].
    per_query : dict of str to [Q] array
        NaN where undefined.
    counts : dict of str to int
    """

    scalars: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    curves: dict[str, npt.NDArray[Any]]
    per_query: dict[str, npt.NDArray[Any]]
    counts: dict[str, int]


def compute_metrics(stats: RankStatistics, options: MetricOptions = DEFAULT_OPTIONS) -> Metrics:
    """Compute every metric that the statistics allow.

    Metrics on thresholds are left out where the statistics have none. Metrics over an empty
    set of queries are NaN.

    Warns
    -----
    StreamevalWarning
        If Q+ is empty; names the scalars that are NaN for it. An empty Q− is the ordinary
        closed-world setting, and nothing to warn of.
    """
    planned = [m for m in METRICS if len(stats.thresholds) or not m.needs_thresholds]
    ranked = RankedQueries(stats, options)
    scalars: dict[str, float] = {}
    curves: dict[str, npt.NDArray[Any]] = {}
    per_query = query_columns(stats)
    undefined: list[str] = []
    for metric in planned:
        values = metric.compute(ranked)
        scalars.update(values.scalars)
        curves.update(values.curves)
        per_query.update(values.per_query)
        if "Q+" in metric.over:
            undefined.extend(values.scalars)
    if not stats.has_positive.any():
        message = _no_positives_message(stats, undefined)
        warnings.warn(message, StreamevalWarning, stacklevel=2)
    return Metrics(scalars, tie_intervals(ranked, planned), curves, per_query, query_counts(stats))


def tie_intervals(
    ranked: RankedQueries, metrics: Iterable[Metric]
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
    for metric in metrics:
        if metric.depends_on_ties:
            one, other = metric.compute(pessimistic).scalars, metric.compute(optimistic).scalars
            for name, value in one.items():
                if value != other[name] and not math.isnan(value):
                    intervals[name] = (min(value, other[name]), max(value, other[name]))
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
