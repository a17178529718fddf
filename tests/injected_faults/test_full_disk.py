"""A full disk, and a clock that is set back: what is optional is left out, with a warning."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters import labels, write_inputs
from support.cli import main

import streameval as se

COMMAND = ["evaluate", "--query", "q.npy", "--gallery", "g.npy", "--protocol", "no-camera"]
COMMAND += ["--query-ids", "qid.npy", "--gallery-ids", "gid.npy", "--quiet", "--json"]
TESTS = str(Path(__file__).parents[1])
SIZE = 4 << 20  # bytes of the disk

# After some tasks (sys.argv[1]) something happens (sys.argv[2]): Python, with `disk`.
THEN = """
import os, pathlib, sys
from dataclasses import replace
from streameval.planning import planner, shards
from support.run import checkpoint_module as checkpoint, count, passes_module as passes
planner.TILE_ITEMS = planner.SMALL_SHARD = shards.SMALL_SHARD = 60  # many tasks
planner.TARGET_BLOCK_BYTES = planner.TASK_FLOPS = 1
disk = pathlib.Path("disk")
def fill():
    with (disk / "fill").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            pass
def free():
    (disk / "fill").unlink()
checkpoint.COMMIT_SECONDS = 0.0
events = dict(item.split("=") for item in sys.argv[1].split(",") if item)
done = []
def counted(job, task, watch):
    exec(events.get(str(len(done)), ""))
    done.append(task)
    return count(job, task, watch)
passes.COUNT = replace(passes.COUNT, compute=counted)
from streameval.cli import main
main(sys.argv[2:])
"""

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now) {
  static int (*usual)(clockid_t, struct timespec *);
  if (!usual) usual = dlsym(RTLD_NEXT, "clock_gettime");
  int status = usual(id, now);
  int real = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
  if (real && access(getenv("SET_BACK"), F_OK) == 0) now->tv_sec -= 3600;
  return status;
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write_inputs(tmp_path))
    return tmp_path


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """Mount a small disk."""
    made = folder / "disk"
    made.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(made)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can't be mounted here")
    yield made
    subprocess.run(["umount", "--lazy", str(made)], check=True)


def fill(disk: Path) -> None:
    (disk / "fill").touch()
    with suppress(OSError):
        while True:
            with (disk / "fill").open("ab") as file:
                file.write(bytes(1 << 12))


def run(events: str, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Evaluate, with what happens at which task: ``1=fill(),3=free()``."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.append({TESTS!r}){THEN}",
            events,
            *COMMAND,
            "--threads",
            "1",
            *more,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def expected(folder: Path) -> dict[str, float]:
    done = CliRunner().invoke(main, COMMAND)
    assert done.exit_code == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)["metrics"]
    return found


def left(disk: Path) -> list[str]:
    return sorted(entry.name for entry in disk.iterdir())


def test_a_result_without_room_is_refused_before_any_work(disk: Path) -> None:
    fill(disk)
    done = run("0=(disk / 'begun').touch()", "--out", "disk/out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the result can't be written to")
    assert "No space left on device" in done.stderr
    assert left(disk) == ["fill"]


@pytest.mark.slow
def test_a_disk_that_fills_up_during_a_run(disk: Path, expected: dict[str, float]) -> None:
    done = run("3=fill()", "--out", "disk/out")
    assert done.returncode in (0, 2), done.stderr  # the room that was reserved may do
    assert "disk/out.progress (the disk is full; make room); the run goes on" in done.stderr
    assert done.stderr.count("the disk is full") == 1
    assert json.loads(done.stdout)["metrics"] == expected
    if done.returncode == 0:
        assert left(disk) == ["fill", "out"]
        return
    assert "error: the result can't be written to" in done.stderr
    assert left(disk) == ["fill", "out.progress"]
    (disk / "fill").unlink()
    done = run("", "--out", "disk/out", "--resume")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"] == expected
    assert left(disk) == ["out"]


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while(disk: Path, expected: dict[str, float]) -> None:
    done = run("2=fill(),4=free()", "--out", "disk/out")
    assert done.returncode == 0, done.stderr
    assert "the disk is full" in done.stderr
    assert json.loads(done.stdout)["metrics"] == expected
    assert left(disk) == ["out"]


@pytest.mark.parametrize("index", [None, "IVF4,Flat"])
def test_a_checkpoint_without_room(
    disk: Path, folder: Path, index: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = se.Features("q.npy", "g.npy")
    source = features if index is None else se.Neighbors(features=features, index=index, k=9)
    expected = se.evaluate(source, **labels(folder))
    fill(disk)
    monkeypatch.setattr("streameval.run.checkpoint.COMMIT_SECONDS", 0.0)
    with pytest.warns(se.StreamevalWarning) as warned:
        found = se.evaluate(source, **labels(folder), checkpoint=disk / "kept")
    full = [str(one.message) for one in warned if "the disk is full" in str(one.message)]
    assert len(full) == 1
    assert found.statistics.equals(expected.statistics)
    assert left(disk) == ["fill"]


@pytest.mark.slow
def test_no_room_for_compiled_kernels(disk: Path, expected: dict[str, float]) -> None:
    fill(disk)
    done = run("", NUMBA_CACHE_DIR=str(disk), NUMBA_OPT="0")  # compiles faster
    assert done.returncode == 0, done.stderr
    assert "warning: compiled kernels can't be kept in" in done.stderr
    assert "No space left on device" in done.stderr
    assert json.loads(done.stdout)["metrics"] == expected


@pytest.fixture
def clock(folder: Path) -> dict[str, str]:
    """Return an environment in which a file named ``back`` sets the clock back by an hour."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler")
    (folder / "clock.c").write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "clock.so", "clock.c", "-ldl"], check=True)
    return {"LD_PRELOAD": str(folder / "clock.so"), "SET_BACK": str(folder / "back")}


@pytest.mark.slow
def test_a_clock_that_is_set_back(expected: dict[str, float], clock: dict[str, str]) -> None:
    done = run("3=pathlib.Path('back').touch()", "--out", "out", **clock)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the clock was set back: it is ") == 1
    assert "make room" not in done.stderr
    assert json.loads(done.stdout)["metrics"] == expected
    assert not Path("out.progress").exists()


@pytest.mark.slow
def test_a_clock_that_is_set_back_before_resuming(
    expected: dict[str, float], clock: dict[str, str]
) -> None:
    done = run("3=os._exit(9)", "--out", "out", **clock)
    assert done.returncode == 9
    Path("back").touch()
    done = run("", "--out", "out", "--resume", **clock)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"] == expected
    Path("back").unlink()
    loaded = se.Evaluation.load("out").metrics.scalars
    assert json.loads(done.stdout)["metrics"].keys() <= loaded.keys() | {*expected}
