"""Arrays made of others: a part of one, several put together, many files read as one.

Nothing is copied: a block is read from the arrays that it lies in.
"""

from __future__ import annotations

import glob
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from streameval.arrays.array import AnyArray, Array, Rows, Span, Spans, native_dtype, refuse_key
from streameval.arrays.npy import Header, open_npy, read_header
from streameval.arrays.zarr_array import is_zarr, open_zarr
from streameval.errors import InputError

_DENSE = 4  # read with what lies between where at least one row in so many is wanted


class ComposedArray(Array):
    """Arrays put together along an axis, or a part of one."""

    _axis: int

    @abstractmethod
    def _parts(self, start: int, stop: int) -> Iterator[tuple[Array, slice, Span, Rows | None]]:
        """Yield the parts of a range, not empty, of the axis.

        Each is an array, where its values belong in the range, which span of the array to read,
        and what of that is wanted; None: all.
        """

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        axis = self._axis
        for array, at, span, wanted in self._parts(*spans[axis]):
            target = out[:, at] if axis else out[at]
            in_place = wanted is None and target.flags.c_contiguous and array.dtype == self.dtype
            own = (*spans[:axis], span, *spans[axis + 1 :])
            block = array.read(*own, out=target if in_place else None)
            if not (in_place and np.may_share_memory(block, target)):  # one in memory gives a view
                target[...] = block if wanted is None else np.take(block, wanted, axis)


class SelectedArray(ComposedArray):
    """Some rows of an array, or some columns.

    Parameters
    ----------
    array : Array
    index : [n] int64
        Ascending, each once.
    axis : {0, 1}
    """

    def __init__(self, array: Array, index: Rows, axis: int = 0) -> None:
        self.uri, self.dtype, self._array = array.uri, array.dtype, array
        self._index, self._axis = index, axis
        self.shape = (*array.shape[:axis], len(index), *array.shape[axis + 1 :])
        chunks = zip(array.chunks, self.shape, strict=True)
        self.chunks = tuple(max(min(chunk, size), 1) for chunk, size in chunks)

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what reading the array itself takes, and what lies between what is wanted."""
        block = [rows, columns][: len(self.shape)]
        block[self._axis] = min(_DENSE * block[self._axis], self._array.shape[self._axis])
        between = math.prod(block) * self.dtype.itemsize
        return between + self._array.read_scratch_bytes(*(*block, 0)[:2])

    def _parts(self, start: int, stop: int) -> Iterator[tuple[Array, slice, Span, Rows]]:
        """Yield stretches of rows in which what is wanted lies close together; all columns."""
        index, begin = self._index[start:stop], 0
        while begin < len(index):
            reach = np.arange(1, len(index) - begin + 1)
            sparse = index[begin:] - index[begin] >= _DENSE * reach
            close = self._axis or not sparse.any()
            end = len(index) if close else begin + int(np.argmax(sparse))
            first, last = int(index[begin]), int(index[end - 1])
            yield self._array, slice(begin, end), (first, last + 1), index[begin:end] - first
            begin = end

    def _take(self, out: AnyArray, rows: Rows) -> None:
        taken = self._array.take(rows if self._axis else self._index[rows])
        out[...] = taken[:, self._index] if self._axis else taken


class JoinedArray(ComposedArray):
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
        first, size = arrays[0].shape, int(self._begin[-1])
        self.shape = (*first[:axis], size, *first[axis + 1 :])
        self.dtype = np.result_type(*(array.dtype for array in arrays))
        self.chunks = max(arrays, key=lambda array: array.shape[axis]).chunks

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what reading takes of the array that takes most, and its block if copied."""
        in_place = self._axis == 0 and all(array.dtype == self.dtype for array in self._arrays)
        copied = 0 if in_place else rows * max(columns, 1) * self.dtype.itemsize
        return copied + max(array.read_scratch_bytes(rows, columns) for array in self._arrays)

    def _parts(self, start: int, stop: int) -> Iterator[tuple[Array, slice, Span, None]]:
        first = int(np.searchsorted(self._begin, start, side="right")) - 1
        last = int(np.searchsorted(self._begin, stop))
        edges = self._begin[first : last + 1].tolist()
        for array, (begin, end) in zip(self._arrays[first:last], pairwise(edges), strict=True):
            left, right = max(start, begin), min(stop, end)
            if left < right:
                yield array, slice(left - start, right - start), (left - begin, right - begin), None

    def _take(self, out: AnyArray, rows: Rows) -> None:
        if self._axis == 1:
            for array, at, _, _ in self._parts(0, self.shape[1]):
                out[:, at] = array.take(rows)
            return
        start = int(rows[0])
        for array, at, span, _ in self._parts(start, int(rows[-1]) + 1):
            own = slice(*np.searchsorted(rows, [start + at.start, start + at.stop]))
            out[own] = array.take(rows[own] - start - at.start + span[0])


def natural_order(name: str) -> tuple[list[int | str], str]:
    """Return a key to sort names by, in which numbers count: ``part-2`` is before ``part-10``."""
    parts = re.split(r"(\d+)", name)  # texts and numbers by turns
    return [int(part) if part.isdecimal() else part for part in parts], name


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

    The first file, of this header, says what all others must be; each is checked when it is read.
    """

    def __init__(
        self, path: Path, names: Sequence[str], header: Header, head: bytes, uri: str
    ) -> None:
        self.uri, self._path, self._names = uri, path.absolute(), tuple(names)
        self._head, self._size = head, header.length + header.nbytes
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
        header = read_header(file, f"{uri}: {names[0]}")
        file.seek(0)
        head = file.read(header.length)
    if len(header.shape) == 1 or header.shape[0] == 1:
        return FolderArray(path, names, header, head, uri)
    return join_shards([open_npy(path / name, None, str(path / name)) for name in names], uri)
