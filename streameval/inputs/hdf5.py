"""HDF5 files, read by blocks with h5py."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from streameval.errors import InputError, OptionError
from streameval.inputs.array import AnyArray, Array, Span, native_dtype

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
    import h5py

    check_h5py()
    names: list[str] = []
    try:
        with h5py.File(path, "r") as file:
            file.visititems(
                lambda name, one: names.append(name) if isinstance(one, h5py.Dataset) else None
            )
            return names, dict(file.attrs)
    except OSError as error:
        raise InputError(f"{path} can't be read as HDF5 ({error}): write it again") from error


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
        with h5py.File(path, "r") as file:
            dataset = file[key]
            self.shape = tuple(dataset.shape)
            self.dtype = native_dtype(uri, self.shape, dataset.dtype)
            self.chunks = tuple(dataset.chunks or (1, *self.shape[1:]))

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        import h5py

        try:
            with h5py.File(self._path, "r") as file:
                out[...] = np.asarray(file[self._key][tuple(slice(*span) for span in spans)])
        except (OSError, KeyError, RuntimeError) as error:
            raise InputError(f"{self.uri} {self.shape} can't be read: {error}") from error


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
    names, _ = contents(path)
    if key is None and len(names) == 1:
        key = names[0]
    if key is None or key.strip("/") not in names:
        raise InputError(
            f"{uri} {'holds several datasets' if key is None else 'has no such dataset'}; name one "
            f"as FILE{path.suffix}::NAME. Datasets in it: {', '.join(names) or 'none'}"
        )
    return Hdf5Array(path, key.strip("/"), f"{path}::{key.strip('/')}")
