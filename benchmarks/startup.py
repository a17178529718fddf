"""Start: the help page, and the first tile of a process that finds its kernels compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.data import make_distances, make_features, make_labels, save_labels
from benchmarks.figure import Bench, Case, Figure, Measured
from benchmarks.memory import one_run

HELP, INTERPRETER = "streameval --help", "python -c pass"
STARTED = "ledger append of a few rows"
PROGRAM = [sys.executable, "-m", "streameval"]
FIRST_TILE, COMPILED = "start to first tile", "kernels compiled"
BYTECODE = "PYTHONDONTWRITEBYTECODE"
SHAPE, WIDTH = (256, 20_000), 128


def _started(*command: str) -> float:
    """Return the seconds that a command takes; modules are kept as bytecode, as pip leaves them."""
    written = {name: value for name, value in os.environ.items() if name != BYTECODE}
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=written)
    return time.perf_counter() - begin


def help_page(bench: Bench) -> Measured:
    """Measure the help page; the bare interpreter is shown for comparison."""
    script = Path(sys.executable).with_name("streameval")
    command = [str(script)] if script.exists() else PROGRAM

    return Measured(
        bench.time(
            {
                HELP: partial(_started, *command, "--help"),
                INTERPRETER: partial(_started, sys.executable, "-c", "pass"),
            }
        )
    )


def first_tile(kind: Literal["features", "distances"], bench: Bench) -> Measured:
    """Measure from before the process starts to its first counted tile; the first run warms up."""
    labels = make_labels(*SHAPE)
    source: dict[str, Any]
    if kind == "features":
        features = make_features(bench.folder, *SHAPE, WIDTH)
        source = {"query": str(features.query), "gallery": str(features.gallery)}
    else:
        path = bench.folder / "startup.zarr"
        if not path.exists():
            make_distances(path, labels, (64, 5000), "lz4")
        source = {"matrix": str(path)}
    specification = {
        "source": source,
        "labels": save_labels(bench.folder, labels),
        "memory": "2GB",
        "threads": 2,
    }
    one_run(specification)
    seconds, compiled = [], []
    for _ in range(bench.rounds):
        begin = time.monotonic()  # one clock for all processes
        report = one_run(specification)
        seconds.append(report["first_tile"] - begin)
        compiled.append(report["compilations"])
    return Measured({FIRST_TILE: seconds, COMPILED: compiled}, {"shape": [*SHAPE, WIDTH]})


def appended(bench: Bench) -> Measured:
    """Measure ``ledger append`` of a few rows, little but its start; the first warms up."""
    queries, items = 20, 100
    features, rest = (make_features(bench.folder, queries, items, 8 * times) for times in (1, 2))
    paths, ledger = save_labels(bench.folder, features.labels), bench.folder / "started"
    whole = np.load(rest.gallery)

    def columns(side: str) -> list[str]:
        names = (f"--{side}-ids", paths[f"{side}_id"]), (f"--{side}-cams", paths[f"{side}_cam"])
        return [one for pair in names for one in pair]

    def command(*arguments: str) -> float:
        return _started(*PROGRAM, "ledger", *arguments, "--quiet")

    shutil.rmtree(ledger, ignore_errors=True)
    command("create", str(ledger), "--query", str(features.query), *columns("query"))
    seconds = []
    for number in range(bench.rounds + 1):
        path = bench.folder / f"started-{number}.npy"
        np.save(path, whole[:, number : number + 8])
        taken = command("append", str(ledger), "--gallery", str(path), *columns("gallery"))
        if number:
            seconds.append(taken)
    return Measured({STARTED: seconds}, {"shape": [queries, items, 8]})


CASES = (
    Case((Figure("startup/append", (STARTED,), 0.6, kind="value"),), appended),
    Case((Figure("startup/help", (HELP, INTERPRETER), 0.3, kind="value"),), help_page),
    *(
        Case(
            (
                Figure(f"startup/{kind}/first-tile", (FIRST_TILE,), 1.5, kind="value"),
                Figure(f"startup/{kind}/compiled", (COMPILED,), 0, kind="value", unit=""),
            ),
            partial(first_tile, kind),
        )
        for kind in ("features", "distances")
    ),
)
