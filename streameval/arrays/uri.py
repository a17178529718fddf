"""Array URIs, `path[::key]`, and the table of formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy.typing as npt

from streameval.arrays.array import Array, reading
from streameval.arrays.composed import is_pattern, join_shards, matching, open_folder
from streameval.arrays.hdf5 import SUFFIXES, open_hdf5, open_mat
from streameval.arrays.memory import PREFIX, DeclaredArray, Opener, in_memory, open_torch
from streameval.arrays.npy import VECS, VecsArray, open_npy, open_npz
from streameval.arrays.parquet import ParquetArray
from streameval.arrays.remote import SCHEMES, is_remote
from streameval.arrays.zarr_array import open_zarr
from streameval.errors import InputError

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


def open_array(source: str | Path | npt.ArrayLike | Array) -> Array:
    """Open an array: by its URI, or one in memory.

    Parameters
    ----------
    source : str, Path, Array, or [n] or [n, m] array_like
        ``path[::key]`` of a file of a known format, of a Zarr folder, or of a folder of .npy
        files; a path with ``*`` of shards; ``url[::key]`` of Zarr in an object store. An
        `Array` is returned as it is.

    Returns
    -------
    Array
        Nothing of it is read yet, except of formats without blocks.
    """
    if isinstance(source, Array):
        return source
    if not isinstance(source, str | Path):
        return in_memory(source)
    uri = str(source)
    if uri.startswith(PREFIX):
        return DeclaredArray(uri)
    if is_remote(uri):
        url, _, name = uri.rpartition("::") if "::" in uri else (uri, "", "")
        return open_zarr(url, name, uri)
    path, key = parse_uri(source)
    with reading(uri, "opened", "check the path and its permissions"):
        if is_pattern(path):
            suffix = "" if key is None else f"::{key}"
            return join_shards([open_array(f"{one}{suffix}") for one in matching(path, uri)], uri)
        if not path.exists():
            raise InputError(f"{path} does not exist")
        suffix = FOLDER if path.is_dir() else path.suffix.lower()
        if suffix not in FORMATS:
            known = ", ".join(FORMATS)
            raise InputError(
                f"{uri} is of unknown format {suffix!r}; known are {known} (.zarr: any Zarr folder)"
            )
        return FORMATS[suffix](path, key, uri)
