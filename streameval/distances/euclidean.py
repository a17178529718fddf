"""The Euclidean distance, sqrt(Σ (q − g)²)."""

from __future__ import annotations

import numpy as np

from streameval.distances.distance import Distance, FaissMetric, SquaredFilter
from streameval.distances.sums import SQUARED_DIFFERENCE

DISTANCE = Distance(
    name="euclidean",
    term=SQUARED_DIFFERENCE,
    finish=lambda sums, query, item: np.sqrt(sums),
    unit_bounds=(0.0, 2.0),
    filter=SquaredFilter(np.square),
    faiss=FaissMetric(
        inner_product=False,
        least=0.0,
        value=np.square,
        distance=lambda value: np.sqrt(np.maximum(value, 0)),
    ),
)
