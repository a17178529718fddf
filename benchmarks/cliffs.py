"""No cliff: what real models produce at their worst, against the ordinary case of its shape."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

import streameval as se
from benchmarks.data import (
    Rows,
    Transform,
    half,
    make_distances,
    make_features,
    make_labels,
    unit,
)
from benchmarks.features import Metric, evaluation
from benchmarks.figure import Bench, Case, Figure, Measured
from benchmarks.stored import require_space

WIDTH = 128
QUERIES, GALLERY = (512, 256), (200_000, 40_000)  # full, quick
BOUND = 4.0
WORST, ORDINARY = "worst case", "ordinary"
FEW, ALL = "CMC@1 and mAP", "all metrics"


def equal(rows: Rows, _: np.random.Generator) -> Rows:
    """Make all rows the same vector: a model that has collapsed."""
    one = np.random.default_rng(0).standard_normal(rows.shape[1])
    return np.tile((one / np.linalg.norm(one)).astype(np.float32), (len(rows), 1))


def nearly_equal(rows: Rows, rng: np.random.Generator) -> Rows:
    """Make all rows the same vector but for noise of 1e-6, relatively."""
    noise = rng.standard_normal(rows.shape)
    return (equal(rows, rng) * (1 + 1e-6 * noise)).astype(np.float32)


def int8(rows: Rows, _: np.random.Generator) -> Rows:
    """Quantise to int8, as embeddings are stored to save space."""
    quantised: Rows = np.clip(np.rint(rows * 40), -127, 127).astype(np.int8)
    return quantised


def signs(rows: Rows, _: np.random.Generator) -> Rows:
    """Keep the signs: ±1 codes."""
    return np.where(rows < 0, -1, 1).astype(np.float32)


def non_negative(rows: Rows, _: np.random.Generator) -> Rows:
    """Shift to a mean cosine similarity of 0.9, with nothing below 0, as after a ReLU."""
    shift = 3 * float(np.sqrt(np.mean(rows * rows)))
    shifted: Rows = np.maximum(rows + np.float32(shift), 0)
    return shifted


def any_norm(rows: Rows, rng: np.random.Generator) -> Rows:
    """Give the rows norms from 1e-3 to 1e3."""
    norms = 10.0 ** rng.uniform(-3, 3, (len(rows), 1))
    return (unit(rows, rng) * norms).astype(np.float32)


@dataclass(frozen=True)
class Worst:
    """A worst case of features.

    Attributes
    ----------
    metric : {"cosine", "euclidean"}
        Of the worst case and of the ordinary one.
    transform : callable
        What the model makes of ordinary rows.
    duplicated : bool
        Whether the second half of the gallery repeats the first.
    """

    metric: Metric
    transform: Transform
    duplicated: bool = False


FEATURES: Mapping[str, Worst] = {
    "collapsed": Worst("cosine", equal),
    "collapsed-euclidean": Worst("euclidean", equal),
    "nearly-collapsed": Worst("cosine", nearly_equal),
    "int8": Worst("cosine", int8),
    "int8-euclidean": Worst("euclidean", int8),
    "signs": Worst("cosine", signs),
    "signs-euclidean": Worst("euclidean", signs),
    "non-negative": Worst("cosine", non_negative),
    "duplicated": Worst("cosine", unit, duplicated=True),
    "any-norm": Worst("euclidean", any_norm),
    "float16": Worst("cosine", half),
}


def on_features(name: str, bench: Bench) -> Measured:
    """Measure a worst case against unit vectors of the same shape."""
    worst = FEATURES[name]
    shape = bench.count(*QUERIES), bench.count(*GALLERY)
    threads = len(os.sched_getaffinity(0))
    ordinary = make_features(bench.folder, *shape, WIDTH)
    features = make_features(
        bench.folder,
        *shape,
        WIDTH,
        name=name,
        transform=worst.transform,
        duplicated=worst.duplicated,
    )
    samples = bench.time(
        {
            WORST: evaluation(bench, features, worst.metric, threads),
            ORDINARY: evaluation(bench, ordinary, worst.metric, threads),
        }
    )
    features.gallery.unlink()
    return Measured(samples, {"shape": [*shape, WIDTH]})


def few_metrics(bench: Bench) -> Measured:
    """Measure what reads no thresholds, so that some queries have nothing to count against."""
    shape = bench.count(*QUERIES), bench.count(*GALLERY)
    threads = len(os.sched_getaffinity(0))
    features = make_features(bench.folder, *shape, WIDTH)
    source = features.source("cosine")
    samples = bench.time(
        {
            FEW: lambda: bench.evaluate(source, features.labels, threads, metrics="CMC@1,mAP"),
            ALL: lambda: bench.evaluate(source, features.labels, threads),
        }
    )
    return Measured(samples, {"shape": [*shape, WIDTH]})


def on_quantised_distances(bench: Bench) -> Measured:
    """Measure a stored uint8 matrix against a float32 one, each with the range of its numbers."""
    shape = bench.count(*QUERIES), bench.count(*GALLERY)
    require_space(bench.folder, 5 * prod(shape))
    threads = len(os.sched_getaffinity(0))
    labels = make_labels(*shape)
    paths = {side: bench.folder / f"distances-{side}.zarr" for side in ("uint8", "float32")}
    try:
        for dtype, path in paths.items():
            make_distances(path, labels, (200, 10_000), "lz4", dtype=dtype)

        def evaluate(dtype: str) -> se.Evaluation:
            return bench.evaluate(
                se.Distances(paths[dtype]),
                labels,
                threads,
                (0.0, 255.0 if dtype == "uint8" else 2.0),
            )

        samples = bench.time(
            {WORST: partial(evaluate, "uint8"), ORDINARY: partial(evaluate, "float32")}
        )
    finally:
        for path in paths.values():
            shutil.rmtree(path, ignore_errors=True)
    return Measured(samples, {"shape": list(shape)})


CASES = (
    *(
        Case((Figure(f"cliffs/{name}", (WORST, ORDINARY), BOUND),), partial(on_features, name))
        for name in FEATURES
    ),
    Case((Figure("cliffs/few-metrics", (FEW, ALL), 1.1),), few_metrics),
    Case((Figure("cliffs/stored-uint8", (WORST, ORDINARY), BOUND),), on_quantised_distances),
)
