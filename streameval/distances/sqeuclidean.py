"""The squared Euclidean distance, Σ (q − g)²."""

from __future__ import annotations

from streameval.distances.distance import Distance, FaissMetric
from streameval.distances.filter import SquaredFilter
from streameval.distances.sums import SQUARED_DIFFERENCE, FloatArray


class _Faiss(FaissMetric):
    inner_product = False
    least = 0.0

    def value(self, distance: FloatArray) -> FloatArray:
        return distance

    def distance(self, value: FloatArray) -> FloatArray:
        return value


class SquaredEuclidean(Distance):
    """Σ (q − g)²."""

    name = "sqeuclidean"
    term = SQUARED_DIFFERENCE
    unit_bounds = (0.0, 4.0)
    filter = SquaredFilter()
    faiss = _Faiss()

    def finish(
        self, sums: FloatArray, query_norm: FloatArray | float, item_norm: FloatArray
    ) -> FloatArray:
        """Return the sums."""
        return sums


DISTANCE = SquaredEuclidean()
