"""HDF5 files, read by blocks with h5py; and MATLAB's .mat: of version 7.3 they are HDF5.

Older `.mat` files are loaded whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array, Spans, choose_key, native_dtype, reading, slices
from streameval.arrays.memory import LoadedArray, check_fits
from streameval.arrays.objects import ObjectArray
from streameval.errors import InputError, optional_package
from streameval.typing import AnyArray

SUFFIXES = (".h5", ".hdf5")
_READABLE = {
    *("double", "single", "char"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


@contextmanager
def _opened(path: Path, uri: str) -> Iterator[Any]:
    """Hold an HDF5 file open."""
    with optional_package("h5py", "hdf5", uri):
        import h5py
    with reading(uri, "read as HDF5"), h5py.File(path, "r") as file:
        yield file


def contents(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the datasets of a file, and its attributes."""
    names: list[str] = []

    def note(name: str | bytes, node: Any) -> None:
        if hasattr(node, "chunks") and isinstance(name, str):  # of datasets; bytes: no text at all
            names.append(name)

    with _opened(path, str(path)) as file:
        file.visititems(note)
        return names, dict(file.attrs)


class Hdf5Array(Array):
    """A dataset of an HDF5 file; the file is opened for each read."""

    def __init__(self, path: Path, key: str, uri: str) -> None:
        self.uri = uri
        self._path, self._key = path.absolute(), key
        with self._dataset() as dataset:
            self._declare(dataset)

    @contextmanager
    def _dataset(self) -> Iterator[Any]:
        """Hold the dataset open."""
        with _opened(self._path, self.uri) as file:
            yield file[self._key]

    def _declare(self, dataset: Any) -> None:
        """Take shape, dtype and chunks of a dataset."""
        import h5py

        if dataset.shape is None:
            raise InputError(f"{self.uri} is an empty dataset without a shape; store the array")
        sources = [one.file_name for one in dataset.virtual_sources()] if dataset.is_virtual else []
        for file in (*sources, *(name for name, _, _ in dataset.external or ())):
            raise InputError(
                f"the values of {self.uri} lie elsewhere ({file}), where they may be absent or "
                "change unnoticed: give the files that hold them, several by a pattern such as "
                "'part-*.h5::features', or copy the values into one"
            )
        text = h5py.check_string_dtype(dataset.dtype)
        self._is_text = text is not None and text.length is None
        self.shape = tuple(dataset.shape)
        dtype = np.dtypes.StringDType() if self._is_text else dataset.dtype
        self.dtype = native_dtype(self.uri, self.shape, dtype)
        self.chunks = tuple(dataset.chunks or (1, *self.shape[1:]))

    def check_complete(self) -> None:
        """Check that all was written: what was not would be read as the fill value."""
        with self._dataset() as dataset:
            if dataset.chunks is None:
                promised, stored, what = dataset.nbytes, dataset.id.get_storage_size(), "bytes"
            else:
                grid = zip(dataset.shape, dataset.chunks, strict=True)
                promised = math.prod(-(-size // chunk) for size, chunk in grid)
                stored, what = dataset.id.get_num_chunks(), "chunks"
            if stored < promised and not self.fill_missing:
                raise InputError(
                    f"{self.uri} {self.shape} has {stored} of {promised} {what}: the rest was "
                    "never written; write the missing rows, or make the dataset smaller; or, where "
                    f"its fill value ({dataset.fillvalue}) is meant, add --fill-missing (in Python "
                    "fill_missing=True)"
                )

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the chunk that is decoded at a time, encoded and decoded."""
        return 2 * math.prod(self.chunks) * self.dtype.itemsize

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        with self._dataset() as dataset:
            if self._is_text:
                out[...] = dataset.asstr()[slices(spans)]
            else:
                dataset.read_direct(out, slices(spans))


class Hdf5Dataset(ObjectArray, Hdf5Array):
    """A dataset that the caller holds open, of a file that is written to, or in memory."""

    kind = "HDF5 dataset"

    def __init__(self, held: Any, name: str | None = None) -> None:
        ObjectArray.__init__(self, held, name)
        with self._dataset() as dataset:
            self._declare(dataset)

    @contextmanager
    def _dataset(self) -> Iterator[Any]:
        if not self._held:
            raise InputError(
                f"{self.uri} is of a file that has been closed: open it again, or give "
                "PATH::NAME of the dataset"
            )
        yield self._held


def open_dataset(held: Any, name: str | None) -> Array:
    """Open a dataset of h5py: by the path of its file if that is open for reading alone.

    What is written, and not yet on disk, is seen through the dataset only.
    """
    if held and held.name and (held.file.mode, held.file.driver) == ("r", "sec2"):
        path = Path(held.file.filename)
        try:
            opened, there = os.fstat(held.file.id.get_vfd_handle()), path.stat()
        except OSError:  # it has been removed since
            return Hdf5Dataset(held, name)
        if os.path.samestat(opened, there) and not held.file.swmr_mode:
            key = held.name.strip("/")
            return Hdf5Array(path, key, f"{path}::{key}")
    return Hdf5Dataset(held, name)


def open_hdf5(path: Path, key: str | None, uri: str) -> Array:
    """Open a dataset of an HDF5 file."""
    key = None if key is None else key.strip("/")
    return Hdf5Array(path, *choose_key(path, key, contents(path)[0], "dataset"))


class Mat73Array(Hdf5Array):
    """A variable of a MATLAB 7.3 file: stored column by column, so that its axes are swapped."""

    def _declare(self, dataset: Any) -> None:
        kind = dataset.attrs.get("MATLAB_class", b"double")
        self.kind = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
        _check_class(self.uri, "uint8" if self.kind == "logical" else self.kind)
        if "MATLAB_empty" in dataset.attrs:
            raise InputError(f"{self.uri} is empty in MATLAB; an array with rows is needed")
        super()._declare(dataset)
        self.shape, self.chunks = self.shape[::-1], self.chunks[::-1]

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the block as it is stored, and of the chunks that are decoded."""
        return rows * columns * self.dtype.itemsize + super().read_scratch_bytes(rows, columns)

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        stored = np.empty(out.shape[::-1], self.dtype)
        super()._fill(stored, spans[::-1])
        out[...] = stored.T


def open_mat(path: Path, key: str | None, uri: str) -> Array:
    """Open a variable of a `.mat` file: of version 7.3 by blocks, of older ones loaded whole."""
    import scipy.io
    from scipy.io.matlab import matfile_version

    file = str(path)
    with reading(uri, "read as .mat"):
        if matfile_version(file)[0] != 2:
            found = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file)}
            key, uri = choose_key(path, key, found, "variable")
            shape, kind = found[key]
            _check_class(uri, kind)
            check_fits(uri, 8 * math.prod(shape))
            values = np.asarray(scipy.io.loadmat(file, variable_names=[key])[key])
            return LoadedArray(values, uri, open_mat, path, key)
    names = [name for name in contents(path)[0] if not name.startswith("#")]  # MATLAB's own
    key, uri = choose_key(path, key, names, "variable")
    array = Mat73Array(path, key, uri)
    if array.kind != "char":
        return array
    array.check_complete()
    codes = array.read_all().astype(np.uint32)
    texts = np.ascontiguousarray(codes).view(f"U{codes.shape[1]}")[:, 0]
    return LoadedArray(np.char.rstrip(texts), uri, open_mat, path, key)


def _check_class(uri: str, kind: str) -> None:
    if kind not in _READABLE:
        raise InputError(
            f"{uri} is of MATLAB class {kind}; a full array of numbers, or text for "
            "labels, is needed: convert it in MATLAB, for example with full() or double()"
        )
