"""The cosine distance, 1 − q·g / (|q| |g|), clipped to [0, 2]."""

import numpy as np

from streameval.distances.distance import Distance, NormalisedFilter
from streameval.distances.sums import PRODUCT

DISTANCE = Distance(
    name="cosine",
    term=PRODUCT,
    finish=lambda sums, query, item: np.minimum(np.maximum(1.0 - sums / (query * item), 0.0), 2.0),
    bounds=(0.0, 2.0),
    uses_lengths=False,
    filter=NormalisedFilter(value=lambda distance: distance - 1, distance=lambda value: 1 + value),
    faiss="METRIC_INNER_PRODUCT",
)
