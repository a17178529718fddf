"""One prediction a query, its nearest item, and all of them ranked by distance: GAP.

The nearest item of a query of Q+ is a positive or a negative, that of Q− a negative. Ties are of
two kinds: of a positive and a negative of one query, and of the predictions of several queries.
The tie rule decides both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from streameval.choices import TieRule
from streameval.metrics.blocks import RankedQueries, Totals
from streameval.metrics.confidence import Resamples, divided
from streameval.metrics.expected import harmonic_difference
from streameval.metrics.metric import RANK_FIELDS, Bounds, Metric, Value
from streameval.typing import FloatArray, IntArray

Steps = Callable[[IntArray, IntArray], FloatArray]
"""Returns 1/(low+1) + .. + 1/high of two arrays of one shape."""


def predictions(ranked: RankedQueries) -> FloatArray:
    """Return the distance of each query's nearest item, [r_1 = 1] or its chance, and more, [Q, 3].

    The third is the distance of its nearest negative. Distances are +inf of a query without a
    prediction: excluded, or without any item.
    """
    stats, ranks = ranked.stats, ranked.ranks
    negative = np.where(stats.excluded, np.inf, stats.nearest_negative)
    distance, correct = negative.copy(), np.zeros(stats.queries)
    correct[ranks.queries] = ranks.first_within(1)
    some = correct[ranks.queries] > 0
    distance[ranks.queries[some]] = stats.positive_distance[ranks.start[some]]
    return np.column_stack([distance, correct, negative])


def ranked_predictions(predicted: FloatArray, ties: TieRule) -> tuple[IntArray, IntArray]:
    """Return the order of predictions [n], and where groups in any order begin in it, [g].

    In a tie of queries those of wrong predictions are first (pessimistic), those of correct ones
    (optimistic), or those of lower index (stable).
    """
    distance, correct = predicted[:, 0], predicted[:, 1]
    second = {"pessimistic": correct, "optimistic": -correct}.get(ties, np.arange(len(distance)))
    order = np.lexsort((second, distance))
    order = order[distance[order] < np.inf]
    begins = np.ones(len(order), np.bool_)
    if ties == "expected":
        begins[1:] = np.diff(distance[order]) > 0
    return order, np.flatnonzero(begins)


def summed_precisions(
    weights: FloatArray, correct: FloatArray, start: IntArray, steps: Steps
) -> FloatArray:
    """Return what the correct predictions of each group add: their precisions, [r, g] float64.

    Of m predictions in any order behind R others, of which S are correct, the one at place k is
    correct with chance a = Σπ/m, and so are two of them with b = ((Σπ)² − Σπ²)/(m(m − 1)). They
    add Σ_k (a(S + 1) + b(k − 1))/(R + k) in expectation.

    Parameters
    ----------
    weights : [r, n] float64
        How often each prediction is there, in ranked order; those of one are consecutive.
    correct : [n] float64
        π: 0, 1 or the chance.
    start : [g] int64
        Where the groups begin.
    steps : callable
    """
    shares = np.ones(len(correct)), correct, correct**2
    number, found, squared = (np.add.reduceat(weights * one, start, axis=1) for one in shares)
    before, correct_before = (np.cumsum(one, axis=1) - one for one in (number, found))
    low = before.astype(np.int64)
    inverse = steps(low, low + number.astype(np.int64))
    one = (correct_before + 1) * found
    two = (found**2 - squared) / np.maximum(number * (number - 1), 1)
    many = one / np.maximum(number, 1) * inverse + two * (number - (before + 1) * inverse)
    added: FloatArray = np.where(number == 1, one / (before + 1), many)  # rounded once
    return added


def global_average_precision(totals: Totals) -> Value:
    """Return GAP of all queries."""
    return Value(_average(totals.column(predictions), totals))


def _average(predicted: FloatArray, totals: Totals) -> float:
    order, start = ranked_predictions(predicted, totals.options.ties)
    queries = totals.sizes["Q+"]
    if not queries or not len(order):
        return 0.0 if queries else math.nan
    terms = summed_precisions(np.ones((1, len(order))), predicted[order, 1], start, _exact_steps)
    return math.fsum(terms[0].tolist()) / queries


def predictions_between(worst: Totals, best: Totals) -> Bounds:
    """Return GAP of the worst and of the best predictions that lists of neighbours allow.

    GAP never improves if a correct prediction becomes wrong, moves away, or a wrong one comes
    closer. A wrong one is the nearest negative: as near as it can be at worst, as far at best.
    """
    low, high = (one.column(predictions) for one in (worst, best))
    ends = []
    for own, furthest in ((low, np.minimum), (high, np.maximum)):
        wrong = furthest(low[:, 2], high[:, 2])
        distance = np.where(own[:, 1] > 0, own[:, 0], wrong)
        ends.append(_average(np.column_stack([distance, own[:, 1]]), worst))
    return ends[0], ends[1]


def resampled_average(resamples: Resamples) -> FloatArray:
    """Return GAP of each resample, [R] float64."""
    totals = resamples.totals
    predicted = totals.column(predictions)
    order, start = ranked_predictions(predicted, totals.options.ties)
    sums = np.zeros(len(resamples.drawn))
    if len(order):
        for block, (weights,) in resamples.weights(order):
            terms = summed_precisions(weights, predicted[order, 1], start, _tabled_steps)
            sums[block] = terms.sum(axis=1)
    return divided(sums, resamples.numbers["Q+"])


def _exact_steps(low: IntArray, high: IntArray) -> FloatArray:
    return harmonic_difference(low.ravel(), high.ravel()).reshape(low.shape)


def _tabled_steps(low: IntArray, high: IntArray) -> FloatArray:
    sums = np.append(0.0, np.cumsum(1 / np.arange(1, high.max() + 1)))
    steps: FloatArray = sums[high] - sums[low]
    return steps


METRICS = (
    Metric(
        "GAP",
        "1/N Σ P(n) over the correct of all predictions n = 1, 2, .. in order of distance; P(n): "
        "share of correct ones among the first n; a query predicts its nearest item, and is "
        "correct if that is a positive (Q−: never)",
        "Perronnin et al. 2009; Google Landmark Recognition (GlobalAveragePrecision of delf)",
        keeps=(predictions,),
        finish=global_average_precision,
        resampled=resampled_average,
        part="open-set",
        needs=(*RANK_FIELDS, "nearest_negative", "same_identity"),
        also=("micro-AP", "muAP", "global-average-precision"),
        pooled=True,
        tail="own",
        between=predictions_between,
        deployed=True,
    ),
)
