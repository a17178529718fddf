"""Labels: a plan, or its refusal, from counts of labels alone, in a process of its own.

Run as a script it makes labels, plans, and prints the seconds and the memory that this takes
beyond what the process holds. A refusal, and ``--dry-run``, need no more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import Bench, Case, Figure, Measured
from benchmarks.one_run import held_bytes, peak_bytes, reset_peak

PEAK, ALLOWED, SECONDS = "peak", "allowed", "seconds"
LEAST = 100_000_000  # bytes that planning may take however few labels there are
FACTOR = 1.2  # of the bytes of the labels
MEMORY = "2GB"
SIZES = {  # queries, gallery items, identities, protocol
    "5000-positives": (50_000, 50_000, 10, "market1501"),
    "10M-items": (10_000, 10_000_000, 1_000_000, "market1501"),
    "10M-items-cuhk03": (10_000, 10_000_000, 1_000_000, "cuhk03"),
}


def measure(name: str, bench: Bench) -> Measured:
    """Measure the planning of one size."""
    queries, gallery, identities, protocol = SIZES[name]
    counts = [bench.count(queries, queries // 10), bench.count(gallery, gallery // 10)]
    sizes = [*counts, identities, protocol]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.labels", json.dumps(sizes)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"planning failed:\n{done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    samples = {side: [float(report[side])] for side in (PEAK, ALLOWED, SECONDS)}
    return Measured(samples, {"sizes": sizes, **report})


def main() -> None:
    """Plan, and print the report."""
    import streameval as se
    from streameval.request import Request
    from streameval.run.preparation import plan_requests
    from streameval.run.session import open_session

    queries, gallery, identities, protocol = json.loads(sys.argv[1])
    rng = np.random.default_rng(0)
    sides = {
        side: se.Labels(rng.integers(0, identities, count), rng.integers(0, 8, count))
        for side, count in (("query", queries), ("gallery", gallery))
    }
    rows = [np.zeros((count, 1), np.float32) for count in (queries, gallery)]
    source = se.Features(rows[0], rows[1], "euclidean")
    given: dict[str, Any] = {"source": source, "protocol": protocol, "memory": MEMORY, **sides}
    given["range"] = (0, 1)
    reset_peak()
    held, begin, answer = held_bytes(), time.perf_counter(), "planned"
    try:
        with open_session(given) as session:
            plan_requests([Request.of(given)], session)
    except se.BudgetError as error:
        answer = str(error)
    seconds = time.perf_counter() - begin
    columns = [column.nbytes for labels in sides.values() for column in labels.columns.values()]
    report = {
        SECONDS: seconds,
        PEAK: peak_bytes() - held,
        ALLOWED: max(LEAST, FACTOR * sum(columns)),
        "answer": answer,
    }
    print(json.dumps(report))


CASES = tuple(
    Case(
        (
            Figure(f"labels/{name}/peak", (PEAK, ALLOWED), 1.0, unit="B"),
            Figure(f"labels/{name}/time", (SECONDS,), 2.0, kind="value", unit="s"),
        ),
        partial(measure, name),
    )
    for name in SIZES
)

if __name__ == "__main__":
    main()
