"""Two runs with one folder: the second is refused at once, and neither leaves anything behind."""

from __future__ import annotations

import errno
import fcntl
import json
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from clusters import labels, write_inputs
from support.cli import main
from support.package import claimed
from waiting import wait_until

import streameval as se

COMMAND = ["evaluate", "--query", "q.npy", "--gallery", "g.npy", "--protocol", "no-camera"]
COMMAND += ["--query-ids", "qid.npy", "--gallery-ids", "gid.npy", "--out", "results/out"]
TESTS = str(Path(__file__).parents[1])
GATED = """
import pathlib, sys, time
from dataclasses import replace
from support.run import checkpoint_module as checkpoint, count, passes_module as passes
if sys.argv[1] == "at once":
    checkpoint.COMMIT_SECONDS = 0.0
first = []
def gated(job, task, watch):
    if first or sys.argv[1] == "later":
        pathlib.Path("waits").touch()
        while not pathlib.Path("gate").exists():
            time.sleep(0.01)
    first.append(task)
    return count(job, task, watch)
passes.COUNT = replace(passes.COUNT, compute=gated)
from streameval.cli import main
main(sys.argv[2:])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write_inputs(tmp_path))
    return tmp_path


@contextmanager
def waiting(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program, wait until it waits, and kill it in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.append({TESTS!r}){code}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_until(lambda: Path("waits").exists() or process.poll() is not None)
            assert process.poll() is None
            yield process
        finally:
            process.kill()


@pytest.fixture(params=["at once", pytest.param("later", marks=pytest.mark.slow)])
def first(request: pytest.FixtureRequest, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Begin a run that waits until there is a file named gate; it keeps work at once, or later."""
    with waiting(GATED, request.param, *COMMAND, "--json") as process:
        yield process


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def second(*more: str) -> Result:
    return run(*COMMAND, *more)


def in_python() -> None:
    source = se.Features("q.npy", "g.npy")
    se.evaluate(source, **labels(Path()), checkpoint="results/out.progress", resume=True)


def left() -> list[str]:
    return sorted(entry.name for entry in Path("results").iterdir())


def refused(path: str, process: int) -> str:
    host = re.escape(platform.node())
    return rf"another process \({process} on {host}\) writes to .*{path}: wait for it, or choose"


def test_the_second_run_is_refused(first: subprocess.Popen[str]) -> None:
    before = left()
    for more in ((), ("--overwrite",), ("--resume",), ("--resume", "--overwrite")):
        done = second(*more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert re.search(refused("results/out", first.pid), done.stderr)
        assert left() == before
    with pytest.raises(se.OutputError, match=refused(r"results/out\.progress", first.pid)):
        in_python()
    with pytest.raises(se.OutputError, match=refused("results/out", first.pid)):
        se.evaluate(se.Features("q.npy", "g.npy"), **labels(Path())).save("results/out")
    Path("gate").touch()
    out, err = first.communicate()
    assert first.returncode == 0, err
    assert json.loads(out) == json.loads(Path("results/out/summary.json").read_bytes())
    assert left() == ["out"]


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_claim_ends_with_its_process(first: subprocess.Popen[str], number: int) -> None:
    first.send_signal(number)
    first.wait()
    if number == signal.SIGTERM:
        assert not Path("results").exists() or left() == ["out.progress"]
    Path("gate").touch()
    done = second("--resume")
    assert done.exit_code == 0, done.stderr
    assert left() == ["out"]


HOLDS = """
import pathlib, sys, time
from support.cli import main
from support.package import claimed
pathlib.Path("results").mkdir()
with claimed(pathlib.Path(sys.argv[1]).absolute()):
    pathlib.Path("waits").touch()
    while not pathlib.Path("gate").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def saved(folder: Path) -> None:
    """Save a result, and make a ledger."""
    se.evaluate(se.Features("q.npy", "g.npy"), **labels(folder)).save("saved")
    made = se.Ledger.create(
        "ledger",
        query="q.npy",
        query_labels=labels(folder)["query"],
        metric="euclidean",
        range=(0, 100),
    )
    made.append("g.npy", labels(folder)["gallery"])


COMMANDS = {
    "results/out": [COMMAND[:-1], ["ledger", "evaluate", "ledger", "--out"], ["convert", "g.npy"]],
    "results/out.html": [["report", "saved", "--out"]],
    "results/out.csv": [["show", "saved", "--format", "csv", "--out"]],
}


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("place", "arguments"),
    [
        pytest.param(
            place, one, marks=() if one is COMMANDS["results/out"][0] else pytest.mark.slow
        )
        for place, many in COMMANDS.items()
        for one in many
    ],
)
def test_a_command_refuses_what_another_writes(place: str, arguments: list[str]) -> None:
    with waiting(HOLDS, place) as process:
        before = left()
        done = run(*arguments, place)
        assert (done.exit_code, done.stdout) == (2, "")
        assert re.search(refused(place, process.pid), done.stderr)
        assert left() == before
    assert left() == before
    done = run(*arguments, place)
    assert done.exit_code == 0, done.stderr
    assert left() == [Path(place).name]


@pytest.mark.usefixtures("folder")
def test_what_can_not_be_claimed_is_refused() -> None:
    Path("results").touch()
    done = second()
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: no result can be written to results/out: Not a directory" in done.stderr
    with pytest.raises(se.OutputError, match=r"can't be kept in .*File exists"):
        in_python()


@pytest.mark.usefixtures("folder")
def test_where_nothing_can_be_locked_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    Path("results").mkdir()
    result = se.evaluate(se.Features("q.npy", "g.npy"), **labels(Path()))
    with claimed(Path("results/out").absolute()):
        result.save("results/out")
    assert left() == ["out"]
