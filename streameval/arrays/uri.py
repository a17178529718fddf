"""Array URIs, `path[::key]`, and the table of formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

from streameval.arrays.array import Array, reading
from streameval.arrays.composed import is_pattern, join_shards, matching, open_folder
from streameval.arrays.dask_array import DaskArray
from streameval.arrays.hdf5 import SUFFIXES, open_dataset, open_hdf5, open_mat
from streameval.arrays.identity import Files, identify
from streameval.arrays.memory import PREFIX, DeclaredArray, Opener, in_memory
from streameval.arrays.npy import VECS, VecsArray, open_map, open_npy, open_npz
from streameval.arrays.parquet import ParquetArray
from streameval.arrays.pytorch import open_tensor, open_torch
from streameval.arrays.remote import SCHEMES, is_remote
from streameval.arrays.xarray_array import open_data_array
from streameval.arrays.zarr_array import open_zarr, open_zarr_array
from streameval.errors import InputError, OptionError, check_type

_CHECK_PATH = "check the path and its permissions"
FOLDER = ".zarr"  # what a folder of any name is taken for

FORMATS: Mapping[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".mat": open_mat,
    FOLDER: open_folder,
    **dict.fromkeys(SUFFIXES, open_hdf5),
    **dict.fromkeys(VECS, VecsArray),
    ".parquet": ParquetArray,
    **dict.fromkeys((".pt", ".pth"), open_torch),
}
"""What opens an array, by the suffix of its file; a new format is one more entry."""

OBJECTS: Mapping[str, Callable[[Any, str | None], Array]] = {
    "numpy.memmap": open_map,
    "zarr.Array": open_zarr_array,
    "h5py.Dataset": open_dataset,
    "dask.Array": DaskArray,
    "xarray.DataArray": open_data_array,
    "torch.Tensor": open_tensor,
}
"""What opens an array of another package, by package and class; all others are made NumPy's."""


def parse_uri(uri: str | Path) -> tuple[Path, str | None]:
    """Split ``path[::key]``."""
    text = str(uri)
    if re.search(r"(^|::)\w[\w+.-]*://", text):
        raise InputError(
            f"{text} is no file; of object stores ({', '.join(SCHEMES)}) Zarr arrays are read"
        )
    path, separator, key = text.rpartition("::")
    if not separator:
        path = text
    if not path or (separator and not key):
        raise InputError(f"{text!r} names no array; expected PATH or PATH::KEY")
    return Path(path), key if separator else None


def place_of(uri: str) -> Path | str:
    """Return where the files of an array are: of a group, the array's own folder."""
    if is_remote(uri):
        return uri.partition("::")[0]
    return _files_of(*parse_uri(uri))


def _files_of(path: Path, key: str | None) -> Path:
    return path / key.strip("/") if key is not None and path.is_dir() else path


def open_object(held: Any, name: str | None, fill_missing: bool) -> Array:
    """Open an array that the caller holds; its package, if it isn't NumPy, is loaded already."""
    for one in type(held).__mro__:
        kind = f"{one.__module__.partition('.')[0]}.{one.__name__}"
        if kind in OBJECTS:
            with reading(f"the {kind} that is given", "opened", "give its path, or NumPy's array"):
                array, files = OBJECTS[kind](held, name), None
                if not array.in_memory:
                    files = identify(place_of(array.uri))
                    array = OBJECTS[kind](held, name)  # as it is now that its files are known
                return _settled(array, files, fill_missing)
    return in_memory(held, name)


def open_array(
    source: str | Path | npt.ArrayLike | Array,
    name: str | None = None,
    *,
    fill_missing: bool = False,
) -> Array:
    """Open an array: by its URI, or one that the caller holds.

    Parameters
    ----------
    source : str, Path, Array, or [n] or [n, m] array_like
        ``path[::key]`` of a file of a known format, of a Zarr folder, or of a folder of .npy
        files; a path with ``*`` of shards; ``url[::key]`` of Zarr in an object store; an
        array of a package of `OBJECTS`, or what NumPy makes an array of. An `Array` is
        returned as it is.
    name : str, optional
        What messages call an array without a path, and a run that is resumed knows it by.
    fill_missing : bool
        Whether what was never written of Zarr and HDF5 is read as the fill value.

    Returns
    -------
    Array
        Nothing of it is read yet, except of formats without blocks.

    Raises
    ------
    InputError
        If it can't be opened, or a part of it was never written.
    """
    if isinstance(source, Array):
        return source
    check_type("name", name, str | None, "a text is needed")
    if not isinstance(source, str | Path):
        return open_object(source, name, fill_missing)
    uri = str(source)
    if uri.startswith(PREFIX):
        return DeclaredArray(uri)
    with reading(uri, "opened", _CHECK_PATH):
        if is_remote(uri):
            files = None
            _open_remote(uri)  # which says what is wrong with the store
            with suppress(InputError, OptionError):  # one that can't be listed may still be read
                files = identify(place_of(uri))
            array = _open_remote(uri)
        else:
            path, key = parse_uri(uri)
            files = identify(_files_of(path, key))
            array = _open_file(path, key, uri)
        return _settled(array, files, fill_missing)


def _settled(array: Array, files: Files | None, fill_missing: bool) -> Array:
    """Return an array with its files, checked to be complete unless fill values are meant."""
    for one in array.opened():
        one.fill_missing = fill_missing
        one.check_complete()
    array.files, array.fill_missing = files, fill_missing
    return array


def _open_remote(uri: str) -> Array:
    url, _, name = uri.rpartition("::") if "::" in uri else (uri, "", "")
    return open_zarr(url, name, uri)


def _open_file(path: Path, key: str | None, uri: str) -> Array:
    if is_pattern(path):
        suffix = "" if key is None else f"::{key}"
        shards: list[Array] = []
        for one in matching(path, uri):
            with reading(f"{one}{suffix}", "opened", _CHECK_PATH):
                shards.append(_open_file(one, key, f"{one}{suffix}"))
        return join_shards(shards, uri)
    if not path.exists():
        raise InputError(f"{path} does not exist")
    suffix = FOLDER if path.is_dir() else path.suffix.lower()
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise InputError(
            f"{uri} is of unknown format {suffix!r}; known are {known} (.zarr: any Zarr folder)"
        )
    return FORMATS[suffix](path, key, uri)
