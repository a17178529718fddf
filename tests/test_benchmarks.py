"""The benchmark measures what it says: its harness, its data and its peers. No time is judged."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result
from support.arrays import digest

import streameval as se

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import (
    cliffs,
    cluster,
    confidence,
    features,
    ledger,
    many,
    memory,
    overview,
    peers,
    scaling,
    single_shot,
    startup,
    stored,
)
from benchmarks.__main__ import CASES, main
from benchmarks.data import make_distances, make_features, make_labels, near_and_far, unit
from benchmarks.figure import Bench, Case, Figure, Outcome, Skip, chosen, run
from benchmarks.measure import in_turn, off_line, ratio, value
from benchmarks.table import build_table

NAMES = [figure.name for case in CASES for figure in case.figures]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a bench that measures next to nothing, once."""
    return Bench(tmp_path, quick=True, rounds=1, shrink=100)


def figures_of(only: str, bench: Bench) -> list[Outcome]:
    return [outcome for case in chosen(CASES, only) for outcome in run(case, bench)]


@pytest.mark.slow
def test_the_command_measures_every_figure_of_a_group() -> None:
    done = invoke("--quick", "--rounds", "1", "--only", "startup", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["quick"] is True
    assert report["machine"]["cores"] >= 1
    declared = {figure.name: figure for case in startup.CASES for figure in case.figures}
    assert [figure["name"] for figure in report["figures"]] == list(declared)
    for figure in report["figures"]:
        assert figure["skipped"] is None
        assert figure["bound"] == declared[figure["name"]].bound
        assert figure["measured"] >= 0
        assert figure["spread"] == [figure["measured"]] * 2
        assert set(figure["medians"]) == set(figure["sides"])


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    kept, file = tmp_path / "data", tmp_path / "report.json"
    arguments = ("--quick", "--rounds", "1", "--only", "*help", "--data", kept, "--json", file)
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    assert "startup/help" in done.stdout
    assert "0.300 s" in done.stdout
    assert [figure["name"] for figure in json.loads(file.read_text())["figures"]] == [
        "startup/help"
    ]
    assert kept.is_dir()


def test_figures_are_listed_and_an_unknown_one_is_refused() -> None:
    listed = [line.split()[0] for line in invoke("--list").stdout.splitlines()]
    assert listed == NAMES
    refused = invoke("--only", "nonsense")
    assert refused.exit_code == 2
    assert "nonsense" in refused.output


def test_figures_are_declared_once_in_the_group_of_their_name() -> None:
    assert len(set(NAMES)) == len(NAMES)
    groups = (
        features,
        stored,
        scaling,
        memory,
        cliffs,
        single_shot,
        startup,
        cluster,
        confidence,
        many,
        overview,
    )
    for group in groups:
        name = group.__name__.rpartition(".")[2].replace("_", "-")
        names = [figure.name for case in group.CASES for figure in case.figures]
        assert names
        assert all(own.startswith(f"{name}/") for own in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    "only",
    [
        "features/*/2-threads/sgemm",
        "stored/*/chunks-a-row",
        "stored/lz4/chunks-all-rows-x1000",
        "overview/*/time",
        "scaling",
        "many",
        "cliffs",
        "cluster",
        "reranking",
        "expansion",
        "single-shot",
        "confidence",
        "memory/stored-a-row/2GB",
        "memory/features-128-float16/2GB",
    ],
)
def test_groups_measure_what_they_declare(only: str, bench: Bench) -> None:
    outcomes = figures_of(only, bench)
    assert outcomes
    for outcome in outcomes:
        assert outcome.skipped is None
        assert outcome.reading is not None
        assert np.isfinite(outcome.reading.value)
        assert json.loads(json.dumps(outcome.to_json()))["name"] == outcome.figure.name
    assert build_table(outcomes).row_count == len(outcomes)
    assert not list(bench.folder.glob("**/*.part"))


def test_a_skipped_case_says_why() -> None:
    def measure(bench: Bench) -> None:
        raise Skip("not [here]")

    case = Case((Figure("a/b", ("x", "y"), 1.0),), measure)  # type: ignore[arg-type]
    (outcome,) = run(case, Bench(Path()))
    assert outcome.met is None
    assert outcome.to_json()["skipped"] == "not [here]"
    assert build_table([outcome]).row_count == 1


def test_sides_are_measured_in_turn_after_a_warm_up() -> None:
    calls: list[str] = []
    samples = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert "".join(calls) == "ab" + "ababab"
    assert {side: len(own) for side, own in samples.items()} == {"a": 3, "b": 3}


@pytest.mark.slow
def test_out_of_patience_three_rounds_will_do() -> None:
    assert len(in_turn({"a": int}, rounds=5, patience=0)["a"]) == 3
    assert len(in_turn({"a": int}, rounds=2, patience=0)["a"]) == 2
    assert len(in_turn({"a": int}, rounds=5)["a"]) == 5


def test_readings_by_hand() -> None:
    reading = ratio({"a": [2.0, 4.0, 9.0], "b": [1.0, 4.0, 3.0]})
    assert reading.value == 4 / 3
    assert (reading.low, reading.pairwise, reading.high) == (1.0, 2.0, 3.0)
    assert value({"a": [1.0, 2.0, 7.0], "b": [1.0, 1.0, 1.0]}).value == 2.0
    straight = {str(size): [3.0 + 2.0 * size] for size in (1, 2, 4, 8)}
    assert off_line(straight).value == pytest.approx(0, abs=1e-12)
    bent = straight | {"4": [1.2 * straight["4"][0]]}
    assert 0.05 < off_line(bent).value < 0.2


def test_bounds_have_a_direction() -> None:
    most, least = Figure("a", ("x",), 2.0), Figure("a", ("x",), 2.0, "at least")
    assert [most.met(x) for x in (1.0, 2.0, 3.0)] == [True, True, False]
    assert [least.met(x) for x in (1.0, 2.0, 3.0)] == [False, True, True]


def test_features_are_clusters_on_disk_and_written_once(tmp_path: Path) -> None:
    written = make_features(tmp_path, 60, 900, 32)
    query, gallery = np.load(written.query), np.load(written.gallery)
    assert (query.shape, gallery.shape, gallery.dtype) == ((60, 32), (900, 32), np.float32)
    assert np.allclose(np.linalg.norm(gallery, axis=1), 1, atol=1e-5)
    result = se.evaluate(written.source("cosine"), **written.labels)
    assert result.counts["queries_positive"] > 30
    assert result["CMC@1"] > 0.5
    again = written.gallery.stat().st_mtime_ns
    assert make_features(tmp_path, 60, 900, 32).gallery.stat().st_mtime_ns == again


def test_half_a_gallery_is_duplicated_with_its_labels(tmp_path: Path) -> None:
    for items in (40, 41):
        written = make_features(
            tmp_path, 5, items, 8, name=f"twice-{items}", transform=unit, duplicated=True
        )
        gallery, ids = np.load(written.gallery), written.labels["gallery"].id
        half = -(-items // 2)
        assert np.array_equal(gallery[half:], gallery[: items - half])
        assert np.array_equal(ids[half:], ids[: items - half])
        assert len(np.unique(gallery, axis=0)) == half


@pytest.mark.parametrize("name", cliffs.FEATURES)
def test_worst_cases_are_what_they_say(name: str) -> None:
    rng = np.random.default_rng(0)
    ordinary = rng.standard_normal((500, 64)).astype(np.float32)
    rows = cliffs.FEATURES[name].transform(ordinary, rng)
    double = rows.astype(np.float64)
    norms = np.linalg.norm(double, axis=1)
    similarity = (double @ double.T / norms / norms[:, None])[np.triu_indices(500, 1)]
    expected = {
        "collapsed": len(np.unique(rows, axis=0)) == 1,
        "nearly": similarity.min() > 1 - 1e-9 and len(np.unique(rows, axis=0)) > 400,
        "int8": rows.dtype == np.int8 and len(np.unique(rows)) > 100,
        "signs": set(np.unique(rows)) == {-1, 1},
        "non": rows.min() >= 0 and abs(similarity.mean() - 0.9) < 0.02,
        "duplicated": bool(np.allclose(norms, 1)),
        "any": 1e-3 <= norms.min() < 1e-2 and 1e2 < norms.max() <= 1e3 * (1 + 1e-6),
        "float16": rows.dtype == np.float16,
    }
    assert expected[name.partition("-")[0]]


@pytest.mark.parametrize("chunks", [(7, 50), (1, 1000), (1000, 30)])
def test_stored_distances_do_not_depend_on_the_layout(
    tmp_path: Path, chunks: tuple[int, int]
) -> None:
    labels = make_labels(20, 300)
    make_distances(tmp_path / "d.zarr", labels, chunks, "lz4")
    matrix = zarr.open_array(tmp_path / "d.zarr", mode="r")[...]
    assert isinstance(matrix, np.ndarray)
    assert matrix.dtype == np.float32
    assert matrix.min() >= 0
    same = labels["query"].id[:, None] == labels["gallery"].id
    assert matrix[same].mean() < 0.7 < matrix[~same].mean()
    negatives = ~same
    assert np.array_equal(matrix[negatives], near_and_far(labels)[negatives])
    whole = digest.total(digest.of_rows(matrix), np.arange(len(matrix)))
    assert peers.bare_read(tmp_path / "d.zarr", 2)() % (1 << 64) == whole


def evaluate_both(
    matrix: np.ndarray, labels: Mapping[str, se.Labels], ties: str
) -> tuple[se.Evaluation, tuple[np.ndarray, float]]:
    query, gallery = labels["query"], labels["gallery"]
    assert query.cam is not None
    assert gallery.cam is not None
    ours = se.evaluate(se.Distances(matrix), query=query, gallery=gallery, ties=ties)  # type: ignore[arg-type]
    arrays = (matrix, query.id, gallery.id, query.cam, gallery.cam)
    cmc, mean_precision = peers.argsort_evaluator(*arrays)
    fast = peers.argsort_evaluator(*arrays, precisions=peers.precisions_in_numpy)
    assert np.array_equal(fast[0], cmc)
    assert fast[1] == pytest.approx(mean_precision, rel=1e-14)
    return ours, (cmc, mean_precision)


@pytest.mark.parametrize("ties", ["optimistic", "stable", "pessimistic"])
def test_the_argsort_evaluator_agrees_where_nothing_is_tied(ties: str) -> None:
    labels = make_labels(60, 700)
    matrix = np.random.default_rng(1).permutation(60 * 700).reshape(60, 700).astype(np.float32)
    ours, (cmc, mean_precision) = evaluate_both(matrix, labels, ties)
    assert ours.counts["ties"] == 0
    assert ours["mAP"] == pytest.approx(mean_precision, rel=1e-12)
    assert np.array_equal(ours.curves["CMC"][: len(cmc)], cmc)


def test_the_argsort_evaluator_lies_between_the_rules_for_ties() -> None:
    labels = make_labels(60, 700)
    matrix = np.random.default_rng(1).integers(0, 40, (60, 700)).astype(np.float32)
    best, (cmc, mean_precision) = evaluate_both(matrix, labels, "optimistic")
    worst, _ = evaluate_both(matrix, labels, "pessimistic")
    assert worst["mAP"] < mean_precision < best["mAP"]
    assert np.all(worst.curves["CMC"][: len(cmc)] <= cmc)
    assert np.all(cmc <= best.curves["CMC"][: len(cmc)])


def test_the_bare_product_covers_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    queries, gallery = (rng.standard_normal((n, 8)).astype(np.float32) for n in (30, 101))
    seen: list[int] = []
    multiply = np.matmul

    def counted(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
        seen.append(out.size)
        return multiply(a, b, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    monkeypatch.setattr(peers, "BLAS_ROWS", 16)
    peers.bare_sgemm(queries, gallery, 40, 2)()
    assert sum(seen) == 30 * 101
    assert max(seen) == 16 * 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "only", ["ledger/append", "ledger/command", "ledger/hard-100", "ledger/segments"]
)
def test_ledger_figures_are_measured(
    only: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ledger holds is compared with a fresh evaluation while it is measured."""
    monkeypatch.setattr(ledger, "MANY", (4, 4))
    outcomes = figures_of(only, bench)
    assert outcomes
    for outcome in outcomes:
        assert outcome.reading is not None
        assert outcome.reading.value >= 0
