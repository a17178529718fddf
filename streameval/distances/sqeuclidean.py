"""The squared Euclidean distance, Σ (q − g)²."""

from streameval.distances.distance import Distance, SquaredFilter
from streameval.distances.sums import SQUARED_DIFFERENCE

DISTANCE = Distance(
    name="sqeuclidean",
    term=SQUARED_DIFFERENCE,
    finish=lambda sums, query, item: sums,
    unit_bounds=(0.0, 4.0),
    filter=SquaredFilter(),
    faiss="METRIC_L2",
)
