"""The reference for metrics of ranked lists: sorted lists, read aloud, with a full sort."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
from oracle import Problem, average, orders

Array = npt.NDArray[Any]
Reading = Callable[[Array, Array], float]


def values_over_lists(problem: dict[str, Any], ties: str, read: Reading) -> list[float]:
    """Return what `read` makes of the ranked list of each query of Q+; see `mean_over_lists`."""
    whole = Problem(**problem)
    values = []
    for i in range(len(whole.distances)):
        ignored, same = whole.row(i)
        distance, positive = whole.distances[i][~ignored], same[~ignored]
        if positive.any():
            readings = [
                read(positive[order], distance[order]) for order in orders(distance, positive, ties)
            ]
            values.append(math.fsum(readings) / len(readings))
    return values


def median_rank(problem: dict[str, Any], ties: str) -> float:
    """Return the middle of the sorted first ranks, or half the sum of the middle two."""
    ranks = sorted(values_over_lists(problem, ties, lambda match, _: int(np.argmax(match)) + 1))
    middle = [ranks[(len(ranks) - 1) // 2], ranks[len(ranks) // 2]] if ranks else [math.nan]
    return sum(middle) / len(middle)


def mean_over_lists(problem: dict[str, Any], ties: str, read: Reading) -> float:
    """Return the mean over Q+ of what `read` makes of a ranked list.

    `read` takes whether each item of the list is a positive, and the distances, both in ranked
    order. Under ``expected`` it is averaged over all orders first.
    """
    values = [np.array([value]) for value in values_over_lists(problem, ties, read)]
    return float(average(values, 1)[0])


def precision_terms(match: Array, distance: Array, ap: str) -> Array:
    """Return, at each place of the list, the precision that a positive there adds to AP."""
    terms = []
    for place in range(len(match)):
        hits, rank = int(match[: place + 1].sum()), place + 1
        if ap == "threshold":
            within = distance <= distance[place]
            terms.append(int(match[within].sum()) / int(within.sum()))
        elif ap == "trapezoid":
            before = 1.0 if rank == 1 else (hits - 1) / (rank - 1)
            terms.append((before + hits / rank) / 2)
        else:
            terms.append(hits / rank)
    return np.array(terms)


def added(values: Array) -> float:
    """Return the sum in the order of the list, as AP is added up."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def average_precision(k: int | str, denominator: str, ap: str) -> Reading:
    """Return AP of the first k (``G``: as many as there are positives)."""

    def read(match: Array, distance: Array) -> float:
        total = int(match.sum())
        cut = total if k == "G" else int(k)
        terms = precision_terms(match, distance, ap)[:cut][match[:cut]]
        by = {"hits": max(len(terms), 1), "total": total, "min": min(cut, total)}
        return added(terms) / by[denominator]

    return read


def hits_at(k: int | str, denominator: str) -> Reading:
    """Return the positives among the first k, by k, G or min(k, G)."""

    def read(match: Array, distance: Array) -> float:
        total = int(match.sum())
        cut = total if k == "G" else int(k)
        by = {"k": cut, "total": total, "min": min(cut, total)}
        return int(match[:cut].sum()) / by[denominator]

    return read


def precision_to_last(k: int) -> Reading:
    """Return the precision of the first k; the list ends at the last positive, if that is less."""

    def read(match: Array, distance: Array) -> float:
        cut = min(k, int(np.flatnonzero(match)[-1]) + 1)
        return int(match[:cut].sum()) / cut

    return read


def recall_at_percent(percent: Fraction) -> Reading:
    """Return the share of positives among the first p % of the list, rounded up."""

    def read(match: Array, distance: Array) -> float:
        cut = math.ceil(percent * len(match) / 100)
        return int(match[:cut].sum()) / int(match.sum())

    return read


def reciprocal_rank(match: Array, distance: Array) -> float:
    return 1 / (int(np.argmax(match)) + 1)


def discounted_gain(k: int) -> Reading:
    def read(match: Array, distance: Array) -> float:
        discounts = 1 / np.log2(np.arange(2, len(match) + 2))
        ideal = np.sort(match)[::-1]
        return added(discounts[:k][match[:k]]) / added(discounts[:k][ideal[:k]])

    return read


def interpolated_precision(recall: float) -> Reading:
    def read(match: Array, distance: Array) -> float:
        found = np.cumsum(match)
        precision = found / np.arange(1, len(match) + 1)
        return float(precision[match & (found / found[-1] >= recall)].max())

    return read


def all_shots(x: int) -> Reading:
    def read(match: Array, distance: Array) -> float:
        misses_ahead = np.cumsum(~match)[match]
        return int((misses_ahead + 1 <= x).sum()) / int(match.sum())

    return read


def open_set_lists(problem: dict[str, Any]) -> tuple[list[float], list[float], list[float]]:
    """Return d_1 and the nearest of all items for each query of Q+, and the nearest for Q−."""
    whole = Problem(**problem)
    first: list[float] = []
    nearest: list[float] = []
    strangers: list[float] = []
    for i in range(len(whole.distances)):
        ignored, same = whole.row(i)
        distance, positive = whole.distances[i][~ignored], same[~ignored]
        if positive.any():
            first.append(float(distance[positive].min()))
            nearest.append(float(distance.min()))
        elif not same.any():
            strangers.append(float(distance.min(initial=np.inf)))
    return first, nearest, strangers


def global_average_precision(problem: dict[str, Any], ties: str) -> float:
    """Return GAP; under ``expected`` its mean over each query's nearest item and all orders."""
    whole = Problem(**problem)
    known, predicted = 0, []
    for i in range(len(whole.distances)):
        ignored, same = whole.row(i)
        positive, distance = (same & ~ignored)[~ignored], whole.distances[i][~ignored]
        known += int(positive.any())
        if len(distance) and (positive.any() or not same.any()):
            tied = positive[distance == distance.min()]  # in gallery order
            correct = {"pessimistic": tied[-1:] * tied.all(), "optimistic": [tied.any()]}
            predicted.append((distance.min(), correct.get(ties, tied[:1]), tied))
    if not known:
        return math.nan
    if ties != "expected":
        second = {"pessimistic": 1, "optimistic": -1}.get(ties, 0)
        predicted.sort(key=lambda one: (one[0], second * int(one[1][0])))
        return precision_of_correct([bool(one[1][0]) for one in predicted]) / known
    values = []
    for order in permutations(predicted):
        if all(one[0] <= other[0] for one, other in pairwise(order)):
            values += map(precision_of_correct, _weighed(order))
    return math.fsum(values) / len(values) / known


def _weighed(order: Any) -> list[list[bool]]:
    """Return each outcome of the queries' nearest items as often as it is likely."""
    return [list(outcome) for outcome in product(*(tied.tolist() for _, _, tied in order))]


def precision_of_correct(outcomes: list[bool]) -> float:
    """Return the sum of the precisions at the correct ones of a ranking."""
    return math.fsum(sum(outcomes[:n]) / n for n, one in enumerate(outcomes, start=1) if one)
