"""One tile row against its edges: the hot loop.

A uniform grid of cells is laid over the row's edges. A cell that no edge (with its guard band)
touches lies in one slot, so its values need only be counted: quantise (vectorises) and add to
a small histogram. The few per cent of values in cells that an edge touches are collected and
placed one by one.

Why that is exact: quantising is monotone in floating point too (subtract, multiply, clamp and
truncate each are), and an edge's band is quantised by the same operations. A value in a cell
before the band's first cell is therefore below the band, one after the last cell above it.
"""

from __future__ import annotations

import math

import numba
import numpy as np

CELLS = 4096  # histogram, flags and cell numbers of a block stay in L1
BLOCK = 1024  # values quantised at a time


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _quantise(values, offset, origin, scale, top, cells):  # type: ignore[no-untyped-def]
    """Write the cell of each ``values + offset``.

    No value is NaN (inputs are checked). Written so that it vectorises: a running minimum,
    or a clamp by min() and max(), would keep it scalar.
    """
    zero = origin - origin
    for k in range(values.shape[0]):
        x = (values[k] + offset[k] - origin) * scale
        x = x if x > zero else zero
        x = x if x < top else top
        cells[k] = np.int32(x)


@numba.njit(nogil=True, cache=True)
def cell_of(value, origin, scale, top):  # type: ignore[no-untyped-def]
    """Return the cell of one value, by the operations of `_quantise`."""
    zero = origin - origin
    x = (value - origin) * scale
    x = x if x > zero else zero
    x = x if x < top else top
    return np.int32(x)


@numba.njit(nogil=True, cache=True)
def lay_grid(edges, band, pitch, like, first_edge, is_touched, gap_begin, gap_end):  # type: ignore[no-untyped-def]
    """Lay the grid over a row's edges.

    Parameters
    ----------
    edges : [m] float64
        Ascending, in the units of the row's values; m > 0.
    band : float
        Guard band; 0 where values are exact.
    pitch : float
        Distance of evenly spaced edges that start at the first one or 0: the grid is then
        laid such that each of them touches one cell only.
    like : array
        Of the dtype of the values, in which they are quantised.
    first_edge : [CELLS] int32, written
        For touched cells, the first edge that may touch it.
    is_touched : [CELLS] uint8, written
        1 where an edge touches the cell.
    gap_begin, gap_end : [>= m + 1] int32, written
        The untouched cells before each edge, and after the last: those of slot 2k.

    Returns
    -------
    origin, scale, top
        Of the dtype of the values.
    """
    kind = like.dtype.type
    if band == np.inf:  # nothing can be told from the values
        is_touched[:] = 1
        first_edge[:] = 0
        gap_begin[:] = 0
        gap_end[:] = 0
        return kind(0), kind(1), kind(CELLS - 1)
    limit = 1e38 if like.itemsize == 4 else 1e300  # the grid's own arithmetic stays finite
    low = min(max(edges[0] - band, -limit), limit)
    high = min(max(edges[-1] + band, -limit), limit)
    # Cells below and above all bands remain. The floor keeps the scale finite.
    width = max(high - low, 1e-30, 1e-12 * max(abs(high), abs(low)))
    step = width / (CELLS - 5)
    origin = low - step
    if pitch > 2.0 * step:
        step = pitch / math.floor(pitch / step)
        origin = edges[0] - step * (1.5 + math.ceil(band / step))
    origin = kind(origin)
    scale = kind(1.0 / step)
    top = kind(CELLS - 1)
    is_touched[:] = 0
    cell = 0
    for k in range(len(edges)):
        begin = cell_of(kind(edges[k] - band), origin, scale, top)
        end = cell_of(kind(edges[k] + band), origin, scale, top)
        gap_begin[k] = cell
        gap_end[k] = max(begin, cell)
        for touched in range(max(begin, cell), end + 1):
            is_touched[touched] = 1
            first_edge[touched] = k
        cell = max(end + 1, cell)
    gap_begin[len(edges)] = cell
    gap_end[len(edges)] = CELLS
    return origin, scale, top


@numba.njit(nogil=True, cache=True)
def bin_row(values, offset, origin, scale, top, is_touched, histogram, cells, touched):  # type: ignore[no-untyped-def]
    """Count the values into cells, and collect those in touched cells.

    Parameters
    ----------
    values, offset : [n] float32 or float64
        The row is their sum.
    is_touched : [CELLS] uint8
    histogram : [CELLS] uint32, added to
    cells : [BLOCK] uint16, scratch
    touched : [n + 1] int32, written
        Positions of the values in touched cells, ascending.

    Returns
    -------
    number of positions in `touched`
    """
    n = values.shape[0]
    found = np.uint64(0)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        _quantise(values[start:stop], offset[start:stop], origin, scale, top, cells)
        for k in range(stop - start):
            cell = cells[k]
            histogram[cell] += np.uint32(1)
            touched[found] = start + k  # kept only where the next line moves on
            found += np.uint64(is_touched[cell])
    return np.int64(found)


@numba.njit(nogil=True, cache=True)
def fold(histogram, gap_begin, gap_end, slots):  # type: ignore[no-untyped-def]
    """Add what the histogram counted between edges to the slots, and clear it.

    Parameters
    ----------
    histogram : [CELLS] uint32, zeroed
    gap_begin, gap_end : [>= m + 1] int32
    slots : [2m + 1] int64, added to
    """
    for k in range((len(slots) + 1) // 2):
        count = np.uint32(0)
        for cell in range(gap_begin[k], gap_end[k]):
            count += histogram[cell]
        slots[2 * k] += count
    histogram[:] = 0


@numba.njit(nogil=True, cache=True)
def any_up_to(histogram, cell):  # type: ignore[no-untyped-def]
    """Tell whether a value was counted in a cell up to, and with, this one."""
    count = np.uint32(0)
    for k in range(cell + 1):
        count += histogram[k]
    return count > 0


@numba.njit(nogil=True, cache=True)
def first_not_below(edges, value):  # type: ignore[no-untyped-def]
    """Return the number of edges below the value: the first index with edges[k] >= value."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(nogil=True, cache=True)
def place(value, item, near, edges, slots, positives, items, first, last, tied_before):  # type: ignore[no-untyped-def]
    """Count one canonical distance into its slot, and into `tied_before` where it ties.

    Parameters
    ----------
    value : float64
        Canonical distance.
    item : int
        Gallery index.
    near : int
        The edge to look at first.
    edges : [m] float64
        The query's edges, as canonical distances.
    slots : [2m + 1] int64, added to
    positives, items : [P] float64, int64
        All positives: distance, gallery index.
    first, last : int
        The query's own among them.
    tied_before : [P] int64, added to
    """
    k = near
    while k < len(edges) and edges[k] < value:
        k += 1
    while k > 0 and edges[k - 1] >= value:
        k -= 1
    if k == len(edges) or edges[k] != value:
        slots[2 * k] += 1
        return
    slots[2 * k + 1] += 1
    for p in range(first, last):
        if positives[p] == value:
            tied_before[p] += item < items[p]
