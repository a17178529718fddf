"""The codes of one tile row's cells: the hot loop.

They are counted; what lies in cells that an edge touches is collected, for the caller to place.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.kernels.grids import BITS


@numba.njit(nogil=True, cache=True)
def bin_row(cells, code, bins, fours, touched):  # type: ignore[no-untyped-def]
    """Count the codes of cells, and collect the touched ones.

    Parameters
    ----------
    cells : [4 n] uint16
    code : [CELLS + RUN] uint8 or uint16
    bins : [WAYS, codes] uint32, added to
    fours : [n + 1] uint32, scratch
    touched : [4 n + 4] uint32, written
        Positions of the cells that an edge may touch, ascending.

    Returns
    -------
    number of positions in `touched`
    """
    first, second, third, fourth = bins[0], bins[1], bins[2], bins[3]
    one, found = np.uint32(1), np.uint64(0)
    to_bit = np.uint64(BITS[code.itemsize - 1])
    # A number is kept only where `found` moves on behind it. Unsigned numbers, as signed
    # indices are checked for being negative; by fours, as each store costs as much as counting.
    for four in range(cells.shape[0] // 4):
        k = 4 * four
        a, b = np.uint64(code[cells[k]]), np.uint64(code[cells[k + 1]])
        c, d = np.uint64(code[cells[k + 2]]), np.uint64(code[cells[k + 3]])
        first[a] += one
        second[b] += one
        third[c] += one
        fourth[d] += one
        fours[found] = four
        found += (a | b | c | d) >> to_bit
    count = np.uint64(0)
    for t in range(found):
        start = 4 * np.uint64(fours[t])
        for j in range(4):
            at = start + np.uint64(j)
            touched[count] = at
            count += np.uint64(code[cells[at]]) >> to_bit
    return np.int64(count)


@numba.njit(nogil=True, cache=True)
def least_of(row):  # type: ignore[no-untyped-def]
    """Return the least value of a row; +inf of an empty one.

    Sixteen running minima side by side vectorise, where one does not.
    """
    n = row.shape[0]
    whole = n - n % 16
    least = np.full(16, np.inf, row.dtype)
    for start in range(0, whole, 16):
        for j in range(16):
            value = row[start + j]
            least[j] = value if value < least[j] else least[j]
    lowest = least.min()
    for k in range(whole, n):
        lowest = min(lowest, row[k])
    return lowest


@numba.njit(nogil=True, cache=True)
def most_of(row):  # type: ignore[no-untyped-def]
    """Return the greatest value of a row below +inf; −inf of an empty one; see `least_of`."""
    n = row.shape[0]
    whole = n - n % 16
    most = np.full(16, -np.inf, row.dtype)
    for start in range(0, whole, 16):
        for j in range(16):
            value = row[start + j]
            most[j] = value if most[j] < value < np.inf else most[j]
    highest = most.max()
    for k in range(whole, n):
        highest = max(highest, row[k]) if row[k] < np.inf else highest
    return highest
