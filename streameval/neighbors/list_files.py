"""Files of stored lists: gallery indices, their distances, and what is told of the gallery."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from streameval.arrays.array import Array
from streameval.arrays.hdf5 import SUFFIXES as HDF5_SUFFIXES
from streameval.arrays.hdf5 import contents
from streameval.arrays.memory import PREFIX, in_memory
from streameval.arrays.remote import is_remote
from streameval.arrays.uri import open_array, parse_uri
from streameval.errors import InputError
from streameval.sources.matrix import ArrayLike

ROWS, PRINT = "gallery_rows", "gallery_fingerprint"  # of the gallery, where a file tells them
METRIC = "metric"
INDICES = ("indices", "neighbors", "ids", "I")
DISTANCES = ("distances", "D")
OF_ANN_BENCHMARKS = {"angular": "cosine", "euclidean": "euclidean"}


def open_lists(
    lists: ArrayLike, distances: ArrayLike | None
) -> tuple[Array, Array | None, dict[str, Any]]:
    """Open lists: indices, their distances where there are any, and what is told of the gallery.

    Parameters
    ----------
    lists : str, Path or array
        Of the indices; or a file that holds both, `.npz`, a Zarr group or HDF5, under the names
        ``indices`` or ``neighbors``, and ``distances``.
    distances : str, Path or array, optional

    Raises
    ------
    InputError
        If there is no such array.
    """
    if not isinstance(lists, str | Path):
        opened = lists if isinstance(lists, Array) else in_memory(lists)
        return opened, None if distances is None else _open(distances), {}
    names, described = _contents(str(lists))
    indices = next((one for one in INDICES if one in names), None)
    if indices is None:
        return open_array(lists), None if distances is None else _open(distances), described
    if distances is None:
        values = next((one for one in DISTANCES if one in names), None)
        distances = None if values is None else f"{lists}::{values}"
    opened = open_array(f"{lists}::{indices}")
    return opened, None if distances is None else _open(distances), described


def _open(distances: ArrayLike) -> Array:
    return distances if isinstance(distances, Array) else open_array(distances)


def _contents(uri: str) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the arrays of a file that holds several, and what it says of them.

    Nothing of a single array, or one that is named.
    """
    if is_remote(uri) or uri.startswith(PREFIX) or "::" in uri:
        return [], {}
    path, _ = parse_uri(uri)
    described: dict[str, Any] = {}
    names: list[str] = []
    if path.suffix.lower() == ".npz" and path.is_file():
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
        except zipfile.BadZipFile as error:
            raise InputError(f"{uri} is no .npz file ({error}): write it again") from error
        for name in (ROWS, PRINT, METRIC):
            if name in names:
                described[name] = open_array(f"{uri}::{name}").read_all().tolist()[0]
    elif path.suffix.lower() in HDF5_SUFFIXES and path.is_file():
        names, described = _of_hdf5(path)
    elif path.is_dir():
        import zarr

        try:
            group = zarr.open_group(path, mode="r")
        except Exception:  # an array, or no Zarr at all: `open_array` says so
            return [], {}
        names = list(group.array_keys())
        described = {
            name: group.attrs[name] for name in (ROWS, PRINT, METRIC) if name in group.attrs
        }
    return names, described


def _of_hdf5(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Return what an HDF5 file holds: ann-benchmarks keep the gallery as ``train``."""
    names, attributes = contents(path)
    described = {name: attributes[name] for name in (ROWS, PRINT, METRIC) if name in attributes}
    distance = attributes.get("distance")
    if distance in OF_ANN_BENCHMARKS:
        described.setdefault(METRIC, OF_ANN_BENCHMARKS[distance])
    if "train" in names:
        described.setdefault(ROWS, open_array(f"{path}::train").shape[0])
    return names, described
