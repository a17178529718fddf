"""Indexes against the truth: recall of neighbours, differences and their intervals, the plot."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.cli import main
from support.neighbors import Setting
from test_neighbors import GALLERY, QUERIES, features, sides, write_inputs

import streameval as se
from streameval import compare_index


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_figures_are_those_of_single_evaluations() -> None:
    settings = ["Flat", "IVF16,Flat@nprobe=1", "IVF16,Flat@nprobe=16", "HNSW8@efSearch=4"]
    found = compare_index(features("euclidean"), settings, k=40, **sides())
    exact = se.evaluate(features("euclidean"), **sides())
    assert found.exact["mAP"] == exact["mAP"]
    recalls = [one.recall for one in found.outcomes]
    assert recalls[0] == recalls[2] == 1.0
    assert 0 < recalls[1] < 1
    alone = se.evaluate(
        se.Neighbors(features=features("euclidean"), index="IVF16,Flat", k=40, search="nprobe=1"),
        **sides(),
        metrics="CMC@1,mAP@40/total,recall@40",
    )
    for name in ("CMC@1", "mAP@40/total", "recall@40"):
        one = found.outcomes[1].differences[name]
        assert one.deployed == alone[name]
        assert one.value == one.deployed - one.exact
        assert one.low <= one.value <= one.high
    listed = found.outcomes[0].differences["mAP (mAP@40/total)"]
    assert listed.exact == exact["mAP"]
    assert found.outcomes[0].differences["CMC@1"].value == 0.0
    assert found.outcomes[0].index_bytes == 0 < found.outcomes[1].index_bytes
    assert math.isnan(found.outcomes[0].build_seconds)
    # The range is that of all pairs, though lists hold some: τ means the same on both sides.
    assert found.outcomes[0].differences["tau_nz"].value == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_k_beyond_the_gallery_is_the_gallery() -> None:
    found = [
        compare_index(features(), ["Flat", "HNSW8"], k=k, **sides())
        for k in (GALLERY, 10**6, 10**30)
    ]
    assert {one.k for one in found} == {GALLERY}
    outcomes = [[(one.recall, repr(one.differences)) for one in each.outcomes] for each in found]
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_recall_counts_neighbours_that_are_as_near() -> None:
    """Copies: which of them an index returns is no loss."""
    gallery = np.repeat(np.load("gallery.npy")[:40], 10, axis=0)
    np.save("gallery.npy", gallery)
    found = compare_index(features(), ["IVF4,Flat@nprobe=4"], k=7, **sides())
    assert found.outcomes[0].recall == 1.0


def test_the_interval_is_that_of_a_mean() -> None:
    """A jackknife of single queries is the usual interval of a mean."""
    from scipy.stats import t
    from support.neighbors import interval

    values = np.random.default_rng(0).random(20)
    left = np.array([np.delete(values, i).mean() for i in range(20)])
    low, high = interval(float(values.mean()), left)
    reach = t.ppf(0.975, 19) * values.std(ddof=1) / math.sqrt(20)
    assert (low, high) == pytest.approx((values.mean() - reach, values.mean() + reach))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("settings", "k", "message"),
    [
        (["@nprobe=1"], 5, "names no index"),
        ([], 5, "there is no setting"),
        (["Flat@nprobe=1"], 5, "Flat has no search parameters"),
        (["HNSW8@nprobe=1"], 5, "can't be set"),
    ],
)
def test_settings_that_can_not_be(settings: list[str], k: int, message: str) -> None:
    with pytest.raises(se.OptionError, match=message):
        compare_index(features(), settings, k=k, **sides())


def test_settings_are_read() -> None:
    assert Setting.parse("IVF16,PQ4@nprobe=4,ht=2") == Setting("IVF16,PQ4", "nprobe=4,ht=2")
    assert str(Setting("HNSW8")) == "HNSW8"


def run(*arguments: str) -> Result:
    labels = [
        f"--{side}-{what}={side}_{what}.npy"
        for side in ("query", "gallery")
        for what in ("ids", "cams")
    ]
    both = ["--query=query.npy", "--gallery=gallery.npy", "--quiet"]
    return CliRunner().invoke(main, ["compare-index", *arguments, *labels, *both])


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_on_the_command_line() -> None:
    done = run("Flat", "HNSW8@efSearch=8", "-k", "20", "--plot", "plot.svg")
    assert done.exit_code == 0, done.output
    assert "recall@20" in done.output
    assert f"{QUERIES}: " in done.output
    assert f"{GALLERY} gallery items" in done.output
    drawn = ET.parse("plot.svg").getroot()
    assert [one.text for one in drawn.iter() if one.text and "HNSW8@efSearch=8" in one.text]
    done = run("Flat", "-k", "20", "--metrics", "CMC@1")
    assert "lost of CMC@1" in done.output
    assert "-0.00" not in done.output
    done = run("Flat", "-k", "20", "--json", "--metrics", "CMC@1,recall@20")
    told = json.loads(done.stdout)
    assert list(told["settings"][0]["metrics"]) == ["CMC@1", "recall@20"]
    assert told["settings"][0]["recall"] == 1.0
    for arguments, message in (
        (("Flat", "-k", "0"), "k is 0"),
        (("Flat", "-k", "5", "--metrics", "mAP"), "mAP has no value where items are never found"),
        (("Flat", "-k", "5", "--plot", "plot.png"), "expected a file NAME.svg"),
    ):
        done = run(*arguments)
        assert (done.exit_code, message in done.output) == (2, True), done.output
