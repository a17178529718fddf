"""Limits of the address space, ``ulimit -v``: the right number, or one error that says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.package import LEAST_SPACE
from waiting import PATIENCE

import streameval as se

STEP, MOST = 100_000_000, 4_000_000_000  # bytes
FLOOR = LEAST_SPACE >> 10  # KiB, as ulimit takes them
STEPS = [limit >> 10 for limit in range(STEP, MOST + 1, STEP)]
DAILY = [STEPS[0], STEPS[7], FLOOR - 1, FLOOR, STEPS[10], STEPS[11], STEPS[19], STEPS[-1]]
QUERIES, ITEMS, WIDTH = 20, 500, 16
KINDS = {"features": [], "index": ["--index", "Flat", "-k", str(ITEMS)]}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(0)
    for side, count in (("query", QUERIES), ("gallery", ITEMS)):
        np.save(folder / f"{side}.npy", rng.standard_normal((count, WIDTH), dtype=np.float32))
        rows = [f"{a},{b}" for a, b in rng.integers(0, 9, (count, 2))]
        (folder / f"{side}.csv").write_text("\n".join(["id,cam", *rows]))
    return folder


@pytest.fixture(scope="module")
def expected(inputs: Path) -> float:
    sides = {side: se.read_label_table(inputs / f"{side}.csv") for side in ("query", "gallery")}
    result = se.evaluate(se.Features(inputs / "query.npy", inputs / "gallery.npy"), **sides)
    return float(result["mAP"])


def run(inputs: Path, limit: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an address space of so many KiB."""
    command = [sys.executable, "-m", "streameval", *options]
    return subprocess.run(
        ["bash", "-c", 'ulimit -v "$0" && exec "$@"', str(limit), *command],
        cwd=inputs,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def evaluate(inputs: Path, limit: int, *options: str) -> subprocess.CompletedProcess[str]:
    given = [f"--{side}={side}.npy" for side in ("query", "gallery")]
    given += [f"--{side}-labels={side}.csv" for side in ("query", "gallery")]
    return run(inputs, limit, "evaluate", "--json", "--quiet", *given, *options)


def check(inputs: Path, expected: float, limit: int, kind: str) -> None:
    done = evaluate(inputs, limit, "--threads=2", *KINDS[kind])
    told = (limit, done.returncode, done.stderr)
    if done.returncode == 0:
        assert limit >= FLOOR, told
        assert json.loads(done.stdout)["metrics"]["mAP"] == expected, told
        return
    assert done.returncode == 2, told
    assert limit < MOST >> 10, told
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: "), told
    assert ("the address space is limited" in line) == (limit < FLOOR), told
    assert "ulimit -v" in line or "memory budget" in line, told


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", DAILY)
def test_a_limit_ends_in_the_number_or_an_error(
    inputs: Path, expected: float, limit: int, kind: str
) -> None:
    check(inputs, expected, limit, kind)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_every_limit_ends_in_the_number_or_an_error(
    inputs: Path, expected: float, kind: str
) -> None:
    for limit in STEPS:
        check(inputs, expected, limit, kind)


def test_what_loads_no_libraries_is_not_refused(inputs: Path) -> None:
    for options in (["--help"], ["evaluate", "--help"], ["completion", "bash"]):
        done = run(inputs, STEPS[0], *options)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_workers_plan_within_the_limit_that_they_inherit(inputs: Path, expected: float) -> None:
    done = evaluate(inputs, STEPS[19], "--workers=2", f"--memory={MOST}")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: a memory budget of 4,000 MB is more than half of the address")
    found = json.loads(done.stdout)
    assert found["metrics"]["mAP"] == expected
    assert found["provenance"]["plan"]["memory"] <= STEPS[19] << 9


class Failing:
    """A function of distances whose library has no memory."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def __call__(self, queries: slice, items: slice) -> Any:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("std::bad_alloc"), RuntimeError("can't start new thread")]
)
def test_a_failed_allocation_is_not_tried_again(error: Exception) -> None:
    failing = Failing(error)
    sides: dict[str, Any] = {"query": se.Labels(id=[1, 2]), "gallery": se.Labels(id=[1, 2, 2])}
    with pytest.raises(MemoryError, match=str(error)):
        se.evaluate(se.Computed(failing, (2, 3)), **sides, protocol="no-camera", threads=1)
    assert failing.calls == 1
