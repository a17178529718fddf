"""Open set: detection and identification rate against false accept rate, with no grid."""

from __future__ import annotations

import math

import numpy as np

from streameval.metrics.means import prefix_sums
from streameval.metrics.metric import Metric, Values
from streameval.metrics.ranked import RankedQueries
from streameval.statistics import FloatArray


def detection_identification(ranked: RankedQueries) -> Values:
    """Return the exact ROC, and DIR@x at the false accept rates asked for.

    A query is accepted where its nearest valid item is closer than a limit. FAR changes only
    at the nearest negatives of Q−, so the limits are these distances, each once, and +inf;
    accepting all that is closer than a limit gives the best DIR at the FAR there. DIR@x|FAR=f
    is DIR at the largest FAR with FAR <= f.

    Curves, each [n]: ``ROC_tau`` (the limits, ascending), ``FAR`` and ``DIR@x``. A nearest
    negative at +inf (there is none) is never accepted.
    """
    options = ranked.options
    limits, far = false_accepts(ranked.stats.nearest_negative[ranked.negative_queries])
    curves, scalars = {"ROC_tau": limits, "FAR": far}, {}
    for rank in options.dir_ranks:
        rates = detection_rates(ranked, rank, limits)
        curves[f"DIR@{rank}"] = rates
        for rate in options.false_accept_rates:
            point = max(int(np.searchsorted(far, rate, side="right")) - 1, 0)
            scalars[f"DIR@{rank}|FAR={rate:g}"] = float(rates[point])
    return Values(scalars, curves)


def false_accepts(nearest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the limits at which FAR changes, and FAR just below each, both [n] float64.

    Parameters
    ----------
    nearest : [M] float64
        Distance of the nearest negative of each query of Q−. Where M is 0 the result is a
        single point of NaN.
    """
    if not len(nearest):
        return np.array([math.nan]), np.array([math.nan])
    limits = np.append(np.unique(nearest[np.isfinite(nearest)]), np.inf)
    accepted = np.searchsorted(np.sort(nearest), limits, side="left")
    return limits, accepted / len(nearest)


def detection_rates(ranked: RankedQueries, rank: int, limits: FloatArray) -> FloatArray:
    """Return DIR@rank = |{i in Q+ : r_1 <= rank, d_1 < limit}| / N at each limit, [n] float64.

    NaN where N is 0, and at a limit of NaN.
    """
    count = len(ranked.ranks.queries)
    if not count:
        return np.full(len(limits), math.nan)
    order = np.argsort(ranked.nearest_positive)
    sums = prefix_sums(ranked.ranks.first_within(rank)[order])
    inside = np.searchsorted(ranked.nearest_positive[order], limits, side="left")
    return np.where(np.isnan(limits), math.nan, sums[inside] / count)


DIR_FAR = Metric(
    name="DIR|FAR",
    needs=(
        "indptr",
        "positive_distance",
        "closer",
        "tied",
        "tied_before",
        "nearest_negative",
        "same_identity",
    ),
    over=("Q+", "Q−"),
    formula="DIR(τ,x) = |{Q+ : r_1 <= x, d_1 <= τ}|/N at FAR(τ) = |{Q− : min d <= τ}|/M",
    source="Liao et al. 2014; GOM paper, §4.4",
    compute=detection_identification,
)
