"""The least and the greatest distance of all pairs that take part."""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.bins import least_of, most_of
from streameval.kernels.doubts import Doubts
from streameval.kernels.levels import Rows, part_of, round_up, row_levels, weighted
from streameval.kernels.tiles import IntArray, Tile

_PART = 2048  # values looked at together: they stay in L1


class ExtremesCounter:
    """Finds the least and the greatest distance.

    Parameters
    ----------
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` that serves each query.

    Attributes
    ----------
    least, most : float
        So far; +inf and −inf of no pair.
    """

    def __init__(self, offset_row: IntArray) -> None:
        self.least, self.most = np.inf, -np.inf
        self._offset_row, self._doubts = offset_row, Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Look at a tile, in which ignored pairs are +inf."""
        query, band = tile.query, tile.band
        rows = Rows(query, self._offset_row[query], band, query)
        self._doubts = self._doubts.enlarged(2 * tile.values.shape[1])
        row = 0
        while row < len(query):
            low = row_levels(tile, np.full(len(query), self.least)).tied + band
            high = row_levels(tile, np.full(len(query), self.most)).closer - band
            row, filled, least, most = _find(
                tile.values, row, rows, tile.columns, low, high, self._doubts
            )
            self._widen(np.array([least, most]))
            if filled:
                self._widen(self._doubts.resolve(tile, filled))

    def _widen(self, distances: np.ndarray) -> None:
        finite = distances[np.isfinite(distances)]
        self.least = float(min(self.least, finite.min(initial=np.inf)))
        self.most = float(max(self.most, finite.max(initial=-np.inf)))


@numba.njit(nogil=True, cache=True)
def _write(row, weight, offset, out):  # type: ignore[no-untyped-def]
    """Write ``row * weight + offset``; return the least, and the greatest below +inf."""
    bottom, top = out.dtype.type(np.inf), out.dtype.type(-np.inf)
    for left in range(0, len(row), _PART):
        right = min(left + _PART, len(row))
        part = out[left:right]
        weighted(row[left:right], part_of(weight, left, right), offset[left:right], part)
        bottom, top = min(bottom, least_of(part)), max(top, most_of(part))
    return bottom, top


@numba.njit(nogil=True, cache=True)
def _find(tile, row, rows, columns, low, high, doubts):  # type: ignore[no-untyped-def]
    """List the values of a tile that may be extreme.

    Parameters
    ----------
    tile : [m, n] float32 or float64
    row : int
        The row to begin with.
    rows : Rows
    columns : Columns
    low, high : [m] float64
        Values between these are not.
    doubts : Doubts
        Of capacity n at least; written.

    Returns
    -------
    the row to go on with (m where all are looked at), how many doubts there are, and the least
    and the greatest of the values that are exact
    """
    n, filled, least, most = tile.shape[1], 0, np.inf, -np.inf
    values = np.empty(n, tile.dtype)
    while row < tile.shape[0] and filled + n <= len(doubts.query):
        bottom, top = _write(tile[row], columns.weight, columns.offset[rows.offset[row]], values)
        band = rows.band[row]
        if band == 0.0:
            least, most = min(least, np.float64(bottom)), max(most, np.float64(top))
        elif bottom <= low[row] or top >= high[row]:
            below = round_up(min(low[row], bottom + 2 * band), values)
            above = -round_up(-max(high[row], top - 2 * band), values)
            for k in range(n):
                if values[k] != np.inf and (values[k] <= below or values[k] >= above):
                    doubts.query[filled], doubts.column[filled] = rows.query[row], k
                    filled += 1
        row += 1
    return row, filled, least, most
