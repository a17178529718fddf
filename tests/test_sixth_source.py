"""A source that the package does not know goes through everything with no other change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client
from support import runs
from support.cli import main
from support.report import plan_blocks, plan_summary, render
from support.sixth_source import Residues

import streameval as se

QUERIES, ITEMS = 40, 900
SOURCE = Residues(QUERIES, ITEMS)
RNG = np.random.default_rng(5)
SIDES = {
    "query": se.Labels(id=RNG.integers(60, size=QUERIES), cam=RNG.integers(3, size=QUERIES)),
    "gallery": se.Labels(id=RNG.integers(60, size=ITEMS), cam=RNG.integers(3, size=ITEMS)),
}


@pytest.fixture(scope="module")
def expected() -> se.Evaluation:
    """Return the evaluation of the same distances, stored."""
    return se.evaluate(se.Distances(SOURCE.read((0, QUERIES), (0, ITEMS))), **SIDES)


def test_evaluated(expected: se.Evaluation) -> None:
    found = se.evaluate(SOURCE, **SIDES)
    assert found.statistics.equals(expected.statistics)
    assert found.metrics.scalars == expected.metrics.scalars


def test_planned() -> None:
    prepared = runs.prepare(SOURCE, **SIDES)
    assert plan_summary([prepared])["pairs"] == QUERIES * ITEMS
    assert "residues (40, 900)" in render(plan_blocks([prepared]), plain=True)


class StopsBeforeCounting(se.Progress):
    def start(self, label: str, pairs: int) -> None:
        if label == "counting":
            raise se.TaskError("stopped")


def test_resumed(tmp_path: Path, expected: se.Evaluation) -> None:
    folder = tmp_path / "kept"
    with pytest.raises(se.TaskError, match="stopped"):
        se.evaluate(SOURCE, **SIDES, checkpoint=folder, progress=StopsBeforeCounting())
    other = Residues(QUERIES, ITEMS)
    other.options = lambda: {"distances": "others"}  # type: ignore[method-assign]
    with pytest.raises(se.OutputError, match="another evaluation"):
        se.evaluate(other, **SIDES, checkpoint=folder, resume=True)
    found = se.evaluate(SOURCE, **SIDES, checkpoint=folder, resume=True)
    assert found.statistics.equals(expected.statistics)
    assert not folder.exists()


@pytest.mark.slow
def test_on_a_cluster(expected: se.Evaluation) -> None:
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        found = se.evaluate(SOURCE, **SIDES, client=client)
    assert found.statistics.equals(expected.statistics)


@pytest.mark.slow
def test_saved_and_reported(tmp_path: Path, expected: se.Evaluation) -> None:
    se.evaluate(SOURCE, **SIDES).save(tmp_path / "result")
    found = se.Evaluation.load(tmp_path / "result")
    assert found.statistics.equals(expected.statistics)
    page = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["report", str(tmp_path / "result"), "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "residues (40, 900)" in page.read_text()
