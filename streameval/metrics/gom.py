"""GOM, the Genuine Open-set re-ID Metric: retrieval and verification on one threshold.

Thresholds are τ_t = t/(T − 1) of the normalised distance; the statistics hold them as
distances. For a query of Q+, tp and fp are the positives and negatives returned at τ, and
fn = G − tp. Source: Wang et al., "Re-identification = Retrieval + Verification", §5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from streameval.metrics.blocks import RankedQueries, Terms, Totals, normalised_thresholds
from streameval.metrics.confidence import Resamples
from streameval.metrics.metric import RANK_FIELDS, TAU, Measure, Metric, Value
from streameval.metrics.sums import exact_parts, rounded, trapezoid
from streameval.typing import FloatArray, IntArray

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
    are expectations, and ReP is the root of their product, sqrt(E[RP] · E[VP]). The same array is
    given again where thresholds return no positive, or all, and then VP is INP.
    """
    start, count = ranked.ranks.start, ranked.ranks.count
    settled, reference = np.empty(0, np.int64), ranked.options.vp == "reference"
    for t, tp in enumerate(ranked.positives_returned()):
        if tp is not settled:
            some = np.maximum(tp, 1)
            rp = np.where(tp > 0, ranked.precision_sums[start + some - 1] / some, 0.0)
            vp = verification_precision(ranked, tp, t)
            terms = np.array([rp, vp, np.sqrt(rp * vp)])
            if not tp.any() or (reference and np.array_equal(tp, count)):
                settled = tp
        yield terms


def reid_curve_bounds(worst: Totals, best: Totals) -> tuple[FloatArray, FloatArray]:
    """Return the least and the greatest curve mReP between two extremes, both [T] float64."""
    blocks = zip(worst.ranked(), best.ranked(), strict=True)
    sums = rounded(exact_parts(reid_bound_terms(*block)) for block in blocks)
    least, greatest = (sums / worst.number()).reshape(-1, 2).T
    return least, greatest


def reid_bound_terms(worst: RankedQueries, best: RankedQueries) -> Iterator[FloatArray]:
    """Give the least and the greatest ReP of the queries of Q+, [2, N], at each threshold.

    Of a query, tp lies between tp of the two; RP, the mean of the first tp terms, between the
    least such mean at worst and the greatest at best, over these tp (one more positive may lower
    the mean); VP between its values of the two.
    """
    start = worst.ranks.start
    ends = (worst, np.minimum, np.inf), (best, np.maximum, -np.inf)
    each = worst.positives_returned(), best.positives_returned()
    means = [np.append(end.precision_sums / end.ranks.order, beyond) for end, _, beyond in ends]
    for t, returned in enumerate(zip(*each, strict=True)):
        first = start + np.maximum(returned[0], 1) - 1
        spans = np.stack([first, np.maximum(start + returned[1], first + 1)], axis=1).ravel()
        bounds = []
        for (end, extreme, _), mean_, tp in zip(ends, means, returned, strict=True):
            rp = np.where(tp > 0, extreme.reduceat(mean_, spans)[::2], 0.0)
            bounds.append(np.sqrt(rp * verification_precision(end, tp, t)))
        yield np.array(bounds)


def reid_bounds(worst: Totals, best: Totals, name: str) -> tuple[float, float] | None:
    """Return bounds of one of `gom_scalars` between two extremes; None under ties expected.

    tau_max is a τ at which the greatest curve reaches the maximum of the least one.
    """
    if worst.options.ties == "expected" or not worst.sizes["Q+"]:
        return None
    low, high = worst.once(reid_curve_bounds, best)
    tau = normalised_thresholds(len(low))
    if name == "tau_max":
        reached = tau[high >= low.max()]
        return float(reached[0]), float(reached[-1])
    least, most = (
        _scalars({"tau": tau, "mVP": curve, "mReP": curve})[name] for curve in (low, high)
    )
    return least, most


def verification_precision(ranked: RankedQueries, tp: IntArray, t: int) -> FloatArray:
    """Return VP of each query of Q+ at threshold t, where it returns tp positives, [N] float64.

    equation: tp / (tp + fn + fp), Eq. 5 as printed. reference: the authors' code, which stops
    counting at the last match, tp / (fn + min(tp + fp, r_G)). Until all positives are returned
    r_G is beyond tp + fp, and the two agree; then it is within, and VP is G / r_G = INP.
    """
    ranks = ranked.ranks
    as_printed: FloatArray = tp / (ranks.count + ranked.stats.negatives_within[ranks.queries, t])
    if ranked.options.vp == "equation":
        return as_printed
    return np.where(tp == ranks.count, ranked.inverse_penalty, as_printed)


def false_rate_terms(ranked: RankedQueries) -> Iterator[FloatArray]:
    """Give FR of the queries of Q−, [1, M] float64, at one threshold after the other."""
    stats, queries = ranked.stats, ranked.totals.strangers
    for t in range(len(stats.thresholds)):
        within = stats.negatives_within[queries, t]
        yield np.minimum(within / ranked.options.false_rate_budget, 1.0)[None]


def gom_value(totals: Totals, measure: Measure) -> Value:
    """Return one of `gom_scalars`, and the curves that it is read off."""
    [(curves, scalars)] = totals.once(gom_readings, *measure.metric.adds)
    return Value(scalars[measure.name], curves=curves, reason=NEVER_RETURNS)


def resampled_gom(resamples: Resamples, measure: Measure) -> FloatArray:
    """Return one of `gom_scalars` of each resample, [R] float64."""
    readings = resamples.once(gom_readings, *measure.metric.adds)
    return np.array([scalars[measure.name] for _, scalars in readings])


def gom_readings(
    queries: Totals | Resamples, terms: Terms
) -> list[tuple[dict[str, FloatArray], dict[str, float]]]:
    """Return the curves of the terms and their scalars, of the queries or of each resample.

    Curves, [T] float64 each: tau, and the means ``mRP``, ``mVP`` and ``mReP``, or ``mFR``.
    """
    over, *names = _CURVES[terms]
    readings = []
    for means in np.atleast_2d(queries.means(terms, over=over)):
        rows = means.reshape(-1, len(names)).T
        tau = normalised_thresholds(rows.shape[1])
        curves = dict(zip(("tau", *names), (tau, *rows), strict=True))
        readings.append((curves, _scalars(curves)))
    return readings


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
        mVP_max, mReP_max, tau_max (the first τ of that maximum) and MREP (Eq. 9); MFR (Eq. 10) and
        tau_nz, the smallest τ with mFR > 0, NaN where there is none.
    """
    return _scalars({"tau": tau, "mVP": mvp, "mReP": mrep, "mFR": mfr})


def _scalars(curves: Mapping[str, FloatArray]) -> dict[str, float]:
    """Return `gom_scalars` of the curves that there are."""
    tau, scalars = curves["tau"], {}
    if "mReP" in curves:
        mrep = curves["mReP"]
        best = int(np.argmax(mrep))
        scalars = {
            "mVP_max": float(np.max(curves["mVP"])),
            "mReP_max": float(mrep[best]),
            "tau_max": math.nan if math.isnan(mrep[best]) else float(tau[best]),
            "MREP": trapezoid(mrep, tau),
        }
    if "mFR" in curves:
        above = tau[curves["mFR"] > 0]
        scalars["MFR"] = trapezoid(curves["mFR"], tau)
        scalars["tau_nz"] = float(above[0]) if len(above) else math.nan
    return scalars


_CURVES: Mapping[Terms, tuple[str, ...]] = {
    reid_terms: ("Q+", "mRP", "mVP", "mReP"),
    false_rate_terms: ("Q−", "mFR"),
}
"""What the means of terms are over, and their names."""

_gom = partial(
    Metric, finish=gom_value, resampled=resampled_gom, part="gom", default=True, deployed=True
)

_reid = partial(
    _gom,
    needs=(*RANK_FIELDS, "thresholds", "negatives_within"),
    source="GOM paper, Eq. 4, 5, 6, 9; the reference VP: the authors' published code",
    adds=(reid_terms,),
    tail="own",
    between=reid_bounds,
)

_false_rate = partial(
    _gom,
    needs=("indptr", "thresholds", "negatives_within", "same_identity"),
    over=("Q−",),
    source="GOM paper, Eq. 7, 8, 10",
    adds=(false_rate_terms,),
    tail="monotone",
)

METRICS = (
    _reid("mVP_max", f"max over τ of mVP = 1/N Σ VP{_REP}", tail="monotone", between=None),
    _reid("mReP_max", f"max over τ of mReP{_REP}"),
    _reid("tau_max", f"the first τ at which mReP is greatest{_REP}", kind=TAU, better="neither"),
    _reid("MREP", f"area under mReP(τ){_REP}"),
    _false_rate("MFR", f"area under mFR(τ){_FR}", better="lower"),
    _false_rate(  # no interval (Bickel and Freedman 1981): the bootstrap fails for extremes
        "tau_nz",
        f"the smallest τ with mFR > 0{_FR}",
        resampled=None,
        no_interval="an extreme of the queries: no resample goes beyond it, and all tell too "
        "little",
        kind=TAU,  # higher is better: strangers get answers from further on
    ),
)
