"""The guards of the inputs: their own processor time, as a share of the evaluation's.

The functions that look at files, digest what is read and compare it are timed, each in its thread.
What is digested while it is read is read once more without: the guards' time is the difference.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import streameval as se
from benchmarks.data import make_distances, make_features, make_labels
from benchmarks.figure import Bench, Case, Figure, Measured
from benchmarks.stored import RANGE, require_space
from streameval.arrays import scattered, uri
from streameval.arrays.witness import Readings, Witness
from streameval.run.guard import Guard

GUARDS, WHOLE = "guards", "evaluation"
GUARDED: tuple[tuple[Any, str], ...] = (
    (Witness, "saw"),
    (Witness, "took"),
    (Readings, "joined"),
    (Guard, "check"),
    (Guard, "check_read_again"),
    (Guard, "resume"),
    (uri, "identify"),
)
READERS = "read_files", "read_adjacent"  # of `scattered`, which digest what they read
QUERIES, GALLERY, WIDTH = (10_000, 1_000), (1_000_000, 100_000), 512  # full, quick
ROWS = (2_000, 300)  # of a stored matrix


class Clock:
    """Adds up the processor time of functions, in all threads."""

    def __init__(self) -> None:
        self.seconds, self._lock, self._inside = 0.0, threading.Lock(), threading.local()
        self.again, self._turn = 0.0, 0  # seconds of reading once more

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds its time, unless another one that does has called it."""

        def call(*arguments: Any, **named: Any) -> Any:
            if getattr(self._inside, "is_timed", False):
                return function(*arguments, **named)
            self._inside.is_timed, begin = True, time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self._inside.is_timed = False
                with self._lock:
                    self.seconds += time.thread_time() - begin

        return call

    def read_twice(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a reader that adds what its digests take; by turns it reads without first."""

        def timed(*given: Any) -> tuple[float, Any]:
            begin = time.thread_time()
            done = function(*given)
            return time.thread_time() - begin, done

        def call(*given: Any) -> Any:
            *where, digests = given
            if not len(digests):
                return function(*given)
            self._turn += 1
            without = timed(*where, digests[:0])[0] if self._turn % 2 else None
            seconds, done = timed(*given)
            without = timed(*where, digests[:0])[0] if without is None else without
            with self._lock:
                self.seconds, self.again = self.seconds + seconds - without, self.again + without
            return done

        return call


@contextmanager
def clocked() -> Iterator[Clock]:
    """Time the guards while the context lasts."""
    clock, kept = Clock(), [(owner, name, getattr(owner, name)) for owner, name in GUARDED]
    for owner, name, function in kept:
        setattr(owner, name, clock.timed(function))
    for name in READERS:
        kept.append((scattered, name, getattr(scattered, name)))
        setattr(scattered, name, clock.read_twice(getattr(scattered, name)))
    try:
        yield clock
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def share(evaluate: Callable[[], se.Evaluation], bench: Bench) -> Measured:
    """Measure the guards' share of an evaluation."""
    evaluate()  # kernels are compiled, and files are in memory
    guards, whole = [], []
    for _ in range(bench.rounds):
        with clocked() as clock:
            begin = time.process_time()
            evaluate()
            whole.append(time.process_time() - begin - clock.again)
        guards.append(clock.seconds)
    return Measured({GUARDS: guards, WHOLE: whole}, {})


def of_features(bench: Bench) -> Measured:
    """Measure features in .npy files."""
    sizes = bench.count(*QUERIES), bench.count(*GALLERY)
    data = make_features(bench.folder, *sizes, WIDTH)
    threads = len(os.sched_getaffinity(0))
    return share(lambda: bench.evaluate(data.source("cosine"), data.labels, threads), bench)


def of_matrix(bench: Bench) -> Measured:
    """Measure a stored matrix."""
    shape = bench.count(*ROWS), bench.count(*GALLERY)
    require_space(bench.folder, 4 * prod(shape))
    path, labels = bench.folder / "guarded.zarr", make_labels(*shape)
    make_distances(path, labels, (200, 10_000), "uncompressed")
    threads = len(os.sched_getaffinity(0))
    return share(lambda: bench.evaluate(se.Distances(path), labels, threads, RANGE), bench)


CASES = (
    Case((Figure("guards/features", (GUARDS, WHOLE), 0.01),), of_features),
    Case((Figure("guards/matrix", (GUARDS, WHOLE), 0.05),), of_matrix),
)
