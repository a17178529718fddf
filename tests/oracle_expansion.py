"""Query expansion, augmentation and multi-query read off their definitions, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from reference import canonical_distances, lane_sum

Array = npt.NDArray[Any]


def as_added(rows: Array, metric: str) -> Array:
    """Return rows as they are added: divided by their norms under cosine."""
    rows = rows.astype(np.float64)
    return rows / np.sqrt(lane_sum(rows * rows))[:, None] if metric == "cosine" else rows


def oracle_expanded(
    query: Array, gallery: Array, metric: str, name: str, k: int, alpha: float = 3.0
) -> Array:
    """Return the queries after expansion, or the gallery after augmentation, float64."""
    rows = gallery if name == "dba" else query
    ranked_by = "sqeuclidean" if metric == "euclidean" else metric
    distances = canonical_distances(rows, gallery, ranked_by)
    if name == "dba":
        np.fill_diagonal(distances, np.inf)
        k = min(k, len(gallery) - 1)
    items, added = as_added(gallery, metric), as_added(rows, metric)
    for i, row in enumerate(distances):
        for j in np.lexsort((np.arange(len(row)), row))[:k]:
            weight = 1.0
            if name == "alpha-qe":
                product = 1.0 - row[j] if metric == "cosine" else -row[j]
                weight = max(product, 0.0) ** alpha
            added[i] += weight * items[j]
    return added if name == "alpha-qe" else added / (min(k, len(gallery)) + 1)


def oracle_fused(
    query: Array, labels: Array, more: Array, of_more: Array, metric: str, fuse: str
) -> Array:
    """Return fused queries; labels are pairs of identity and camera, [n, 2]."""
    fused, others = as_added(query, metric), as_added(more, metric)
    for i, label in enumerate(labels):
        own = others[(of_more == label).all(axis=1)]
        if len(own) == 0:
            fused[i] = query[i]
            continue
        for row in own:
            fused[i] = np.maximum(fused[i], row) if fuse == "max" else fused[i] + row
        if fuse == "mean":
            fused[i] /= len(own) + 1
    return fused
