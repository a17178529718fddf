"""Overview: time and memory beside the product alone, FAISS and an evaluator that sorts.

Each side runs in a process of its own, from .npy files in the page cache to its result. Imports,
and a small run that warms up, are not counted. Memory is what the process takes beyond what it held
then.

The product and FAISS compute no metric: they are what an evaluation can't do without, and what a
list of 100 neighbours costs. The evaluator that sorts is torchreid's, with its loops over ranks in
NumPy, which makes it several times as fast.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import streameval as se
from benchmarks.data import make_features, save_labels
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.one_run import peak_bytes
from benchmarks.peers import argsort_evaluator, bare_sgemm, faiss_search, precisions_in_numpy

WIDTH = 512
QUERIES, GALLERY = (1000, 512), (200_000, 80_000)  # full, quick
WARM_UP = 64  # rows
THREADS = 2
TILE_ITEMS = 8240
OURS, PRODUCT, FAISS, ARGSORT = "streameval", "product", "FAISS k=100", "argsort"
BOUNDS = {PRODUCT: (1.2, 2.0), FAISS: (1.1, 1.0), ARGSORT: (0.25, 0.25)}  # time, memory
Rows = slice


def _evaluate(files: Mapping[str, str], rows: Rows) -> None:
    arrays = {name: np.load(file, mmap_mode="r")[rows] for name, file in files.items()}
    se.evaluate(
        se.Features(arrays["query"], arrays["gallery"], metric="cosine"),
        query=se.Labels(id=arrays["query_id"], cam=arrays["query_cam"]),
        gallery=se.Labels(id=arrays["gallery_id"], cam=arrays["gallery_cam"]),
        threads=THREADS,
    )


def _multiply(files: Mapping[str, str], rows: Rows) -> None:
    query, gallery = (np.load(files[side])[rows] for side in ("query", "gallery"))
    bare_sgemm(query, gallery, TILE_ITEMS, THREADS)()


def _search(files: Mapping[str, str], rows: Rows) -> None:
    import faiss

    query, gallery = (np.load(files[side])[rows] for side in ("query", "gallery"))
    index = faiss.IndexFlatIP(WIDTH)
    index.add(gallery)
    faiss_search(index, query, min(100, len(gallery)), THREADS)()


def _sort(files: Mapping[str, str], rows: Rows) -> None:
    arrays = {name: np.load(file)[rows] for name, file in files.items()}
    distances = 1 - arrays["query"] @ arrays["gallery"].T  # unit vectors
    query_id, gallery_id = arrays["query_id"], arrays["gallery_id"]
    cams = arrays["query_cam"], arrays["gallery_cam"]
    argsort_evaluator(distances, query_id, gallery_id, *cams, precisions=precisions_in_numpy)


SIDES: Mapping[str, Callable[[Mapping[str, str], Rows], None]] = {
    OURS: _evaluate,
    PRODUCT: _multiply,
    FAISS: _search,
    ARGSORT: _sort,
}


def one_side(side: str, files: Mapping[str, str]) -> dict[str, float]:
    """Run a side in this process; return its seconds, and the bytes that it took."""
    run = SIDES[side]
    run(files, slice(WARM_UP))
    held = int(psutil.Process().memory_info().rss)
    Path("/proc/self/clear_refs").write_text("5")
    begin = time.perf_counter()
    run(files, slice(None))
    return {"seconds": time.perf_counter() - begin, "bytes": peak_bytes() - held}


def beside(peer: str, bench: Bench) -> Measured:
    """Measure the evaluation and a peer in turn, each run in a process of its own."""
    if peer == FAISS and find_spec("faiss") is None:
        raise Skip("FAISS is not installed: pip install faiss-cpu")
    features = make_features(bench.folder, bench.count(*QUERIES), bench.count(*GALLERY), WIDTH)
    files = save_labels(bench.folder, features.labels)
    files |= {"query": str(features.query), "gallery": str(features.gallery)}
    samples: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        for side in (OURS, peer):
            for measure, amount in _in_a_process(side, files).items():
                samples.setdefault(f"{side}, {measure}", []).append(amount)
    return Measured(samples, {"shape": [bench.count(*QUERIES), bench.count(*GALLERY), WIDTH]})


def _in_a_process(side: str, files: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.overview", side, json.dumps(files)]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side} failed:\n{done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _figures(peer: str) -> tuple[Figure, ...]:
    name, sides = peer.split()[0].lower(), (OURS, peer)
    return tuple(
        Figure(
            f"overview/{name}/{figure}",
            (f"{sides[0]}, {measure}", f"{sides[1]}, {measure}"),
            bound,
            unit=unit,
        )
        for (figure, measure, unit), bound in zip(
            (("time", "seconds", "s"), ("memory", "bytes", "B")), BOUNDS[peer], strict=True
        )
    )


CASES = tuple(Case(_figures(peer), partial(beside, peer)) for peer in BOUNDS)

if __name__ == "__main__":
    print(json.dumps(one_side(sys.argv[1], json.loads(sys.argv[2]))))
