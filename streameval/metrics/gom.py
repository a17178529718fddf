"""GOM, the Genuine Open-set re-ID Metric: retrieval and verification on one threshold.

Thresholds are τ_t = t/(T − 1) of the normalised distance; the statistics hold them as
distances. For a query of Q+, tp and fp are the positives and negatives returned at τ, and
fn = G − tp. Source: Wang et al., "Re-identification = Retrieval + Verification", §5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from streameval.choices import VerificationPrecision
from streameval.metrics.blocks import (
    RankedQueries,
    Totals,
    normalised_thresholds,
    positives_returned,
)
from streameval.metrics.confidence import Resamples, divided
from streameval.metrics.metric import RANK_FIELDS, TAU, Metric, Value
from streameval.metrics.sums import mean, trapezoid
from streameval.statistics import FloatArray, IntArray

_REP = (
    "; mReP = 1/N Σ sqrt(RP·VP); RP = 1/tp Σ_{j<=tp} j/r_j, as --ap has it; "
    "VP = tp/(fn + min(tp + fp, r_G)) (reference) or tp/(tp + fn + fp) (equation)"
)
_FR = "; mFR = 1/M Σ min(fp/B, 1)"
NEVER_RETURNS = "no query of Q− returns anything, even at τ = 1"


def reid_terms(ranked: RankedQueries) -> Iterator[FloatArray]:
    """Give RP, VP and ReP of the queries of Q+, [3, N] float64, at one threshold after the other.

    RP = Σ_{j <= tp} (AP term of j) / tp, 0 where tp = 0 (Eq. 4); VP as
    `verification_precision`; ReP = sqrt(RP · VP) (Eq. 6). Under ``ties="expected"`` RP and VP
    are expectations, and ReP is the root of their product, sqrt(E[RP] · E[VP]).
    """
    stats, ranks = ranked.stats, ranked.ranks
    for t, tp in enumerate(positives_returned(ranked)):
        fp = stats.negatives_within[ranks.queries, t]
        some = np.maximum(tp, 1)
        rp = np.where(tp > 0, ranked.precision_sums[ranks.start + some - 1] / some, 0.0)
        vp = verification_precision(ranked.options.vp, tp, fp, ranks.count, ranked.inverse_penalty)
        yield np.array([rp, vp, np.sqrt(rp * vp)])


def reid_curves(totals: Totals) -> dict[str, FloatArray]:
    """Return tau and the curves mRP, mVP and mReP, each [T] float64."""
    means = totals.means(reid_terms).reshape(-1, 3).T
    tau = normalised_thresholds(len(totals.thresholds))
    return {"tau": tau, **dict(zip(("mRP", "mVP", "mReP"), means, strict=True))}


def reid_value(totals: Totals, name: str) -> Value:
    """Return one of `reid_scalars`, and the curves that it is read off."""
    curves = totals.once(reid_curves)
    return Value(reid_scalars(curves["tau"], curves["mVP"], curves["mReP"])[name], curves=curves)


def reid_curve_bounds(worst: RankedQueries, best: RankedQueries) -> tuple[FloatArray, FloatArray]:
    """Return the least and the greatest curve mReP between two extremes, both [T] float64.

    Of a query, tp lies between tp of the two; RP, the mean of the first tp terms, between the
    least such mean at worst and the greatest at best, over these tp (one more positive may lower
    the mean); VP between its values of the two.
    """
    ranks, length = worst.ranks, len(worst.stats.thresholds)
    means = [
        np.append(end.precision_sums / end.ranks.order, beyond)
        for end, beyond in ((worst, np.inf), (best, -np.inf))
    ]
    low, high = np.full(length, math.nan), np.full(length, math.nan)
    returned = zip(positives_returned(worst), positives_returned(best), strict=True)
    for t, (least, most) in enumerate(returned):
        first = ranks.start + np.maximum(least, 1) - 1
        spans = np.stack([first, np.maximum(ranks.start + most, first + 1)], axis=1).ravel()
        rp_low = np.where(least > 0, np.minimum.reduceat(means[0], spans)[::2], 0.0)
        rp_high = np.where(most > 0, np.maximum.reduceat(means[1], spans)[::2], 0.0)
        vp_low, vp_high = (
            verification_precision(
                end.options.vp,
                tp,
                end.stats.negatives_within[ranks.queries, t],
                ranks.count,
                end.inverse_penalty,
            )
            for end, tp in ((worst, least), (best, most))
        )
        low[t], high[t] = mean(np.sqrt(rp_low * vp_low)), mean(np.sqrt(rp_high * vp_high))
    return low, high


def reid_bounds(worst: RankedQueries, best: RankedQueries, name: str) -> tuple[float, float] | None:
    """Return bounds of one of `reid_scalars` between two extremes; None under ties expected.

    tau_max is a τ at which the greatest curve reaches the maximum of the least one.
    """
    if worst.options.ties == "expected" or not len(worst.ranks.queries):
        return None
    low, high = worst.once(reid_curve_bounds, best)
    tau = normalised_thresholds(len(low))
    if name == "tau_max":
        reached = tau[high >= low.max()]
        return float(reached[0]), float(reached[-1])
    least, most = (reid_scalars(tau, curve, curve)[name] for curve in (low, high))
    return least, most


def verification_precision(
    rule: VerificationPrecision,
    tp: IntArray,
    fp: IntArray,
    positives: IntArray,
    inverse_penalty: FloatArray,
) -> FloatArray:
    """Return VP of each query, [N] float64.

    equation: tp / (tp + fn + fp), Eq. 5 as printed. reference: the authors' code, which stops
    counting at the last match, tp / (fn + min(tp + fp, r_G)). Until all positives are returned
    r_G is beyond tp + fp, and the two agree; then it is within, and VP is G / r_G = INP.

    Parameters
    ----------
    rule : {"reference", "equation"}
    tp, fp, positives : [N] int64
        Positives and negatives returned; positives in all, G.
    inverse_penalty : [N] float64
        INP.
    """
    as_printed: FloatArray = tp / (positives + fp)
    if rule == "equation":
        return as_printed
    return np.where(tp == positives, inverse_penalty, as_printed)


def false_rate_terms(ranked: RankedQueries) -> Iterator[FloatArray]:
    """Give FR of the queries of Q−, [1, M] float64, at one threshold after the other."""
    stats, queries = ranked.stats, ranked.negative_queries
    for t in range(len(stats.thresholds)):
        within = stats.negatives_within[queries, t]
        yield np.minimum(within / ranked.options.false_rate_budget, 1.0)[None]


def false_rate_curves(totals: Totals) -> dict[str, FloatArray]:
    """Return tau and the curve mFR, both [T] float64."""
    tau = normalised_thresholds(len(totals.thresholds))
    return {"tau": tau, "mFR": totals.means(false_rate_terms, over="Q−")}


def false_rate_value(totals: Totals, name: str) -> Value:
    """Return one of `false_rate_scalars`, and the curve that it is read off."""
    curves = totals.once(false_rate_curves)
    value = false_rate_scalars(curves["tau"], curves["mFR"])[name]
    reason = NEVER_RETURNS if name == "tau_nz" else ""
    return Value(value, curves=curves, reason=reason)


def gom_scalars(
    tau: FloatArray, mvp: FloatArray, mrep: FloatArray, mfr: FloatArray
) -> dict[str, float]:
    """Return all scalars of GOM from its curves, as of other evaluators or publications.

    Parameters
    ----------
    tau, mvp, mrep, mfr : [T] float64
        Normalised thresholds, ascending, and the curves mVP, mReP and mFR there. A curve of
        NaN gives scalars of NaN.

    Returns
    -------
    dict of str to float
        The keys of `reid_scalars` and of `false_rate_scalars`.
    """
    return {**reid_scalars(tau, mvp, mrep), **false_rate_scalars(tau, mfr)}


def reid_scalars(tau: FloatArray, mvp: FloatArray, mrep: FloatArray) -> dict[str, float]:
    """Return mVP_max, mReP_max, tau_max (the first τ of that maximum) and MREP (Eq. 9)."""
    best = int(np.argmax(mrep))
    return {
        "mVP_max": float(np.max(mvp)),
        "mReP_max": float(mrep[best]),
        "tau_max": math.nan if math.isnan(mrep[best]) else float(tau[best]),
        "MREP": trapezoid(mrep, tau),
    }


def false_rate_scalars(tau: FloatArray, mfr: FloatArray) -> dict[str, float]:
    """Return MFR (Eq. 10) and tau_nz, the smallest τ with mFR > 0, NaN where there is none."""
    above = np.flatnonzero(mfr > 0)
    return {
        "MFR": trapezoid(mfr, tau),
        "tau_nz": float(tau[above[0]]) if len(above) else math.nan,
    }


def resampled_reid(resamples: Resamples) -> list[dict[str, float]]:
    """Return `reid_scalars` of each resample."""
    sums = resamples.curves(reid_terms, "Q+")
    _, mvp, mrep = np.moveaxis(divided(sums, resamples.known).reshape(len(sums), -1, 3), 2, 0)
    tau = normalised_thresholds(mvp.shape[1])
    return [reid_scalars(tau, *curves) for curves in zip(mvp, mrep, strict=True)]


def resampled_false_rates(resamples: Resamples) -> list[dict[str, float]]:
    """Return `false_rate_scalars` of each resample."""
    mfr = divided(resamples.curves(false_rate_terms, "Q−"), resamples.strangers)
    tau = normalised_thresholds(mfr.shape[1])
    return [false_rate_scalars(tau, curve) for curve in mfr]


def _resampled(
    resamples: Resamples, name: str, *, scalars: Callable[[Resamples], list[dict[str, float]]]
) -> FloatArray:
    """Return one of the scalars of each resample, [R] float64."""
    return np.array([each[name] for each in resamples.once(scalars)])


_reid = partial(
    Metric,
    part="gom",
    needs=(*RANK_FIELDS, "thresholds", "negatives_within"),
    source="GOM paper, Eq. 4, 5, 6, 9; the reference VP: the authors' published code",
    adds=(reid_terms,),
    finish=reid_value,
    resampled=partial(_resampled, scalars=resampled_reid),
    default=True,
    tail="own",
    between=reid_bounds,
    deployed=True,
)

_false_rate = partial(
    Metric,
    part="gom",
    needs=("indptr", "thresholds", "negatives_within", "same_identity"),
    over=("Q−",),
    source="GOM paper, Eq. 7, 8, 10",
    adds=(false_rate_terms,),
    finish=false_rate_value,
    default=True,
    tail="monotone",
    deployed=True,
)

METRICS = (
    _reid(
        name="mVP_max",
        formula=f"max over τ of mVP = 1/N Σ VP{_REP}",
        tail="monotone",
        between=None,
    ),
    _reid(name="mReP_max", formula=f"max over τ of mReP{_REP}"),
    _reid(
        name="tau_max",
        formula=f"the first τ at which mReP is greatest{_REP}",
        kind=TAU,
        better="neither",
    ),
    _reid(name="MREP", formula=f"area under mReP(τ){_REP}"),
    _false_rate(
        name="MFR",
        formula=f"area under mFR(τ){_FR}",
        resampled=partial(_resampled, scalars=resampled_false_rates),
        better="lower",
    ),
    _false_rate(  # no interval: Bickel and Freedman 1981: the bootstrap fails for extremes
        name="tau_nz",
        formula=f"the smallest τ with mFR > 0{_FR}",
        no_interval="an extreme of the queries: no resample goes beyond it, and all tell too "
        "little",
        kind=TAU,  # higher is better: strangers get answers from further on
    ),
)
