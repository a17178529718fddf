"""Ranks of the positives under a tie rule that fixes them.

The rank of the j-th positive of a query is r_j = c_j + j, where c_j is the number of
negatives ahead of it: all closer ones, and of the equally far ones those that the tie rule
puts first.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from streameval.choices import AveragePrecision
from streameval.compilation import compiled
from streameval.statistics import RankStatistics
from streameval.typing import FloatArray, IntArray

Cutoff = int | IntArray
"""A rank for all queries, or one for each of Q+, [N] int64."""

NEVER = 1 << 40
"""Negatives ahead of a positive that is never found: beyond every cutoff. It adds nothing."""

Term = AveragePrecision | Literal["hit", "gain"]
"""What a positive adds to a sum over the positives of its query."""


class Ranks:
    """Where the positives stand in the ranking, for each query of Q+ in their order.

    N is the number of queries in Q+, P the number of positives in all. `ExpectedRanks` gives
    expectations in place of values, and probabilities in place of 0 and 1.

    Parameters
    ----------
    stats : RankStatistics
    ties : {"pessimistic", "optimistic", "stable"}

    Attributes
    ----------
    queries : [N] int64
        Which queries these are.
    start, last, count : [N] int64
        The first and the last positive of each in the [P] arrays; how many there are, G.
    order : [P] int64
        j of each positive: 1 .. G within its query.
    rank : [P] int64
        r_j.
    """

    def __init__(
        self, stats: RankStatistics, ties: Literal["pessimistic", "optimistic", "stable"]
    ) -> None:
        self.queries: IntArray = np.flatnonzero(stats.has_positive)
        self.start = stats.indptr[self.queries]
        self.count = stats.positives[self.queries]
        self.last: IntArray = self.start + self.count - 1
        tied_ahead = stats.tied_before if ties == "stable" else stats.tied
        if ties == "optimistic":
            tied_ahead = tied_ahead[:0]
        self.order: IntArray = np.empty_like(stats.closer)
        self.rank: IntArray = np.empty_like(stats.closer)
        greatest = _place(stats.closer, tied_ahead, self.start, self.last, self.order, self.rank)
        self._stats = stats
        self._furthest = NEVER if greatest > NEVER else None

    def first_rank(self) -> FloatArray:
        """Return r_1, [N] float64."""
        return self.rank[self.start].astype(np.float64)

    def first_within(self, rank: int) -> FloatArray:
        """Return [r_1 <= rank], [N] float64."""
        return (self.rank[self.start] <= rank).astype(np.float64)

    def hit_terms(self, ranks: int) -> FloatArray:
        """Return terms whose sums are those of `first_within` at 1 .. ranks, [ranks, n] float64."""
        return counts_within(self.rank[self.start], ranks)

    def terms(self, kind: Term, cutoff: Cutoff | None = None) -> FloatArray:
        """Return what each positive adds to a sum, [P] float64; nothing if it is beyond a cutoff.

        Of AP, step: j / r_j. trapezoid (the MATLAB code of Market-1501, after Oxford Buildings):
        ½[(j − 1)/(r_j − 1) + j/r_j], the first of the two 1 where r_j = 1. threshold
        (scikit-learn): the positives as near as it or nearer, by all items that are. Of a number
        of positives, hit: 1. Of nDCG, gain: 1/log2(r_j + 1).
        """
        cutoff = self._furthest if cutoff is None else cutoff
        within = None if cutoff is None else self.rank <= self.of_positives(cutoff)
        if kind == "hit":
            return np.ones(len(self.rank)) if within is None else within.astype(np.float64)
        if kind == "gain":
            terms = 1 / np.log2(self.rank + 1)
        elif kind == "threshold":
            first, size = tie_groups(self._stats.positive_distance, self.start)
            through = np.repeat(self.order[first] + size - 1, size)
            terms = through / (self._stats.closer + self._stats.tied + through)
        else:
            terms = self.order / self.rank
        if kind == "trapezoid":
            before = np.where(self.rank == 1, 1.0, (self.order - 1) / np.maximum(self.rank - 1, 1))
            terms = (before + terms) / 2
        return terms if within is None else np.where(within, terms, 0.0)

    def terms_per_hit(self, kind: Term, cutoff: Cutoff) -> FloatArray:
        """Return the mean term of the positives within the cutoff, 0 where none is, [N] float64."""
        return self.totals(self.terms(kind, cutoff)) / np.maximum(self.hit_counts(cutoff), 1)

    def shots(self, rank: int) -> FloatArray:
        """Return [c_j + 1 <= rank] of each positive, [P] float64."""
        return (self.rank - self.order + 1 <= rank).astype(np.float64)

    def inverse_rank(self, *, last: bool = False) -> FloatArray:
        """Return 1 / r_1; or INP = G / r_G, of the last positive; 0 if never found; [N] float64."""
        rank = self.rank[self.last if last else self.start]
        return np.where(rank <= NEVER, (self.count if last else 1) / rank, 0.0)

    def hit_counts(self, cutoff: Cutoff) -> FloatArray:
        """Return the number of positives within each query's cutoff, [N] float64."""
        counts, most = np.empty(len(self.start)), np.empty_like(self.start)
        most[:] = np.minimum(np.asarray(cutoff), np.iinfo(np.int64).max)  # it may be any number
        _count_within(self.rank, self.start, self.last, most, counts)
        return counts

    def precision_to_last(self, rank: int) -> FloatArray:
        """Return |{r_j <= k}| / k at k = min(rank, r_G), [N] float64."""
        return self.hit_counts(rank) / np.minimum(self.rank[self.last], rank)

    def totals(self, terms: FloatArray) -> FloatArray:
        """Return the sums of each query's terms 1 .. G, added in that order, [N] float64.

        The terms are overwritten.
        """
        return self.running_totals(terms)[self.last]

    def precision_sums(self, rule: AveragePrecision) -> FloatArray:
        """Return the sums of each query's terms of AP 1 .. j, added in that order, [P] float64."""
        if rule != "step" or self._furthest is not None:
            return self.running_totals(self.terms(rule))
        sums = np.empty(len(self.rank))
        _add_precisions(self.rank, self.start, self.last, sums)
        return sums

    def running_totals(self, terms: FloatArray) -> FloatArray:
        """Return the sums of each query's terms 1 .. j, added in that order, [P] float64.

        They are written over the terms.
        """
        _add_up(terms, self.start, self.last)
        return terms

    def of_positives(self, values: Cutoff) -> IntArray:
        """Spread one value, or [N], over the positives of each query, [P]."""
        return np.repeat(np.broadcast_to(values, self.count.shape), self.count)


@compiled
def _place(closer, tied_ahead, start, last, order, rank):  # type: ignore[no-untyped-def]
    """Write j and r_j of each positive, [P]; return the greatest rank.

    `start` and `last` [N] are of their queries; of `tied_ahead` [0], none is ahead.
    """
    greatest = 0
    for i in range(len(start)):
        for k in range(start[i], last[i] + 1):
            order[k] = k - start[i] + 1
            rank[k] = closer[k] + order[k]
            if len(tied_ahead):
                rank[k] += tied_ahead[k]
            greatest = max(greatest, rank[k])
    return greatest


@compiled
def _count_within(rank, start, last, most, counts):  # type: ignore[no-untyped-def]
    """Write how many positives of each query have at most a rank, [N]."""
    for i in range(len(start)):
        count = 0
        for k in range(start[i], last[i] + 1):
            count += rank[k] <= most[i]
        counts[i] = count


@compiled
def _add_precisions(rank, start, last, sums):  # type: ignore[no-untyped-def]
    """Write the sums of j / r_j of each query through each of its positives."""
    for i in range(len(start)):
        total = 0.0
        for k in range(start[i], last[i] + 1):
            total += (k - start[i] + 1) / rank[k]
            sums[k] = total


@compiled
def _add_up(terms, start, last):  # type: ignore[no-untyped-def]
    """Write the sums of the terms from `start` [N] through each, up to `last` [N], over them."""
    for i in range(len(start)):
        total = 0.0
        for k in range(start[i], last[i] + 1):
            total += terms[k]
            terms[k] = total


def counts_within(first: IntArray, ranks: int) -> FloatArray:
    """Return the number of first ranks within 1 .. ranks, [ranks, 1] float64."""
    found_at = np.bincount(np.minimum(first, ranks + 1), minlength=ranks + 1)
    return np.cumsum(found_at[1 : ranks + 1]).astype(np.float64)[:, None]


def tie_groups(distance: FloatArray, start: IntArray) -> tuple[IntArray, IntArray]:
    """Return where the groups of equally far positives begin, and how many are in each, [g]."""
    begins = np.ones(len(distance), dtype=bool)
    begins[1:] = distance[1:] != distance[:-1]
    begins[start] = True
    first = np.flatnonzero(begins)
    return first, np.diff(np.append(first, len(distance)))
