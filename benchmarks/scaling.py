"""Scaling: with threads, beside processes, with the gallery, with the queries."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Literal

import streameval as se
from benchmarks.data import FeatureSet, make_features, make_labels, near_and_far
from benchmarks.features import OURS, evaluation, inputs
from benchmarks.figure import Bench, Case, Figure, Measured
from benchmarks.stored import RANGE

ONE, TWO = "1 thread", "2 threads"
PROCESSES, THREADS = "2 processes, an evaluation each", "2 threads, both evaluations"
WIDTH = 128
GALLERY = (4_000_000, 400_000)  # full, quick: the largest, which the others are fractions of
GALLERY_FRACTIONS = {
    False: (1 / 40, 1 / 20, 1 / 8, 1 / 4, 1 / 2, 1),
    True: (1 / 8, 1 / 4, 1 / 2, 1),
}
QUERIES = (4096, 1024)  # full, quick
QUERY_FRACTIONS = (1 / 8, 1 / 4, 1 / 2, 1)
FIXED_QUERIES, FIXED_GALLERY = (256, 128), (200_000, 40_000)  # full, quick


def threads_on_features(width: int, bench: Bench) -> Measured:
    """Measure an evaluation of features on one thread and on two."""
    features = inputs(bench, width)
    return Measured(
        bench.time(
            {
                ONE: evaluation(bench, features, "cosine", 1),
                TWO: evaluation(bench, features, "cosine", 2),
            }
        )
    )


def _evaluate(bench: Bench, features: FeatureSet, threads: int) -> None:
    evaluation(bench, features, "cosine", threads)()


def beside_processes(width: int, bench: Bench) -> Measured:
    """Measure two evaluations: by a process of one thread each, and in turn by two threads."""
    features = inputs(bench, width)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:

        def processes() -> None:
            for done in [pool.submit(_evaluate, bench, features, 1) for _ in range(2)]:
                done.result()

        def threads() -> None:
            for _ in range(2):
                _evaluate(bench, features, 2)

        return Measured(bench.time({PROCESSES: processes, THREADS: threads}))


def threads_on_distances(bench: Bench) -> Measured:
    """Measure an evaluation of distances in memory on one thread and on two."""
    labels = make_labels(bench.count(2000, 500), bench.count(200_000, 50_000))
    matrix = near_and_far(labels)

    def evaluate(threads: int) -> se.Evaluation:
        return bench.evaluate(se.Distances(matrix), labels, threads, RANGE)

    return Measured(bench.time({ONE: partial(evaluate, 1), TWO: partial(evaluate, 2)}))


def along(axis: Literal["gallery", "queries"], bench: Bench) -> Measured:
    """Measure sizes of one axis in turn; the files of the largest take a while to write."""
    if axis == "gallery":
        largest, fixed = bench.count(*GALLERY), bench.count(*FIXED_QUERIES)
        sizes = [round(largest * part) for part in GALLERY_FRACTIONS[bench.quick]]
        shapes = {str(size): (fixed, size) for size in sizes}
    else:
        largest, fixed = bench.count(*QUERIES), bench.count(*FIXED_GALLERY)
        sizes = [round(largest * part) for part in QUERY_FRACTIONS]
        shapes = {str(size): (size, fixed) for size in sizes}
    files = {size: make_features(bench.folder, *shape, WIDTH) for size, shape in shapes.items()}
    samples = bench.time({size: evaluation(bench, own, "cosine", 2) for size, own in files.items()})
    return Measured(samples, {"fixed": fixed, "width": WIDTH, "side": OURS})


CASES = (
    *(
        Case(
            (Figure(f"scaling/threads/features-{width}", (ONE, TWO), 1.85, "at least"),),
            partial(threads_on_features, width),
        )
        for width in (512, 128)
    ),
    *(
        Case(
            (
                Figure(
                    f"scaling/processes/features-{width}", (PROCESSES, THREADS), 0.95, "at least"
                ),
            ),
            partial(beside_processes, width),
        )
        for width in (512, 128)
    ),
    Case(
        (Figure("scaling/threads/distances", (ONE, TWO), 1.85, "at least"),),
        threads_on_distances,
    ),
    Case(
        (Figure("scaling/linear/gallery", ("sizes of the gallery",), 0.05, kind="line"),),
        partial(along, "gallery"),
    ),
    Case(
        (Figure("scaling/linear/queries", ("numbers of queries",), 0.05, kind="line"),),
        partial(along, "queries"),
    ),
)
