"""Files of rows, read by positional reads: .npy, members of .npz, and .fvecs of TEXMEX.

No memory map: the pages of a map that were touched count as memory of the process, so that a
pass over the file would look like, and be budgeted as, the whole file.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import zipfile
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from streameval.arrays.array import (
    Array,
    Shape,
    Spans,
    check_lengths,
    choose_key,
    descriptor,
    native_dtype,
    reading,
    refuse_key,
)
from streameval.arrays.memory import LoadedArray, check_fits, in_memory
from streameval.arrays.witness import witness
from streameval.errors import InputError
from streameval.typing import AnyArray, IntArray

_PANEL_BYTES = 1 << 20  # of a Fortran-ordered file, held at a time while it is transposed
_VECS_BYTES = 1 << 20  # of rows with their lengths, read at a time
_CALL_BYTES = 1 << 30  # that one call is asked for: systems read, or take, 2 GiB at most
_LENGTH_BYTES = 4  # of the length of a row of .fvecs, an int32, before each row
_MAGIC = 8  # bytes, before the length of the header
_VERSIONS = {  # 3.0 is for structured arrays
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
VECS = {".fvecs": np.float32, ".ivecs": np.int32, ".bvecs": np.uint8}


class Header(NamedTuple):
    """What an `.npy` header says: the dtype as stored, the length of the header itself in bytes."""

    shape: Shape
    fortran: bool
    dtype: np.dtype[np.generic]
    length: int = 0

    @property
    def nbytes(self) -> int:
        """Size of the values, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], uri: str) -> Header:
    """Read the header at the start of a file; no pickle is ever loaded."""
    with reading(uri, "read by its .npy header"):
        start = file.read(_MAGIC)
        start += file.read(4 if start[6:] == b"\x02\x00" else 2)  # of which the length is
        header = _parse(start + file.read(int.from_bytes(start[_MAGIC:], "little")))
    native_dtype(uri, header.shape, header.dtype)
    return header


@lru_cache
def _parse(text: bytes) -> Header:
    """Return what a header says: many files of a gallery have the same."""
    file = BytesIO(text)
    shape, fortran, dtype = _VERSIONS[np.lib.format.read_magic(file)](file)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} has a negative size")
    return Header(shape, fortran and len(shape) == 2, dtype, file.tell())


def open_npy(path: Path, key: str | None, uri: str) -> Array:
    """Open an `.npy` file."""
    refuse_key(uri, key)
    with path.open("rb") as file:
        header = read_header(file, uri)
        size = file.seek(0, os.SEEK_END)
    promised = header.length + header.nbytes
    if size < promised:
        raise InputError(
            f"{uri} is {size} bytes long; its header promises {header.dtype} {header.shape}, "
            f"{promised} bytes: it was cut short, write it again"
        )
    return NpyArray(path, header, header.length, uri)


def open_npz(path: Path, key: str | None, uri: str) -> Array:
    """Open a member of an `.npz` file: a stored one in place, a compressed one loaded whole."""
    remedy = "the file is damaged, or no .npz; write it again with numpy.savez"
    with reading(uri, "read as .npz", remedy), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        key, uri = choose_key(path, key, names, "array")
        member = archive.getinfo(f"{key}.npy")
        with archive.open(member) as file:
            header = read_header(file, uri)
        held = member.file_size - header.length
        if held != header.nbytes:
            raise InputError(
                f"{uri} holds {held} bytes of values; its header promises {header.dtype} "
                f"{header.shape}, {header.nbytes} bytes: write it again"
            )
        if member.compress_type != zipfile.ZIP_STORED:
            check_fits(uri, header.nbytes)
            with archive.open(member) as file:
                return LoadedArray(np.lib.format.read_array(file), uri, open_npz, path, key)
        with path.open("rb") as start:  # the member's own header: PKWARE APPNOTE, section 4.3.7
            start.seek(member.header_offset)
            name, extra = struct.unpack("<26xHH", start.read(30))
        return NpyArray(path, header, member.header_offset + 30 + name + extra + header.length, uri)


def open_map(values: Any, name: str | None) -> Array:
    """Open a memory map: by the path of its file if it is a whole one that can't be written to.

    Others, such as parts of a map and copies on write, are read through the map.
    """
    path = Path(values.filename) if values.filename else None
    if path is None or values.mode != "r" or not isinstance(values.base, mmap.mmap):
        return in_memory(values, name)
    if not _is_mapped(path, values.ctypes.data):
        return in_memory(values, name)
    fortran = values.ndim == 2 and not values.flags.c_contiguous
    return NpyArray(path, Header(values.shape, fortran, values.dtype), values.offset, str(path))


def _is_mapped(path: Path, address: int) -> bool:
    """Whether the file of a path is still that which is mapped at an address; Linux tells."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        span, _, _, _, mapped, *_ = line.split()
        begin, end = (int(number, 16) for number in span.split("-"))
        if begin <= address < end:
            return int(mapped) == inode
    return False


class NpyArray(Array):
    """Values stored in one piece in a file, from `offset` in bytes: `.npy`, or a member of `.npz`.

    The file is opened for each read, so that nothing is shared between threads.
    """

    def __init__(self, path: Path, header: Header, offset: int, uri: str) -> None:
        self.uri = uri
        self.shape = header.shape
        self.dtype = native_dtype(uri, header.shape, header.dtype)
        self.chunks = (1, *header.shape[1:])
        self._path, self._header, self._offset = path.absolute(), header, offset

    @property
    def grain(self) -> Shape | None:
        """Nothing but the entry, in C order."""
        return None if self._header.fortran else (1, 1)

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the panel that is transposed at a time; 0 in C order."""
        if not self._header.fortran:
            return 0
        column = rows * self.dtype.itemsize
        return min(column * columns, max(column, _PANEL_BYTES))

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        with descriptor(self._path) as file:
            if not self._header.fortran:
                if not self._copy(file, out, spans):
                    self._fill_stored(file, out, spans, self.shape)
                    self._swap(out)
                return
            rows, (start, stop) = spans
            step = max(1, _PANEL_BYTES // (len(out) * self.dtype.itemsize))
            buffer = np.empty((min(step, stop - start), len(out)), self._header.dtype)
            for first in range(start, stop, step):
                panel = buffer[: stop - first]
                columns = first, first + len(panel)
                self._fill_stored(file, panel, (columns, rows), self.shape[::-1])
                out[:, first - start : first - start + len(panel)] = panel.T

    def _copy(self, file: int, out: AnyArray, spans: Spans) -> bool:
        """Read rows that are witnessed, and digest them while they are in the cache.

        Returns whether that is done: what can't be read says why as the others are read.
        """
        seen_by = witness()
        digests = np.zeros(0, np.uint64) if seen_by is None else seen_by.room(self, spans)
        plain = len(self.shape) == 2 and self._header.dtype.isnative and self.dtype.kind in "iuf"
        if seen_by is None or not (plain and len(digests)):
            return False
        from streameval.arrays import digest
        from streameval.arrays.scattered import read_adjacent

        (start, _), (left, _) = spans
        stride = self.shape[1] * self.dtype.itemsize
        offset = self._offset + start * stride + left * self.dtype.itemsize
        known = digest.first_word(self.dtype, left), digest.own_multipliers(), digests
        if not read_adjacent(file, offset, stride, digest.words_of(out), *known):
            return False
        seen_by.digested(self, spans, digests)
        return True

    def _fill_stored(self, file: int, out: AnyArray, spans: Spans, shape: Shape) -> None:
        """Read a block of the rows of this shape that are stored: whole ones in one piece."""
        (start, stop), width = spans[0], math.prod(shape[1:])
        if out.shape[1:] == shape[1:]:
            self._read_at(file, out, start * width)
            return
        for row in range(start, stop):
            self._read_at(file, out[row - start], row * width + spans[1][0])

    def _take(self, out: AnyArray, rows: IntArray) -> None:
        """Read rows that are near each other in one piece, with what is between them."""
        from streameval.arrays.scattered import NEAR_BYTES, pieces_of, read_scattered

        fortran, itemsize = self._header.fortran, self.dtype.itemsize
        cell_bytes = itemsize if fortran else out.nbytes // len(out)  # that lie together
        if cell_bytes >= NEAR_BYTES:
            super()._take(out, rows)
            return
        pieces, longest = pieces_of(rows, cell_bytes)
        window = np.empty((longest, cell_bytes), np.uint8)
        column = np.empty(len(rows), self._header.dtype)
        cells = (column if fortran else out.reshape(-1)).view(np.uint8).reshape(-1, cell_bytes)
        with descriptor(self._path) as file:
            for number in range(self.shape[1] if fortran else 1):
                offset = self._offset + number * self.shape[0] * itemsize
                done = read_scattered(file, offset, rows, pieces, window, cells)
                if done < len(pieces):  # again, which says why, or goes on
                    super()._take(out, rows)
                    return
                if fortran:
                    out[:, number] = column
        if not fortran:
            self._swap(out)

    def _pick(self, out: AnyArray, rows: IntArray, columns: IntArray) -> None:
        """Read entries that are near each other in one piece, with what is between them."""
        from streameval.arrays.scattered import pieces_of, read_scattered

        if self._header.fortran:
            super()._pick(out, rows, columns)
            return
        place = rows * self.shape[1] + columns
        order, itemsize = np.argsort(place), self.dtype.itemsize
        pieces, longest = pieces_of(place[order], itemsize)
        window, found = np.empty((longest, itemsize), np.uint8), np.empty_like(out)
        cells = found.view(np.uint8).reshape(-1, itemsize)
        with descriptor(self._path) as file:
            given = file, self._offset, place[order], pieces, window, cells
            if read_scattered(*given) < len(pieces):  # again, which says why, or goes on
                super()._pick(out, rows, columns)
                return
        self._swap(found)
        out[order] = found

    def _swap(self, out: AnyArray) -> None:
        """Turn values as stored into the byte order of this machine."""
        if not self._header.dtype.isnative:
            out.byteswap(inplace=True)

    def _read_at(self, file: int, out: AnyArray, position: int) -> None:
        """Fill `out`, contiguous, with the values from the `position`-th on."""
        offset = self._offset + position * self.dtype.itemsize
        buffer = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        os.lseek(file, offset, os.SEEK_SET)
        while buffer:
            count = os.readv(file, [buffer[:_CALL_BYTES]])
            if not count:
                raise InputError(
                    f"{self.uri} ends at byte {offset}, {len(buffer)} bytes short of "
                    f"{self.shape}: it was cut short after it had been opened; write it again"
                )
            buffer, offset = buffer[count:], offset + count


class VecsArray(Array):
    """Rows of one length, each after its length: `.fvecs`, `.ivecs` and `.bvecs`."""

    def __init__(self, path: Path, key: str | None, uri: str) -> None:
        refuse_key(uri, key)
        self.uri = uri
        self.dtype = np.dtype(VECS[path.suffix.lower()])
        with path.open("rb") as file:
            width = int.from_bytes(file.read(_LENGTH_BYTES), "little", signed=True)
            size = file.seek(0, os.SEEK_END)
        row_bytes = _LENGTH_BYTES + width * self.dtype.itemsize
        if width < 1 or size % row_bytes:
            raise InputError(
                f"{uri} is {size} bytes long, no whole number of rows of {width} values, as its "
                f"first row: it was cut short, or is no {path.suffix} file"
            )
        self.shape = size // row_bytes, width
        self.chunks = (1, width)
        values = self.dtype.newbyteorder("<"), (width,)
        self._path, self._row = path.absolute(), np.dtype([("length", "<i4"), ("values", *values)])

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the rows with their lengths, that are read at a time."""
        return min(rows * self._row.itemsize, max(_VECS_BYTES, self._row.itemsize))

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        (start, stop), (left, right) = spans
        row_bytes = self._row.itemsize
        step = max(_VECS_BYTES // row_bytes, 1)
        for first in range(start, stop, step):
            part = out[first - start : first - start + step]
            rows = np.fromfile(self._path, self._row, len(part), offset=first * row_bytes)
            if len(rows) < len(part):
                raise InputError(
                    f"{self.uri} ends at row {first + len(rows)} of {self.shape[0]}: it was cut "
                    "short after it had been opened; write it again"
                )
            check_lengths(self.uri, rows["length"], self.shape[1], first)
            part[...] = rows["values"][:, left:right]
