"""Lists of neighbours as files hold them: opened, checked, and repaired where that can be."""

from __future__ import annotations

import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.arrays.hdf5 import SUFFIXES as HDF5_SUFFIXES
from streameval.arrays.hdf5 import contents
from streameval.arrays.memory import in_memory
from streameval.arrays.remote import is_remote
from streameval.arrays.shape_only import PREFIX
from streameval.arrays.uri import open_array, parse_uri
from streameval.choices import Missing
from streameval.errors import InputError, StreamevalWarning
from streameval.neighbors.faiss_index import NOTHING
from streameval.sources.sources import ArrayLike
from streameval.statistics import FloatArray, IntArray

ROWS, PRINT = "gallery_rows", "gallery_fingerprint"  # of the gallery, where a file tells them
METRIC = "metric"
INDICES = ("indices", "neighbors", "ids", "I")
DISTANCES = ("distances", "D")
OF_ANN_BENCHMARKS = {"angular": "cosine", "euclidean": "euclidean"}


@dataclass(frozen=True, eq=False)
class Clean:
    """Lists of some queries: each item once, nearest first, without padding.

    Attributes
    ----------
    indptr : [m + 1] int64
    item : [L] int64
    distance : [L] float64
        NaN where only the items are stored.
    """

    indptr: IntArray
    item: IntArray
    distance: FloatArray


@dataclass
class Repairs:
    """What had to be repaired in lists: numbers, and the first query of each kind.

    Attributes
    ----------
    unsorted, repeated, short : int
        Lists that are not sorted by distance; entries that a list has had before; lists that
        end in −1, and are shorter than the gallery.
    first : dict of str to int
    """

    unsorted: int = 0
    repeated: int = 0
    short: int = 0
    first: dict[str, int] = field(default_factory=dict)

    def note(self, what: str, rows: IntArray, first_query: int, count: int) -> None:
        """Note so many of a kind, in the lists of these rows."""
        if count:
            setattr(self, what, getattr(self, what) + count)
            self.first.setdefault(what, int(rows[0]) + first_query)

    def warn(self, where: str, missing: Missing) -> None:
        """Say in a warning each what has been repaired."""
        said = {
            "unsorted": "lists were not sorted by distance, and have been",
            "repeated": "entries name an item that their list has had before, and were dropped",
            "short": "lists end in −1 before k: an exact search pads where the gallery is shorter "
            "than k, and only there; if an approximate index made them, bounds don't hold: "
            "--missing never",
        }
        for what, message in said.items():
            count = getattr(self, what)
            if count and not (what == "short" and missing == "never"):
                warnings.warn(
                    f"{where}: {count} {message} (first: query {self.first[what]})",
                    StreamevalWarning,
                    stacklevel=4,
                )

    def summary(self) -> dict[str, int]:
        """Return the numbers."""
        return {name: getattr(self, name) for name in ("unsorted", "repeated", "short")}


def signed(indices: npt.NDArray[Any]) -> IntArray:
    """Return uint64 as int64; what is beyond it as the greatest, which no gallery has."""
    return np.where(indices > np.iinfo(np.int64).max, np.iinfo(np.int64).max, indices).astype(
        np.int64
    )


def clean(
    indices: IntArray,
    distances: FloatArray,
    *,
    gallery: int,
    first_query: int,
    where: str,
    repairs: Repairs,
    known: bool = True,
) -> Clean:
    """Return lists sorted by distance, each item once, without padding.

    Parameters
    ----------
    indices : [m, k] int64
        −1 for nothing, at the end of a list only.
    distances : [m, k] float64
    gallery : int
        Number of gallery items.
    first_query : int
    where : str
        How messages name the lists.
    repairs : Repairs
        Is told of what has been repaired.
    known : bool
        Whether there are distances; the order of the lists stays, otherwise.

    Raises
    ------
    InputError
    """
    held = indices != NOTHING

    def refuse(bad: npt.NDArray[np.bool_], reason: str) -> None:
        if bad.any():
            row, column = (int(one) for one in np.argwhere(bad)[0])
            entry = f"item {indices[row, column]} at {float(distances[row, column])!r}"
            raise InputError(
                f"{where}, query {first_query + row}, place {column + 1} holds {entry}: {reason}"
            )

    refuse(
        held & ((indices < 0) | (indices >= gallery)),
        f"the {gallery} gallery items are numbered 0 to {gallery - 1}, and −1 is none; are the "
        "lists of another gallery?",
    )
    refuse(
        held & ~np.minimum.accumulate(held, axis=1),
        "−1 stands before it, which is only at the end of a list; move it there",
    )
    if known:
        refuse(held & ~np.isfinite(distances), "distances must be finite; search again")
    row, _ = np.nonzero(held)
    item, distance = indices[held], distances[held]
    lengths = held.sum(axis=1)
    if known:
        steps = np.where(held[:, 1:], np.diff(np.where(held, distances, 0), axis=1), 0)
        falls, rises = (steps < 0).any(axis=1), (steps > 0).any(axis=1)
        if falls.any() and not rises.any():
            at = int(np.flatnonzero(falls)[0]) + first_query
            raise InputError(
                f"{where}: values fall along every list (first: query {at}), as similarities do, "
                "and distances rise: store 1 − s of cosines, −s of inner products"
            )
        repairs.note("unsorted", np.flatnonzero(falls), first_query, int(falls.sum()))
    order = np.lexsort((np.arange(len(item)), item, row))
    again = (item[order][1:] == item[order][:-1]) & (row[order][1:] == row[order][:-1])
    if again.any():
        second, before = order[1:][again], order[:-1][again]
        if known and (distance[second] != distance[before]).any():
            at = int(second[distance[second] != distance[before]][0])
            raise InputError(
                f"{where}, query {first_query + row[at]} lists item {item[at]} twice, at different "
                "distances: search again"
            )
        kept = np.ones(len(item), np.bool_)
        kept[second] = False
        repairs.note("repeated", row[np.sort(second)], first_query, int(again.sum()))
        row, item, distance = row[kept], item[kept], distance[kept]
    if known:
        order = np.lexsort((item, distance, row))
        item, distance = item[order], distance[order]
    short = np.flatnonzero((lengths < indices.shape[1]) & (lengths < gallery))
    repairs.note("short", short, first_query, len(short))
    indptr = np.searchsorted(row, np.arange(len(indices) + 1)).astype(np.int64)
    return Clean(indptr, item, distance)


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
