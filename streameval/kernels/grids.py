"""Grids: uniform cells over the bulk of a row's values, and the edges that touch them.

A cell that no edge (with its guard band) touches lies in one slot, so the values in it need
only be counted. The few per cent of values in cells that an edge touches, or outside the grid,
are placed one by one. Where a grid lies is taken from a sample of the row: that decides how
many these are, never what is counted.

Every cell has a code. Of an untouched cell, it is twice the number of edges of the grid before it;
of the last, twice one more than there are. An odd code is of a cell that may be touched: by the
edge with half that number, and perhaps by those that follow; or it is `SEARCH`, and the edge has to
be searched for. Rows with many edges have codes of their own: see `buckets`.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.edges import first_reached
from streameval.kernels.tiles import product

CELLS = 4096  # a row's codes and bins stay in L1 while it is counted
LAST = CELLS - 1  # beyond every edge, and beyond the grid
ABOVE = CELLS - 2  # beyond the grid, perhaps not beyond every edge
SAMPLED = 16  # places of a row that are looked at, four values each
RUN = 64  # cells that are written at once
WAYS = 4  # bins a code: an addition would wait for the one before to the same bin
SEARCH = 255  # the code of a cell whose edge has to be searched for
NUMBERED = 125  # edges of a grid: as many as codes of one byte can number


@compiled
def cell_of(value, origin, scale):  # type: ignore[no-untyped-def]
    """Return the cell of one value, as `quantise` does; `ABOVE` beyond the grid."""
    zero = origin - origin
    above = zero + ABOVE
    x = (value - origin) * scale
    x = x if x > zero else zero
    x = x if x < above else above
    return np.int64(x)


@compiled(inline="always")
def place_of_sample(s, n):  # type: ignore[no-untyped-def]
    """Return one of the places of a row of n values that are looked at, four to a cache line."""
    return min((s // 4) * (n // SAMPLED) + 4 * (s % 4), n - 1)


@compiled
def _bulk(values, weight, offset):  # type: ignore[no-untyped-def]
    """Return between what most values of a row lie; (inf, −inf) where that can't be told."""
    low, high = np.inf, -np.inf
    for s in range(4 * SAMPLED):
        k = place_of_sample(s, values.shape[0])
        value = np.float64(product(values, weight, k) + offset[k])
        if value != np.inf:
            low, high = min(low, value), max(high, value)
    margin = 0.2 * (high - low)
    return low - margin, high + margin


@compiled
def _fill(code, start, stop, value):  # type: ignore[no-untyped-def]
    """Write a code to cells, in order: what follows them may be overwritten, too.

    A number of cells that is known beforehand is written by one instruction or two.
    """
    while start < stop:
        for k in range(RUN):
            code[np.uint64(start + k)] = value
        start += RUN


@compiled
def span_grid(closer, tied, band, pitch, phase, values, weight, offset):  # type: ignore[no-untyped-def]
    """Return where a grid lies over the bulk of a row.

    Parameters
    ----------
    closer, tied : [m] float64
        The row's edges in the unit of its values, ascending: see `Levels`.
    band : float
        Guard band; 0 where values are exact.
    pitch, phase : float
        Distance of evenly spaced edges, and one of them; 0: there are none. The grid is laid
        such that each of them touches one cell only.
    values, weight, offset : [n] float32 or float64
        The row is ``values * weight + offset``; without `weight`, None, ``values + offset``.

    Returns
    -------
    origin, scale, far
        Value v lies in cell (v − origin) · scale; in the last one beyond `far` cells. Of the
        dtype of the values.
    """
    kind, m = values.dtype.type, len(closer)
    if band == np.inf:  # nothing can be told from the values
        return kind(0), kind(1), kind(np.inf)
    single = values.itemsize == 4
    limit = 1e38 if single else 1e300  # the grid's own arithmetic is finite
    least = min(max(closer[0] - band, -limit), limit) if m else 0.0
    most = min(max(tied[m - 1] + band, -limit), limit) if m else 0.0
    low, high = _bulk(values, weight, offset)
    if low > high:
        low, high = least, most
    if m:  # without an edge, the grid tells the values before the bulk, if there are any
        low, high = min(max(low, least), most), max(min(high, most), least)
    # The floor keeps the scale finite, and cells no finer than numbers or bands.
    floor = max(1e-30, (1e-7 if single else 1e-12) * max(abs(low), abs(high)))
    step = max((high - low) / (CELLS - 6), band / 4, floor)
    start = low - 2 * step
    if 2 * step < pitch < CELLS * step:  # beyond, hardly one of them is in the grid
        step = pitch / np.floor(pitch / step)
        start = low - 2 * step
        start -= step * ((0.5 - (phase - start) / step) % 1.0)
    origin, scale = kind(start), kind(1.0 / step)
    far = kind(np.inf)
    if m and most < limit:
        far = (kind(most) - origin) * scale
    return origin, scale, far


@compiled
def lay_grid(closer, tied, band, origin, scale, like, code):  # type: ignore[no-untyped-def]
    """Write the codes of the cells of a grid.

    Parameters
    ----------
    closer, tied, band, origin, scale
        As of `span_grid`.
    like : array
        Of the dtype of the values.
    code : [CELLS + RUN] uint8, written

    Returns
    -------
    base, stop : int
        The edges that touch cells of the grid.
    """
    kind, m = like.dtype.type, len(closer)
    if band == np.inf:
        code[:] = SEARCH
        return 0, 0
    base = first_reached(np.float64(origin), tied, band, 0, m)  # those before are in cell 0
    clear = m == 0 or cell_of(kind(closer[0] - band), origin, scale) > 0
    cell, e, shared = 1, base, 0
    while e < m and e - base < NUMBERED:
        first = cell_of(kind(closer[e] - band), origin, scale)
        if first >= ABOVE:
            break
        last = min(cell_of(kind(tied[e] + band), origin, scale), ABOVE - 1)
        shared = shared + 1 if first < cell else 0
        if shared > 8:
            code[cell - 1] = SEARCH  # many edges in a cell
        _fill(code, cell, first, 2 * (e - base))
        _fill(code, max(first, cell), last + 1, 2 * (e - base) + 1)
        cell = max(last + 1, cell)
        e += 1
    rest = SEARCH if e - base == NUMBERED else 2 * (e - base)  # out of numbers
    _fill(code, cell, ABOVE, rest)
    code[0], code[ABOVE] = 0 if clear else SEARCH, SEARCH
    code[LAST] = 2 * (e - base + 1)
    return base, e


@compiled
def may_be_within(lowest, value, origin, scale, far):  # type: ignore[no-untyped-def]
    """Tell whether a row may have values up to this one beside those before the grid.

    `lowest` is the first cell with a value: where that is 0, the least value is among the touched.
    The last cell holds all values beyond `far`.
    """
    cell = cell_of(value, origin, scale)
    return lowest > 0 and (
        lowest <= cell or cell == ABOVE or (lowest == LAST and (value - origin) * scale > far)
    )


@compiled
def fold(bins, edges, slots, first_slot):  # type: ignore[no-untyped-def]
    """Add bins to the slots before, between and after a grid's edges, from a slot on; zero them."""
    first, second, third, fourth = bins[0], bins[1], bins[2], bins[3]
    for number in range(0, 2 * edges + 2, 2):
        k = np.uint64(number)  # added up before: each addition to a slot waits for the last
        both = np.uint32(first[k]) + np.uint32(second[k])
        slots[np.uint64(first_slot) + k] += both + np.uint32(third[k]) + np.uint32(fourth[k])
    bins[:, : 2 * edges + 3] = 0  # what is beyond all edges, nobody asks


@compiled(inline="always")
def edge_of(value, code, base, tied, band):  # type: ignore[no-untyped-def]
    """Return the first edge, uint64, whose band does not end before the value; m where all do.

    The value's cell is touched, and has this code; `base` is the first edge in the grid.
    """
    m = np.uint64(len(tied))
    if code == SEARCH:
        return np.uint64(first_reached(value, tied, band, 0, len(tied)))
    e = np.uint64(base) + (np.uint64(code) >> np.uint64(1))
    e += np.uint64(tied[e] + band < value)  # as likely as not: no branch
    while e < m and tied[e] + band < value:
        e += np.uint64(1)
    return e
