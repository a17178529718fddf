"""Open set: identification and verification of known queries against false accepts of strangers.

A query is accepted at a threshold τ where its nearest valid item is within τ. FAR changes only
at the nearest negatives of Q−, so everything here is exact, with no grid of thresholds.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from streameval.metrics.blocks import Column, RankedQueries, Totals
from streameval.metrics.confidence import Resamples, divided
from streameval.metrics.matching import resampled_ratio
from streameval.metrics.metric import RANK_FIELDS, UNDEFINED, Measure, Metric, Value
from streameval.metrics.parameters import choice, distance, rank, rate
from streameval.metrics.sums import prefix_sums
from streameval.typing import FloatArray, IntArray

_NEAREST_FIELDS = ("indptr", "positive_distance", "nearest_negative", "same_identity")


def identified_terms(ranked: RankedQueries, x: int, tau: float) -> list[FloatArray]:
    """Return [r_1 <= x, d_1 <= τ] or its probability, and [in Q+], by query, [2, Q] float64."""
    known = ranked.stats.has_positive.astype(np.float64)
    distance, share = identified(ranked, x).T
    found = np.zeros(len(known))
    found[ranked.ranks.queries] = share * (distance <= tau)
    return [np.array([found, known])]


def missed_terms(ranked: RankedQueries, x: int, tau: float) -> list[FloatArray]:
    """Return what `identified_terms` leave of 1, and [in Q+], by query, [2, Q] float64."""
    [(found, known)] = identified_terms(ranked, x, tau)
    return [np.array([known - found, known])]


def accepted_terms(ranked: RankedQueries, tau: float) -> list[FloatArray]:
    """Return [min d <= τ] of Q−, and [in Q−], by query, [2, Q] float64."""
    strangers = ranked.stats.identity_absent
    accepted = strangers & (ranked.stats.nearest_negative <= tau)
    return [np.array([accepted, strangers], dtype=np.float64)]


def rate_at_distance(totals: Totals, measure: Measure) -> Value:
    """Return one sum of the terms by the other, at the distance that is the last parameter."""
    above, below = totals.sums(measure.metric.adds[0], *measure.values)
    return Value(float(above / below), measure.values[-1]) if below else UNDEFINED


def stranger_distances(ranked: RankedQueries) -> FloatArray:
    """Return the distance of the nearest item of each query of Q−, [M] float64."""
    return ranked.stats.nearest_negative[ranked.totals.strangers]


def identified(ranked: RankedQueries, x: int) -> FloatArray:
    """Return d_1 of the queries of Q+, and [r_1 <= x] or its probability, [N, 2] float64."""
    stats, ranks = ranked.stats, ranked.ranks
    return np.column_stack([stats.positive_distance[ranks.start], ranks.first_within(x)])


def verified(ranked: RankedQueries, verification: str) -> FloatArray:
    """Return the distance at which each query of Q+ is verified, and 1, [N, 2] float64.

    That of its nearest valid item ("set") or positive ("individual").
    """
    stats, ranks = ranked.stats, ranked.ranks
    distance = stats.positive_distance[ranks.start]
    if verification == "set":
        distance = np.minimum(distance, stats.nearest_negative[ranks.queries])
    return np.column_stack([distance, np.ones(len(distance))])


def operating_point(totals: Totals, measure: Measure) -> Value:
    """Return the share of Q+ that is accepted at the largest FAR <= f, and the ROC.

    What the metric keeps says at which distance a query is accepted, and by what share it then
    counts. NaN where M strangers don't support f. A metric of which less is better is of the
    others.
    Curves, each [n]: ``ROC_tau`` (the limits of `false_accepts`), ``FAR``, and the metric's own
    where what is closer than a limit is accepted: ``DIR@1``.
    """
    *of, f = measure.values
    limits, far = totals.once(false_accepts)
    queries, strangers = totals.sizes["Q+"], totals.sizes["Q−"]
    sums = totals.once(sums_closer, measure.metric.keeps[0], *of)
    if measure.metric.better == "lower":
        sums = queries - sums
    rates = np.where(np.isnan(limits) | (queries == 0), math.nan, sums / max(queries, 1))
    curves = {"ROC_tau": limits, "FAR": far, measure.name.partition("|")[0]: rates}
    if strangers and 1 / strangers > f:
        return Value(math.nan, reason=unsupported(strangers, f, "queries of Q−"), curves=curves)
    point = max(int(np.searchsorted(far, f, side="right")) - 1, 0)
    limit = float(limits[point])
    # The largest distance that is closer; where everything is accepted, +inf.
    threshold = limit if math.isinf(limit) else math.nextafter(limit, -math.inf)
    return Value(float(rates[point]), None if math.isnan(limit) else threshold, curves=curves)


def unsupported(count: int, f: float, what: str) -> str:
    """Return in words that a rate is too small to be measured on so many queries or pairs."""
    if f == 0:
        return f"no number of {what} supports a rate of 0"
    return f"needs {math.ceil(1 / f):,} {what}, has {count:,}"


def false_accepts(totals: Totals) -> tuple[FloatArray, FloatArray]:
    """Return the limits at which FAR changes, and FAR just below each, both [n] float64.

    The limits are the nearest negatives of Q−, each distance once, and +inf, ascending. A
    nearest negative at +inf (there is none) is never accepted. Where Q− is empty the result is
    a single point of NaN.
    """
    nearest = totals.column(stranger_distances)
    if not len(nearest):
        return np.array([math.nan]), np.array([math.nan])
    limits = np.append(np.unique(nearest[np.isfinite(nearest)]), np.inf)
    accepted = np.searchsorted(np.sort(nearest), limits)
    return limits, accepted / len(nearest)


def sums_closer(totals: Totals, accepted: Column, parameter: int | str) -> FloatArray:
    """Return the sum of the shares with distance < limit, at each limit, [n] float64."""
    distance, share = totals.column(accepted, parameter).T
    order, closer = _closer(distance, totals.once(false_accepts)[0])
    return prefix_sums(share[order])[closer]


def _closer(distance: FloatArray, limits: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the order of distances [m], and how many are < each limit, [n]."""
    order = np.argsort(distance)
    return order, np.searchsorted(distance[order], limits)


def _cumulated(weights: FloatArray) -> FloatArray:
    """Return the sums of the first 0 .. n weights of each row, [r, n + 1]."""
    sums = np.zeros((len(weights), weights.shape[1] + 1))
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums


def roc_area(totals: Totals, x: int) -> Value:
    """Return the area under DIR@x against FAR, equal distances counting half.

    It is the chance that a query of Q+, drawn at random, is identified, and at a distance less
    than that of a stranger drawn at random (Mann and Whitney).
    """
    nearest = np.sort(totals.column(stranger_distances))
    distance, found = totals.column(identified, x).T
    pairs = 2 * len(distance) * len(nearest)
    if not pairs:
        return UNDEFINED
    left, right = (np.searchsorted(nearest, distance, side=side) for side in ("left", "right"))
    return Value(math.fsum((found * (2 * len(nearest) - left - right)).tolist()) / pairs)


def resampled_limits(resamples: Resamples, f: float) -> FloatArray:
    """Return the limit at the largest FAR <= f in each resample, [R] float64.

    NaN where its queries of Q− don't support the rate. The strangers are sorted once; in a
    resample each is as many as it is drawn.
    """
    totals = resamples.totals
    limits, _ = totals.once(false_accepts)
    order, closer = _closer(totals.column(stranger_distances), limits)
    found = np.full(len(resamples.drawn), math.nan)
    for block, (weights,) in resamples.weights(totals.strangers[order]):
        sums = _cumulated(weights)
        strangers = np.maximum(sums[:, -1:], 1)
        last = np.sum(sums[:, closer] / strangers <= f, axis=1) - 1
        supported = (sums[:, -1] > 0) & (1 / strangers[:, 0] <= f)
        found[block] = np.where(supported, limits[last], math.nan)
    return found


def resampled_point(resamples: Resamples, measure: Measure) -> FloatArray:
    """Return `operating_point` of each resample, [R] float64."""
    *of, f = measure.values
    limits = resamples.once(resampled_limits, f)
    distance, share = resamples.totals.column(measure.metric.keeps[0], *of).T
    order, closer = _closer(distance, limits)
    own = share[order]
    sums = np.full(len(limits), math.nan)
    for block, (drawn,) in resamples.weights(resamples.totals.queries[order]):
        ends = closer[block].tolist()
        sums[block] = [row[:end] @ own[:end] for row, end in zip(drawn, ends, strict=True)]
    shares = np.where(np.isnan(limits), math.nan, divided(sums, resamples.numbers["Q+"]))
    return 1 - shares if measure.metric.better == "lower" else shares


def resampled_area(resamples: Resamples, x: int) -> FloatArray:
    """Return `roc_area` of each resample, [R] float64."""
    totals = resamples.totals
    nearest = totals.column(stranger_distances)
    distance, found = totals.column(identified, x).T
    order = np.argsort(distance)
    ends = [np.searchsorted(distance[order], nearest, side=side) for side in ("left", "right")]
    sums = np.empty(len(resamples.drawn))
    queries = totals.queries[order], totals.strangers
    for block, (known, strangers) in resamples.weights(*queries):
        closer = _cumulated(known * found[order])
        halves = closer[:, ends[0]] + closer[:, ends[1]]
        sums[block] = np.sum(strangers * halves, axis=1)
    return divided(sums, 2 * resamples.numbers["Q+"] * resamples.numbers["Q−"])


_open = partial(
    Metric,
    part="open-set",
    needs=(*_NEAREST_FIELDS, "closer", "tied", "tied_before"),
    over=("Q+", "Q−"),
    keeps=(identified, stranger_distances),
    finish=operating_point,
    resampled=resampled_point,
    tail="monotone",
    deployed=True,
    parameters={
        "x": rank(lambda options: options.dir_ranks),
        "verification": choice("set", "individual"),
        "f": rate(lambda options: options.false_accept_rates),
    },
)

_at_distance = partial(
    _open,
    keeps=(),
    finish=rate_at_distance,
    resampled=resampled_ratio,
    parameters={"x": rank(lambda options: options.dir_ranks), "tau": distance},
)

METRICS = (
    _open(
        "DIR@{x}|FAR={f}",
        "DIR(τ,x) = |{Q+ : r_1 <= x, d_1 <= τ}|/N at the largest τ with FAR(τ) = "
        "|{Q− : min d <= τ}|/M <= f; undefined if f < 1/M",
        "Liao et al. 2014; GOM paper, §4.4",
        default=True,
        also=("DIR@FAR={f}", "TPIR@FPIR={f}", "TPIR@{x}|FPIR={f}"),
    ),
    _open(
        "FNIR@{x}|FPIR={f}",
        "FNIR(τ,x) = 1 − DIR(τ,x) at the largest τ with FPIR(τ) = FAR(τ) <= f; withheld "
        "where f < 1/M",
        "ISO/IEC 19795-1; NIST FRVT 1:N",
        also=("FNIR@FPIR={f}",),
        better="lower",
    ),
    _open(
        "DIR_AUC@{x}",
        "1/(N·M) Σ_{i in Q+} Σ_{u in Q−} [r_1 <= x]·([d_1 < d_u] + ½[d_1 = d_u])",
        "area under the ROC of Liao et al. 2014, by Mann and Whitney 1947",
        finish=roc_area,
        resampled=resampled_area,
    ),
    _open(
        "TTR/{verification}|FTR={f}",
        "TTR(τ) = |{Q+ : d <= τ}|/N at the largest τ with FTR(τ) = |{Q− : min d <= τ}|/M "
        "<= f; d = min over all valid items (set), or d_1 (individual); undefined if f < 1/M",
        "Zheng et al. 2016 (one-shot group-based verification)",
        needs=_NEAREST_FIELDS,
        keeps=(verified, stranger_distances),
        also=("TTR@FTR={f}",),
    ),
    _at_distance(
        "DIR@{x}|tau={tau}",
        "DIR(tau,x) = |{Q+ : r_1 <= x, d_1 <= tau}|/N at a distance tau that is given",
        "Liao et al. 2014; GOM paper, §4.4",
        needs=RANK_FIELDS,
        over=("Q+",),
        adds=(identified_terms,),
        also=("TPIR@{x}|tau={tau}",),
    ),
    _at_distance(
        "FNIR@{x}|tau={tau}",
        "FNIR(tau,x) = 1 − DIR(tau,x) at a distance tau that is given",
        "ISO/IEC 19795-1",
        needs=RANK_FIELDS,
        over=("Q+",),
        adds=(missed_terms,),
        better="lower",
    ),
    _at_distance(
        "FPIR|tau={tau}",
        "FPIR(tau) = FAR(tau) = |{Q− : min d <= tau}|/M at a distance tau that is given",
        "ISO/IEC 19795-1",
        needs=("indptr", "nearest_negative", "same_identity"),
        over=("Q−",),
        adds=(accepted_terms,),
        better="lower",
    ),
)
