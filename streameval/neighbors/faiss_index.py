"""FAISS: indexes opened from files, and searched; and searches of features without one.

What is known of FAISS is here and in `faiss_build`. It ranks in float32: what it returns is
ranked again by canonical distances, and its own values, with a bound on their error, tell how far
a list is certain (`Found`).

    metric                FAISS               value, ascending      distance
    cosine                inner product, of   −s                    1 + value
                          vectors of length 1
    dot                   inner product       −s                    value
    sqeuclidean           L2                  its value             value
    euclidean             L2                  its value             sqrt(value)

The error of an inner product in float32 is at most γ |q| |g|, γ = n u / (1 − n u), u = 2⁻²⁴, with
n = D (Higham, §3.1), in any order of summation; of a squared distance by |q|² + |g|² − 2 q·g, or
by differences, at most γ (|q| + |g|)². `ROUNDINGS` more are for normalising, for rows that float32
rounds, and for what is added up.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.fingerprint import fingerprint
from streameval.distances.distance import FaissMetric
from streameval.distances.registry import find_distance
from streameval.errors import InputError, OptionError
from streameval.sources.sources import Features
from streameval.statistics import FloatArray, IntArray

Float32Array = npt.NDArray[np.float32]

ROUNDINGS = 24
LEAST_NORM, MOST_NORM = 1e-12, 1e12  # lengths that float32 can square, and add up
SUFFIXES = (".faiss", ".index")
DESCRIBED = ".json"  # after the name of an index: what it is of
NOTHING = -1


def load() -> Any:
    """Return the module faiss.

    Raises
    ------
    OptionError
        If it is not installed.
    """
    if find_spec("faiss") is None:
        raise OptionError(
            "an index needs the package faiss: pip install 'streameval[neighbors]' (or leave "
            "--index out: the exact evaluation needs none)"
        )
    import faiss

    return faiss


def is_file(spec: str) -> bool:
    """Tell whether an index is named by a file, not by a factory string."""
    return spec.lower().endswith(SUFFIXES) or os.sep in spec


def is_flat(spec: str) -> bool:
    """Tell whether an index is the plain search through all features, which needs no index."""
    return spec == "Flat"


@dataclass(frozen=True, eq=False)
class Found:
    """What a search has found for m queries, nearest first.

    Attributes
    ----------
    item : [m, k] int64
        Gallery indices; −1 where there is nothing more.
    value : [m, k] float32
        FAISS's own, ascending; +inf where there is nothing more.
    longest : float
        Length of the longest gallery vector that was looked at; NaN where that isn't known.
    """

    item: IntArray
    value: Float32Array
    longest: float

    def merge(self, other: Found) -> Found:
        """Return the nearest k of what is found in two shards of the gallery."""
        item = np.concatenate([self.item, other.item], axis=1)
        value = np.concatenate([self.value, other.value], axis=1)
        order = np.lexsort((item, value), axis=1)[:, : max(self.item.shape[1], other.item.shape[1])]
        return Found(
            np.take_along_axis(item, order, axis=1),
            np.take_along_axis(value, order, axis=1),
            max(self.longest, other.longest),
        )

    @classmethod
    def stack(cls, parts: list[Found]) -> Found:
        """Put what is found for consecutive queries together."""
        return cls(
            np.concatenate([one.item for one in parts]),
            np.concatenate([one.value for one in parts]),
            max(one.longest for one in parts),
        )


def equivalent(metric: str) -> FaissMetric:
    """Return what FAISS has for a metric.

    Raises
    ------
    OptionError
        If it has nothing.
    """
    found = find_distance(metric).faiss
    if found is None:
        raise OptionError(
            f"FAISS has no metric that ranks as {metric} does: leave --index out, or choose "
            "another metric"
        )
    return found


def metric_of(faiss: Any, metric: str) -> int:
    """Return FAISS's number of a metric."""
    inner = equivalent(metric).inner_product
    return int(faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2)


def vectors(rows: npt.NDArray[np.floating], norms: FloatArray, metric: str) -> Float32Array:
    """Return rows as FAISS takes them: float32, of length 1 where lengths do not count."""
    scaled = rows / norms[:, None] if equivalent(metric).normalised else rows
    return np.ascontiguousarray(scaled, np.float32)


def distance_of(value: npt.NDArray[np.floating], metric: str) -> FloatArray:
    """Return the distances that FAISS's values stand for, float64."""
    return equivalent(metric).distance(value.astype(np.float64))


def value_error(metric: str, width: int, norms: FloatArray, longest: float) -> FloatArray:
    """Return a bound on the error of a value of FAISS, of a query of each length, float64.

    Parameters
    ----------
    metric : str
    width : int
    norms : [m] float64
        Of the queries.
    longest : float
        Length of the longest gallery vector.
    """
    n = (width + ROUNDINGS) * 2.0**-24
    return equivalent(metric).error(n / (1 - n) * (1 + 1e-6), norms, longest)


def least_beyond(last: FloatArray, error: FloatArray, metric: str) -> FloatArray:
    """Return the least canonical distance of an item whose value is `last` or more, float64."""
    own = equivalent(metric)
    least: FloatArray = np.maximum(own.distance(last - error), own.least)
    return least


def check_lengths(features: Features, norms: FloatArray, longest: float) -> None:
    """Check that float32 can square the features, so that the bound on its error holds.

    Raises
    ------
    InputError
    """
    if equivalent(features.metric).normalised:
        return
    for side, size in (("query", float(norms.max(initial=0))), ("gallery", longest)):
        if size > MOST_NORM or 0 < size < LEAST_NORM:
            raise InputError(
                f"the longest vector of the {side} features has length {size:g}, which float32 "
                f"can't square without loss; lengths from {LEAST_NORM:g} to {MOST_NORM:g} are "
                "needed for FAISS: scale the features"
            )


def nearest_in(
    features: Features,
    queries: Float32Array,
    gallery: tuple[int, int],
    block: int,
    k: int,
    advance: Callable[[int], None],
) -> Found:
    """Search a range of the gallery, block by block, with no index.

    Parameters
    ----------
    features : Features
    queries : [m, D] float32
        As `vectors` returns.
    gallery : (int, int)
    block : int
        Gallery rows at a time.
    k : int
    advance : callable
        Is told of gallery rows done.
    """
    faiss = load()
    faiss.omp_set_num_threads(1)
    found = Found(
        np.full((len(queries), k), NOTHING, np.int64),
        np.full((len(queries), k), np.inf, np.float32),
        0.0,
    )
    for start in range(gallery[0], gallery[1], block):
        stop = min(start + block, gallery[1])
        rows, norms = features.read_gallery(start, stop)
        metric = metric_of(faiss, features.metric)
        own = vectors(rows, norms, features.metric)
        value, item = faiss.knn(queries, own, min(k, stop - start), metric=metric)
        found = found.merge(_found(faiss, metric, value, item, start, float(norms.max(initial=0))))
        advance(stop - start)
    return found


def _found(
    faiss: Any, metric: int, value: Float32Array, item: IntArray, start: int, longest: float
) -> Found:
    """Return a result of FAISS with ascending values, nothing being +inf."""
    ascending = -value if metric == faiss.METRIC_INNER_PRODUCT else value
    nothing = item < 0
    return Found(
        np.where(nothing, NOTHING, item + start),
        np.where(nothing, np.float32(np.inf), ascending),
        longest,
    )


@dataclass(frozen=True)
class Described:
    """What an index is of, as written beside it.

    Attributes
    ----------
    spec, metric : str
    rows, width : int
    fingerprint : str
        Of the gallery features.
    train_rows : int
    build_seconds : float
    """

    spec: str
    metric: str
    rows: int
    width: int
    fingerprint: str
    train_rows: int
    build_seconds: float


def describe_path(path: Path) -> Path:
    """Return where it is written what an index is of."""
    return path.with_name(path.name + DESCRIBED)


def read_description(path: Path) -> Described | None:
    """Return what an index is of; None where that is not told.

    Raises
    ------
    InputError
        If it is told, and can't be read.
    """
    beside = describe_path(path)
    if not beside.exists():
        return None
    try:
        return Described(**json.loads(beside.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{beside} can't be read ({error}): remove it, or build the index again"
        ) from error


@lru_cache(maxsize=4)
def _opened(path: str, changed: int, search: str) -> Any:
    """Return an index, memory-mapped, with the parameters of the search; once a process."""
    faiss = load()
    try:
        index = faiss.read_index(path, faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise InputError(
            f"{path} can't be read as a FAISS index ({reason(error)}): write it with "
            "faiss.write_index, or with --save-index"
        ) from error
    set_search(faiss, index, search)
    return index


def open_index(path: Path, search: str = "") -> Any:
    """Open an index of a file, memory-mapped where FAISS can.

    Parameters
    ----------
    path : Path
    search : str
        Parameters of the search, ``nprobe=16,efSearch=64``.

    Raises
    ------
    InputError
        If there is no such file, or it is no index.
    OptionError
        If the index has no such parameter.
    """
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise InputError(f"the index {path} can't be opened: {error.strerror}") from error
    return _opened(str(path), changed, search)


def set_search(faiss: Any, index: Any, search: str) -> None:
    """Set the parameters of the search.

    Raises
    ------
    OptionError
        If the index has no such parameter, or it can't have that value.
    """
    for one in filter(None, (part.strip() for part in search.split(","))):
        name, _, value = one.partition("=")
        try:
            number = float(value)
            if number < 1:
                raise ValueError(value)
            faiss.ParameterSpace().set_index_parameter(index, name.strip(), number)
        except (ValueError, RuntimeError) as error:
            raise OptionError(
                f"the search parameter {one!r} can't be set on an index of type "
                f"{type(faiss.downcast_index(index)).__name__}; expected NAME=NUMBER, such as "
                "nprobe=16 (of IVF) or efSearch=64 (of HNSW)"
            ) from error


def check_index(index: Any, path: Path, features: Features) -> None:
    """Check that an index is of the gallery, and of the metric.

    Raises
    ------
    InputError
        If it is not; says what is expected.
    """
    faiss = load()
    rows, width = features.gallery.shape
    wanted, found = metric_of(faiss, features.metric), int(index.metric_type)
    names = {faiss.METRIC_INNER_PRODUCT: "inner product", faiss.METRIC_L2: "L2"}
    if index.d != width:
        raise InputError(
            f"the index {path} is of vectors of {index.d} columns, the gallery features "
            f"{features.gallery.uri} have {width}: build one of these features"
        )
    if found != wanted:
        raise InputError(
            f"the index {path} is of FAISS's metric {names.get(found, str(found))}, and "
            f"--metric {features.metric} needs {names[wanted]}: build one with that, or choose "
            "another metric"
        )
    if not index.is_trained:
        raise InputError(f"the index {path} is not trained: train it, or build one with --index")
    if index.ntotal != rows:
        raise InputError(
            f"the index {path} holds {index.ntotal} vectors, and the gallery features "
            f"{features.gallery.uri} have {rows} rows: it is of another gallery"
        )
    described = read_description(path)
    if described is None:
        return
    if described.metric != features.metric:
        raise InputError(
            f"the index {path} was built for metric {described.metric}, and {features.metric} is "
            "asked for: build one for that"
        )
    if described.fingerprint != fingerprint(features.gallery):
        raise InputError(
            f"the index {path} was built of other features than {features.gallery.uri} holds now "
            f"(fingerprint {described.fingerprint[:8]}…): build it again"
        )


def is_exact(index: Any) -> bool:
    """Tell whether a search compares with every vector as it is, in float32."""
    faiss = load()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIVFFlat):
        return bool(index.nprobe >= index.nlist)
    return isinstance(index, faiss.IndexFlat)


def search_index(index: Any, queries: Float32Array, k: int) -> Found:
    """Search an index, on one thread.

    Parameters
    ----------
    index : faiss.Index
    queries : [m, D] float32
        As `vectors` returns.
    k : int
    """
    faiss = load()
    faiss.omp_set_num_threads(1)
    value, item = index.search(queries, k)
    return _found(faiss, int(index.metric_type), value, item, 0, math.nan)


def reason(error: Exception) -> str:
    """Return what FAISS says, without where in its source it says so."""
    return str(error).rsplit(" at /", 1)[-1].partition(": ")[-1].strip() or str(error)
