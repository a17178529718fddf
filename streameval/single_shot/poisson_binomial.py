"""How many drawn negatives are ahead of a positive, where one item is drawn of each identity.

An identity h with n valid items, k of them ahead of the positive, is ahead with probability k/n,
independently of the others: the number ahead follows the Poisson binomial distribution. Its
first R probabilities come from the usual recurrence (Poisson 1837; Chen and Liu 1997), adding
one identity at a time,

    P_h(x) = P_{h−1}(x) (1 − p_h) + P_{h−1}(x − 1) p_h

whose terms are all positive: nothing cancels.
"""

from __future__ import annotations

import math

import numpy as np

from streameval.compilation import compiled
from streameval.single_shot.ahead import ROWS, unpack

NEGLIGIBLE = 1e-20  # of probability: where no more is left below rank R, it is taken for 0
_EVERY = 32  # identities between looks at what is left


def hopeless_from(ranks: int) -> int:
    """Return the least number ahead, in the mean, from which on so many ranks are out of reach.

    By Chernoff's bound, P(X ≤ k) ≤ e^(k − μ) (μ/k)^k for k < μ (Mitzenmacher and Upfal,
    Probability and Computing, theorem 4.5, whose proof holds for X of unequal p_h).

    Parameters
    ----------
    ranks : int
        R: k = R − 1.
    """
    k = max(ranks - 1, 1)
    mean = k + 1
    while mean - k - k * math.log(mean / k) < -math.log(NEGLIGIBLE):
        mean += 1
    return mean


@compiled
def shots_of_query(  # type: ignore[no-untyped-def]
    entries,
    packing,
    first,
    cut,
    distance,
    tied,
    valid,
    ahead,
    active,
    drawn,
    rng,
    expected,
    sampled,
):
    """Write how likely, for one query, a drawn positive has fewer than x drawn negatives ahead.

    Parameters
    ----------
    entries : [L] uint64
        The query's part of a list of negatives ahead, sorted: see `ahead`.
    packing : Packing
    first, cut : int
        The query's first positive, as rows are counted from; the first row that is hopeless.
    distance, tied : [P] float64, int64
        Of its positives, ascending; negatives as far as each.
    valid : [H] int64
        Valid items of each identity.
    ahead, active : [H] int64
        Memory; `ahead` is 0 before and after.
    drawn : [draws] int64
        The positive of each sampled draw.
    rng : numpy.random.Generator
        For the negatives of the sampled draws.
    expected, sampled : [3, R] float64, written
        For each of `SHOT_RULES` and x = 1 .. R: the exact expectation, and the mean over the draws.
    """
    positives = len(distance)
    expected[:] = 0.0
    sampled[:] = 0.0
    begin, found, p = 0, 0, 0
    while p < positives and ROWS * (first + p) < cut:
        last = p + 1
        while last < positives and distance[last] == distance[p]:
            last += 1
        nearest, next_rule = ROWS * (first + p), 3
        end = nearest + 1  # without ties all rules read the first row
        if tied[p] > 0:
            end = ROWS * (first + last)
        for row in range(nearest, min(end, cut)):
            rule, s = row % ROWS, row // ROWS - first
            if (rule == 0 and s > p) or (rule == 2 and s < last - 1):
                continue  # only the first positive as far has the one, and the last the other
            if tied[p] > 0:
                next_rule = rule + 1
            start, stop = (s, s + 1) if rule == 1 else (p, last)
            begin, found = add_entries(entries, packing, begin, row, ahead, active, found)
            near, rules = active[:found], (rule, next_rule)
            _tally(ahead, valid, near, start, stop, rules, drawn, rng, expected, sampled)
        p = last
    for t in range(found):
        ahead[active[t]] = 0
    for rule in range(3):
        chances = np.cumsum(expected[rule]) / max(positives, 1)
        expected[rule] = np.minimum(chances, 1.0)
        sampled[rule] = np.cumsum(sampled[rule]) / max(len(drawn), 1)


@compiled
def add_entries(entries, packing, begin, row, ahead, active, found):  # type: ignore[no-untyped-def]
    """Add the entries up to a row; return the next, and how many identities have some ahead."""
    while begin < len(entries):
        of_row, h, number = unpack(entries[begin], packing)
        if of_row > row:
            break
        if ahead[h] == 0:
            active[found] = h
            found += 1
        ahead[h] += number
        begin += 1
    return begin, found


@compiled
def _tally(  # type: ignore[no-untyped-def]
    ahead, valid, active, begin, end, rules, drawn, rng, expected, sampled
):
    """Add the positives `begin` to `end`, all with the same ahead, under some of the rules."""
    ranks = expected.shape[1]
    chance = _numbers_ahead(ahead, valid, active, ranks)
    for rule in range(*rules):
        expected[rule] += (end - begin) * chance
    for t in range(len(drawn)):
        if begin <= drawn[t] < end:
            number = _draw(ahead, valid, active, rng, ranks)
            if number < ranks:
                for rule in range(*rules):
                    sampled[rule, number] += 1.0


@compiled
def _numbers_ahead(ahead, valid, active, ranks):  # type: ignore[no-untyped-def]
    """Return the probability that 0, 1, .. of the drawn negatives are ahead, [ranks] float64."""
    chance, following = np.zeros(ranks), np.empty(ranks)
    chance[0] = 1.0
    for t in range(len(active)):
        h = active[t]
        p = ahead[h] / valid[h]
        q = (valid[h] - ahead[h]) / valid[h]
        following[0] = chance[0] * q
        for x in range(1, ranks):
            following[x] = chance[x] * q + chance[x - 1] * p
        chance, following = following, chance
        if t % _EVERY == _EVERY - 1 and chance.sum() < NEGLIGIBLE:
            return np.zeros(ranks)
    return chance


@compiled
def _draw(ahead, valid, active, rng, most):  # type: ignore[no-untyped-def]
    """Draw how many negatives are ahead; `most` and more are not told apart."""
    number = 0
    for t in range(len(active)):
        h = active[t]
        number += rng.random() * valid[h] < ahead[h]
        if number == most:
            break
    return number
