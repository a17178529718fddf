"""The contract of an array that is read by blocks, and what every format checks alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, StreamevalError

AnyArray = npt.NDArray[np.generic]
Span = tuple[int, int]

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
    """

    uri: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    chunks: tuple[int, ...]
    in_memory: bool = False
    """Whether it can't be opened again by path."""

    def __repr__(self) -> str:
        return f"<{self.uri}: {self.dtype} {self.shape}>"

    def read(
        self, rows: Span, columns: Span | None = None, out: AnyArray | None = None
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
        shape = tuple(stop - start for start, stop in spans)
        block = np.empty(shape, self.dtype) if out is None else out[: shape[0]]
        if block.shape != shape or block.dtype != self.dtype:
            raise ValueError(f"out is {block.dtype} {block.shape}; {self.dtype} {shape} is needed")
        if block.size:
            self._fill(block, spans)
        return block

    def read_all(self) -> AnyArray:
        """Read the whole array; meant for label columns."""
        return self.read((0, self.shape[0]))

    def take(self, rows: npt.NDArray[np.int64]) -> AnyArray:
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
        if rows.size:
            self._spans((int(rows[0]), int(rows[-1]) + 1), None)
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        if out.size:
            self._take(out, rows)
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
    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        """Read the block at `spans`, one an axis, into `out`: C-contiguous and not empty."""

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        """Read `rows`, not empty, into `out`: run by run of adjacent rows."""
        for at, span in runs(rows):
            self._fill(out[at], (span, *((0, size) for size in self.shape[1:])))

    def _spans(self, rows: Span, columns: Span | None) -> tuple[Span, ...]:
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


def runs(rows: npt.NDArray[np.int64]) -> Iterator[tuple[slice, Span]]:
    """Yield each run of adjacent indices: where it is in `rows`, and its (start, stop)."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    edges = [0, *breaks.tolist(), len(rows)]
    for first, last in pairwise(edges):
        start = int(rows[first])
        yield slice(first, last), (start, start + last - first)


def native_dtype(
    uri: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> np.dtype[np.generic]:
    """Return the dtype in native byte order, if an array like that can be read at all.

    Raises
    ------
    InputError
        If the array is neither 1-d nor 2-d, or holds neither real numbers nor strings.
    """
    if len(shape) not in (1, 2):
        raise InputError(
            f"{uri} has shape {shape}, {len(shape)} dimensions; a 1-d or 2-d array is needed"
        )
    if dtype.kind not in "iufUST" or (dtype.kind == "f" and dtype.itemsize > 8):
        remedy = _REMEDY.get(dtype.kind, "save it again in one of these")
        raise InputError(
            f"{uri} is of dtype {dtype}; float16, float32, float64, integers or (for labels) "
            f"strings are needed: {remedy}"
        )
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def choose_key(uri: str, key: str | None, names: Collection[str], file: str, what: str) -> str:
    """Return the key of an array in a file: the only one, if none is given.

    Parameters
    ----------
    uri : str
    key : str or None
    names : collection of str
        What there is in the file.
    file, what : str
        What messages call such a file and what is in it: ``FILE.npz``, ``array``.

    Raises
    ------
    InputError
        If there is no such array, or it is not clear which is meant.
    """
    if key is None and len(names) == 1:
        return next(iter(names))
    if key is not None and key in names:
        return key
    problem = f"holds several {what}s" if key is None and names else f"has no such {what}"
    raise InputError(
        f"{uri} {problem}; name one as {file}::NAME. {what.capitalize()}s in it: "
        f"{', '.join(names) or 'none'}"
    )


def refuse_key(uri: str, key: str | None) -> None:
    """Raise InputError if a key is given for a file that holds one array."""
    if key is not None:
        raise InputError(f"{uri}: such a file holds one array and has no keys; leave ::{key} out")


@contextmanager
def reading_as(kind: str, uri: str) -> Iterator[None]:
    """Say in our own words what a damaged file makes the library of its format trip over."""
    try:
        yield
    except (StreamevalError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{uri} can't be read as {kind} ({type(error).__name__}: {error}): write it again"
        ) from error
