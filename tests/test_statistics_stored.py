"""Statistics on disk: whatever blocks they are read in, all that is read off them is equal."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from spread import with_daily
from support.metrics import compute_metrics
from support.result import (
    StatisticsWriter,
    StoredStatistics,
    load_statistics,
    save_statistics,
)

import streameval as se

QUERIES, GALLERY = 150, 300


@pytest.fixture(scope="module")
def whole() -> se.Evaluation:
    rng = np.random.default_rng(3)
    cam = {"query": rng.integers(0, 3, QUERIES), "gallery": rng.integers(0, 3, GALLERY)}
    labels = {
        side: se.Labels(rng.integers(0, 30, len(cams)) * 2 // (1 + (side == "gallery")), cams)
        for side, cams in cam.items()
    }
    distances = rng.integers(0, 60, (QUERIES, GALLERY)) / 60  # of few values: ties
    return se.evaluate(
        se.Distances(distances), **labels, range=(0, 1), metrics="all", group_by="cam"
    )


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"BLOCK_BYTES": 20_000, "WHOLE_BYTES": 0, "CHUNK": 500}.items():
        monkeypatch.setattr(f"streameval.result.stored.{name}", size)


@pytest.fixture
def read(whole: se.Evaluation, blocks: None, tmp_path: Path) -> se.Evaluation:
    whole.save(tmp_path / "out")
    return se.Evaluation.load(tmp_path / "out")


def same(columns, others) -> None:  # type: ignore[no-untyped-def]
    assert list(columns) == list(others)
    for name in columns:
        np.testing.assert_array_equal(columns[name], others[name], err_msg=name)


def test_what_is_read_in_blocks_is_what_was_written(read: se.Evaluation, whole) -> None:  # type: ignore[no-untyped-def]
    statistics = read.statistics
    assert isinstance(statistics, StoredStatistics)
    assert len(statistics.spans) > 5
    assert statistics.equals(whole.statistics)
    assert pickle.loads(pickle.dumps(statistics)).equals(whole.statistics)
    some = np.arange(QUERIES) % 3 == 1
    for queries in (some, np.flatnonzero(some)[::-1], np.flatnonzero(some), np.zeros(0, int)):
        assert statistics.take(queries).equals(whole.statistics.take(queries))
    kept = np.arange(statistics.indptr[-1]) % 2 == 0
    assert statistics.select_positives(kept).equals(whole.statistics.select_positives(kept))


def test_values_of_blocks_are_those_of_the_whole(read: se.Evaluation, whole) -> None:  # type: ignore[no-untyped-def]
    for name, value in whole.metrics.scalars.items():
        np.testing.assert_equal(read[name], value)
    assert read.intervals == whole.intervals
    assert read.counts == whole.counts
    same(whole.curves, read.curves)
    same(whole.per_query, read.per_query)
    same(whole.positives, read.positives)
    for query in (0, 77, QUERIES - 1):
        np.testing.assert_array_equal(whole.precision_recall(query), read.precision_recall(query))


@pytest.mark.parametrize("by", with_daily(["cam", "id", "cam-pair"], "cam-pair"))
def test_groups_of_blocks_are_those_of_the_whole(read: se.Evaluation, whole, by: str) -> None:  # type: ignore[no-untyped-def]
    groups, expected = read.grouped(by).groups, whole.grouped(by).groups
    assert list(groups) == list(expected)
    for label, metrics in expected.items():
        np.testing.assert_equal(groups[label].scalars, metrics.scalars)
        assert groups[label].counts == metrics.counts


def test_intervals_of_blocks_are_those_of_the_whole(read: se.Evaluation, whole) -> None:  # type: ignore[no-untyped-def]
    found, expected = (one.confidence(resamples=50) for one in (read, whole))
    assert found.reasons == expected.reasons
    for name, ends in expected.intervals.items():
        np.testing.assert_allclose(found.intervals[name], ends, rtol=1e-12)


@pytest.mark.slow
def test_intervals_of_groups_in_blocks_are_those_of_the_whole(read: se.Evaluation, whole) -> None:  # type: ignore[no-untyped-def]
    found, expected = (
        one.grouped("cam").with_confidence(0.9, resamples=40).group_confidence
        for one in (read, whole)
    )
    assert list(found) == list(expected)
    for group, own in expected.items():
        assert found[group].reasons == own.reasons
        for name, ends in own.intervals.items():
            np.testing.assert_allclose(found[group].intervals[name], ends, rtol=1e-12)


@pytest.mark.slow
def test_verification_takes_memory_of_a_block_of_positives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"BLOCK_BYTES": 1 << 20, "WHOLE_BYTES": 0, "CHUNK": 20_000}.items():
        monkeypatch.setattr(f"streameval.result.stored.{name}", size)
    rng = np.random.default_rng(5)
    query, gallery = rng.integers(0, 2, 600), rng.integers(0, 2, 3000)
    names = "EER", "AUC", "F1_best", "TAR|FAR=1e-3", "recall|precision=0.9"
    whole = se.evaluate(
        se.Distances(rng.random((600, 3000))),
        query={"id": query},
        gallery={"id": gallery},
        protocol="no-camera",
        range=(0, 1),
        metrics=names,
    )
    whole.save(tmp_path / "out")
    statistics = load_statistics(tmp_path / "out/statistics.zarr")
    assert isinstance(statistics, StoredStatistics)
    options = se.MetricOptions(metrics=names)
    compute_metrics(statistics, options)  # kernels and codecs are loaded
    tracemalloc.start()
    found = compute_metrics(statistics, options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_equal(found.scalars, whole.metrics.scalars)
    assert peak < 6 << 20 < 8 * statistics.indptr[-1]  # the distances alone


@pytest.mark.slow
def test_results_in_blocks_are_compared_by_their_positives(read: se.Evaluation, whole) -> None:  # type: ignore[no-untyped-def]
    found = [one.difference for one in se.compare(whole, read, resamples=20).differences]
    assert set(np.nan_to_num(found)) == {0}  # NaN where neither has a value
    items = read.statistics.positive_item
    for changed in (0, len(items) // 2, len(items) - 1):
        others = items + (np.arange(len(items)) == changed)
        other = replace(whole, statistics=replace(whole.statistics, positive_item=others))
        for pair in ((read, other), (other, read)):
            with pytest.raises(se.InputError, match="the positives are other items"):
                se.compare(*pair)


def test_a_refined_histogram_is_kept_beside_the_files(read: se.Evaluation, whole) -> None:  # type: ignore[no-untyped-def]
    finer = replace(whole.statistics, histogram_edges=whole.statistics.histogram_edges + 1e-9)
    assert read.statistics.merge_edges(finer).equals(whole.statistics.merge_edges(finer))


def test_blocks_of_any_size_write_the_same(whole: se.Evaluation, tmp_path: Path) -> None:
    statistics = replace(whole.statistics, group=None, group_histogram=None)
    statistics = replace(statistics, impostor_histogram=None, histogram_edges=None)
    writer = StatisticsWriter(tmp_path / "s", QUERIES, int(statistics.indptr[-1]))
    for start, stop in ((0, 0), (0, 1), (1, 40), (40, 40), (40, QUERIES)):
        writer.add(statistics.take(np.arange(start, stop)))
    writer.close()
    assert load_statistics(tmp_path / "s").equals(statistics)


def test_statistics_that_are_replaced_are_refused(read: se.Evaluation, whole, tmp_path) -> None:  # type: ignore[no-untyped-def]
    save_statistics(whole.statistics, tmp_path / "out/statistics.zarr")
    with pytest.raises(se.OutputError, match="replaced or removed since it was opened"):
        _ = read.statistics.closer


def test_a_chunk_that_is_lost_is_refused(read: se.Evaluation, tmp_path: Path) -> None:
    chunks = sorted(
        p for p in (tmp_path / "out/statistics.zarr/closer/c").rglob("*") if p.is_file()
    )
    chunks[-1].unlink()
    with pytest.raises(se.OutputError, match="closer is incomplete"):
        read.positives  # noqa: B018
