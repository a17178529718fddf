"""Ranks of the positives under a tie rule that fixes them.

The rank of the j-th positive of a query is r_j = c_j + j, where c_j is the number of
negatives ahead of it: all closer ones, and of the equally far ones those that the tie rule
puts first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from streameval.metrics.options import AveragePrecision
from streameval.statistics import FloatArray, IntArray, RankStatistics


class Ranks(ABC):
    """Where the positives stand in the ranking, for each query of Q+ in their order.

    N is the number of queries in Q+, P the number of positives in all.

    Attributes
    ----------
    queries : [N] int64
        Which queries these are.
    start, count : [N] int64
        Where the positives of each begin in the [P] arrays; how many there are, G.
    order : [P] int64
        j of each positive: 1 .. G within its query.
    """

    def __init__(self, stats: RankStatistics) -> None:
        self.queries: IntArray = np.flatnonzero(stats.has_positive).astype(np.int64)
        self.start: IntArray = stats.indptr[self.queries]
        self.count: IntArray = stats.positives[self.queries]
        self.order: IntArray = np.arange(1, len(stats.closer) + 1) - np.repeat(
            self.start, self.count
        )

    @abstractmethod
    def first_rank(self) -> FloatArray:
        """Return r_1, or its expectation, [N] float64."""

    @abstractmethod
    def first_within(self, rank: int) -> FloatArray:
        """Return [r_1 <= rank] as 0 or 1, or its probability, [N] float64."""

    @abstractmethod
    def hits_within(self, ranks: int) -> FloatArray:
        """Return the exactly rounded sums of `first_within` at 1 .. ranks, [ranks] float64."""

    @abstractmethod
    def precision(self, rule: AveragePrecision) -> FloatArray:
        """Return the term of AP that each positive adds, or its expectation, [P] float64."""

    @abstractmethod
    def inverse_penalty(self) -> FloatArray:
        """Return INP = G / r_G, or its expectation, [N] float64."""


class FixedRanks(Ranks):
    """Ranks under a rule that decides every tie.

    Parameters
    ----------
    stats : RankStatistics
    ties : {"pessimistic", "optimistic", "stable"}
    """

    def __init__(
        self, stats: RankStatistics, ties: Literal["pessimistic", "optimistic", "stable"]
    ) -> None:
        super().__init__(stats)
        tied_ahead = {
            "pessimistic": stats.tied,
            "optimistic": np.zeros_like(stats.tied),
            "stable": stats.tied_before,
        }[ties]
        self.rank: IntArray = stats.closer + tied_ahead + self.order

    def first_rank(self) -> FloatArray:
        """Return r_1, [N] float64."""
        return self.rank[self.start].astype(np.float64)

    def first_within(self, rank: int) -> FloatArray:
        """Return [r_1 <= rank], [N] float64."""
        return (self.rank[self.start] <= rank).astype(np.float64)

    def hits_within(self, ranks: int) -> FloatArray:
        """Return the number of queries with r_1 <= 1 .. ranks, [ranks] float64."""
        found_at = np.bincount(np.minimum(self.rank[self.start], ranks + 1), minlength=ranks + 1)
        return np.cumsum(found_at[1 : ranks + 1]).astype(np.float64)

    def precision(self, rule: AveragePrecision) -> FloatArray:
        """Return the AP terms, [P] float64.

        step: j / r_j. trapezoid (the MATLAB code of Market-1501, after Oxford Buildings):
        ½[(j − 1)/(r_j − 1) + j/r_j], the first of the two 1 where r_j = 1.
        """
        after = self.order / self.rank
        if rule == "step":
            return after
        before = np.where(self.rank == 1, 1.0, (self.order - 1) / np.maximum(self.rank - 1, 1))
        return (before + after) / 2

    def inverse_penalty(self) -> FloatArray:
        """Return G / r_G, [N] float64."""
        inverse: FloatArray = self.count / self.rank[self.start + self.count - 1]
        return inverse
