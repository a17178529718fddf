"""The negative inner product, −q·g."""

from streameval.distances.distance import Distance, Filter
from streameval.distances.sums import PRODUCT

DISTANCE = Distance(
    name="dot",
    term=PRODUCT,
    finish=lambda sums, query, item: -sums,
    filter=Filter(),
    faiss="METRIC_INNER_PRODUCT",
)
