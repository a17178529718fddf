"""A cluster on this machine: what it costs beside threads, what a task costs, what a client holds.

A simulated large job is the plan of 100,000 queries × 100,000,000 gallery items on 200 workers:
as many tasks that do nothing are driven through a scheduler and two workers, each a process of
its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

import streameval as se
from benchmarks.data import make_features
from benchmarks.figure import Bench, Case, Figure, Measured, Skip
from benchmarks.noop import planned
from streameval.memory import IMPORT_BYTES
from streameval.planning.plan import Plan, Workers
from streameval.run.connection import local_cluster

WORKERS, THREADS = "2 workers", "2 threads"
QUERIES, GALLERY, WIDTH = (1024, 256), (500_000, 40_000), 512  # full, quick
MANY, FEW = 2000, 100
LARGE = "shape:100000x512", "shape:100000000x512"
ROOT = Path(__file__).resolve().parent.parent


def beside_threads(bench: Bench) -> Measured:
    """Measure an evaluation on two worker processes of one thread, and on two threads."""
    _require()
    data = make_features(bench.folder, bench.count(*QUERIES), bench.count(*GALLERY), WIDTH)

    def evaluate(**how: Any) -> se.Evaluation:
        query, gallery = data.labels["query"], data.labels["gallery"]
        source = data.source("cosine")
        return se.evaluate(source, query=query, gallery=gallery, memory="2GB", **how)

    with local_cluster(2, 1, 2 * 10**9) as connection:
        sides = {
            WORKERS: partial(evaluate, client=connection.client),
            THREADS: partial(evaluate, threads=2),
        }
        same = sides[WORKERS]().statistics.equals(sides[THREADS]().statistics)
        return Measured(bench.time(sides), {"same statistics": same})


def large_plan() -> Plan:
    """Return the plan of the simulated job."""
    workers = Workers(count=200, threads=1, memory=4 * 10**9, libraries=IMPORT_BYTES)
    return planned(se.Features(*LARGE), workers).plan


def tasks_of_nothing(bench: Bench) -> Measured:
    """Drive tasks that do nothing through a scheduler; measure it, and the client."""
    _require()
    plan = large_plan()
    counts = {"few": FEW, "many": max(MANY // bench.shrink, FEW), "plan": len(plan.tasks)}
    if bench.shrink > 1:
        del counts["plan"]
    samples: dict[str, list[float]] = {
        name: [] for name in ("client, 100 tasks", "client, 2,000 tasks", "scheduler, a task")
    }
    details: dict[str, Any] = {"tasks of the plan": len(plan.tasks)}
    with two_workers(bench.folder) as (address, scheduler):
        _drive(address, FEW)  # starts what starts once
        for _ in range(bench.rounds):
            before = _seconds(scheduler)
            many = _drive(address, counts["many"])
            samples["scheduler, a task"].append((_seconds(scheduler) - before) / counts["many"])
            samples["client, 2,000 tasks"].append(many["peak"])
            samples["client, 100 tasks"].append(_drive(address, FEW)["peak"])
        for name, tasks in counts.items():
            details[name] = {"tasks": tasks, **_drive(address, tasks)}
    return Measured(samples, details)


def _require() -> None:
    if find_spec("distributed") is None:
        raise Skip("distributed is not installed")


def _drive(address: str, tasks: int) -> dict[str, Any]:
    """Drive tasks from a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.noop", address, str(tasks)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def two_workers(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run a scheduler and two workers on loopback; yield its address, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    host = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    commands = [
        ["scheduler", *host, "--port", str(port)],
        ["worker", address, *host, "--nworkers", "2", "--nthreads", "1"],
    ]
    dask = str(Path(sys.executable).parent / "dask")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            started.append(
                subprocess.Popen(
                    [dask, *command],
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            time.sleep(2)
        yield address, psutil.Process(started[0].pid)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


CASES = (
    Case((Figure("cluster/beside-threads", (WORKERS, THREADS), 1.10),), beside_threads),
    Case(
        (
            Figure(
                "cluster/client-memory",
                ("client, 2,000 tasks", "client, 100 tasks"),
                1.05,
                unit="B",
            ),
            Figure("cluster/scheduler-time", ("scheduler, a task",), 0.002, kind="value"),
        ),
        tasks_of_nothing,
    ),
)
