"""The reference for verification: all genuine and impostor distances, side by side, sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from oracle import Problem
from support.package import uniform_edges

from streameval import RankStatistics

Array = npt.NDArray[Any]


def pairs_of(problem: dict[str, Any]) -> tuple[Array, Array]:
    """Return the distances of all genuine and of all impostor pairs, each ascending."""
    whole = Problem(**problem)
    genuine: list[float] = []
    impostor: list[float] = []
    for i, distance in enumerate(whole.distances):
        ignored, same = whole.row(i)
        genuine.extend(distance[same & ~ignored])
        impostor.extend(distance[~same & ~ignored])
    return np.sort(np.array(genuine, float)), np.sort(np.array(impostor, float))


def with_histogram(
    stats: RankStatistics,
    problem: dict[str, Any],
    lo: float = 0.0,
    hi: float = 1.0,
    bins: int = 10,
) -> RankStatistics:
    """Return the statistics with the histogram of impostors, counted pair by pair."""
    edges = uniform_edges(lo, hi, bins)
    counts = impostor_histogram(pairs_of(problem)[1], edges)
    return replace(stats, impostor_histogram=counts, histogram_edges=edges)


def impostor_histogram(impostor: Array, edges: Array) -> Array:
    """Return the numbers of impostor distances in the bins, counted one by one."""
    counts = np.zeros(len(edges) + 1, np.int64)
    for distance in impostor:
        counts[sum(bool(edge < distance) for edge in edges)] += 1
    return counts


def operating_points(problem: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Return every threshold that changes anything, and FAR and TAR there; none is -inf."""
    genuine, impostor = pairs_of(problem)
    limits = np.concatenate([[-np.inf], np.unique(np.concatenate([genuine, impostor]))])
    far = np.array([np.mean(impostor <= limit) for limit in limits])
    tar = np.array([np.mean(genuine <= limit) for limit in limits])
    return limits, far, tar


def equal_error_rate(problem: dict[str, Any]) -> float:
    """Return where FAR = 1 − TAR on the straight lines between operating points."""
    _, far, tar = operating_points(problem)
    above = int(np.argmax(far >= 1 - tar))
    a, b = far[above - 1], far[above]
    m, n = 1 - tar[above - 1], 1 - tar[above]
    share = (m - a) / ((m - a) + (b - n))
    return float(a + share * (b - a))


def pair_auc(problem: dict[str, Any]) -> float:
    """Return the share of (genuine, impostor) with the genuine one closer, ties half."""
    genuine, impostor = pairs_of(problem)
    closer = (genuine[:, None] < impostor).sum()
    tied = (genuine[:, None] == impostor).sum()
    return float((2 * closer + tied) / (2 * len(genuine) * len(impostor)))


def best_f1(problem: dict[str, Any]) -> float:
    """Return the greatest F1 of all pairs accepted at one threshold."""
    genuine, impostor = pairs_of(problem)
    found = [(int(np.sum(genuine <= t)), int(np.sum(impostor <= t))) for t in genuine]
    return max(2 * tp / (tp + fp + len(genuine)) for tp, fp in found)


def recall_at_precision(problem: dict[str, Any], precision: float) -> float:
    """Return the greatest recall of all pairs accepted at one threshold with that precision."""
    genuine, impostor = pairs_of(problem)
    found = [(int(np.sum(genuine <= t)), int(np.sum(impostor <= t))) for t in genuine]
    return max((tp / len(genuine) for tp, fp in found if tp / (tp + fp) >= precision), default=0.0)
