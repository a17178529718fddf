"""The negative inner product, −q·g."""

from __future__ import annotations

from streameval.distances.distance import Distance, FaissMetric, Filter
from streameval.distances.sums import PRODUCT

DISTANCE = Distance(
    name="dot",
    term=PRODUCT,
    finish=lambda sums, query, item: -sums,
    filter=Filter(),
    faiss=FaissMetric(inner_product=True),
)
