"""Ranks of the positives under a tie rule that fixes them.

The rank of the j-th positive of a query is r_j = c_j + j, where c_j is the number of
negatives ahead of it: all closer ones, and of the equally far ones those that the tie rule
puts first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import numpy.typing as npt

from streameval.choices import AveragePrecision
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
    def hit_terms(self, ranks: int) -> FloatArray:
        """Return terms whose sums are those of `first_within` at 1 .. ranks, [ranks, n] float64."""

    @abstractmethod
    def precision(self, rule: AveragePrecision, cutoff: IntArray | None = None) -> FloatArray:
        """Return the term of AP that each positive adds, or its expectation, [P] float64.

        Parameters
        ----------
        rule : {"step", "trapezoid", "threshold"}
        cutoff : [N] int64, optional
            Ranks beyond which a positive adds nothing.
        """

    @abstractmethod
    def precision_per_hit(self, rule: AveragePrecision, cutoff: IntArray) -> FloatArray:
        """Return the mean term of the positives within the cutoff, 0 where none is, [N] float64."""

    @abstractmethod
    def hits(self, cutoff: IntArray) -> FloatArray:
        """Return [r_j <= cutoff] of each positive, or its probability, [P] float64."""

    @abstractmethod
    def gains(self, cutoff: IntArray) -> FloatArray:
        """Return 1/log2(r_j + 1) within the cutoff, else 0, or its expectation, [P] float64."""

    @abstractmethod
    def shots(self, rank: int) -> FloatArray:
        """Return [c_j + 1 <= rank] of each positive, or its probability, [P] float64."""

    @abstractmethod
    def inverse_first_rank(self) -> FloatArray:
        """Return 1 / r_1, or its expectation, [N] float64."""

    @abstractmethod
    def inverse_penalty(self) -> FloatArray:
        """Return INP = G / r_G, or its expectation, [N] float64."""

    def counts(self, chances: FloatArray) -> FloatArray:
        """Return the sums of each query's 0s and 1s, or of chances between, [N] float64."""
        sums: FloatArray = np.add.reduceat(chances, self.start)
        return sums

    def totals(self, terms: FloatArray) -> FloatArray:
        """Return the sums of each query's terms 1 .. G, added in that order, [N] float64."""
        totals: FloatArray = self.running_totals(terms)[self.start + self.count - 1]
        return totals

    def running_totals(self, terms: FloatArray) -> FloatArray:
        """Return the sums of each query's terms 1 .. j, added in that order, [P] float64."""
        sums = np.empty_like(terms)
        ends = self.start + self.count
        for start, end in zip(self.start.tolist(), ends.tolist(), strict=True):
            np.cumsum(terms[start:end], out=sums[start:end])
        return sums

    def of_positives(self, values: IntArray) -> IntArray:
        """Spread [N] over the positives of each query, [P]."""
        return np.repeat(values, self.count)


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
        self._stats = stats

    def first_rank(self) -> FloatArray:
        """Return r_1, [N] float64."""
        return self.rank[self.start].astype(np.float64)

    def first_within(self, rank: int) -> FloatArray:
        """Return [r_1 <= rank], [N] float64."""
        return (self.rank[self.start] <= rank).astype(np.float64)

    def hit_terms(self, ranks: int) -> FloatArray:
        """Return the number of queries with r_1 <= 1 .. ranks, [ranks, 1] float64."""
        found_at = np.bincount(np.minimum(self.rank[self.start], ranks + 1), minlength=ranks + 1)
        return np.cumsum(found_at[1 : ranks + 1]).astype(np.float64)[:, None]

    def precision(self, rule: AveragePrecision, cutoff: IntArray | None = None) -> FloatArray:
        """Return the AP terms, [P] float64.

        step: j / r_j. trapezoid (the MATLAB code of Market-1501, after Oxford Buildings):
        ½[(j − 1)/(r_j − 1) + j/r_j], the first of the two 1 where r_j = 1. threshold
        (scikit-learn): the positives as near as it or nearer, by all items that are.
        """
        after = self.order / self.rank
        terms = after
        if rule == "threshold":
            terms = self._precision_at_own_distance()
        elif rule == "trapezoid":
            before = np.where(self.rank == 1, 1.0, (self.order - 1) / np.maximum(self.rank - 1, 1))
            terms = (before + after) / 2
        return terms if cutoff is None else np.where(self._within(cutoff), terms, 0.0)

    def precision_per_hit(self, rule: AveragePrecision, cutoff: IntArray) -> FloatArray:
        """Return the sum of the terms within the cutoff by their number, [N] float64."""
        hits = self.counts(self.hits(cutoff))
        per_hit: FloatArray = self.totals(self.precision(rule, cutoff)) / np.maximum(hits, 1)
        return per_hit

    def hits(self, cutoff: IntArray) -> FloatArray:
        """Return [r_j <= cutoff], [P] float64."""
        return self._within(cutoff).astype(np.float64)

    def gains(self, cutoff: IntArray) -> FloatArray:
        """Return 1/log2(r_j + 1) within the cutoff, [P] float64."""
        return np.where(self._within(cutoff), 1 / np.log2(self.rank + 1), 0.0)

    def shots(self, rank: int) -> FloatArray:
        """Return [c_j + 1 <= rank], [P] float64."""
        return (self.rank - self.order + 1 <= rank).astype(np.float64)

    def inverse_first_rank(self) -> FloatArray:
        """Return 1 / r_1, [N] float64."""
        inverse: FloatArray = 1 / self.rank[self.start]
        return inverse

    def _precision_at_own_distance(self) -> FloatArray:
        first, size = tie_groups(self._stats.positive_distance, self.start)
        through = np.repeat(self.order[first] + size - 1, size)
        precision: FloatArray = through / (self._stats.closer + self._stats.tied + through)
        return precision

    def _within(self, cutoff: IntArray) -> npt.NDArray[np.bool_]:
        within: npt.NDArray[np.bool_] = self.rank <= self.of_positives(cutoff)
        return within

    def inverse_penalty(self) -> FloatArray:
        """Return G / r_G, [N] float64."""
        inverse: FloatArray = self.count / self.rank[self.start + self.count - 1]
        return inverse


def tie_groups(distance: FloatArray, start: IntArray) -> tuple[IntArray, IntArray]:
    """Return where the groups of equally far positives begin, and how many are in each, [g].

    Parameters
    ----------
    distance : [P] float64
        Of the positives, ascending within a query.
    start : [N] int64
        Where the positives of each query begin.
    """
    begins = np.ones(len(distance), dtype=bool)
    begins[1:] = distance[1:] != distance[:-1]
    begins[start] = True
    first = np.flatnonzero(begins)
    return first, np.diff(np.append(first, len(distance)))
