"""Memory: measured ≤ projected ≤ allowed, each evaluation in a process of its own.

The budget is what an evaluation may take beyond what the process holds when it is called, so that
is what is measured: VmHWM after a reset, less the resident memory then.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import stored
from benchmarks.cluster import two_workers
from benchmarks.data import half, make_distances, make_features, make_labels, save_labels, unit
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.stored import require_space

PEAK, PROJECTED, ALLOWED = "peak", "projected", "allowed"
FOUR, ONE = "peak, 4× the gallery", "peak, 1× the gallery"
BUDGETS = {"1GB": 1_000_000_000, "700MB": 700_000_000, "2GB": 2_000_000_000}
THREADS = 2
QUERIES, GALLERY = (1000, 200), (1_000_000, 80_000)  # full, quick


def write_source(name: str, shape: tuple[int, int], folder: Path) -> tuple[dict[str, Any], Path]:
    """Write what ``kind-variant`` names; return the source's arguments, and what to delete."""
    kind, _, variant = name.partition("-")
    if kind == "stored":
        require_space(folder, 4 * prod(shape))
        path = folder / f"memory-{variant}-{shape[1]}.zarr"
        make_distances(path, make_labels(*shape), stored.CHUNKS[variant], "lz4")
        return {"matrix": str(path)}, path
    width, dtype = variant.split("-")
    features = make_features(
        folder,
        *shape,
        int(width),
        name=f"memory-{dtype}",
        transform=half if dtype == "float16" else unit,
    )
    arguments = {"query": str(features.query), "gallery": str(features.gallery)}
    return arguments, features.gallery


def one_run(specification: dict[str, Any]) -> dict[str, Any]:
    """Run an evaluation in a process of its own; return what it printed.

    Raises
    ------
    Skip
        If the budget was refused.
    """
    script = Path(__file__).with_name("one_run.py")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(specification)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"an evaluation failed:\n{done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    if "refused" in report:
        raise Skip(f"refused: {report['refused']}")
    return report


def measure(name: str, shape: tuple[int, int], memory: int, bench: Bench) -> dict[str, Any]:
    """Write a source, evaluate it in a process within a budget, delete it."""
    source, path = write_source(name, shape, bench.folder)
    try:
        labels = save_labels(bench.folder, make_labels(*shape))
        return one_run({"source": source, "labels": labels, "memory": memory, "threads": THREADS})
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def within(name: str, budget: str, bench: Bench) -> Measured:
    """Measure whether a budget is kept."""
    shape = bench.count(*QUERIES), bench.count(*GALLERY)
    report = measure(name, shape, BUDGETS[budget], bench)
    samples = {
        PEAK: [report["peak"]],
        PROJECTED: [report["plan"]["projected_peak"]],
        ALLOWED: [BUDGETS[budget]],
    }
    return Measured(samples, {"shape": list(shape), **report})


def flat(name: str, bench: Bench) -> Measured:
    """Measure whether the peak stays where it is while the gallery grows."""
    queries, gallery = bench.count(*QUERIES), bench.count(*GALLERY)
    peaks = {
        side: [measure(name, (queries, items), BUDGETS["700MB"], bench)["peak"]]
        for side, items in ((FOUR, gallery), (ONE, gallery // 4))
    }
    return Measured(peaks, {"shape": [queries, gallery]})


def out_of_core(
    shape: tuple[int, int],
    width: int,
    each: int,
    budget: str,
    bench: Bench,
    **more: Any,
) -> Measured:
    """Measure whether a budget is kept by queries whose statistics exceed it.

    Of a cluster, that is the budget of the client, and what is projected of each worker.
    """
    shape = (shape[0] // 50, shape[1] // 10) if bench.quick else shape
    each = min(each, shape[1] // 10)
    folder = bench.folder / "out-of-core"
    folder.mkdir(exist_ok=True)
    source, labels = {}, {}
    for seed, (side, count) in enumerate(zip(("query", "gallery"), shape, strict=True)):
        rng = np.random.default_rng(seed)
        identity = rng.permutation(np.arange(count) % (shape[1] // each))
        features = rng.standard_normal((count, width), np.float32)
        features[:, 0] += identity % 16
        for name, values in ((side, features), (f"{side}_id", identity), (f"{side}_cam", identity)):
            np.save(folder / f"{name}.npy", values)
            labels[name] = str(folder / f"{name}.npy")
        source[side] = labels.pop(side)
    specification = {"source": source, "labels": labels, "memory": BUDGETS[budget]}
    try:
        report = one_run({**specification, "threads": THREADS, "protocol": "no-camera", **more})
    finally:
        shutil.rmtree(folder)
    samples = {
        PEAK: [report["peak"]],
        PROJECTED: [report["plan"]["projected_peak"]],
        ALLOWED: [BUDGETS[budget]],
    }
    return Measured(samples, {"shape": list(shape), **report})


def of_client(shape: tuple[int, int], width: int, each: int, budget: str, bench: Bench) -> Measured:
    """Measure whether the client of two workers keeps its budget: see `out_of_core`."""
    with two_workers(bench.folder) as (address, _):
        return out_of_core(shape, width, each, budget, bench, address=address)


IN_LISTS = {"index": "Flat", "k": 50}
ROUNDS: dict[str, Callable[[Bench], Measured]] = {
    "rounds-20": partial(out_of_core, (1_000_000, 100_000), 64, 20, "2GB"),
    "rounds-3000": partial(out_of_core, (30_000, 30_000), 64, 3000, "1GB"),
    "rounds-lists": partial(out_of_core, (300_000, 30_000), 64, 20, "1GB", lists=IN_LISTS),
    "rounds-client": partial(of_client, (300_000, 20_000), 64, 20, "700MB"),
}
SOURCES = (
    "features-512-float32",
    "features-128-float16",
    *(f"stored-{chunking}" for chunking in stored.CHUNKS),
)

CASES = (
    *(
        Case(
            (
                Figure(f"memory/{name}/{budget}/peak", (PEAK, PROJECTED), 1.0, unit="B"),
                Figure(f"memory/{name}/{budget}/plan", (PROJECTED, ALLOWED), 1.0, unit="B"),
            ),
            partial(within, name, budget),
        )
        for name in SOURCES
        for budget in ("700MB", "2GB")
    ),
    *(
        Case(
            (
                Figure(f"memory/{name}/peak", (PEAK, PROJECTED), 1.0, unit="B"),
                Figure(f"memory/{name}/plan", (PROJECTED, ALLOWED), 1.0, unit="B"),
            ),
            measured,
        )
        for name, measured in ROUNDS.items()
    ),
    *(
        Case(
            (Figure(f"memory/{name}/flat", (FOUR, ONE), 1.05, unit="B"),),
            partial(flat, name),
        )
        for name in ("features-512-float32", "stored-200x10000")
    ),
)
