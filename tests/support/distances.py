"""What tests use of `streameval.distances` beside its public names."""

from streameval.choices import DISTANCES as DISTANCES
from streameval.distances.distance import find_distance as find_distance
from streameval.distances.sums import Vectors as Vectors
from streameval.distances.sums import absolute_difference as absolute_difference
from streameval.distances.sums import inner_product as inner_product
from streameval.distances.sums import squared_difference as squared_difference

__all__ = [
    "DISTANCES",
    "Vectors",
    "absolute_difference",
    "find_distance",
    "inner_product",
    "squared_difference",
]
