"""Indexes of FAISS: opened from files and checked, or built of features and written."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import reading
from streameval.arrays.fingerprint import fingerprint
from streameval.arrays.identity import check_unchanged, identify
from streameval.distances.distance import Filter
from streameval.distances.sums import Vectors
from streameval.errors import InputError, OptionError, refuse, warn
from streameval.output import NewFile
from streameval.planning.plan import Plan, ranges
from streameval.run.progress import Watch
from streameval.sources.features import Features
from streameval.typing import Float32Array, JsonObject

SUFFIXES = (".faiss", ".index")
DESCRIPTION = ".json"  # after the name of an index
PER_CENTROID = 39  # training vectors: what FAISS asks for
USUAL_PER_CENTROID = 64
TRAINING_BYTES = 128 << 20  # of a sample, as float32, where no number of rows is given
DIGEST = "digest"  # of the file of an index, in its description


def faiss_metric(features: Features) -> Filter:
    """Return the filter of the distance of features, whose values FAISS has; or OptionError."""
    metric = features.distance.filter
    if metric is None or features.distance.faiss is None:
        raise OptionError(
            f"FAISS has no equivalent of the {features.metric} distance: choose another metric, "
            "or evaluate the features"
        )
    return metric


def faiss_vectors(features: Features, vectors: Vectors) -> Float32Array:
    """Return vectors as FAISS takes them, [n, D] float32."""
    scaled = faiss_metric(features).normalised
    rows = vectors.rows / vectors.norms[:, None] if scaled else vectors.rows
    return np.ascontiguousarray(rows, np.float32)


def metric_code(features: Features) -> int:
    """Return the number by which FAISS knows the metric of features."""
    import faiss

    return int(getattr(faiss, str(features.distance.faiss)))


def is_file(spec: str) -> bool:
    """Return whether an index is named by a file, not by a factory string."""
    return spec.lower().endswith(SUFFIXES) or os.sep in spec


def is_exact(index: Any) -> bool:
    """Return whether a search compares with every vector as it is, in float32."""
    import faiss

    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIVFFlat):
        return bool(index.nprobe >= index.nlist)
    return isinstance(index, faiss.IndexFlat)


def _reason(error: Exception) -> str:
    """Return what FAISS says, without where in its source it says so."""
    return str(error).rsplit(" at /", 1)[-1].partition(": ")[-1].strip() or str(error)


@lru_cache(maxsize=4)
def _open(path: str, known_by: str, search: str) -> Any:
    """Return an index, memory-mapped, with the parameters of the search; once a process.

    Raises InputError if the file is not the one that is described beside it.
    """
    import faiss

    known = _described(Path(path)).get(DIGEST)
    if known not in (None, found := known and _digest(Path(path))):
        raise InputError(
            f"{path} is damaged or replaced: its digest is {found}, and {description(Path(path))} "
            f"says {known}; build it again, restore it from a copy, or, if it is another index, "
            "remove that description"
        )
    try:
        index = faiss.read_index(path, faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise InputError(
            f"{path} can't be read as a FAISS index ({_reason(error)}): write it with "
            "faiss.write_index, or with --save-index"
        ) from error
    ivf = faiss.try_extract_index_ivf(index)
    lists = ivf and getattr(faiss.downcast_InvertedLists(ivf.invlists), "filename", "")
    if lists:  # of those in the index's own file there is no name
        raise InputError(
            f"the inverted lists of {path} lie in another file ({lists}), which may be absent or "
            "change unnoticed: build one without OnDiskInvertedLists, in one file, such as with "
            "--index and --save-index"
        )
    set_search(index, search)
    return index


def open_index(path: Path, search: str) -> Any:
    """Open an index of a file, memory-mapped where FAISS can, for ``nprobe=16,efSearch=64``."""
    try:
        path.stat()
    except OSError as error:
        raise InputError(f"the index {path} can't be opened: {error.strerror}") from error
    return _open(str(path), identify(path).known_by, search)


def close_all() -> None:
    """Let go of the indexes that this process has opened."""
    _open.cache_clear()


def set_search(index: Any, search: str) -> None:
    """Set the parameters of the search, or raise OptionError."""
    import faiss

    for setting in filter(None, map(str.strip, search.split(","))):
        name, _, value = setting.partition("=")
        try:
            number = float(value)
            if number < 1:
                raise ValueError(value)
            faiss.ParameterSpace().set_index_parameter(index, name.strip(), number)
        except (ValueError, RuntimeError) as error:
            raise OptionError(
                f"the search parameter {setting!r} can't be set on an index of type "
                f"{type(faiss.downcast_index(index)).__name__}; expected NAME=NUMBER, such as "
                "nprobe=16 (of IVF) or efSearch=64 (of HNSW)"
            ) from error


def check_index(index: Any, path: Path, features: Features) -> None:
    """Raise InputError unless an index is of the gallery, and of the metric."""
    import faiss

    (rows, width), uri = features.gallery.shape, features.gallery.uri
    needed, code = metric_code(features), int(index.metric_type)
    names = {faiss.METRIC_INNER_PRODUCT: "inner product", faiss.METRIC_L2: "L2"}
    described = _described(path)
    metric, printed = described.get("metric"), described.get("fingerprint")
    refuse(
        InputError,
        index.d != width
        and f"the index {path} is of vectors of {index.d} columns, the gallery features {uri} have "
        f"{width}: build one of these features",
        code != needed
        and f"the index {path} is of FAISS's metric {names.get(code, code)}, and --metric "
        f"{features.metric} needs {names[needed]}: build one with that, or choose another metric",
        not index.is_trained
        and f"the index {path} is not trained: train it, or build one with --index",
        index.ntotal != rows
        and f"the index {path} holds {index.ntotal} vectors, and the gallery features {uri} have "
        f"{rows} rows: it is of another gallery",
        metric
        and metric != features.metric
        and f"the index {path} was built for metric {metric}, and {features.metric} is asked for: "
        "build one for that",
    )
    if printed and printed != fingerprint(features.gallery):
        raise InputError(
            f"the index {path} was built of other features than {uri} holds now (fingerprint "
            f"{printed[:8]}…): build it again"
        )


def _described(path: Path) -> JsonObject:
    """Return what is written beside an index; nothing where it was made by others."""
    beside = description(path)
    if not beside.exists():
        return {}
    with reading(str(beside), "read", "remove it, or build the index again"):
        described: JsonObject = json.loads(beside.read_text(encoding="utf-8"))
        return described | {name: described[name] for name in ("metric", "fingerprint")}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


class Recipe:
    """An index to be built, and what it takes.

    Parameters
    ----------
    features : Features
    spec : str
        Factory string of FAISS.
    train_rows : int, optional
        Rows of the gallery that it is trained on: no more than memory can take, where no number
        is given.
    rows : str
        What messages call the rows.

    Attributes
    ----------
    index : faiss.Index
        Empty.
    centroids : int
        The most that are trained together; 0 where nothing is trained.
    code_bytes : int
        Of each vector, with its number and links.
    train_rows : int
    """

    def __init__(
        self, features: Features, spec: str, train_rows: int | None, rows: str = "gallery rows"
    ) -> None:
        import faiss

        self.features, self.spec, self.rows = features, spec, rows
        try:
            self.index = faiss.index_factory(features.width, spec, metric_code(features))
        except RuntimeError as error:
            raise OptionError(
                f"FAISS makes no index {spec!r} for {features.width} columns ({_reason(error)}); "
                "expected a factory string such as Flat, HNSW32, IVF1024,PQ16 or "
                "OPQ16,IVF1024,PQ16, or a file (.faiss)"
            ) from error
        if isinstance(faiss.downcast_index(self.index), faiss.IndexIDMap):
            raise OptionError(
                f"index {spec!r} maps numbers of its own, and a list names gallery rows: leave "
                "IDMap out"
            )
        self.centroids, self.code_bytes = _sizes(self.index, features.width)
        most = max(TRAINING_BYTES // (4 * features.width), self.centroids)
        sample = train_rows or min(USUAL_PER_CENTROID * self.centroids, most)
        self.train_rows = min(features.shape[1], sample) if self.centroids else 0

    def check(self, search: str) -> Any:
        """Return the empty index, once it is clear that it can be built; warn of few rows."""
        asked, rows = PER_CENTROID * self.centroids, self.features.shape[1]
        trained = f"the index {self.spec} is trained on {self.train_rows} of {rows} {self.rows}"
        if self.train_rows < self.centroids:
            raise InputError(
                f"{trained}, and has {self.centroids} centroids: at least as many rows are "
                f"needed, better {asked}; raise --train-rows, or choose a smaller index"
            )
        if self.train_rows < asked:
            message = f"{trained}, {self.centroids} centroids: FAISS asks for {asked} rows or more"
            warn(message)
        set_search(self.index, search)
        return self.index

    def build(self, path: Path, plan: Plan, watch: Watch) -> None:
        """Train and fill the index, block by block; write it and a description."""
        import faiss

        features, index = self.features, self.index
        rows, width = features.gallery.shape
        begin = time.perf_counter()
        faiss.omp_set_num_threads(plan.threads)
        for part in _parts(index):
            # Polysemous training (Douze et al. 2016) takes minutes, for an order of codes that
            # searches with ``polysemous_ht`` alone use; distances are the same without it.
            if hasattr(part, "do_polysemous_training"):
                part.do_polysemous_training = False
        if self.centroids and not index.is_trained:
            watch.progress.start("train", self.train_rows)
            chosen = np.random.default_rng(0).choice(rows, self.train_rows, replace=False)
            with _silence():
                index.train(faiss_vectors(features, features.take_gallery(np.sort(chosen))))
            watch.advance(self.train_rows)
        watch.progress.start("index", rows)
        for first, last in ranges(rows, plan.block):
            index.add(faiss_vectors(features, features.read_gallery(first, last)))
            watch.advance(last - first)
        watch.progress.finish()
        check_unchanged(features.gallery)
        facts = {
            "spec": self.spec,
            "train_rows": self.train_rows,
            "build_seconds": round(time.perf_counter() - begin, 3),
            "metric": features.metric,
            "fingerprint": fingerprint(features.gallery),
            "rows": rows,
            "width": width,
        }
        beside = description(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with NewFile(path, overwrite=True) as file, NewFile(beside, overwrite=True) as other:
                faiss.write_index(index, str(file.partial))
                facts[DIGEST] = _digest(file.partial)
                other.write(json.dumps(facts, indent=2).encode() + b"\n")
        except (OSError, RuntimeError) as error:
            raise InputError(f"the index can't be written to {path}: {_reason(error)}") from error


def description(path: Path) -> Path:
    """Return where an index is described, beside its file."""
    return Path(f"{path}{DESCRIPTION}")


def is_whole(path: Path) -> bool:
    """Return whether a file holds an index that was built, with its description."""
    try:
        facts_of(path)
        open_index(path, "")
    except (InputError, OSError, ValueError, KeyError, TypeError):
        return False
    return True


def facts_of(path: Path) -> JsonObject:
    """Return facts of an index that was built."""
    described = json.loads(description(path).read_text(encoding="utf-8"))
    facts = {name: described[name] for name in ("spec", "train_rows", "build_seconds")}
    return facts | {"bytes": path.stat().st_size}


def _parts(index: Any) -> Iterator[Any]:
    """Yield an index and those that it is made of, but for what assigns vectors to lists."""
    import faiss

    part = faiss.downcast_index(index)
    yield part
    for name in ("index", "base_index", "refine_index", "storage"):
        if hasattr(part, name):
            yield from _parts(getattr(part, name))


def _sizes(index: Any, width: int) -> tuple[int, int]:
    """Return the most centroids that are trained together, and the bytes of a vector's code."""
    import faiss

    centroids, code_bytes = [0], 8
    for part in _parts(index):
        if isinstance(part, faiss.IndexPreTransform):
            rotations = faiss.OPQMatrix | faiss.ITQMatrix
            for i in range(part.chain.size()):
                transform = faiss.downcast_VectorTransform(part.chain.at(i))
                centroids.append(256 if isinstance(transform, rotations) else 2)
        elif isinstance(part, faiss.IndexHNSW):
            code_bytes += 4 * part.hnsw.nb_neighbors(0) + 16
        elif isinstance(part, faiss.IndexRefine):
            continue
        elif isinstance(part, faiss.IndexIVF):
            centroids += [part.nlist, part.pq.ksub if isinstance(part, faiss.IndexIVFPQ) else 0]
            code_bytes += part.code_size + 8
        elif isinstance(part, faiss.IndexFlatCodes):
            trained = 0 if part.is_trained else 2
            centroids.append(part.pq.ksub if isinstance(part, faiss.IndexPQ) else trained)
            code_bytes += part.code_size
        else:
            centroids.append(0 if part.is_trained else 256)
            code_bytes += 4 * width
    return max(centroids), code_bytes


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
