"""Lists of an index: built, searched and evaluated within a budget, against the exact evaluation.

Each evaluation is a process of its own, as in `memory`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.data import make_features, save_labels
from benchmarks.figure import BUDGET, Bench, Case, Figure, Measured, Skip
from benchmarks.memory import ALLOWED, PEAK, PROJECTED, THREADS, one_run

QUERIES, GALLERY, WIDTH = (10_000, 200), (1_000_000, 40_000), 128  # full, quick
SETTINGS = {
    "ivf-pq": {"index": ("IVF1024,PQ16", "IVF64,PQ16"), "search": "nprobe=16", "k": 100},
    "flat": {"index": ("Flat", "Flat"), "k": 100},
}
LISTS, BUILT, EXACT = "lists", "lists, but for building", "exact evaluation"


def measure(name: str, bench: Bench) -> Measured:
    """Measure peak and time of lists, and the time of the exact evaluation of the same features."""
    try:
        import faiss  # noqa: F401
    except ImportError as error:
        raise Skip("FAISS is not installed") from error
    queries, gallery = bench.count(*QUERIES), bench.count(*GALLERY)
    features = make_features(bench.folder, queries, gallery, WIDTH)
    setting: dict[str, Any] = dict(SETTINGS[name])
    setting["index"] = setting["index"][int(bench.quick)]
    run: dict[str, Any] = {
        "source": {"query": str(features.query), "gallery": str(features.gallery)},
        "labels": save_labels(bench.folder, features.labels),
        "memory": BUDGET,
        "threads": THREADS,
    }
    lists, exact = one_run({**run, "lists": setting}), one_run(run)
    samples = {
        PEAK: [lists["peak"]],
        PROJECTED: [lists["plan"]["projected_peak"]],
        ALLOWED: [BUDGET],
        LISTS: [lists["seconds"]],
        BUILT: [lists["seconds"] - lists["lists"].get("index", {}).get("build_seconds", 0.0)],
        EXACT: [exact["seconds"]],
    }
    shape = [queries, gallery, WIDTH]
    return Measured(samples, {"shape": shape, "setting": setting, "lists": lists, "exact": exact})


CASES = tuple(
    Case(
        (
            Figure(f"lists/{name}/2GB/peak", (PEAK, PROJECTED), 1.0, unit="B"),
            Figure(f"lists/{name}/2GB/plan", (PROJECTED, ALLOWED), 1.0, unit="B"),
            Figure(f"lists/{name}/time", (LISTS, EXACT), 1.0),
            *(
                [Figure(f"lists/{name}/searching", (BUILT, EXACT), 1.0)]
                if setting["index"] != ("Flat", "Flat")
                else []
            ),
        ),
        partial(measure, name),
    )
    for name, setting in SETTINGS.items()
)
