"""Rows scattered over a file, read by a loop that does not hold Python's lock.

A row takes a microsecond to read, and several to ask for from Python: threads that do so wait for
each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streameval.compilation import compiled

# ssize_t pread(int, void *, size_t, off_t), of the C library; an address is an integer here.
_pread: Any = types.ExternalFunction(
    "pread", types.intp(types.intc, types.uintp, types.uintp, types.int64)
)


@compiled
def read_scattered(fileno, offset, rows, pieces, window, out):  # type: ignore[no-untyped-def]
    """Copy rows out of a file, until a piece of it can't be read in one call.

    Parameters
    ----------
    fileno : int
    offset : int
        Where row 0 begins, in bytes.
    rows : [n] int64
        Ascending.
    pieces : [p, 2] int64
        Begin and end of the rows, counted in `rows`, that are read together with what is between
        them.
    window : [w, row bytes] uint8
        As long as the longest piece; overwritten.
    out : [n, row bytes] uint8, written

    Returns
    -------
    int
        How many pieces were read; p of all, less where the next is cut short or refused.
    """
    row_bytes = out.shape[1]
    for piece in range(len(pieces)):
        begin, end = pieces[piece]
        first = rows[begin]
        alone = end - begin == 1
        target = out[begin:] if alone else window
        size = (rows[end - 1] - first + 1) * row_bytes
        position = offset + first * row_bytes
        if _pread(fileno, target.ctypes.data, np.uint64(size), position) != size:
            return piece
        if alone:
            continue
        for k in range(begin, end):
            out[k] = window[rows[k] - first]
    return len(pieces)
