"""Rounds: blocks of queries that are finished one after the other leave the same result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from spread import spread, with_daily
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
    spread(["features", "strips", "rectangles"], CASES, of=7),
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


def test_a_result_is_saved_by_links_to_what_the_rounds_have_written(
    problem: dict, tmp_path: Path, rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = evaluate(problem, "features", tmp_path)
    numbers = {file.stat().st_ino for file in tmp_path.rglob("closer/c/*")}
    result.save(tmp_path / "out")
    saved = list((tmp_path / "out").rglob("closer/c/*"))
    assert {file.stat().st_ino for file in saved} == numbers != set()
    averaged = result.with_options({"metrics": ("mAP",), "average": "cam"})
    averaged.save(tmp_path / "averaged")  # other fields: written anew
    values = dict(result.metrics.scalars)
    whole = result.statistics.whole()
    del result, averaged
    assert all(file.stat().st_nlink == 1 for file in saved)
    loaded = se.Evaluation.load(tmp_path / "out")
    assert loaded.statistics.equals(whole)
    np.testing.assert_equal(loaded.metrics.scalars, values)
    again = se.Evaluation.load(tmp_path / "averaged")
    assert again.statistics.equals(whole, ignoring=["mean_group"])


def test_a_result_is_copied_to_another_file_system(
    problem: dict, tmp_path: Path, rounds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    monkeypatch.setattr("tempfile.tempdir", str(memory))
    result = evaluate(problem, "features", tmp_path)
    result.save(tmp_path / "out")
    assert se.Evaluation.load(tmp_path / "out").statistics.equals(result.statistics)


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


@pytest.mark.parametrize(("kind", "stop"), spread(["features", "strips"], [1, 2, 4], of=4))
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


LISTS = {
    "complete": {"k": GALLERY},
    "some": {"k": 20},
    "tightened": {"k": 20, "tighten": True},
    "auto": {"k": "auto"},
    "never": {"k": 20, "missing": "never"},
    "grouped": {"k": 20, "group_by": "cam"},
    "expected": {"k": 20, "ties": "expected"},
    "averaged": {"k": 20, "average": "cam", "metrics": "CMC@1,mAP"},
    "all": {"k": 20, "metrics": "all"},
}


@pytest.mark.parametrize("name", with_daily(LISTS, "some", "tightened"))
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_rounds_of_lists_leave_the_same_result(
    problem: dict, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = dict(LISTS[name])
    making = {key: how.pop(key) for key in ("k", "tighten", "missing") if key in how}
    features = se.Features(*problem["features"], metric="euclidean")
    source = se.Neighbors(features=features, index="Flat", **making)  # type: ignore[arg-type]
    labels = {side: problem[side] for side in ("query", "gallery")}
    given = {"range": (0, 12), "memory": 10**9, **how}
    whole = se.evaluate(source, **labels, **given)  # type: ignore[arg-type]
    monkeypatch.setattr("streameval.result.stored.BLOCK_BYTES", 30_000)
    monkeypatch.setattr("streameval.neighbors.source.MOST_QUERIES", 40)
    monkeypatch.setattr(
        "streameval.neighbors.source._counted_bytes",
        lambda problem, queries: {"pairs": 0, "statistics": 10**9 * (queries == problem.queries)},
    )
    parts = se.evaluate(source, **labels, **given)  # type: ignore[arg-type]
    assert not isinstance(whole.statistics, StoredStatistics)
    assert isinstance(parts.statistics, StoredStatistics)
    assert len(parts.statistics.spans) > 2
    assert same_lists(parts, whole)
    whole.save(tmp_path / "whole")
    parts.save(tmp_path / "parts")
    loaded = [se.Evaluation.load(tmp_path / name) for name in ("whole", "parts")]
    assert same_lists(*loaded)


def same_lists(one: se.Evaluation, other: se.Evaluation) -> bool:
    """Return whether results of lists are equal to the bit, the best statistics too."""
    ends = [(result.statistics, result.lists and result.lists.best) for result in (one, other)]
    for mine, theirs in zip(*ends, strict=True):
        assert (mine is None) == (theirs is None)
        assert not mine or mine.equals(theirs)
    for mine, theirs in ((one.metrics, other.metrics), *zip_groups(one, other)):
        for table in ("scalars", "bounds", "places", "intervals", "curves", "counts", "per_query"):
            np.testing.assert_equal(getattr(mine, table), getattr(theirs, table), table)
    return list(one.groups) == list(other.groups)


def zip_groups(one: se.Evaluation, other: se.Evaluation) -> list[tuple]:
    return [(metrics, other.groups[label]) for label, metrics in one.groups.items()]
