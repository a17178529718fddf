"""The last lines of a run of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SOME = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_one(n):
    pytest.skip("no unit")

@pytest.mark.skipif(True, reason="no data")
def test_two(): ...

@pytest.mark.xfail(reason="a fault")
def test_three():
    raise ValueError

def test_four(): ...
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_the_last_lines_say_what_was_skipped_and_why(processes: int, tmp_path: Path) -> None:
    if processes and find_spec("xdist") is None:
        pytest.skip("pytest-xdist is not installed")
    (tmp_path / "conftest.py").write_text("from support.skips import pytest_sessionfinish\n")
    (tmp_path / "test_some.py").write_text(SOME)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command += ["--basetemp", str(tmp_path / "own")]
    more = ["-n", str(processes)] if processes else []
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, *more, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-2:] == ["skipped 3: no unit", "skipped 1: no data"]
