"""What the command line does where its output has nowhere to go, and where a signal ends it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from spread import spread
from support.cli import SIGNALS, Interruption
from support.run import preparation_module as preparation
from test_cli import CSV, STORED, data, run
from waiting import PATIENCE, wait_until

from streameval import Evaluation

__all__ = ["data"]

PROGRAM = Path(sys.executable).parent / "streameval"
LONG = "x" * 300


def fail_to_work(*_: object, **__: object) -> None:
    raise AssertionError("work has begun")


@pytest.mark.usefixtures("data")
def test_names_in_messages_do_nothing_to_a_terminal() -> None:
    name = "\x1b[31m\n\u202e<script>alert(1)</script>.npy"
    refused = run("--distances", name, *CSV)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1
    assert not {"\x1b", "\u202e"}.intersection(refused.stderr)
    assert "<script>" in refused.stderr


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("", "name of the output folder is empty"),
        (LONG, "File name too long"),
        ("query.csv/out", "Not a directory"),
        (".", ". exists already"),
    ],
)
def test_output_is_tried_before_any_work(
    monkeypatch: pytest.MonkeyPatch, out: str, words: str
) -> None:
    monkeypatch.setattr(preparation, "plan_requests", fail_to_work)
    before = sorted(Path.cwd().iterdir())
    result = run(*STORED, *CSV, "--out", out)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--distances", LONG, *CSV),
        (*STORED, "--query-labels", f"{LONG}.csv", *CSV[2:]),
        (*STORED, "--query-ids", f"{LONG}.npy", *CSV[2:]),
    ],
)
def test_names_that_are_too_long(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert "File name too long" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("given", [(), ("--json",)])
def test_a_result_that_cannot_be_saved_is_printed(
    monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    expected = run(*STORED, *CSV, *given).stdout
    monkeypatch.setattr(Evaluation, "write", full)
    before = sorted(Path.cwd().iterdir())
    result = run(*STORED, *CSV, *given, "--out", "out")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the result can't be written to")
    assert "No space left" in result.stderr
    assert "Written to" not in result.stdout
    if given:
        assert json.loads(result.stdout)["metrics"] == json.loads(expected)["metrics"]
    else:
        assert result.stdout.splitlines()[:20] == expected.splitlines()[:20]
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.usefixtures("data")
def test_errors_of_the_system_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(preparation, "plan_requests", broken)
    result = run(*STORED, *CSV)
    assert (result.exit_code, result.stderr) == (2, "error: [Errno 5] Input/output error\n")


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("evaluate", *STORED, *CSV, "--dry-run"), "stdout can't be written to: No space left"),
        (("--help",), "No space left on device"),
    ],
)
def test_stdout_that_is_full(arguments: tuple[str, ...], says: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


SLOW_TO_SAVE = """
import sys, time
from pathlib import Path
from streameval.cli import main
from streameval.result import Evaluation
from streameval.result.saved import ResultFolder
from streameval.run import checkpoint

checkpoint.COMMIT_SECONDS = 1e9  # a slow machine, too, has no work to keep
whole = Evaluation.write

def slow(self, folder):
    whole(self, folder)
    Path("saving").touch()
    while True:  # the signal alone ends it
        time.sleep(0.01)

def held(self):
    place(self)
    Path("saving").touch()
    while not Path("sent").exists():
        time.sleep(0.01)

if sys.argv.pop(1) == "write":
    Evaluation.write = slow
else:
    place = ResultFolder.put_in_place
    ResultFolder.put_in_place = held
main()
"""


@pytest.mark.parametrize(
    ("number", "at"), spread([signal.SIGINT, signal.SIGTERM], ["write", "rename"], of=4)
)
def test_signals_while_saving(data: Path, number: signal.Signals, at: str) -> None:
    before = sorted(path.name for path in data.iterdir())
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SLOW_TO_SAVE,
            at,
            "evaluate",
            *STORED,
            *CSV,
            "--out",
            "result",
            "--quiet",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: Path("saving").exists() or process.poll() is not None)
    process.send_signal(number)
    Path("sent").touch()
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout, stderr) == (128 + number, "", "interrupted\n")
    whole = ["result"] if at == "rename" else []  # the signal came too late to prevent it
    assert sorted(path.name for path in data.iterdir()) == sorted(
        [*before, "saving", "sent", *whole]
    )
    if whole:
        Evaluation.load("result")


HELD = """
import signal
import sys
from streameval.interruption import Interruption, at_end, held

def discard():
    print("discarded", file=sys.stderr, flush=True)

with Interruption(), at_end(lambda: "some is kept"), at_end(discard):
    with held():
        signal.raise_signal(signal.SIGTERM)
        print("whole", file=sys.stderr, flush=True)
    print("after", file=sys.stderr, flush=True)
"""


def test_a_signal_waits_only_while_it_is_held() -> None:
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, check=False)
    assert done.stderr == "whole\ndiscarded\ninterrupted; some is kept\n"
    assert done.returncode == 143


def test_signals_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interruption():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


ENDS = """
import atexit, sys
from streameval import __main__, cli

def command():
    atexit.register(print, "removed")
    sys.stderr.write("said")
    print("printed")
    {end}

cli.main = command
__main__.main()
"""


@pytest.mark.parametrize(
    ("end", "status", "last"),
    [("sys.exit(3)", 3, "said"), ("sys.exit('why')", 1, "why"), ("1 / 0", 1, "division by zero")],
)
def test_a_process_ends_with_all_that_was_printed(end: str, status: int, last: str) -> None:
    code = [sys.executable, "-c", ENDS.format(end=end)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "printed\nremoved\n")
    assert done.stderr.startswith("said")
    assert done.stderr.rstrip().endswith(last)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts there")
def test_inputs_whose_names_are_no_text(data: Path) -> None:
    """As a process of its own: the runner's stdout takes any character."""
    name = os.fsdecode(b"query\xff.npy")
    Path("query.npy").rename(name)
    command = [str(PROGRAM)]
    evaluate = [*command, "evaluate", "--query", name, "--gallery", "gallery.npy"]
    evaluate += ["--query-labels", "query.csv", "--gallery-labels", "gallery.csv", "--quiet"]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, capture_output=True, text=True, env=environment, check=False
        )

    done = run(*evaluate, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert r"query\udcff.npy" in done.stdout
    assert Evaluation.load("out").provenance["inputs"]["query"] == name
    shown = run(*command, "show", "out", "--json")
    assert json.loads(shown.stdout) == json.loads(Path("out/summary.json").read_bytes())
    refused = run(*evaluate, "--out", os.fsdecode(b"out\xff"))
    assert refused.returncode == 2
    assert r"error: the name of the output folder, out\udcff, is no UTF-8" in refused.stderr
