"""The Manhattan distance, Σ |q − g|; every distance is computed, without a filter."""

from __future__ import annotations

from streameval.distances.distance import Distance
from streameval.distances.sums import ABSOLUTE_DIFFERENCE, FloatArray


class Manhattan(Distance):
    """Σ |q − g|."""

    name = "manhattan"
    term = ABSOLUTE_DIFFERENCE

    def finish(
        self, sums: FloatArray, query_norm: FloatArray | float, item_norm: FloatArray
    ) -> FloatArray:
        """Return the sums."""
        return sums


DISTANCE = Manhattan()
