"""`.npy` files, read by row range with positional reads.

No memory map: the pages of a map that were touched count as memory of the process, so that a
pass over the file would look like, and be budgeted as, the whole file.
"""

from __future__ import annotations

import math
import os
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import AnyArray, Array, Span, native_dtype, refuse_key
from streameval.errors import InputError

_NEAR_BYTES = 16 << 10  # rows nearer than this are read together: a call costs as much
_WINDOW_BYTES = 1 << 20  # and so far together
_PANEL_BYTES = 1 << 20  # of a Fortran-ordered file, held at a time while it is transposed
_READERS = {  # by version: the bytes that tell the length of what follows, and what reads both
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}


@dataclass(frozen=True)
class Header:
    """What an `.npy` header says.

    Attributes
    ----------
    dtype : numpy.dtype
        As stored: in any byte order.
    shape : tuple of int
    fortran : bool
        Whether the values are stored column by column.
    length : int
        Of the header itself, in bytes; the values follow.
    """

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    fortran: bool
    length: int

    @property
    def nbytes(self) -> int:
        """Size of the values, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], uri: str) -> Header:
    """Read the header at the start of a file; no pickle is ever loaded.

    Raises
    ------
    InputError
        If it isn't an `.npy` header, or is of an array that can't be evaluated.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in _READERS:  # version 3 is for the names of fields only
            raise ValueError(f"format version {version} is for structured arrays")
        size = file.read(_READERS[version][0])
        shape, fortran, dtype = _parsed(version, size + file.read(int.from_bytes(size, "little")))
        if any(size < 0 for size in shape):
            raise ValueError(f"shape {shape} has a negative size")
    except (ValueError, SyntaxError, tokenize.TokenError) as error:
        raise InputError(
            f"{uri} has no readable .npy header ({error}); write it again with numpy.save"
        ) from error
    native_dtype(uri, shape, dtype)
    return Header(dtype, shape, fortran and len(shape) == 2, file.tell())


@lru_cache(256)
def _parsed(
    version: tuple[int, int], text: bytes
) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return what a header says: shape, order and dtype. Many files bear the same one.

    Raises
    ------
    ValueError, SyntaxError, tokenize.TokenError
        If it can't be read.
    """
    found: tuple[tuple[int, ...], bool, np.dtype[np.generic]] = _READERS[version][1](BytesIO(text))
    return found


def open_npy(path: Path, key: str | None, uri: str) -> Array:
    """Open an `.npy` file.

    Raises
    ------
    InputError
        If a key is given, the header is unreadable, or the file is shorter than it says.
    """
    refuse_key(uri, key)
    with path.open("rb") as file:
        header = read_header(file, uri)
    size, promised = path.stat().st_size, header.length + header.nbytes
    if size < promised:
        raise InputError(
            f"{uri} is {size} bytes long; its header promises {header.dtype} {header.shape}, "
            f"{promised} bytes: it was cut short, write it again"
        )
    return NpyArray(path, header, header.length, uri)


class NpyArray(Array):
    """Values stored in one piece in a file: an `.npy` file, or a stored member of an `.npz`.

    The file is opened for each read, so that nothing is shared between threads.

    Parameters
    ----------
    path : Path
    header : Header
    offset : int
        Where in the file the values begin, in bytes.
    uri : str
    """

    def __init__(self, path: Path, header: Header, offset: int, uri: str) -> None:
        self.uri = uri
        self.shape = header.shape
        self.dtype = native_dtype(uri, header.shape, header.dtype)
        self.chunks = (1, *header.shape[1:])
        self._path = path.absolute()
        self._header = header
        self._offset = offset

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the panel that is transposed at a time; 0 in C order."""
        if not self._header.fortran:
            return 0
        column = rows * self.dtype.itemsize
        return min(column * columns, max(column, _PANEL_BYTES))

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        try:
            with self._path.open("rb", buffering=0) as file:
                if self._header.fortran:
                    self._fill_transposed(file.fileno(), out, *spans)
                else:
                    self._fill_rows(file.fileno(), out, spans)
        except OSError as error:
            raise InputError(f"{self.uri} {self.shape} can't be read: {error}") from error

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        """Read rows that are near each other in one piece, with what is between them."""
        width = math.prod(self.shape[1:])
        # Of a Fortran-ordered file, a piece is read of each column.
        cell_bytes = max(1, (1 if self._header.fortran else width) * self.dtype.itemsize)
        if cell_bytes >= _NEAR_BYTES:
            super()._take(out, rows)
            return
        longest = min(_WINDOW_BYTES // cell_bytes, int(rows[-1] - rows[0]) + 1)
        try:
            with self._path.open("rb", buffering=0) as file:
                if self._header.fortran:
                    self._take_transposed(file.fileno(), out, rows, longest)
                else:
                    self._take_rows(file.fileno(), out, rows, longest)
        except OSError as error:
            raise InputError(f"{self.uri} {self.shape} can't be read: {error}") from error

    def _take_rows(
        self, fileno: int, out: AnyArray, rows: npt.NDArray[np.int64], longest: int
    ) -> None:
        from streameval.arrays.scattered import read_scattered

        width = math.prod(self.shape[1:])
        row_bytes = width * self.dtype.itemsize
        pieces = _near(rows, row_bytes)
        taken = out.reshape(-1).view(np.uint8).reshape(len(rows), row_bytes)
        window = np.empty((longest, row_bytes), np.uint8)
        done = 0
        while done < len(pieces):
            done += read_scattered(fileno, self._offset, rows, pieces[done:], window, taken)
            if done < len(pieces):  # again from here, which says why, or goes on
                begin, end = pieces[done]
                first = int(rows[begin])
                piece = window[: int(rows[end - 1]) - first + 1]
                self._read_at(fileno, piece, first * width)
                taken[begin:end] = piece[rows[begin:end] - first]
                done += 1
        if not self._header.dtype.isnative:
            out.byteswap(inplace=True)

    def _take_transposed(
        self, fileno: int, out: AnyArray, rows: npt.NDArray[np.int64], longest: int
    ) -> None:
        window = np.empty(longest, self._header.dtype)
        for begin, end in _near(rows, self.dtype.itemsize):
            first = int(rows[begin])
            piece = window[: int(rows[end - 1]) - first + 1]
            for column in range(self.shape[1]):
                self._read_at(fileno, piece, column * self.shape[0] + first)
                out[begin:end, column] = piece[rows[begin:end] - first]

    def _fill_rows(self, fileno: int, out: AnyArray, spans: tuple[Span, ...]) -> None:
        """Read whole rows in one piece; parts of rows one by one."""
        width = math.prod(self.shape[1:])
        start, stop = spans[0]
        if out.shape[1:] == self.shape[1:]:
            self._read_at(fileno, out, start * width)
        else:
            for row in range(start, stop):
                self._read_at(fileno, out[row - start], row * width + spans[1][0])
        if not self._header.dtype.isnative:
            out.byteswap(inplace=True)

    def _fill_transposed(self, fileno: int, out: AnyArray, rows: Span, columns: Span) -> None:
        """Read column by column, some columns at a time."""
        start, stop = rows
        width = max(1, _PANEL_BYTES // max(1, (stop - start) * self.dtype.itemsize))
        buffer = np.empty((min(width, out.shape[1]), stop - start), self._header.dtype)
        for first in range(columns[0], columns[1], width):
            last = min(first + width, columns[1])
            panel = buffer[: last - first]
            for column in range(first, last):
                self._read_at(fileno, panel[column - first], column * self.shape[0] + start)
            out[:, first - columns[0] : last - columns[0]] = panel.T

    def _read_at(self, fileno: int, out: AnyArray, position: int) -> None:
        """Fill `out`, contiguous, with the values from the `position`-th on."""
        offset = self._offset + position * self.dtype.itemsize
        buffer = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        while buffer:  # one call reads 2 GiB at most
            count = os.preadv(fileno, [buffer], offset)
            if count == 0:
                raise InputError(
                    f"{self.uri} ends at byte {offset}, {len(buffer)} bytes short of what its "
                    f"header promises ({self._header.dtype} {self.shape}): it was cut short "
                    "after it had been opened; write it again"
                )
            buffer, offset = buffer[count:], offset + count


def _near(rows: npt.NDArray[np.int64], row_bytes: int) -> npt.NDArray[np.int64]:
    """Return the rows to be read in one piece, near each other and in one window: [p, 2].

    Begin and end of each piece, counted in `rows`.
    """
    far = np.diff(rows, prepend=rows[0]) > _NEAR_BYTES // row_bytes
    far[0] = True
    first = rows[far][np.cumsum(far) - 1]  # of the stretch that each row is in
    window = (rows - first) // (_WINDOW_BYTES // row_bytes)
    begin = np.flatnonzero(far | (np.diff(window, prepend=0) != 0))
    return np.stack([begin, np.append(begin[1:], len(rows))], axis=1)
