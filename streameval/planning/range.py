"""Range: the distances that τ = 0 and τ = 1 stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streameval.kernels.edges import threshold_distances
from streameval.typing import FloatArray, JsonObject

UNIT_TOLERANCE = 1e-3
UNUSED: Mapping[str, Any] = {"mode": "unused", "low": None, "high": None}
"""Summary of the range of a result whose metrics read nothing off it."""


class NotUnitError(Exception):
    """Vectors assumed to have length 1 do not; their distances have no known bound."""


@dataclass(frozen=True)
class Range:
    """The distances that τ = 0 and τ = 1 stand for.

    Attributes
    ----------
    low, high : float
    strict : bool
        Whether a distance outside is an error (a range given by the user).
    unit : bool
        Whether the range holds because every vector has length 1; checked while counting.
    """

    low: float
    high: float
    strict: bool = False
    unit: bool = False

    def check_unit(self, norms: FloatArray) -> None:
        """Raise NotUnitError where the range relies on vectors of length 1 and these are not."""
        if self.unit and np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            raise NotUnitError

    @property
    def summary(self) -> JsonObject:
        """Mode and bounds, as a result has them."""
        mode = "given" if self.strict else "auto"
        return {"mode": mode, "low": self.low, "high": self.high}

    def limits(self, thresholds: int, edges: int) -> tuple[FloatArray, FloatArray | None]:
        """Return the thresholds, and the edges of the histogram of impostors.

        Parameters
        ----------
        thresholds, edges : int
            How many: 101 thresholds, or 0 for none; 0 edges where there is no histogram.

        Returns
        -------
        [T] float64, and [E] float64 or None
            Fewer edges, where the range has not as many distances.
        """
        distances: FloatArray = np.empty(0)
        if thresholds:
            distances = threshold_distances(self.low, self.high, clipped=self.unit)
        return distances, uniform_edges(self.low, self.high, edges - 1) if edges else None


def uniform_edges(low: float, high: float, bins: int) -> FloatArray:
    """Return the edges of B uniform bins between two distances, [B + 1] float64, ascending.

    Fewer where they are not B distances apart: each edge once.
    """
    edges = low + (high - low) * (np.arange(bins + 1) / bins)
    edges[-1] = high
    return np.unique(edges)
