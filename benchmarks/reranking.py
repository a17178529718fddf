"""Re-ranking: beside one product of all images with all, at its worst, and within a budget.

The product is N × N in blocks of rows, of two copies of the rows: of one and the same array, BLAS
computes half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import streameval as se
from benchmarks.data import Rows, make_features, make_labels, save_labels
from benchmarks.figure import Bench, Case, Figure, Measured
from benchmarks.measure import Sides
from benchmarks.memory import ALLOWED, PEAK, PROJECTED, one_run

THREADS = 2
PRODUCT, RERANKED, ORDINARY, WORST = "product of all", "re-ranked", "ordinary", "worst case"
MARKET, MSMT = ((3_368, 400), (19_732, 2_000), 2_048), ((11_659, 400), (82_161, 3_000), 512)
HARD = (2_000, 200), (18_000, 1_800), 512
ROWS = 1_024  # of a block of the product


def _alike(rows: Rows, rng: np.random.Generator) -> Rows:
    """Make all rows the same."""
    return np.tile(rows[:1], (len(rows), 1))


def _nearly_alike(rows: Rows, rng: np.random.Generator) -> Rows:
    """Make all rows the same but for a thousandth."""
    return (rows[:1] + 1e-3 * rows).astype(np.float32)


def _copies(rows: Rows, rng: np.random.Generator) -> Rows:
    """Make half of the rows copies of one."""
    made = rows.copy()
    made[rng.permutation(len(rows))[: len(rows) // 2]] = rows[0]
    return made


def _hub(rows: Rows, rng: np.random.Generator) -> Rows:
    """Put one row at the centre of all, where it is the nearest of each."""
    made: Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    made[len(rows) // 2] = made.mean(axis=0)
    return made


HARDEST: Mapping[str, Callable[[Rows, np.random.Generator], Rows]] = {
    "collapsed": _alike,
    "nearly-collapsed": _nearly_alike,
    "copies": _copies,
    "hub": _hub,
}


def _images(queries: int, gallery: int, width: int) -> tuple[dict[str, se.Labels], Rows]:
    """Return labels, and features of all images around the centres of their identities."""
    labels, rng = make_labels(queries, gallery), np.random.default_rng(1)
    ids = np.concatenate([own.id for own in labels.values()])
    known, identity = np.unique(ids, return_inverse=True)
    centres = rng.standard_normal((len(known), width), np.float32)
    rows: Rows = centres[identity] + 2 * rng.standard_normal((len(ids), width), np.float32)
    return labels, rows


def _evaluate(labels: Mapping[str, se.Labels], rows: Rows) -> None:
    queries = len(labels["query"])
    features = se.Features(rows[:queries], rows[queries:], "euclidean")
    given: dict[str, Any] = {**labels, "threads": THREADS, "metrics": "CMC@1,CMC@5,CMC@10,mAP,mINP"}
    se.evaluate(se.Reranked(features), **given)


def market(bench: Bench) -> Measured:
    """Measure re-ranking at Market-1501's size beside a product of all images with all."""
    queries, gallery = (bench.count(*size) for size in MARKET[:2])
    labels, rows = _images(queries, gallery, MARKET[2])
    others, out = rows.copy(), np.empty((ROWS, len(rows)), np.float32)

    def product() -> None:
        for start in range(0, len(rows), ROWS):
            own = rows[start : start + ROWS]
            np.matmul(own, others.T, out=out[: len(own)])

    sides: Sides = {PRODUCT: product, RERANKED: partial(_evaluate, labels, rows)}
    return Measured(bench.time(sides), {"shape": [queries, gallery, MARKET[2]]})


def hardest(name: str, bench: Bench) -> Measured:
    """Measure a worst case beside ordinary features of its shape."""
    queries, gallery = (bench.count(*size) for size in HARD[:2])
    labels, rows = _images(queries, gallery, HARD[2])
    made = HARDEST[name](rows, np.random.default_rng(2))
    sides: Sides = {
        WORST: partial(_evaluate, labels, made),
        ORDINARY: partial(_evaluate, labels, rows),
    }
    return Measured(bench.time(sides), {"shape": [queries, gallery, HARD[2]]})


def within(bench: Bench) -> Measured:
    """Measure the memory of re-ranking at MSMT17's size, within 2 GB."""
    queries, gallery = (bench.count(*size) for size in MSMT[:2])
    features = make_features(bench.folder, queries, gallery, MSMT[2])
    report = one_run(
        {
            "source": {"query": str(features.query), "gallery": str(features.gallery)},
            "labels": save_labels(bench.folder, make_labels(queries, gallery)),
            "memory": 2 * 10**9,
            "threads": THREADS,
            "reranked": True,
        }
    )
    samples = {
        PEAK: [report["peak"]],
        PROJECTED: [report["plan"]["projected_peak"]],
        ALLOWED: [2 * 10**9],
    }
    return Measured(samples, {"shape": [queries, gallery, MSMT[2]], **report})


CASES = (
    Case((Figure("reranking/market/product", (RERANKED, PRODUCT), 2.0),), market),
    *(
        Case((Figure(f"reranking/{name}", (WORST, ORDINARY), 3.0),), partial(hardest, name))
        for name in HARDEST
    ),
    Case(
        (
            Figure("reranking/msmt17/projected", (PEAK, PROJECTED), 1.0, unit="B"),
            Figure("reranking/msmt17/2GB", (PEAK, ALLOWED), 1.0, unit="B"),
        ),
        within,
    ),
)
