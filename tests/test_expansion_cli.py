"""Query expansion and multi-query on the command line and in config files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from clusters import labels, write_inputs
from support.cli import main

import streameval as se


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the inputs, and go there."""
    monkeypatch.chdir(tmp_path)
    return write_inputs(tmp_path)


SIDES = ["--query=q.npy", "--gallery=g.npy"]
LABELS = [
    f"--{side}-{name}s={side[0]}{name}.npy"
    for side in ("query", "gallery")
    for name in ("id", "cam")
]
MORE = ["--multi-query=g.npy", "--multi-query-ids=gid.npy", "--multi-query-cams=gcam.npy"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["evaluate", *SIDES, *LABELS, *arguments])


def figures(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_steps_are_done_in_their_order(folder: Path) -> None:
    found = figures("--expand=dba,k=4", "--expand=alpha-qe,k=6,alpha=2.5", "--rerank=k-reciprocal")
    features = se.Features("q.npy", "g.npy")
    source = se.Expanded(se.Expanded(features, "dba", k=4), "alpha-qe", k=6, alpha=2.5)
    expected = se.evaluate(se.Reranked(source), **labels(folder))
    assert found["metrics"]["mAP"] == expected["mAP"]
    assert found["provenance"]["inputs"]["steps"] == expected.provenance["inputs"]["steps"]
    assert figures("--expand=aqe")["metrics"]["mAP"] != figures()["metrics"]["mAP"]


@pytest.mark.parametrize("fuse", ["mean", "max"])
def test_queries_are_fused(folder: Path, fuse: Any) -> None:
    given = [] if fuse == "mean" else ["--fuse=max"]
    found = figures(*MORE, *given, "--expand=aqe,k=3")
    own = se.read_labels("gid.npy", "gcam.npy")
    source = se.MultiQuery(se.Features("q.npy", "g.npy"), "g.npy", own, fuse)
    expected = se.evaluate(se.Expanded(source, "aqe", k=3), **labels(folder))
    assert found["metrics"]["mAP"] == expected["mAP"]
    lines = zip(np.load("gid.npy"), np.load("gcam.npy"), strict=True)
    Path("more.csv").write_text("id,cam\n" + "".join(f"{one},{cam}\n" for one, cam in lines))
    again = figures(MORE[0], "--multi-query-labels=more.csv", *given, "--expand=aqe,k=3")
    assert again["metrics"] == found["metrics"]


@pytest.mark.usefixtures("folder")
def test_a_config_file_has_them() -> None:
    Path("run.toml").write_text(
        'expand = ["dba,k=4", "aqe"]\nmulti-query = "g.npy"\nfuse = "max"\n'
    )
    expected = figures(*MORE, "--fuse=max", "--expand=dba,k=4", "--expand=aqe")
    assert figures("--config=run.toml", *MORE[1:])["metrics"] == expected["metrics"]


@pytest.mark.usefixtures("folder")
def test_the_plan_has_the_passes_and_the_table_says_what_was_done() -> None:
    planned = run("--expand=dba", "--expand=aqe,k=5", "--dry-run")
    assert "neighbors, expanding, neighbors, expanding, positives" in planned.output
    assert "dba (k 10) | aqe (k 5)" in run("--expand=dba", "--expand=aqe,k=5").output


@pytest.mark.usefixtures("folder")
def test_shapes_are_planned() -> None:
    sides = ["--query=shape:100x64", "--gallery=shape:1000000x64", "--expand=dba", "--dry-run"]
    done = CliRunner().invoke(main, ["evaluate", *sides, "--memory=2GB"])
    assert done.exit_code == 0, done.output
    assert "expanding" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--expand=qe"], "expected aqe[,k=N] | alpha-qe[,k=N][,alpha=N] | dba[,k=N]"),
        (["--expand=aqe,alpha=3"], "expected aqe[,k=N]"),
        (["--expand=aqe,k=x"], "is no number"),
        (["--expand=aqe,k=0"], "k is 0; a whole number of at least 1 is needed"),
        (["--expand=aqe", "--index=Flat", "-k", "5"], "got --expand, which has no effect here"),
        (["--fuse=max"], "got --fuse, which has no effect here: give --multi-query URI"),
        ([MORE[0]], "the identities of the multi-query are missing: give --multi-query-ids ARRAY"),
        (MORE[:2], "have no cam"),
        (["--multi-query=gid.npy", *MORE[1:]], "a 2-d array, one row an image, is needed"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_refused(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.usefixtures("folder")
def test_ranked_lists_of_made_features_are_refused() -> None:
    assert run("--expand=aqe", "--out=made").exit_code == 0
    arguments = ["report", "made", "--out=report.html", "--images={row}.jpg"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "made is of features that were expanded or re-ranked" in done.stderr
