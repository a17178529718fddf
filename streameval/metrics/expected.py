"""Ranks in expectation over random tie-breaks, in closed form.

A tie group is p positives and n negatives of a query at one distance; b negatives and s positives
are closer. All orders of its L = p + n items are equally likely, so with R = b + s the item at
place k of the group has rank R + k, and

- place k holds a positive with probability p/L, and then (k − 1)q of the places before it
  hold positives in expectation, q = (p − 1)/(L − 1);
- the first k places hold no positive with probability Π_{i<k} (n − i)/(L − i);
- the first positive is at place k with probability C(L−k, p−1)/C(L, p), the last one with
  probability C(k−1, p−1)/C(L, p);
- given that h positives are among the first m places, these are a group of h and m − h.

The sums over k are differences of harmonic numbers (McSherry and Najork, "Computing
information retrieval performance measures efficiently in the presence of tied scores",
ECIR 2008, give them for single relevance vectors; here they are in terms of counts alone).

A group without negatives is no tie: its positives keep the values of a fixed rule, bit for bit. A
threshold never cuts a group, so each positive is given an equal share of its group's sum of terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from streameval.choices import AveragePrecision
from streameval.metrics.ranks import Cutoff, Ranks, Term, counts_within, tie_groups
from streameval.statistics import RankStatistics
from streameval.typing import AnyArray, FloatArray, IntArray

_SMALL = 64


@cache
def _small_differences() -> FloatArray:
    """Return 1/(low+1) + .. + 1/high, each correctly rounded, [low, high] up to `_SMALL`."""
    ends = range(_SMALL + 1)
    sums = [[math.fsum(1 / k for k in range(low + 1, high + 1)) for high in ends] for low in ends]
    return np.array(sums)


class ExpectedRanks(Ranks):
    """The mean over all tie-breaks of what the fixed rules give."""

    def __init__(self, stats: RankStatistics) -> None:
        super().__init__(stats, "optimistic")
        first, positives = tie_groups(stats.positive_distance, self.start)
        before = self.order[first] - 1
        size, ahead = positives + stats.tied[first], stats.closer[first] + before
        self._group = np.repeat(np.arange(len(first)), positives)
        self._all = TieGroups(positives, size, ahead, before, size)
        self._ties = np.flatnonzero(size > positives)  # groups with negatives
        self._tied = (size > positives)[self._group]  # positives of these
        self._first = first[self._ties]
        self._query = self.of_positives(np.arange(len(self.start)))[self._first]

    def first_rank(self) -> FloatArray:
        """Return E[r_1] = b + (L + 1)/(p + 1), [N] float64."""
        positives, size, ahead, *_ = self._all.take(self._group[self.start])
        return ahead + (size + 1) / (positives + 1)

    def first_within(self, rank: int) -> FloatArray:
        """Return P[r_1 <= rank], [N] float64."""
        within = super().first_within(rank)
        for chance in self._chances(rank):  # the last one is the answer
            within[self._tied[self.start]] = chance
        return within

    def hit_terms(self, ranks: int) -> FloatArray:
        """Return P[r_1 <= 1 .. ranks] of tied queries beside the number of others, [ranks, n]."""
        certain = counts_within(self.rank[self.start[~self._tied[self.start]]], ranks)
        return np.column_stack([certain, np.array(list(self._chances(ranks)))])

    def terms(self, kind: Term, cutoff: Cutoff | None = None) -> FloatArray:
        """Return each positive's share of the expected sum of its group's terms, [P] float64."""
        terms = super().terms(kind, cutoff)
        if kind == "threshold" and cutoff is None:  # no tie-break changes it
            return terms
        share = np.zeros(len(self._all.size))
        share[self._ties] = self._groups(cutoff).sums(kind) / self._all.positives[self._ties]
        return np.where(self._tied, share[self._group], terms)

    def hit_counts(self, cutoff: Cutoff) -> FloatArray:
        """Return the expected number of positives within each query's cutoff, [N] float64."""
        return np.add.reduceat(self.terms("hit", cutoff), self.start)

    def precision_sums(self, rule: AveragePrecision) -> FloatArray:
        """Return the sums of each query's shares of AP 1 .. j, added in that order, [P] float64."""
        return self.running_totals(self.terms(rule))

    def terms_per_hit(self, kind: Term, cutoff: Cutoff) -> FloatArray:
        """Return the expected mean of the terms within the cutoff, 0 where none is, [N] float64."""
        sums = self.running_totals(self.terms(kind, cutoff))
        per_hit = sums[self.last] / np.maximum(self.hit_counts(cutoff), 1)
        groups = self._groups(cutoff)
        cut = np.flatnonzero((groups.within > 0) & (groups.within < groups.size))
        own = groups.take(cut)  # of a query at most one group is cut
        earlier = np.where(own.before > 0, np.append(0.0, sums)[self._first[cut]], 0.0)
        per_hit[self._query[cut]] = own.terms_per_hit(kind, earlier)
        return per_hit

    def shots(self, rank: int) -> FloatArray:
        """Return P[c_j + 1 <= rank], [P] float64: of n ties, 0 .. n are ahead with one chance."""
        positives, size, ahead, before, _ = self._all.take(self._group)
        orders = size - positives + 1
        chances: FloatArray = np.clip(rank - ahead + before, 0, orders) / orders
        return chances

    def inverse_rank(self, *, last: bool = False) -> FloatArray:
        """Return E[1 / r_1], or E[G / r_G], [N] float64."""
        inverse, at = super().inverse_rank(last=last), self.last if last else self.start
        tied = self._tied[at]
        distinct, which = self._distinct(at[tied])
        expected = expected_inverse(distinct, last=last)[which]
        inverse[tied] = expected * self.count[tied] if last else expected
        return inverse

    def precision_to_last(self, rank: int) -> FloatArray:
        """Return E[|{r_j <= k}| / k] at k = min(rank, r_G), [N] float64."""
        precision, tied = super().precision_to_last(rank), self._tied[self.last]
        distinct, which = self._distinct(self.last[tied])
        gained = expected_gain(distinct, rank)[which]
        precision[tied] = self.hit_counts(rank)[tied] / rank + self.count[tied] * gained
        return precision

    def _distinct(self, positives: IntArray) -> tuple[IntArray, IntArray]:
        """Return the groups (p, n, R) of some positives, each once, and which each has, [n]."""
        p, size, ahead, *_ = self._all.take(self._group[positives])
        each = np.column_stack([p, size - p, ahead])
        distinct, which = np.unique(each, axis=0, return_inverse=True)
        return distinct, which.reshape(-1)

    def _groups(self, cutoff: Cutoff | None) -> TieGroups:
        """Return the groups with negatives."""
        groups = self._all.take(self._ties)
        if cutoff is None:
            return groups
        own = np.broadcast_to(cutoff, self.count.shape)[self._query]
        return groups._replace(within=np.clip(own - groups.ahead, 0, groups.size))

    def _chances(self, ranks: int) -> Iterator[FloatArray]:
        """Give P[r_1 <= x] of the queries whose first positive is tied, for x = 1 .. ranks."""
        first = self.start[self._tied[self.start]]
        positives, size, closer, *_ = self._all.take(self._group[first])
        none_yet = np.ones(len(first))
        for x in range(1, ranks + 1):
            drawn = x - 1 - closer
            miss = np.maximum(size - positives - drawn, 0) / np.maximum(size - drawn, 1)
            none_yet = np.where(drawn >= 0, none_yet * miss, none_yet)
            yield 1 - none_yet


class TieGroups(NamedTuple):
    """Groups of ties, and how many of their places are within a cutoff.

    Attributes
    ----------
    positives, size : [g] int64
        p and L.
    ahead, before : [g] int64
        R, all items that are closer; s, the positives among them.
    within : [g] int64
        Places m <= L within the cutoff.
    """

    positives: IntArray
    size: IntArray
    ahead: IntArray
    before: IntArray
    within: IntArray

    def take(self, groups: IntArray) -> TieGroups:
        """Return some of the groups."""
        return TieGroups(*(each[groups] for each in self))

    def sums(self, kind: Term) -> FloatArray:
        """Return the expected sum of the terms of the positives within the cutoff, [g] float64.

        hit: p·m/L. gain: p/L times the sum of 1/log2(r + 1) over the places within. threshold: as
        many hits, each with the same term. With D(R) = H_{R+m} − H_R and F(R) = m − (R+1)D(R), the
        sum of j/r_j is p/L · [(s+1)D(R) + qF(R)], that of (j−1)/(r_j−1) is
        p/L · [sD(R−1) + qF(R−1)], or p/L · [1 + q(m−1)] where R = 0.
        """
        p, size, ahead, before, within = self
        sums: FloatArray = p * within / size
        if kind == "threshold":
            sums = sums * (before + p) / (ahead + size)
        elif kind == "gain":
            through = np.where(within > 0, ahead + within, 0)
            most = int(np.max(through, initial=0))  # at most the cutoff, however far the others are
            discounts = np.append(0.0, np.cumsum(1 / np.log2(np.arange(2, most + 2))))
            low, high = discounts[np.minimum([ahead, ahead + within], most)]
            sums = p * (high - low) / size
        elif kind != "hit":
            q = (p - 1) / np.maximum(size - 1, 1)

            def summed(ahead: IntArray, before: IntArray) -> FloatArray:
                steps = harmonic_difference(ahead, ahead + within)
                return before * steps + q * harmonic_shortfall(ahead, ahead + within)

            sums = summed(ahead, before + 1)
            if kind == "trapezoid":
                leading = np.where(within > 0, 1 + q * (within - 1), 0.0)
                others = summed(np.maximum(ahead - 1, 0), before)
                sums = (np.where(ahead == 0, leading, others) + sums) / 2
            sums = p * (sums / size)
        return sums

    def terms_per_hit(self, kind: Term, earlier: FloatArray) -> FloatArray:
        """Return the expected mean of the terms within the cutoff, 0 where none is, [g] float64.

        The terms of the s closer positives, which are all within, add up to `earlier`.
        """
        from scipy.stats import hypergeom

        p, size, ahead, before, within = self
        expected = np.zeros(len(size))
        through = (before + p) / (ahead + size)
        for hits in range(int(np.max(np.minimum(p, within), initial=-1)) + 1):
            chance = hypergeom.pmf(hits, size, p, within)
            drawn = self._replace(positives=np.full_like(size, hits), size=within)
            own = hits * through if kind == "threshold" else drawn.sums(kind)
            expected += chance * (earlier + own) / np.maximum(before + hits, 1)
        return expected


def expected_inverse(groups: IntArray, *, last: bool) -> FloatArray:
    """Return E_p = E[1 / (R + place of the first or last positive)] of groups (p, n, R) [g, 3].

    First: C(L−k, p−1)(p−1) = C(L−k, p−2)[(R+L−p+2) − (R+k)] gives, at a fixed L = p + n, the
    recurrence E_1 = D(R)/L, E_i = i/((i−1)(L−i+1)) · [(R+L−i+2)E_{i−1} − 1]. It multiplies an
    error by about p where p <= n and (R + 1)p <= L.

    Last: C(k−1, p−1)(p−1) = C(k−1, p−2)[(R+k) − (R+p−1)] gives E_1 = D(R)/L,
    E_i = i/((i−1)(L−i+1)) · [1 − (R+i−1)E_{i−1}]. It multiplies an error by p at most where
    R + 2p − 2 <= L; elsewhere n < R + p.

    Where the recurrence loses digits, the sum over the places is taken.
    """
    positives, negatives, ahead = groups.T
    size = positives + negatives
    inverse: FloatArray = harmonic_difference(ahead, ahead + size) / size
    if last:
        recurs = ahead + 2 * positives - 2 <= size
    else:
        recurs = (positives <= negatives) & ((ahead + 1) * positives <= size)
    for i in range(2, int(positives[recurs].max(initial=0)) + 1):
        rows = np.flatnonzero(recurs & (positives >= i))
        r, items, known = ahead[rows], size[rows], inverse[rows]
        rest = 1 - (r + i - 1) * known if last else (r + items - i + 2) * known - 1
        inverse[rows] = rest * (i / ((i - 1) * (items - i + 1)))
    for row in np.flatnonzero(~recurs & (positives > 1)):
        p, n, r = groups[row].tolist()
        # P[first at 1] = p/L, P[first at k+1] / P[first at k] = (n−k+1)/(L−k); last: from the end
        k = np.arange(1, n + 1)
        chances = np.cumprod(np.append(p / (p + n), (n - k + 1) / (p + n - k)))
        places = p + n - np.arange(n + 1) if last else np.arange(1, n + 2)
        inverse[row] = np.sum(chances / (r + places))
    return inverse


def expected_gain(groups: IntArray, rank: int) -> FloatArray:
    """Return E[max(1/r − 1/rank, 0)], r the rank of the last positive of groups (p, n, R) [g, 3].

    With P[place <= k] = C(k, p)/C(L, p), P[place = k] = P[place <= k] · p/k.
    """
    gained = np.zeros(len(groups))
    for row, (p, n, ahead) in enumerate(groups.tolist()):
        places = np.arange(min(p + n, rank - ahead), p - 1, -1)
        if len(places):
            drawn = np.arange(p)
            within = np.prod((places[0] - drawn) / (p + n - drawn))
            through = within * np.cumprod(np.append(1.0, (places[:-1] - p) / places[:-1]))
            gained[row] = np.sum(through * p / places * (1 / (ahead + places) - 1 / rank))
    return gained


def harmonic_difference(low: IntArray, high: IntArray) -> FloatArray:
    """Return H_high − H_low = 1/(low+1) + .. + 1/high for 0 <= low <= high, [n] float64.

    Accurate relative to the difference itself, which subtracting two digammas of a million is
    not: up to 64 it is tabled, beyond that the asymptotic series of ψ(x + ½) is differenced term
    by term (Abramowitz and Stegun, 6.3.18, shifted by a half).
    """
    small = _small_differences()[np.minimum(low, _SMALL), np.minimum(high, _SMALL)]
    a, b = np.maximum(low, _SMALL) + 0.5, np.maximum(high, _SMALL) + 0.5
    return small + np.log1p((b - a) / a) + _corrections(a, b)


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
    return np.where((low > _SMALL) & (high > low), close, plain)


def _corrections(a: AnyArray, b: AnyArray) -> FloatArray:
    """Return the terms of ψ(b + ½) − ψ(a + ½) beyond log b − log a."""
    terms = np.zeros(len(a))
    for power, factor in ((2, 1 / 24), (4, -7 / 960), (6, 31 / 8064)):
        terms += factor * (b**-power - a**-power)
    return terms
