"""What tests use of `streameval.distances` beside its public names."""

from streameval.distances.lane_sums import absolute_difference as absolute_difference
from streameval.distances.lane_sums import inner_product as inner_product
from streameval.distances.lane_sums import squared_difference as squared_difference
from streameval.distances.registry import DISTANCES as DISTANCES
from streameval.distances.registry import find_distance as find_distance
from streameval.distances.sums import Vectors as Vectors

__all__ = [
    "DISTANCES",
    "Vectors",
    "absolute_difference",
    "find_distance",
    "inner_product",
    "squared_difference",
]
