"""Retrieval within the first ranks: AP@k, P@k, recall@k, recall@p%, R-precision, MAP@R, nDCG@k.

All are means over Q+ of what the positives within a cutoff k give. Of a query with fewer valid
items than k, all are within it; k stays what it is.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from streameval.metrics.metric import RANK_FIELDS, Metric
from streameval.metrics.parameters import choice, percentage, rank
from streameval.metrics.ranked import RankedQueries
from streameval.statistics import FloatArray, IntArray


def everywhere(ranked: RankedQueries, k: int) -> IntArray:
    """Return the same cutoff for every query of Q+, [N] int64."""
    return np.full(len(ranked.ranks.queries), k, np.int64)


def hits(ranked: RankedQueries, cutoff: IntArray) -> FloatArray:
    """Return the number of positives within each query's cutoff, [N] float64."""
    return ranked.ranks.counts(ranked.ranks.hits(cutoff))


def truncated_average_precisions(ranked: RankedQueries, k: int, denominator: str) -> FloatArray:
    """Return AP@k of each query: the AP terms within rank k, by the denominator, [N] float64.

    ``hits``: their number, and 0 where there is none; ``total``: G; ``min``: min(k, G), the
    most that there can be.
    """
    ranks, cutoff, rule = ranked.ranks, everywhere(ranked, k), ranked.options.ap
    if denominator == "hits":
        return ranks.precision_per_hit(rule, cutoff)
    most = ranks.count if denominator == "total" else np.minimum(ranks.count, k)
    return ranks.totals(ranks.precision(rule, cutoff)) / most


def precisions_at(ranked: RankedQueries, k: int) -> FloatArray:
    """Return the share of positives among the first k, [N] float64."""
    return hits(ranked, everywhere(ranked, k)) / k


def attainable_precisions_at(ranked: RankedQueries, k: int) -> FloatArray:
    """Return the positives among the first k by the most that there can be, [N] float64."""
    return hits(ranked, everywhere(ranked, k)) / np.minimum(ranked.ranks.count, k)


def recalls_at(ranked: RankedQueries, k: int) -> FloatArray:
    """Return the share of the positives that are among the first k, [N] float64."""
    return hits(ranked, everywhere(ranked, k)) / ranked.ranks.count


def recalls_at_percent(ranked: RankedQueries, p: float) -> FloatArray:
    """Return the share of positives among the nearest p % of the valid items, [N] float64.

    These are k = ceil(p · valid / 100) items, p being the decimal fraction that is written.
    """
    valid, query = np.unique(ranked.stats.valid[ranked.ranks.queries], return_inverse=True)
    share = Fraction(str(p)) / 100
    cutoff = np.array([math.ceil(share * items) for items in valid.tolist()], np.int64)
    return hits(ranked, cutoff[query]) / ranked.ranks.count


def r_precisions(ranked: RankedQueries) -> FloatArray:
    """Return the share of positives among the first G, [N] float64."""
    return hits(ranked, ranked.ranks.count) / ranked.ranks.count


def average_precisions_at_r(ranked: RankedQueries) -> FloatArray:
    """Return the AP terms of the positives within rank G, by G, [N] float64."""
    ranks = ranked.ranks
    return ranks.totals(ranks.precision(ranked.options.ap, ranks.count)) / ranks.count


def discounted_gains(ranked: RankedQueries, k: int) -> FloatArray:
    """Return nDCG@k of each query, discounted by log2(rank + 1), [N] float64."""
    ranks, cutoff = ranked.ranks, everywhere(ranked, k)
    ideal = np.where(ranks.order <= ranks.of_positives(cutoff), 1 / np.log2(ranks.order + 1), 0.0)
    return ranks.totals(ranks.gains(cutoff)) / ranks.totals(ideal)


_K = rank(lambda _: (5, 10))

AP_AT_K = Metric(
    name="mAP@{k}/{denominator}",
    formula="1/N Σ (Σ_{r_j <= k} j/r_j) / D; D = |{r_j <= k}| (hits), G (total), min(k, G) (min); "
    "j/r_j as --ap has it",
    source="hits: torchmetrics; total: ranx, trec_eval; min: OML, Kaggle",
    values=truncated_average_precisions,
    column="AP@{k}/{denominator}",
    parameters={"k": _K, "denominator": choice("hits", "total", "min")},
    also=("mAP@{k}", "AP@{k}"),
    tail=lambda denominator: "cutoff" if denominator == "hits" else "monotone",
    deployed=True,
)

PRECISION_AT_K = Metric(
    name="P@{k}",
    formula="1/N Σ |{r_j <= k}| / k",
    source="Manning et al. 2008, §8.4",
    values=precisions_at,
    column="P@{k}",
    parameters={"k": _K},
    also=("precision@{k}", "precision-at-{k}"),
    tail="monotone",
    deployed=True,
)

PRECISION_AT_K_MIN = Metric(
    name="P@{k}/min",
    formula="1/N Σ |{r_j <= k}| / min(k, G)",
    source="OML, calc_precision",
    values=attainable_precisions_at,
    column="P@{k}/min",
    parameters={"k": _K},
    tail="monotone",
    deployed=True,
)

RECALL_AT_K = Metric(
    name="recall@{k}",
    formula="1/N Σ |{r_j <= k}| / G",
    source="Manning et al. 2008, §8.4; the recall@k of metric learning is CMC@k",
    values=recalls_at,
    column="recall@{k}",
    parameters={"k": _K},
    also=("recall-at-{k}",),
    tail="monotone",
    deployed=True,
)

RECALL_AT_PERCENT = Metric(
    name="recall@{p}%",
    formula="1/N Σ |{r_j <= k}| / G; k = ceil(p · valid / 100), valid items of the query's gallery",
    source="Manning et al. 2008, §8.4, at a share of the gallery as in place recognition "
    "(Arandjelović et al. 2016)",
    values=recalls_at_percent,
    column="recall@{p}%",
    needs=(*RANK_FIELDS, "valid"),
    parameters={"p": percentage(1, 5)},
    also=("recall-at-{p}%", "recall-at-top-{p}%", "top-{p}%-recall"),
    tail="monotone",
    deployed=True,
)

R_PRECISION = Metric(
    name="R-precision",
    formula="1/N Σ |{r_j <= G}| / G",
    source="Manning et al. 2008, §8.4",
    values=r_precisions,
    column="R-precision",
    tail="monotone",
    deployed=True,
)

MAP_AT_R = Metric(
    name="MAP@R",
    formula="1/N Σ 1/G Σ_{r_j <= G} j/r_j; j/r_j as --ap has it",
    source="Musgrave et al. 2020, Eq. 3",
    values=average_precisions_at_r,
    column="AP@R",
    also=("mean-average-precision-at-R",),
    tail="monotone",
    deployed=True,
)

NDCG_AT_K = Metric(
    name="nDCG@{k}",
    formula="1/N Σ (Σ_{r_j <= k} 1/log2(r_j + 1)) / Σ_{j <= min(k,G)} 1/log2(j + 1)",
    source="Järvelin and Kekäläinen 2002, relevance 0 or 1",
    values=discounted_gains,
    column="nDCG@{k}",
    parameters={"k": _K},
    also=("NDCG-cut-{k}",),
    tail="monotone",
    deployed=True,
)
