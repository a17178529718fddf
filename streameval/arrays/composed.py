"""Arrays made of others: a part of one, several put together, many files read as one.

Nothing is copied: a block is read from the arrays that it lies in.
"""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array, Spans, native_dtype, refuse_key, stretches
from streameval.arrays.npy import Header, open_npy, read_header
from streameval.arrays.zarr_array import is_zarr, open_zarr
from streameval.errors import InputError
from streameval.typing import AnyArray, IntArray

_DENSE = 4  # read with what lies between where at least one row in so many is wanted


class ComposedArray(Array):
    """Rows or columns of arrays, one array after the other.

    Parameters
    ----------
    parts : sequence of (Array, range or [n] int64)
        At least one array, and which of its rows or columns: a range of all; or an index,
        ascending, each once.
    axis : {0, 1}
    uri : str
        How messages name it.
    """

    def __init__(
        self, parts: Sequence[tuple[Array, range | IntArray]], axis: int, uri: str
    ) -> None:
        self.uri, self._chosen, self._axis = uri, tuple(parts), axis
        self._begin = np.cumsum([0, *(len(index) for _, index in parts)])
        largest, _ = max(parts, key=lambda part: len(part[1]))
        size = int(self._begin[-1])
        self.shape = (*largest.shape[:axis], size, *largest.shape[axis + 1 :])
        self.dtype = np.result_type(*(array.dtype for array, _ in parts))
        chunks = zip(largest.chunks, self.shape, strict=True)
        self.chunks = tuple(max(min(chunk, size), 1) for chunk, size in chunks)

    def opened(self) -> Iterator[Array]:
        """Yield the arrays that it is made of, unless it was opened as a whole."""
        if self.files is not None:
            yield self
            return
        for array, _ in self._chosen:
            yield from array.opened()

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what reading takes of the part that takes most, and its block if copied."""
        axis, most = self._axis, 0
        for array, index in self._chosen:
            block, whole = [rows, columns][: len(self.shape)], isinstance(index, range)
            if not whole:  # with what lies between what is wanted
                block[axis] = min(_DENSE * block[axis], array.shape[axis])
            in_place = whole and axis == 0 and array.dtype == self.dtype
            copied = 0 if in_place else math.prod(block) * self.dtype.itemsize
            most = max(most, copied + array.read_scratch_bytes(*(*block, 0)[:2]))
        return most

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        axis, (start, stop) = self._axis, spans[self._axis]
        first = int(np.searchsorted(self._begin, start, side="right")) - 1
        last = int(np.searchsorted(self._begin, stop))
        edges = pairwise(self._begin[first : last + 1].tolist())
        for (array, index), (begin, end) in zip(self._chosen[first:last], edges, strict=True):
            left = max(start, begin)
            wanted = index[left - begin : min(stop, end) - begin]
            for own in _close(wanted, axis):
                place = slice(left - start + own.start, left - start + own.stop)
                target, rows = out[:, place] if axis else out[place], wanted[own]
                in_place = isinstance(rows, range) and target.flags.c_contiguous
                in_place = in_place and array.dtype == self.dtype
                span = int(rows[0]), int(rows[-1]) + 1
                within = (*spans[:axis], span, *spans[axis + 1 :])
                block = array.read(*within, out=target if in_place else None)
                if not isinstance(rows, range):
                    target[...] = np.take(block, rows - span[0], axis)
                elif not (in_place and np.may_share_memory(block, target)):
                    target[...] = block  # one in memory gives a view

    def _take(self, out: AnyArray, rows: IntArray) -> None:
        if self._axis == 1:
            for (array, index), columns in zip(self._chosen, pairwise(self._begin), strict=True):
                taken = array.take(rows)
                out[:, slice(*columns)] = taken if isinstance(index, range) else taken[:, index]
            return
        part = np.searchsorted(self._begin, rows, side="right") - 1
        for own in stretches(part):
            array, index = self._chosen[part[own.start]]
            place = rows[own] - self._begin[part[own.start]]
            out[own] = array.take(place if isinstance(index, range) else index[place])


def _close(index: range | IntArray, axis: int) -> Iterator[slice]:
    """Yield stretches of rows that lie close together; all columns."""
    begin = 0
    while begin < len(index):
        end = len(index)
        if axis == 0 and not isinstance(index, range):
            reach = np.arange(1, end - begin + 1)
            sparse = index[begin:] - index[begin] >= _DENSE * reach
            end = begin + int(np.argmax(sparse)) if sparse.any() else end
        yield slice(begin, end)
        begin = end


class SelectedArray(ComposedArray):
    """Some rows of an array, or some columns: those of an index, ascending, each once."""

    def __init__(self, array: Array, index: IntArray, axis: int = 0) -> None:
        super().__init__([(array, index)], axis, array.uri)


class JoinedArray(ComposedArray):
    """Arrays one after the other, along rows or along columns."""

    def __init__(self, arrays: Sequence[Array], axis: int, uri: str) -> None:
        super().__init__([(array, range(array.shape[axis])) for array in arrays], axis, uri)


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
