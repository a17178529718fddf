"""Verification on the T thresholds of the statistics: exact, without a histogram.

tp and fp are the genuine and impostor pairs returned at τ. ``micro`` counts the pairs of all
queries together; ``macro`` is the mean over the queries of Q+ of what each has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from streameval.metrics.means import mean
from streameval.metrics.metric import Metric, Tail, Value
from streameval.metrics.parameters import choice, threshold
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.resampling import Identities, Resamples, ratio_of
from streameval.metrics.thresholds import normalised_thresholds, positives_returned
from streameval.statistics import FloatArray, IntArray

NOTHING_RETURNED = "nothing is returned at this τ"


def precision(tp: IntArray, fp: IntArray, positives: IntArray) -> FloatArray:
    """Return tp/(tp + fp), NaN where nothing is returned, [n] float64."""
    return np.where(tp + fp > 0, tp / np.maximum(tp + fp, 1), math.nan)


def recall(tp: IntArray, fp: IntArray, positives: IntArray) -> FloatArray:
    """Return tp/G, [n] float64."""
    return np.where(positives > 0, tp / np.maximum(positives, 1), math.nan)


def f1(tp: IntArray, fp: IntArray, positives: IntArray) -> FloatArray:
    """Return 2tp/(tp + fp + G), [n] float64."""
    return np.where(positives > 0, 2 * tp / np.maximum(tp + fp + positives, 1), math.nan)


Figure = Callable[[IntArray, IntArray, IntArray], FloatArray]
FIGURES: dict[str, Figure] = {"precision": precision, "recall": recall, "F1": f1}


def figure_curves(ranked: RankedQueries, average: str) -> dict[str, FloatArray]:
    """Return tau and the curves ``precision/micro``, ``recall/micro``, ``F1/micro``, [T] each."""
    stats, ranks = ranked.stats, ranked.ranks
    tau = normalised_thresholds(len(stats.thresholds))
    curves = {f"{name}/{average}": np.full(len(tau), math.nan) for name in FIGURES}
    for t, tp in enumerate(positives_returned(ranked)):
        fp, positives = stats.negatives_within[ranks.queries, t], ranks.count
        if average == "micro":
            pairs = tp.sum(), stats.negatives_within[:, t].sum(), ranks.count.sum()
            tp, fp, positives = (np.array([count]) for count in pairs)
        for name, figure in FIGURES.items():
            values = figure(tp, fp, positives)
            curves[f"{name}/{average}"][t] = mean(values[~np.isnan(values)])
    return {"tau": tau, **curves}


def figure_at(ranked: RankedQueries, average: str, tau: float, *, name: str) -> Value:
    """Return precision, recall or F1 at one of the thresholds, and the curves."""
    curves = ranked.once(figure_curves, average)
    at = _index(ranked, tau)
    if at is None:
        return Value(math.nan, reason=_not_counted(len(ranked.stats.thresholds)))
    return Value(
        float(curves[f"{name}/{average}"][at]),
        threshold=float(ranked.stats.thresholds[at]),
        reason=NOTHING_RETURNED,
        curves=curves,
    )


def false_matches(ranked: RankedQueries, tau: float) -> Value:
    """Return FMR at one of the thresholds."""
    stats = ranked.stats
    at, impostors = _index(ranked, tau), int(stats.negatives.sum())
    if at is None or not impostors:
        return Value(math.nan, reason=_not_counted(len(stats.thresholds)))
    matched = int(stats.negatives_within[:, at].sum())
    return Value(matched / impostors, threshold=float(stats.thresholds[at]))


def false_non_matches(ranked: RankedQueries, tau: float) -> Value:
    """Return FNMR at one of the thresholds."""
    stats = ranked.stats
    at, genuine = _index(ranked, tau), len(stats.positive_distance)
    if at is None or not genuine:
        return Value(math.nan, reason=_not_counted(len(stats.thresholds)))
    missed = int((stats.positive_distance > stats.thresholds[at]).sum())
    return Value(missed / genuine, threshold=float(stats.thresholds[at]))


def _index(ranked: RankedQueries, tau: float) -> int | None:
    """Return which of the thresholds τ is."""
    found = np.flatnonzero(normalised_thresholds(len(ranked.stats.thresholds)) == tau)
    return int(found[0]) if len(found) else None


def _not_counted(thresholds: int) -> str:
    return f"only multiples of 1/{thresholds - 1} of τ were counted"


def greatest_f1(ranked: RankedQueries, average: str) -> Value:
    """Return the greatest F1 over the thresholds; its threshold is the first with that."""
    curves = ranked.once(figure_curves, average)
    values = curves[f"F1/{average}"]
    best = int(np.argmax(values))
    return Value(float(values[best]), threshold=float(ranked.stats.thresholds[best]), curves=curves)


def figure_terms(
    ranked: RankedQueries, average: str, at: int, name: str
) -> tuple[FloatArray, FloatArray]:
    """Return what precision, recall or F1 at a threshold is a ratio of, both [Q] float64."""
    stats, ranks = ranked.stats, ranked.ranks
    near = stats.positive_distance <= stats.thresholds[at]
    tp = np.diff(np.append(0, np.cumsum(near))[stats.indptr])
    fp, positives = stats.negatives_within[:, at], stats.positives
    if average == "micro":
        above = 2 * tp if name == "F1" else tp
        below = {"precision": tp + fp, "recall": positives, "F1": tp + fp + positives}[name]
        return above.astype(np.float64), below.astype(np.float64)
    values = np.full(stats.queries, math.nan)
    own = ranks.queries
    values[own] = FIGURES[name](tp[own], fp[own], positives[own])
    defined = ~np.isnan(values)
    return np.where(defined, values, 0.0), defined.astype(np.float64)


def figure_terms_at(
    ranked: RankedQueries, average: str, tau: float, *, name: str
) -> tuple[FloatArray, FloatArray]:
    """Return `figure_terms` at one of the thresholds that were counted, by its τ."""
    return figure_terms(ranked, average, _at(ranked, tau), name)


def false_match_terms(ranked: RankedQueries, tau: float) -> tuple[FloatArray, FloatArray]:
    """Return false matches and impostors by query, both [Q] float64."""
    stats = ranked.stats
    matched = stats.negatives_within[:, _at(ranked, tau)]
    return matched.astype(np.float64), stats.negatives.astype(np.float64)


def false_non_match_terms(ranked: RankedQueries, tau: float) -> tuple[FloatArray, FloatArray]:
    """Return false non-matches and genuine pairs by query, both [Q] float64."""
    stats = ranked.stats
    missed = stats.positive_distance > stats.thresholds[_at(ranked, tau)]
    by_query = np.diff(np.append(0, np.cumsum(missed))[stats.indptr])
    return by_query.astype(np.float64), stats.positives.astype(np.float64)


def _at(ranked: RankedQueries, tau: float) -> int:
    at = _index(ranked, tau)
    if at is None:
        raise ValueError(_not_counted(len(ranked.stats.thresholds)))
    return at


def f1_sums(
    ranked: RankedQueries, average: str, identities: Identities
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of both terms of F1 by identity, [I, T] float64 each."""
    shape = identities.count, len(ranked.stats.thresholds)
    above, below = np.zeros(shape), np.zeros(shape)
    for at in range(shape[1]):
        terms = figure_terms(ranked, average, at, "F1")
        above[:, at], below[:, at] = (identities.sums(one) for one in terms)
    return above, below


def resampled_greatest_f1(resamples: Resamples, average: str) -> FloatArray:
    """Return F1_max of each resample, [R] float64."""
    sums = resamples.ranked.once(f1_sums, average, resamples.identities)
    above, below = (resamples.drawn @ own for own in sums)
    f1 = np.divide(above, below, out=np.full(above.shape, math.nan), where=below > 0)
    greatest: FloatArray = f1.max(axis=1)
    return greatest


_FIELDS = ("indptr", "positive_distance", "thresholds", "negatives_within")
_AVERAGE = choice("micro", "macro")
_TAU = threshold(0.25, 0.5)


def _figure(name: str, formula: str, tail: Tail | Callable[..., Tail] = "monotone") -> Metric:
    return Metric(
        name=f"{name}/{{average}}@tau={{tau}}",
        part="verification",
        needs=_FIELDS,
        over=("Q+",),
        formula=f"{formula} at τ, over all pairs (micro), or its mean over Q+ (macro)",
        source="van Rijsbergen 1979; micro and macro: Manning et al. 2008, §13.6",
        compute=partial(figure_at, name=name),
        resampled=ratio_of(partial(figure_terms_at, name=name)),
        parameters={"average": _AVERAGE, "tau": _TAU},
        also=(f"{name}@tau={{tau}}",),
        tail=tail,
        deployed=True,
    )


PRECISION = _figure(  # what returns anything is another set of queries in each extreme
    "precision",
    "tp/(tp + fp), of what returns anything,",
    lambda average, _: "monotone" if average == "micro" else "withheld",
)
RECALL = _figure("recall", "tp/(tp + fn)")
F1 = _figure("F1", "2tp/(2tp + fp + fn)")

F1_MAX = Metric(
    name="F1_max/{average}",
    part="verification",
    needs=_FIELDS,
    over=("Q+",),
    formula="max over the thresholds (τ = 0, 0.01 .. 1) of F1 of all pairs (micro), or of its mean "
    "over Q+ (macro)",
    source="van Rijsbergen 1979",
    compute=greatest_f1,
    resampled=resampled_greatest_f1,
    parameters={"average": _AVERAGE},
    also=("F1-max", "max-F1"),
    tail="monotone",
    deployed=True,
)

FMR = Metric(
    name="FMR@tau={tau}",
    part="verification",
    needs=("indptr", "thresholds", "negatives_within", "valid"),
    over=("negatives",),
    formula="|{impostor : d <= τ}| / I",
    source="ISO/IEC 19795-1",
    compute=false_matches,
    resampled=ratio_of(false_match_terms),
    parameters={"tau": _TAU},
    also=("FAR@tau={tau}",),
    better="lower",
    tail="monotone",
    deployed=True,
)

FNMR = Metric(
    name="FNMR@tau={tau}",
    part="verification",
    needs=("indptr", "thresholds", "positive_distance"),
    over=("Q+",),
    formula="|{genuine : d > τ}| / P",
    source="ISO/IEC 19795-1",
    compute=false_non_matches,
    resampled=ratio_of(false_non_match_terms),
    parameters={"tau": _TAU},
    also=("FRR@tau={tau}",),
    better="lower",
    tail="monotone",
    deployed=True,
)
