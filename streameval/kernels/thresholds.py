"""Thresholds: which distances lie within τ_t = t / 100 of a range."""

from __future__ import annotations

import math
import struct

import numpy as np
import numpy.typing as npt

STEPS = 100


def threshold_distances(
    low: float, high: float, *, clipped: bool = False
) -> npt.NDArray[np.float64]:
    """Return, for each τ_t, the greatest distance that lies within it.

    A distance d lies within τ_t where ``(d − low) / (high − low) <= t / 100``, all in float64
    (GOM paper, §5: distances are normalised to [0, 1]). As the left side never falls with d,
    the condition is ``d <= edge`` for one float64 edge: next to low + τ (high − low), or found by
    bisection over the floats (where low and d nearly cancel).
    With ``low == high`` every distance is normalised to 0.

    Parameters
    ----------
    low, high : float
        What τ = 0 and τ = 1 stand for; low <= high.
    clipped : bool
        Whether normalised distances beyond 1 count as 1.

    Returns
    -------
    [101] float64, ascending
    """
    if low == high:
        edges = np.full(STEPS + 1, high)
    else:
        edges = np.array([_greatest_within(low, high, t / STEPS) for t in range(STEPS + 1)])
    if clipped:
        edges[-1] = np.inf
    return edges


def _greatest_within(low: float, high: float, tau: float) -> float:
    """Return the greatest float64 d with (d − low) / (high − low) <= tau."""
    width = high - low

    def within(value: float) -> bool:
        return (value - low) / width <= tau

    edge = low + tau * width  # nearly always the one, or next to it
    for _ in range(8):
        following = math.nextafter(edge, math.inf)
        if not within(edge):
            edge = math.nextafter(edge, -math.inf)
        elif within(following):
            edge = following
        else:
            return edge
    inside, outside = _order(low), _order(math.inf)
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if within(_float(middle)):
            inside = middle
        else:
            outside = middle
    return _float(inside)


def _order(value: float) -> int:
    """Return the place of a float among all floats in ascending order."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF)


def _float(order: int) -> float:
    """Return the float at a place given by `_order`."""
    bits = order if order >= 0 else -order | -0x8000000000000000
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value
