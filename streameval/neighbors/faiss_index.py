"""Indexes of FAISS in files: opened, checked against features, described and written."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.fingerprint import fingerprint
from streameval.distances.distance import FaissMetric
from streameval.distances.sums import Vectors
from streameval.errors import InputError, OptionError
from streameval.output import NewFile
from streameval.sources.features import Features

SUFFIXES = (".faiss", ".index")
DESCRIPTION = ".json"  # after the name of an index
NOTHING = -1  # in a list, where there is no further item


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


def faiss_metric(features: Features) -> FaissMetric:
    """Return the FAISS equivalent of the distance of features.

    Raises
    ------
    OptionError
        If there is none.
    """
    metric = features.distance.faiss
    if metric is None:
        raise OptionError(
            f"FAISS has no equivalent of the {features.metric} distance: choose another metric, "
            "or evaluate the features"
        )
    return metric


def faiss_vectors(features: Features, vectors: Vectors) -> npt.NDArray[np.float32]:
    """Return vectors as FAISS takes them, [n, D] float32."""
    scaled = faiss_metric(features).normalised
    rows = vectors.rows / vectors.norms[:, None] if scaled else vectors.rows
    return np.ascontiguousarray(rows, np.float32)


def metric_code(features: Features) -> int:
    """Return the number by which FAISS knows the metric of features."""
    faiss = load()
    inner = faiss_metric(features).inner_product
    return int(faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2)


def is_file(spec: str) -> bool:
    """Return whether an index is named by a file, not by a factory string."""
    return spec.lower().endswith(SUFFIXES) or os.sep in spec


def is_flat(spec: str) -> bool:
    """Return whether an index is the plain search of all features, which has no file."""
    return spec == "Flat"


def is_exact(index: Any) -> bool:
    """Return whether a search compares with every vector as it is, in float32."""
    faiss = load()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIVFFlat):
        return bool(index.nprobe >= index.nlist)
    return isinstance(index, faiss.IndexFlat)


def reason(error: Exception) -> str:
    """Return what FAISS says, without where in its source it says so."""
    return str(error).rsplit(" at /", 1)[-1].partition(": ")[-1].strip() or str(error)


@dataclass(frozen=True)
class Description:
    """The gallery and the metric of an index, as written beside it.

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

    @classmethod
    def read(cls, index: Path) -> Description | None:
        """Return the description of an index; None where it has none.

        Raises
        ------
        InputError
            If it can't be read.
        """
        beside = index.with_name(index.name + DESCRIPTION)
        if not beside.exists():
            return None
        try:
            return cls(**json.loads(beside.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"{beside} can't be read ({error}): remove it, or build the index again"
            ) from error


@lru_cache(maxsize=4)
def _open(path: str, changed: int, search: str) -> Any:
    """Return an index, memory-mapped, with the parameters of the search; once a process."""
    faiss = load()
    try:
        index = faiss.read_index(path, faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise InputError(
            f"{path} can't be read as a FAISS index ({reason(error)}): write it with "
            "faiss.write_index, or with --save-index"
        ) from error
    set_search(index, search)
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
    return _open(str(path), changed, search)


def set_search(index: Any, search: str) -> None:
    """Set the parameters of the search.

    Raises
    ------
    OptionError
        If the index has no such parameter, or it can't have that value.
    """
    faiss = load()
    for setting in filter(None, (part.strip() for part in search.split(","))):
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
    """Check that an index is of the gallery, and of the metric.

    Raises
    ------
    InputError
    """
    faiss = load()
    rows, width = features.gallery.shape
    needed, code = metric_code(features), int(index.metric_type)
    names = {faiss.METRIC_INNER_PRODUCT: "inner product", faiss.METRIC_L2: "L2"}
    if index.d != width:
        raise InputError(
            f"the index {path} is of vectors of {index.d} columns, the gallery features "
            f"{features.gallery.uri} have {width}: build one of these features"
        )
    if code != needed:
        raise InputError(
            f"the index {path} is of FAISS's metric {names.get(code, str(code))}, and "
            f"--metric {features.metric} needs {names[needed]}: build one with that, or choose "
            "another metric"
        )
    if not index.is_trained:
        raise InputError(f"the index {path} is not trained: train it, or build one with --index")
    if index.ntotal != rows:
        raise InputError(
            f"the index {path} holds {index.ntotal} vectors, and the gallery features "
            f"{features.gallery.uri} have {rows} rows: it is of another gallery"
        )
    described = Description.read(path)
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


def write_index(index: Any, description: Description, path: Path) -> None:
    """Write an index, whole or not at all, and its description beside it.

    Raises
    ------
    InputError
        If it can't be written.
    """
    faiss = load()
    beside = path.with_name(path.name + DESCRIPTION)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NewFile(path, overwrite=True) as file, NewFile(beside, overwrite=True) as other:
            faiss.write_index(index, str(file.partial))
            other.write(json.dumps(asdict(description), indent=2).encode() + b"\n")
    except (OSError, RuntimeError) as error:
        raise InputError(f"the index can't be written to {path}: {reason(error)}") from error
