"""Camera pairs: queries of one camera, their positives of another."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from oracle import Problem
from pyarrow import parquet
from support.metrics import PositiveCameras, metrics_by_camera_pair
from support.result import POSITIVES
from test_cli import ARRAYS, CSV, STORED, data, run
from test_cli_metrics import refused, summary
from test_exactness import evaluate

import streameval as se

__all__ = ["data"]

Array = npt.NDArray[Any]
QUERIES, GALLERY, CAMERAS = 30, 200, 4
OPTIONS = {"range": (0.0, 1.0), "metrics": "CMC@1,CMC@2,CMC@5,mAP,mINP,MREP,P@5,recall@3"}


def problem(seed: int) -> tuple[Array, dict[str, se.Labels]]:
    """Return distances of few values, and labels; the last camera has queries alone."""
    rng = np.random.default_rng(seed)
    sides = {
        "query": se.Labels(rng.integers(0, 9, QUERIES), rng.integers(0, CAMERAS, QUERIES)),
        "gallery": se.Labels(rng.integers(-1, 7, GALLERY), rng.integers(0, CAMERAS - 1, GALLERY)),
    }
    return rng.choice(np.linspace(0, 1, 40), (QUERIES, GALLERY)), sides


def by_hand(
    distances: Array, sides: dict[str, se.Labels], pair: tuple[int, int], *, same_camera: bool
) -> tuple[int, int, list[float], float]:
    """Return queries, positives, CMC at 1, 2, 5, and mAP of a cell, by a sort of each query."""
    query, gallery = sides["query"], sides["gallery"]
    whole = Problem(
        distances, query.id, gallery.id, query.cam, gallery.cam, same_camera=same_camera
    )
    assert query.cam is not None
    assert gallery.cam is not None
    hits, precisions, positives = [], [], 0
    for i in np.flatnonzero(query.cam == pair[0]):
        ignored, same = whole.row(i)
        relevant = same & ~ignored & (gallery.cam == pair[1])
        if not relevant.any():
            continue
        listed = relevant | (~same & ~ignored)
        order = np.lexsort((relevant[listed], distances[i, listed]))  # pessimistic
        rank = np.flatnonzero(relevant[listed][order]) + 1
        hits.append([float(rank[0] <= x) for x in (1, 2, 5)])
        precisions.append(float(np.cumsum(np.arange(1, len(rank) + 1) / rank)[-1] / len(rank)))
        positives += len(rank)
    n = len(hits)
    cmc = [math.fsum(column) / n for column in zip(*hits, strict=True)]
    return n, positives, cmc, math.fsum(precisions) / n if n else math.nan


@pytest.mark.parametrize("protocol", ["market1501", "separate-camera"])
@pytest.mark.parametrize("seed", range(5))
def test_cells_are_those_of_a_sort_of_each_query(seed: int, protocol: str) -> None:
    distances, sides = problem(seed)
    result = evaluate(
        se.Distances(distances), **sides, protocol=protocol, group_by="cam-pair", **OPTIONS
    )
    found = 0
    for query in range(CAMERAS):
        for gallery in range(CAMERAS):
            own = by_hand(
                distances, sides, (query, gallery), same_camera=protocol == "separate-camera"
            )
            if not own[0]:
                assert (query, gallery) not in result.groups
                continue
            cell = result.groups[query, gallery]
            counts = cell.counts["queries"], cell.counts["pairs_positive"]
            assert counts == own[:2]
            assert [cell.scalars[f"CMC@{x}"] for x in (1, 2, 5)] == own[2]
            assert cell.scalars["mAP"] == own[3]
            found += 1
    assert found == len(result.groups) > 6


@pytest.mark.parametrize("ties", ["pessimistic", "optimistic", "stable", "expected"])
def test_a_cell_is_an_evaluation_in_which_other_positives_are_ignored(ties: Any) -> None:
    distances, sides = problem(7)
    query, gallery = sides["query"], sides["gallery"]
    assert query.cam is not None
    assert gallery.cam is not None
    result = evaluate(se.Distances(distances), **sides, ties=ties, group_by="cam-pair", **OPTIONS)
    whole = Problem(distances, query.id, gallery.id, query.cam, gallery.cam)
    for (a, b), cell in result.groups.items():
        rows, good, junk = [], [], []
        for i in np.flatnonzero(query.cam == a):
            ignored, same = whole.row(i)
            relevant = same & ~ignored & (gallery.cam == b)
            if relevant.any():
                rows.append(i)
                good.append(np.flatnonzero(relevant))
                junk.append(np.flatnonzero(ignored | (same & ~relevant)))
        alone = evaluate(
            se.Distances(distances[rows]),
            query=se.Labels(query.id[rows]),
            gallery=se.Labels(gallery.id),
            listed=se.ListedPairs.of(good, junk),
            ties=ties,
            **OPTIONS,
        )
        assert cell.scalars == alone.metrics.scalars
        assert cell.intervals == alone.metrics.intervals


def test_positives_have_their_gallery_items() -> None:
    distances, sides = problem(8)
    rng = np.random.default_rng(8)
    q, g = (rng.standard_normal((n, 16)).astype(np.float32) for n in (QUERIES, GALLERY))
    for source in (se.Distances(distances), se.Features(q, g)):
        result = evaluate(source, **sides, tile=(7, 30), threads=2)
        stats, cams = result.statistics, result.positive_cams
        assert stats.positive_item is not None
        assert cams is not None
        query = np.repeat(np.arange(QUERIES), stats.positives)
        item = stats.positive_item
        assert (sides["gallery"].id[item] == sides["query"].id[query]).all()
        assert np.array_equal(cams.known[cams.codes(stats)], sides["gallery"].cam[item])
        if isinstance(source, se.Distances):
            assert np.array_equal(distances[query, item], stats.positive_distance)


def test_single_gallery_shot_has_no_camera_pairs() -> None:
    distances, sides = problem(9)
    result = evaluate(se.Distances(distances), **sides, protocol="cuhk03", group_by="cam-pair")
    cell = next(iter(result.groups.values()))
    assert "CMC@1" not in cell.scalars
    assert "mAP" in cell.scalars
    with pytest.raises(KeyError, match=r"no metric 'CMC@1' of camera pairs; there are mAP"):
        result.camera_matrix("CMC@1")


def test_as_a_matrix_saved_and_loaded(tmp_path: Path) -> None:
    distances, sides = problem(10)
    names = np.array(["north", "south", "east", "west"])
    query, gallery = sides["query"], sides["gallery"]
    assert query.cam is not None
    assert gallery.cam is not None
    sides = {
        "query": se.Labels(query.id, names[query.cam]),
        "gallery": se.Labels(gallery.id, names[gallery.cam]),
    }
    result = evaluate(se.Distances(distances), **sides)
    matrix = result.camera_matrix("CMC@1")
    assert matrix.query_cams.tolist() == sorted(names)
    assert matrix.gallery_cams.tolist() == ["east", "north", "south"]
    cells = result.grouped("cam-pair").groups
    for a, query_cam in enumerate(matrix.query_cams.tolist()):
        for b, gallery_cam in enumerate(matrix.gallery_cams.tolist()):
            cell = cells.get((query_cam, gallery_cam))
            value = math.nan if cell is None else cell.scalars["CMC@1"]
            assert str(matrix.values[a, b]) == str(value)
    assert np.isnan(matrix.values).any()
    assert np.nansum(result.camera_matrix("pairs_positive").values) == len(
        result.statistics.positive_distance
    )
    result.grouped("cam-pair").save(tmp_path / "out")
    again = se.Evaluation.load(tmp_path / "out")
    assert json.dumps(again.summary()) == json.dumps(result.grouped("cam-pair").summary())
    np.testing.assert_array_equal(
        again.camera_matrix("mAP").values, result.camera_matrix("mAP").values
    )
    cams, item = again.positive_cams, result.statistics.positive_item
    assert cams is not None
    assert cams.item is not None  # each item once, however many positives it is
    assert np.array_equal(cams.item, np.unique(item))
    assert np.array_equal(cams.known[cams.codes(again.statistics)], names[gallery.cam[item]])
    table = parquet.read_table(tmp_path / "out" / POSITIVES)
    twice = np.flatnonzero(table["item"].to_numpy() == item[0])
    assert len(twice) > 1
    other = table["cam"].to_pylist()
    other[twice[-1]] = "none of these"
    for odd, says in (
        (table.slice(1), rf"has {len(item) - 1} rows, and there are {len(item)} positives"),
        (
            table.set_column(table.column_names.index("cam"), "cam", [other]),
            f"has two cameras of gallery item {item[0]}\\)",
        ),
    ):
        parquet.write_table(odd, tmp_path / "out" / POSITIVES)
        with pytest.raises(se.OutputError, match=rf"damaged .*{POSITIVES} {says}"):
            se.Evaluation.load(tmp_path / "out")
    (tmp_path / "out" / POSITIVES).unlink()
    with pytest.raises(se.OutputError, match=r"damaged .*positives have no cameras to group by"):
        se.Evaluation.load(tmp_path / "out")


def test_cameras_that_are_not_there() -> None:
    distances, sides = problem(11)
    query, gallery = sides["query"], sides["gallery"]
    says = "queries have no cameras to group by cam-pair"
    with pytest.raises(se.InputError, match=says):
        se.evaluate(
            se.Distances(distances),
            query=se.Labels(query.id),
            gallery=gallery,
            protocol="no-camera",
            group_by="cam-pair",
        )
    plain = evaluate(
        se.Distances(distances), query=query, gallery=se.Labels(gallery.id), protocol="no-camera"
    )
    with pytest.raises(se.InputError, match="positives have no cameras to group by cam-pair"):
        plain.grouped("cam-pair")
    assert query.cam is not None
    two = PositiveCameras.of(np.array([1, 2]))
    with pytest.raises(se.InputError, match="positive_cam has no camera of gallery item"):
        metrics_by_camera_pair(plain.statistics, query.cam, two)
    odd = PositiveCameras.of(np.ones(GALLERY // 2), np.arange(1, GALLERY, 2))
    with pytest.raises(se.InputError, match=r"no camera of gallery item \d*[02468], a positive"):
        metrics_by_camera_pair(plain.statistics, query.cam, odd)
    bare = replace(plain.statistics, positive_item=None)
    with pytest.raises(se.InputError, match="the statistics hold no positive_item"):
        metrics_by_camera_pair(bare, query.cam, odd)
    with pytest.raises(se.InputError, match=f"query_cam has 1 cameras, and {QUERIES} are needed"):
        metrics_by_camera_pair(plain.statistics, query.cam[:1], two)
    with pytest.raises(se.InputError, match="cam-pair among its further columns"):
        se.Labels([1], more={"cam-pair": np.array([1])})


@pytest.mark.usefixtures("data")
def test_on_the_command_line() -> None:
    found = summary("--group-by", "cam-pair", "--out", "out")["groups"]
    assert found["by"] == "cam-pair"
    loaded = se.Evaluation.load("out")
    for (query, gallery), metrics in loaded.groups.items():
        cell = found["values"][f"{query} → {gallery}"]
        assert (cell["query_cam"], cell["gallery_cam"]) == (query, gallery)
        assert cell["metrics"]["mAP"] == metrics.scalars["mAP"]
    assert len(found["values"]) == len(loaded.groups) > 1
    printed = run(*STORED, *CSV, "--group-by", "cam-pair").stdout
    blocks = [block for block in printed.split("\n\n") if "query cam" in block]
    assert [block.splitlines()[0] for block in blocks] == [
        f"{title}, by camera of positives"
        for title in ("Queries", "CMC@1 in percent", "mAP in percent")
    ]
    matrix = loaded.camera_matrix("mAP")
    for line, row in zip(blocks[2].splitlines()[2:], matrix.values, strict=True):
        assert line.split()[1:] == ["-" if np.isnan(x) else f"{100 * x:.2f}" for x in row]
    no_cams = (*ARRAYS[:4], "--protocol", "no-camera", "--group-by", "cam-pair")
    refused(run(*STORED, *no_cams), "queries have no cameras", "--query-cams and --gallery-cams")
