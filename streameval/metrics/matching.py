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
from streameval.metrics.metric import Metric, Value
from streameval.metrics.parameters import choice, rate
from streameval.metrics.ranked import RankedQueries
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
    found = np.flatnonzero(curves["tau"] == tau)
    if not len(found):
        count = len(curves["tau"])
        return Value(math.nan, reason=f"only multiples of 1/{count - 1} of τ were counted")
    return Value(
        float(curves[f"{name}/{average}"][found[0]]),
        threshold=float(ranked.stats.thresholds[found[0]]),
        reason=NOTHING_RETURNED,
        curves=curves,
    )


def greatest_f1(ranked: RankedQueries, average: str) -> Value:
    """Return the greatest F1 over the thresholds; its threshold is the first with that."""
    curves = ranked.once(figure_curves, average)
    values = curves[f"F1/{average}"]
    best = int(np.argmax(values))
    return Value(float(values[best]), threshold=float(ranked.stats.thresholds[best]), curves=curves)


_FIELDS = ("indptr", "positive_distance", "thresholds", "negatives_within")
_AVERAGE = choice("micro", "macro")


def _figure(name: str, formula: str) -> Metric:
    return Metric(
        name=f"{name}/{{average}}@tau={{tau}}",
        part="verification",
        needs=_FIELDS,
        over=("Q+",),
        formula=f"{formula} at τ, over all pairs (micro), or its mean over Q+ (macro)",
        source="van Rijsbergen 1979; micro and macro: Manning et al. 2008, §13.6",
        compute=partial(figure_at, name=name),
        parameters={"average": _AVERAGE, "tau": rate(0.25, 0.5)},
    )


PRECISION = _figure("precision", "tp/(tp + fp), of what returns anything,")
RECALL = _figure("recall", "tp/(tp + fn)")
F1 = _figure("F1", "2tp/(2tp + fp + fn)")

F1_MAX = Metric(
    name="F1_max/{average}",
    part="verification",
    needs=_FIELDS,
    over=("Q+",),
    formula="max over the thresholds of F1",
    source="van Rijsbergen 1979",
    compute=greatest_f1,
    parameters={"average": _AVERAGE},
)
