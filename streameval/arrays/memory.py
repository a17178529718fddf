"""Arrays that lie in memory: given as such, or loaded whole from a format without blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import AnyArray, Array, Span, native_dtype
from streameval.errors import InputError
from streameval.protocols.labels import as_numpy

Opener = Callable[[Path, str | None, str], Array]


def available_bytes() -> int:
    """Return how much memory the machine has left."""
    import psutil

    return int(psutil.virtual_memory().available)


def check_fits(uri: str, nbytes: int, available: int) -> None:
    """Check that an array of a format without blocks fits in memory, before it is loaded.

    Raises
    ------
    InputError
        If it is larger than what is available: a small compressed file may promise terabytes.
    """
    if nbytes > available:
        raise InputError(
            f"{uri} takes {nbytes} bytes once it is loaded, which its format needs, and "
            f"{available} are free: store it as .npy, Zarr or HDF5, which are read by blocks"
        )


def in_memory(values: Any) -> MemoryArray:
    """Return an array that the caller holds: NumPy's, or what NumPy makes one of.

    Parameters
    ----------
    values : array_like
        An array, a list of rows; a tensor, or a table, in the memory of the processor.

    Raises
    ------
    InputError
        If it is no array, or holds masked values; or is read by blocks, as one on disk.
    """
    kind = f"{type(values).__module__.partition('.')[0]}.{type(values).__name__}"
    if not hasattr(values, "__array__") and not isinstance(values, list | tuple):
        raise InputError(f"got a {kind}; an array, a list of rows, or the path of a file is needed")
    if hasattr(values, "chunks"):
        raise InputError(
            f"got a {kind}, which is read by blocks: give its path (path::key), or what it holds "
            "as an array of NumPy"
        )
    return MemoryArray(as_numpy(values, "array in memory"))


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

    in_memory = True

    def __init__(self, values: npt.NDArray[Any], uri: str = "array in memory") -> None:
        self.uri = uri
        self.shape = values.shape
        self.dtype = native_dtype(uri, values.shape, values.dtype)
        self.chunks = (1, *values.shape[1:])
        self._values = values

    def read(
        self, rows: Span, columns: Span | None = None, out: AnyArray | None = None
    ) -> AnyArray:
        """Return a block: a view if it is C-contiguous and of native byte order as it is."""
        block = self._values[tuple(slice(*span) for span in self._spans(rows, columns))]
        return np.ascontiguousarray(block, self.dtype)

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        out[...] = self._values[tuple(slice(*span) for span in spans)]

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        out[...] = self._values[rows]


class LoadedArray(MemoryArray):
    """An array loaded whole from a file; a worker loads it again.

    Parameters
    ----------
    values : [n] or [n, m] array
    opener : callable
        What opens it again, from `path`, `key` and `uri`.
    path : Path
    key : str or None
    uri : str
    """

    in_memory = False

    def __init__(
        self, values: npt.NDArray[Any], opener: Opener, path: Path, key: str | None, uri: str
    ) -> None:
        super().__init__(values, uri)
        self._origin = (opener, (path.absolute(), key, uri))

    def __reduce__(self) -> tuple[Opener, tuple[Path, str | None, str]]:
        return self._origin
