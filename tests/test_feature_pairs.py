"""Listed pairs of features, cut into parts: each pair once, whatever the cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
import zarr
from reference import canonical_distances
from support.planning import Task
from support.runs import prepare
from test_exactness import evaluate, labels, oracle

import streameval as se
from streameval import InputError

QUERIES, GALLERY, WIDTH = 60, 300, 16
ROW_BYTES = 4 * WIDTH
ROWS, PAIRS = 40, 50  # of a part, at most

Array = npt.NDArray[Any]


@pytest.fixture(params=["in memory", "in chunks"])
def features(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Array, Array, se.Features]:
    """Return queries, gallery, and the source of both."""
    rng = np.random.default_rng(0)
    q, g = (rng.standard_normal((rows, WIDTH)).astype(np.float32) for rows in (QUERIES, GALLERY))
    if request.param == "in memory":
        return q, g, se.Features(q, g)
    zarr.create_array(tmp_path / "g.zarr", data=g, chunks=(70, WIDTH))
    return q, g, se.Features(q, tmp_path / "g.zarr")


@pytest.fixture(params=[1, 7, 25, 1000])
def near(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let so many query rows stay in a cache; gallery rows are read again for any of them.

    Parts are small: of few gallery rows, and few pairs.
    """
    of = "streameval.sources.feature_pairs"
    monkeypatch.setattr(f"{of}.QUERY_BYTES", request.param * ROW_BYTES)
    monkeypatch.setattr(f"{of}.PAIRS_OF_ROW", 0)
    monkeypatch.setattr(f"{of}.PART_BYTES", ROWS * ROW_BYTES)
    monkeypatch.setattr(f"{of}.PAIRS", PAIRS)
    return int(request.param)


@pytest.mark.parametrize("first", [0, 13])
@pytest.mark.parametrize(("share", "most"), [(0, 300), (0.002, 299), (0.1, 10**6), (1, 10**6)])
def test_each_pair_is_in_one_part(
    features: tuple[Array, Array, se.Features],
    near: int,
    share: float,
    most: int,
    first: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streameval.sources.feature_pairs.MOST_NARROW", most)
    *_, source = features
    rng = np.random.default_rng(1)
    blocks = [(first, 27), (27, QUERIES)]
    plan = prepare(source, **labels(rng, QUERIES, GALLERY), threads=2).plan
    plan = replace(plan, tasks=tuple(Task(block, (0, GALLERY)) for block in blocks))
    query, item = np.nonzero(rng.random((QUERIES - first, GALLERY)) < share)
    query += first
    seen = np.zeros(len(query), np.int64)
    indptr = np.searchsorted(query, np.arange(first, QUERIES + 1))
    for chosen, part in source.pair_parts(plan, indptr, item):
        seen[chosen] += 1
        assert part.queries in blocks
        assert np.array_equal(part.query + part.queries[0], query[chosen])
        for numbers in (chosen, part.query, part.item):
            assert numbers.itemsize == (4 if most >= GALLERY else 8)
        assert np.array_equal(part.item, item[chosen])
        assert part.gallery == (part.item.min(), part.item.max() + 1)
        assert part.pairs == len(chosen)
        if source.gallery.edges is None:
            assert np.ptp(query[chosen]) < near
            assert len(np.unique(part.item)) <= ROWS
            assert len(chosen) <= PAIRS
    assert np.all(seen == 1)


def test_counts_do_not_depend_on_the_cut(
    features: tuple[Array, Array, se.Features], near: int
) -> None:
    q, g, source = features
    sides = labels(np.random.default_rng(2), QUERIES, GALLERY)
    result = evaluate(source, **sides, threads=2)
    distances = canonical_distances(q, g, "cosine")
    assert result.statistics.equals(oracle(distances, sides, result.statistics.thresholds))


def test_counts_do_not_depend_on_where_junk_lies() -> None:
    rng = np.random.default_rng(3)
    q, g = (rng.standard_normal((rows, WIDTH)).astype(np.float32) for rows in (QUERIES, 2000))
    sides = labels(rng, QUERIES, 2000)
    sides["gallery"].id[:1200] = -1
    source = se.Features(q, g)
    cuts = [task.gallery[1] for task in prepare(source, **sides, threads=2).plan.tasks]
    assert cuts[0] > 1050
    result = evaluate(source, **sides, threads=2)
    distances = canonical_distances(q, g, "cosine")
    assert result.statistics.equals(oracle(distances, sides, result.statistics.thresholds))


def test_rows_that_are_read_in_both_passes_are_vouched_for(tmp_path: Path) -> None:
    q, g, sides = _many_positives()
    np.save(tmp_path / "g.npy", g)
    np.save(tmp_path / "q.npy", q)
    result = evaluate(se.Features(tmp_path / "q.npy", tmp_path / "g.npy"), **sides, threads=2)
    assert result.provenance["read"].keys() == {"query", "gallery"}


def test_a_gallery_that_changes_between_passes_is_refused() -> None:
    q, g, sides = _many_positives()
    drawn = iter(range(10**6))

    def block(block_info: Any = None) -> Array:
        return g[:50] + np.float32(next(drawn))

    chunks = ((50,) * (len(g) // 50), (WIDTH,))
    changing = da.map_blocks(block, chunks=chunks, dtype="f4", meta=np.empty((0, 0), "f4"))
    with pytest.raises(InputError, match="are not the same when read again"):
        evaluate(se.Features(q, changing, name="changing"), **sides)


def test_a_bad_row_that_no_pair_lists_is_not_read() -> None:
    q, g, sides = _many_positives()
    distances = canonical_distances(q, g, "cosine")
    distances[:, 20] = 9
    lists = np.argsort(distances, axis=1)[:, :100]
    g[20] = np.nan
    source = se.Neighbors(
        lists,
        np.take_along_axis(distances, lists, axis=1),
        features=se.Features(q, g),
        missing="never",
        canonical=True,
    )
    assert evaluate(source, **sides).statistics.positive_distance.size > GALLERY


def _many_positives() -> tuple[Array, Array, dict[str, se.Labels]]:
    """Return features with more positives than gallery rows; no query has the first of these."""
    rng = np.random.default_rng(4)
    q, g = (rng.standard_normal((rows, WIDTH)).astype(np.float32) for rows in (QUERIES, GALLERY))
    sides = labels(rng, QUERIES, GALLERY)
    sides["gallery"].id[:7] = 77
    return q, g, sides
