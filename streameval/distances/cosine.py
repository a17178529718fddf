"""The cosine distance, 1 − q·g / (|q| |g|), clipped to [0, 2]."""

from __future__ import annotations

import numpy as np

from streameval.distances.distance import Distance, FaissMetric, NormalisedFilter
from streameval.distances.sums import PRODUCT

DISTANCE = Distance(
    name="cosine",
    term=PRODUCT,
    finish=lambda sums, query, item: np.minimum(np.maximum(1.0 - sums / (query * item), 0.0), 2.0),
    bounds=(0.0, 2.0),
    uses_lengths=False,
    filter=NormalisedFilter(),
    faiss=FaissMetric(
        inner_product=True,
        normalised=True,
        least=0.0,
        value=lambda distance: distance - 1,
        distance=lambda value: 1 + value,
    ),
)
