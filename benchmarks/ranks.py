"""Metrics that ranks tell, alone: against sgemm, FAISS, and what all default metrics take.

The spread features have positives so far from the centre of their identity that mAP is 0.90;
of random ones most negatives are nearer than the furthest positive. The share of pairs that marks
leave in doubt is stated: of random ones few, as queries with many are counted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np

import streameval as se
from benchmarks.data import FeatureSet, Rows, make_features, unit
from benchmarks.features import GALLERY, OURS, QUERIES, SGEMM, THREADS
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.peers import bare_sgemm, faiss_search
from streameval.kernels.marks import MarkTile
from streameval.kernels.multiplier import chosen_way

WIDTH, K = 512, 100
UNIT = chosen_way() == "unit"
BOUND, AIM = (0.35, 0.20) if UNIT else (0.38, 0.28)
SPREAD = 1.16  # at which mAP is 0.90 (1,024 × 500,000)
ALL, FAISS = "all default metrics", f"FAISS k={K}"


def noise(rows: Rows, rng: np.random.Generator) -> Rows:
    """Return unit vectors that know nothing of identities."""
    return unit(rng.standard_normal(rows.shape, dtype=np.float32), rng)


FEATURES: dict[str, dict[str, Any]] = {
    "ordinary": {},
    "spread": {"name": "spread", "spread": SPREAD},
    "random": {"name": "noise", "transform": noise},
}


def inputs(bench: Bench, kind: str) -> FeatureSet:
    """Return features of a kind, on disk."""
    shape = bench.count(*QUERIES[WIDTH]), bench.count(*GALLERY[WIDTH])
    return make_features(bench.folder, *shape, WIDTH, **FEATURES[kind])


def evaluation(
    bench: Bench, features: FeatureSet, threads: int, metrics: str | None
) -> Callable[[], se.Evaluation]:
    """Return the whole evaluation; it opens the files anew each time."""

    def run() -> se.Evaluation:
        return bench.evaluate(features.source("cosine"), features.labels, threads, metrics=metrics)

    return run


def measured(bench: Bench, kind: str, threads: int, peers: Callable[..., Any]) -> Measured:
    """Measure ranks alone beside peers, and state the mean average precision."""
    features = inputs(bench, kind)
    ours = evaluation(bench, features, threads, "rank")
    samples = bench.time({OURS: ours, **peers(bench, features, threads)})
    result, listed = _counting_marks(ours)
    pairs = result.metrics.counts["queries"] * len(features.labels["gallery"].id)
    return Measured(samples, {"mAP": result.metrics["mAP"], "share in doubt": listed / pairs})


def _counting_marks(run: Callable[[], se.Evaluation]) -> tuple[se.Evaluation, int]:
    """Return what a run does, and how many marked pairs it decides one by one."""
    counts: list[int] = []

    def counting(tile: MarkTile) -> Iterator[Any]:
        for doubts, values in listed(tile):
            counts.append(len(doubts.query))
            yield doubts, values

    listed = MarkTile.listed
    with patch.object(MarkTile, "listed", counting):
        return run(), sum(counts)


def sgemm(bench: Bench, features: FeatureSet, threads: int) -> dict[str, Callable[[], Any]]:
    """Return the bare products, in tiles as wide as the evaluation's."""
    _, items = evaluation(bench, features, threads, None)().provenance["plan"]["tile"]
    return {SGEMM: bare_sgemm(np.load(features.query), np.load(features.gallery), items, threads)}


def everything(bench: Bench, features: FeatureSet, threads: int) -> dict[str, Callable[[], Any]]:
    """Return the evaluation of all default metrics."""
    return {ALL: evaluation(bench, features, threads, None)}


def faiss_flat(bench: Bench, features: FeatureSet, threads: int) -> dict[str, Callable[[], Any]]:
    """Return the search of a flat index that is built beforehand."""
    if find_spec("faiss") is None:
        raise Skip("FAISS is not installed: pip install faiss-cpu")
    import faiss

    index = faiss.IndexFlatIP(WIDTH)
    index.add(np.load(features.gallery))
    return {FAISS: faiss_search(index, np.load(features.query), K, threads)}


def _case(
    kind: str, threads: int, peer: str, bound: float, aim: float | None, peers: Callable[..., Any]
) -> Case:
    name = f"ranks/{kind}-{WIDTH}/{threads}-thread{'s' if threads > 1 else ''}/{peer}"
    sides = {"sgemm": SGEMM, "all": ALL, f"faiss-{K}": FAISS}
    figure = Figure(name, (OURS, sides[peer]), bound, aim=aim)
    return Case((figure,), partial(measured, kind=kind, threads=threads, peers=peers))


CASES = tuple(
    case
    for threads in THREADS
    for case in (
        _case("ordinary", threads, "sgemm", BOUND, AIM, sgemm),
        _case("ordinary", threads, f"faiss-{K}", BOUND, None, faiss_flat),
        _case("spread", threads, "sgemm", 0.65, None, sgemm),
        _case("random", threads, "all", 1.0, None, everything),
    )
)
