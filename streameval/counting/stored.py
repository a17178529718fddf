"""Counting in tiles of stored distances: a stored entry is its own canonical value."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from streameval.counting.edges import Edges
from streameval.counting.rows import (
    BLOCK,
    CELLS,
    any_up_to,
    bin_row,
    cell_of,
    fold,
    lay_grid,
    place,
)

FloatTile = npt.NDArray[np.floating]


@numba.njit(nogil=True, cache=True)
def _count(  # type: ignore[no-untyped-def]
    tile,
    offset,
    offset_row,
    first_item,
    edge_indptr,
    edges,
    pitch,
    positive_indptr,
    positives,
    items,
    slots,
    tied_before,
    nearest,
):
    histogram = np.zeros(CELLS, np.uint32)
    cells = np.empty(BLOCK, np.uint16)
    is_touched = np.empty(CELLS, np.uint8)
    first_edge = np.empty(CELLS, np.int32)
    touched = np.empty(tile.shape[1] + 1, np.int32)
    most = 0
    for i in range(tile.shape[0]):
        most = max(most, edge_indptr[i + 1] - edge_indptr[i])
    gap_begin, gap_end = np.empty(most + 1, np.int32), np.empty(most + 1, np.int32)
    for i in range(tile.shape[0]):
        values, add = tile[i], offset[offset_row[i]]
        own = edges[edge_indptr[i] : edge_indptr[i + 1]]
        nearer = True
        if len(own) > 0:
            first_slot = 2 * edge_indptr[i] + i
            own_slots = slots[first_slot : first_slot + 2 * len(own) + 1]
            p, q = positive_indptr[i], positive_indptr[i + 1]
            origin, scale, top = lay_grid(
                own, 0.0, pitch, values, first_edge, is_touched, gap_begin, gap_end
            )
            found = bin_row(values, add, origin, scale, top, is_touched, histogram, cells, touched)
            for t in range(found):
                k = touched[t]
                value = np.float64(values[k] + add[k])
                if value == np.inf:
                    continue
                e = first_edge[cell_of(values[k] + add[k], origin, scale, top)]
                e += own[e] < value
                while e < len(own) and own[e] < value:
                    e += 1
                if e == len(own) or value < own[e]:
                    own_slots[2 * e] += 1
                else:
                    place(
                        value,
                        first_item + k,
                        e,
                        own,
                        own_slots,
                        positives,
                        items,
                        p,
                        q,
                        tied_before,
                    )
            reach = cell_of(values.dtype.type(nearest[i]), origin, scale, top)
            nearer = any_up_to(histogram, reach)
            fold(histogram, gap_begin, gap_end, own_slots)
        if nearer:  # perhaps
            for k in range(len(values)):
                nearest[i] = min(nearest[i], np.float64(values[k] + add[k]))


def count_stored(
    tile: FloatTile,
    offset: FloatTile,
    offset_row: npt.NDArray[np.int64],
    first_item: int,
    edges: Edges,
    slots: npt.NDArray[np.int64],
    tied_before: npt.NDArray[np.int64],
    nearest: npt.NDArray[np.float64],
) -> None:
    """Count a tile of stored distances.

    Parameters
    ----------
    tile : [m, n] float32 or float64
        Finite distances; +inf where the pair is not a negative.
    offset : [b, n], of the same dtype
        Added to each row: 0, or +inf for items that take no part.
    offset_row : [m] int64
        The row of `offset` for each query.
    first_item : int
        Gallery index of the first column.
    edges : Edges
        Of these m queries.
    slots : [2E + m] int64, added to
    tied_before : [P] int64, added to
    nearest : [m] float64, lowered to the nearest negative
    """
    if tile.size:
        _count(
            tile,
            offset,
            offset_row,
            first_item,
            edges.indptr,
            edges.distance,
            edges.pitch,
            edges.positive_indptr,
            edges.positive_distance,
            edges.positive_item,
            slots,
            tied_before,
            nearest,
        )


@numba.njit(nogil=True, cache=True)
def _all_finite(tile):  # type: ignore[no-untyped-def]
    bad = 0
    for i in range(tile.shape[0]):
        for k in range(tile.shape[1]):
            difference = tile[i, k] - tile[i, k]  # 0, or NaN where not finite
            bad += difference != 0
    return bad == 0


def first_not_finite(tile: FloatTile) -> tuple[int, int] | None:
    """Return (row, column) of the first NaN or ±inf of a tile, or None."""
    if _all_finite(tile):
        return None
    row, column = np.argwhere(~np.isfinite(tile))[0]
    return int(row), int(column)


@numba.njit(nogil=True, cache=True)
def _extremes(tile, offset, offset_row, least, most):  # type: ignore[no-untyped-def]
    for i in range(tile.shape[0]):
        add = offset[offset_row[i]]
        for k in range(tile.shape[1]):
            value = np.float64(tile[i, k] + add[k])
            if value != np.inf:
                least = min(least, value)
                most = max(most, value)
    return least, most


def stored_extremes(
    tile: FloatTile, offset: FloatTile, offset_row: npt.NDArray[np.int64]
) -> tuple[float, float]:
    """Return the least and greatest distance of a tile; (inf, −inf) where there is none.

    Parameters
    ----------
    tile, offset, offset_row
        As in `count_stored`, with +inf for ignored pairs only.
    """
    least, most = _extremes(tile, offset, offset_row, np.inf, -np.inf)
    return float(least), float(most)
