"""Ranks in expectation over random tie-breaks, in closed form: see `tie_groups`.

A group without negatives is no tie: its positives keep the values of a fixed rule, bit for
bit. A threshold never cuts a group, so only the group's sum of precision terms matters, and
each of its positives is given an equal share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from streameval.choices import AveragePrecision
from streameval.metrics.ranks import FixedRanks, Ranks, tie_groups
from streameval.metrics.tie_groups import (
    TieGroups,
    expected_inverse_of_first,
    expected_inverse_of_last,
)
from streameval.statistics import FloatArray, IntArray, RankStatistics


class ExpectedRanks(Ranks):
    """The mean over all tie-breaks of what the fixed rules give.

    Parameters
    ----------
    stats : RankStatistics
    """

    def __init__(self, stats: RankStatistics) -> None:
        super().__init__(stats)
        self._untied = FixedRanks(stats, "optimistic")
        self._first, self._positives = tie_groups(stats.positive_distance, self.start)
        self._group: IntArray = np.repeat(np.arange(len(self._first)), self._positives)
        self._query: IntArray = self.of_positives(np.arange(len(self.start)))
        self._negatives: IntArray = stats.tied[self._first]
        self._closer: IntArray = stats.closer[self._first]
        self._positives_before: IntArray = self.order[self._first] - 1
        self._tied: IntArray = np.flatnonzero(self._negatives > 0)

    def first_rank(self) -> FloatArray:
        """Return E[r_1] = b + (L + 1)/(p + 1), [N] float64."""
        first = self._group[self.start]
        size = self._positives[first] + self._negatives[first]
        expected: FloatArray = self._closer[first] + (size + 1) / (self._positives[first] + 1)
        return expected

    def first_within(self, rank: int) -> FloatArray:
        """Return P[r_1 <= rank], [N] float64."""
        within = self._untied.first_within(rank)
        tied = self._tied_first()
        for chance in self._chances(tied, rank):  # the last one is the answer
            within[tied] = chance
        return within

    def hit_terms(self, ranks: int) -> FloatArray:
        """Return P[r_1 <= 1 .. ranks] of tied queries beside the number of others, [ranks, n]."""
        tied = self._tied_first()
        certain = self._untied.rank[self.start][~tied]
        found_at = np.bincount(np.minimum(certain, ranks + 1), minlength=ranks + 1)
        hits = np.cumsum(found_at[1 : ranks + 1]).astype(np.float64)
        return np.column_stack([hits, np.array(list(self._chances(tied, ranks)))])

    def precision(self, rule: AveragePrecision, cutoff: IntArray | None = None) -> FloatArray:
        """Return each positive's share of the expected sum of its group's terms, [P] float64."""
        terms = self._untied.precision(rule, cutoff)
        if rule == "threshold" and cutoff is None:  # no tie-break changes it
            return terms
        return self._shared(self._groups(cutoff).precision(rule), terms)

    def precision_per_hit(self, rule: AveragePrecision, cutoff: IntArray) -> FloatArray:
        """Return the expected mean of the terms within the cutoff, 0 where none is, [N] float64."""
        terms = self.precision(rule, cutoff)
        per_hit: FloatArray = self.totals(terms) / np.maximum(self.counts(self.hits(cutoff)), 1)
        groups = self._groups(cutoff)
        cut = np.flatnonzero((groups.within > 0) & (groups.within < groups.size))
        own = TieGroups(
            groups.positives[cut],
            groups.size[cut],
            groups.ahead[cut],
            groups.before[cut],
            groups.within[cut],
        )
        first = self._first[self._tied[cut]]  # of a query at most one group is cut
        earlier = np.append(0.0, self.running_totals(terms))[first]
        query = self._query[first]
        per_hit[query] = own.precision_per_hit(rule, np.where(own.before > 0, earlier, 0.0))
        return per_hit

    def hits(self, cutoff: IntArray) -> FloatArray:
        """Return P[r_j <= cutoff], [P] float64."""
        return self._shared(self._groups(cutoff).hits(), self._untied.hits(cutoff))

    def gains(self, cutoff: IntArray) -> FloatArray:
        """Return E[1/log2(r_j + 1)] within the cutoff, [P] float64."""
        return self._shared(self._groups(cutoff).gains(), self._untied.gains(cutoff))

    def shots(self, rank: int) -> FloatArray:
        """Return P[c_j + 1 <= rank], [P] float64: of n ties, 0 .. n are ahead with one chance."""
        negatives, closer = self._negatives[self._group], self._closer[self._group]
        chance: FloatArray = np.clip(rank - closer, 0, negatives + 1) / (negatives + 1)
        return chance

    def inverse_first_rank(self) -> FloatArray:
        """Return E[1 / r_1], [N] float64."""
        expected = self._untied.inverse_first_rank()
        first = self._group[self.start]
        tied = np.flatnonzero(self._negatives[first] > 0)
        expected[tied] = self._once_a_group(first[tied], expected_inverse_of_first)
        return expected

    def inverse_penalty(self) -> FloatArray:
        """Return E[G / r_G], [N] float64."""
        expected = self._untied.inverse_penalty()
        last = self._group[self.start + self.count - 1]
        tied = np.flatnonzero(self._negatives[last] > 0)
        inverse = self._once_a_group(last[tied], expected_inverse_of_last)
        expected[tied] = self.count[tied] * inverse
        return expected

    def _once_a_group(
        self, groups: IntArray, expected: Callable[[IntArray], FloatArray]
    ) -> FloatArray:
        """Return an expectation of groups (p, n, R), computed once for each distinct one, [g]."""
        ahead = self._closer[groups] + self._positives_before[groups]
        each = np.column_stack([self._positives[groups], self._negatives[groups], ahead])
        distinct, which = np.unique(each, axis=0, return_inverse=True)
        return expected(distinct)[which.reshape(-1)]

    def _groups(self, cutoff: IntArray | None) -> TieGroups:
        """Return the groups with negatives."""
        tied = self._tied
        size = self._positives[tied] + self._negatives[tied]
        before = self._positives_before[tied]
        ahead = self._closer[tied] + before
        within = size
        if cutoff is not None:
            within = np.clip(cutoff[self._query[self._first[tied]]] - ahead, 0, size)
        return TieGroups(self._positives[tied], size, ahead, before, within)

    def _shared(self, sums: FloatArray, untied: FloatArray) -> FloatArray:
        """Return [P]: an equal share of its group's sum for a tied positive, else `untied`."""
        share = np.zeros(len(self._positives))
        share[self._tied] = sums / self._positives[self._tied]
        return np.where(self._negatives[self._group] > 0, share[self._group], untied)

    def _tied_first(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """[N] bool: whether negatives are as near as the nearest positive."""
        return self._negatives[self._group[self.start]] > 0

    def _chances(
        self, rows: np.ndarray[tuple[int], np.dtype[np.bool_]], ranks: int
    ) -> Iterator[FloatArray]:
        """Give P[r_1 <= x] of some of the queries, for x = 1 .. ranks."""
        first = self._group[self.start][rows]
        negatives, closer = self._negatives[first], self._closer[first]
        size = negatives + self._positives[first]
        none_yet = np.ones(len(first))
        for x in range(1, ranks + 1):
            drawn = x - 1 - closer
            miss = np.maximum(negatives - drawn, 0) / np.maximum(size - drawn, 1)
            none_yet = np.where(drawn >= 0, none_yet * miss, none_yet)
            yield 1 - none_yet
