"""Runs averaged: mean and standard deviation as NumPy gives them; what is refused; saved; shown."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from support.cli import main

import streameval as se

METRICS = ("CMC@1", "mAP", "mINP", "MREP", "MFR", "tau_max", "EER", "DIR@1|FAR=0.1")
PEOPLE = 12


def split(
    seed: int, *, queries: int = 60, width: int = 8, strangers: bool = True, **more: Any
) -> se.Evaluation:
    """Evaluate other people, queries, items and features for each seed."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((PEOPLE, width))
    query = rng.integers(0, PEOPLE, queries)
    gallery = np.r_[np.arange(PEOPLE - 3 * strangers), rng.integers(0, 9, 50 + seed)]
    features = [centres[ids] + rng.standard_normal((len(ids), width)) for ids in (query, gallery)]
    given: dict[str, Any] = {"protocol": "no-camera", "metrics": METRICS, "threads": 1, **more}
    distance = given.pop("distance", "cosine")
    return se.evaluate(
        se.Features(*features, metric=distance),
        query=se.Labels(id=query, cam=np.zeros_like(query)),
        gallery=se.Labels(id=gallery, cam=np.ones_like(gallery)),
        **given,
    )


@pytest.fixture(scope="module")
def splits() -> dict[str, se.Evaluation]:
    return {f"split {at}": split(at, queries=60 + at, width=6 + at) for at in range(1, 5)}


def check(average: se.Average) -> None:
    """Check all that an average says of its runs against NumPy."""
    runs = list(average.runs.values())
    assert average.names == tuple(runs[0].metrics)
    for name in average.names:
        values = np.array([one.metrics.scalars[name] for one in runs])
        np.testing.assert_array_equal(average.values[name], values)
        np.testing.assert_allclose(average.mean[name], np.mean(values), rtol=1e-12)
        detail = average.mean.details[name]
        assert (detail.reason != "") == np.isnan(values).any()
        assert detail.kind == runs[0].metrics.details[name].kind
        expected = np.std(values, ddof=1) if len(runs) > 1 else math.nan
        np.testing.assert_allclose(average.std[name], expected, rtol=1e-12, atol=1e-16)


def test_mean_and_deviation_are_numpys(splits: dict[str, se.Evaluation]) -> None:
    found = se.average(splits)
    check(found)
    assert list(found.runs) == list(splits)
    assert found.mean["rank1"] == found.mean["CMC@1"]
    assert 0 < found.std["mAP"] < 0.2
    assert repr(found).startswith("<Average of 4 runs: CMC@1 ")


def test_neither_depends_on_the_order_of_the_runs(splits: dict[str, se.Evaluation]) -> None:
    found = se.average(splits)
    other = se.average({name: splits[name] for name in reversed(splits)})
    np.testing.assert_equal(dict(other.mean), dict(found.mean))
    np.testing.assert_equal(dict(other.std), dict(found.std))


def test_equal_runs_do_not_deviate() -> None:
    found = se.average([split(1) for _ in range(7)])
    assert list(found.runs) == [f"run {at}" for at in range(1, 8)]
    for name in found.names:
        assert found.mean[name] == found.runs["run 1"][name]
        assert found.std[name] == 0


def test_one_run_has_no_deviation(splits: dict[str, se.Evaluation]) -> None:
    found = se.average([splits["split 1"]])
    check(found)
    assert dict(found.mean) == dict(splits["split 1"].metrics)
    assert all(map(math.isnan, found.std.values()))
    assert found.remarks == ("one run: there is no standard deviation",)
    assert "Note        one run: there is no standard deviation" in str(found)
    assert set(found.summary()["std"].values()) == {None}


def test_without_a_value_in_a_run_there_is_no_mean(splits: dict[str, se.Evaluation]) -> None:
    closed = {name: split(at, strangers=False) for at, name in enumerate(("a", "b"), 5)}
    found = se.average({**splits, **closed})
    check(found)
    reason = closed["a"].metrics.details["MFR"].reason
    assert found.mean.details["MFR"].reason == f"a: {reason}; 1 more run without a value"
    assert se.average(closed).mean.details["MFR"].reason == reason
    assert found.summary()["mean"]["MFR"] is found.summary()["std"]["MFR"] is None
    assert str(found).count(reason) == 2  # of GOM and of the open set


def test_the_mean_curve_is_that_of_the_ranks_all_have(splits: dict[str, se.Evaluation]) -> None:
    found = se.average(splits)
    curves = [one.curves["CMC"] for one in splits.values()]
    assert len({len(curve) for curve in curves}) > 1
    least = min(map(len, curves))
    expected = np.mean([curve[:least] for curve in curves], axis=0)
    np.testing.assert_allclose(found.mean.curves["CMC"], expected, rtol=1e-12)
    assert found.mean.curves["CMC"][0] == found.mean["CMC@1"]
    assert list(found.mean.curves) == ["CMC"]


def test_error_bounds_and_ties_are_averaged_too() -> None:
    rng = np.random.default_rng(0)
    names = ("CMC@1", "mAP", "EER")
    ids = np.arange(30) % 6
    runs = [
        se.evaluate(
            se.Distances(rng.integers(0, levels, (30, 30)) / 8),
            query=se.Labels(id=ids),
            gallery=se.Labels(id=ids),
            protocol="no-camera",
            metrics=names,
        )
        for levels in (4, 4, 1000)
    ]
    found = se.average(runs)
    check(found)
    errors = [one.metrics.details["EER"].error for one in runs]
    assert max(errors) > 0
    assert found.mean.details["EER"].error == pytest.approx(np.mean(errors))
    low, high = found.mean.intervals["mAP"]
    assert low <= found.mean["mAP"] <= high
    ends = [one.intervals.get("mAP", (one["mAP"],) * 2) for one in runs]
    assert (low, high) == pytest.approx(tuple(np.mean(ends, axis=0)))
    assert "by ties" in str(found)


def test_of_lists_the_bounds_are_averaged() -> None:
    rng = np.random.default_rng(1)
    ids = np.arange(20) % 5
    drawn = (se.Features(*rng.standard_normal((2, 20, 4))) for _ in range(3))
    runs = [
        se.evaluate(
            se.Neighbors(features=features, index="Flat", k=4),
            query=se.Labels(id=ids),
            gallery=se.Labels(id=ids),
            protocol="no-camera",
            metrics="CMC@1,mAP",
        )
        for features in drawn
    ]
    found = se.average(runs)
    check(found)
    assert math.isnan(found.mean["mAP"])
    bounds = [one.metrics.bounds["mAP"] for one in runs]
    assert found.mean.bounds["mAP"] == pytest.approx(tuple(np.mean(bounds, axis=0)))
    assert found.summary()["bounds"]["mAP"] == list(found.mean.bounds["mAP"])
    low, high = (f"{100 * end:.2f}" for end in found.mean.bounds["mAP"])
    assert f"{low} - {high} %" in str(found)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("protocol: name no-camera and market1501", {"protocol": "market1501"}),
        ("protocol: junk_ids", {"junk_ids": [3]}),
        ("distance: metric cosine and euclidean", {"distance": "euclidean"}),
        ("options: ties pessimistic and optimistic", {"ties": "optimistic"}),
        ("options: ap step and trapezoid", {"ap": "trapezoid"}),
        ("options: range auto and 0,2.5", {"range": (0.0, 2.5)}),
    ],
)
def test_runs_under_other_rules_are_refused(
    splits: dict[str, se.Evaluation], kind: str, more: dict[str, Any]
) -> None:
    with pytest.raises(se.InputError, match=f"split 1 and odd differ in {kind}"):
        se.average({**splits, "odd": split(9, **more)})


def test_stored_distances_are_not_of_a_known_distance(splits: dict[str, se.Evaluation]) -> None:
    stored = se.evaluate(
        se.Distances(np.ones((2, 2))),
        query=se.Labels(id=[0, 1]),
        gallery=se.Labels(id=[0, 1]),
        protocol="no-camera",
        range=(0, 2),
    )
    with pytest.raises(se.InputError, match="differ in distance: metric cosine and None"):
        se.average([splits["split 1"], stored])


def test_metrics_that_not_all_runs_have(splits: dict[str, se.Evaluation]) -> None:
    runs = {**splits, "few": splits["split 1"].with_options(metrics="mAP,CMC@1")}
    with pytest.raises(se.InputError, match=r"few has no mINP, .*, which other runs have: .*--met"):
        se.average(runs)
    found = se.average(runs, metrics="CMC@1,mAP")
    check(found)
    assert found.names == ("CMC@1", "mAP")
    with pytest.raises(se.OptionError, match="mAPP"):
        se.average(runs, metrics="mAPP")


def test_a_run_comes_once(splits: dict[str, se.Evaluation], tmp_path: Path) -> None:
    one = splits["split 1"]
    with pytest.raises(se.InputError, match="a and b are the same run"):
        se.average({"a": one, "b": one})
    one.save(tmp_path / "a")
    (tmp_path / "link").symlink_to("a")
    for other in ("link", "../" + tmp_path.name + "/a"):
        with pytest.raises(se.InputError, match="are the same run"):
            se.average([tmp_path / "a", tmp_path / other])
    with pytest.raises(se.OptionError, match="all different"):
        se.average([tmp_path / "a", tmp_path / "a"])
    with pytest.raises(se.OptionError, match="all different"):
        se.average({1: one, "1": splits["split 2"]})  # type: ignore[dict-item]


@pytest.mark.parametrize("results", [[], {}, (), "folder", Path("folder"), None])
def test_no_runs_are_no_average(results: Any) -> None:
    with pytest.raises(se.OptionError, match=r"no runs to average|a mapping of names"):
        se.average(results)


def test_an_evaluation_is_no_list_of_runs(splits: dict[str, se.Evaluation]) -> None:
    with pytest.raises(se.OptionError, match="results is of type Evaluation"):
        se.average(splits["split 1"])  # type: ignore[arg-type]
    with pytest.raises(se.OptionError, match="a run is called std"):
        se.average({"std": splits["split 1"]})


def test_tables_as_dataframes(splits: dict[str, se.Evaluation]) -> None:
    pytest.importorskip("pandas")
    found = se.average(splits)
    metrics = found.to_pandas()
    assert metrics["mean"].to_dict() == dict(found.mean)
    assert metrics["std"].to_dict() == dict(found.std)
    runs = found.to_pandas("runs")
    assert list(runs.index) == list(splits)
    np.testing.assert_allclose(runs.mean(), metrics["mean"], rtol=1e-12)
    np.testing.assert_allclose(runs.std(), metrics["std"], rtol=1e-12)
    with pytest.raises(se.OptionError, match="known: metrics, runs"):
        found.to_pandas("queries")  # type: ignore[arg-type]


# Saved -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_saved_and_loaded_is_the_same(splits: dict[str, se.Evaluation]) -> None:
    found = se.average({f"regdb/{name}": one for name, one in splits.items()})
    found.save("out")
    names = [f"regdb-{name}" for name in splits]
    assert sorted(path.name for path in Path("out").iterdir()) == [*names, "summary.json"]
    for name, run in zip(names, splits.values(), strict=True):
        assert se.Evaluation.load(Path("out", name)).statistics.equals(run.statistics)
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary == json.loads(json.dumps(found.summary()))
    assert list(summary["runs"]) == list(found.runs)
    assert summary["runs"]["regdb/split 2"]["metrics"]["mAP"] == splits["split 2"]["mAP"]
    again = se.Average.load("out")
    assert list(again.runs) == list(found.runs)
    assert again.summary() == found.summary()
    with pytest.raises(se.OutputError, match="out exists already"):
        found.save("out")
    again.save("out", overwrite=True)
    se.average([splits["split 1"]]).save("out", overwrite=True)
    assert sorted(path.name for path in Path("out").iterdir()) == ["run 1", "summary.json"]
    splits["split 1"].save("out", overwrite=True)
    assert "mAP" in se.Evaluation.load("out")


@pytest.mark.parametrize("foreign", ["notes.txt", "a/notes.txt", "b/notes.txt"])
@pytest.mark.usefixtures("folder")
def test_a_folder_that_holds_anything_else_is_not_replaced(
    splits: dict[str, se.Evaluation], foreign: str
) -> None:
    found = se.average({"a": splits["split 1"]})
    found.save("out")
    Path("out/b").mkdir()
    Path("out", foreign).write_text("precious")
    with pytest.raises(se.OutputError, match="which is no part of a result"):
        found.save("out", overwrite=True)
    assert Path("out", foreign).read_text() == "precious"


@pytest.mark.usefixtures("folder")
def test_an_average_that_is_not_complete_is_not_there(
    splits: dict[str, se.Evaluation], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = se.Evaluation.write

    def fail(run: se.Evaluation, place: Path) -> None:
        if run is splits["split 3"]:
            raise OSError(28, "No space left on device")
        write(run, place)

    monkeypatch.setattr(se.Evaluation, "write", fail)
    with pytest.raises(se.OutputError, match="No space left"):
        se.average(splits).save("deep/out")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("a/b", "a-b"), "a/b and a-b have the same folder, a-b"),
        (("A", "a"), "A and a have the same folder"),
        (("..", "b"), "called '..' has no folder"),
        (("summary.json", "b"), "has no folder of its name"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_names_that_are_no_folders(
    splits: dict[str, se.Evaluation], names: tuple[str, str], words: str
) -> None:
    found = se.average(dict(zip(names, splits.values(), strict=False)))
    with pytest.raises(se.OptionError, match=words):
        found.save("out")
    assert not Path("out").exists()


@pytest.mark.usefixtures("folder")
def test_an_average_is_no_result_and_no_result_an_average(
    splits: dict[str, se.Evaluation],
) -> None:
    se.average(splits).save("out")
    with pytest.raises(se.OutputError, match="out is an average of runs; give the folders"):
        se.Evaluation.load("out")
    for other in ("out/split 1", "absent"):
        with pytest.raises(se.OutputError, match=f"{other} is no average"):
            se.Average.load(other)


# The command -----------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["average", *arguments])


@pytest.fixture
def saved(splits: dict[str, se.Evaluation], folder: Path) -> list[str]:
    for name, one in splits.items():
        one.save(name)
    return list(splits)


def test_the_command_prints_the_average(splits: dict[str, se.Evaluation], saved: list[str]) -> None:
    found = se.average(splits)
    assert run(*saved).stdout == f"{found}\n"
    summary = json.loads(run(*saved, "--json").stdout)
    assert summary == json.loads(json.dumps(found.summary()))
    chosen = json.loads(run(*saved, "--json", "--metrics", "mAP,R-precision").stdout)
    assert chosen["mean"].keys() == {"mAP", "R-precision"}
    named = json.loads(run(*saved[:2], "--label", "a", "--label", "b", "--json").stdout)
    assert list(named["runs"]) == ["a", "b"]


def test_tables_for_programs(splits: dict[str, se.Evaluation], saved: list[str]) -> None:
    found = se.average(splits)
    heading, *rows = csv.reader(io.StringIO(run(*saved, "--format", "csv").stdout))
    assert [row[0] for row in rows] == [*saved, "mean", "std"]
    for row, values in zip(rows, [*splits.values(), found.mean, found.std], strict=True):
        of_metrics = dict(zip(heading, row, strict=True))
        for name in found.names:
            assert float(of_metrics[name]) == values[name]  # type: ignore[index]
    latex = run(*saved, "--format", "latex", "--metrics", "mAP,tau_max").stdout
    mean, deviation = (f"{100 * of['mAP']:.2f}" for of in (found.mean, found.std))
    assert f"\nmean & {found.mean['tau_max']:.2f} & {mean} \\\\\nstd & " in latex or (
        f"\nmean & {mean} & {found.mean['tau_max']:.2f} \\\\\nstd & {deviation} & " in latex
    )
    assert run(*saved, "--format", "parquet", "--out", "rows.parquet").exit_code == 0
    assert pq.read_table("rows.parquet")["mAP"].to_pylist()[-2:] == [
        found.mean["mAP"],
        found.std["mAP"],
    ]


def test_intervals_of_runs_are_not_of_their_mean(splits: dict[str, se.Evaluation]) -> None:
    runs = {name: one.with_confidence(resamples=20) for name, one in splits.items()}
    assert str(se.average(runs)) == str(se.average(splits))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "got no result to average"),
        (("split 1", "split 1"), "two results are called the same"),
        (("split 1", "./split 1"), "are the same run"),
        (("split 1", "split 1", "--label", "a", "--label", "b"), "a and b are the same run"),
        (("split 1", "split 2", "--label", "a"), "got 1 --label for 2 results"),
        (("split 1", "absent"), "absent is not a saved result"),
        (("split 1", "--format", "parquet"), "give a file"),
    ],
)
@pytest.mark.usefixtures("saved")
def test_refused(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
