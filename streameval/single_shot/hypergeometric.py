"""How many drawn negatives are ahead of the first positive, over all draws of a gallery.

Of each group h with n items, k are drawn (all where there are fewer), all sets of k alike, and each
group independently of the others. Where a items of a group are ahead of a positive, none of them is
drawn with probability

    miss(a) = C(n − a, k) / C(n, k),

and how many are drawn follows the hypergeometric distribution. The groups of a query's own identity
have positives alone, of which a positive p is the first that is drawn with probability

    miss_g(a_g) k / (n_g − a_g)  Π_h≠g miss_h(a_h),

g its group, a_h the positives of a group h ahead of it. Given that, the numbers of drawn negatives
ahead add up, group by group, by convolution.

With N negatives ahead, E[1/(1 + N)] is the integral of E[t^N] from 0 to 1. E[t^N] is a product of
polynomials, one of each group, so that the rule of Gauss and Legendre is exact with enough nodes.
Mostly far fewer do: on an ellipse around [0, 1] the product is exp(μ (z − 1)) at most, μ = E[N], z
the ellipse's right end, which bounds the rule's error (Trefethen, Approximation Theory and
Approximation Practice, theorem 19.3). The bound is kept below `ERROR` of the value, which is
1/(1 + μ) at least.

All terms are positive: nothing cancels.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.single_shot.ahead import ROWS
from streameval.single_shot.poisson_binomial import NEGLIGIBLE, add_entries
from streameval.typing import FloatArray, IntArray

ERROR = 1e-16  # of E[1/(1 + N)], relative, where fewer nodes are taken than are exact
_LEAST = 8  # nodes
_EVERY = 32  # groups between looks at what is left


class Nodes(NamedTuple):
    """Nodes and weights of the rule of Gauss and Legendre on [0, 1].

    Attributes
    ----------
    place, weight : [n] float64
        Of rules of ever more nodes, one after the other.
    start : [rules + 1] int64
    """

    place: FloatArray
    weight: FloatArray
    start: IntArray


@cache
def nodes_for(groups: int) -> Nodes:
    """Return rules that do for the items drawn of so many groups, or one item of each."""
    from scipy.special import roots_legendre

    rules, count = [], _LEAST
    while True:
        place, weight = roots_legendre(count)
        rules.append(((place + 1) / 2, weight / 2))
        if enough(count, groups, float(groups)):
            break
        count *= 2
    places, weights = zip(*rules, strict=True)
    start = np.cumsum([0, *map(len, places)])
    return Nodes(np.concatenate(places), np.concatenate(weights), start.astype(np.int64))


@compiled
def enough(count, most, mean):  # type: ignore[no-untyped-def]
    """Return whether so many nodes do for N <= most of a mean."""
    if 2 * count > most:
        return True
    ratio = 1 + 4 * min(count / mean, 1.0)  # of the ellipse
    beyond = mean * (ratio + 1 / ratio - 2) / 4
    bound = beyond - 2 * count * math.log(ratio) + math.log(32 / 15 / (1 - ratio**-2))
    return bound <= math.log(ERROR / (1 + mean))


@compiled
def draws_of_query(  # type: ignore[no-untyped-def]
    entries, packing, first, distance, tied, own, groups, memory, nodes, within, inverse
):
    """Write how likely, for one query, the first drawn positive is within the ranks 1 .. R.

    Parameters
    ----------
    entries : [L] uint64
        The query's part of a list of negatives ahead, sorted: see `ahead`.
    packing : Packing
    first : int
        The query's first positive, as rows are counted from.
    distance, tied : [P] float64, int64
        Of its positives, ascending; negatives as far as each.
    own : (group [P] int64, items [l] int64)
        The group of each positive, 0 .. l − 1, and how many items each has.
    groups : (items [H] int64, unit [H] int64, draw int)
        How many items each group has; the identity of each, where identities ahead are counted in
        place of items, or else nothing; how many items are drawn.
    memory : (ahead [H] int64, active [H] int64, missed [units] float64, touched [units] int64)
        `ahead` is 0, and `missed` 1, before and after.
    nodes : Nodes
    within : [3, R] float64, written
        For each of `SHOT_RULES`.
    inverse : [3] float64, written
        E[1/r] of the drawn positive, by items; −1 where several may be drawn. Empty where it is not
        wanted.
    """
    ahead, active, missed, touched = memory
    items, unit, draw = groups
    ranks = within.shape[1]
    within[:] = 0.0
    wanted = len(inverse) > 0
    single = wanted and len(own[1]) == 1 and min(draw, own[1][0]) == 1
    inverse[:] = 0.0 if single else -1.0
    first_drawn = _first_drawn(own[0], own[1], draw)
    begin, found, p = 0, 0, 0
    while p < len(distance):
        last = p + 1
        while last < len(distance) and distance[last] == distance[p]:
            last += 1
        nearest, next_rule = ROWS * (first + p), 3
        end = nearest + 1  # without ties all rules read the first row
        if tied[p] > 0:
            end = ROWS * (first + last)
        for row in range(nearest, end):
            rule, s = row % ROWS, row // ROWS - first
            if (rule == 0 and s > p) or (rule == 2 and s < last - 1):
                continue  # only the first positive as far has the one, and the last the other
            if tied[p] > 0:
                next_rule = rule + 1
            begin, found = add_entries(entries, packing, begin, row, ahead, active, found)
            start, stop = (s, s + 1) if rule == 1 else (p, last)
            weight = first_drawn[start:stop].sum()
            if weight == 0.0:
                continue
            near = active[:found]
            if len(unit):
                chance = _identities_ahead(ahead, items, draw, near, unit, missed, touched, ranks)
            else:
                chance = _drawn_ahead(ahead, items, draw, near, ranks)
            expected = _inverse(ahead, items, draw, near, nodes) if single else 0.0
            for r in range(rule, next_rule):
                within[r] += weight * chance
                if single:
                    inverse[r] += weight * expected
        p = last
    for t in range(found):
        ahead[active[t]] = 0
    for r in range(len(within)):
        within[r] = np.minimum(np.cumsum(within[r]), 1.0)


@compiled
def _first_drawn(group, items, draw):  # type: ignore[no-untyped-def]
    """Return the probability that each positive is the first one that is drawn, [P] float64."""
    chance, before = np.empty(len(group)), np.zeros(len(items), np.int64)
    for p in range(len(group)):
        own = group[p]
        chance[p] = min(draw, items[own]) / (items[own] - before[own])
        for h in range(len(items)):
            chance[p] *= _miss(before[h], items[h], draw)
        before[own] += 1
    return chance


@compiled
def _miss(ahead, items, draw):  # type: ignore[no-untyped-def]
    """Return the probability that none of the items ahead in a group is drawn."""
    chance = 1.0
    for i in range(min(draw, items)):
        chance *= max(items - ahead - i, 0) / (items - i)
    return chance


@compiled
def _drawn_of_group(ahead, items, draw, own):  # type: ignore[no-untyped-def]
    """Write the probability that 0, 1, .. drawn items of a group are ahead; return the most."""
    a, n, k = ahead, items, min(draw, items)
    most, least = min(a, k), max(k - (n - a), 0)
    own[:least] = 0.0
    own[least] = _miss(a, n, k)
    if least > 0:  # all that are not ahead are drawn
        own[least] = 1.0
        for i in range(n - a):
            own[least] *= (k - i) / (n - i)
    for j in range(least, most):
        own[j + 1] = own[j] * ((a - j) * (k - j)) / ((j + 1) * (n - a - k + j + 1))
    return most


@compiled
def _drawn_ahead(ahead, items, draw, active, length):  # type: ignore[no-untyped-def]
    """Return the probability that 0, 1, .. of the drawn items are ahead, [length] float64."""
    chance, own, reached = np.zeros(length), np.empty(_most(ahead, draw, active) + 1), 0
    chance[0] = 1.0
    for t in range(len(active)):
        most = _drawn_of_group(ahead[active[t]], items[active[t]], draw, own)
        reached = min(reached + most, length - 1)
        for x in range(reached, -1, -1):
            total = 0.0
            for j in range(min(most, x) + 1):
                total += chance[x - j] * own[j]
            chance[x] = total
        if t % _EVERY == _EVERY - 1 and chance.sum() < NEGLIGIBLE:
            return np.zeros(length)
    return chance


@compiled
def _inverse(ahead, items, draw, active, nodes):  # type: ignore[no-untyped-def]
    """Return E[1/(1 + N)], N the number of drawn items ahead."""
    own, mean, degree = np.empty(_most(ahead, draw, active) + 1), 0.0, 0
    for h in active:
        mean += min(draw, items[h]) * ahead[h] / items[h]
        degree += min(draw, ahead[h])
    rule = 0
    while rule < len(nodes.start) - 2:
        if enough(nodes.start[rule + 1] - nodes.start[rule], degree, mean):
            break
        rule += 1
    rule_of = slice(nodes.start[rule], nodes.start[rule + 1])
    place, value = nodes.place[rule_of], nodes.weight[rule_of].copy()
    for h in active:
        most = _drawn_of_group(ahead[h], items[h], draw, own)
        for i in range(len(place)):
            factor = own[most]
            for j in range(most - 1, -1, -1):
                factor = factor * place[i] + own[j]
            value[i] *= factor
    return value.sum()


@compiled
def _most(ahead, draw, active):  # type: ignore[no-untyped-def]
    """Return the most drawn items of a group that are ahead."""
    most = 0
    for h in active:
        most = max(most, min(ahead[h], draw))
    return most


@compiled
def _identities_ahead(  # type: ignore[no-untyped-def]
    ahead, items, draw, active, unit, missed, touched, length
):
    """Return the probability that 0, 1, .. identities have a drawn item ahead, [length] float64."""
    found = 0
    for h in active:
        u = unit[h]
        if missed[u] == 1.0:
            touched[found] = u
            found += 1
        missed[u] *= _miss(ahead[h], items[h], draw)
    chance, reached = np.zeros(length), 0
    chance[0] = 1.0
    for t in range(found):
        q = missed[touched[t]]
        missed[touched[t]] = 1.0
        reached = min(reached + 1, length - 1)
        for x in range(reached, 0, -1):
            chance[x] = chance[x] * q + chance[x - 1] * (1.0 - q)
        chance[0] *= q
        if t % _EVERY == _EVERY - 1 and chance.sum() < NEGLIGIBLE:
            chance[:], reached = 0.0, 0  # but `missed` is still to be put right
    return chance
