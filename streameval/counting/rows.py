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
def _quantise(values, weight, offset, origin, scale, top, cells):  # type: ignore[no-untyped-def]
    """Write the cell of each ``values * weight + offset``.

    No value is NaN (inputs are checked). Written so that it vectorises: a running minimum,
    or a clamp by min() and max(), would keep it scalar.
    """
    zero = origin - origin
    for k in range(values.shape[0]):
        x = (values[k] * weight[k] + offset[k] - origin) * scale
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
def bin_row(  # type: ignore[no-untyped-def]
    values, weight, offset, origin, scale, top, is_touched, histogram, cells, touched
):
    """Count the values into cells, and collect those in touched cells.

    Parameters
    ----------
    values, weight, offset : [n] float32 or float64
        The row is ``values * weight + offset``.
    is_touched : [CELLS] uint8
    histogram : [CELLS] uint32, added to
    cells : [BLOCK] uint16, scratch
    touched : [n + 1] uint32, written
        Positions of the values in touched cells, ascending.

    Returns
    -------
    number of positions in `touched`
    """
    n = values.shape[0]
    one, found = np.uint32(1), np.uint64(0)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        _quantise(
            values[start:stop], weight[start:stop], offset[start:stop], origin, scale, top, cells
        )
        fours = (stop - start) // 4 * 4
        # A position is kept only where `found` moves on behind it. Unsigned numbers, as signed
        # indices are checked for being negative; by fours, which LLVM does not do by itself.
        for k in range(0, fours, 4):
            a, b, c, d = cells[k], cells[k + 1], cells[k + 2], cells[k + 3]
            histogram[a] += one
            histogram[b] += one
            histogram[c] += one
            histogram[d] += one
            touched[found] = start + k
            found += np.uint64(is_touched[a])
            touched[found] = start + k + 1
            found += np.uint64(is_touched[b])
            touched[found] = start + k + 2
            found += np.uint64(is_touched[c])
            touched[found] = start + k + 3
            found += np.uint64(is_touched[d])
        for k in range(fours, stop - start):
            histogram[cells[k]] += one
            touched[found] = start + k
            found += np.uint64(is_touched[cells[k]])
    return np.int64(found)


@numba.njit(nogil=True, cache=True)
def fold(histogram, gap_begin, gap_end, edges, slots, first_slot):  # type: ignore[no-untyped-def]
    """Add what the histogram counted between edges to the slots, and clear it.

    Parameters
    ----------
    histogram : [CELLS] uint32, zeroed
    gap_begin, gap_end : [>= m + 1] int32
    edges : int
        Number of edges m.
    slots : [2E + m] int64, added to
    first_slot : int
        The query's first slot.
    """
    for k in range(edges + 1):
        count = np.uint32(0)
        for cell in range(gap_begin[k], gap_end[k]):
            count += histogram[cell]
        slots[first_slot + 2 * k] += count
    histogram[:] = 0


@numba.njit(nogil=True, cache=True)
def any_up_to(histogram, cell):  # type: ignore[no-untyped-def]
    """Tell whether a value was counted in a cell up to, and with, this one."""
    count = np.uint32(0)
    for k in range(cell + 1):
        count += histogram[k]
    return count > 0


@numba.njit(nogil=True, cache=True)
def least_value(values, weight, offset):  # type: ignore[no-untyped-def]
    """Return the least ``values * weight + offset`` of a row; +inf of an empty one.

    Sixteen running minima side by side vectorise, where one does not.
    """
    n = values.shape[0]
    whole = n - n % 16
    least = np.full(16, np.inf, values.dtype)
    for start in range(0, whole, 16):
        for j in range(16):
            value = values[start + j] * weight[start + j] + offset[start + j]
            least[j] = value if value < least[j] else least[j]
    lowest = least.min()
    for k in range(whole, n):
        lowest = min(lowest, values[k] * weight[k] + offset[k])
    return lowest


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
def slot_of(value, near, edges, begin, end):  # type: ignore[no-untyped-def]
    """Return the slot of a canonical distance: odd where it is at an edge.

    Parameters
    ----------
    value : float64
    near : int
        The edge to look at first, counted from the query's first.
    edges : [E] float64
        All edges, as canonical distances.
    begin, end : int
        The query's own among them.
    """
    k = begin + np.int64(near)
    while k < end and edges[k] < value:
        k += 1
    while k > begin and edges[k - 1] >= value:
        k -= 1
    return 2 * (k - begin) + (k < end and edges[k] == value)


@numba.njit(nogil=True, cache=True)
def note_tie(value, item, positives, items, first, last, ties):  # type: ignore[no-untyped-def]
    """Note a negative that ties with positives, at the first of them that it is ahead of.

    It is ahead of all that follow at the same distance: `spread_ties` adds it to those, once
    for all negatives.

    Parameters
    ----------
    value : float64
        Canonical distance of the negative.
    item : int
        Its gallery index.
    positives, items : [P] float64, int64
        All positives: distance, gallery index.
    first, last : int
        The query's own among them.
    ties : [P] int64, added to
    """
    low, high = first, last
    while low < high:  # the first positive that is further, or as far and later in the gallery
        middle = (low + high) // 2
        if positives[middle] < value or (positives[middle] == value and items[middle] <= item):
            low = middle + 1
        else:
            high = middle
    if low < last and positives[low] == value:
        ties[low] += 1


@numba.njit(nogil=True, cache=True)
def spread_ties(indptr, positives, ties):  # type: ignore[no-untyped-def]
    """Return how many tied negatives are ahead of each positive, from what `note_tie` noted.

    Parameters
    ----------
    indptr : [m + 1] int64
        Where each query's positives begin.
    positives : [P] float64
    ties : [P] int64

    Returns
    -------
    [P] int64
    """
    ahead = ties.copy()
    for i in range(len(indptr) - 1):
        for p in range(indptr[i] + 1, indptr[i + 1]):
            if positives[p] == positives[p - 1]:
                ahead[p] += ahead[p - 1]
    return ahead
