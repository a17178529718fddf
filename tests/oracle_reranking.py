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


def squared_distances(rows: Array, metric: str) -> Array:
    """Return D of all images, [N, N] float64; of normalised rows, half of it."""
    squared = canonical_distances(rows, rows, "cosine" if metric == "cosine" else "sqeuclidean")
    np.fill_diagonal(squared, 0.0)
    return squared


def oracle_reranked(
    query: Array, gallery: Array, metric: str, k1: int, k2: int, lambda_: float, power: int = 2
) -> Array:
    """Return the re-ranked distances, [Q, G] float64."""
    squared = squared_distances(np.concatenate([query, gallery]), metric)
    own = np.arange(len(squared))
    ranked = np.array([np.lexsort((own, squared[i], own != i)) for i in own])
    options = {"k1": k1, "k2": k2, "lambda_": lambda_, "power": power}
    return oracle_of_lists(squared, ranked, own, (len(query), len(gallery)), options)


def oracle_of_lists(
    squared: Array, lists: Array, sample: Array, shape: tuple[int, int], options: dict[str, Any]
) -> Array:
    """Return the re-ranked distances where neighbours are those of lists, [Q, G] float64.

    Parameters
    ----------
    squared : [N, N] float64
    lists : [N, >= K + 1] int
        Each image first.
    sample : [S] int
        The images that the greatest distances of gallery items are to, beside those of its
        neighbourhood. Those of queries are to all.
    shape : (int, int)
        (Q, G).
    options : dict
        Parameters of `oracle_reranked`.
    """
    k1, k2, mix = options["k1"], options["k2"], options["lambda_"]
    count, queries = sum(shape), shape[0]

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in lists[i, : k + 1].tolist() if i in lists[j, : k + 1]}

    def relative(distances: Array, greatest: float) -> Array:
        found = distances / greatest if greatest > 0 else np.zeros(distances.shape)
        return found if options["power"] == 2 else found * found

    def furthest(i: int, among: Array) -> float:
        return float(squared[i, among[among != i]].max(initial=0.0))

    weights, greatest = np.zeros((count, count)), np.zeros(count)
    for i in range(count):
        first = reciprocal(i, k1)
        chosen = set(first)
        for candidate in first:
            more = reciprocal(candidate, int(np.around(k1 / 2)))
            if 3 * len(more & first) > 2 * len(more):
                chosen |= more
        members = np.array(sorted(chosen))
        looked_at = np.arange(count) if i < queries else sample
        greatest[i] = max(furthest(i, one) for one in (looked_at, lists[i], members))
        values = exponentials(-relative(squared[i, members], greatest[i]))
        weights[i, members] = values / np.cumsum(values)[-1]  # summed one after the other
    if k2 > 1:
        near, sums = np.sort(lists[:, :k2], axis=1), np.zeros_like(weights)
        for t in range(near.shape[1]):
            sums += weights[near[:, t]]
        weights = sums / near.shape[1]
    distances = np.empty(shape)
    for q in range(queries):
        shared = np.zeros(shape[1])
        for m in range(count):
            shared += np.minimum(weights[q, m], weights[queries:, m])
        shared = np.minimum(shared, 1.0)  # as it is, but for rounding
        jaccard = 1.0 - shared / (2.0 - shared)
        distances[q] = (1.0 - mix) * jaccard + mix * relative(squared[q, queries:], greatest[q])
    return distances
