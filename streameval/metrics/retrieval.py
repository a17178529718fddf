"""Closed-world retrieval over whole lists: CMC in all its readings, mAP, mINP, MRR, MedR."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import numpy as np

from streameval.choices import IDENTITY_READINGS, OVER_DRAWS
from streameval.errors import OptionError
from streameval.metrics.blocks import RankedQueries, Totals, asking
from streameval.metrics.confidence import Resamples
from streameval.metrics.metric import RANK, RANK_FIELDS, Metric, Value
from streameval.metrics.options import MetricOptions
from streameval.metrics.parameters import rank
from streameval.metrics.ranks import counts_within
from streameval.protocols.shipped import protocols_of
from streameval.statistics import FIELDS, SHOT_RULES
from streameval.typing import AnyArray, FloatArray

SAMPLED = "CMC_sampled@{x}"
_INVERSE = "indptr", "tied", "drawn_inverse"  # what 1/r over all draws is read from

NO_EXPECTED_IDENTITY = (
    "gallery identities and random tie-breaks are not taken together: read it under another tie "
    "rule"
)
NO_EXPECTED_MEDIAN = (
    "a median has no closed expectation over tie-breaks: read it under another tie rule"
)


def average_precisions(ranked: RankedQueries) -> FloatArray:
    """Return AP, [N] float64; over all draws NaN where it is not 1/r."""
    if ranked.options.over_draws:
        expected = ranked.ranks.inverse_rank()
        return expected if ranked.options.ap == "step" else np.full(len(expected), np.nan)
    return ranked.average_precision


def matches_within(ranked: RankedQueries, x: int, name: str) -> FloatArray:
    """Return what a metric of CMC at x is the mean of, [N] float64; at most at the last rank."""
    counted = counted_by_identity(ranked, name)
    if counted is not None and counted.ndim == 2:
        return counted[:, min(x, counted.shape[1]) - 1]
    x = min(x, int(np.max(ranked.stats.valid + ranked.stats.ignored, initial=1)))
    if counted is not None:
        return (counted < x).astype(np.float64)
    if ranked.options.cmc == "first-match":
        return ranked.ranks.first_within(x)
    ranks = ranked.ranks
    return np.add.reduceat(ranks.shots(x), ranks.start) / ranks.count


def matching_terms(ranked: RankedQueries, name: str) -> Iterable[FloatArray]:
    """Return what a curve of CMC adds at the ranks 1 .. K, [K, n] in all."""
    length, counted = ranked.options.max_rank, counted_by_identity(ranked, name)
    if counted is not None:
        if ranked.options.over_draws:
            counted = counted * ranked.once(asking)[ranked.stats.has_positive, None]
        return [counted.T if counted.ndim == 2 else counts_within(counted + 1, length)]
    if ranked.options.cmc == "first-match":
        return [ranked.ranks.hit_terms(length)]
    return (matches_within(ranked, x, name)[None] for x in range(1, length + 1))


def counted_by_identity(ranked: RankedQueries, name: str) -> AnyArray | None:
    """Return what a metric of CMC reads of each query, where it counts gallery identities.

    Of draws, how likely the positive is within the ranks 1 .. R, [N, R] float64; else the number
    of distinct identities ahead, [N] int64. None under other options.
    """
    field = "".join(_fields_read(ranked.options, name))
    if not field:
        return None
    counted: AnyArray | None = getattr(ranked.stats, field)
    if counted is None:
        reading = ranked.options.cmc
        raise OptionError(
            f"CMC under {reading.replace('-', ' ')} needs {field}, which these statistics do not "
            "hold: evaluate again, from the distances or features, and choose "
            f"{protocols_of(reading)}"
        )
    ties = ranked.options.ties
    rule = 0 if ties == "expected" else SHOT_RULES.index(ties)
    of_positives: AnyArray = counted[ranked.stats.has_positive, rule]
    return of_positives


def _fields_read(options: MetricOptions, name: str = "") -> tuple[str, ...]:
    """Return the field that a metric of CMC reads where it counts gallery identities, if any."""
    if options.over_draws:
        return (OVER_DRAWS.field,)
    if name == SAMPLED:
        return ("sampled_shots",)
    return tuple(read.field for cmc, read in IDENTITY_READINGS.items() if cmc == options.cmc)


def cumulative_matching(totals: Totals, x: int, name: str) -> Value:
    """Return CMC@x and the curve, [K]: of K ranks, of the gallery, or of all that were counted.

    Both are NaN where identities are counted, ``ties="expected"`` and there are ties.
    """
    curve, field = totals.means(matching_terms, name), _fields_read(totals.options, name)
    drawn = bool(field) and "rank" in FIELDS[field[0]].axes
    value, reason = totals.mean(totals.column(matches_within, x, name)), ""
    if not drawn:
        curve = curve[: totals.gallery]
    elif x > len(curve):
        value, reason = math.nan, f"only ranks up to {len(curve)} were counted"
    if field and totals.options.ties == "expected" and totals.tied:
        value, reason = math.nan, reason or NO_EXPECTED_IDENTITY
        curve = np.full(len(curve), math.nan)
    if name == SAMPLED:
        return Value(value, reason=reason, curves={"CMC_sampled": curve})
    return Value(value, reason=reason, curves={"CMC": curve[: totals.options.max_rank]})


def median_rank(totals: Totals) -> Value:
    """Return the median of r_1; of an even number of queries, the mean of the middle two."""
    ranks = totals.columns["first_rank"][totals.queries]
    if not len(ranks) or (totals.options.ties == "expected" and totals.tied):
        return Value(math.nan, reason=NO_EXPECTED_MEDIAN)
    return Value(float(np.median(ranks)))


def resampled_median_rank(resamples: Resamples) -> FloatArray:
    """Return `median_rank` of each resample, [R] float64."""
    totals = resamples.totals
    ranks = totals.columns["first_rank"][totals.queries]
    order = np.argsort(ranks)
    ranks = np.append(ranks[order], math.nan)  # the last of them: of no queries
    medians = np.empty(len(resamples.drawn))
    for block, (weights,) in resamples.weights(totals.queries[order]):
        through = np.cumsum(weights, axis=1)
        middle = resamples.numbers["Q+"][block, None]
        low = np.sum(2 * through < middle, axis=1)
        high = np.sum(2 * through <= middle, axis=1)
        medians[block] = (ranks[low] + ranks[high]) / 2
    return medians


def precision_recall(ranked: RankedQueries) -> tuple[FloatArray, FloatArray]:
    """Return recall j/G and precision j/r_j at each positive, not interpolated, [P] float64."""
    ranks = ranked.ranks
    return ranks.order / ranks.of_positives(ranks.count), ranks.terms("step")


_ranked = partial(
    Metric, tail="monotone", parameters={"x": rank(lambda options: options.cmc_ranks)}
)

METRICS = (
    _ranked(
        "CMC@{x}",
        "1/N Σ [r_1 <= x] (first match) or 1/N Σ 1/G Σ_j [c_j + 1 <= x] (all shots), or "
        "its expectation where one item is drawn of each gallery identity (single gallery shot), "
        "or 1/N Σ [u + 1 <= x], u identities ahead of the first positive (distinct identities)",
        "Gray et al. 2007; GOM paper, Eq. 1; all shots: open-reid; distinct identities: SYSU-MM01",
        needs=(*RANK_FIELDS, "valid", "ignored"),
        reads=_fields_read,
        drawn=("indptr", "tied", OVER_DRAWS.field),
        values=matches_within,
        adds=(matching_terms,),
        finish=cumulative_matching,
        default=True,
        also=("Rank-{x}", "R{x}", "R@{x}", "top-{x}", "hit-rate@{x}"),
        deployed=True,
    ),
    _ranked(
        SAMPLED,
        "1/N Σ [c + 1 <= x], mean over draws of one item of each gallery identity",
        "Li et al. 2014 (CUHK03); torchreid and open-reid: 10 draws, without a seed",
        needs=("indptr", "tied", "sampled_shots"),
        values=matches_within,
        adds=(matching_terms,),
        finish=cumulative_matching,
        tail="withheld",
    ),
    _ranked(
        "mAP",
        "1/N Σ AP; AP = 1/G Σ_j j/r_j (step), or 1/G Σ_j ½[(j−1)/(r_j−1) + j/r_j] "
        "(trapezoid), or 1/G Σ_j of the precision at distance d_j (threshold)",
        "Zheng et al. 2015 (Market-1501); GOM paper, Eq. 2",
        values=average_precisions,
        drawn=_INVERSE,
        column="AP",
        default=True,
        also=("AP", "mean-average-precision"),
    ),
    _ranked(
        "mINP",
        "1/N Σ G/r_G",
        "Ye et al. 2020 (AGW); GOM paper, Eq. 3",
        values=lambda ranked: ranked.inverse_penalty,
        drawn=_INVERSE,
        column="INP",
        default=True,
        also=("INP",),
    ),
    _ranked(
        "MRR",
        "1/N Σ 1/r_1",
        "Voorhees 1999 (TREC-8); pytorch-metric-learning, torchmetrics, ranx",
        values=lambda ranked: ranked.ranks.inverse_rank(),
        drawn=_INVERSE,
        column="RR",
        deployed=True,
        also=("RR", "mean-reciprocal-rank"),
    ),
    _ranked(
        "MedR",
        "median over Q+ of r_1",
        "Hodosh, Young and Hockenmaier 2013 (median rank of image and text retrieval)",
        finish=median_rank,
        resampled=resampled_median_rank,
        kind=RANK,
        better="lower",
        also=("MdR", "Med-r", "median-rank", "median-first-rank"),
    ),
)
