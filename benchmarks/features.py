"""Features: the whole evaluation, from .npy in the page cache, against sgemm and FAISS.

The features are unit vectors, so that the range of the distances is known and the data are
multiplied once, as by the peers. FAISS has its index built and its rows normalised beforehand. With
the labels of Market-1501 they are arrays in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Literal

import numpy as np

import streameval as se
from benchmarks.data import FeatureSet, make_features, market1501_labels, unit
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.peers import bare_sgemm, faiss_search
from streameval.kernels.multiplier import chosen_way

Metric = Literal["cosine", "euclidean"]

METRICS: tuple[Metric, ...] = ("cosine", "euclidean")
THREADS = (1, 2)
QUERIES = {512: (1024, 256), 128: (2048, 256), 2048: (1024, 256)}  # by width: full, quick
GALLERY = {512: (500_000, 40_000), 128: (500_000, 40_000), 2048: (100_000, 20_000)}
UNIT = chosen_way() == "unit"
SGEMM_BOUND = {512: 0.75, 128: 1.10, 2048: 1.08} if UNIT else {512: 1.15, 128: 1.50, 2048: 1.08}
MARKET1501_BOUND, MARKET1501_WIDTH = 1.15, 2048
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
    """Measure against the bare products, in tiles as wide as the evaluation's."""
    features = inputs(bench, width)
    ours = evaluation(bench, features, metric, threads)
    plan = ours().provenance["plan"]
    queries, gallery = np.load(features.query), np.load(features.gallery)
    sgemm = bare_sgemm(queries, gallery, plan["tile"][1], threads)
    samples = bench.time({OURS: ours, SGEMM: sgemm})
    return Measured(samples, {"shape": [len(queries), len(gallery), width], "plan": plan})


def against_market1501(threads: int, bench: Bench) -> Measured:
    """Measure rows as many as Market-1501 has images, with its labels, as arrays in memory."""
    labels, rng = market1501_labels(), np.random.default_rng(0)
    queries, gallery = (
        unit(rng.standard_normal((len(own), MARKET1501_WIDTH), dtype=np.float32), rng)
        for own in (labels["query"], labels["gallery"])
    )

    def ours() -> se.Evaluation:
        return bench.evaluate(se.Features(queries, gallery), labels, threads)

    items = -(-len(gallery) // threads)  # a part for each thread
    samples = bench.time({OURS: ours, SGEMM: bare_sgemm(queries, gallery, items, threads)})
    return Measured(samples, {"shape": [len(queries), len(gallery), MARKET1501_WIDTH]})


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
_WITH_FAISS = [setting for setting in _SETTINGS if setting[0] in (512, 128)]

CASES = (
    *(
        Case(
            (
                Figure(
                    _name(*setting, "sgemm"),
                    (OURS, SGEMM),
                    SGEMM_BOUND[setting[0]],
                ),
            ),
            partial(against_sgemm, *setting),
        )
        for setting in _SETTINGS
    ),
    *(
        Case(
            (Figure(f"features/market1501/{threads}-threads", (OURS, SGEMM), MARKET1501_BOUND),),
            partial(against_market1501, threads),
        )
        for threads in THREADS
    ),
    *(
        Case(
            tuple(
                Figure(_name(*setting, f"faiss-{k}"), (OURS, f"FAISS k={k}"), bound)
                for k, bound in FAISS_BOUND.items()
            ),
            partial(against_faiss, *setting),
        )
        for setting in _WITH_FAISS
    ),
)
