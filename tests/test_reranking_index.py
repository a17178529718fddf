"""Re-ranking with neighbours that a FAISS index finds: what is as exact, and what is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from clusters import cluster, labels, write_inputs
from hypothesis import given
from hypothesis import strategies as st
from oracle_reranking import oracle_of_lists, squared_distances
from profiles import examples
from spread import spread, with_daily
from support.cli import main
from support.reranking import (
    copies_module,
    greatest_module,
    indexed_module,
    reranked_module,
)
from test_reranking import PARAMETERS, all_distances, images
from test_reranking_stages import RERANK, Stopped, asking, reranked, run, run_killed

import streameval as se

Array = npt.NDArray[Any]
APPROXIMATE = {"index": "IVF4,Flat", "search": "nprobe=2"}
STOPS = ["index", "neighbors", "greatest", "encoding", "counting"]
# With few rows, FAISS would like more of them.
pytestmark = pytest.mark.filterwarnings("ignore:the index IVF:streameval.StreamevalWarning")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_inputs(tmp_path)


@pytest.mark.parametrize("kind", ["random", "clustered", "few values", "copies", "half"])
@given(data=st.data())
@examples(8)
def test_a_flat_index_gives_the_exact_distances(kind: str, data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries, items = draw(st.integers(1, 12)), draw(st.integers(1, 90))
    options = draw(PARAMETERS)
    rows = images(rng, kind, queries + items, draw(st.sampled_from([3, 33])))
    if kind == "few values" and not rows.any(axis=1).all():
        rows[:, 0] = 1
    metric = draw(st.sampled_from(["cosine", "euclidean", "sqeuclidean"]))
    features = se.Features(rows[:queries], rows[queries:], metric)
    exact, found = se.Reranked(features, **options), se.Reranked(features, index="Flat", **options)
    expected = all_distances(exact)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed_module, "BLOCK_ROWS", draw(st.sampled_from([256, 16])))
        assert np.array_equal(all_distances(found), expected)
        patch.setattr(copies_module, "FEW", draw(st.sampled_from([2.0, 0.0])))
        assert np.array_equal(all_distances(found), expected)


def test_more_candidates_are_fetched_where_many_are_as_far() -> None:
    """Corners of cubes are as far as hundreds of others, and no copies."""
    rows = np.array(np.meshgrid(*[[0.0, 1.0]] * 9)).reshape(9, -1).T.astype(np.float32)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    features = se.Features(rows[:10], rows[10:], "euclidean")
    exact = all_distances(se.Reranked(features))
    assert np.array_equal(all_distances(se.Reranked(features, index="Flat")), exact)


@pytest.mark.parametrize(
    ("metric", "spec", "power"),
    spread(["cosine", "euclidean"], ["IVF16,Flat", "HNSW8", "PQ4x4"], [2, 4], of=3),
)
def test_distances_are_those_of_the_definition_given_the_lists(
    metric: str, spec: str, power: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    rows, shape = images(rng, "clustered", 700, 16), (40, 660)
    search = {"IVF16,Flat": "nprobe=3", "HNSW8": "efSearch=24"}.get(spec, "")
    options: dict[str, Any] = {"k1": 6, "k2": 3, "lambda_": 0.3, "power": power}
    source = se.Reranked(
        se.Features(rows[:40], rows[40:], metric), **options, index=spec, search=search
    )
    kept, rank = [], reranked_module.rank_by_index
    monkeypatch.setattr(greatest_module, "SAMPLE", 3)

    def noted(*given: Any) -> Any:
        kept.append(rank(*given))
        return kept[-1]

    monkeypatch.setattr(reranked_module, "rank_by_index", noted)
    with pytest.MonkeyPatch.context():
        found = all_distances(source)
    ((lists, distance, greatest),) = kept
    squared, own = squared_distances(rows, metric), np.arange(700)
    assert np.array_equal(lists[:, 0], own)
    assert all(len(set(row)) == len(row) for row in lists.tolist())
    near = squared[own[:, None], lists[:, 1:]]
    assert np.array_equal(near, distance[:, 1:])
    order = np.lexsort((lists[:, 1:], near), axis=1)
    assert np.array_equal(order, np.broadcast_to(np.arange(6), order.shape))
    exact = np.array([np.lexsort((own, squared[i], own != i))[:7] for i in range(700)])
    same = np.mean([len({*a} & {*b}) for a, b in zip(lists, exact, strict=True)])
    assert 3 < same < 7  # it is an approximate index
    sample = greatest_module.sample_of(700)
    assert len(sample) == 3
    assert (greatest[40:] < squared[40:].max(axis=1)).any()
    assert np.array_equal(greatest[:40], squared[:40].max(axis=1))
    assert np.array_equal(found, oracle_of_lists(squared, lists, sample, shape, options))
    assert found.min() >= 0
    assert found.max() <= 1


def test_the_sample_is_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.array_equal(greatest_module.sample_of(4096), np.arange(4096))
    sample = greatest_module.sample_of(1_000_000)
    assert len(sample) == 4096
    gaps = np.diff(sample)
    assert gaps.min() > 0
    assert gaps.max() < 2 * 1_000_000 / 4096 + 2
    monkeypatch.setattr(greatest_module, "SAMPLE", 7)
    assert len(greatest_module.sample_of(10)) == 7


@pytest.mark.parametrize("tile", with_daily([None, (25, 170)], (25, 170)))
def test_counts_are_those_of_the_distances(folder: Path, tile: tuple[int, int] | None) -> None:
    source = reranked(folder, **APPROXIMATE)
    matrix = se.Distances(all_distances(source))
    expected = se.evaluate(matrix, **labels(folder), range=(0, 1))
    for threads in (1, 2):  # with Flat, lists do not depend on how many train
        flat = se.evaluate(reranked(folder, index="Flat"), **labels(folder), threads=threads)
        assert flat.statistics.equals(se.evaluate(reranked(folder), **labels(folder)).statistics)
    found = se.evaluate(source, **labels(folder), tile=tile)
    assert found.statistics.equals(expected.statistics)


def test_a_result_says_that_it_is_approximate(folder: Path) -> None:
    source = reranked(folder, **APPROXIMATE)
    assert "FactoryIndex(spec='IVF4,Flat', search='nprobe=2')" in repr(source)
    result = se.evaluate(source, **labels(folder))
    exact = se.evaluate(reranked(folder), **labels(folder))
    (step,) = result.provenance["inputs"]["steps"]
    assert step["name"] == "approximate k-reciprocal"
    images = min(sum(source.shape), 4096)
    assert {**APPROXIMATE, "sample": images}.items() <= step.items()
    assert exact.provenance["inputs"]["steps"][0]["name"] == "k-reciprocal"
    shown = "approximate k-reciprocal (k1 8, k2 3, lambda 0.25, index IVF4,Flat, search nprobe=2, "
    assert f"{shown}sample {images})" in " ".join(str(result).replace("|", " ").split())
    with pytest.raises(se.InputError, match=r"differ in .*index"):
        se.average({"exact": exact, "approximate": result})


def test_few_probes_that_find_too_few_are_an_error(folder: Path) -> None:
    source = reranked(folder, k1=200, index="IVF32,Flat")
    with pytest.raises(
        se.OptionError, match=r"finds \d+ of the 200 nearest images of (query|gallery) row \d+ that"
    ) as caught:
        se.evaluate(source, **labels(folder))
    assert "--search nprobe" in str(caught.value)


def test_collapsed_features(folder: Path) -> None:
    rows = np.ones((300, 5), np.float32)
    features = se.Features(rows[:9], rows[9:])
    expected = all_distances(se.Reranked(features))
    for spec in ("Flat", "IVF4,Flat"):
        source = se.Reranked(features, index=spec, search="nprobe=4" * (spec != "Flat"))
        assert np.array_equal(all_distances(source), expected)
    with pytest.raises(se.InputError, match=r"32 centroids, and there are 22 images, without copi"):
        all_distances(se.Reranked(features, index="IVF32,Flat"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"index": "Nonsense"}, "FAISS makes no index 'Nonsense' for"),
        ({"index": "IVF4,Flat", "search": "efSearch=8"}, "'efSearch=8' can't be set on an index"),
        ({"index": "kept.faiss"}, "index is 'kept.faiss', a file; re-ranking builds an index"),
        ({"index": "IDMap,Flat"}, "leave IDMap out"),
        ({"index": "IVF4096,Flat"}, "has 4096 centroids, and there are"),
        ({"index": 7}, "index is of type int; a factory string of FAISS is needed"),
        ({"search": "nprobe=4"}, "search is 'nprobe=4', and there is no index"),
    ],
)
def test_bad_indexes_are_refused_before_any_work(
    folder: Path, options: dict[str, Any], said: str
) -> None:
    progress = Stopped()
    with pytest.raises((se.OptionError, se.InputError), match=said):
        se.evaluate(reranked(folder, **options), **labels(folder), progress=progress)
    assert progress.passes == []


def test_lengths_that_float32_cannot_square_are_refused(folder: Path) -> None:
    features = [np.load(folder / f"{side}.npy").astype(np.float64) for side in "qg"]
    for scale in (1e20, 1e-20):
        source = se.Reranked(
            se.Features(*(scale * one for one in features), "euclidean"), index="Flat"
        )
        with pytest.raises(se.InputError, match="can't square without loss"):
            se.evaluate(source, **labels(folder))
        se.evaluate(se.Reranked(source.features), **labels(folder))


@pytest.mark.slow
def test_folders_of_other_neighbors_are_refused(folder: Path) -> None:
    for name, first, second in (
        ("exact", {}, APPROXIMATE),
        ("approximate", APPROXIMATE, {}),
        ("probes", APPROXIMATE, {**APPROXIMATE, "search": "nprobe=4"}),
    ):
        kept = folder / name
        before = se.evaluate(reranked(folder, folder=kept, **first), **labels(folder))
        progress = Stopped()
        with pytest.raises(se.OutputError, match="of another evaluation; options differ"):
            se.evaluate(
                reranked(folder, folder=kept, **second), **labels(folder), progress=progress
            )
        assert progress.passes == []
        again = Stopped()
        found = se.evaluate(
            reranked(folder, folder=kept, lambda_=0.7, **first), **labels(folder), progress=again
        )
        assert "index" not in again.passes
        assert not list(kept.rglob("*.faiss*"))
        assert not found.statistics.equals(before.statistics)


@pytest.mark.parametrize("stop", with_daily(STOPS, "counting"))
def test_an_interrupted_run_goes_on(folder: Path, stop: str) -> None:
    kept: dict[str, Any] = {"checkpoint": folder / "kept", "resume": True, "threads": 1}
    given = {**labels(folder), **kept}
    with pytest.raises(KeyboardInterrupt):
        se.evaluate(reranked(folder, **APPROXIMATE), **given, progress=Stopped(stop))
    resumed = Stopped()
    found = se.evaluate(reranked(folder, **APPROXIMATE), **given, progress=resumed)
    assert not (folder / "kept").exists()
    whole = se.evaluate(reranked(folder, **APPROXIMATE), **labels(folder), threads=1)
    assert found.statistics.equals(whole.statistics)
    assert ("index" in resumed.passes) == (stop == "index")


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(stage, marks=pytest.mark.slow if number % 2 else pytest.mark.nightly)
        for number, stage in enumerate(STOPS)
    ],
)
def test_killed_in_any_stage_and_resumed(folder: Path, stage: str) -> None:
    run_killed(folder, stage, **APPROXIMATE)
    kept = {"checkpoint": folder / "kept", "resume": True, "threads": 1}
    found = se.evaluate(reranked(folder, **APPROXIMATE), **labels(folder), **kept)
    whole = se.evaluate(reranked(folder, **APPROXIMATE), **labels(folder), threads=1)
    assert found.statistics.equals(whole.statistics)


@pytest.mark.slow
def test_workers_of_a_cluster_give_the_same(folder: Path) -> None:
    expected = se.evaluate(reranked(folder, **APPROXIMATE), **labels(folder), threads=1)
    with cluster(2) as (_, client):
        found = se.evaluate(reranked(folder, **APPROXIMATE), **labels(folder), client=client)
    assert found.counts == expected.counts
    with cluster(2) as (_, client):
        found = se.evaluate(reranked(folder, index="Flat"), **labels(folder), client=client)
    assert found.statistics.equals(se.evaluate(reranked(folder), **labels(folder)).statistics)


def test_the_plan_counts_the_index(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ["--query=shape:1000x256:float32", "--gallery=shape:2000000x256:float32", "--dry-run"]
    asked = ["evaluate", *shapes, "--rerank=k-reciprocal", "--rerank-index=Flat"]
    with pytest.raises(SystemExit) as caught:
        main([*asked, "--memory=2GB"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "is too small for the index of" in said
    assert "index 2.1 GB" in said
    with pytest.raises(SystemExit) as caught:
        main([*asked, "--memory=6GB"])
    assert caught.value.code == 0
    told = capsys.readouterr().out
    assert "index, neighbors, greatest, encoding, averaging" in told
    assert re.search(r"index +2\.1 GB", told)


INDEXED = ["--rerank-index=IVF4,Flat", "--search=nprobe=2", "--threads=1"]


@pytest.mark.slow
def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = folder / "found"
    table = run(capsys, *asking(folder), RERANK, *INDEXED, f"--out={found}")
    assert "approximate k-reciprocal" in table
    source = reranked(folder, **APPROXIMATE)
    expected = se.evaluate(source, **labels(folder), threads=1)
    assert json.loads((found / "summary.json").read_text())["metrics"]["mAP"] == expected["mAP"]


@pytest.mark.slow
def test_saved_runs_are_compared_and_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, found = folder / "exact", folder / "found"
    run(capsys, *asking(folder), RERANK, *INDEXED, f"--out={found}")
    run(capsys, *asking(folder), RERANK, f"--out={exact}")
    assert "By AP" in run(capsys, "compare", str(exact), str(found))
    run(capsys, "report", str(exact), str(found), f"--out={folder}/report.html")
    assert "approximate k-reciprocal" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rerank-index=Flat"], "give --rerank k-reciprocal"),
        (["--rerank=k-reciprocal", "--search=nprobe=2"], "got --search, which has no effect here"),
        (["--rerank=k-reciprocal", "--rerank-index=No"], "FAISS makes no index 'No'"),
        (["--index=Flat", "-k", "5", "--rerank-index=Flat"], "got --rerank-index, which has no"),
    ],
)
def test_the_command_line_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    asked = [f"--{side}={folder}/{side[0]}.npy" for side in ("query", "gallery")]
    asked += [f"--{side}-ids={folder}/{side[0]}id.npy" for side in ("query", "gallery")]
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", *asked, *arguments])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", f"--distances={folder}/d.zarr", "--rerank-index=Flat"])
    assert "got --rerank-index, which has no effect here" in capsys.readouterr().err
