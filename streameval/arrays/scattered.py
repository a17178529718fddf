"""Rows scattered over a file or over memory, read by loops that do not hold Python's lock.

A row takes a microsecond to read, and several to ask for from Python: threads that do so wait for
each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streameval.arrays.digest import add_digests
from streameval.compilation import compiled
from streameval.typing import IntArray

NEAR_BYTES = 16 << 10  # rows nearer than this are read together: a call costs as much
_WINDOW_BYTES = 1 << 20  # and so far together
_TOGETHER = 512  # rows that one call reads; systems take 1,024 at most
_CACHED_BYTES = 512 << 10  # read before they are digested: stay in L2

# ssize_t pread(int, void *, size_t, off_t), of the C library; an address is an integer here.
_pread: Any = types.ExternalFunction(
    "pread", types.intp(types.intc, types.uintp, types.uintp, types.int64)
)
# ssize_t preadv(int, const struct iovec *, int, off_t); a struct iovec is an address and a size.
_preadv: Any = types.ExternalFunction(
    "preadv", types.intp(types.intc, types.uintp, types.intc, types.int64)
)


def pieces_of(rows: IntArray, row_bytes: int) -> tuple[IntArray, int]:
    """Return begin and end, in `rows`, of those to be read in one piece, [p, 2]; and its most rows.

    Parameters
    ----------
    rows : [n] int64
        Ascending, each once; at least one.
    row_bytes : int
        Less than `NEAR_BYTES`.
    """
    most = _WINDOW_BYTES // row_bytes
    far = np.diff(rows, prepend=rows[0]) > NEAR_BYTES // row_bytes
    far[0] = True
    first = rows[far][np.cumsum(far) - 1]  # of the stretch that each row is in
    begin = np.flatnonzero(far | (np.diff((rows - first) // most, prepend=0) != 0))
    pieces = np.stack([begin, np.append(begin[1:], len(rows))], axis=1)
    return pieces, min(most, int(rows[-1] - rows[0]) + 1)


@compiled
def read_scattered(fileno, offset, rows, pieces, window, out):  # type: ignore[no-untyped-def]
    """Copy rows out of a file, until a piece of it can't be read in one call.

    Parameters
    ----------
    fileno : int
    offset : int
        Where row 0 begins, in bytes.
    rows : [n] int64
        Ascending, each once.
    pieces : [p, 2] int64
        Begin and end of the rows, counted in `rows`, that are read together with what is between
        them.
    window : [w, row bytes] uint8
        As long as the longest piece with rows between; overwritten.
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
        between = rows[end - 1] - first + 1 - (end - begin)
        target = window if between else out[begin:]
        size = (rows[end - 1] - first + 1) * row_bytes
        position = offset + first * row_bytes
        if _pread(fileno, target.ctypes.data, np.uint64(size), position) != size:
            return piece
        if between == 0:
            continue
        for k in range(begin, end):
            own = rows[k] - first
            for byte in range(row_bytes):  # as a whole, numba looks at what overlaps, each time
                out[k, byte] = window[own, byte]
    return len(pieces)


@compiled
def read_rows(fileno, offset, stride, out, first, own, digests):  # type: ignore[no-untyped-def]
    """Copy the same columns of adjacent rows out of a file, until they can't be read in one call.

    Parameters
    ----------
    fileno : int
    offset : int
        Where the first row begins, in bytes.
    stride : int
        From one row to the next, in bytes.
    out : [m, n] words, written
        Rows in one piece each, not necessarily next to each other.
    first, own, digests : int, [s] uint32, [m] or [0] uint64
        Their digests are added, unless there is no room for them: see `add_digests`. Rows that have
        just been read are in the cache.

    Returns
    -------
    bool
        Whether all were read; not where the file is cut short, or refused.
    """
    rows, size = out.shape[0], out.shape[1] * out.itemsize
    whole, vectors = size == stride, np.empty((_TOGETHER, 2), np.uint64)
    some = min(max(_CACHED_BYTES // size // 4 * 4, 4), _TOGETHER)
    for begin in range(0, rows, some):
        end = min(begin + some, rows)
        together = end - begin if whole else 1
        for row in range(begin, end, together):
            for k in range(together):
                vectors[k, 0], vectors[k, 1] = out[row + k].ctypes.data, size
            position = offset + row * stride
            if _preadv(fileno, vectors.ctypes.data, together, position) != together * size:
                return False
        if len(digests):
            add_digests(out[begin:end], first, own, digests[begin:end])
    return True
