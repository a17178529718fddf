"""Arrays in many files: shards, as ``gallery-*.npy`` names them, and folders of a file an image.

Both are in natural order: ``part-2`` is before ``part-10``.
"""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from streameval.arrays.array import AnyArray, Array, Span, native_dtype
from streameval.arrays.composed import JoinedArray
from streameval.arrays.npy import open_npy, read_header
from streameval.arrays.zarr_array import open_zarr
from streameval.errors import InputError

_ZARR = ("zarr.json", ".zarray", ".zgroup")
_SUFFIX = ".npy"


def natural_order(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """Return a key to sort names by, in which numbers count as such."""
    parts = [part for part in re.split(r"(\d+)", name) if part]
    keys = [
        (
            not part.isdecimal(),
            int(part) if part.isdecimal() else 0,
            part if not part.isdecimal() else "",
        )
        for part in parts
    ]
    return keys, name


def is_pattern(path: Path) -> bool:
    """Tell whether a path names files by ``*``, ``?`` or ``[...]``, and is no file itself."""
    return glob.has_magic(str(path)) and not path.exists()


def matching(path: Path, uri: str) -> list[Path]:
    """Return the files that a pattern names, in natural order.

    Raises
    ------
    InputError
        If there are none.
    """
    # Path.glob takes no absolute pattern.
    found = sorted(glob.glob(str(path)), key=natural_order)  # noqa: PTH207
    if not found:
        raise InputError(f"{uri}: no file fits {path}; a pattern such as 'gallery-*.npy' is needed")
    return [Path(one) for one in found]


class ShardedArray(JoinedArray):
    """Arrays one after the other, read as one.

    Parameters
    ----------
    parts : sequence of Array
        At least one; of one width and dtype.
    uri : str

    Raises
    ------
    InputError
        If widths or dtypes differ.
    """

    def __init__(self, parts: Sequence[Array], uri: str) -> None:
        first = parts[0]
        for part in parts:
            if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
                raise InputError(
                    f"{uri}: {part.uri} is {part.dtype} {part.shape}, {first.uri} {first.dtype} "
                    f"{first.shape}: shards need one dtype and one number of columns"
                )
        super().__init__(parts, 0, uri)
        self.chunks = first.chunks

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what the most demanding shard takes: one is read at a time."""
        return max(part.read_scratch_bytes(rows, columns) for part in self._arrays)


class FolderArray(Array):
    """A folder of `.npy` files, a row each, in natural order of their names.

    The first file says what all others must be; each is checked when it is read.

    Parameters
    ----------
    path : Path
    names : sequence of str
        Of the files, at least one.
    uri : str

    Raises
    ------
    InputError
        If the first file holds no row of numbers.
    """

    def __init__(self, path: Path, names: Sequence[str], uri: str) -> None:
        self.uri = uri
        self._path, self._names = path.absolute(), tuple(names)
        first = (path / names[0]).read_bytes()
        header = read_header(io.BytesIO(first), f"{uri}: {names[0]}")
        self._head, self._size = first[: header.length], header.length + header.nbytes
        self._stored = header.dtype
        self.shape = len(names), header.nbytes // max(header.dtype.itemsize, 1)
        self.dtype = native_dtype(uri, self.shape, header.dtype)
        self.chunks = (1, self.shape[1])

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Path, None, str]]:
        return open_folder, (self._path, None, self.uri)

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return an upper estimate of what a file takes while it is read: twice its size."""
        return 2 * self._size

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        columns = slice(*spans[1])
        for row in range(*spans[0]):
            file = self._path / self._names[row]
            with file.open("rb") as opened:
                content = opened.read(self._size + 1)
            if len(content) != self._size or not content.startswith(self._head):
                raise InputError(
                    f"{self.uri} row {row} is {file.name}, which is no {self._stored} array of "
                    f"{self.shape[1]} values as {self._names[0]} is, or was cut short: one row "
                    "of one kind a file is needed"
                )
            out[row - spans[0][0]] = np.frombuffer(content, self._stored, offset=len(self._head))[
                columns
            ]


def open_folder(path: Path, key: str | None, uri: str) -> Array:
    """Open a folder: Zarr; or `.npy` files, a row each, or of several rows each.

    Raises
    ------
    InputError
        If it is neither, or an array can't be evaluated.
    """
    names = []
    if path.is_dir() and not any((path / name).is_file() for name in _ZARR):
        names = sorted(
            (one.name for one in path.iterdir() if one.suffix.lower() == _SUFFIX),
            key=natural_order,
        )
    if not names:
        return open_zarr(path, key, uri)
    if key is not None:
        raise InputError(f"{uri}: .npy files have no keys; give {str(path)!r} alone")
    with (path / names[0]).open("rb") as file:
        shape = read_header(file, f"{uri}: {names[0]}").shape
    if len(shape) == 1 or shape[0] == 1:
        return FolderArray(path, names, uri)
    return ShardedArray([open_npy(path / name, None, str(path / name)) for name in names], uri)
