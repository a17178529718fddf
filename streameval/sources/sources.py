"""Names of sources under their former module."""

from streameval.sources.distances import Distances
from streameval.sources.features import Features
from streameval.sources.matrix import ArrayLike

__all__ = ["ArrayLike", "Distances", "Features"]
