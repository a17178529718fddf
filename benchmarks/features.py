"""Features: the whole evaluation, from .npy in the page cache, against sgemm and FAISS.

The features are unit vectors, so that the range of the distances is known and the data are
multiplied once, as by the peers. FAISS has its index built and its rows normalised beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Literal

import numpy as np

import streameval as se
from benchmarks.data import FeatureSet, make_features
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.peers import bare_sgemm, faiss_search

Metric = Literal["cosine", "euclidean"]

METRICS: tuple[Metric, ...] = ("cosine", "euclidean")
THREADS = (1, 2)
QUERIES = {512: (1024, 256), 128: (2048, 256)}  # by width: full, quick
GALLERY = {512: (500_000, 40_000), 128: (500_000, 40_000)}
SGEMM_BOUND = {512: 1.20, 128: 1.60}
SGEMM_AIM = {512: 1.10}
FAISS_BOUND = {1000: 1.0, 100: 1.1}  # by k
OURS, SGEMM = "streameval", "sgemm"


def inputs(bench: Bench, width: int) -> FeatureSet:
    """Return the features of a width, on disk."""
    return make_features(
        bench.folder, bench.count(*QUERIES[width]), bench.count(*GALLERY[width]), width
    )


def evaluation(
    bench: Bench, features: FeatureSet, metric: Metric, threads: int
) -> Callable[[], se.Evaluation]:
    """Return the whole evaluation; it opens the files anew each time."""

    def run() -> se.Evaluation:
        return bench.evaluate(features.source(metric), features.labels, threads)

    return run


def against_sgemm(width: int, metric: Metric, threads: int, bench: Bench) -> Measured:
    """Measure against the bare products of the same tiles."""
    features = inputs(bench, width)
    ours = evaluation(bench, features, metric, threads)
    plan = ours().provenance["plan"]
    queries, gallery = np.load(features.query), np.load(features.gallery)
    rows, items = plan["tile"]
    sgemm = bare_sgemm(queries, gallery, (rows, items), threads)
    samples = bench.time({OURS: ours, SGEMM: sgemm})
    return Measured(samples, {"shape": [len(queries), len(gallery), width], "plan": plan})


def against_faiss(width: int, metric: Metric, threads: int, bench: Bench) -> Measured:
    """Measure against the search of a flat index."""
    if find_spec("faiss") is None:
        raise Skip("FAISS is not installed: pip install faiss-cpu")
    import faiss

    features = inputs(bench, width)
    queries, gallery = np.load(features.query), np.load(features.gallery)
    index = faiss.IndexFlatIP(width) if metric == "cosine" else faiss.IndexFlatL2(width)
    index.add(gallery)
    searches = {
        f"FAISS k={k}": faiss_search(index, queries, min(k, len(gallery)), threads)
        for k in FAISS_BOUND
    }
    samples = bench.time({OURS: evaluation(bench, features, metric, threads), **searches})
    return Measured(samples, {"shape": [len(queries), len(gallery), width]})


def _name(width: int, metric: Metric, threads: int, peer: str) -> str:
    return f"features/{metric}-{width}/{threads}-thread{'s' if threads > 1 else ''}/{peer}"


_SETTINGS = [
    (width, metric, threads) for width in QUERIES for metric in METRICS for threads in THREADS
]

CASES = (
    *(
        Case(
            (
                Figure(
                    _name(*setting, "sgemm"),
                    (OURS, SGEMM),
                    SGEMM_BOUND[setting[0]],
                    aim=SGEMM_AIM.get(setting[0]),
                ),
            ),
            partial(against_sgemm, *setting),
        )
        for setting in _SETTINGS
    ),
    *(
        Case(
            tuple(
                Figure(_name(*setting, f"faiss-{k}"), (OURS, f"FAISS k={k}"), bound)
                for k, bound in FAISS_BOUND.items()
            ),
            partial(against_faiss, *setting),
        )
        for setting in _SETTINGS
    ),
)
