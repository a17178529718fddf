"""Tie groups: positives and negatives of a query at one distance, in all their orders.

A group is p positives and n negatives; b negatives and s positives are closer. All orders of
its L = p + n items are equally likely, so with R = b + s the item at place k of the group has
rank R + k, and

- place k holds a positive with probability p/L, and then (k − 1)q of the places before it
  hold positives in expectation, q = (p − 1)/(L − 1);
- the first k places hold no positive with probability Π_{i<k} (n − i)/(L − i);
- the first positive is at place k with probability C(L−k, p−1)/C(L, p), the last one with
  probability C(k−1, p−1)/C(L, p);
- given that h positives are among the first m places, these are a group of h and m − h.

The sums over k are differences of harmonic numbers (McSherry and Najork, "Computing
information retrieval performance measures efficiently in the presence of tied scores",
ECIR 2008, give them for single relevance vectors; here they are in terms of counts alone).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streameval.choices import AveragePrecision
from streameval.metrics.harmonic import harmonic_difference, harmonic_shortfall
from streameval.statistics import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class TieGroups:
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

    def hits(self) -> FloatArray:
        """Return the expected number of positives within the cutoff, p·m/L, [g] float64."""
        expected: FloatArray = self.positives * self.within / self.size
        return expected

    def gains(self) -> FloatArray:
        """Return the expected sum of 1/log2(r + 1) over the positives within, [g] float64."""
        ends = np.where(self.within > 0, self.ahead + self.within, 0)
        most = int(np.max(ends, initial=0))  # at most the cutoff, however far the others are
        discounts = np.append(0.0, np.cumsum(1 / np.log2(np.arange(2, most + 2))))
        gained = discounts[np.minimum(self.ahead + self.within, most)]
        gained -= discounts[np.minimum(self.ahead, most)]
        expected: FloatArray = self.positives * gained / self.size
        return expected

    def precision(self, rule: AveragePrecision) -> FloatArray:
        """Return the expected sum of the AP terms of the positives within, [g] float64.

        With D(R) = H_{R+m} − H_R and F(R) = m − (R+1)D(R), the sum of j/r_j is
        p/L · [(s+1)D(R) + qF(R)], that of (j−1)/(r_j−1) is p/L · [sD(R−1) + qF(R−1)], or
        p/L · [1 + q(m−1)] where R = 0.
        """
        if rule == "threshold":  # the same for each of them
            through = self.before + self.positives
            alike: FloatArray = self.hits() * through / (self.ahead + self.size)
            return alike
        q = (self.positives - 1) / np.maximum(self.size - 1, 1)
        ahead, within = self.ahead, self.within
        steps = harmonic_difference(ahead, ahead + within)
        shortfall = harmonic_shortfall(ahead, ahead + within)
        sums: FloatArray = (self.before + 1) * steps + q * shortfall
        if rule == "trapezoid":
            previous = np.maximum(ahead - 1, 0)
            steps = harmonic_difference(previous, previous + within)
            shortfall = harmonic_shortfall(previous, previous + within)
            lower = np.where(
                ahead == 0,
                np.where(within > 0, 1 + q * (within - 1), 0.0),
                self.before * steps + q * shortfall,
            )
            sums = (lower + sums) / 2
        return self.positives * (sums / self.size)

    def precision_per_hit(self, rule: AveragePrecision, before: FloatArray) -> FloatArray:
        """Return the expected mean of the AP terms within the cutoff, 0 where none is, [g] float64.

        Parameters
        ----------
        rule : {"step", "trapezoid", "threshold"}
        before : [g] float64
            Sum of the terms of the s closer positives, which are all within.
        """
        from scipy.stats import hypergeom

        expected: FloatArray = np.zeros(len(self.size))
        through = (self.before + self.positives) / (self.ahead + self.size)
        possible = np.minimum(self.positives, self.within)
        for hits in range(int(np.max(possible, initial=-1)) + 1):
            chance = hypergeom.pmf(hits, self.size, self.positives, self.within)
            count = np.full_like(self.size, hits)
            drawn = replace(self, positives=count, size=self.within)
            own = hits * through if rule == "threshold" else drawn.precision(rule)
            expected += chance * (before + own) / np.maximum(self.before + hits, 1)
        return expected


def expected_inverse_of_first(groups: IntArray) -> FloatArray:
    """Return E_p = E[1 / (R + place of the first positive)] of groups (p, n, R).

    C(L−k, p−1)(p−1) = C(L−k, p−2)[(R+L−p+2) − (R+k)] gives, at a fixed L = p + n, the recurrence
    E_1 = D(R)/L, E_i = i/((i−1)(L−i+1)) · [(R+L−i+2)E_{i−1} − 1]. It multiplies an error by about
    p where p <= n and (R + 1)p <= L. Elsewhere the sum over the places is taken.

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
    recurs = (positives <= negatives) & ((ahead + 1) * positives <= size)
    for i in range(2, int(positives[recurs].max(initial=0)) + 1):
        rows = np.flatnonzero(recurs & (positives >= i))
        rest = (ahead[rows] + size[rows] - i + 2) * inverse[rows] - 1
        inverse[rows] = rest * (i / ((i - 1) * (size[rows] - i + 1)))
    for row in np.flatnonzero(~recurs & (positives > 1)):
        p, n, r = groups[row].tolist()
        # P[first at 1] = p/L, P[first at k+1] / P[first at k] = (n−k+1)/(L−k)
        k = np.arange(1, n + 1)
        chances = np.cumprod(np.append(p / (p + n), (n - k + 1) / (p + n - k)))
        inverse[row] = np.sum(chances / (r + np.arange(1, n + 2)))
    return inverse


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
