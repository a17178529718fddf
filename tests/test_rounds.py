"""Rounds: blocks of queries that are finished one after the other leave the same result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from spread import spread
from support.result import StoredStatistics

import streameval as se

QUERIES, GALLERY, WIDTH = 130, 400, 8


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have 40 queries at most in a round, and statistics read in small blocks."""
    monkeypatch.setattr("streameval.planning.planner._first_round", lambda *_: 40)
    monkeypatch.setattr("streameval.result.stored.BLOCK_BYTES", 30_000)


@pytest.fixture(scope="module")
def problem() -> dict:
    rng = np.random.default_rng(5)
    sides = {"query": QUERIES, "gallery": GALLERY}
    labels = {
        side: se.Labels(rng.integers(0, 50, rows), rng.integers(0, 4, rows))
        for side, rows in sides.items()
    }
    features = [
        rng.integers(-2, 3, (rows, WIDTH)).astype(np.float32) + 0.5 for rows in sides.values()
    ]
    return {"features": features, **labels}


def source_of(problem: dict, kind: str, folder: Path) -> se.Features | se.Distances:
    features = se.Features(*problem["features"], metric="euclidean")
    if kind == "features":
        return features
    query, gallery = (one.astype(np.float64) for one in problem["features"])
    distances = np.sqrt(((query[:, None] - gallery) ** 2).sum(axis=2))
    if kind == "rectangles":
        import zarr

        array = zarr.create_array(
            folder / "d.zarr", data=distances, chunks=(16, 64), config={"write_empty_chunks": True}
        )
        return se.Distances(str(folder / "d.zarr")) if array.shape else se.Distances(distances)
    return se.Distances(distances)


def evaluate(problem: dict, kind: str, folder: Path, **more: object) -> se.Evaluation:
    labels = {side: problem[side] for side in ("query", "gallery")}
    keywords = {"metrics": "all", "range": "minmax", "threads": 2, "memory": 10**9, **more}
    return se.evaluate(source_of(problem, kind, folder), **labels, **keywords)  # type: ignore[arg-type]


CASES = {
    "plain": {},
    "groups": {"group_by": "cam"},
    "refined": {"refine": "EER", "group_by": "cam"},
    "drawn": {"protocol": "cuhk03"},
    "distinct": {"protocol": se.Protocol("distinct", cmc="distinct-identities")},
    "expected": {"ties": "expected"},
}


@pytest.mark.parametrize(
    ("kind", "name"),
    spread(["features", "strips", "rectangles"], CASES, of=3),
)
def test_rounds_leave_the_same_result(
    problem: dict, kind: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    more = CASES[name]
    whole = evaluate(problem, kind, tmp_path, **more)
    request.getfixturevalue("rounds")
    (tmp_path / "again").mkdir()
    parts = evaluate(problem, kind, tmp_path / "again", **more)
    assert not isinstance(whole.statistics, StoredStatistics)
    assert isinstance(parts.statistics, StoredStatistics)
    assert parts.statistics.equals(whole.statistics)
    for name, value in whole.metrics.scalars.items():
        np.testing.assert_equal(parts[name], value)
    assert parts.counts == whole.counts
    assert list(parts.groups) == list(whole.groups)
    for label, metrics in whole.groups.items():
        np.testing.assert_equal(parts.groups[label].scalars, metrics.scalars)
    whole.save(tmp_path / "whole")
    parts.save(tmp_path / "parts")
    loaded = [se.Evaluation.load(tmp_path / name) for name in ("whole", "parts")]
    assert loaded[0].statistics.equals(loaded[1].statistics)


def test_the_temporary_folder_goes_with_the_evaluation(
    problem: dict, tmp_path: Path, rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = evaluate(problem, "features", tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    other = result.with_options(ties="optimistic")
    del result
    assert len(other.statistics.closer) == other.counts["pairs_positive"]
    del other
    assert not list(tmp_path.iterdir())


class Stop(KeyboardInterrupt):
    """What ends a run."""


class Counting(se.Progress):
    """Ends a run where the counting of a round begins."""

    def __init__(self, stop: int) -> None:
        self.left = stop

    def start(self, label: str, pairs: int) -> None:
        self.left -= label == "counting"
        if not self.left:
            raise Stop


@pytest.mark.parametrize(("kind", "stop"), spread(["features", "strips"], [1, 2, 4]))
def test_a_run_goes_on_with_the_rounds_that_are_finished(
    problem: dict, kind: str, stop: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole = evaluate(problem, kind, tmp_path)
    request.getfixturevalue("rounds")
    given = {"checkpoint": tmp_path / "work", "resume": True}
    with pytest.raises(Stop):
        evaluate(problem, kind, tmp_path, **given, progress=Counting(stop))
    assert (tmp_path / "work").exists() == (stop > 1)  # what is finished is kept
    parts = evaluate(problem, kind, tmp_path, **given)
    assert parts.statistics.equals(whole.statistics)
    assert not (tmp_path / "work").exists()


def test_work_in_rounds_goes_on_in_one(
    problem: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate(problem, "features", tmp_path)
    given = {"checkpoint": tmp_path / "work", "resume": True}
    with monkeypatch.context() as patch:
        patch.setattr("streameval.planning.planner._first_round", lambda *_: 40)
        with pytest.raises(Stop):
            evaluate(problem, "features", tmp_path, **given, progress=Counting(3))
    parts = evaluate(problem, "features", tmp_path, **given)  # in the rounds of the record
    assert isinstance(parts.statistics, StoredStatistics)
    assert parts.statistics.equals(whole.statistics)
