"""The canonical distance, written again in NumPy: slow, and sharing no code with the kernels.

The order of operations is what `streameval.distances.sums` promises: element d goes to
lane d % 32, lanes are summed in ascending d, then in halves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def lane_sum(terms: Array) -> Array:
    """Sum [..., D] float64 over the last axis in the canonical order."""
    width = terms.shape[-1]
    lanes = np.zeros((*terms.shape[:-1], 32))
    for start in range(0, width, 32):
        part = terms[..., start : start + 32]
        lanes[..., : part.shape[-1]] += part
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def canonical_distances(query: Array, gallery: Array, metric: str) -> Array:
    """Return the canonical distance matrix [Q, G] float64."""
    q, g = query.astype(np.float64), gallery.astype(np.float64)
    rows = [_row(one, g, metric) for one in q]
    return np.array(rows).reshape(len(q), len(g))


def _row(one: Array, gallery: Array, metric: str) -> Array:
    if metric in ("euclidean", "sqeuclidean"):
        squared = lane_sum((one - gallery) ** 2)
        return np.sqrt(squared) if metric == "euclidean" else squared
    if metric == "manhattan":
        return lane_sum(np.abs(one - gallery))
    dot = lane_sum(one * gallery)
    if metric == "dot":
        return -dot
    norms = np.sqrt(lane_sum(one * one)) * np.sqrt(lane_sum(gallery * gallery))
    return np.clip(1.0 - dot / norms, 0.0, 2.0)
