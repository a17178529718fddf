"""RankedQueries: the statistics read under the options, with what several metrics share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streameval.metrics.expected import ExpectedRanks
from streameval.metrics.options import MetricOptions
from streameval.metrics.ranks import FixedRanks, Ranks
from streameval.statistics import FloatArray, IntArray, RankStatistics


@dataclass(frozen=True)
class RankedQueries:
    """What a metric is computed from.

    Attributes
    ----------
    stats : RankStatistics
    options : MetricOptions
    """

    stats: RankStatistics
    options: MetricOptions

    @cached_property
    def ranks(self) -> Ranks:
        """The ranks of the positives of Q+ under the tie rule."""
        if self.options.ties == "expected":
            return ExpectedRanks(self.stats)
        return FixedRanks(self.stats, self.options.ties)

    @cached_property
    def negative_queries(self) -> IntArray:
        """[M] int64: which queries are in Q−."""
        return np.flatnonzero(self.stats.identity_absent).astype(np.int64)

    @cached_property
    def precision_sums(self) -> FloatArray:
        """[P] float64: AP terms of each query's positives 1 .. j, added in that order."""
        terms = self.ranks.precision(self.options.ap)
        sums = np.empty_like(terms)
        ends = self.ranks.start + self.ranks.count
        for start, end in zip(self.ranks.start.tolist(), ends.tolist(), strict=True):
            np.cumsum(terms[start:end], out=sums[start:end])
        return sums

    @cached_property
    def average_precision(self) -> FloatArray:
        """[N] float64: AP of the queries of Q+."""
        last = self.ranks.start + self.ranks.count - 1
        average: FloatArray = self.precision_sums[last] / self.ranks.count
        return average

    @cached_property
    def inverse_penalty(self) -> FloatArray:
        """[N] float64: INP of the queries of Q+."""
        return self.ranks.inverse_penalty()

    @cached_property
    def nearest_positive(self) -> FloatArray:
        """[N] float64: distance d_1 of the nearest positive of the queries of Q+."""
        return self.stats.positive_distance[self.ranks.start]

    def of_all_queries(self, values: FloatArray) -> FloatArray:
        """Spread [N] float64 of Q+ over all queries, [Q] float64; NaN elsewhere."""
        spread = np.full(self.stats.queries, np.nan)
        spread[self.ranks.queries] = values
        return spread
