"""The negative inner product, −q·g."""

from __future__ import annotations

from streameval.distances.distance import Distance, FaissMetric
from streameval.distances.filter import ProductFilter
from streameval.distances.sums import PRODUCT, FloatArray


class _Faiss(FaissMetric):
    inner_product = True

    def value(self, distance: FloatArray) -> FloatArray:
        return distance

    def distance(self, value: FloatArray) -> FloatArray:
        return value


class Dot(Distance):
    """−q·g."""

    name = "dot"
    term = PRODUCT
    filter = ProductFilter()
    faiss = _Faiss()

    def finish(
        self, sums: FloatArray, query_norm: FloatArray | float, item_norm: FloatArray
    ) -> FloatArray:
        """Return the negative sums."""
        return -sums


DISTANCE = Dot()
