"""FAISS: indexes made from features block by block, opened from files, and searched.

All that is known of FAISS is here. It ranks in float32: what it returns is ranked again by
canonical distances, and its own values, with a bound on their error, tell how far a list is
certain (`Found`).

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
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.counting.canonical import Metric
from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.inputs.fingerprint import fingerprint
from streameval.inputs.sources import Features
from streameval.statistics import FloatArray, IntArray

Float32Array = npt.NDArray[np.float32]

ROUNDINGS = 24
LEAST_NORM, MOST_NORM = 1e-12, 1e12  # lengths that float32 can square, and add up
PER_CENTROID = 39  # training vectors: what FAISS asks for
USUAL_PER_CENTROID = 64
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
        """Return what is found in both of two shards of the gallery: the nearest k of each."""
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


def metric_of(faiss: Any, metric: Metric) -> int:
    """Return FAISS's metric for one of ours."""
    inner = metric in ("cosine", "dot")
    return int(faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2)


def vectors(rows: npt.NDArray[np.floating], norms: FloatArray, metric: Metric) -> Float32Array:
    """Return rows as FAISS takes them: float32, under cosine of length 1."""
    if metric == "cosine":
        return np.ascontiguousarray(rows / norms[:, None], np.float32)
    return np.ascontiguousarray(rows, np.float32)


def distance_of(value: npt.NDArray[np.floating], metric: Metric) -> FloatArray:
    """Return the distances that FAISS's values stand for, float64."""
    values = value.astype(np.float64)
    if metric == "cosine":
        return 1 + values
    if metric == "euclidean":
        root: FloatArray = np.sqrt(np.maximum(values, 0))
        return root
    return values


def value_error(metric: Metric, width: int, norms: FloatArray, longest: float) -> FloatArray:
    """Return a bound on the error of a value of FAISS, of a query of each length, float64.

    Parameters
    ----------
    metric : {"cosine", "euclidean", "sqeuclidean", "dot"}
    width : int
    norms : [m] float64
        Of the queries.
    longest : float
        Length of the longest gallery vector.
    """
    n = (width + ROUNDINGS) * 2.0**-24
    gamma = n / (1 - n) * (1 + 1e-6)
    if metric == "cosine":
        return np.full(len(norms), gamma)
    if metric == "dot":
        return gamma * norms * longest
    return gamma * (norms + longest) ** 2


def least_beyond(last: FloatArray, error: FloatArray, metric: Metric) -> FloatArray:
    """Return the least canonical distance of an item whose value is `last` or more, float64."""
    least = last - error
    if metric == "cosine":
        return np.maximum(1 + least, 0)
    if metric == "dot":
        return least
    least = np.maximum(least, 0)
    return np.sqrt(least) if metric == "euclidean" else least


def check_lengths(features: Features, norms: FloatArray, longest: float) -> None:
    """Check that float32 can square the features, so that the bound on its error holds.

    Raises
    ------
    InputError
    """
    if features.metric == "cosine":
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
            f"{path} can't be read as a FAISS index ({_reason(error)}): write it with "
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


@dataclass(frozen=True)
class Needs:
    """What an index of a factory string takes.

    Attributes
    ----------
    centroids : int
        The most that are trained together; 0 where nothing is trained.
    code_bytes : int
        Of each vector, with its number and links.
    keeps_vectors : bool
        Whether it holds the vectors themselves.
    """

    centroids: int
    code_bytes: int
    keeps_vectors: bool

    def train_rows(self, rows: int, wanted: int | None) -> int:
        """Return how many rows of the gallery it is trained on."""
        if not self.centroids:
            return 0
        return min(rows, wanted or USUAL_PER_CENTROID * self.centroids)


def needs_of(spec: str, width: int, metric: Metric) -> Needs:
    """Return what an index of a factory string takes.

    Raises
    ------
    OptionError
        If FAISS knows no such index, or not for such vectors.
    """
    faiss = load()
    index = _make(faiss, spec, width, metric)
    centroids, bytes_, keeps = 0, 8, False
    pending = [index]
    while pending:
        one = faiss.downcast_index(pending.pop())
        if isinstance(one, faiss.IndexPreTransform):
            chain = (
                faiss.downcast_VectorTransform(one.chain.at(i)) for i in range(one.chain.size())
            )
            centroids = max([centroids, *(256 if _has_codes(faiss, v) else 2 for v in chain)])
            pending.append(one.index)
        elif isinstance(one, faiss.IndexRefine):
            pending += [one.base_index, one.refine_index]
        elif isinstance(one, faiss.IndexHNSW):
            bytes_ += 4 * one.hnsw.nb_neighbors(0) + 16
            pending.append(one.storage)
        elif isinstance(one, faiss.IndexIVF):
            centroids = max(centroids, one.nlist)
            bytes_ += one.code_size + 8
            keeps |= isinstance(one, faiss.IndexIVFFlat)
            if isinstance(one, faiss.IndexIVFPQ):
                centroids = max(centroids, one.pq.ksub)
        elif isinstance(one, faiss.IndexPQ):
            centroids, bytes_ = max(centroids, one.pq.ksub), bytes_ + one.code_size
        elif isinstance(one, faiss.IndexFlatCodes):
            centroids = max(centroids, 0 if one.is_trained else 2)
            bytes_ += one.code_size
            keeps |= isinstance(one, faiss.IndexFlat)
        else:
            bytes_, keeps = bytes_ + 4 * width, True
            centroids = max(centroids, 0 if one.is_trained else 256)
    return Needs(centroids, bytes_, keeps)


def planned(features: Features, spec: str, search: str, train_rows: int | None) -> Any:
    """Return an empty index of a factory string, once it is clear that it can be built.

    Raises
    ------
    InputError
        If there are too few rows to train it on.
    OptionError
        If FAISS knows no such index, or it has no such search parameter.
    """
    needs = needs_of(spec, features.width, features.metric)
    rows = features.shape[1]
    if needs.centroids:
        _check_sample(spec, needs.train_rows(rows, train_rows), rows, needs.centroids)
    faiss = load()
    index = _make(faiss, spec, features.width, features.metric)
    set_search(faiss, index, search)
    return index


def _has_codes(faiss: Any, transform: Any) -> bool:
    return isinstance(transform, faiss.OPQMatrix | faiss.ITQMatrix)


def _make(faiss: Any, spec: str, width: int, metric: Metric) -> Any:
    try:
        return faiss.index_factory(width, spec, metric_of(faiss, metric))
    except RuntimeError as error:
        raise OptionError(
            f"FAISS makes no index {spec!r} for {width} columns ({_reason(error)}); expected a "
            "factory string such as Flat, HNSW32, IVF1024,PQ16 or OPQ16,IVF1024,PQ16, or a file "
            "(.faiss)"
        ) from error


def _reason(error: Exception) -> str:
    """Return what FAISS says, without where in its source it says so."""
    return str(error).rsplit(" at /", 1)[-1].partition(": ")[-1].strip() or str(error)


def build_index(
    features: Features,
    spec: str,
    *,
    block: int,
    threads: int,
    train_rows: int | None,
    start: Callable[[str, int], None],
    advance: Callable[[int], None],
) -> tuple[Any, Described]:
    """Train an index on a sample of the gallery, and add the gallery block by block.

    Parameters
    ----------
    features : Features
    spec : str
        Factory string of FAISS.
    block : int
        Gallery rows read and added at a time.
    threads : int
    train_rows : int, optional
        64 for each centroid by default, where there are as many.
    start, advance : callable
        Are told of the stages, and of gallery rows done.

    Returns
    -------
    faiss.Index, Described

    Raises
    ------
    InputError
        If the sample is too small to train on.
    OptionError
        If FAISS knows no such index.
    """
    faiss = load()
    rows, width = features.gallery.shape
    begin = time.perf_counter()
    needs = needs_of(spec, width, features.metric)
    index = _make(faiss, spec, width, features.metric)
    faiss.omp_set_num_threads(threads)
    _leave_codes_in_order(faiss, index)
    sample = needs.train_rows(rows, train_rows)
    if needs.centroids and not index.is_trained:
        start("train", sample)
        chosen = np.sort(np.random.default_rng(0).choice(rows, sample, replace=False))
        taken = features.take_gallery(chosen.astype(np.int64))
        with _silence():
            index.train(vectors(taken, _norms(taken), features.metric))
        del taken
        advance(sample)
    start("index", rows)
    for first in range(0, rows, block):
        last = min(first + block, rows)
        own, norms = features.read_gallery(first, last)
        index.add(vectors(own, norms, features.metric))
        advance(last - first)
    return index, Described(
        spec,
        features.metric,
        rows,
        width,
        fingerprint(features.gallery),
        sample,
        round(time.perf_counter() - begin, 3),
    )


def _leave_codes_in_order(faiss: Any, index: Any) -> None:
    """Leave out polysemous training: minutes, for an order of codes that no search here uses.

    Douze et al. 2016. The order is of use to searches with ``polysemous_ht`` alone; distances
    are the same without it.
    """
    inner = faiss.downcast_index(index)
    while isinstance(inner, faiss.IndexPreTransform | faiss.IndexRefine):
        transformed = isinstance(inner, faiss.IndexPreTransform)
        inner = faiss.downcast_index(inner.index if transformed else inner.base_index)
    if hasattr(inner, "do_polysemous_training"):
        inner.do_polysemous_training = False


def _norms(rows: npt.NDArray[np.floating]) -> FloatArray:
    from streameval.counting.canonical import row_norms

    return row_norms(rows)


def _check_sample(spec: str, sample: int, rows: int, centroids: int) -> None:
    """Refuse to train on too few rows; warn of few."""
    if sample < centroids:
        raise InputError(
            f"the index {spec} is trained on {sample} of {rows} gallery rows, and has "
            f"{centroids} centroids: at least as many rows are needed, better "
            f"{PER_CENTROID * centroids}; raise --train-rows, or choose a smaller index"
        )
    if sample < PER_CENTROID * centroids:
        warnings.warn(
            f"the index {spec} is trained on {sample} of {rows} gallery rows, {centroids} "
            f"centroids: FAISS asks for {PER_CENTROID * centroids} rows or more",
            StreamevalWarning,
            stacklevel=2,
        )


@contextmanager
def _silence() -> Iterator[None]:
    """Keep FAISS's own warnings, written to stderr for each subquantiser, off the terminal."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def write_index(index: Any, described: Described, path: Path) -> None:
    """Write an index, whole or not at all, and what it is of beside it.

    Raises
    ------
    InputError
        If it can't be written.
    """
    faiss = load()
    partial = path.with_name(f".{path.name}.partial.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        faiss.write_index(index, str(partial))
        beside = describe_path(path)
        beside.write_text(json.dumps(asdict(described), indent=2) + "\n", encoding="utf-8")
        partial.rename(path)
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            partial.unlink()
        raise InputError(f"the index can't be written to {path}: {_reason(error)}") from error


@contextmanager
def index_file(path: str | Path | None) -> Iterator[Path]:
    """Give the place of an index: where it is asked for, or a temporary one."""
    if path is not None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="streameval-index-") as folder:
        yield Path(folder) / "built.faiss"
