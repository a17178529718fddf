"""The T thresholds of the statistics: their normalised values, and what is returned at each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streameval.metrics.ranked import RankedQueries
from streameval.statistics import FloatArray, IntArray


def normalised_thresholds(count: int) -> FloatArray:
    """Return τ_t = t/(T − 1), [T] float64."""
    return np.arange(count) / max(count - 1, 1)


def positives_returned(ranked: RankedQueries) -> Iterator[IntArray]:
    """Give tp, the positives of each query of Q+ within τ_t, [N] int64, for t = 0 .. T − 1.

    One threshold at a time: memory stays O(N).
    """
    stats, ranks = ranked.stats, ranked.ranks
    returned_from = np.searchsorted(stats.thresholds, stats.positive_distance, side="left")
    order = np.argsort(returned_from, kind="stable")
    query = ranks.of_positives(np.arange(len(ranks.queries)))[order]
    ends = np.searchsorted(returned_from[order], np.arange(len(stats.thresholds)), side="right")
    tp = np.zeros(len(ranks.queries), dtype=np.int64)
    begin = 0
    for end in ends.tolist():
        tp = tp + np.bincount(query[begin:end], minlength=len(tp))
        begin = end
        yield tp
