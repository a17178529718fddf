"""Verification on the T thresholds of the statistics: exact, without a histogram.

tp and fp are the genuine and impostor pairs returned at τ. ``micro`` counts the pairs of all
queries together; ``macro`` is the mean over the queries of Q+ of what each has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from streameval.metrics.blocks import RankedQueries, Totals, normalised_thresholds
from streameval.metrics.confidence import Resamples, divided
from streameval.metrics.metric import Measure, Metric, Value
from streameval.metrics.parameters import choice, threshold
from streameval.stretches import sums_of
from streameval.typing import FloatArray

NOTHING_RETURNED = "nothing is returned at this τ"

FIGURES = ("precision", "recall", "F1")


def figure_terms(ranked: RankedQueries, average: str) -> Iterator[FloatArray]:
    """Give what precision, recall and F1 are ratios of, at one threshold after the other.

    [6, Q] float64: of each figure what is above and what is below. ``micro``: numbers of pairs;
    ``macro``: the figure of a query of Q+ where it is defined, else 0, and whether it is.
    """
    stats, queries = ranked.stats, ranked.ranks.queries
    positives, tp = stats.positives, np.zeros(stats.queries)
    for t, returned in enumerate(ranked.positives_returned()):
        tp[queries] = returned
        fp = stats.negatives_within[:, t]
        ratios = np.array(
            [tp, tp + fp, tp, positives, 2 * tp, tp + fp + positives], dtype=np.float64
        )
        if average == "macro":
            above, below = ratios[::2], ratios[1::2]
            defined = (below > 0) & stats.has_positive
            above /= np.maximum(below, 1)
            above *= defined
            below[:] = defined
        yield ratios


def figure_curves(queries: Totals | Resamples, average: str) -> dict[str, FloatArray]:
    """Return tau, [T], and the curves ``precision/micro``, ``recall/micro``, ``F1/micro``.

    Each is [T] float64, and of resamples [R, T].
    """
    sums = queries.sums(figure_terms, average)
    sums = sums.reshape(*sums.shape[:-1], -1, len(FIGURES), 2)
    above, below = sums[..., 0], sums[..., 1]
    below[..., 2] *= below[..., 1] > 0  # without positives F1 is undefined, whatever is returned
    curves = np.moveaxis(divided(above, below), -1, 0)
    named = {f"{name}/{average}": curve for name, curve in zip(FIGURES, curves, strict=True)}
    return {"tau": normalised_thresholds(curves.shape[-1]), **named}


def figure_at(totals: Totals, measure: Measure) -> Value:
    """Return precision, recall or F1 at one of the thresholds, and the curves."""
    average, tau = measure.values
    at = _index(totals.thresholds, tau)
    if at is None:
        return Value(math.nan, reason=_not_counted(totals))
    curves = totals.once(figure_curves, average)
    value = float(curves[measure.name.partition("@")[0]][at])
    return Value(value, float(totals.thresholds[at]), reason=NOTHING_RETURNED, curves=curves)


def precision_between(
    worst: Totals, best: Totals, average: str, tau: float
) -> tuple[float, float] | None:
    """Return the precision of the two extremes; None where there may be none in between.

    ``macro``: the queries with returned items differ between the extremes. ``micro``: the least
    number of returned items is that of the positives at worst and of the negatives at best.
    """
    at = _index(worst.thresholds, tau)
    if at is None or average == "macro":
        return None
    (least, at_worst), (most, at_best) = (
        one.sums(figure_terms, average).reshape(-1, 2 * len(FIGURES))[at, :2].tolist()
        for one in (worst, best)
    )
    few, many = at_best - most, at_worst - least
    if not least + few:
        return None
    return least / (least + many), most / (most + few)


def greatest_f1(totals: Totals, average: str) -> Value:
    """Return the greatest F1 over the thresholds; its threshold is the first with that."""
    curves = totals.once(figure_curves, average)
    values = curves[f"F1/{average}"]
    best = int(np.argmax(values))
    return Value(float(values[best]), float(totals.thresholds[best]), curves=curves)


def false_match_terms(ranked: RankedQueries, tau: float) -> list[FloatArray]:
    """Return false matches and impostors by query, [2, Q] float64."""
    stats = ranked.stats
    matched = stats.negatives_within[:, _index(stats.thresholds, tau) or 0]
    return [np.array([matched, stats.negatives], dtype=np.float64)]


def false_non_match_terms(ranked: RankedQueries, tau: float) -> list[FloatArray]:
    """Return false non-matches and genuine pairs by query, [2, Q] float64."""
    stats = ranked.stats
    missed = stats.positive_distance > stats.thresholds[_index(stats.thresholds, tau) or 0]
    by_query = sums_of(missed, stats.indptr)
    return [np.array([by_query, stats.positives], dtype=np.float64)]


def ratio_at(totals: Totals, measure: Measure) -> Value:
    """Return one sum of the terms by the other, at one of the thresholds."""
    [tau], [terms] = measure.values, measure.metric.adds
    at = _index(totals.thresholds, tau)
    above, below = totals.sums(terms, tau)
    if at is None or not below:
        return Value(math.nan, reason=_not_counted(totals))
    return Value(float(above / below), float(totals.thresholds[at]))


def _index(thresholds: FloatArray, tau: float) -> int | None:
    """Return which of the thresholds τ is."""
    found = np.flatnonzero(normalised_thresholds(len(thresholds)) == tau)
    return int(found[0]) if len(found) else None


def _not_counted(totals: Totals) -> str:
    return f"only multiples of 1/{len(totals.thresholds) - 1} of τ were counted"


def resampled_figure(resamples: Resamples, measure: Measure) -> FloatArray:
    """Return precision, recall or F1 at one of the thresholds in each resample, [R] float64."""
    average, tau = measure.values
    curves = resamples.once(figure_curves, average)
    at = _index(resamples.totals.thresholds, tau)
    return curves[measure.name.partition("@")[0]][:, at]


def resampled_greatest_f1(resamples: Resamples, average: str) -> FloatArray:
    """Return F1_max of each resample, [R] float64."""
    greatest: FloatArray = resamples.once(figure_curves, average)[f"F1/{average}"].max(axis=1)
    return greatest


def resampled_ratio(resamples: Resamples, measure: Measure) -> FloatArray:
    """Return one sum of the terms by the other in each resample, [R] float64."""
    above, below = resamples.sums(*measure.metric.adds, *measure.values).T
    return divided(above, below)


_matched = partial(
    Metric,
    part="verification",
    needs=("indptr", "positive_distance", "thresholds", "negatives_within"),
    tail="monotone",
    deployed=True,
    parameters={"average": choice("micro", "macro"), "tau": threshold((0.25, 0.5))},
)
_at_tau = partial(
    _matched,
    source="van Rijsbergen 1979; micro and macro: Manning et al. 2008, §13.6",
    adds=(figure_terms,),
    finish=figure_at,
    resampled=resampled_figure,
)
_mismatched = partial(
    _matched,
    source="ISO/IEC 19795-1",
    finish=ratio_at,
    resampled=resampled_ratio,
    better="lower",
)
_MEANS = "at τ, over all pairs (micro), or its mean over Q+ (macro)"

METRICS = (
    _at_tau(
        "precision/{average}@tau={tau}",
        "tp/(tp + fp) at τ, over all pairs (micro), or its mean over the queries of Q+ with "
        "returned items (macro)",
        also=("precision@tau={tau}",),
        tail="own",
        between=precision_between,
    ),
    _at_tau(
        "recall/{average}@tau={tau}",
        f"tp/(tp + fn) {_MEANS}",
        also=("recall@tau={tau}",),
    ),
    _at_tau(
        "F1/{average}@tau={tau}",
        f"2tp/(2tp + fp + fn) {_MEANS}",
        also=("F1@tau={tau}",),
    ),
    _matched(
        "F1_max/{average}",
        "max over the thresholds (τ = 0, 0.01 .. 1) of F1 of all pairs (micro), or of its "
        "mean over Q+ (macro)",
        "van Rijsbergen 1979",
        adds=(figure_terms,),
        finish=greatest_f1,
        resampled=resampled_greatest_f1,
        also=("F1-max", "max-F1"),
    ),
    _mismatched(
        "FMR@tau={tau}",
        "|{impostor : d <= τ}| / I",
        needs=("indptr", "thresholds", "negatives_within", "valid"),
        over=("negatives",),
        adds=(false_match_terms,),
        also=("FAR@tau={tau}",),
    ),
    _mismatched(
        "FNMR@tau={tau}",
        "|{genuine : d > τ}| / P",
        needs=("indptr", "thresholds", "positive_distance"),
        adds=(false_non_match_terms,),
        also=("FRR@tau={tau}",),
    ),
)
