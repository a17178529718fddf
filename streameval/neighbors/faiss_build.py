"""Indexes of FAISS built: trained on a sample of the gallery, which is added block by block."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.fingerprint import fingerprint
from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.neighbors.faiss_index import (
    Description,
    faiss_vectors,
    load,
    metric_code,
    reason,
    set_search,
)
from streameval.planning import Plan
from streameval.run.progress import Watch
from streameval.sources.features import Features

PER_CENTROID = 39  # training vectors: what FAISS asks for
USUAL_PER_CENTROID = 64
TRAINING_BYTES = 128 << 20  # of a sample, as float32, where no number of rows is given


@dataclass(frozen=True)
class Recipe:
    """An index to be built, and what it takes.

    Attributes
    ----------
    features : Features
    spec : str
        Factory string of FAISS.
    centroids : int
        The most that are trained together; 0 where nothing is trained.
    code_bytes : int
        Of each vector, with its number and links.
    train_rows : int
        Rows of the gallery that it is trained on: no more than memory can take, where no number
        is given.
    """

    features: Features
    spec: str
    centroids: int
    code_bytes: int
    train_rows: int

    @classmethod
    def of(cls, features: Features, spec: str, train_rows: int | None = None) -> Recipe:
        """Return what an index of a factory string takes.

        Raises
        ------
        OptionError
            If FAISS knows no such index, or not for such vectors.
        """
        width, rows = features.width, features.shape[1]
        centroids, code_bytes = _sizes(_make(features, spec), width)
        most = max(TRAINING_BYTES // (4 * width), centroids)
        sample = train_rows or min(USUAL_PER_CENTROID * centroids, most)
        return cls(features, spec, centroids, code_bytes, min(rows, sample) if centroids else 0)

    def check(self, search: str) -> Any:
        """Return the empty index, once it is clear that it can be built; warn of few rows.

        Raises
        ------
        InputError
            If there are too few rows to train it on.
        OptionError
            If the index has no such search parameter.
        """
        rows, asked = self.features.shape[1], PER_CENTROID * self.centroids
        trained = f"the index {self.spec} is trained on {self.train_rows} of {rows} gallery rows"
        if self.train_rows < self.centroids:
            raise InputError(
                f"{trained}, and has {self.centroids} centroids: at least as many rows are "
                f"needed, better {asked}; raise --train-rows, or choose a smaller index"
            )
        if self.train_rows < asked:
            warnings.warn(
                f"{trained}, {self.centroids} centroids: FAISS asks for {asked} rows or more",
                StreamevalWarning,
                stacklevel=2,
            )
        index = _make(self.features, self.spec)
        set_search(index, search)
        return index

    def build(self, plan: Plan, watch: Watch) -> tuple[Any, Description]:
        """Train the index on a sample of the gallery, and add the gallery block by block."""
        faiss, features = load(), self.features
        rows, width = features.gallery.shape
        begin = time.perf_counter()
        index = _make(features, self.spec)
        faiss.omp_set_num_threads(plan.threads)
        _leave_codes_in_order(index)
        if self.centroids and not index.is_trained:
            watch.start("train", self.train_rows)
            chosen = np.random.default_rng(0).choice(rows, self.train_rows, replace=False)
            sample = features.take_gallery(np.sort(chosen).astype(np.int64))
            with _silence():
                index.train(faiss_vectors(features, sample))
            del sample
            watch.advance(self.train_rows)
        watch.start("index", rows)
        for first in range(0, rows, plan.block):
            last = min(first + plan.block, rows)
            index.add(faiss_vectors(features, features.read_gallery(first, last)))
            watch.advance(last - first)
        watch.finish()
        seconds = round(time.perf_counter() - begin, 3)
        printed = fingerprint(features.gallery)
        return index, Description(
            self.spec, features.metric, rows, width, printed, self.train_rows, seconds
        )


def _make(features: Features, spec: str) -> Any:
    faiss = load()
    try:
        index = faiss.index_factory(features.width, spec, metric_code(features))
    except RuntimeError as error:
        raise OptionError(
            f"FAISS makes no index {spec!r} for {features.width} columns ({reason(error)}); "
            "expected a factory string such as Flat, HNSW32, IVF1024,PQ16 or "
            "OPQ16,IVF1024,PQ16, or a file (.faiss)"
        ) from error
    if isinstance(faiss.downcast_index(index), faiss.IndexIDMap):
        raise OptionError(
            f"index {spec!r} maps numbers of its own, and a list names gallery rows: leave IDMap "
            "out"
        )
    return index


def _sizes(index: Any, width: int) -> tuple[int, int]:
    """Return the most centroids that are trained together, and the bytes of a vector's code."""
    faiss = load()
    centroids, code_bytes = 0, 8
    pending = [index]
    while pending:
        part = faiss.downcast_index(pending.pop())
        if isinstance(part, faiss.IndexPreTransform):
            chain = (
                faiss.downcast_VectorTransform(part.chain.at(i)) for i in range(part.chain.size())
            )
            rotations = faiss.OPQMatrix | faiss.ITQMatrix
            centroids = max([centroids, *(256 if isinstance(v, rotations) else 2 for v in chain)])
            pending.append(part.index)
        elif isinstance(part, faiss.IndexRefine):
            pending += [part.base_index, part.refine_index]
        elif isinstance(part, faiss.IndexHNSW):
            code_bytes += 4 * part.hnsw.nb_neighbors(0) + 16
            pending.append(part.storage)
        elif isinstance(part, faiss.IndexIVF):
            centroids = max(centroids, part.nlist)
            code_bytes += part.code_size + 8
            if isinstance(part, faiss.IndexIVFPQ):
                centroids = max(centroids, part.pq.ksub)
        elif isinstance(part, faiss.IndexPQ):
            centroids, code_bytes = max(centroids, part.pq.ksub), code_bytes + part.code_size
        elif isinstance(part, faiss.IndexFlatCodes):
            centroids = max(centroids, 0 if part.is_trained else 2)
            code_bytes += part.code_size
        else:
            code_bytes += 4 * width
            centroids = max(centroids, 0 if part.is_trained else 256)
    return centroids, code_bytes


def _leave_codes_in_order(index: Any) -> None:
    """Leave out polysemous training: minutes, for an order of codes that no search here uses.

    Douze et al. 2016. The order is of use to searches with ``polysemous_ht`` alone; distances
    are the same without it.
    """
    faiss = load()
    inner = faiss.downcast_index(index)
    while isinstance(inner, faiss.IndexPreTransform | faiss.IndexRefine):
        transformed = isinstance(inner, faiss.IndexPreTransform)
        inner = faiss.downcast_index(inner.index if transformed else inner.base_index)
    if hasattr(inner, "do_polysemous_training"):
        inner.do_polysemous_training = False


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


@contextmanager
def index_file(path: str | Path | None) -> Iterator[Path]:
    """Yield the path of an index: where it is asked for, or a temporary one."""
    if path is not None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="streameval-index-") as folder:
        yield Path(folder) / "built.faiss"
