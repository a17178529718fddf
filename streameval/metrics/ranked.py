"""RankedQueries: a block of queries read under the options, with what several metrics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from streameval.metrics.expected import ExpectedRanks
from streameval.metrics.options import MetricOptions
from streameval.metrics.ranks import FixedRanks, Ranks
from streameval.statistics import FloatArray, IntArray, RankStatistics

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Shared:
    """What is read off something for several metrics, and computed once."""

    _known: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(self, *arguments)``; computed once, for all metrics that share it."""
        key = (function, *arguments)
        if key not in self._known:
            self._known[key] = function(self, *arguments)
        known: T = self._known[key]
        return known


@dataclass(frozen=True, eq=False)
class RankedQueries(Shared):
    """A block of queries, or all of them, as metrics read it.

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

    @property
    def gallery(self) -> int:
        """Number of gallery items."""
        return int(np.max(self.stats.valid + self.stats.ignored, initial=0))

    @cached_property
    def negative_queries(self) -> IntArray:
        """[M] int64: which queries are in Q−."""
        return np.flatnonzero(self.stats.identity_absent).astype(np.int64)

    @cached_property
    def precision_sums(self) -> FloatArray:
        """[P] float64: AP terms of each query's positives 1 .. j, added in that order."""
        return self.ranks.running_totals(self.ranks.precision(self.options.ap))

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
