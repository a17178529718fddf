"""Closed-world retrieval over whole lists: CMC, mAP, mINP, MRR, MedR, and precision at recall."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from streameval.metrics.kind import RANK
from streameval.metrics.metric import RANK_FIELDS, Metric, Value
from streameval.metrics.parameters import rank, rate
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.resampling import Resamples
from streameval.metrics.single_shot import shot_terms, shot_value, shots_within
from streameval.metrics.sums import mean
from streameval.metrics.totals import Totals
from streameval.statistics import FloatArray

RECALLS = 101

NO_EXPECTED_PRECISION = (
    "an interpolated precision has no closed expectation over tie-breaks: read it under another "
    "tie rule"
)
NO_EXPECTED_MEDIAN = (
    "a median has no closed expectation over tie-breaks: read it under another tie rule"
)


def first_ranks(ranked: RankedQueries) -> FloatArray:
    """Return r_1, or its expectation, [N] float64."""
    return ranked.ranks.first_rank()


def matches_within(ranked: RankedQueries, x: int) -> FloatArray:
    """Return what CMC@x is the mean of under the reading of the options, [N] float64."""
    if ranked.options.cmc == "single-gallery-shot":
        return shots_within(ranked, x, "single_shot")
    x = min(x, max(ranked.gallery, 1))
    if ranked.options.cmc == "first-match":
        return ranked.ranks.first_within(x)
    return ranked.ranks.counts(ranked.ranks.shots(x)) / ranked.ranks.count


def matching_terms(ranked: RankedQueries) -> Iterable[FloatArray]:
    """Return what the CMC curve adds at the ranks 1 .. K, [K, n] in all."""
    length = ranked.options.max_rank
    if ranked.options.cmc == "single-gallery-shot":
        return shot_terms(ranked, "single_shot")
    if ranked.options.cmc == "first-match":
        return [ranked.ranks.hit_terms(length)]
    return (matches_within(ranked, x)[None] for x in range(1, length + 1))


def cumulative_matching(totals: Totals, x: int) -> Value:
    """Return CMC@x, the CMC curve [K] (K ranks, at most the gallery) and r_1 of each query."""
    first_rank = totals.of_all_queries(totals.column(first_ranks))
    curve = totals.means(matching_terms)
    if totals.options.cmc == "single-gallery-shot":
        value = shot_value(totals, "CMC", curve, x)
        shown = {"CMC": value.curves["CMC"][: totals.options.max_rank]}
        return replace(value, curves=shown, per_query={"first_rank": first_rank})
    return Value(
        mean(totals.column(matches_within, x)),
        curves={"CMC": curve[: totals.facts.gallery]},
        per_query={"first_rank": first_rank},
    )


def average_precisions(ranked: RankedQueries) -> FloatArray:
    """Return AP of each query, [N] float64."""
    return ranked.average_precision


def inverse_penalties(ranked: RankedQueries) -> FloatArray:
    """Return INP of each query, [N] float64."""
    return ranked.inverse_penalty


def reciprocal_ranks(ranked: RankedQueries) -> FloatArray:
    """Return 1/r_1, or its expectation, [N] float64."""
    return ranked.ranks.inverse_first_rank()


def median_rank(totals: Totals) -> Value:
    """Return the median of r_1; of an even number of queries, the mean of the middle two."""
    ranks = totals.column(first_ranks)
    columns = {"first_rank": totals.of_all_queries(ranks)}
    if not len(ranks) or (totals.options.ties == "expected" and totals.tied):
        return Value(math.nan, reason=NO_EXPECTED_MEDIAN, per_query=columns)
    return Value(float(np.median(ranks)), per_query=columns)


def resampled_median_rank(resamples: Resamples) -> FloatArray:
    """Return `median_rank` of each resample, [R] float64."""
    totals = resamples.totals
    ranks = totals.column(first_ranks)
    order = np.argsort(ranks)
    ranks = np.append(ranks[order], math.nan)  # the last of them: of no queries
    medians = np.empty(len(resamples.drawn))
    for block, (weights,) in resamples.weights(totals.queries[order]):
        through = np.cumsum(weights, axis=1)
        middle = resamples.known[block, None]
        low = np.sum(2 * through < middle, axis=1)
        high = np.sum(2 * through <= middle, axis=1)
        medians[block] = (ranks[low] + ranks[high]) / 2
    return medians


def precision_at_recall(totals: Totals, r: float) -> Value:
    """Return the mean interpolated precision at a recall, and the curve at 101 of them.

    Curves: ``recall`` and ``mPrecision``, both [101] float64.
    """
    if totals.options.ties == "expected" and totals.tied:
        return Value(math.nan, reason=NO_EXPECTED_PRECISION)
    curves = {
        "recall": np.arange(RECALLS) / (RECALLS - 1),
        "mPrecision": totals.means(precision_terms),
    }
    return Value(mean(totals.column(precisions_at, r)), curves=curves)


def interpolated_precision(ranked: RankedQueries) -> FloatArray:
    """Return max_{l >= j} l/r_l for the positives j of each query, [P] float64."""
    precision = ranked.ranks.precision("step")
    highest = np.empty_like(precision)
    ends = ranked.ranks.start + ranked.ranks.count
    for start, end in zip(ranked.ranks.start.tolist(), ends.tolist(), strict=True):
        highest[start:end] = np.maximum.accumulate(precision[start:end][::-1])[::-1]
    return highest


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


def precision_terms(ranked: RankedQueries) -> Iterator[FloatArray]:
    """Give the interpolated precisions at recalls 0, 0.01 .. 1, [1, N] float64 each."""
    return (precisions_at(ranked, t / (RECALLS - 1))[None] for t in range(RECALLS))


def precision_recall(ranked: RankedQueries) -> tuple[FloatArray, FloatArray]:
    """Return recall j/G and precision j/r_j at each positive, both [P] float64.

    Not interpolated.
    """
    ranks = ranked.ranks
    return ranks.order / ranks.of_positives(ranks.count), ranks.precision("step")


CMC = Metric(
    name="CMC@{x}",
    needs=(*RANK_FIELDS, "valid", "ignored"),
    reads=lambda options: ("single_shot",) if options.cmc == "single-gallery-shot" else (),
    formula="1/N Σ [r_1 <= x] (first match) or 1/N Σ 1/G Σ_j [c_j + 1 <= x] (all shots), or its "
    "expectation where one item is drawn of each gallery identity (single gallery shot)",
    source="Gray et al. 2007; GOM paper, Eq. 1; all shots: open-reid",
    values=matches_within,
    adds=(matching_terms,),
    keeps=(first_ranks,),
    finish=cumulative_matching,
    parameters={"x": rank(lambda options: options.cmc_ranks)},
    default=True,
    also=("Rank-{x}", "R{x}", "R@{x}", "top-{x}", "hit-rate@{x}"),
    tail="monotone",
    deployed=True,
)

MAP = Metric(
    name="mAP",
    formula="1/N Σ AP; AP = 1/G Σ_j j/r_j (step), or 1/G Σ_j ½[(j−1)/(r_j−1) + j/r_j] "
    "(trapezoid), or 1/G Σ_j of the precision at distance d_j (threshold)",
    source="Zheng et al. 2015 (Market-1501); GOM paper, Eq. 2",
    values=average_precisions,
    column="AP",
    default=True,
    also=("AP", "mean-average-precision"),
    tail="monotone",
)

MINP = Metric(
    name="mINP",
    formula="1/N Σ G/r_G",
    source="Ye et al. 2020 (AGW); GOM paper, Eq. 3",
    values=inverse_penalties,
    column="INP",
    default=True,
    also=("INP",),
    tail="monotone",
)

MRR = Metric(
    name="MRR",
    formula="1/N Σ 1/r_1",
    source="Voorhees 1999 (TREC-8); pytorch-metric-learning, torchmetrics, ranx",
    values=reciprocal_ranks,
    column="RR",
    also=("RR", "mean-reciprocal-rank"),
    tail="monotone",
)

MEDIAN_RANK = Metric(
    name="MedR",
    formula="median over Q+ of r_1",
    source="Hodosh, Young and Hockenmaier 2013 (median rank of image and text retrieval)",
    keeps=(first_ranks,),
    finish=median_rank,
    resampled=resampled_median_rank,
    kind=RANK,
    better="lower",
    also=("MdR", "Med-r", "median-rank", "median-first-rank"),
    tail="monotone",
)

PRECISION_AT_RECALL = Metric(
    name="mP@recall={r}",
    formula="1/N Σ max {j/r_j : j/G >= r}",
    source="Salton and McGill 1983 (interpolated precision); at 101 points: COCO",
    values=precisions_at,
    adds=(precision_terms,),
    finish=precision_at_recall,
    parameters={"r": rate(0.1, 0.5, 0.9)},
    also=("interpolated-precision@{r}",),
    tail="monotone",
)
