"""k-reciprocal re-ranking read off its definition, image by image, in float64.

It shares the exponential with the code, whose error has a test of its own, and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from reference import canonical_distances
from support.reranking import exponentials

Array = npt.NDArray[Any]


def oracle_reranked(
    query: Array, gallery: Array, metric: str, k1: int, k2: int, lambda_: float, power: int = 2
) -> Array:
    """Return the re-ranked distances, [Q, G] float64.

    Of normalised rows the squared Euclidean distance is twice the cosine distance.
    """
    both = np.concatenate([query, gallery])
    squared = canonical_distances(both, both, "cosine" if metric == "cosine" else "sqeuclidean")
    np.fill_diagonal(squared, 0.0)
    count, own = len(both), np.arange(len(both))
    greatest = squared.max(axis=1)
    relative = np.zeros_like(squared)
    np.divide(squared, greatest[:, None], out=relative, where=greatest[:, None] > 0)
    relative = relative if power == 2 else relative * relative
    ranked = np.array([np.lexsort((own, squared[i], own != i)) for i in range(count)])
    weights = _weights(ranked, relative, k1)
    if k2 > 1:
        near = np.sort(ranked[:, :k2], axis=1)
        sums = np.zeros_like(weights)
        for t in range(near.shape[1]):
            sums += weights[near[:, t]]
        weights = sums / near.shape[1]
    distances = np.empty((len(query), len(gallery)))
    for q in range(len(query)):
        shared = np.zeros(len(gallery))
        for m in range(count):
            shared += np.minimum(weights[q, m], weights[len(query) :, m])
        shared = np.minimum(shared, 1.0)  # as it is, but for rounding
        jaccard = 1.0 - shared / (2.0 - shared)
        distances[q] = (1.0 - lambda_) * jaccard + lambda_ * relative[q, len(query) :]
    return distances


def _weights(ranked: Array, relative: Array, k1: int) -> Array:
    """Return V before the mean, [N, N]."""

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in ranked[i, : k + 1].tolist() if i in ranked[j, : k + 1]}

    weights = np.zeros_like(relative)
    for i in range(len(ranked)):
        first = reciprocal(i, k1)
        chosen = set(first)
        for candidate in first:
            more = reciprocal(candidate, int(np.around(k1 / 2)))
            if 3 * len(more & first) > 2 * len(more):
                chosen |= more
        members = np.array(sorted(chosen))
        values = exponentials(-relative[i, members])
        weights[i, members] = values / np.cumsum(values)[-1]  # summed one after the other
    return weights
