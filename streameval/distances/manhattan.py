"""The Manhattan distance, Σ |q − g|; every distance is computed, without a filter."""

from streameval.distances.distance import Distance
from streameval.distances.sums import ABSOLUTE_DIFFERENCE

DISTANCE = Distance(
    name="manhattan", term=ABSOLUTE_DIFFERENCE, finish=lambda sums, query, item: sums
)
