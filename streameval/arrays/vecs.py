"""`.fvecs`, `.ivecs` and `.bvecs` files (the TEXMEX corpus): rows that begin with their length."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streameval.arrays.array import AnyArray, Array, Span, refuse_key
from streameval.errors import InputError

_LENGTH_BYTES = 4  # of the length of a row, an int32, before each row
_PIECE_BYTES = 1 << 20  # read at a time
DTYPES = {".fvecs": np.float32, ".ivecs": np.int32, ".bvecs": np.uint8}


class VecsArray(Array):
    """Rows of one length, each after its length.

    Parameters
    ----------
    path : Path
    uri : str

    Raises
    ------
    InputError
        If the file is empty, or no whole number of rows of the first row's length.
    """

    def __init__(self, path: Path, uri: str) -> None:
        self.uri = uri
        self._path = path.absolute()
        self._stored = np.dtype(DTYPES[path.suffix.lower()]).newbyteorder("<")
        self.dtype = self._stored.newbyteorder("=")
        with path.open("rb") as file:
            head = file.read(_LENGTH_BYTES)
        width = int.from_bytes(head, "little", signed=True)
        size = path.stat().st_size
        self._row_bytes = _LENGTH_BYTES + width * self._stored.itemsize
        if len(head) < _LENGTH_BYTES or width < 1 or size % self._row_bytes:
            raise InputError(
                f"{uri} is {size} bytes long and its first row {width} long: no whole number of "
                f"such rows ({self._row_bytes} bytes each); it was cut short, or is no "
                f"{path.suffix} file"
            )
        self.shape = size // self._row_bytes, width
        self.chunks = (1, width)

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the rows with their lengths, that are read at a time."""
        return min(rows * self._row_bytes, max(_PIECE_BYTES, self._row_bytes))

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        (start, stop), (left, right) = spans
        step = max(_PIECE_BYTES // self._row_bytes, 1)
        try:
            with self._path.open("rb", buffering=0) as file:
                for first in range(start, stop, step):
                    last = min(first + step, stop)
                    file.seek(first * self._row_bytes)
                    data = bytearray((last - first) * self._row_bytes)
                    if file.readinto(data) != len(data):
                        raise InputError(f"{self.uri} was cut short after it had been opened")
                    rows = np.frombuffer(data, np.uint8).reshape(last - first, -1)
                    self._check_lengths(rows[:, :_LENGTH_BYTES], first)
                    values = np.ascontiguousarray(rows[:, _LENGTH_BYTES:]).view(self._stored)
                    out[first - start : last - start] = values[:, left:right]
        except OSError as error:
            raise InputError(f"{self.uri} {self.shape} can't be read: {error}") from error

    def _check_lengths(self, heads: AnyArray, first: int) -> None:
        lengths = np.ascontiguousarray(heads).view("<i4")[:, 0]
        other = np.flatnonzero(lengths != self.shape[1])
        if len(other):
            raise InputError(
                f"{self.uri} row {first + other[0]} is {lengths[other[0]]} long, row 0 "
                f"{self.shape[1]}: all rows must be of one length"
            )


def open_vecs(path: Path, key: str | None, uri: str) -> Array:
    """Open an `.fvecs`, `.ivecs` or `.bvecs` file.

    Raises
    ------
    InputError
        If a key is given, or the file is damaged.
    """
    refuse_key(uri, key)
    return VecsArray(path, uri)
