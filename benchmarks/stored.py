"""Stored distances: against the read with a digest, and against an evaluator that argsorts.

The range of the distances is given: a range found in the data is a second reading.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import streameval as se
from benchmarks.data import Codec, make_distances, make_labels, market1501_labels, near_and_far
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.peers import argsort_evaluator, bare_read, precisions_in_numpy

QUERIES, GALLERY = (2000, 300), (1_000_000, 100_000)  # full, quick
WHOLE = 1 << 40  # an axis that isn't cut
CHUNKS: dict[str, tuple[int, int]] = {
    "200x10000": (200, 10_000),
    "100x100000": (100, 100_000),
    "a-row": (1, WHOLE),
    "all-rows-x1000": (WHOLE, 1000),
}
CODECS: tuple[Codec, ...] = ("lz4", "uncompressed")
OURS, READ = "streameval", "zarrs read + digest"
ARGSORT, ALL_NUMPY = "argsort as torchreid", "argsort, all in NumPy"
RANGE = (0.0, 2.0)  # given: to find it in the data takes a pass more


def require_space(folder: Path, size: int) -> None:
    """Skip the case where the disk can't take a file of this size, and some more."""
    free = shutil.disk_usage(folder).free
    if free < 1.2 * size + (1 << 30):
        raise Skip(f"{size / 1e9:.1f} GB to be written, {free / 1e9:.1f} GB free: see --data")


def against_read(codec: Codec, chunking: str, bench: Bench) -> Measured:
    """Measure a layout against reading it once; it is deleted afterwards."""
    shape = bench.count(*QUERIES), bench.count(*GALLERY)
    require_space(bench.folder, 4 * prod(shape))
    threads = len(os.sched_getaffinity(0))
    path = bench.folder / f"distances-{codec}-{chunking}.zarr"
    labels = make_labels(*shape)
    try:
        make_distances(path, labels, CHUNKS[chunking], codec)

        def ours() -> se.Evaluation:
            return bench.evaluate(se.Distances(path), labels, threads, RANGE)

        plan = ours().provenance["plan"]
        samples = bench.time({OURS: ours, READ: bare_read(path, threads)})
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return Measured(samples, {"shape": list(shape), "plan": plan})


def against_argsort(bench: Bench) -> Measured:
    """Measure on Market-1501's labels, in memory, on one thread.

    Junk images are left out of both sides, as torchreid leaves them out.
    """
    sides = market1501_labels()
    queries = bench.count(len(sides["query"]), 120)
    kept = {
        "query": np.linspace(0, len(sides["query"]) - 1, queries).astype(np.int64),
        "gallery": np.flatnonzero(sides["gallery"].id != -1),
    }
    labels: dict[str, se.Labels] = {}
    columns: dict[str, Any] = {}
    for side, own in sides.items():
        assert own.cam is not None
        labels[side] = se.Labels(own.id[kept[side]], own.cam[kept[side]])
        columns |= {f"{side}_id": labels[side].id, f"{side}_cam": labels[side].cam}
    matrix = near_and_far(labels)
    samples = bench.time(
        {
            OURS: lambda: bench.evaluate(se.Distances(matrix), labels, 1, RANGE),
            ARGSORT: lambda: argsort_evaluator(matrix, **columns),
            ALL_NUMPY: lambda: argsort_evaluator(matrix, **columns, precisions=precisions_in_numpy),
        }
    )
    return Measured(samples, {"shape": list(matrix.shape)})


CASES = (
    *(
        Case(
            (Figure(f"stored/{codec}/chunks-{chunking}", (OURS, READ), 1.5),),
            partial(against_read, codec, chunking),
        )
        for codec in CODECS
        for chunking in CHUNKS
    ),
    Case(
        (Figure("stored/memory/market1501-argsort", (ARGSORT, OURS, ALL_NUMPY), 25, "at least"),),
        against_argsort,
    ),
)
