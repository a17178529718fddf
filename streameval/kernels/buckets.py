"""Buckets: rows with many edges, which touch many cells of a grid.

Codes are those of `grids`, but for all edges of a row: twice the number of edges whose bands end
before the cell, and one more where a band touches it. The first edge that a value in a touched cell
does not exceed is the next, or one of the few that follow in the cell. So values are placed by two
comparisons, without a branch, where edges are spread over the cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streameval.compilation import compiled
from streameval.kernels.cells import bin_row
from streameval.kernels.edges import first_reached
from streameval.kernels.grids import ABOVE, CELLS, LAST, WAYS
from streameval.typing import FloatArray

FEWEST, MOST = 128, 32_000  # edges of a row; codes can't number more

CellArray = npt.NDArray[np.uint16]


class Room(NamedTuple):
    """Memory for rows of n values, with m edges at most.

    Attributes
    ----------
    code : [CELLS] uint16
    bins : [WAYS, 2 m + 4] uint16
        Values by code; zeros between rows.
    bounds : [2, m + 1] float64
        Where the band of each edge begins and ends. The last of the first is NaN, which no value
        is beyond, the last of the second +inf.
    cells : [2, m] uint16
        Of the bounds.
    near : [n + 7] uint32
        The edge of each listed value.
    """

    code: CellArray
    bins: CellArray
    bounds: FloatArray
    cells: CellArray
    near: npt.NDArray[np.uint32]


@compiled
def room_for(query, indptr, n):  # type: ignore[no-untyped-def]
    """Return memory for rows of n values of some queries, whose edges begin at `indptr`."""
    m = 0
    for i in query:
        m = max(m, indptr[i + 1] - indptr[i])
    m = min(m, MOST) if m >= FEWEST else 0
    return Room(
        np.empty(CELLS, np.uint16),
        np.zeros((WAYS, 2 * m + 4), np.uint16),
        np.empty((2, m + 1)),
        np.empty((2, m), np.uint16),
        np.empty(n + 7 if m else 0, np.uint32),
    )


@compiled
def count_row(own, values, cells, room, fours, touched):  # type: ignore[no-untyped-def]
    """Count the values of a row in bins, but for those that are in the band of an edge.

    Parameters
    ----------
    own : tuple
        The row's edges, the band, origin and scale of its grid: see `grids.span_grid`.
    values, cells : [n] float32 or float64, [n] uint16
    room : Room
        Bins are added to: twice the number of the edge that values come before.
    fours, touched
        As of `bin_row`; `touched` begins with the positions of listed values, and `room.near` with
        the edge of each.

    Returns
    -------
    number of values in touched cells; number of those that are listed; the least of the former
    """
    lay_codes(own, values, room)
    found = bin_row(cells, room.code, room.bins, fours, touched)
    listed, least = _place(values, cells, touched[:found], len(own[1]), room)
    return found, listed, least


@compiled
def lay_codes(own, values, room):  # type: ignore[no-untyped-def]
    """Write the codes of a row's cells, and where the bands of its edges begin and end."""
    closer, tied, band, origin, scale = own
    m, kind = len(tied), values.dtype.type
    zero, above = kind(0), kind(ABOVE)
    code, begins, ends = room.code, room.bounds[0], room.bounds[1]
    for e in range(m):
        begins[e], ends[e] = closer[e] - band, tied[e] + band
    begins[m], ends[m] = np.nan, np.inf
    for side in range(2):
        bound, cells = room.bounds[side], room.cells[side]
        for e in range(m):  # as `cell_of` does; vectorises
            x = (kind(bound[e]) - origin) * scale
            x = x if x > zero else zero
            cells[e] = np.int32(x if x < above else above)
    first, last = room.cells[0], room.cells[1]
    # Edges before the grid, and beyond: many, where few values are.
    base, stop = first_reached(1, last, 0, 0, m), first_reached(ABOVE, first, 0, 0, m)
    code[:] = 0
    for e in range(base, stop):
        code[np.uint64(last[e]) + np.uint64(1)] += np.uint16(2)
    total = np.uint16(2 * base)
    for cell in range(1, LAST):
        total += code[cell]
        code[cell] = total
    for e in range(base, stop):
        for cell in range(first[e], last[e] + 1):
            code[cell] |= np.uint16(1)
    if base > 0:
        code[0] |= np.uint16(1)
    if stop < m:
        code[ABOVE] |= np.uint16(1)
    code[LAST] = 2 * (m + 1)


@compiled
def _place(values, cells, touched, m, room):  # type: ignore[no-untyped-def]
    """Count values in touched cells, or list them; return how many these are, and the least."""
    code, own, near, one = room.code, room.bins[0], room.near, np.uint16(1)
    begins, ends = room.bounds[0], room.bounds[1]
    found, least = np.uint64(0), np.inf
    for t in range(len(touched)):
        k = touched[t]
        value = np.float64(values[k])
        least = value if value < least else least
        e = np.uint64(code[cells[k]] >> np.uint16(1))
        e += np.uint64(ends[e] < value)
        e += np.uint64(ends[e] < value)
        if ends[e] < value:
            e = np.uint64(first_reached(value, ends, 0.0, np.int64(e) + 1, m))
        inside = np.uint64(value >= begins[e])
        own[e + e] += one - np.uint16(inside)
        touched[found], near[found] = k, e
        found += inside
    return np.int64(found), least
