"""Negatives ahead of a few positives, by stretch of the gallery: for ranks, and nothing else.

A row of a tile is compared with each limit as a whole, in a loop that vectorises; what lies
within the band of a limit is decided by its distance.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.doubts import Doubts
from streameval.kernels.edges import Positives
from streameval.kernels.levels import LevelTable, round_up, weighted
from streameval.kernels.tiles import IntArray, Tile

_STRIDE = 256  # values among which those in doubt are looked for


class StretchCounter:
    """Counts negatives ahead of given positives, each stretch of the gallery apart.

    Parameters
    ----------
    positives : Positives
        Of a block of queries.
    cuts : [s + 1] int64
        Gallery index that each stretch begins with, and the end of the last.
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` that serves each query.

    Attributes
    ----------
    ahead : [s, 2, P] int64
        Negatives closer than each positive, and as far as it.
    """

    def __init__(self, positives: Positives, cuts: IntArray, offset_row: IntArray) -> None:
        self.ahead = np.zeros((len(cuts) - 1, 2, len(positives.distance)), np.int64)
        self._positives, self._cuts = positives, cuts
        self._table = LevelTable(positives.indptr, positives.distance, offset_row)
        self._doubts = Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Count a tile."""
        begin = np.searchsorted(tile.columns.item, self._cuts)
        limit = self._positives.distance
        rows, levels = self._table.rows(tile)
        n, row, p = tile.values.shape[1], 0, 0
        self._doubts = self._doubts.enlarged(2 * n)
        while row < len(tile.query):
            row, p, filled = _count(
                tile.values,
                row,
                p,
                rows,
                levels,
                tile.columns,
                begin,
                self._positives.indptr,
                limit,
                self.ahead,
                self._doubts,
            )
            if filled:
                exact, edge = self._doubts.resolve(tile, filled), self._doubts.edge[:filled]
                stretch = np.searchsorted(begin, self._doubts.column[:filled], side="right") - 1
                closer, tied = exact < limit[edge], exact == limit[edge]
                for kind, chosen in enumerate((closer, tied)):
                    np.add.at(self.ahead[:, kind], (stretch[chosen], edge[chosen]), 1)


@numba.njit(nogil=True, cache=True)
def _compare(row, first, last, low, high):  # type: ignore[no-untyped-def]
    """Return how many values of a part of a row are below one limit, and up to another."""
    below, within = 0, 0
    for k in range(first, last):
        below += row[k] < low
        within += row[k] <= high
    return below, within


@numba.njit(nogil=True, cache=True)
def _count(  # type: ignore[no-untyped-def]
    tile, row, done, rows, levels, columns, begin, indptr, limit, ahead, doubts
):
    """Count the negatives of a tile ahead of each limit; list those in doubt.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        +inf where the pair is not a negative.
    row, done : int
        The row to begin with, and how many of its limits are done.
    rows : Rows
    levels : Levels
    columns : Columns
    begin : [s + 1] int64
        The column that each stretch begins with, and n.
    indptr : [queries of the block + 1] int64
        Where the limits of each query begin.
    limit : [P] float64
        Distances.
    ahead : [s, 2, P] int64, added to
    doubts : Doubts
        Of capacity n at least; written: the edge is the limit.

    Returns
    -------
    the row to go on with (m where all are counted), the limits of it that are done, and how many
    doubts there are
    """
    values = np.empty(tile.shape[1], tile.dtype)
    most, filled = values.dtype.type(np.finfo(values.dtype).max), 0
    while row < tile.shape[0]:
        i, band, exact = rows.query[row], rows.band[row], rows.band[row] == 0.0
        count = indptr[i + 1] - indptr[i]
        if done < count:
            weighted(tile[row], columns.weight, columns.offset[rows.offset[row]], values)
        while done < count:
            if filled + len(values) > len(doubts.query):
                return row, done, filled
            p, e = indptr[i] + done, rows.begin[row] + done
            low = -round_up(band - levels.closer[e], values)
            high = min(round_up(levels.tied[e] + band, values), most)  # not what is no negative
            for s in range(len(begin) - 1):
                below, within = _compare(values, begin[s], begin[s + 1], low, high)
                ahead[s, 0, p] += below
                left, left_over = begin[s], within - below
                while left_over > 0:
                    right = min(left + _STRIDE, begin[s + 1])
                    below, within = _compare(values, left, right, low, high)
                    left_over -= within - below
                    for k in range(left, right if within > below else left):
                        if not low <= values[k] <= high:
                            continue
                        if exact:
                            ahead[s, 0, p] += values[k] < limit[p]
                            ahead[s, 1, p] += values[k] == limit[p]
                        else:
                            doubts.query[filled], doubts.column[filled] = i, k
                            doubts.edge[filled] = p
                            filled += 1
                    left = right
            done += 1
        row, done = row + 1, 0
    return row, done, filled
