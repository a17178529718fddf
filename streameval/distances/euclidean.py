"""The Euclidean distance, sqrt(Σ (q − g)²)."""

import numpy as np

from streameval.distances.distance import Distance, SquaredFilter
from streameval.distances.sums import SQUARED_DIFFERENCE

DISTANCE = Distance(
    name="euclidean",
    term=SQUARED_DIFFERENCE,
    finish=lambda sums, query, item: np.sqrt(sums),
    unit_bounds=(0.0, 2.0),
    filter=SquaredFilter(
        value=lambda distance: distance * np.abs(distance),  # of thresholds below 0, too
        distance=lambda value: np.sqrt(np.maximum(value, 0)),
    ),
    faiss="METRIC_L2",
)
