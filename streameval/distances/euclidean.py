"""The Euclidean distance, sqrt(Σ (q − g)²)."""

from __future__ import annotations

import numpy as np

from streameval.distances.distance import Distance, FaissMetric
from streameval.distances.filter import SquaredFilter
from streameval.distances.sums import SQUARED_DIFFERENCE, FloatArray


class _Filter(SquaredFilter):
    def base(self, distance: FloatArray) -> FloatArray:
        return np.where(distance < 0.0, -np.inf, distance * distance)


class _Faiss(FaissMetric):
    inner_product = False
    least = 0.0

    def value(self, distance: FloatArray) -> FloatArray:
        return distance**2

    def distance(self, value: FloatArray) -> FloatArray:
        root: FloatArray = np.sqrt(np.maximum(value, 0))
        return root


class Euclidean(Distance):
    """sqrt(Σ (q − g)²)."""

    name = "euclidean"
    term = SQUARED_DIFFERENCE
    unit_bounds = (0.0, 2.0)
    filter = _Filter()
    faiss = _Faiss()

    def finish(
        self, sums: FloatArray, query_norm: FloatArray | float, item_norm: FloatArray
    ) -> FloatArray:
        """Return the square root of the sums."""
        root: FloatArray = np.sqrt(sums)
        return root


DISTANCE = Euclidean()
