"""The reference for single gallery shot: every identity of every positive, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from oracle import Array, Problem

RULES = ("optimistic", "stable", "pessimistic")


@dataclass(frozen=True, eq=False)
class OracleShots:
    """`ahead` and `valid` [P, 3, H] for the sorted distinct identities; `chance` [Q, 3, R]."""

    ahead: Array
    valid: Array
    chance: Array


def numbers_ahead(chances: Array) -> Array:
    """Return how likely 0, 1, .. of independent events happen, by convolution."""
    likely = np.ones(1)
    for p in chances:
        likely = np.convolve(likely, [1 - p, p])
    return likely


def oracle_shots(problem: Problem, ranks: int) -> OracleShots:
    """Count, for every positive and identity, the valid items and those ahead."""
    identities = np.unique(problem.gallery_id)
    ahead, valid = [], []
    chance = np.zeros((len(problem.distances), len(RULES), ranks))
    for i, distance in enumerate(problem.distances):
        ignored, same = problem.row(i)
        positives = np.flatnonzero(same & ~ignored)
        positives = positives[np.argsort(distance[positives], kind="stable")]
        for j in positives:
            at = distance == distance[j]
            before = {
                "optimistic": distance < distance[j],
                "stable": (distance < distance[j]) | (at & (np.arange(len(at)) < j)),
                "pessimistic": distance <= distance[j],
            }
            negative = ~ignored & ~same
            own = [problem.gallery_id == h for h in identities]
            items = np.array([np.sum(negative & one) for one in own])
            counts = [[np.sum(before[rule] & negative & one) for one in own] for rule in RULES]
            for rule, count in enumerate(counts):
                likely = np.cumsum(numbers_ahead(np.array(count)[items > 0] / items[items > 0]))
                likely = np.append(likely, np.ones(ranks))[:ranks]
                chance[i, rule] += likely / len(positives)
            ahead.append(counts)
            valid.append([items] * len(RULES))
    shape = (-1, len(RULES), len(identities))
    return OracleShots(
        np.array(ahead, int).reshape(shape), np.array(valid, int).reshape(shape), chance
    )
