"""The stages of re-ranking: kept, gone on with, shared between evaluations, on clusters."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import cluster, labels, write_inputs
from documents import ROOT
from spread import spread
from support.cli import main
from support.package import claimed
from support.reranking import copies_module
from test_cluster_faults import kill

import streameval as se

HERE = ROOT / "tests"
OPTIONS = {"k1": 8, "k2": 3, "lambda_": 0.25}
STAGES = ["neighbors", "encoding", "averaging", "positives", "counting"]
ALONE = ["neighbors", "encoding", "averaging", "queries", "positives", "counting"]
WITH = [("all", STAGES), ("gallery", ALONE)]
EVERY_STAGE = [(with_, stage) for with_, stages in WITH for stage in stages]
DAILY = [("all", "averaging"), ("all", "counting"), ("gallery", "queries")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_inputs(tmp_path)


def reranked(data: Path, **options: Any) -> se.Reranked:
    features = se.Features(data / "q.npy", data / "g.npy")
    return se.Reranked(features, **{**OPTIONS, **options})


class Stopped(se.Progress):
    """Notes the passes; interrupts the run where one begins."""

    def __init__(self, stop: str = "") -> None:
        self.stop = stop
        self.passes: list[str] = []

    def start(self, label: str, pairs: int) -> None:
        self.passes.append(label)
        if label == self.stop:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("with_", "stop"),
    [
        pytest.param(*one, marks=() if one in DAILY else pytest.mark.slow)
        for one in EVERY_STAGE
        if one[1] != "neighbors"
    ],
)
def test_neighbors_are_not_looked_for_again(folder: Path, with_: str, stop: str) -> None:
    kept: dict[str, Any] = {"checkpoint": folder / "kept", "resume": True}
    source = reranked(folder, with_=with_)
    with pytest.raises(KeyboardInterrupt):
        se.evaluate(source, **labels(folder), progress=Stopped(stop), **kept)
    resumed, whole = Stopped(), Stopped()
    found = se.evaluate(source, **labels(folder), progress=resumed, threads=1, **kept)
    assert not (folder / "kept").exists()
    expected = se.evaluate(source, **labels(folder), progress=whole)
    assert whole.passes == dict(WITH)[with_]
    assert found.statistics.equals(expected.statistics)
    done = sum(passed == "neighbors" for passed in resumed.passes)
    assert done <= 1  # begun, to find that all is there


@pytest.mark.slow
def test_a_folder_serves_evaluations_with_other_options(folder: Path) -> None:
    asked: list[int] = []

    class Counted(se.Progress):
        def start(self, label: str, pairs: int) -> None:
            self.label = label

        def advance(self, pairs: int) -> None:
            asked.append(pairs if self.label == "neighbors" else 0)

    kept = folder / "neighbors of all"
    first = se.evaluate(reranked(folder, folder=kept), **labels(folder), progress=Counted())
    assert first.statistics.equals(se.evaluate(reranked(folder), **labels(folder)).statistics)
    looked = sum(asked)
    assert 0 < looked < sum(reranked(folder).shape) ** 2
    asked.clear()
    others = {"k2": 1, "lambda_": 0.9}
    again = se.evaluate(
        reranked(folder, folder=kept, **others), **labels(folder), progress=Counted()
    )
    assert asked.count(looked) == 1  # at once
    whole = se.evaluate(reranked(folder, **others), **labels(folder))
    assert again.statistics.equals(whole.statistics)

    def names() -> list[str]:
        return sorted(one.name.rpartition(" ")[0] or one.name for one in kept.iterdir())

    both = ["encodings k1=8 k2=1 power=2", "encodings k1=8 k2=3 power=2"]
    assert names() == [*both, "neighbors"]
    alone = se.evaluate(reranked(folder, folder=kept, with_="gallery"), **labels(folder))
    expected = se.evaluate(reranked(folder, with_="gallery"), **labels(folder))
    assert alone.statistics.equals(expected.statistics)
    assert names() == [*both, "gallery", "neighbors"]
    assert [one.name for one in (kept / "gallery").iterdir()] == ["neighbors"]
    np.save(folder / "q.npy", np.load(folder / "q.npy") + 1)
    with pytest.raises(se.OutputError, match="of another evaluation"):
        se.evaluate(reranked(folder, folder=kept), **labels(folder))


def test_encodings_are_not_made_again(folder: Path) -> None:
    kept = folder / "kept"
    se.evaluate(reranked(folder, folder=kept), **labels(folder))
    for lambda_, threads in ((0.25, 1), (0.8, 2)):
        again = Stopped()
        source = reranked(folder, folder=kept, lambda_=lambda_)
        found = se.evaluate(source, **labels(folder), progress=again, threads=threads)
        assert again.passes == ["positives", "counting"]
        whole = se.evaluate(reranked(folder, lambda_=lambda_), **labels(folder))
        assert found.statistics.equals(whole.statistics)
    again = Stopped()
    se.evaluate(reranked(folder, folder=kept, power=4), **labels(folder), progress=again)
    assert again.passes == STAGES
    assert len(list(kept.glob("encodings*"))) == 2
    assert not [one for one in kept.iterdir() if one.name.startswith(".")]


def test_encodings_of_other_steps_are_kept_apart(folder: Path) -> None:
    features, kept = se.Features(folder / "q.npy", folder / "g.npy"), folder / "kept"
    for k in (3, 4, 3):
        source = se.Reranked(se.Expanded(features, "aqe", k=k), **OPTIONS, folder=kept / f"{k}")
        whole = se.Reranked(se.Expanded(features, "aqe", k=k), **OPTIONS)
        passes = Stopped()
        found = se.evaluate(source, **labels(folder), progress=passes)
        assert found.statistics.equals(se.evaluate(whole, **labels(folder)).statistics)
    assert "encoding" not in passes.passes
    three, four = (next((kept / f"{k}").glob("encodings*")).name for k in (3, 4))
    assert three != four


@pytest.mark.parametrize(
    ("name", "harm"),
    spread(
        ["items", "values", "begin", "greatest", "encodings.json"],
        ["absent", "truncated", "altered", "longer"],
        of=8,
    ),
)
def test_damaged_encodings_are_made_again(folder: Path, name: str, harm: str) -> None:
    kept = folder / "kept"
    expected = se.evaluate(reranked(folder, folder=kept), **labels(folder))
    (place,) = kept.glob("encodings*")
    file = place / name
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(
        {
            "truncated": content[:middle],
            "altered": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "longer": content + content[-8:],
            "absent": b"",
        }[harm]
    )
    if harm == "absent":
        file.unlink()
    again = Stopped()
    with pytest.warns(se.StreamevalWarning, match=r"is damaged \(.*: images are encoded again"):
        found = se.evaluate(reranked(folder, folder=kept), **labels(folder), progress=again)
    assert again.passes == STAGES
    assert found.statistics.equals(expected.statistics)
    assert file.read_bytes() == content
    again = Stopped()
    se.evaluate(reranked(folder, folder=kept), **labels(folder), progress=again)
    assert again.passes == ["positives", "counting"]


def test_encodings_that_another_process_writes_are_not_waited_for(folder: Path) -> None:
    kept = folder / "kept"
    se.evaluate(reranked(folder, folder=kept), **labels(folder))
    (place,) = kept.glob("encodings*")
    shutil.rmtree(place)
    with (
        claimed(place),
        pytest.warns(se.StreamevalWarning, match="writes to .* encodings of this evaluation"),
    ):
        found = se.evaluate(reranked(folder, folder=kept), **labels(folder))
    del found
    assert {one.name for one in kept.iterdir()} == {"neighbors"}


def test_a_resumed_run_uses_its_encodings_again(folder: Path) -> None:
    given: dict[str, Any] = {"checkpoint": folder / "kept", "resume": True}
    with pytest.raises(KeyboardInterrupt):
        se.evaluate(reranked(folder), **labels(folder), progress=Stopped("counting"), **given)
    resumed = Stopped()
    se.evaluate(reranked(folder), **labels(folder), progress=resumed, **given)
    assert "encoding" not in resumed.passes


@pytest.mark.parametrize(
    ("few", "fewer"), spread([0.0, 2.0], [{"k1": 5}, {"k1": 3, "k2": 6}, {"k1": 2, "k2": 1}], of=4)
)
def test_fewer_neighbors_are_the_first_of_more(
    folder: Path, fewer: dict[str, int], few: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies_module, "FEW", few)
    kept = folder / "kept"
    rows = np.load(folder / "g.npy")
    rows[::7] = rows[3]
    np.save(folder / "g.npy", rows)
    se.evaluate(reranked(folder, folder=kept), **labels(folder))
    passes = Stopped()
    found = se.evaluate(reranked(folder, folder=kept, **fewer), **labels(folder), progress=passes)
    assert found.statistics.equals(
        se.evaluate(reranked(folder, **fewer), **labels(folder)).statistics
    )
    assert passes.passes[0] == "neighbors"
    begun = Stopped()
    with pytest.raises(se.OutputError, match="of another evaluation"):  # more than there are
        se.evaluate(reranked(folder, folder=kept, k1=9), **labels(folder), progress=begun)
    assert begun.passes == []


class Killed(se.Progress):
    """Kills the process where half of a pass is done."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def start(self, label: str, pairs: int) -> None:
        self.label, self.pairs, self.done = label, pairs, 0

    def advance(self, pairs: int) -> None:
        self.done += pairs
        if self.label == self.stage and self.done >= self.pairs / 2:
            os.kill(os.getpid(), signal.SIGKILL)


KILLED = """
import json, pathlib, sys
import clusters, streameval as se, test_reranking_stages as stages
from support.reranking import indexed_module
from support.run import checkpoint_module
checkpoint_module.COMMIT_SECONDS = 0.0
indexed_module.BLOCK_ROWS = 16
folder, stage, options = pathlib.Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
kept = {} if "folder" in options else {"checkpoint": folder / "kept", "resume": True}
se.evaluate(stages.reranked(folder, **options), **clusters.labels(folder),
            progress=stages.Killed(stage), threads=1, **kept)
"""


def run_killed(folder: Path, stage: str, /, **options: Any) -> None:
    """Re-rank in a process that is killed; the record is in `kept`, unless a folder is given."""
    command = [sys.executable, "-c", KILLED, str(folder), stage, json.dumps(options)]
    assert subprocess.run(command, cwd=HERE, check=False).returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(("with_", "stage"), EVERY_STAGE)
def test_killed_in_any_stage_and_resumed(folder: Path, with_: str, stage: str) -> None:
    run_killed(folder, stage, with_=with_)
    source = reranked(folder, with_=with_)
    found = se.evaluate(source, **labels(folder), checkpoint=folder / "kept", resume=True)
    assert found.statistics.equals(se.evaluate(source, **labels(folder)).statistics)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killed_in_any_stage_with_a_folder(folder: Path, stage: str) -> None:
    """Nothing that is unfinished is taken for whole, nor left behind."""
    kept = folder / "kept of all"
    run_killed(folder, stage, folder=str(kept))
    whole = stage in ("positives", "counting")
    assert len(list(kept.glob("encodings*"))) == whole
    again = Stopped()
    found = se.evaluate(reranked(folder, folder=kept), **labels(folder), progress=again)
    assert found.statistics.equals(se.evaluate(reranked(folder), **labels(folder)).statistics)
    assert ("encoding" in again.passes) != whole
    assert len(list(kept.iterdir())) == 2, list(kept.iterdir())


@pytest.mark.slow
def test_workers_read_encodings_that_are_kept(folder: Path) -> None:
    expected = se.evaluate(reranked(folder, folder=folder / "kept"), **labels(folder))
    with cluster(2) as (_, client):
        given: dict[str, Any] = {**labels(folder), "client": client}
        found = se.evaluate(reranked(folder, folder=folder / "kept"), **given)
        assert found.statistics.equals(expected.statistics)
        found = se.evaluate(reranked(folder, folder=folder / "new"), **given)
        assert found.statistics.equals(expected.statistics)


@pytest.mark.slow
def test_workers_of_a_cluster_give_the_same(folder: Path) -> None:
    expected = se.evaluate(reranked(folder), **labels(folder))
    alone = se.evaluate(reranked(folder, with_="gallery"), **labels(folder))
    with cluster(2) as (running, client):
        given: dict[str, Any] = {**labels(folder), "client": client}
        found = se.evaluate(reranked(folder, with_="gallery"), **given)
        assert found.statistics.equals(alone.statistics)
        found = se.evaluate(reranked(folder), **given)
        assert found.statistics.equals(expected.statistics)

        class Killing(se.Progress):
            begun: set[str] = set()  # noqa: RUF012

            def start(self, label: str, pairs: int) -> None:
                if label in ("neighbors", "counting") and label not in self.begun:
                    self.begun.add(label)
                    threading.Timer(0.05, kill, (running, 0)).start()

        found = se.evaluate(reranked(folder), **given, progress=Killing())
        assert found.statistics.equals(expected.statistics)
        assert Killing.begun == {"neighbors", "counting"}


def test_a_budget_that_is_too_small_is_refused_before_any_work(folder: Path) -> None:
    progress = Stopped()
    with pytest.raises(se.BudgetError, match="is too small for"):
        se.evaluate(
            reranked(folder), **labels(folder), memory="210MB", threads=32, progress=progress
        )
    assert progress.passes == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k1": 1}, "k1 is 1; a whole number of at least 2 is needed"),
        ({"k1": 2.5}, "k1 is 2.5; a whole number of at least 2 is needed"),
        ({"k2": 0}, "k2 is 0; a whole number of at least 1 is needed"),
        ({"lambda_": -0.1}, "lambda is -0.1; a number from 0 to 1 is needed"),
        ({"lambda_": 1.5}, "lambda is 1.5; a number from 0 to 1 is needed"),
        ({"lambda_": float("nan")}, "lambda is nan; a number from 0 to 1 is needed"),
        ({"power": 3}, "power is 3; expected 2 or 4"),
        ({"with_": "gallery", "index": "Flat"}, "got an index of all images, and each query is"),
        ({"with_": "queries"}, "with_ is 'queries'; expected all or gallery"),
    ],
)
def test_options_out_of_bounds_are_refused(
    folder: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(se.OptionError, match=said):
        reranked(folder, **options)


def test_sources_without_squared_distances_are_refused(folder: Path) -> None:
    with pytest.raises(se.OptionError, match=r"features is of type Distances; Features\(query"):
        se.Reranked(se.Distances(folder / "d.zarr"))  # type: ignore[arg-type]
    for metric in ("dot", "manhattan"):
        with pytest.raises(se.OptionError, match=f"the metric is {metric}; expected one of"):
            se.Reranked(se.Features(folder / "q.npy", folder / "g.npy", metric))


def test_a_bad_row_is_named_by_its_own_array(folder: Path) -> None:
    rows = np.load(folder / "g.npy")
    rows[5, 3] = np.nan
    np.save(folder / "g.npy", rows)
    with pytest.raises(se.InputError, match=r"g\.npy.* row 5 holds nan in column 3"):
        se.evaluate(reranked(folder), **labels(folder))


NAMES = ("id", "cam")
RERANK = "--rerank=k-reciprocal,k1=8,k2=3,lambda=0.25"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command; return what it prints."""
    with pytest.raises(SystemExit) as caught:
        main([*arguments])
    out, err = capsys.readouterr()
    assert caught.value.code == 0, err
    return out


def asking(folder: Path) -> list[str]:
    """Return the command that evaluates the features."""
    sides = ("query", "gallery")
    asked = [f"--{side}={folder}/{side[0]}.npy" for side in sides]
    more = [f"--{side}-{name}s={folder}/{side[0]}{name}.npy" for side in sides for name in NAMES]
    return ["evaluate", *asked, *more]


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*asking(folder), RERANK]
    expected = se.evaluate(reranked(folder), **labels(folder))
    found = folder / "found"
    table = run(capsys, *asked, f"--out={found}")
    assert "k-reciprocal (k1 8, k2 3, lambda 0.25)" in table
    assert json.loads((found / "summary.json").read_text())["metrics"]["mAP"] == expected["mAP"]
    assert "neighbors, encoding, averaging" in run(capsys, *asked, "--dry-run")
    alone = run(capsys, *asked, "--rerank-with=gallery")
    assert "k-reciprocal (k1 8, k2 3, lambda 0.25, with gallery)" in alone


@pytest.mark.slow
def test_saved_runs_are_compared_and_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, found = folder / "plain", folder / "found"
    run(capsys, *asking(folder), RERANK, f"--out={found}")
    run(capsys, *asking(folder), f"--out={plain}")
    assert "By AP" in run(capsys, "compare", str(plain), str(found))
    run(capsys, "report", str(plain), str(found), f"--out={folder}/report.html")
    assert "k-reciprocal" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rerank"], "got --rerank without a value"),
        (["--rerank=reciprocal"], "expected k-reciprocal"),
        (["--rerank=k-reciprocal,k3=2"], "expected k-reciprocal"),
        (["--rerank=k-reciprocal,k1=x"], "is no number"),
        (["--rerank=k-reciprocal", "--index=Flat", "-k", "5"], "which has no effect here"),
        (["--rerank-with=gallery"], "give --rerank k-reciprocal"),
        (["--rerank-folder=kept"], "give --rerank k-reciprocal"),
    ],
)
def test_the_command_line_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    given = [f"--{side}={folder}/{side[0]}.npy" for side in ("query", "gallery")]
    given += [f"--{side}-ids={folder}/{side[0]}id.npy" for side in ("query", "gallery")]
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", *given, *arguments])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
