"""A process that is killed at each commit in turn, and the ones that go on with its work.

Runs by itself: ``python crashes.py FOLDER``. The children are forked, so that libraries are
loaded once; what is killed is a whole process each time. Prints JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import faults
from clusters import GALLERY, QUERIES, prepared
from support import runs
from support.planning import Task
from support.result import load_statistics, save_statistics
from support.run import Checkpoint, Prepared, checkpoint_module
from support.run import passes_module as passes

from streameval import MetricOptions, RankStatistics

OPTIONS = MetricOptions(metrics=("all",))


def work(folder: Path) -> Prepared:
    """Prepare an evaluation of few tasks in four passes."""
    whole = prepared(
        folder, "features", range="minmax", threads=2, refine=("TAR|FAR=0.01",), options=OPTIONS
    )
    tasks = tuple(
        Task((q, q + 60), (g, g + 1500))
        for q in range(0, QUERIES, 60)
        for g in range(0, GALLERY, 1500)
    )
    return replace(whole, plan=replace(whole.plan, tasks=tasks))


def evaluate(folder: Path, record: Checkpoint) -> RankStatistics:
    with record:
        ready = runs.recorded(work(folder), OPTIONS, record)
        return runs.run(ready, OPTIONS, record=record).statistics


def run(folder: Path, kill_at: int | None, when: str) -> None:
    """Evaluate, going on with what is there; save; be killed before or after a commit."""
    import icechunk

    checkpoint_module.COMMIT_SECONDS = 0.0
    checkpoint_module.SWEEP_EVERY = 3
    passes.COUNT = replace(passes.COUNT, compute=faults.noted)
    commit, commits = icechunk.Session.commit, 0

    def killed(session: Any, message: str) -> str:
        nonlocal commits
        commits += 1
        if commits == kill_at and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        identity = commit(session, message)
        if commits == kill_at and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return identity

    icechunk.Session.commit = killed  # type: ignore[method-assign]
    statistics = evaluate(folder, Checkpoint(folder / "progress", resume=True))
    save_statistics(statistics, folder / "found.zarr")
    (folder / "commits").write_text(str(commits))


def finished(folder: Path) -> dict[str, int]:
    """Write down which counting tasks the record holds as finished."""
    if not (folder / "progress").exists():
        return {}
    with Checkpoint(folder / "progress", resume=True) as record:
        ready = runs.recorded(work(folder), OPTIONS, record)
        tasks = ready.plan.tasks
        return {
            stage: int(sum(record.stage(stage, tasks).done))
            for stage in ("range", "counting", "refining 1")
        }


def forked(function: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    """Run a function in a child; return its exit status, and what it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            value = function(*arguments)
            os.write(writing, json.dumps(value).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        sent = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(sent) if sent else None


def attempts(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("attempts-*"))


def clear(folder: Path) -> None:
    for file in folder.glob("attempts-*"):
        file.unlink()
    for name in ("progress", "found.zarr"):
        shutil.rmtree(folder / name, ignore_errors=True)


def same(folder: Path) -> bool:
    """Tell whether the statistics that were saved are those of a run without a record."""
    expected = load_statistics(folder / "expected.zarr")
    return load_statistics(folder / "found.zarr").equals(expected)


def resume(folder: Path) -> dict[str, Any]:
    """Go on with what a killed process has left; return what that was, and what was done."""
    kept, before = finished(folder), attempts(folder)
    run(folder, None, "never")
    return {"kept": kept, "again": attempts(folder) - before, "same": same(folder)}


def main(folder: Path) -> None:
    expected = runs.run(work(folder), OPTIONS).statistics  # loads what is compiled
    save_statistics(expected, folder / "expected.zarr")
    clear(folder)
    status, whole = forked(resume, folder)
    report: dict[str, Any] = {"status": status, "whole": whole, "points": []}
    report["commits"] = int((folder / "commits").read_text())
    for when in ("before", "after"):
        for point in range(1, report["commits"] + 1):
            clear(folder)
            killed, _ = forked(run, folder, point, when)
            resumed, found = forked(resume, folder)
            ends = {"when": when, "point": point, "killed": killed, "resumed": resumed}
            report["points"].append({**ends, **(found or {})})
    clear(folder)  # and killed after the first commit of each run, until one gets through
    chain = 0
    while forked(run, folder, 1, "after")[0] == -signal.SIGKILL:
        chain += 1
    report["chain"] = {"killed": chain, "same": forked(same, folder)[1]}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
