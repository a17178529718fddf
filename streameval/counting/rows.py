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

import numba
import numpy as np

CELLS = 2048
BLOCK = 1024  # values quantised at a time: their cell numbers stay in L1
WAYS = 4  # sub-histograms: equal neighbours would wait for each other's store


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def _quantise(values, offset, origin, scale, top, cells):  # type: ignore[no-untyped-def]
    """Write the cell of each ``values + offset``; return the least of them.

    No value is NaN (inputs are checked); saying so lets the minimum vectorise.
    """
    zero = origin - origin
    least = values[0] + offset[0]
    for k in range(values.shape[0]):
        value = values[k] + offset[k]
        least = min(least, value)
        x = (value - origin) * scale
        x = min(max(x, zero), top)
        cells[k] = np.int32(x)
    return least


@numba.njit(nogil=True, cache=True)
def cell_of(value, origin, scale, top):  # type: ignore[no-untyped-def]
    """Return the cell of one value, by the operations of `_quantise`."""
    x = (value - origin) * scale
    x = min(max(x, origin - origin), top)
    return np.int32(x)


@numba.njit(nogil=True, cache=True)
def lay_grid(edges, band, like, slot_of_cell, first_edge):  # type: ignore[no-untyped-def]
    """Lay the grid over a row's edges.

    Parameters
    ----------
    edges : [m] float64
        Ascending, in the units of the row's values; m > 0.
    band : float
        Guard band; 0 where values are exact.
    like : array
        Of the dtype of the values, in which they are quantised.
    slot_of_cell : [CELLS] int32, written
        The slot that a cell lies in, −1 where an edge touches it.
    first_edge : [CELLS] int32, written
        For touched cells, the first edge that may touch it.

    Returns
    -------
    origin, scale, top
        Of the dtype of the values.
    """
    kind = like.dtype.type
    if band == np.inf:  # nothing can be told from the values
        slot_of_cell[:] = -1
        first_edge[:] = 0
        return kind(0), kind(1), kind(CELLS - 1)
    limit = 1e38 if like.itemsize == 4 else 1e300  # the grid's own arithmetic stays finite
    low = min(max(edges[0] - band, -limit), limit)
    high = min(max(edges[-1] + band, -limit), limit)
    # One cell below all bands and one above. The floor keeps the scale finite.
    width = max(high - low, 1e-30, 1e-12 * max(abs(high), abs(low)))
    step = width / (CELLS - 4)
    origin = kind(low - step)
    scale = kind(1.0 / step)
    top = kind(CELLS - 1)
    cell = 0
    for k in range(len(edges)):
        begin = cell_of(kind(edges[k] - band), origin, scale, top)
        end = cell_of(kind(edges[k] + band), origin, scale, top)
        while cell < begin:
            slot_of_cell[cell] = 2 * k
            cell += 1
        while cell <= end:
            slot_of_cell[cell] = -1
            first_edge[cell] = k
            cell += 1
    while cell < CELLS:
        slot_of_cell[cell] = 2 * len(edges)
        cell += 1
    return origin, scale, top


@numba.njit(nogil=True, cache=True)
def bin_row(values, offset, origin, scale, top, slot_of_cell, slots, histogram, cells, touched):  # type: ignore[no-untyped-def]
    """Count the values in untouched cells into slots; collect the others.

    Parameters
    ----------
    values, offset : [n] float32 or float64
        The row is their sum.
    slots : [2m + 1] int64, added to
    histogram : [WAYS, CELLS] int32, scratch, zero before and after
    cells : [BLOCK] int32, scratch
    touched : [n] int32, written
        Positions of the values in touched cells, ascending.

    Returns
    -------
    number of positions in `touched`, least value of the row
    """
    n = values.shape[0]
    found = 0
    least = values[0] + offset[0]
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        least = min(
            least, _quantise(values[start:stop], offset[start:stop], origin, scale, top, cells)
        )
        for k in range(stop - start):
            cell = cells[k]
            histogram[k & (WAYS - 1), cell] += 1
            touched[found] = start + k
            found += slot_of_cell[cell] < 0
    for cell in range(CELLS):
        count = 0
        for way in range(WAYS):
            count += histogram[way, cell]
            histogram[way, cell] = 0
        slot = slot_of_cell[cell]
        if slot >= 0:
            slots[slot] += count
    return found, least


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
def place(value, item, edges, slots, positives, items, tied_before):  # type: ignore[no-untyped-def]
    """Count one canonical distance into its slot, and into `tied_before` where it ties.

    Parameters
    ----------
    value : float64
        Canonical distance.
    item : int
        Gallery index.
    edges : [m] float64
        The query's edges, as canonical distances.
    slots : [2m + 1] int64, added to
    positives, items : [G] float64, int64
        The query's positives: distance, gallery index.
    tied_before : [G] int64, added to
    """
    k = first_not_below(edges, value)
    if k == len(edges) or edges[k] != value:
        slots[2 * k] += 1
        return
    slots[2 * k + 1] += 1
    p = first_not_below(positives, value)
    while p < len(positives) and positives[p] == value:
        tied_before[p] += item < items[p]
        p += 1
