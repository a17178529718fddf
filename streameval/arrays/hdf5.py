"""HDF5 files, read by blocks with h5py."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import (
    AnyArray,
    Array,
    Span,
    choose_key,
    native_dtype,
    reading_as,
)
from streameval.errors import InputError, OptionError

SUFFIXES = (".h5", ".hdf5")


def check_h5py() -> None:
    """Check that h5py is there.

    Raises
    ------
    OptionError
    """
    if find_spec("h5py") is None:
        raise OptionError("HDF5 files need the package h5py: pip install 'streameval[neighbors]'")


def contents(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the datasets of a file, and its attributes.

    Raises
    ------
    InputError
        If the file can't be read.
    """
    check_h5py()
    import h5py

    names: list[str] = []
    with reading_as("HDF5", str(path)), h5py.File(path, "r") as file:

        def note(name: str | bytes, one: Any) -> None:
            if isinstance(one, h5py.Dataset) and isinstance(name, str):  # bytes: no text at all
                names.append(name)

        file.visititems(note)
        return names, dict(file.attrs)


def attributes_of(path: Path, key: str) -> dict[str, Any]:
    """Return the attributes of a dataset.

    Raises
    ------
    InputError
        If the file can't be read.
    """
    import h5py

    with reading_as("HDF5", f"{path}::{key}"), h5py.File(path, "r") as file:
        return dict(file[key].attrs)


class Hdf5Array(Array):
    """A dataset of an HDF5 file; the file is opened for each read.

    Parameters
    ----------
    path : Path
    key : str
    uri : str

    Raises
    ------
    InputError
        If it can't be evaluated.
    """

    def __init__(self, path: Path, key: str, uri: str) -> None:
        import h5py

        self.uri = uri
        self._path, self._key = path.absolute(), key
        with reading_as("HDF5", uri), h5py.File(path, "r") as file:
            dataset = file[key]
            self._is_text = h5py.check_vlen_dtype(dataset.dtype) is str or (
                getattr(h5py.check_string_dtype(dataset.dtype), "length", 0) is None
            )
            dtype = np.dtypes.StringDType() if self._is_text else dataset.dtype
            if dataset.shape is None:
                raise InputError(f"{uri} is an empty dataset without a shape; store the array")
            self.shape = tuple(dataset.shape)
            self.dtype = native_dtype(uri, self.shape, dtype)
            self.chunks = tuple(dataset.chunks or (1, *self.shape[1:]))
            self._check_written(dataset)

    def _check_written(self, dataset: Any) -> None:
        """Check that what the shape promises was written: the rest would be read as zeros."""
        if dataset.chunks is None:
            promised, stored = dataset.nbytes, dataset.id.get_storage_size()
            what = "bytes"
        else:
            promised = math.prod(
                -(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True)
            )
            stored, what = dataset.id.get_num_chunks(), "chunks"
        if stored < promised and dataset.external is None and not dataset.is_virtual:
            raise InputError(
                f"{self.uri} {self.shape} has {stored} of {promised} {what}: the rest was never "
                "written; write the missing rows, or make the dataset smaller"
            )

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the chunk that is decoded at a time, encoded and decoded."""
        return 2 * math.prod(self.chunks) * self.dtype.itemsize

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        import h5py

        selection = tuple(slice(*span) for span in spans)
        with reading_as("HDF5", f"{self.uri} {self.shape}"), h5py.File(self._path, "r") as file:
            dataset = file[self._key]
            if self._is_text:
                out[...] = dataset.asstr()[selection]
            else:
                dataset.read_direct(out, selection)

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        """Read chunk by chunk, and of each chunk the span of its rows only."""
        for own in np.split(
            np.arange(len(rows)), np.flatnonzero(np.diff(rows // self.chunks[0])) + 1
        ):
            first, last = int(rows[own[0]]), int(rows[own[-1]])
            out[own[0] : own[-1] + 1] = self.read((first, last + 1))[rows[own] - first]


def open_hdf5(path: Path, key: str | None, uri: str) -> Array:
    """Open a dataset of an HDF5 file.

    Parameters
    ----------
    path : Path
    key : str or None
        Name of the dataset; may be left out where there is only one.
    uri : str

    Raises
    ------
    InputError
        If there is no such dataset.
    OptionError
        If h5py is not installed.
    """
    check_h5py()
    key = None if key is None else key.strip("/")
    key = choose_key(uri, key, contents(path)[0], f"FILE{path.suffix}", "dataset")
    return Hdf5Array(path, key, f"{path}::{key}")
