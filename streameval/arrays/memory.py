"""Arrays in memory: given as such, or loaded whole; and arrays that are only declared."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from streameval.arrays.array import Array, Shape, Spans, native_dtype, slices
from streameval.errors import InputError
from streameval.memory import free_bytes
from streameval.protocols.labels import as_numpy
from streameval.typing import AnyArray, IntArray

PREFIX = "shape:"  # of the URI of an array that is only declared

Opener = Callable[[Path, str | None, str], Array]


def check_fits(uri: str, nbytes: int) -> None:
    """Raise InputError if an array is larger than the free memory, before it is loaded.

    A small compressed file may promise terabytes.
    """
    available = free_bytes()
    if nbytes > available:
        raise InputError(
            f"{uri} takes {nbytes} bytes once it is loaded, which its format needs, and "
            f"{available} are free: store it as .npy, Zarr or HDF5, which are read by blocks"
        )


def in_memory(values: Any, name: str | None = None) -> MemoryArray:
    """Return an array that the caller holds: NumPy's, or what NumPy makes one of.

    Parameters
    ----------
    values : array_like
        An array, a list of rows, or a table of numbers, in the memory of the processor.
    name : str, optional
        What messages call it.
    """
    kind = f"{type(values).__module__.partition('.')[0]}.{type(values).__name__}"
    if not hasattr(values, "__array__") and not isinstance(values, list | tuple):
        raise InputError(f"got a {kind}; an array, a list of rows, or the path of a file is needed")
    if hasattr(values, "chunks"):
        raise InputError(
            f"got a {kind}, which is read by blocks: give its path (path::key), or NumPy's array"
        )
    uri = name or "array in memory"
    return MemoryArray(as_numpy(values, uri), uri)


class MemoryArray(Array):
    """An array that the caller holds; its memory is the caller's.

    Parameters
    ----------
    values : [n] or [n, m] array
    uri : str, optional
        How messages name it.

    Raises
    ------
    InputError
        If its shape or dtype can't be evaluated.
    """

    in_memory = is_read_again = True

    def __init__(self, values: AnyArray, uri: str = "array in memory") -> None:
        self.uri = uri
        self.shape = values.shape
        self.dtype = native_dtype(uri, values.shape, values.dtype)
        self.chunks = (1, *values.shape[1:])
        self._values = values

    @property
    def grain(self) -> Shape:
        """Nothing but the entry."""
        return (1, 1)

    def _read(self, spans: Spans, out: AnyArray | None = None) -> AnyArray:
        """Return a block: a view if it is C-contiguous and of native byte order as it is."""
        block = self._values[slices(spans)]
        if out is not None and not block.flags.c_contiguous:
            return super()._read(spans, out)
        return np.ascontiguousarray(block, self.dtype)

    def look(self, spans: Spans) -> AnyArray:
        """Return the block as a view, unless its byte order has to be changed."""
        return np.asarray(self._values[slices(spans)], self.dtype)

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        out[...] = self._values[slices(spans)]

    def _take(self, out: AnyArray, rows: IntArray) -> None:
        out[...] = self._values[rows]

    def _pick(self, out: AnyArray, rows: IntArray, columns: IntArray) -> None:
        out[...] = self._values[rows, columns]


class LoadedArray(MemoryArray):
    """An array loaded whole from a file; a worker calls `opener` again."""

    in_memory = is_read_again = False

    def __init__(
        self, values: AnyArray, uri: str, opener: Opener, path: Path, key: str | None
    ) -> None:
        super().__init__(values, uri)
        self._origin = opener, (path.absolute(), key, uri)

    def __reduce__(self) -> tuple[Opener, tuple[Path, str | None, str]]:
        return self._origin


class DeclaredArray(Array):
    """An array without data, which can be planned with: ``shape:ROWSxCOLUMNS[:DTYPE]``."""

    def __init__(self, uri: str) -> None:
        match = re.fullmatch(rf"{PREFIX}(\d+)x(\d+)(?::(float16|float32|float64))?", uri)
        if match is None:
            raise InputError(
                f"{uri!r} is no shape; expected shape:ROWSxCOLUMNS[:float16|float32|float64]"
            )
        self.uri = uri
        self.shape = int(match[1]), int(match[2])
        self.dtype = np.dtype(match[3] or "float32")
        self.chunks = (1, self.shape[1])

    def _fill(self, out: AnyArray, spans: Spans) -> NoReturn:
        raise InputError(
            f"{self.uri} is a shape without data, for --dry-run alone; give a range by --range"
        )
