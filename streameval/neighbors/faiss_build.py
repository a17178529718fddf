"""Indexes of FAISS built: trained on a sample of the gallery, which is added block by block."""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.fingerprint import fingerprint
from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.neighbors.faiss_index import (
    Described,
    describe_path,
    load,
    metric_of,
    reason,
    set_search,
    vectors,
)
from streameval.output import NewFile
from streameval.sources.sources import Features

PER_CENTROID = 39  # training vectors: what FAISS asks for
USUAL_PER_CENTROID = 64
TRAINING_BYTES = 128 << 20  # of a sample, as float32, where no number of rows is given


@dataclass(frozen=True)
class Needs:
    """What an index of a factory string takes.

    Attributes
    ----------
    centroids : int
        The most that are trained together; 0 where nothing is trained.
    code_bytes : int
        Of each vector, with its number and links.
    width : int
        Columns of a vector.
    """

    centroids: int
    code_bytes: int
    width: int

    def train_rows(self, rows: int, wanted: int | None) -> int:
        """Return how many rows of the gallery it is trained on: no more than memory can take."""
        if not self.centroids:
            return 0
        most = max(TRAINING_BYTES // (4 * self.width), self.centroids)
        return min(rows, wanted or min(USUAL_PER_CENTROID * self.centroids, most))


def needs_of(spec: str, width: int, metric: str) -> Needs:
    """Return what an index of a factory string takes.

    Raises
    ------
    OptionError
        If FAISS knows no such index, or not for such vectors.
    """
    faiss = load()
    index = _make(faiss, spec, width, metric)
    centroids, bytes_ = 0, 8
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
            if isinstance(one, faiss.IndexIVFPQ):
                centroids = max(centroids, one.pq.ksub)
        elif isinstance(one, faiss.IndexPQ):
            centroids, bytes_ = max(centroids, one.pq.ksub), bytes_ + one.code_size
        elif isinstance(one, faiss.IndexFlatCodes):
            centroids = max(centroids, 0 if one.is_trained else 2)
            bytes_ += one.code_size
        else:
            bytes_ += 4 * width
            centroids = max(centroids, 0 if one.is_trained else 256)
    return Needs(centroids, bytes_, width)


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


def _make(faiss: Any, spec: str, width: int, metric: str) -> Any:
    try:
        index = faiss.index_factory(width, spec, metric_of(faiss, metric))
    except RuntimeError as error:
        raise OptionError(
            f"FAISS makes no index {spec!r} for {width} columns ({reason(error)}); expected a "
            "factory string such as Flat, HNSW32, IVF1024,PQ16 or OPQ16,IVF1024,PQ16, or a file "
            "(.faiss)"
        ) from error
    if isinstance(faiss.downcast_index(index), faiss.IndexIDMap):
        raise OptionError(
            f"index {spec!r} maps numbers of its own, and a list names gallery rows: leave IDMap "
            "out"
        )
    return index


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
        64 for each centroid by default, where there are as many, and they take 128 MiB at most.
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
            index.train(vectors(*taken, features.metric))
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            NewFile(path, overwrite=True) as file,
            NewFile(describe_path(path), overwrite=True) as description,
        ):
            faiss.write_index(index, str(file.partial))
            description.write(json.dumps(asdict(described), indent=2).encode() + b"\n")
    except (OSError, RuntimeError) as error:
        raise InputError(f"the index can't be written to {path}: {reason(error)}") from error


@contextmanager
def index_file(path: str | Path | None) -> Iterator[Path]:
    """Give the place of an index: where it is asked for, or a temporary one."""
    if path is not None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="streameval-index-") as folder:
        yield Path(folder) / "built.faiss"
