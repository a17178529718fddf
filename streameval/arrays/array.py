"""The contract of an array that is read by blocks, and what every format shares."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streameval.arrays.witness import witness
from streameval.errors import InputError, StreamevalError
from streameval.typing import AnyArray, Indices, IntArray, Span

if TYPE_CHECKING:
    from streameval.arrays.identity import Files

Spans = tuple[Span, ...]  # one an axis
Shape = tuple[int, ...]

DAMAGED = "the file is damaged, or of another format; write it again"
_REMEDY = {
    "b": "convert it with .astype('uint8')",
    "c": "save its real part or its magnitude",
    "f": "convert it with .astype('float64')",
    "O": "object arrays hold pickles, which are never loaded; save it again as numbers or strings",
    "M": "save the times as integers, with .astype('int64')",
    "m": "save the durations as integers, with .astype('int64')",
    "V": "save each field as an array of its own",
}


class Array(ABC):
    """A 1-d or 2-d array of numbers or strings, on disk or in memory, read by blocks.

    Instances can be pickled (a worker opens the file again) and read from several threads at
    once.

    Attributes
    ----------
    uri : str
        How messages name it.
    shape : tuple of int
    dtype : numpy.dtype
        Of what `read` returns, in native byte order.
    chunks : tuple of int
        The block that is natural to read, along each axis.
    edges : tuple of [c] int64, optional
        Where chunks end along each axis, if each costs as much however little of it is read:
        tasks are cut there.
    """

    uri: str
    shape: Shape
    dtype: np.dtype[np.generic]
    chunks: Shape
    edges: tuple[IntArray, ...] | None = None
    in_memory: bool = False
    """Whether it can't be opened again by path."""
    files: Files | None = None
    """What its files were known by before it was opened; None if it has none of its own."""
    is_read_again: bool = False
    """Whether reading it alone tells that it has changed."""
    in_files: bool = False
    """Whether each chunk is a file of its own, which is opened whenever some of it is read."""
    fill_missing: bool = False
    """Whether what was never written of it is read as its fill value."""

    def __repr__(self) -> str:
        return f"<{self.uri}: {self.dtype} {self.shape}>"

    @property
    def identity(self) -> str | None:
        """What it is recognised by where a run is resumed; None: by its content."""
        return None

    @property
    def grain(self) -> Shape | None:
        """What is read at least to know an entry, where that costs little; None elsewhere."""
        return None

    @property
    def sent_bytes(self) -> int:
        """Bytes that are sent to each worker of a cluster; none of what it opens again by path."""
        return math.prod(self.shape) * self.dtype.itemsize if self.in_memory else 0

    def read(
        self, rows: Span, columns: Span | None = None, *, out: AnyArray | None = None
    ) -> AnyArray:
        """Read a block.

        Parameters
        ----------
        rows, columns : (start, stop)
            Half-open, within the shape. All columns by default; a 1-d array has none.
        out : [>= rows] or [>= rows, columns] array, optional
            A C-contiguous array of this dtype to read into, again and again: fresh memory costs
            about as much as reading it. An array in memory leaves it as it is.

        Returns
        -------
        [rows] or [rows, columns] array
            C-contiguous, in native byte order. Arrays in memory return a view where they can.

        Raises
        ------
        InputError
            If the file is damaged there.
        IndexError
            If the block reaches beyond the array.
        """
        spans = self._spans(rows, columns)
        block = self._read(spans, out)
        if (seen_by := witness()) is not None:
            seen_by.saw(self, spans, block)
        return block

    def look(self, spans: Spans) -> AnyArray:
        """Read the block at `spans`, one an axis, to look at it alone.

        Unlike `read`, it may return a view of any strides, does not check the spans, and no witness
        sees it.
        """
        return self._read(spans)

    def _read(self, spans: Spans, out: AnyArray | None = None) -> AnyArray:
        """Read the block at `spans`; see `read`."""
        shape = tuple(stop - start for start, stop in spans)
        block = np.empty(shape, self.dtype) if out is None else out[: shape[0]]
        if block.shape != shape or block.dtype != self.dtype:
            raise ValueError(f"out is {block.dtype} {block.shape}; {self.dtype} {shape} is needed")
        if block.size:
            with self._reading(spans):
                self._fill(block, spans)
        return block

    def check_complete(self) -> None:  # noqa: B027 - most formats have no parts to be missing
        """Raise InputError if a part of it was never written, unless fill values are meant."""

    def opened(self) -> Iterator[Array]:
        """Yield the arrays that this one is read from: itself, unless it is made of others."""
        yield self

    def read_all(self) -> AnyArray:
        """Read the whole array; meant for label columns."""
        return self.read((0, self.shape[0]))

    def take(self, rows: IntArray) -> AnyArray:
        """Read some rows, and little else.

        Parameters
        ----------
        rows : [n] int64
            Row indices, ascending, each once.

        Returns
        -------
        [n] or [n, columns] array

        Raises
        ------
        InputError
            If the file is damaged there.
        IndexError
            If a row is beyond the array.
        ValueError
            If the rows are not ascending.
        """
        if rows.ndim != 1 or np.any(np.diff(rows) <= 0):
            raise ValueError("rows to take must be a 1-d array of ascending indices, each once")
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        if rows.size:
            spans = self._spans((int(rows[0]), int(rows[-1]) + 1), None)
            if out.size:
                with self._reading(spans):
                    self._take(out, rows)
        if (seen_by := witness()) is not None:
            seen_by.took(self, rows, out)
        return out

    def entries(self, rows: IntArray, columns: IntArray) -> AnyArray:
        """Read entries of a matrix.

        No witness sees them: who reads them compares them with the blocks that they are in.

        Parameters
        ----------
        rows, columns : [n] int64
            In any order, each entry once.

        Returns
        -------
        [n] array

        Raises
        ------
        InputError
            If the file is damaged there.
        """
        out = np.empty(len(rows), self.dtype)
        if out.size:
            spans = [(int(index.min()), int(index.max()) + 1) for index in (rows, columns)]
            with self._reading(self._spans(*spans)):
                self._pick(out, rows, columns)
        return out

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return an upper estimate of what reading a block takes beyond its result, in bytes.

        Parameters
        ----------
        rows, columns : int
            Size of the block; blocks of one size are taken to tile the array from its corner,
            so that a size that is a multiple of `chunks` means blocks cut along chunks.
        """
        return 0

    @abstractmethod
    def _fill(self, out: AnyArray, spans: Spans) -> None:
        """Read the block at `spans`, one an axis, into `out`: C-contiguous and not empty."""

    def _take(self, out: AnyArray, rows: IntArray) -> None:
        """Read `rows`, not empty, into `out`: adjacent ones, or those of a chunk, together."""
        chunk = self.chunks[0]
        for own in stretches(rows // chunk if chunk > 1 else rows - np.arange(len(rows))):
            first = int(rows[own.start])
            spans = self._spans((first, int(rows[own.stop - 1]) + 1), None)
            if chunk == 1:
                self._fill(out[own], spans)
                continue
            for block in blocks(spans, self.chunks):
                out[own, *slices(block[1:])] = self._read(block)[rows[own] - first]

    def _pick(self, out: AnyArray, rows: IntArray, columns: IntArray) -> None:
        """Read entries, at least one, into `out`: chunk by chunk."""
        down, across = rows // self.chunks[0], columns // self.chunks[1]
        order = np.lexsort((across, down))
        for own in stretches((down * (int(across.max()) + 1) + across)[order]):
            which = order[own]
            spans = tuple(
                (int(at[which].min()), int(at[which].max()) + 1) for at in (rows, columns)
            )
            block = self._read(spans)
            out[which] = block[rows[which] - spans[0][0], columns[which] - spans[1][0]]

    def _reading(self, spans: Spans) -> AbstractContextManager[None]:
        where = region(spans, " and ")
        return reading(f"{self.uri} {self.shape}", f"read at {where}", self._remedy)

    def _remedy(self, error: Exception) -> str:
        """Return what to do where a block can't be read."""
        return DAMAGED

    def _spans(self, rows: Span, columns: Span | None) -> Spans:
        """Return the (start, stop) of every axis, checked against the shape."""
        spans = (rows, *((0, size) for size in self.shape[1:]))
        if columns is not None:
            spans = (rows, columns)
        if len(spans) != len(self.shape) or any(
            not 0 <= start <= stop <= size
            for (start, stop), size in zip(spans, self.shape, strict=True)
        ):
            raise IndexError(f"{self.uri} has shape {self.shape}; block {spans} is beyond it")
        return spans


def stretches(values: IntArray) -> Iterator[slice]:
    """Yield the slices in which an array, not empty, stays the same."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return (slice(start, stop) for start, stop in pairwise(edges))


def native_dtype(uri: str, shape: Shape, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the dtype in native byte order; raise InputError if it can't be evaluated."""
    if len(shape) not in (1, 2):
        raise InputError(f"{uri} has shape {shape}, {len(shape)} dimensions; 1 or 2 are needed")
    if dtype.kind not in "iufUST" or (dtype.kind == "f" and dtype.itemsize > 8):
        remedy = _REMEDY.get(dtype.kind, "save it as float32")
        raise InputError(
            f"{uri} is of dtype {dtype}; numbers, or strings for labels, are needed: {remedy}"
        )
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def check_lengths(uri: str, lengths: Indices, width: int, first: int) -> None:
    """Raise InputError unless rows, from the `first` on, are as long as row 0 is wide."""
    other = np.flatnonzero(lengths != width)
    if len(other):
        raise InputError(
            f"{uri} row {first + other[0]} is {lengths[other[0]]} long, row 0 {width}: all rows "
            "must be of one length"
        )


def region(spans: Iterable[Span], between: str = ", ") -> str:
    """Return what messages call a block: ``rows 0:5, columns 0:3``."""
    axes = zip(("rows", "columns"), spans, strict=False)
    return between.join(f"{axis} {start}:{stop}" for axis, (start, stop) in axes)


def slices(spans: Spans) -> tuple[slice, ...]:
    """Return the index of a block."""
    return tuple(slice(*span) for span in spans)


def blocks(spans: Spans, shape: Shape) -> Iterator[Spans]:
    """Yield the spans of the blocks, of a shape or less, that cover some spans, row by row."""
    axes = zip(spans, shape, strict=True)
    return product(
        *(
            [(first, min(first + size, stop)) for first in range(start, stop, size)]
            for (start, stop), size in axes
        )
    )


def chunks_of_block(block: Shape, shape: Shape, chunks: Shape) -> tuple[int, int]:
    """Return how many chunks a block touches at most, and how many it covers at least."""
    touched, whole = 1, 1
    for size, length, chunk in zip(block, shape, chunks, strict=True):
        along, cut = math.ceil(size / chunk), 0
        if size % chunk and size < length:
            along, cut = min((size - 2) // chunk + 2, math.ceil(length / chunk)), 2
        touched, whole = touched * along, whole * max(0, along - cut)
    return touched, whole


def choose_key(path: Path, key: str | None, names: Collection[str], what: str) -> tuple[str, str]:
    """Return the key of an array in a file, the only one if none is given, and its URI.

    `names` are those of all arrays in it, `what` is what messages call each.
    """
    if key is None and len(names) == 1:
        key = next(iter(names))
    if key is None or key not in names:
        problem = f"holds several {what}s" if key is None and names else f"has no such {what}"
        raise InputError(
            f"{path}{'' if key is None else f'::{key}'} {problem}; name one as {path.name}::NAME. "
            f"{what.capitalize()}s in it: {', '.join(names) or 'none'}"
        )
    return key, f"{path}::{key}" if key else str(path)


def refuse_key(uri: str, key: str | None) -> None:
    """Raise InputError if a key is given for a file that holds one array."""
    if key is not None:
        raise InputError(f"{uri}: such files hold one array and have no keys; leave ::{key} out")


@contextmanager
def descriptor(path: Path | str) -> Iterator[int]:
    """Open a file and yield its descriptor.

    To make a file object of Python's takes as long as reading 64 KB.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


class reading(AbstractContextManager[None]):  # noqa: N801 - as contexts of contextlib are named
    """A context that raises what a library trips over as an InputError that says what to do.

    Parameters
    ----------
    uri : str
    how : str
        What can't be done: ``read as HDF5``.
    remedy : str or callable, optional
        What to do, or what says so of an error.
    """

    def __init__(
        self, uri: str, how: str, remedy: str | Callable[[Exception], str] = DAMAGED
    ) -> None:
        self._uri, self._how, self._remedy = uri, how, remedy

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, StreamevalError | MemoryError):
            return
        reason, remedy = " ".join(str(error).split())[:300], self._remedy
        what_to_do = remedy if isinstance(remedy, str) else remedy(error)
        raise InputError(
            f"{self._uri} can't be {self._how} ({type(error).__name__}: {reason}): {what_to_do}"
        ) from error
