"""The ledger: what appending 1 % costs beside a full evaluation, and what it forecasts.

The gallery is a realistic model's: most new positives are nearer than the nearest negatives that
are kept of their query. For the forecast, positives are made hard on purpose: items of the new
segment bear the identities of some of the queries, and look like anyone. What the ledger holds
then is compared with a fresh evaluation, bit for bit.

Seconds are of the processor, all threads together, as what else runs on the machine counts little
then; and of the clock, which is what a user waits for: of changes within a process, and of
commands, each in a process of its own. Beside these stands the commit of one number, which no
change takes less than.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import streameval as se
from benchmarks.data import FeatureSet, make_features, save_labels
from benchmarks.figure import BUDGET, Bench, Case, Figure, Measured
from benchmarks.startup import PROGRAM

WIDTH = 128
QUERIES, GALLERY = (1000, 128), (1_000_000, 40_000)  # full, quick
MORE_QUERIES = (10_000, 512)
SHARE = 100  # a segment is one part in so many
HARD = (0.25, 1.0)  # of the queries
MANY, FEW, EACH = (200, 20), 2, (1000, 50)  # segments, and items of each: full, quick
APPEND, FULL = "append 1 %", "full evaluation"
CPU, CLOCK, COMMAND = "processor: ", "clock: ", "command: "
COMMIT = CLOCK + "commit of one number"
OFF, PLANNED, TAKEN = "off by", "forecast", "append"
PAIRS = "pairs: "
OPEN, AT_MANY, AT_FEW = "open", "append to many segments", f"append to {FEW} segments"
THREADS = 2


class Seconds(NamedTuple):
    """What something took: of the processor, and by the clock."""

    cpu: float
    clock: float

    @classmethod
    def now(cls) -> Seconds:
        """Return where both stand."""
        return cls(time.process_time(), time.perf_counter())

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.cpu - other.cpu, self.clock - other.clock)


class Grown:
    """A ledger of all but the last part of a gallery, and segments to be appended.

    Parameters
    ----------
    bench : Bench
    queries : (int, int)
        How many: full, quick.
    """

    def __init__(self, bench: Bench, queries: tuple[int, int] = QUERIES) -> None:
        gallery = bench.count(*GALLERY)
        self.bench = bench
        sizes = bench.count(*queries), gallery, WIDTH
        self.features: FeatureSet = make_features(bench.folder, *sizes)
        self.rows = np.load(self.features.gallery, mmap_mode="r")
        self.cut = gallery - max(gallery // SHARE, 1)
        self.memory = BUDGET
        self.ledger = new_ledger(bench.folder / "ledger", self.features)
        self.append("rest", self.rows[: self.cut], self.labels(0, self.cut))

    def labels(self, start: int, stop: int) -> se.Labels:
        """Return the labels of some of the gallery."""
        own = self.features.labels["gallery"]
        assert own.cam is not None
        return se.Labels(own.id[start:stop], own.cam[start:stop])

    def write(self, name: str, rows: np.ndarray) -> Path:
        """Write the file of a segment."""
        path = self.bench.folder / f"segment-{name}.npy"
        np.save(path, rows)
        return path

    def append(self, name: str, rows: np.ndarray, labels: se.Labels) -> Seconds:
        """Append a segment; return the seconds, without writing the file."""
        path = self.write(name, rows)
        begin = Seconds.now()
        self.ledger.append(path, labels, name=name, memory=self.memory, threads=THREADS)
        return Seconds.now() - begin

    def evaluate(self, rows: Path, labels: se.Labels) -> tuple[Seconds, se.Evaluation]:
        """Evaluate a gallery afresh; return the seconds, too."""
        begin = Seconds.now()
        result = self.bench.evaluate(
            se.Features(self.features.query, rows, "cosine"),
            {"query": self.features.labels["query"], "gallery": labels},
            THREADS,
        )
        return Seconds.now() - begin, result

    def check(self, fresh: se.Evaluation) -> None:
        """Check that the ledger holds what a fresh evaluation does."""
        if not self.ledger.evaluation().statistics.equals(fresh.statistics):
            raise RuntimeError("the ledger differs from a fresh evaluation")


def new_ledger(path: Path, features: FeatureSet) -> se.Ledger:
    """Return a ledger without a gallery, in place of one that is there."""
    shutil.rmtree(path, ignore_errors=True)
    return se.Ledger.create(
        path, query=features.query, query_labels=features.labels["query"], metric="cosine"
    )


def appending(queries: tuple[int, int], bench: Bench) -> Measured:
    """Measure 1 % more, in seconds and in pairs, against all."""
    grown = Grown(bench, queries)
    gallery = len(grown.rows)
    own = grown.rows[grown.cut :], grown.labels(grown.cut, gallery)
    samples: dict[str, list[float]] = {
        kind + side: [] for kind in (CPU, CLOCK, PAIRS) for side in (APPEND, FULL)
    }
    samples[COMMIT] = []
    for number in range(bench.rounds + 1):
        floor = commit(bench.folder / "commits")
        append = grown.append("new", *own)
        last = grown.ledger.trajectory[-1]
        full, fresh = grown.evaluate(grown.features.gallery, grown.features.labels["gallery"])
        grown.check(fresh)
        grown.ledger.remove("new")
        if number:  # the first warms up
            for side, seconds in ((APPEND, append), (FULL, full)):
                samples[CPU + side].append(seconds.cpu)
                samples[CLOCK + side].append(seconds.clock)
            samples[PAIRS + APPEND].append(last.pairs)
            samples[PAIRS + FULL].append(last.queries * last.gallery)
            samples[COMMIT].append(floor)
    shape = [last.queries, gallery, WIDTH]
    return Measured(samples, {"shape": shape, "rescanned": last.rescanned})


def commit(path: Path) -> float:
    """Return the seconds of an icechunk commit of one number, in a repository of its own."""
    import icechunk
    import zarr

    shutil.rmtree(path, ignore_errors=True)
    icechunk.set_logs_filter("error")
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
    begin = time.perf_counter()
    session = repository.writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["number"] = 1
    session.commit("a number")
    return time.perf_counter() - begin


def commands(bench: Bench) -> Measured:
    """Measure what a user runs: both as commands, each in a process of its own."""
    grown = Grown(bench)
    gallery, labels = len(grown.rows), grown.features.labels
    segment = str(grown.write("new", grown.rows[grown.cut :]))
    whole = save_labels(bench.folder, labels)
    part = save_labels(bench.folder, {"gallery": grown.labels(grown.cut, gallery)})
    running = ["--threads", str(THREADS), "--memory", str(BUDGET), "--quiet", "--json"]

    def columns(side: str, paths: dict[str, str]) -> list[str]:
        names = (f"--{side}-ids", paths[f"{side}_id"]), (f"--{side}-cams", paths[f"{side}_cam"])
        return [one for pair in names for one in pair]

    features = ["--query", str(grown.features.query), "--gallery", str(grown.features.gallery)]
    append = ["ledger", "append", grown.ledger.path, "--gallery", segment, "--name", "new"]
    sides = {
        APPEND: [*append, *columns("gallery", part)],
        FULL: ["evaluate", *features, *columns("query", whole), *columns("gallery", whole)],
    }
    samples: dict[str, list[float]] = {COMMAND + side: [] for side in sides}
    for number in range(bench.rounds + 1):
        for side, arguments in sides.items():
            command = [*PROGRAM, *arguments, *running]
            begin = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if number:
                samples[COMMAND + side].append(time.perf_counter() - begin)
        grown.ledger.remove("new")
    return Measured(samples, {"shape": [len(labels["query"]), gallery, WIDTH]})


def forecasting(hard: float, bench: Bench) -> Measured:
    """Measure a segment whose positives are hard for a share of the queries, and its forecast."""
    grown = Grown(bench)
    gallery, queries = len(grown.rows), grown.features.labels["query"].id
    rng = np.random.default_rng(0)
    labels = grown.labels(grown.cut, gallery)
    wanted = rng.choice(len(queries), max(int(hard * len(queries)), 1), replace=False)
    labels.id[: len(wanted)] = queries[wanted][: len(labels)]
    assert labels.cam is not None
    labels.cam[: len(wanted)] = 99  # of no query's camera
    rows = np.array(grown.rows[grown.cut :])
    whole = bench.folder / "hard.npy"
    np.save(whole, np.concatenate([grown.rows[: grown.cut], rows]))
    before = grown.labels(0, grown.cut)
    assert before.cam is not None
    together = se.Labels(
        np.concatenate([before.id, labels.id]), np.concatenate([before.cam, labels.cam])
    )
    path = bench.folder / "segment-planned.npy"
    np.save(path, rows)
    forecast = grown.ledger.plan(path, labels, name="new", memory=grown.memory, threads=THREADS)
    samples: dict[str, list[float]] = {OFF: [], PLANNED: [], TAKEN: []}
    for number in range(bench.rounds + 1):
        append = grown.append("new", rows, labels)
        if grown.ledger.trajectory[-1].pairs != forecast.pairs:
            raise RuntimeError("other pairs were counted than forecast")
        full, fresh = grown.evaluate(whole, together)
        grown.check(fresh)
        grown.ledger.remove("new")
        if number:
            samples[OFF].append(abs(forecast.share * full.cpu / append.cpu - 1))
            samples[PLANNED].append(forecast.share * full.cpu)
            samples[TAKEN].append(append.cpu)
    whole.unlink()
    details = {"share": forecast.share, "queries": forecast.queries, "pairs": forecast.pairs}
    return Measured(samples, details)


def segments(bench: Bench) -> Measured:
    """Measure a ledger of many segments beside one of few, of the same gallery."""
    each, many = bench.count(*EACH), MANY[bench.quick]
    features = make_features(bench.folder, bench.count(*QUERIES), each * (many + 1), WIDTH)
    rows, own = np.load(features.gallery), features.labels["gallery"]
    assert own.cam is not None
    ledgers = {
        count: new_ledger(bench.folder / f"ledger-{count}", features) for count in (many, FEW)
    }

    cams = own.cam

    def append(ledger: se.Ledger, first: int, last: int) -> float:
        part = slice(first * each, last * each)
        path = bench.folder / f"segment-{first}-{last}.npy"
        if not path.exists():
            np.save(path, rows[part])
        labels = se.Labels(own.id[part], cams[part])
        begin = time.process_time()
        ledger.append(path, labels, threads=THREADS)
        return time.process_time() - begin

    for count, ledger in ledgers.items():
        step = many // count
        for first in range(0, many, step):
            append(ledger, first, first + step)
    samples: dict[str, list[float]] = {OPEN: [], AT_MANY: [], AT_FEW: []}

    for number in range(bench.rounds + 1):
        taken: dict[str, Callable[[], float]] = {
            AT_MANY: partial(append, ledgers[many], many, many + 1),
            AT_FEW: partial(append, ledgers[FEW], many, many + 1),
        }
        found = {side: measure() for side, measure in taken.items()}
        for ledger in ledgers.values():
            ledger.remove(f"segment-{many}-{many + 1}")
        begin = time.perf_counter()
        se.Ledger(bench.folder / f"ledger-{many}").trajectory  # noqa: B018 - it is read
        found[OPEN] = time.perf_counter() - begin
        if number:
            for side, seconds in found.items():
                samples[side].append(seconds)
    return Measured(samples, {"segments": many, "items": each})


CASES = (
    Case(
        (
            Figure("ledger/append/pairs", (PAIRS + APPEND, PAIRS + FULL), 0.03, unit=""),
            Figure("ledger/append/time", (CPU + APPEND, CPU + FULL), 0.14),
            Figure("ledger/append/clock", (CLOCK + APPEND, CLOCK + FULL, COMMIT), 0.14),
        ),
        partial(appending, QUERIES),
    ),
    Case(
        (
            Figure("ledger/append-10000/time", (CPU + APPEND, CPU + FULL), 0.05),
            Figure("ledger/append-10000/clock", (CLOCK + APPEND, CLOCK + FULL), 0.05),
        ),
        partial(appending, MORE_QUERIES),
    ),
    Case(
        (Figure("ledger/command/append", (COMMAND + APPEND, COMMAND + FULL), 0.03),),
        commands,
    ),
    *(
        Case(
            (
                Figure(
                    f"ledger/hard-{100 * hard:.0f}/forecast",
                    (OFF, PLANNED, TAKEN),
                    0.2,
                    kind="value",
                ),
            ),
            partial(forecasting, hard),
        )
        for hard in HARD
    ),
    Case(
        (
            Figure("ledger/segments/open", (OPEN,), 1.0, kind="value"),
            Figure("ledger/segments/append", (AT_MANY, AT_FEW), 1.15),
        ),
        segments,
    ),
)
