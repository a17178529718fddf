"""Ranks in expectation over random tie-breaks, in closed form.

A *tie group* is p positives and n negatives of one query at the same distance; b negatives
and s positives are closer. All orders of its L = p + n items are equally likely, so with
R = b + s the item at place k of the group has rank R + k, and

- place k holds a positive with probability p/L, and then (k − 1)q of the places before it
  hold positives in expectation, q = (p − 1)/(L − 1);
- the first k places hold no positive with probability Π_{i<k} (n − i)/(L − i);
- the last positive is at place k with probability C(k−1, p−1)/C(L, p).

The sums over k are differences of harmonic numbers (McSherry and Najork, "Computing
information retrieval performance measures efficiently in the presence of tied scores",
ECIR 2008, give them for single relevance vectors; here they are in terms of counts alone).
A group without negatives is no tie: its positives keep the values of a fixed rule, bit for
bit. A threshold never cuts a group, so only the group's sum of precision terms matters, and
each of its positives is given an equal share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.metrics.options import AveragePrecision
from streameval.metrics.ranks import FixedRanks, Ranks
from streameval.statistics import FloatArray, IntArray, RankStatistics

_SMALL = 64
_HARMONIC = np.array(  # [low, high]: 1/(low+1) + .. + 1/high, each correctly rounded
    [
        [math.fsum(1 / k for k in range(low + 1, high + 1)) for high in range(_SMALL + 1)]
        for low in range(_SMALL + 1)
    ]
)


class ExpectedRanks(Ranks):
    """The mean over all tie-breaks of what the fixed rules give.

    Parameters
    ----------
    stats : RankStatistics
    """

    def __init__(self, stats: RankStatistics) -> None:
        super().__init__(stats)
        self._untied = FixedRanks(stats, "optimistic")
        begins = np.ones(len(stats.closer), dtype=bool)
        begins[1:] = stats.positive_distance[1:] != stats.positive_distance[:-1]
        begins[self.start] = True
        group_start = np.flatnonzero(begins)
        self._group: IntArray = np.cumsum(begins) - 1
        self._positives: IntArray = np.diff(np.append(group_start, len(begins)))
        self._negatives: IntArray = stats.tied[group_start]
        self._closer: IntArray = stats.closer[group_start]
        self._positives_before: IntArray = self.order[group_start] - 1

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

    def hits_within(self, ranks: int) -> FloatArray:
        """Return Σ P[r_1 <= 1 .. ranks] over the queries, [ranks] float64."""
        tied = self._tied_first()
        certain = self._untied.rank[self.start][~tied]
        found_at = np.bincount(np.minimum(certain, ranks + 1), minlength=ranks + 1)
        hits = np.cumsum(found_at[1 : ranks + 1]).astype(np.float64)
        if tied.any():
            for x, chance in enumerate(self._chances(tied, ranks)):
                hits[x] = math.fsum(np.append(chance, hits[x]).tolist())
        return hits

    def precision(self, rule: AveragePrecision) -> FloatArray:
        """Return each positive's share of the expected sum of its group's terms, [P] float64.

        With D(R) = H_{R+L} − H_R and F(R) = L − (R+1)D(R), the group's sum of j/r_j is
        p/L · [(s+1)D(R) + qF(R)], that of (j−1)/(r_j−1) is p/L · [sD(R−1) + qF(R−1)], or
        p/L · [1 + q(L−1)] where R = 0.
        """
        terms = self._untied.precision(rule)
        tied = np.flatnonzero(self._negatives > 0)
        before = self._positives_before[tied]
        ahead = self._closer[tied] + before
        size = self._positives[tied] + self._negatives[tied]
        q = (self._positives[tied] - 1) / np.maximum(size - 1, 1)
        steps = harmonic_difference(ahead, ahead + size)
        shortfall = harmonic_shortfall(ahead, ahead + size)
        share = ((before + 1) * steps + q * shortfall) / size
        if rule == "trapezoid":
            previous = np.maximum(ahead - 1, 0)
            steps = harmonic_difference(previous, previous + size)
            shortfall = harmonic_shortfall(previous, previous + size)
            lower = np.where(
                ahead == 0,
                (1 + q * (size - 1)) / size,
                (before * steps + q * shortfall) / size,
            )
            share = (lower + share) / 2
        share_of_group = np.zeros(len(self._positives))
        share_of_group[tied] = share
        return np.where(self._negatives[self._group] > 0, share_of_group[self._group], terms)

    def inverse_penalty(self) -> FloatArray:
        """Return E[G / r_G], [N] float64.

        Computed once for each distinct (p, n, R) of the last groups.
        """
        expected = self._untied.inverse_penalty()
        last = self._group[self.start + self.count - 1]
        tied = np.flatnonzero(self._negatives[last] > 0)
        last = last[tied]
        ahead = self._closer[last] + self._positives_before[last]
        groups = np.column_stack([self._positives[last], self._negatives[last], ahead])
        distinct, which = np.unique(groups, axis=0, return_inverse=True)
        inverse = expected_inverse_of_last(distinct)
        expected[tied] = self.count[tied] * inverse[which.reshape(-1)]
        return expected

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


def harmonic_difference(low: IntArray, high: IntArray) -> FloatArray:
    """Return H_high − H_low = 1/(low+1) + .. + 1/high for 0 <= low <= high, [n] float64.

    Accurate relative to the difference itself, which subtracting two digammas of a million is
    not: up to 64 it is tabled, beyond that the asymptotic series of ψ(x + ½) is differenced term
    by term (Abramowitz and Stegun, 6.3.18, shifted by a half).
    """
    small = _HARMONIC[np.minimum(low, _SMALL), np.minimum(high, _SMALL)]
    a, b = np.maximum(low, _SMALL) + 0.5, np.maximum(high, _SMALL) + 0.5
    difference: FloatArray = small + np.log1p((b - a) / a) + _corrections(a, b)
    return difference


def harmonic_shortfall(low: IntArray, high: IntArray) -> FloatArray:
    """Return (high − low) − (low+1)(H_high − H_low) = Σ_k (k−1)/(low+k), [n] float64.

    Accurate relative to itself: where the two terms nearly cancel (low > 64), x − log(1+x) is
    taken by its series.
    """
    plain = (high - low) - (low + 1) * harmonic_difference(low, high)
    a, b = np.float64(0.5) + low, np.float64(0.5) + high
    x = (b - a) / a
    powers = np.arange(2, 14)
    series = np.sum((-x[:, None]) ** powers / powers, axis=1)
    excess = np.where(x < 0.05, series, x - np.log1p(x))
    close = a * excess - np.log1p(x) / 2 - (a + 0.5) * _corrections(a, b)
    shortfall: FloatArray = np.where((low > _SMALL) & (high > low), close, plain)
    return shortfall


def _corrections(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> FloatArray:
    """Return the terms of ψ(b + ½) − ψ(a + ½) beyond log b − log a."""
    terms: FloatArray = np.zeros(len(a))
    for power, factor in ((2, 1 / 24), (4, -7 / 960), (6, 31 / 8064)):
        terms += factor * (b**-power - a**-power)
    return terms


def expected_inverse_of_last(groups: IntArray) -> FloatArray:
    """Return E_p = E[1 / (R + place of the last positive)] of groups (p, n, R).

    C(k−1, p−1)(p−1) = C(k−1, p−2)[(R+k) − (R+p−1)] gives, at a fixed L = p + n, the recurrence
    E_1 = D(R)/L, E_i = i/((i−1)(L−i+1)) · [1 − (R+i−1)E_{i−1}]. It multiplies an error by p at
    most where R + 2p − 2 <= L. Elsewhere n < R + p, and the sum over the places is taken.

    Parameters
    ----------
    groups : [g, 3] int64

    Returns
    -------
    [g] float64
    """
    positives, negatives, ahead = groups.T
    size = positives + negatives
    inverse: FloatArray = harmonic_difference(ahead, ahead + size) / size
    recurs = ahead + 2 * positives - 2 <= size
    for i in range(2, int(positives[recurs].max(initial=0)) + 1):
        rows = np.flatnonzero(recurs & (positives >= i))
        rest = 1 - (ahead[rows] + i - 1) * inverse[rows]
        inverse[rows] = rest * (i / ((i - 1) * (size[rows] - i + 1)))
    for row in np.flatnonzero(~recurs & (positives > 1)):
        p, n, r = groups[row].tolist()
        # P[last at L] = p/L, P[last at L−m−1] / P[last at L−m] = (n−m)/(L−m−1)
        m = np.arange(n)
        chances = np.cumprod(np.append(p / (p + n), (n - m) / (p + n - m - 1)))
        inverse[row] = np.sum(chances / (r + p + n - np.arange(n + 1)))
    return inverse
