"""Rows scattered over files or over memory, read by loops that do not hold Python's lock.

A row takes a microsecond to read, a file three to open, and several to ask for from Python: threads
that do so wait for each other.
"""

from __future__ import annotations

import os
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
FOUR = 4  # rows that are digested together

# ssize_t pread(int, void *, size_t, off_t), of the C library; an address is an integer here.
_pread: Any = types.ExternalFunction(
    "pread", types.intp(types.intc, types.uintp, types.uintp, types.int64)
)
# ssize_t preadv(int, const struct iovec *, int, off_t); a struct iovec is an address and a size.
_preadv: Any = types.ExternalFunction(
    "preadv", types.intp(types.intc, types.uintp, types.intc, types.int64)
)
# int open(const char *, int); off_t lseek(int, off_t, int); int close(int)
_open: Any = types.ExternalFunction("open", types.intc(types.uintp, types.intc))
_lseek: Any = types.ExternalFunction("lseek", types.int64(types.intc, types.int64, types.intc))
_close: Any = types.ExternalFunction("close", types.intc(types.intc))

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


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
def read_files(paths, size, stride, parts, out, first, own, digests):  # type: ignore[no-untyped-def]
    """Copy rectangles out of files, until one can't be read.

    Files of few rows are read together: four rows are digested in the time of one.

    Parameters
    ----------
    paths : [k, w] uint8
        Each ends in a 0.
    size : int
        Of each file, in bytes.
    stride : int
        From one row of a file to the next, in bytes.
    parts : [k, 5] int64
        Where the rectangle of each file begins in it, in bytes; its first row in `out`, the end of
        its rows, its first word and the end of its words. Those that lie one below the other
        follow one another.
    out : [m, n] words, written
        Rows in one piece each, not necessarily next to each other.
    first, own, digests : int, [s] uint32, [m] or [0] uint64
        Their digests are added, unless there is no room for them: see `add_digests`. Rows that have
        just been read are in the cache.

    Returns
    -------
    bool
        Whether all were read; not where a file is absent, of another size, cut short or refused.
    """
    files, position = np.full(out.shape[0], -1, np.int32), np.empty(out.shape[0], np.int64)
    begin, done = 0, True
    while begin < len(parts) and done:
        end, (_, top, bottom, left, right) = begin + 1, parts[begin]
        while end < len(parts) and parts[end, 1] == bottom and bottom - top < FOUR:
            bottom, end = parts[end, 2], end + 1
        for k in range(begin, end):
            fileno = _open(paths[k].ctypes.data, _FLAGS)
            done = done and fileno >= 0 and _lseek(fileno, 0, os.SEEK_END) == size
            for row in range(parts[k, 1], parts[k, 2]):
                files[row], position[row] = fileno, parts[k, 0] + (row - parts[k, 1]) * stride
        if done:
            block, where = out[top:bottom, left:right], (files[top:bottom], position[top:bottom])
            adjacent = end - begin == 1 and (right - left) * out.itemsize == stride
            some = digests[top:bottom] if len(digests) else digests
            done = _read_rows(*where, adjacent, block, first + left, own, some)
        for k in range(begin, end):
            if files[parts[k, 1]] >= 0:
                _close(files[parts[k, 1]])
        begin = end
    return done


@compiled
def read_adjacent(fileno, offset, stride, out, first, own, digests):  # type: ignore[no-untyped-def]
    """Copy rows out of a file that is open, and add their digests; return whether all were read.

    Parameters
    ----------
    fileno, offset, stride : int
        Where the first row begins, and from one row to the next, in bytes.
    out, first, own, digests
        As of `read_files`.
    """
    rows = out.shape[0]
    files, position = np.full(rows, fileno, np.int32), offset + stride * np.arange(rows)
    adjacent = out.shape[1] * out.itemsize == stride
    return _read_rows(files, position, adjacent, out, first, own, digests)


@compiled
def _read_rows(files, position, adjacent, out, first, own, digests):  # type: ignore[no-untyped-def]
    """Copy rows out of files that are open, a cacheful at a time: see `read_files`.

    Parameters
    ----------
    files, position : [m] int32, [m] int64
        Of each row.
    adjacent : bool
        Whether they lie one behind the other in a file.
    """
    rows, words, itemsize = out.shape[0], out.shape[1], out.itemsize
    some = min(max(_CACHED_BYTES // (words * itemsize) // FOUR * FOUR, FOUR), _TOGETHER)
    wide = words if adjacent else min(words, _CACHED_BYTES // (FOUR * itemsize))
    together, vectors = some if adjacent else 1, np.empty((_TOGETHER, 2), np.uint64)
    for begin in range(0, rows, some):
        end = min(begin + some, rows)
        for left in range(0, words, wide):
            right = min(left + wide, words)
            for row in range(begin, end, together):
                count, size = min(together, end - row), (right - left) * itemsize
                for k in range(count):
                    vectors[k, 0], vectors[k, 1] = out[row + k, left:].ctypes.data, size
                place = position[row] + left * itemsize
                if _preadv(files[row], vectors.ctypes.data, count, place) != count * size:
                    return False
            if len(digests):
                add_digests(out[begin:end, left:right], first + left, own, digests[begin:end])
    return True


@compiled
def copy_rows(source, out, first, own, digests):  # type: ignore[no-untyped-def]
    """Copy rows of words, [m, n], and add their digests while they are in the cache.

    Parameters
    ----------
    source, out : [m, n] words
        Rows in one piece each. They do not overlap.
    first, own, digests : int, [s] uint32, [m] or [0] uint64
        As of `read_files`.
    """
    for begin in range(0, source.shape[0], FOUR):
        end = min(begin + FOUR, source.shape[0])
        for row in range(begin, end):
            for k in range(source.shape[1]):
                out[row, k] = source[row, k]
        if len(digests):
            add_digests(out[begin:end], first, own, digests[begin:end])
