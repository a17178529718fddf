"""Arrays made of others: a part of one, several put together, many files read as one.

Nothing is copied: a block is read from the arrays that it lies in.
"""

from __future__ import annotations

import glob
import io
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from streameval.arrays.array import AnyArray, Array, Rows, Spans, native_dtype, refuse_key
from streameval.arrays.npy import open_npy, read_header
from streameval.arrays.zarr_array import is_zarr, open_zarr
from streameval.errors import InputError

_DENSE = 4  # read with what lies between where at least one row in so many is wanted


class SelectedArray(Array):
    """Some rows of an array, and of a 2-d one some of its columns.

    Parameters
    ----------
    array : Array
    rows, columns : [n] int64, optional
        Indices, ascending, each once; all by default.
    """

    def __init__(
        self,
        array: Array,
        rows: Rows | None = None,
        columns: Rows | None = None,
    ) -> None:
        self.uri, self.dtype, self._array = array.uri, array.dtype, array
        self._chosen = (rows, columns)[: len(array.shape)]
        chosen = zip(array.shape, self._chosen, strict=True)
        self.shape = tuple(size if index is None else len(index) for size, index in chosen)
        self.chunks = tuple(
            max(min(chunk, size), 1) for chunk, size in zip(array.chunks, self.shape, strict=True)
        )

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what reading the array itself takes, and what lies between what is wanted."""
        sizes = zip((rows, columns), self._chosen, self._array.shape, strict=False)
        spread = [
            min(size if index is None else _DENSE * size, whole) for size, index, whole in sizes
        ]
        wide = spread[1] if len(spread) == 2 else 0
        between = math.prod(spread) * self.dtype.itemsize
        return between + self._array.read_scratch_bytes(spread[0], wide)

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        rows, columns = (*self._chosen, None)[:2]
        span = spans[1] if len(spans) == 2 else None
        if columns is not None:
            columns = columns[slice(*spans[1])]
            span = int(columns[0]), int(columns[-1]) + 1
            columns = columns - columns[0]
        if rows is None:
            out[...] = _pick(self._array.read(spans[0], span), columns)
            return
        rows, done = rows[slice(*spans[0])], 0
        while done < len(rows):  # by stretches in which what is wanted lies close together
            reach = np.arange(1, len(rows) - done + 1)
            sparse = rows[done:] - rows[done] >= _DENSE * reach
            stop = done + (int(np.argmax(sparse)) if sparse.any() else len(reach))
            first, last = int(rows[done]), int(rows[stop - 1])
            block = self._array.read((first, last + 1), span)
            out[done:stop] = _pick(block[rows[done:stop] - first], columns)
            done = stop

    def _take(self, out: AnyArray, rows: Rows) -> None:
        chosen, columns = (*self._chosen, None)[:2]
        out[...] = _pick(self._array.take(rows if chosen is None else chosen[rows]), columns)


def _pick(block: AnyArray, columns: Rows | None) -> AnyArray:
    return block if columns is None else block[:, columns]


class JoinedArray(Array):
    """Arrays one after the other, along rows or along columns.

    Parameters
    ----------
    arrays : sequence of Array
        At least one; of a dtype that holds the values of all.
    axis : {0, 1}
    uri : str
        How messages name it.
    """

    def __init__(self, arrays: Sequence[Array], axis: int, uri: str) -> None:
        self.uri, self._arrays, self._axis = uri, tuple(arrays), axis
        self._begin = np.cumsum([0, *(array.shape[axis] for array in arrays)])
        shape = list(arrays[0].shape)
        shape[axis] = int(self._begin[-1])
        self.shape = tuple(shape)
        self.dtype = np.result_type(*(array.dtype for array in arrays))
        self.chunks = max(arrays, key=lambda array: array.shape[axis]).chunks

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what reading takes of the array that takes most, and its block if copied."""
        in_place = self._axis == 0 and all(array.dtype == self.dtype for array in self._arrays)
        copied = 0 if in_place else rows * max(columns, 1) * self.dtype.itemsize
        return copied + max(array.read_scratch_bytes(rows, columns) for array in self._arrays)

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        start, stop = spans[self._axis]
        for array, begin, end in self._touched(start, stop):
            left, right = max(start, begin), min(stop, end)
            own = list(spans)
            own[self._axis] = left - begin, right - begin
            at = slice(left - start, right - start)
            target = out[at] if self._axis == 0 else out[:, at]
            in_place = target.flags.c_contiguous and array.dtype == self.dtype
            columns = own[1] if len(own) == 2 else None
            block = array.read(own[0], columns, out=target if in_place else None)
            if not (in_place and np.may_share_memory(block, target)):  # one in memory gives a view
                target[...] = block

    def _take(self, out: AnyArray, rows: Rows) -> None:
        if self._axis == 1:
            for array, begin, end in self._touched(0, self.shape[1]):
                out[:, begin:end] = array.take(rows)
            return
        for array, begin, end in self._touched(int(rows[0]), int(rows[-1]) + 1):
            own = slice(*np.searchsorted(rows, [begin, end]))
            out[own] = array.take(rows[own] - begin)

    def _touched(self, start: int, stop: int) -> list[tuple[Array, int, int]]:
        """Return the arrays that a range lies in, not empty, each with its begin and end."""
        first = int(np.searchsorted(self._begin, start, side="right")) - 1
        last = int(np.searchsorted(self._begin, stop))
        edges = self._begin[first : last + 1].tolist()
        parts = zip(self._arrays[first:last], edges, edges[1:], strict=False)
        return [(array, begin, end) for array, begin, end in parts if begin < end]


def natural_order(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """Return a key to sort names by, in which numbers count: ``part-2`` is before ``part-10``."""
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return [(False, int(part), "") if part.isdecimal() else (True, 0, part) for part in parts], name


def is_pattern(path: Path) -> bool:
    """Tell whether a path names files by ``*``, ``?`` or ``[...]``, and is no file itself."""
    return glob.has_magic(str(path)) and not path.exists()


def matching(path: Path, uri: str) -> list[Path]:
    """Return the files that a pattern names, in natural order."""
    # Path.glob takes no absolute pattern.
    found = sorted(glob.glob(str(path)), key=natural_order)  # noqa: PTH207
    if not found:
        raise InputError(f"{uri}: no file fits {path}; a pattern such as 'gallery-*.npy' is needed")
    return [Path(one) for one in found]


def join_shards(parts: Sequence[Array], uri: str) -> Array:
    """Return arrays read as one, if they are of one width and dtype."""
    first = parts[0]
    for part in parts:
        if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
            raise InputError(
                f"{uri}: {part.uri} is {part.dtype} {part.shape}, {first.uri} {first.dtype} "
                f"{first.shape}: shards need one dtype and one number of columns"
            )
    return JoinedArray(parts, 0, uri)


class FolderArray(Array):
    """A folder of `.npy` files, a row each, in natural order of their names.

    The first file says what all others must be; each is checked when it is read.
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

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        for target, row in zip(out, range(*spans[0]), strict=True):
            with (self._path / self._names[row]).open("rb") as file:
                content = file.read(self._size + 1)
            if len(content) != self._size or not content.startswith(self._head):
                raise InputError(
                    f"{self.uri} row {row} is {self._names[row]}, no {self._stored} array of "
                    f"{self.shape[1]} values as {self._names[0]} is: one row a file is needed"
                )
            values = np.frombuffer(content, self._stored, offset=len(self._head))
            target[...] = values[slice(*spans[1])]


def open_folder(path: Path, key: str | None, uri: str) -> Array:
    """Open a folder: Zarr; or `.npy` files, a row each, or of several rows each."""
    names: list[str] = []
    if path.is_dir() and not is_zarr(path):
        names = [file.name for file in path.iterdir() if file.suffix.lower() == ".npy"]
    if not names:
        return open_zarr(path, key, uri)
    refuse_key(uri, key)
    names.sort(key=natural_order)
    with (path / names[0]).open("rb") as file:
        shape = read_header(file, f"{uri}: {names[0]}").shape
    if len(shape) == 1 or shape[0] == 1:
        return FolderArray(path, names, uri)
    return join_shards([open_npy(path / name, None, str(path / name)) for name in names], uri)
