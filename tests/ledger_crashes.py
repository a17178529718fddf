"""Changes of a ledger that are killed at their commit, before and after, and while writing.

Runs by itself: ``python ledger_crashes.py FOLDER``. Each change runs in a child that is forked
and killed as a whole; another child says what is left. Prints JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from crashes import forked
from support.package import View

import streameval as se

QUERIES, WIDTH = 12, 6
warnings.simplefilter("ignore", se.StreamevalWarning)


def write_inputs(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("q", QUERIES), ("a", 60), ("b", 40), ("c", 30), ("more", 4)):
        np.save(folder / f"{name}.npy", rng.standard_normal((count, WIDTH)))
        np.save(folder / f"{name}_ids.npy", rng.integers(0, 6, count))
        np.save(folder / f"{name}_cams.npy", rng.integers(0, 2, count))


def labels(name: str) -> se.Labels:
    return se.read_labels(f"{name}_ids.npy", f"{name}_cams.npy")


def create() -> None:
    se.Ledger.create("L", query="q.npy", query_labels=labels("q"), keep=24 * QUERIES)


def append(name: str) -> Callable[[], object]:
    return lambda: se.Ledger("L").append(f"{name}.npy", labels(name), threads=1)


CHANGES: list[Callable[[], object]] = [
    create,
    append("a"),
    append("b"),
    lambda: se.Ledger("L").forget([2], threads=1),
    lambda: se.Ledger("L").add_queries("more.npy", labels("more"), threads=1),
    lambda: se.Ledger("L").remove("a"),
    append("c"),
]


def found() -> list[Any]:
    """Return how many snapshots there are, the metrics of the last, and what is not right."""
    try:
        ledger = se.Ledger("L")
    except se.OutputError:
        return [0, None, []]
    trajectory = ledger.trajectory
    return [len(trajectory), str(ledger.evaluation().metrics.scalars), ledger.verify(threads=1)]


def killed(change: Callable[[], object], when: str, at: int) -> int:
    """Make a change, and be killed before or after its commit, or at one of its writes."""
    import icechunk

    writes, write, commit = 0, View.write_bytes, icechunk.Session.commit

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(*arguments: Any) -> None:
        nonlocal writes
        writes += 1
        if when == "writing" and writes == at:
            die()
        write(*arguments)

    def committed(*arguments: Any) -> str:
        if when == "before":
            die()
        snapshot = commit(*arguments)
        if when == "after":
            die()
        return snapshot

    View.write_bytes = counted  # type: ignore[method-assign]
    icechunk.Session.commit = committed  # type: ignore[method-assign]
    if when == "any":
        threading.Timer(at / 1000, die).start()
    change()
    if when == "any":
        signal.pause()  # until it is killed
    return writes


def kept(folder: Path) -> None:
    shutil.rmtree("L", ignore_errors=True)
    if folder.exists():
        shutil.copytree(folder, "L")


def main(folder: Path) -> None:
    os.chdir(folder)
    write_inputs(folder)
    rng = random.Random(0)
    se.evaluate(  # loads what is compiled
        se.Features("q.npy", "a.npy"), query=labels("q"), gallery=labels("a"), threads=1
    )
    trials = []
    for number, change in enumerate(CHANGES):
        before = folder / f"before-{number}"
        if number:
            shutil.copytree("L", before)
        states = [forked(found)[1]]
        _, writes = forked(killed, change, "never", 0)
        states.append(forked(found)[1])
        after = folder / f"after-{number}"
        shutil.copytree("L", after)
        points = [("before", 0), ("after", 0), ("writing", rng.randint(1, writes))]
        points.append(("any", rng.randint(5, 120)))
        for when, at in points:
            kept(before)
            status, _ = forked(killed, change, when, at)
            left = forked(found)[1]
            again = left
            if left != states[1] and when != "any":  # nothing is in the way of doing it again
                forked(killed, change, "never", 0)
                again = forked(found)[1]
            ends = {"change": number, "when": when, "status": status, "left": left in states}
            trials.append({**ends, "again": when == "any" or again == states[1]})
        kept(after)
    sys.stdout.write(json.dumps({"trials": trials, "changes": len(CHANGES)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
