"""A signal at any time ends a run, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support.cli import SIGNALS
from waiting import PATIENCE, wait_until

from streameval import Evaluation

SECONDS = 10.0  # within which a run ends
BUSY = 4
QUERIES, ITEMS, WIDTH = 400, 40_000, 64
KINDS = {
    "threads": ([], {}),
    "workers": (["--workers", "2"], {}),
    "compiling": ([], {"NUMBA_CACHE_DIR": "kernels"}),
}
"""Options and environment of runs."""
PROGRAM = [sys.executable, "-m", "streameval"]
SIGNALLED = """
import os, signal, sys, threading
from streameval import cli
from streameval.run import checkpoint

checkpoint.COMMIT_SECONDS = 0.0
remove, when = checkpoint.remove, sys.argv.pop(1)

def signalled(path):
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and when == "before":
        os.kill(os.getpid(), signal.SIGTERM)
    remove(path)
    if in_main and when == "after":
        os.kill(os.getpid(), signal.SIGTERM)

checkpoint.remove = signalled
cli.main()
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(0)
    for side, count in (("query", QUERIES), ("gallery", ITEMS)):
        np.save(folder / f"{side}.npy", rng.standard_normal((count, WIDTH), dtype=np.float32))
        ids, cameras = rng.integers(0, 200, count), rng.integers(0, 4, count)
        rows = [f"{a},{b}" for a, b in zip(ids, cameras, strict=True)]
        (folder / f"{side}.csv").write_text("\n".join(["id,cam", *rows]))
    assert Run(folder, folder / "first", "threads").end() == (0, "")  # it compiles kernels
    return folder


class Run:
    """A run of the command in a folder of its own, with the processes that it starts."""

    def __init__(
        self, inputs: Path, folder: Path, kind: str, program: Sequence[str] = PROGRAM
    ) -> None:
        options, environment = KINDS[kind]
        self.folder = folder
        for name in ("out", "scratch"):
            (folder / name).mkdir(parents=True)
        command = [*program, "evaluate", "--quiet", "--out", "out/result", *options]
        for side in ("query", "gallery"):
            command += [f"--{side}", inputs / f"{side}.npy"]
            command += [f"--{side}-labels", inputs / f"{side}.csv"]
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder / "scratch")} | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, timeout: float = PATIENCE) -> tuple[int, str]:
        """Wait for its end; return its status as a shell tells it, and stderr."""
        _, stderr = self.process.communicate(timeout=timeout)
        status = self.process.returncode
        return (128 - status if status < 0 else status), stderr

    def lives(self) -> bool:
        """Whether a process of it lives."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 0)
            return True
        return False

    def shared(self) -> list[Path]:
        """Return the files in shared memory that it has open: semaphores."""
        with suppress(OSError):
            maps = Path(f"/proc/{self.process.pid}/maps").read_text()
            return [Path(name) for name in sorted(set(re.findall(r"/dev/shm/\S+", maps)))]
        return []

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def check(
    inputs: Path, folder: Path, kind: str, number: int, delay: float, bound: float
) -> tuple[int, float]:
    """Send a signal to a run after some seconds; return its status, and the seconds it took."""
    run = Run(inputs, folder, kind)
    try:
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(delay)
        shared = run.shared()
        run.process.send_signal(number)
        sent = time.monotonic()
        status, stderr = run.end(bound)
        took = time.monotonic() - sent
        told = (kind, signal.Signals(number).name, delay, status, stderr)
        if stderr.startswith("Fatal Python error: init_"):  # Python itself, not yet begun
            status = 128 + number
        assert status in (0, 128 + number), told
        assert status or took < bound / 2, told  # it had nearly finished
        assert "Traceback" not in stderr or stderr.endswith("\nKeyboardInterrupt\n"), told
        wait_until(lambda: not run.lives(), told)
    finally:
        run.kill()
    left = {path.name for path in (folder / "out").iterdir()}
    if "finished work is kept" in stderr:
        left.remove("result.progress")
    if "result" in left:
        Evaluation.load(folder / "out" / "result")
    assert left == {"result"} if status == 0 else left <= {"result"}, told
    assert list((folder / "scratch").iterdir()) == [], told
    assert [file for file in shared if file.exists()] == [], told
    return status, took


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes busy beside."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def interrupt(
    inputs: Path, folder: Path, runs: dict[str, int], bound: float
) -> list[tuple[int, float]]:
    """Send signals at random times to so many runs of each kind; return how they end."""
    random, ends = Random(sum(runs.values())), []
    for kind, count in runs.items():
        begun = time.monotonic()
        whole = Run(inputs, folder / kind, kind)
        assert whole.end() == (0, "")
        whole_time = time.monotonic() - begun
        for i in range(count):
            delay, number = random.uniform(0, whole_time), SIGNALS[i % 2]
            ends.append(check(inputs, folder / f"{kind}-{i}", kind, number, delay, bound))
    return ends


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_finished_work_is_not_told_of_once_it_is_removed(
    inputs: Path, tmp_path: Path, when: str
) -> None:
    run = Run(inputs, tmp_path, "threads", [sys.executable, "-c", SIGNALLED, when])
    assert run.end() == (143, "interrupted\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["result"]
    Evaluation.load(tmp_path / "out" / "result")


@pytest.mark.slow
def test_signals_at_random_times(inputs: Path, tmp_path: Path) -> None:
    interrupt(inputs, tmp_path, {"threads": 4}, PATIENCE)


@pytest.mark.slow
def test_signals_to_busy_machines(inputs: Path, tmp_path: Path) -> None:
    with busy(BUSY):
        interrupt(inputs, tmp_path, {"threads": 1, "workers": 1, "compiling": 1}, PATIENCE)


@pytest.mark.nightly
def test_signals_end_runs_in_seconds(
    inputs: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with busy(BUSY):
        ends = interrupt(inputs, tmp_path, {"threads": 80, "workers": 80, "compiling": 40}, SECONDS)
    record_property("ends", dict(Counter(status for status, _ in ends)))
    record_property("longest", max(took for _, took in ends))
