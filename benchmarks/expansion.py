"""Database-side augmentation: beside one product of all gallery items with all, and in 2 GB.

The product is as of `reranking`: G × G in blocks of rows, of two copies of the rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import streameval as se
from benchmarks.data import Rows, make_features, make_labels, save_labels
from benchmarks.figure import Bench, Case, Figure, Measured
from benchmarks.measure import Sides
from benchmarks.memory import ALLOWED, PEAK, PROJECTED, one_run
from benchmarks.reranking import PRODUCT, ROWS

THREADS, BUDGET = 2, 2 * 10**9
AUGMENTED = "augmented"
QUERIES, WIDTH = 100, 128
TIMED, LARGE = (100_000, 20_000), (1_000_000, 40_000)  # gallery items: full, quick


def _product(rows: Rows, others: Rows, out: Rows) -> None:
    for start in range(0, len(rows), ROWS):
        own = rows[start : start + ROWS]
        np.matmul(own, others.T, out=out[: len(own)])


def beside_product(bench: Bench) -> Measured:
    """Measure an evaluation of an augmented gallery beside a product of all its items with all."""
    shape = QUERIES, bench.count(*TIMED)
    made = make_features(bench.folder, *shape, WIDTH, name="expansion")
    rows = np.load(made.gallery)
    out = np.empty((ROWS, len(rows)), np.float32)
    given: dict[str, Any] = {**made.labels, "threads": THREADS, "metrics": "mAP"}
    features = se.Features(str(made.query), str(made.gallery))

    def augmented() -> None:
        se.evaluate(se.Expanded(features, "dba"), **given)

    sides: Sides = {PRODUCT: partial(_product, rows, rows.copy(), out), AUGMENTED: augmented}
    return Measured(bench.time(sides), {"shape": [*shape, WIDTH]})


def within(bench: Bench) -> Measured:
    """Measure the memory of augmentation within 2 GB."""
    shape = QUERIES, bench.count(*LARGE)
    features = make_features(bench.folder, *shape, WIDTH, name="expansion")
    report = one_run(
        {
            "source": {"query": str(features.query), "gallery": str(features.gallery)},
            "labels": save_labels(bench.folder, make_labels(*shape)),
            "memory": BUDGET,
            "threads": THREADS,
            "expanded": "dba",
        }
    )
    samples = {
        PEAK: [report["peak"]],
        PROJECTED: [report["plan"]["projected_peak"]],
        ALLOWED: [BUDGET],
    }
    return Measured(samples, {"shape": [*shape, WIDTH], **report})


CASES = (
    Case((Figure("expansion/dba/product", (AUGMENTED, PRODUCT), 1.5),), beside_product),
    Case(
        (
            Figure("expansion/dba/projected", (PEAK, PROJECTED), 1.0, unit="B"),
            Figure("expansion/dba/2GB", (PEAK, ALLOWED), 1.0, unit="B"),
        ),
        within,
    ),
)
