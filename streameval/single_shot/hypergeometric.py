"""How many drawn negatives are ahead of the first positive, over all draws of a gallery.

Of each group h with n items, k are drawn (all where there are fewer), all sets of k alike, and each
group independently of the others. Where a items of a group are ahead of a positive, none of them is
drawn with probability

    miss(a) = C(n − a, k) / C(n, k),

and how many are drawn follows the hypergeometric distribution. The groups of a query's own identity
have positives alone, of which a positive p is the first that is drawn with probability

    miss_g(a_g) k / (n_g − a_g)  Π_h≠g miss_h(a_h),

g its group, a_h the positives of a group h ahead of it. Given that, the numbers of drawn negatives
ahead add up, group by group, by convolution. All terms are positive: nothing cancels.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.single_shot.ahead import ROWS
from streameval.single_shot.poisson_binomial import add_entries


@compiled
def draws_of_query(  # type: ignore[no-untyped-def]
    entries, packing, first, distance, tied, own, groups, memory, within, inverse
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
            if single or len(unit) == 0:
                length = 1
                for h in near:
                    length += min(ahead[h], draw)
                by_item = _drawn_ahead(
                    ahead, items, draw, near, length if single else min(length, ranks)
                )
            else:
                by_item = np.empty(0)
            counted = by_item
            if len(unit):
                counted = _identities_ahead(ahead, items, draw, near, unit, missed, touched, ranks)
            for r in range(rule, next_rule):
                for x in range(min(len(counted), ranks)):
                    within[r, x] += weight * counted[x]
                if single:
                    for x in range(len(by_item)):
                        inverse[r] += weight * by_item[x] / (x + 1)
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
def _drawn_ahead(ahead, items, draw, active, length):  # type: ignore[no-untyped-def]
    """Return the probability that 0, 1, .. of the drawn items are ahead, [length] float64."""
    chance, own, reached = np.zeros(length), np.empty(0), 0
    chance[0] = 1.0
    for h in active:
        a, n, k = ahead[h], items[h], min(draw, items[h])
        most = min(a, k)
        if len(own) <= most:
            own = np.empty(most + 1)
        least = max(k - (n - a), 0)
        own[:least] = 0.0
        own[least] = 1.0
        if least > 0:  # all that are not ahead are drawn
            for i in range(n - a):
                own[least] *= (k - i) / (n - i)
        else:
            own[0] = _miss(a, n, k)
        for j in range(least, most):
            own[j + 1] = own[j] * ((a - j) * (k - j)) / ((j + 1) * (n - a - k + j + 1))
        reached = min(reached + most, length - 1)
        for x in range(reached, -1, -1):
            total = 0.0
            for j in range(min(most, x) + 1):
                total += chance[x - j] * own[j]
            chance[x] = total
    return chance


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
    return chance
