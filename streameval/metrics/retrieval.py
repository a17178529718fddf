"""Closed-world retrieval over whole lists: CMC, mAP, mINP, MRR, and precision against recall."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streameval.metrics.means import mean
from streameval.metrics.metric import Metric, Value
from streameval.metrics.parameters import rank, rate
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.resampling import mean_of
from streameval.metrics.single_shot import shot_curve, shots_of, shots_within
from streameval.statistics import FloatArray

RANK_FIELDS = ("indptr", "positive_distance", "closer", "tied", "tied_before")
RECALLS = 101

WITHOUT_EXPECTATION = (
    "an interpolated precision has no closed expectation over tie-breaks: read it under another "
    "tie rule"
)


def mean_over_positive(ranked: RankedQueries, column: str, values: FloatArray) -> Value:
    """Return the mean of [N] float64 over Q+, and the values as a column of that name."""
    return Value(mean(values), per_query={column: ranked.of_all_queries(values)})


def values_of(compute: Callable[..., Value]) -> Callable[..., FloatArray]:
    """Return what `mean_over_positive` of a metric is the mean of: parameters to [N] float64."""

    def values(ranked: RankedQueries, *parameters: Any) -> FloatArray:
        (column,) = compute(ranked, *parameters).per_query.values()
        return column[ranked.ranks.queries]

    return values


def cumulative_matching(ranked: RankedQueries, x: int) -> Value:
    """Return CMC@x, the CMC curve [K] (K ranks, at most the gallery) and r_1 of each query."""
    if ranked.options.cmc == "single-gallery-shot":
        return single_shot_matching(ranked, x)
    gallery = int(np.max(ranked.stats.valid + ranked.stats.ignored, initial=0))
    length = min(ranked.options.max_rank, gallery)
    cmc = ranked.once(matching_curve, min(max(length, x, 1), max(gallery, 1)))
    first_rank = ranked.of_all_queries(ranked.once(first_ranks))
    return Value(
        float(cmc[min(x, len(cmc)) - 1]),
        curves={"CMC": cmc[:length]},
        per_query={"first_rank": first_rank},
    )


def single_shot_matching(ranked: RankedQueries, x: int) -> Value:
    """Return CMC@x under single gallery shot, the CMC curve [R] and r_1 of each query."""
    value = shots_within(ranked, x, "single_shot")
    curve = ranked.once(shot_curve, "single_shot")[: ranked.options.max_rank]
    first_rank = ranked.of_all_queries(ranked.once(first_ranks))
    return replace(value, curves={"CMC": curve}, per_query={"first_rank": first_rank})


def matching_curve(ranked: RankedQueries, length: int) -> FloatArray:
    """Return CMC at the ranks 1 .. length under the reading of the options, [length] float64."""
    ranks = ranked.ranks
    if not len(ranks.queries):
        return np.full(length, math.nan)
    if ranked.options.cmc == "first-match":
        return ranks.hits_within(length) / len(ranks.queries)
    shots = (ranks.counts(ranks.shots(x)) / ranks.count for x in range(1, length + 1))
    return np.array([mean(share) for share in shots])


def matches_within(ranked: RankedQueries, x: int) -> FloatArray:
    """Return what CMC@x is the mean of under the reading of the options, [N] float64."""
    if ranked.options.cmc == "single-gallery-shot":
        return shots_of(ranked, "single_shot", x)
    if ranked.options.cmc == "first-match":
        return ranked.ranks.first_within(x)
    return ranked.ranks.counts(ranked.ranks.shots(x)) / ranked.ranks.count


def first_ranks(ranked: RankedQueries) -> FloatArray:
    """Return r_1 of the queries of Q+, [N] float64."""
    return ranked.ranks.first_rank()


def mean_average_precision(ranked: RankedQueries) -> Value:
    """Return mAP and the AP of each query."""
    return mean_over_positive(ranked, "AP", ranked.average_precision)


def mean_inverse_penalty(ranked: RankedQueries) -> Value:
    """Return mINP and the INP of each query."""
    return mean_over_positive(ranked, "INP", ranked.inverse_penalty)


def mean_reciprocal_rank(ranked: RankedQueries) -> Value:
    """Return MRR and the reciprocal rank of the first positive of each query."""
    return mean_over_positive(ranked, "RR", ranked.ranks.inverse_first_rank())


def precision_at_recall(ranked: RankedQueries, r: float) -> Value:
    """Return the mean interpolated precision at a recall, and the curve at 101 of them.

    Curves: ``recall`` and ``mPrecision``, both [101] float64.
    """
    if ranked.options.ties == "expected" and ranked.stats.tied.any():
        return Value(math.nan, reason=WITHOUT_EXPECTATION)
    recalls = np.arange(RECALLS) / (RECALLS - 1)
    curve = ranked.once(mean_precision_curve)
    value = mean(precisions_at(ranked, r))
    return Value(value, curves={"recall": recalls, "mPrecision": curve})


def interpolated_precision(ranked: RankedQueries) -> FloatArray:
    """Return max_{l >= j} l/r_l for the positives j of each query, [P] float64."""
    precision = ranked.ranks.precision("step")
    highest = np.empty_like(precision)
    ends = ranked.ranks.start + ranked.ranks.count
    for start, end in zip(ranked.ranks.start.tolist(), ends.tolist(), strict=True):
        highest[start:end] = np.maximum.accumulate(precision[start:end][::-1])[::-1]
    return highest


def mean_precision_curve(ranked: RankedQueries) -> FloatArray:
    """Return the mean interpolated precision at recalls 0, 0.01 .. 1, [101] float64."""
    interpolated = ranked.once(interpolated_precision)
    at = (at_recall(ranked, interpolated, t / (RECALLS - 1)) for t in range(RECALLS))
    return np.array([mean(values) for values in at])


def at_recall(ranked: RankedQueries, of_positives: FloatArray, recall: float) -> FloatArray:
    """Return the value of the first positive j with j/G >= recall, [N] float64."""
    count = ranked.ranks.count
    j = np.clip(np.ceil(recall * count).astype(np.int64), 1, count)
    j -= (j > 1) & ((j - 1) / count >= recall)  # the product above is rounded
    j += (j < count) & (j / count < recall)
    found: FloatArray = of_positives[ranked.ranks.start + j - 1]
    return found


def precisions_at(ranked: RankedQueries, r: float) -> FloatArray:
    """Return the interpolated precision of each query at a recall, [N] float64."""
    return at_recall(ranked, ranked.once(interpolated_precision), r)


def precision_recall(ranked: RankedQueries) -> tuple[FloatArray, FloatArray]:
    """Return recall j/G and precision j/r_j at each positive, both [P] float64.

    Not interpolated.
    """
    ranks = ranked.ranks
    return ranks.order / ranks.of_positives(ranks.count), ranks.precision("step")


CMC = Metric(
    name="CMC@{x}",
    part="retrieval",
    needs=(*RANK_FIELDS, "valid", "ignored"),
    reads=lambda options: ("single_shot",) if options.cmc == "single-gallery-shot" else (),
    over=("Q+",),
    formula="1/N Σ [r_1 <= x] (first match) or 1/N Σ 1/G Σ_j [c_j + 1 <= x] (all shots), or its "
    "expectation where one item is drawn of each gallery identity (single gallery shot)",
    source="Gray et al. 2007; GOM paper, Eq. 1; all shots: open-reid",
    compute=cumulative_matching,
    resampled=mean_of(matches_within),
    parameters={"x": rank(lambda options: options.cmc_ranks)},
    default=True,
    also=("Rank-{x}", "R{x}", "R@{x}", "top-{x}", "hit-rate@{x}"),
    tail="monotone",
    deployed=True,
)

MAP = Metric(
    name="mAP",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ AP; AP = 1/G Σ_j j/r_j (step), or 1/G Σ_j ½[(j−1)/(r_j−1) + j/r_j] "
    "(trapezoid), or 1/G Σ_j of the precision at distance d_j (threshold)",
    source="Zheng et al. 2015 (Market-1501); GOM paper, Eq. 2",
    compute=mean_average_precision,
    resampled=mean_of(values_of(mean_average_precision)),
    default=True,
    also=("AP", "mean-average-precision"),
    tail="monotone",
)

MINP = Metric(
    name="mINP",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ G/r_G",
    source="Ye et al. 2020 (AGW); GOM paper, Eq. 3",
    compute=mean_inverse_penalty,
    resampled=mean_of(values_of(mean_inverse_penalty)),
    default=True,
    also=("INP",),
    tail="monotone",
)

MRR = Metric(
    name="MRR",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ 1/r_1",
    source="Voorhees 1999 (TREC-8); pytorch-metric-learning, torchmetrics, ranx",
    compute=mean_reciprocal_rank,
    resampled=mean_of(values_of(mean_reciprocal_rank)),
    also=("RR", "mean-reciprocal-rank"),
    tail="monotone",
)

PRECISION_AT_RECALL = Metric(
    name="mP@recall={r}",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ max {j/r_j : j/G >= r}",
    source="Salton and McGill 1983 (interpolated precision); at 101 points: COCO",
    compute=precision_at_recall,
    resampled=mean_of(precisions_at),
    parameters={"r": rate(0.1, 0.5, 0.9)},
    also=("interpolated-precision@{r}",),
    tail="monotone",
)
