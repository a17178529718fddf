"""The cosine distance, 1 − q·g / (|q| |g|), clipped to [0, 2]."""

from __future__ import annotations

import numpy as np

from streameval.distances.distance import Distance, FaissMetric
from streameval.distances.filter import NormalisedFilter
from streameval.distances.sums import PRODUCT, FloatArray


class _Faiss(FaissMetric):
    inner_product = True
    normalised = True
    least = 0.0

    def value(self, distance: FloatArray) -> FloatArray:
        return distance - 1

    def distance(self, value: FloatArray) -> FloatArray:
        return 1 + value


class Cosine(Distance):
    """1 − q·g / (|q| |g|)."""

    name = "cosine"
    term = PRODUCT
    bounds = (0.0, 2.0)
    uses_lengths = False
    filter = NormalisedFilter()
    faiss = _Faiss()

    def finish(
        self, sums: FloatArray, query_norm: FloatArray | float, item_norm: FloatArray
    ) -> FloatArray:
        """Return 1 − the quotient, clipped to [0, 2]."""
        value = 1.0 - sums / (query_norm * item_norm)
        return np.minimum(np.maximum(value, 0.0), 2.0)


DISTANCE = Cosine()
