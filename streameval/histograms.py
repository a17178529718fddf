"""Histograms of impostors: numbers of negative pairs by distance, between ascending edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streameval.statistics import FloatArray, IntArray, RankStatistics


def merge_edges(statistics: RankStatistics, other: RankStatistics) -> RankStatistics:
    """Return statistics whose histogram has the edges of another's, too, of the same pairs.

    Raises
    ------
    ValueError
        If one of them has no histogram.
    """
    if statistics.histogram_edges is None or other.histogram_edges is None:
        raise ValueError("the statistics hold no impostor_histogram")
    both = np.append(statistics.histogram_edges, other.histogram_edges)
    edges, first = np.unique(both, return_index=True)
    merged: dict[str, Any] = {"histogram_edges": edges}
    for name in ("impostor_histogram", "group_histogram"):
        counts, more = getattr(statistics, name), getattr(other, name)
        if counts is not None and more is not None:
            within = [np.cumsum(each, axis=-1)[..., :-1] for each in (counts, more)]
            joined = np.concatenate(within, axis=-1)[..., first]
            merged[name] = histogram_of(joined, counts.sum(axis=-1))
    return replace(statistics, **merged)


def uniform_edges(low: float, high: float, bins: int) -> FloatArray:
    """Return the edges of B uniform bins between two distances, [B + 1] float64, ascending.

    Fewer where they are not B distances apart: each edge once.
    """
    edges = low + (high - low) * (np.arange(bins + 1) / bins)
    edges[-1] = high
    return np.unique(edges)


def histogram_of(within: IntArray, pairs: IntArray | int) -> IntArray:
    """Return the histogram of pairs of which so many are within each edge, [.., E + 1] int64.

    A distance d is in bin ``np.searchsorted(edges, d, side="left")``, so that the pairs within
    an edge, d <= edge, are the bins up to its own.

    Parameters
    ----------
    within : [.., E] int64
    pairs : [..] int64
        In all.
    """
    return np.diff(within, prepend=0, append=np.asarray(pairs)[..., None])
