"""Exit statuses: each is documented, and what it is said to be."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.cli import MEANINGS, SIGNALS, ExitStatus, main
from test_cli import CSV, STORED, data, run

__all__ = ["data"]

PROGRAM = Path(sys.executable).parent / "streameval"


def test_help_lists_them_all() -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    listed = text[text.index("Exit statuses:") :]
    assert set(MEANINGS) == set(ExitStatus)
    for status, meaning in MEANINGS.items():
        line = next(one for one in listed.splitlines() if one.split()[:1] == [str(int(status))])
        assert meaning.startswith(line.split(maxsplit=1)[1])
        assert len(line) <= 80


@pytest.mark.usefixtures("data")
def test_done() -> None:
    for arguments in (["--version"], ["--help"], ["metrics"], ["evaluate", *STORED, *CSV]):
        assert CliRunner().invoke(main, arguments).exit_code == ExitStatus.DONE


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["evaluate", "--nonsense"],
        ["evaluate", "--threads", "many"],
        ["convert", "query.npy"],
        ["evaluate", *STORED, *CSV, "--ties", "fair"],
        ["evaluate", "--distances", "absent.npy", *CSV],
        ["evaluate", *STORED, *CSV, "--memory", "1MB"],
        ["evaluate", *STORED, *CSV, "--out", "query.csv"],
        ["evaluate", "--config", "absent.toml"],
        ["show", "nowhere"],
        ["compare", "nowhere", "here"],
        ["average", "nowhere", "here"],
        ["plot", "nowhere", "-o", "x.svg"],
        ["ledger", "show", "nowhere"],
        ["completion", "csh"],
    ],
)
def test_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (ExitStatus.REFUSED, "")
    assert "Traceback" not in result.stderr
    assert "rror: " in result.stderr


@pytest.mark.usefixtures("data")
def test_a_fault_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("streameval.run.orchestrator.carry_out", fail)
    result = run(*STORED, *CSV)
    assert result.exit_code == ExitStatus.FAULT
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_reader_that_is_gone() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{{ sleep 0.5; {PROGRAM} metrics; echo $? >&2; }} | true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == f"{int(ExitStatus.FAULT)}\n"


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, ExitStatus.INTERRUPTED), (signal.SIGTERM, ExitStatus.TERMINATED)],
)
def test_signals(number: signal.Signals, status: ExitStatus) -> None:
    code = (
        "import os\n"
        "from streameval.interruption import Interruption\n"
        "with Interruption():\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    input()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (status, b"interrupted\n")
    assert {128 + one for one in SIGNALS} == {ExitStatus.INTERRUPTED, ExitStatus.TERMINATED}
