"""Retrieval within the first ranks: AP@k, P@k, recall@k, R-precision, MAP@R, nDCG@k and the like.

All are means over Q+ of what the positives within a cutoff k give. Of a query with fewer valid
items than k, all are within it; k stays what it is. Precision at a recall is cut by recall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import numpy as np

from streameval.metrics.blocks import RankedQueries, Totals
from streameval.metrics.metric import RANK_FIELDS, Metric, Value
from streameval.metrics.parameters import choice, percentage, rank, rate
from streameval.metrics.ranks import Cutoff
from streameval.typing import FloatArray

RECALLS = 101

NO_EXPECTED_PRECISION = (
    "an interpolated precision has no closed expectation over tie-breaks: read it under another "
    "tie rule"
)


def truncated_average_precisions(ranked: RankedQueries, k: Cutoff, denominator: str) -> FloatArray:
    """Return AP@k of each query: the AP terms within rank k, by the denominator, [N] float64.

    ``hits``: their number, and 0 where there is none; ``total``: G; ``min``: min(k, G), the
    most that there can be.
    """
    ranks, rule = ranked.ranks, ranked.options.ap
    if denominator == "hits":
        return ranks.terms_per_hit(rule, k)
    most = ranks.count if denominator == "total" else np.minimum(ranks.count, k)
    return ranks.totals(ranks.terms(rule, k)) / most


def recalls_at_percent(ranked: RankedQueries, p: float) -> FloatArray:
    """Return the share of positives among the nearest p % of the valid items, [N] float64.

    These are k = ceil(p · valid / 100) items, p being the decimal fraction that is written.
    """
    valid, query = np.unique(ranked.stats.valid[ranked.ranks.queries], return_inverse=True)
    share = Fraction(str(p)) / 100
    cutoff = np.array([math.ceil(share * items) for items in valid.tolist()], np.int64)
    return ranked.ranks.hit_counts(cutoff[query]) / ranked.ranks.count


def discounted_gains(ranked: RankedQueries, k: int) -> FloatArray:
    """Return nDCG@k of each query, discounted by log2(rank + 1), [N] float64."""
    ranks = ranked.ranks
    ideal = np.where(ranks.order <= k, 1 / np.log2(ranks.order + 1), 0.0)
    return ranks.totals(ranks.terms("gain", k)) / ranks.totals(ideal)


def interpolated_precision(ranked: RankedQueries) -> FloatArray:
    """Return max_{l >= j} l/r_l for the positives j of each query, [P] float64."""
    ranks, highest = ranked.ranks, ranked.ranks.terms("step")
    for start, last in zip(ranks.start.tolist(), ranks.last.tolist(), strict=True):
        backwards = highest[start : last + 1][::-1]
        np.maximum.accumulate(backwards, out=backwards)
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
    return Value(totals.mean(totals.column(precisions_at, r)), curves=curves)


_within = partial(
    Metric,
    tail="monotone",
    deployed=True,
    parameters={
        "k": rank((5, 10)),
        "denominator": choice("hits", "total", "min"),
        "p": percentage((1, 5)),
        "r": rate((0.1, 0.5, 0.9)),
    },
)

METRICS = (
    _within(
        "mAP@{k}/{denominator}",
        "1/N Σ (Σ_{r_j <= k} j/r_j) / D; D = |{r_j <= k}| (hits), G (total), min(k, G) "
        "(min); j/r_j as --ap has it",
        "hits: torchmetrics, OML since 0.3.11; total: ranx, trec_eval; min: Kaggle, OML before",
        values=truncated_average_precisions,
        column="AP@{k}/{denominator}",
        also=("mAP@{k}", "AP@{k}"),
        tail=lambda denominator: "cutoff" if denominator == "hits" else "monotone",
    ),
    _within(
        "P@{k}",
        "1/N Σ |{r_j <= k}| / k",
        "Manning et al. 2008, §8.4",
        values=lambda ranked, k: ranked.ranks.hit_counts(k) / k,
        also=("precision@{k}", "precision-at-{k}"),
    ),
    _within(
        "P@{k}/min",
        "1/N Σ |{r_j <= k}| / min(k, G)",
        "OML, calc_precision",
        values=lambda ranked, k: ranked.ranks.hit_counts(k) / np.minimum(ranked.ranks.count, k),
    ),
    _within(
        "mP@{k}",
        "1/N Σ |{r_j <= k'}| / k'; k' = min(k, r_G)",
        "Radenović et al. 2018 (revisited Oxford and Paris): compute_map of revisitop",
        values=lambda ranked, k: ranked.ranks.precision_to_last(k),
    ),
    _within(
        "recall@{k}",
        "1/N Σ |{r_j <= k}| / G",
        "Manning et al. 2008, §8.4; the recall@k of metric learning is CMC@k",
        values=lambda ranked, k: ranked.ranks.hit_counts(k) / ranked.ranks.count,
        also=("recall-at-{k}",),
    ),
    _within(
        "recall@{p}%",
        "1/N Σ |{r_j <= k}| / G; k = ceil(p·valid / 100), valid items of the query's gallery",
        "Manning et al. 2008, §8.4, at a share of the gallery as in place recognition "
        "(Arandjelović et al. 2016)",
        values=recalls_at_percent,
        needs=(*RANK_FIELDS, "valid"),
        also=("recall-at-{p}%", "recall-at-top-{p}%", "top-{p}%-recall"),
    ),
    _within(
        "R-precision",
        "1/N Σ |{r_j <= G}| / G",
        "Manning et al. 2008, §8.4",
        values=lambda ranked: ranked.ranks.hit_counts(ranked.ranks.count) / ranked.ranks.count,
    ),
    _within(
        "MAP@R",
        "1/N Σ 1/G Σ_{r_j <= G} j/r_j; j/r_j as --ap has it",
        "Musgrave et al. 2020, Eq. 3",
        values=lambda ranked: truncated_average_precisions(ranked, ranked.ranks.count, "total"),
        column="AP@R",
        also=("mean-average-precision-at-R",),
    ),
    _within(
        "nDCG@{k}",
        "1/N Σ (Σ_{r_j <= k} 1/log2(r_j + 1)) / Σ_{j <= min(k,G)} 1/log2(j + 1)",
        "Järvelin and Kekäläinen 2002, relevance 0 or 1",
        values=discounted_gains,
        also=("NDCG-cut-{k}",),
    ),
    _within(
        "mP@recall={r}",
        "1/N Σ max {j/r_j : j/G >= r}",
        "Salton and McGill 1983 (interpolated precision); at 101 points: COCO",
        values=precisions_at,
        adds=(precision_terms,),
        finish=precision_at_recall,
        also=("interpolated-precision@{r}",),
        deployed=False,
    ),
)
