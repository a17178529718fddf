"""Files of lists of neighbours: read with what they tell of the gallery, and written as TREC files.

A line of a TREC run is ``qid Q0 docid rank score tag``, one of qrels ``qid 0 docid 1``. Pairs that
the protocol ignores are in neither: a reader of the files takes what is not in the qrels for not
relevant, and would count it. Positives that no list has returned are in the qrels.

Readers rank by score alone, as float32 (trec_eval), and break ties in their own ways. So the score
is the distance's negative, next to it where that would be a tie: the order is that of the tie
rule here, in any of them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array, reading
from streameval.arrays.hdf5 import SUFFIXES as HDF5_SUFFIXES
from streameval.arrays.hdf5 import contents
from streameval.arrays.memory import PREFIX
from streameval.arrays.remote import is_remote
from streameval.arrays.uri import open_array, parse_uri
from streameval.errors import InputError
from streameval.neighbors.lists import Lists, Places
from streameval.output import NewFile
from streameval.protocols.labels import Labels, label_column
from streameval.protocols.pairs import Pairs
from streameval.sorting import order_within
from streameval.sources.tiled import ArrayLike
from streameval.typing import AnyArray, Float32Array, FloatArray, JsonObject

Names = Sequence[Any] | AnyArray

TOLD = ROWS, PRINT, METRIC = "gallery_rows", "gallery_fingerprint", "metric"  # if by a file
INDICES = ("indices", "neighbors", "ids", "I")
DISTANCES = ("distances", "D")
OF_ANN_BENCHMARKS = {"angular": "cosine", "euclidean": "euclidean"}
TAG = "streameval"


def open_lists(
    lists: ArrayLike,
    distances: ArrayLike | None,
    name: str | None = None,
    *,
    fill_missing: bool = False,
) -> tuple[Array, Array | None, JsonObject]:
    """Open lists: indices, their distances where there are any, and what is told of the gallery.

    Indices may be in a file that holds distances, too: `.npz`, a Zarr group or HDF5, under the
    names ``indices`` or ``neighbors``, and ``distances``. `name` is of those without a path.
    """
    described: JsonObject = {}
    if isinstance(lists, str | Path):
        names, described = _contents(str(lists))
        indices, values = (
            next((f"{lists}::{name}" for name in known if name in names), None)
            for known in (INDICES, DISTANCES)
        )
        if indices is not None:
            lists, distances = indices, values if distances is None else distances
    opened = None
    if distances is not None:
        opened = open_array(distances, name, fill_missing=fill_missing)
    return open_array(lists, name, fill_missing=fill_missing), opened, described


def _contents(uri: str) -> tuple[list[str], JsonObject]:
    """Return the names of the arrays of a file that holds several, and what it says of them.

    Nothing of a single array, or one that is named.
    """
    names: list[str] = []
    told: Any = {}
    if is_remote(uri) or uri.startswith(PREFIX) or "::" in uri:
        return names, told
    path, _ = parse_uri(uri)
    suffix = path.suffix.lower()
    if path.is_dir():
        import zarr

        with suppress(Exception):  # an array, or no Zarr at all: `open_array` says so
            group = zarr.open_group(path, mode="r")
            names, told = list(group.array_keys()), group.attrs
    elif suffix == ".npz" and path.is_file():
        with reading(uri, "read as .npz"), zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        for name in set(TOLD).intersection(names):
            told[name] = open_array(f"{uri}::{name}").read_all().tolist()[0]
    elif suffix in HDF5_SUFFIXES and path.is_file():
        names, told = contents(path)
        if told.get("distance") in OF_ANN_BENCHMARKS:
            told.setdefault(METRIC, OF_ANN_BENCHMARKS[told["distance"]])
        if "train" in names:  # the gallery, as ann-benchmarks keep it
            told.setdefault(ROWS, open_array(f"{path}::train").shape[0])
    return names, {name: told[name] for name in TOLD if name in told}


def names_of(labels: Labels, side: str) -> Names:
    """Return what each item is called: its key, or its number from 0 where there are no keys."""
    if labels.key is None:
        return range(len(labels))
    for at, name in enumerate(map(str, labels.key.tolist())):
        if not name or " " in name or not name.isprintable():
            raise InputError(
                f"the key {name!r} of {side} row {at} can't be in a TREC file, whose columns are "
                "parted by blanks: give keys without, or none, and items go by their numbers"
            )
    label_column(labels.key, f"the key of {side}")  # raises InputError where one is missing
    order = np.argsort(labels.key, kind="stable")
    same = np.flatnonzero(labels.key[order[1:]] == labels.key[order[:-1]])
    if len(same):
        first, again = order[same[0] : same[0] + 2].tolist()
        raise InputError(
            f"{side} rows {first} and {again} have the same key {str(labels.key[first])!r}: a TREC "
            "file needs one a row; give other keys, or none, and items go by their numbers"
        )
    return labels.key


def write_trec(
    query: Labels,
    gallery: Labels,
    pairs: Pairs,
    ties: str,
    files: Mapping[str, NewFile],
) -> Callable[[Lists], None]:
    """Write the positives, and return a function that writes the lists of the next queries."""
    names, items = names_of(query, "query"), names_of(gallery, "gallery")
    done = 0
    if "trec_qrels" in files:
        files["trec_qrels"].write_all(qrels_lines(pairs, names, items))

    def write(returned: Lists) -> None:
        nonlocal done
        first, done = done, done + len(returned.indptr) - 1
        if "trec_run" in files:
            block = pairs.block(first, done)
            files["trec_run"].write_all(run_lines(returned, block, ties, names[first:done], items))

    return write


def qrels_lines(pairs: Pairs, queries: Names, gallery: Names) -> Iterator[str]:
    """Give a line a positive pair, whether it is returned or not."""
    indptr, item = pairs.positives()
    for query, name in enumerate(queries):
        for one in item[slice(*indptr[query : query + 2])].tolist():
            yield f"{name} 0 {gallery[one]} 1\n"


def run_lines(
    returned: Lists, pairs: Pairs, ties: str, queries: Names, gallery: Names
) -> Iterator[str]:
    """Give a line a returned item that is not ignored, nearest first within its query.

    Parameters
    ----------
    returned : Lists
        Lists of some queries.
    pairs : Pairs
        Of the same queries.
    ties : {"pessimistic", "optimistic", "stable"}
    queries, gallery : sequences of names
        What these queries, and the items of the gallery, are called.
    """
    places = Places(pairs, returned)
    valid = np.flatnonzero(places.valid)
    query, item = returned.query[valid], returned.item[valid]
    distance, positive = returned.distance[valid], places.positive[valid]
    first = {"pessimistic": positive, "optimistic": ~positive}.get(ties, np.zeros(len(valid)))
    begin = np.searchsorted(query, np.arange(pairs.queries + 1))
    order = order_within(begin, item, first, distance)
    for at, name in enumerate(queries):
        own = order[begin[at] : begin[at + 1]]
        rows = zip(item[own].tolist(), descending(-distance[own]).tolist(), strict=True)
        for rank, (one, score) in enumerate(rows, 1):
            yield f"{name} Q0 {gallery[one]} {rank} {score:.9g} {TAG}\n"


def descending(scores: FloatArray) -> Float32Array:
    """Return scores that don't rise as float32 that fall, each next to its own, [n]."""
    # As integers, float32 are in the order of their values, and neighbours differ by one.
    near = np.clip(scores, np.finfo(np.float32).min / 2, np.finfo(np.float32).max)
    bits = near.astype(np.float32).view(np.int32).astype(np.int64)
    step, place = np.arange(len(bits)), np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    place = np.minimum.accumulate(place + step) - step
    down = np.where(place < 0, -place | 0x80000000, place).astype(np.uint32)
    return down.view(np.float32)
