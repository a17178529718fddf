"""The command line: metrics by name, presets, groups, the list of metrics, conventions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner, Result
from support.cli import main
from support.metrics import METRICS
from test_cli import ARRAYS, CSV, QUERIES, STORED, data, run

import streameval as se
from streameval import PRESETS, PROTOCOLS

__all__ = ["data"]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def summary(*arguments: str) -> dict[str, Any]:
    result = run(*STORED, *CSV, *arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(result: Result, *says: str) -> None:
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    for words in says:
        assert words in result.stderr


@pytest.mark.usefixtures("data")
def test_metrics_by_name() -> None:
    found = summary("--metrics", "mAP@10/total, CMC@3,DIR@1|FAR=0.5")
    assert list(found["metrics"]) == ["CMC@3", "mAP@10/total", "DIR@1|FAR=0.5"]
    assert found["options"]["metrics"] == ["mAP@10/total", "CMC@3", "DIR@1|FAR=0.5"]
    everything = summary("--metrics", "all")
    assert everything["metrics"].items() >= summary()["metrics"].items()
    detail = everything["details"]["DIR@1|FAR=0.1"]
    assert detail.keys() <= {"reason", "threshold", "threshold_error"}


@pytest.mark.usefixtures("data")
def test_a_saved_result_keeps_its_metrics_and_groups() -> None:
    printed = summary("--metrics", "P@5,mAP", "--group-by", "cam", "--out", "out")
    loaded = se.Evaluation.load("out")
    again = json.loads(json.dumps(loaded.summary()))
    assert again["metrics"] == printed["metrics"] == {"mAP": loaded["mAP"], "P@5": loaded["P@5"]}
    assert again["groups"] == printed["groups"]
    assert again["groups"]["values"]["0"].keys() == {"metrics", "details", "counts"}
    names = pq.read_table("out/per_query.parquet").column_names
    assert {"id", "cam", "P@5", "AP"} <= set(names)
    more = loaded.with_options(metrics=("TTR/set|FTR=0.5",))
    more.save("more")
    with np.load("more/curves.npz") as curves:
        assert set(curves) == {"ROC_tau", "FAR", "TTR/set"}
    assert list(more.metrics.scalars) == ["TTR/set|FTR=0.5"]
    assert more["TTR/set|FTR=5e-1"] == more.metrics.scalars["TTR/set|FTR=0.5"] or np.isnan(
        more["TTR/set|FTR=5e-1"]
    )
    with pytest.raises(KeyError, match="no metric 'mAP'"):
        more["mAP"]
    with pytest.raises(se.OptionError, match="EER needs impostor_histogram"):
        loaded.with_options(metrics=("EER",))


@pytest.mark.usefixtures("data")
def test_groups_of_a_column_and_of_an_array() -> None:
    by_cam = summary("--group-by", "cam")["groups"]
    assert by_cam["by"] == "cam"
    assert sum(group["counts"]["queries"] for group in by_cam["values"].values()) == QUERIES
    np.save("day.npy", np.load("query_cam.npy").astype("U"))
    by_array = summary("--group-by", "day.npy")["groups"]
    assert by_array == {"by": "group", "values": by_cam["values"]}
    printed = run(*STORED, *CSV, "--group-by", "cam", "--metrics", "mAP,EER,AUC").stdout
    assert "not by group" not in printed
    of_group = summary("--group-by", "cam", "--metrics", "EER")["groups"]["values"]
    assert all(0 < group["metrics"]["EER"] < 1 for group in of_group.values())
    result = run(*STORED, *CSV, "--group-by", "id", "--metrics", "mAP")
    assert "not by group" not in result.stdout
    assert result.exit_code == 0
    table = result.stdout[result.stdout.index("id  queries") :].split("\n\n")[0].splitlines()
    assert len(table) == 1 + len(np.unique(np.load("query_id.npy")))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("by", ["cam", "cam-pair"])
def test_groups_as_a_table(by: str) -> None:
    groups = summary("--group-by", by, "--metrics", "CMC@1,mAP", "--out", "out")["groups"]
    with Path("out/groups.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(groups["values"])
    labels = ("query_cam", "gallery_cam") if by == "cam-pair" else (by,)
    for row, (label, group) in zip(rows, groups["values"].items(), strict=True):
        assert " → ".join(row[one] for one in labels) == label
        assert {name: int(row[name]) for name in group["counts"]} == group["counts"]
        for name, value in group["metrics"].items():
            assert (float(row[name]) if row[name] else None) == value
    run(*STORED, *CSV, "--out", "out", "--overwrite")
    assert not Path("out/groups.csv").exists()


@pytest.mark.usefixtures("data")
def test_metrics_that_have_no_room_beside_a_group_are_not_left_out_silently() -> None:
    grouped = (*STORED, *CSV, "--group-by", "cam")
    few = run(*grouped, "--metrics", "CMC@1,mAP").stdout
    assert "metrics of each group" not in few
    many = run(*grouped, "--metrics", "retrieval,tau_max,MREP").stdout
    said = next(line for line in many.splitlines() if "metrics of each group" in line)
    head = next(line for line in many.splitlines() if line.startswith("cam  queries"))
    found = summary("--group-by", "cam", "--metrics", "retrieval,tau_max,MREP")
    assert said.startswith(f"{len(head.split()) - 2} of {len(found['metrics'])} metrics")
    assert "groups.csv" in said
    assert len(said) <= 80


@pytest.mark.usefixtures("data")
def test_groups_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("work has begun")

    monkeypatch.setattr("streameval.run.orchestrator.carry_out", work)
    np.save("short.npy", np.arange(QUERIES - 1))
    says = ("has 9 entries", "10 queries", "one label a query")
    refused(run(*STORED, *CSV, "--group-by", "short.npy"), *says)
    refused(run(*STORED, *CSV, "--group-by", "day"), "no column day", "id, cam, key")
    refused(run(*STORED, *CSV, "--group-by", "key"), "no column 'key'", "id, cam")
    refused(run(*STORED, *ARRAYS, "--group-by", "day"), "no column 'day'", "id, cam")
    without = (*ARRAYS[:4], "--protocol", "no-camera")
    refused(run(*STORED, *without, "--group-by", "cam"), "no column 'cam'", "the queries have id:")
    refused(run(*STORED, *CSV, "--group-by", "absent.npy"), "absent.npy does not exist")


@pytest.mark.usefixtures("data")
def test_metrics_that_cannot_be() -> None:
    refused(run(*STORED, *CSV, "--metrics", "nAP"), "unknown metric 'nAP'", "mAP")
    refused(run(*STORED, *CSV, "--metrics", "CMC@0"), "'0'", "a positive integer")
    refused(run(*STORED, *CSV, "--refine", "mAP"), "mAP has no threshold", "TAR|FAR={f}, FNMR")
    refused(run(*STORED, *CSV, "--as", "mars"), "--as is 'mars'", "torchreid, fastreid")


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_a_preset_is_its_options(preset: Any) -> None:
    found = summary("--as", preset.name)
    assert set(found["metrics"]) == set(preset.metrics)
    assert found["provenance"]["protocol"]["name"] == preset.protocol
    assert found["provenance"]["protocol"]["cmc"] == found["options"]["cmc"]
    for name, value in preset.options.items():
        assert found["options"][name] == value
    if preset.range is not None:
        assert found["options"]["range"]["mode"] == preset.range
    if preset.junk_ids is not None:
        assert found["provenance"]["protocol"]["junk_ids"] == list(preset.junk_ids)
    assert found["provenance"]["preset"] == {"name": preset.name, "remark": preset.remark}
    # In Python, too.
    named = se.evaluate(
        se.Distances("distances.zarr"),
        query=se.read_label_table("query.csv"),
        gallery=se.read_label_table("gallery.csv"),
        preset=preset.name,
    )
    assert json.loads(json.dumps(named.summary()))["metrics"] == found["metrics"]


@pytest.mark.usefixtures("data")
def test_a_difference_that_remains_is_printed_with_the_result() -> None:
    def words(*asked: str) -> str:
        done = call(*asked)
        assert done.exit_code == 0, done.stderr
        return " ".join(done.stdout.split())

    remark = "Differences oml: a query without a positive makes its precision NaN"
    assert remark in words("evaluate", *STORED, *CSV, "--as", "oml", "--out", "oml")
    assert remark in words("show", "oml")
    assert "Differences" not in words("evaluate", *STORED, *CSV, "--as", "torchreid")
    assert "Differences" not in words("evaluate", *STORED, *CSV)


@pytest.mark.usefixtures("data")
def test_what_is_given_goes_before_the_preset() -> None:
    given = ("--as", "oml", "--ties", "optimistic", "--protocol", "market1501", "--junk-id", "3")
    found = summary(*given, "--metrics", "mAP")
    assert found["options"]["ties"] == "optimistic"
    assert found["provenance"]["protocol"]["name"] == "market1501"
    assert found["provenance"]["protocol"]["junk_ids"] == [3]
    assert list(found["metrics"]) == ["mAP"]
    assert summary("--as", "oml", "--protocol", "market1501")["provenance"]["protocol"][
        "junk_ids"
    ] == [-1]
    first = summary("--as", "open-reid", "--protocol", "market1501")
    assert first["options"]["cmc"] == "first-match"


def test_presets_name_what_exists() -> None:
    for preset in PRESETS.values():
        assert preset.protocol in PROTOCOLS
        se.MetricOptions(**preset.options, metrics=preset.metrics)


@pytest.mark.usefixtures("data")
def test_conventions_of_a_metric_without_a_value_under_one_of_them() -> None:
    np.save("tied.npy", np.zeros(zarr.open_array(STORED[1], mode="r").shape))
    run("--distances", "tied.npy", *CSV, "--ties", "expected", "--out", "expected")
    done = call("conventions", "expected", "--metrics", "mP@recall=0.5", "--json")
    found = json.loads(done.stdout)
    assert found["this run"]["metrics"] == {"mP@recall=0.5": None}
    assert found["torchreid"]["effects"] == {"ties=stable": {"mP@recall=0.5": None}}


@pytest.mark.usefixtures("data")
def test_conventions_are_what_the_presets_give() -> None:
    assert run(*STORED, *CSV, "--out", "out").exit_code == 0
    done = call("conventions", "out", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found) == ["this run", *PRESETS]
    for name, preset in PRESETS.items():
        if not any("evaluate again" in remark for remark in found[name]["remarks"]):
            assert found[name]["metrics"] == summary("--as", name)["metrics"]
        assert set(found[name]["metrics"]) == set(preset.metrics)
    run(*STORED, *CSV, "--metrics", "mAP", "--out", "few")
    few = json.loads(call("conventions", "few", "--json").stdout)
    assert (few["gom-paper"]["metrics"], few["gom-paper"]["effects"]) == ({}, {})
    effects = found["market-matlab"]["effects"]["ap=trapezoid"]
    own, other = (found[name]["metrics"]["mAP"] for name in ("this run", "market-matlab"))
    assert effects["mAP"] == pytest.approx(other - own, abs=1e-12)
    assert "ignores other pairs (no-camera" in found["oml"]["remarks"][0]
    text = call("conventions", "out").stdout
    assert text.isascii()
    assert "ap=trapezoid: mAP" in text
    narrow = call("conventions", "out", "--metrics", "CMC@1,mAP", "--json")
    assert all(
        list(one["metrics"]) == ["CMC@1", "mAP"] for one in json.loads(narrow.stdout).values()
    )


@pytest.mark.usefixtures("data")
def test_conventions_that_cannot_be() -> None:
    assert run(*STORED, *CSV, "--out", "out").exit_code == 0
    refused(call("conventions", "absent"), "absent is not a saved result")
    says = ("EER needs impostor_histogram", "evaluate again", "--metrics 'EER'")
    refused(call("conventions", "out", "--metrics", "EER"), *says)


def test_the_list_of_metrics_is_whole() -> None:
    done = call("metrics")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    listed = json.loads(call("metrics", "--json").stdout)
    assert [one["name"] for one in listed] == [metric.name for metric in METRICS]
    for metric, one in zip(METRICS, listed, strict=True):
        assert metric.name in done.stdout
        assert one["needs"] == list(metric.needs)
        assert one["also"] == list(metric.also)
        by_identity = {"single-gallery-shot": "single_shot"}
        by_identity["distinct-identities"] = "identities_ahead"
        needs = {cmc: [field] for cmc, field in by_identity.items()}
        assert one["needs_under_cmc"] == (needs if one["name"] == "CMC@{x}" else {})
        assert one["formula"]
        assert one["source"]
        assert one["examples"]
    assert "1/(N*M) sum" in done.stdout  # a dot of a formula is a product, and no separator


def test_raw_precision_and_recall_of_a_query(data: Path) -> None:
    assert run(*STORED, *CSV, "--out", "out").exit_code == 0
    result = se.Evaluation.load(data / "out")
    query = int(np.flatnonzero(result.statistics.has_positive)[0])
    recall, precision = result.precision_recall(query)
    assert result.per_query["AP"][query] == pytest.approx(np.mean(precision))
    assert recall[-1] == 1
    saved = pq.read_table("out/positives.parquet").to_pydict()
    own = [row for row, one in enumerate(saved["query"]) if one == query]
    assert [saved["recall"][row] for row in own] == recall.tolist()
    assert [saved["precision"][row] for row in own] == precision.tolist()
    distances = np.asarray(zarr.open_array("distances.zarr")[query])
    assert [saved["distance"][row] for row in own] == [distances[saved["item"][row]] for row in own]
    with pytest.raises(se.InputError, match=f"query {QUERIES} does not exist"):
        result.precision_recall(QUERIES)


@pytest.mark.usefixtures("data")
def test_draws_of_single_gallery_shot() -> None:
    names = ("--protocol", "cuhk03", "--metrics", "CMC@1,CMC_sampled@1")
    usual = summary(*names, "--out", "usual")
    assert {"shot_draws": 10, "shot_seed": 0}.items() <= usual["provenance"]["protocol"].items()
    assert summary(*names, "--shot-draws", "10", "--shot-seed", "0")["metrics"] == usual["metrics"]
    other = summary(*names, "--shot-draws", "1000", "--shot-seed", "5", "--out", "other")
    assert other["provenance"]["protocol"]["shot_draws"] == 1000
    assert other["metrics"]["CMC@1"] == usual["metrics"]["CMC@1"]
    assert other["metrics"]["CMC_sampled@1"] != usual["metrics"]["CMC_sampled@1"]
    for folder in ("usual", "other"):
        assert "(no-camera, junk ids none) than this run" in call("conventions", folder).stdout
    refused(run(*STORED, *CSV, "--shot-draws", "5"), "shot_draws is 5", "market1501 draws nothing")
    refused(run(*STORED, *CSV, *names, "--shot-seed", "-1"), "shot_seed of protocol cuhk03 is -1")
    refused(run(*STORED, *CSV, "--metrics", "CMC_sampled@1"), "market1501 does not: choose cuhk03")
