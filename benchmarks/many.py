"""Many positives a query: everything against everything, as in retrieval and metric learning.

Features against FAISS's flat index, which is asked for as many neighbours as there are positives,
and holds its lists; stored distances against sorting each row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import streameval as se
from benchmarks.data import make_features
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.peers import Span, faiss_search, spans
from benchmarks.stored import require_space

WIDTH, GALLERY = 128, (50_000, 10_000)  # full, quick
QUERIES = {50: (50_000, 2000), 250: (50_000, 2000), 2500: (5000, 500)}  # by positives a query
STORED, STORED_QUERIES = (
    (20_000, 5000),
    {50: (20_000, 2000), 250: (20_000, 2000), 2500: (5000, 500)},
)
METRICS = "CMC@1,mAP,R-precision"
MEMORY = 8_000_000_000  # the default, where there is as much
OURS, FAISS, SORT = "streameval", "FAISS k=R+1", "np.sort of each row"
ROWS = 64  # that are multiplied, or sorted, at a time


def _inputs(
    bench: Bench, queries: int, gallery: int, images: int
) -> tuple[Path, dict[str, se.Labels]]:
    """Return features of a gallery, whose first images are the queries, and the labels of both."""
    features = make_features(bench.folder, 16, gallery, WIDTH, name=f"many-{images}", images=images)
    identity = features.labels["gallery"].id
    labels = {
        side: se.Labels(identity[:count], key=np.arange(count))
        for side, count in (("query", queries), ("gallery", gallery))
    }
    return features.gallery, labels


def _evaluation(
    source: Callable[[], se.Features | se.Distances], labels: dict[str, se.Labels], threads: int
) -> Callable[[], se.Evaluation]:
    def run() -> se.Evaluation:
        return se.evaluate(
            source(),
            query=labels["query"],
            gallery=labels["gallery"],
            protocol="no-camera",
            self_match="key",
            metrics=METRICS,
            memory=MEMORY,
            threads=threads,
        )

    return run


def against_faiss(images: int, threads: int, bench: Bench) -> Measured:
    """Measure features against the search for as many neighbours as there are positives."""
    if find_spec("faiss") is None:
        raise Skip("FAISS is not installed: pip install faiss-cpu")
    import faiss

    count, gallery = bench.count(*QUERIES[images]), bench.count(*GALLERY)
    path, labels = _inputs(bench, count, gallery, images)
    rows = np.load(path)
    queries, index = rows[:count], faiss.IndexFlatIP(WIDTH)
    index.add(rows)
    search = faiss_search(index, queries, min(images + 1, gallery), threads)
    ours = _evaluation(lambda: se.Features(queries, str(path)), labels, threads)
    plan = ours().provenance["plan"]
    samples = bench.time({OURS: ours, FAISS: search})
    return Measured(samples, {"shape": [count, gallery, WIDTH], "plan": plan})


def against_sort(images: int, bench: Bench) -> Measured:
    """Measure stored distances against sorting each row; they are deleted afterwards."""
    count, gallery = bench.count(*STORED_QUERIES[images]), bench.count(*STORED)
    require_space(bench.folder, 4 * count * gallery)
    features, labels = _inputs(bench, count, gallery, images)
    rows, threads = np.load(features), len(os.sched_getaffinity(0))
    path = bench.folder / f"many-{images}-distances.npy"
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (count, gallery))
    for start, stop in spans(count, ROWS):
        matrix[start:stop] = 1 - rows[start:stop] @ rows.T
    matrix.flush()

    def sort(span: Span) -> None:
        np.sort(matrix[slice(*span)], axis=1)

    def sort_all() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(sort, spans(count, ROWS)))

    try:
        ours = _evaluation(lambda: se.Distances(path), labels, threads)
        samples = bench.time({OURS: ours, SORT: sort_all})
    finally:
        path.unlink()
    return Measured(samples, {"shape": [count, gallery]})


CASES = (
    *(
        Case(
            (Figure(f"many/features/{images}-positives/{threads}-threads", (OURS, FAISS), 1.0),),
            partial(against_faiss, images, threads),
        )
        for images in QUERIES
        for threads in (1, 2)
    ),
    *(
        Case(
            (Figure(f"many/stored/{images}-positives", (OURS, SORT), 1.0),),
            partial(against_sort, images),
        )
        for images in STORED_QUERIES
    ),
)
