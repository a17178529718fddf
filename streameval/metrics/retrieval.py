"""Closed-world retrieval: CMC, mAP and mINP."""

from __future__ import annotations

import math

import numpy as np

from streameval.metrics.means import mean
from streameval.metrics.metric import Metric, Values
from streameval.metrics.ranked import RankedQueries

_RANK_FIELDS = ("indptr", "positive_distance", "closer", "tied", "tied_before")


def cumulative_matching(ranked: RankedQueries) -> Values:
    """Return CMC@x, the CMC curve [K] (K ranks, at most the gallery) and r_1 of each query."""
    stats, options = ranked.stats, ranked.options
    gallery = int(np.max(stats.valid + stats.ignored, initial=0))
    length = min(options.max_rank, gallery)
    ranks = min(max(length, *options.cmc_ranks, 1), max(gallery, 1))
    count = len(ranked.ranks.queries)
    cmc = ranked.ranks.hits_within(ranks) / count if count else np.full(ranks, math.nan)
    return Values(
        scalars={f"CMC@{x}": float(cmc[min(x, ranks) - 1]) for x in options.cmc_ranks},
        curves={"CMC": cmc[:length]},
        per_query={"first_rank": ranked.of_all_queries(ranked.ranks.first_rank())},
    )


def mean_average_precision(ranked: RankedQueries) -> Values:
    """Return mAP and the AP of each query."""
    average = ranked.average_precision
    return Values({"mAP": mean(average)}, per_query={"AP": ranked.of_all_queries(average)})


def mean_inverse_penalty(ranked: RankedQueries) -> Values:
    """Return mINP and the INP of each query."""
    inverse = ranked.inverse_penalty
    return Values({"mINP": mean(inverse)}, per_query={"INP": ranked.of_all_queries(inverse)})


CMC = Metric(
    name="CMC",
    needs=(*_RANK_FIELDS, "valid", "ignored"),
    over=("Q+",),
    formula="CMC@x = 1/N Σ [r_1 <= x], first match",
    source="Gray et al. 2007; GOM paper, Eq. 1",
    compute=cumulative_matching,
)

MAP = Metric(
    name="mAP",
    needs=_RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ AP; AP = 1/G Σ_j j/r_j (step) or 1/G Σ_j ½[(j−1)/(r_j−1) + j/r_j] (trapezoid)",
    source="Zheng et al. 2015 (Market-1501); GOM paper, Eq. 2",
    compute=mean_average_precision,
)

MINP = Metric(
    name="mINP",
    needs=_RANK_FIELDS,
    over=("Q+",),
    formula="1/N Σ G/r_G",
    source="Ye et al. 2020 (AGW); GOM paper, Eq. 3",
    compute=mean_inverse_penalty,
)
