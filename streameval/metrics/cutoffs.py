"""Retrieval within the first ranks: AP@k, precision@k, recall@k, R-precision, MAP@R, nDCG@k.

All are means over Q+ of what the positives within a cutoff k give. Of a query with fewer valid
items than k, all are within it; k stays what it is.
"""

from __future__ import annotations

import numpy as np

from streameval.metrics.metric import Metric, Value
from streameval.metrics.parameters import choice, rank
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.resampling import mean_of
from streameval.metrics.retrieval import RANK_FIELDS, mean_over_positive, values_of
from streameval.statistics import FloatArray, IntArray


def everywhere(ranked: RankedQueries, k: int) -> IntArray:
    """Return the same cutoff for every query of Q+, [N] int64."""
    return np.full(len(ranked.ranks.queries), k, np.int64)


def hits(ranked: RankedQueries, cutoff: IntArray) -> FloatArray:
    """Return the number of positives within each query's cutoff, [N] float64."""
    return ranked.ranks.counts(ranked.ranks.hits(cutoff))


def truncated_average_precision(ranked: RankedQueries, k: int, denominator: str) -> Value:
    """Return mAP@k: the AP terms of the positives within rank k, by the denominator.

    ``hits``: their number, and 0 where there is none; ``total``: G; ``min``: min(k, G), the
    most that there can be.
    """
    ranks, cutoff, rule = ranked.ranks, everywhere(ranked, k), ranked.options.ap
    if denominator == "hits":
        values = ranks.precision_per_hit(rule, cutoff)
    else:
        most = ranks.count if denominator == "total" else np.minimum(ranks.count, k)
        values = ranks.totals(ranks.precision(rule, cutoff)) / most
    return mean_over_positive(ranked, f"AP@{k}/{denominator}", values)


def precision_at(ranked: RankedQueries, k: int) -> Value:
    """Return the mean share of positives among the first k."""
    return mean_over_positive(ranked, f"P@{k}", hits(ranked, everywhere(ranked, k)) / k)


def attainable_precision_at(ranked: RankedQueries, k: int) -> Value:
    """Return the mean of the positives among the first k by the most that there can be."""
    values = hits(ranked, everywhere(ranked, k)) / np.minimum(ranked.ranks.count, k)
    return mean_over_positive(ranked, f"P@{k}/min", values)


def recall_at(ranked: RankedQueries, k: int) -> Value:
    """Return the mean share of the positives that are among the first k."""
    values = hits(ranked, everywhere(ranked, k)) / ranked.ranks.count
    return mean_over_positive(ranked, f"recall@{k}", values)


def r_precision(ranked: RankedQueries) -> Value:
    """Return the mean share of positives among the first G."""
    values = hits(ranked, ranked.ranks.count) / ranked.ranks.count
    return mean_over_positive(ranked, "R-precision", values)


def average_precision_at_r(ranked: RankedQueries) -> Value:
    """Return MAP@R: the AP terms of the positives within rank G, by G."""
    ranks = ranked.ranks
    values = ranks.totals(ranks.precision(ranked.options.ap, ranks.count)) / ranks.count
    return mean_over_positive(ranked, "AP@R", values)


def discounted_gain(ranked: RankedQueries, k: int) -> Value:
    """Return nDCG@k for relevance 0 and 1, discounted by log2(rank + 1)."""
    ranks, cutoff = ranked.ranks, everywhere(ranked, k)
    ideal = np.where(ranks.order <= ranks.of_positives(cutoff), 1 / np.log2(ranks.order + 1), 0.0)
    values = ranks.totals(ranks.gains(cutoff)) / ranks.totals(ideal)
    return mean_over_positive(ranked, f"nDCG@{k}", values)


_K = rank(lambda _: (5, 10))

AP_AT_K = Metric(
    name="mAP@{k}/{denominator}",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ (Σ_{r_j <= k} j/r_j) / D; D = |{r_j <= k}| (hits), G (total), min(k, G) (min); "
    "j/r_j as --ap has it",
    source="hits: torchmetrics; total: ranx, trec_eval; min: OML, Kaggle",
    compute=truncated_average_precision,
    resampled=mean_of(values_of(truncated_average_precision)),
    parameters={"k": _K, "denominator": choice("hits", "total", "min")},
    also=("mAP@{k}", "AP@{k}"),
    tail=lambda _, denominator: "cutoff" if denominator == "hits" else "monotone",
    deployed=True,
)

PRECISION_AT_K = Metric(
    name="P@{k}",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ |{r_j <= k}| / k",
    source="Manning et al. 2008, §8.4",
    compute=precision_at,
    resampled=mean_of(values_of(precision_at)),
    parameters={"k": _K},
    also=("precision@{k}", "precision-at-{k}"),
    tail="monotone",
    deployed=True,
)

PRECISION_AT_K_MIN = Metric(
    name="P@{k}/min",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ |{r_j <= k}| / min(k, G)",
    source="OML, calc_precision",
    compute=attainable_precision_at,
    resampled=mean_of(values_of(attainable_precision_at)),
    parameters={"k": _K},
    tail="monotone",
    deployed=True,
)

RECALL_AT_K = Metric(
    name="recall@{k}",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ |{r_j <= k}| / G",
    source="Manning et al. 2008, §8.4; the recall@k of metric learning is CMC@k",
    compute=recall_at,
    resampled=mean_of(values_of(recall_at)),
    parameters={"k": _K},
    also=("recall-at-{k}",),
    tail="monotone",
    deployed=True,
)

R_PRECISION = Metric(
    name="R-precision",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ |{r_j <= G}| / G",
    source="Manning et al. 2008, §8.4",
    compute=r_precision,
    resampled=mean_of(values_of(r_precision)),
    tail="monotone",
    deployed=True,
)

MAP_AT_R = Metric(
    name="MAP@R",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ 1/G Σ_{r_j <= G} j/r_j; j/r_j as --ap has it",
    source="Musgrave et al. 2020, Eq. 3",
    compute=average_precision_at_r,
    resampled=mean_of(values_of(average_precision_at_r)),
    also=("mean-average-precision-at-R",),
    tail="monotone",
    deployed=True,
)

NDCG_AT_K = Metric(
    name="nDCG@{k}",
    part="retrieval",
    needs=RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ (Σ_{r_j <= k} 1/log2(r_j + 1)) / Σ_{j <= min(k,G)} 1/log2(j + 1)",
    source="Järvelin and Kekäläinen 2002, relevance 0 or 1",
    compute=discounted_gain,
    resampled=mean_of(values_of(discounted_gain)),
    parameters={"k": _K},
    also=("NDCG-cut-{k}",),
    tail="monotone",
    deployed=True,
)
