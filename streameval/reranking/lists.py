"""Lists of the nearest items, as a search keeps them: side by side in one array of numbers.

So they are merged, recorded and sent as one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.planning.search import width_of
from streameval.typing import AnyArray, FloatArray, Int32Array

NOTHING = -1  # in place of an item, where there are fewer


class Lists(NamedTuple):
    """Lists of the nearest.

    Attributes
    ----------
    distance : [queries, K] float64
        Ascending, ties by item; +inf where there are fewer.
    item : [queries, K] int32
    greatest : [queries] float64
        −inf where there is no item.
    """

    distance: FloatArray
    item: Int32Array
    greatest: FloatArray


def room_for(rows: int, most: int) -> FloatArray:
    """Return an array for lists of the nearest K, [rows, W] float64: see `unpacked`.

    Distances, items of 4 bytes, and the greatest distance, side by side.
    """
    return np.zeros((rows, width_of(most)))  # one half of a number may be of nothing


def unpacked(packed: FloatArray) -> tuple[FloatArray, Int32Array, FloatArray]:
    """Return distances [m, K], items [m, K] int32 and the greatest distance [m], as views."""
    most = 2 * (packed.shape[1] - 1) // 3
    return packed[:, :most], packed[:, most:-1].view(np.int32)[:, :most], packed[:, -1]


def check_found(item: AnyArray) -> None:
    """Raise RuntimeError where a search has left places open that there are items for."""
    if np.any(item == NOTHING):
        raise RuntimeError("a search has found fewer items than there are")


def merge_nearest(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the nearest of two parts of the gallery, packed; what is in both counts once."""
    merged = one.copy()
    _merge(*unpacked(one), *unpacked(other), *unpacked(merged))
    return merged


@compiled
def _merge(distance, item, greatest, others, other, furthest, out, items, most):  # type: ignore[no-untyped-def]
    """Write the nearest of two ascending lists a row, and the greatest of both."""
    for row in range(out.shape[0]):
        most[row] = max(greatest[row], furthest[row])
        t, u = 0, 0
        for place in range(out.shape[1]):
            mine, theirs = distance[row, t], others[row, u]
            if mine < theirs or (mine == theirs and item[row, t] <= other[row, u]):
                out[row, place], items[row, place] = mine, item[row, t]
                same = mine == theirs and item[row, t] == other[row, u] and mine < np.inf
                t, u = t + 1, u + 1 if same else u
            else:
                out[row, place], items[row, place], u = theirs, other[row, u], u + 1
