"""Buckets: rows with many edges, which touch many cells of a grid.

Codes are those of `grids`, but for all edges of a row: twice the number of edges whose bands end
before the cell, and one more where a band touches it. The first edge that a value in a touched cell
does not exceed is the next, or one of the few that follow in the cell. So values are placed by two
comparisons, without a branch, where edges are spread over the cells.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.edges import first_reached
from streameval.kernels.grids import ABOVE, LAST

FEWEST, MOST = 128, 32_000  # edges of a row; codes can't number more


@compiled
def lay_buckets(closer, tied, band, origin, scale, like, code, bounds, cell):  # type: ignore[no-untyped-def]
    """Write the codes of a row's cells, and where the bands of its edges begin and end.

    Parameters
    ----------
    closer, tied : [m] float64
        The row's edges in the unit of its values, ascending: see `Levels`.
    band : float
        Guard band, finite; 0 where values are exact.
    origin, scale
        Of the grid.
    like : array
        Of the dtype of the values.
    code : [CELLS] uint16, written
    bounds : [2, >= m + 1] float64, written
        Begins, of which the last is NaN, and ends, of which the last is +inf.
    cell : [2, >= m] uint16, written
        The cells of the bounds.
    """
    m, kind = len(tied), like.dtype.type
    zero, above = kind(0), kind(ABOVE)
    begins, ends = bounds[0], bounds[1]
    for e in range(m):
        begins[e], ends[e] = closer[e] - band, tied[e] + band
    for side in range(2):
        bound, own = bounds[side], cell[side]
        for e in range(m):  # as `cell_of` does; vectorises
            x = (kind(bound[e]) - origin) * scale
            x = x if x > zero else zero
            x = x if x < above else above
            own[e] = np.int32(x)
    begins[m], ends[m] = np.nan, np.inf
    first, last, two, total = cell[0], cell[1], np.uint16(2), np.uint16(0)
    code[:] = 0
    for e in range(m):
        code[np.uint64(last[e]) + np.uint64(1)] += two
    for place in range(LAST):
        total += code[place]
        code[place] = total
    for e in range(m):
        for place in range(first[e], last[e] + 1):
            code[place] |= np.uint16(1)
    code[LAST] = 2 * (m + 1)


@compiled
def place_touched(row, touched, m, bins, near):  # type: ignore[no-untyped-def]
    """Count values in touched cells, and list those that are in the band of an edge.

    Parameters
    ----------
    row : tuple
        Values, cells, codes and bounds of a row: see `quantise` and `lay_buckets`.
    touched : [t] uint32
        Positions of the values; overwritten by those of listed ones.
    m : int
        Number of edges.
    bins : [WAYS, codes] uint16, added to
    near : [>= t] uint32, written
        The edge of each listed value.

    Returns
    -------
    the least of these values, and number of listed ones
    """
    values, cells, code, bounds = row
    begins, ends, own, one = bounds[0], bounds[1], bins[0], np.uint16(1)
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
    return least, np.int64(found)
