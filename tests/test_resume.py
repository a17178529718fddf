"""Finished work is kept and gone on with: after kill -9, with the same bits, nothing twice."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import clusters
import faults
import numpy as np
import pytest
import zarr
from clusters import cluster, labels, write_inputs
from spread import SLOW
from support import runs
from support.arrays import fingerprint, fingerprint_module, open_array
from support.planning import Workers
from support.run import Checkpoint, ClusterExecutor, Connection, checkpoint_module
from support.run import passes_module as passes
from support.runs import plan_any_budget

import streameval as se
from streameval import Evaluation, MetricOptions, OutputError, StreamevalWarning, TaskError

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
OPTIONS = MetricOptions()
prepared = partial(clusters.prepared, items=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_inputs(tmp_path)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit every tenth of a second."""
    monkeypatch.setattr(checkpoint_module, "COMMIT_SECONDS", 0.1)


def attempts(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("attempts-*"))


def run(
    folder: Path,
    compute: Callable[..., Any] = faults.noted,
    connection: Connection | None = None,
    rules: MetricOptions = OPTIONS,
    **options: Any,
) -> Evaluation:
    """Evaluate with a record beside the inputs, going on with what is there."""
    work = prepared(folder, "features", **{"threads": 2, **options})
    executor = None if connection is None else ClusterExecutor(connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "COUNT", replace(passes.COUNT, compute=compute))
        with Checkpoint(folder / "progress", resume=True) as record:
            ready = runs.recorded(work, rules, record)
            return runs.run(ready, rules, executor=executor, record=record)


def stop_in_the_middle(folder: Path, **options: Any) -> int:
    """Run until a task fails for good; return how many were counted."""
    with pytest.raises(TaskError, match="the cable is cut"):
        run(folder, fails_late, **options)
    return attempts(folder)


def fails_late(job: Any, task: Any, watch: Any) -> Any:
    if task.queries[0] >= 50 and task.gallery[0] >= 600:
        raise RuntimeError("the cable is cut")
    return faults.noted(job, task, watch)


@pytest.mark.slow
def test_killed_at_every_commit_in_turn_and_resumed(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "crashes.py"), str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["status"] == 0
    counting = report["whole"]["again"]  # tasks of two passes that count
    assert counting == 8
    assert report["whole"]["same"]
    begun = 1  # what is evaluated, before any task is finished
    assert report["commits"] == len(report["points"]) // 2 == begun + 4 + 2 + 8
    for point in report["points"]:
        assert (point["killed"], point["resumed"]) == (-signal.SIGKILL, 0), point
        assert point["same"], point
        kept = point["kept"].get("counting", 0) + point["kept"].get("refining 1", 0)
        assert point["again"] == counting - kept, point  # no finished shard again
    assert report["chain"] == {"killed": report["commits"], "same": True}
    assert max(sum(point["kept"].values()) for point in report["points"]) == 4 + 8


def snapshots(folder: Path) -> set[str]:
    """Return what says which commits there are."""
    return {file.name for file in (folder / "progress" / "record").glob("snapshots/*")}


@pytest.mark.slow
def test_killed_at_random_and_resumed(folder: Path) -> None:
    code = "import pathlib, sys, crashes; crashes.run(pathlib.Path(sys.argv[1]), {})"
    random.seed(1)
    for killed in range(40):
        commits = snapshots(folder)
        when = "None, 'never'" if killed else "1, 'after'"  # the first one is killed for certain
        command = [sys.executable, "-c", code.format(when), str(folder)]
        process = subprocess.Popen(command, cwd=HERE)
        while snapshots(folder) == commits and process.poll() is None:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.2))  # into the next commits, or between them
        process.kill()
        if process.wait() == 0:
            break
    assert process.returncode == 0
    import crashes

    expected = runs.run(crashes.work(folder), crashes.OPTIONS).statistics
    assert crashes.load_statistics(folder / "found.zarr").equals(expected)


class Stopped(se.Progress):
    """Notes the passes; interrupts the run where one begins."""

    def __init__(self, stop: str = "") -> None:
        self.stop = stop
        self.passes: list[str] = []

    def start(self, label: str, pairs: int) -> None:
        self.passes.append(label)
        if label == self.stop:
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_an_index_that_was_built_is_not_built_again(folder: Path) -> None:
    features = se.Features(folder / "q.npy", folder / "g.npy")
    source = se.Neighbors(features=features, index="IVF4,Flat", k=9)
    kept = {"checkpoint": folder / "kept", "resume": True}
    with pytest.raises(KeyboardInterrupt):
        se.evaluate(source, **labels(folder), progress=Stopped("search"), **kept)
    resumed, whole = Stopped(), Stopped()
    found = se.evaluate(source, **labels(folder), progress=resumed, **kept)
    assert resumed.passes == ["search"]
    assert not (folder / "kept").exists()
    expected = se.evaluate(source, **labels(folder), progress=whole)
    assert whole.passes == ["train", "index", "search"]
    assert found.statistics.equals(expected.statistics)
    told = [one.provenance["lists"]["index"] for one in (found, expected)]
    assert all(one.pop("build_seconds") > 0 for one in told)
    assert told[0] == told[1]
    with pytest.raises(KeyboardInterrupt):  # nothing is finished, so nothing is kept
        se.evaluate(source, **labels(folder), progress=Stopped("index"), **kept)
    assert not (folder / "kept").exists()
    with pytest.raises(KeyboardInterrupt):
        se.evaluate(source, **labels(folder), progress=Stopped("search"), **kept)
    for name in ("built.faiss.json", "built.faiss"):  # what is damaged is built again
        file = folder / "kept" / name
        file.write_bytes(file.read_bytes()[:100])
        again = Stopped("search")
        with pytest.raises(KeyboardInterrupt):
            se.evaluate(source, **labels(folder), progress=again, **kept)
        assert again.passes == ["train", "index", "search"]
    with pytest.raises(se.OptionError, match="k auto closes bounds"):  # before it is built
        se.evaluate(replace(source, k="auto"), **labels(folder), checkpoint=folder / "other")
    assert not (folder / "other").exists()
    other = replace(source, index="IVF5,Flat")
    with pytest.raises(OutputError, match=r"is of another evaluation; options differ, index"):
        se.evaluate(other, **labels(folder), **kept)


@pytest.mark.usefixtures("often")
def test_what_was_counted_before_an_error_is_kept(folder: Path) -> None:
    counted = stop_in_the_middle(folder)
    assert counted >= 30
    found = run(folder)
    assert attempts(folder) - counted <= 75 - counted + 2  # what ran beside the failing task
    assert found.statistics.equals(runs.run(prepared(folder, "features"), OPTIONS).statistics)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("cmc", ["single-gallery-shot", "distinct-identities"])
def test_what_is_counted_by_identity_is_kept(folder: Path, cmc: Any) -> None:
    options = {"protocol": se.Protocol("own", ("same(id, cam)",), cmc=cmc), "threads": 1}

    def fails(job: Any, task: Any, watch: Any) -> Any:
        if task.queries[0] >= 100:
            raise RuntimeError("the cable is cut")
        return faults.noted(job, task, watch)

    with pytest.raises(TaskError, match="the cable is cut"):
        run(folder, fails, **options)
    assert attempts(folder) == 2
    found = run(folder, **options)
    assert attempts(folder) == 3
    whole = runs.run(prepared(folder, "features", **options), OPTIONS)
    assert found.statistics.equals(whole.statistics)


def test_an_error_of_the_cluster_keeps_what_no_commit_was_due_for(folder: Path) -> None:
    assert checkpoint_module.COMMIT_SECONDS > 2
    counted = stop_in_the_middle(folder)
    run(folder)
    assert attempts(folder) - counted <= 75 - counted + 2


@pytest.mark.usefixtures("often")
@pytest.mark.slow
def test_begun_on_threads_and_ended_on_a_cluster(folder: Path) -> None:
    counted = stop_in_the_middle(folder)
    with cluster(1) as (_, client):
        connection = Connection(client)
        found = run(folder, faults.noted, connection, workers=connection.workers(None))
    assert attempts(folder) - counted <= 75 - counted + 2
    assert found.statistics.equals(runs.run(prepared(folder, "features"), OPTIONS).statistics)


@pytest.mark.usefixtures("often")
@pytest.mark.slow
def test_a_cluster_goes_on_with_what_another_cluster_has_done(folder: Path) -> None:
    with cluster(2) as (_, client):
        connection = Connection(client)
        with pytest.raises(TaskError, match="the cable is cut"):
            run(folder, fails_late, connection, workers=connection.workers(None))
    counted = attempts(folder)
    assert counted >= 25
    with cluster(1) as (_, client):
        connection = Connection(client)
        found = run(folder, faults.noted, connection, workers=connection.workers(None))
    assert attempts(folder) - counted < 50
    assert found.statistics.equals(runs.run(prepared(folder, "features"), OPTIONS).statistics)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"memory": "3GB"}, marks=SLOW),
        {"memory": "900MB"},
        pytest.param({"threads": 1}, marks=SLOW),
        pytest.param({"threads": 5, "memory": "5GB"}, marks=SLOW),
        pytest.param(
            {"workers": Workers(count=2, threads=2, memory=2 << 30, libraries=300 << 20)},
            marks=SLOW,
        ),
    ],
    ids=str,
)
def test_any_memory_and_threads_that_fit_the_plan_lose_nothing(
    folder: Path, change: dict[str, Any]
) -> None:
    counted = stop_in_the_middle(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.planning.shards.SHARDS_PER_THREAD", 9)
        found = run(folder, **{"threads": 2, **change})
    assert attempts(folder) - counted <= 75 - counted + 2  # what ran beside the failing task
    assert found.statistics.equals(runs.run(prepared(folder, "features"), OPTIONS).statistics)


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_a_plan_that_does_not_fit_is_made_anew_and_says_what_begins_again(folder: Path) -> None:
    stop_in_the_middle(folder)
    before = attempts(folder)
    with pytest.MonkeyPatch.context() as patch:
        plan_any_budget(patch)
        least = least_budget(lambda memory: prepared(folder, "features", threads=1, memory=memory))
        with pytest.warns(StreamevalWarning) as caught:
            found = run(folder, threads=1, memory=least)
    said = [str(warning.message) for warning in caught]
    assert any(re.search("counting begins again, in .* were finished", one) for one in said)
    assert found.provenance["plan"]["projected_peak"] <= least
    assert attempts(folder) > before
    assert found.statistics.equals(runs.run(prepared(folder, "features"), OPTIONS).statistics)


def least_budget(plan: Callable[[int], Any]) -> int:
    """Return the smallest budget that is not refused."""
    refused, accepted = 0, 10**9
    while accepted - refused > 1:
        memory = (refused + accepted) // 2
        try:
            plan(memory)
        except se.BudgetError:
            refused = memory
        else:
            accepted = memory
    return accepted


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "euclidean", "range": (0.0, 40.0)}, r"options differ, metric: it was 'cosine'"),
        (
            {"protocol": "allshots"},
            r"options differ, protocol: it was \{'name': '[\w-]+', 'cmc': 'first-match'\}, and is "
            r"\{'name': 'allshots', 'cmc': 'all-shots'\}",
        ),
        pytest.param({"protocol": "no-camera"}, r"options differ, protocol: ", marks=SLOW),
        pytest.param({"junk_ids": (3,)}, r"options differ, protocol: ", marks=SLOW),
        pytest.param({"range": "minmax"}, r"options differ, range: ", marks=SLOW),
        ({"range": "minmax-all"}, r"options differ, range: .* and is 'minmax-all'"),
        pytest.param(
            {"refine": ("EER",)},
            r"options differ, histogram edges of the metrics: it was 0, and is 1001",
            marks=SLOW,
        ),
        pytest.param(
            {"metrics": "CMC@1"},
            r"options differ, thresholds of the metrics: it was 101, and is 0",
            marks=SLOW,
        ),
    ],
)
def test_another_evaluation_is_refused_and_its_difference_named(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    stop_in_the_middle(folder)
    with pytest.raises(OutputError, match=message):
        run(folder, **change)
    assert (folder / "progress").is_dir()


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    ("side", "message"),
    [
        pytest.param(
            "q", "inputs differ, query features: the content of .* has changed", marks=SLOW
        ),
        ("g", "inputs differ, gallery features: the content of .* has changed"),
        ("gid", "inputs differ, labels: the content of .* has changed"),
        pytest.param("gcam", "inputs differ, labels: the content of .* has changed", marks=SLOW),
    ],
)
def test_inputs_that_have_changed_are_refused_and_named(
    folder: Path, side: str, message: str
) -> None:
    stop_in_the_middle(folder)
    values = np.load(folder / f"{side}.npy")
    values[5:300] = values[5:300][::-1].copy()
    np.save(folder / f"{side}.npy", values)
    with pytest.raises(OutputError, match=message):
        run(folder)


@pytest.mark.usefixtures("often")
def test_a_plan_that_comes_out_otherwise_does_not_matter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process holds more or less each time, and plans with what is left."""
    counted = stop_in_the_middle(folder)
    monkeypatch.setattr("streameval.run.session.library_bytes", lambda: 123 << 20)
    work = prepared(folder, "features", threads=2)
    assert len(work.plan.tasks) == 75
    work = replace(work, plan=replace(work.plan, tasks=work.plan.tasks[:1], block=7))
    with Checkpoint(folder / "progress", resume=True) as record:
        ready = runs.recorded(work, OPTIONS, record)
        assert (len(ready.plan.tasks), ready.plan.block) != (1, 7)
        left = record.stage("counting", ready.plan.tasks).left(ready.plan.tasks)
    assert len(left) == 75 - counted


@pytest.mark.usefixtures("often")
def test_a_record_without_resume_another_writer_and_damage_are_refused(folder: Path) -> None:
    stop_in_the_middle(folder)
    with pytest.raises(OutputError, match=r"unfinished work of an earlier run.*--resume"):
        Checkpoint(folder / "progress", resume=False)
    with (
        Checkpoint(folder / "progress", resume=True),
        pytest.raises(OutputError, match=r"another process \(.*\) writes to"),
    ):
        Checkpoint(folder / "progress", resume=True)
    for file in (folder / "progress" / "record" / "snapshots").iterdir():
        file.write_bytes(b"no snapshot")
    with pytest.raises(OutputError, match=r"can't be read.*remove it, and begin again"):
        Checkpoint(folder / "progress", resume=True)


def test_a_record_of_another_format_is_refused_by_name(folder: Path) -> None:
    """As the first format was: a manifest among the attributes, and an array a field."""
    store = checkpoint_module._WorkStore(folder / "progress")
    store.create()
    session = store.writable()
    zarr.open_group(session.store, mode="a").attrs["manifest"] = "{}"
    session.commit("1 tasks")
    with pytest.raises(OutputError, match=r"progress was written .* in format 1, and format 9 is"):
        Checkpoint(folder / "progress", resume=True)
    shutil.rmtree(folder / "progress")  # nothing holds its lock


@pytest.mark.slow
def test_what_earlier_commits_held_is_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_module, "SWEEP_EVERY", 10)
    run(folder, items=60)
    files = [file for file in (folder / "progress").rglob("*") if file.is_file()]
    fields = 20 * 3 + 10  # arrays of three blocks of queries, and a few
    assert len(files) < 20 * fields  # of more than 150 commits
    assert len(list((folder / "progress" / "record" / "snapshots").iterdir())) <= 12


def test_evaluate_keeps_nothing_when_it_is_over(folder: Path) -> None:
    source = se.Features(folder / "q.npy", folder / "g.npy")
    found = se.evaluate(source, **labels(folder), checkpoint=folder / "kept", resume=True)
    assert not (folder / "kept").exists()
    assert found.statistics.equals(se.evaluate(source, **labels(folder)).statistics)


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_a_range_of_all_pairs_goes_on(folder: Path) -> None:
    stop_in_the_middle(folder, range="minmax-all")
    found = run(folder, range="minmax-all")
    expected = runs.run(prepared(folder, "features", range="minmax-all"), OPTIONS)
    assert found.range == expected.range
    assert found.range["mode"] == "minmax-all"
    assert found.statistics.equals(expected.statistics)


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_strips_and_a_range_from_the_data_after_all_go_on(folder: Path) -> None:
    features = np.load(folder / "g.npy")
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    features[2000:] *= 2  # only the first look unit
    queries = np.load(folder / "q.npy")
    np.save(folder / "q.npy", queries / np.linalg.norm(queries, axis=1, keepdims=True))
    np.save(folder / "g.npy", features)
    cut = {"metric": "euclidean"}
    stop_in_the_middle(folder, **cut)
    found = run(folder, **cut)
    expected = runs.run(prepared(folder, "features", **cut), OPTIONS)
    assert found.range == expected.range
    assert found.range["mode"] == "minmax"
    assert found.statistics.equals(expected.statistics)
    for _ in range(2):
        work = prepared(folder, "strips")
        with Checkpoint(folder / "strips", resume=True) as record:
            ready = runs.recorded(work, OPTIONS, record)
            stored = runs.run(ready, OPTIONS, record=record)
        assert stored.statistics.equals(runs.run(work, OPTIONS).statistics)


# Fingerprints.


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("form", ["npy", "zarr", "npz"])
def test_a_fingerprint_is_of_the_content(
    tmp_path: Path, form: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(fingerprint_module, "READ_BYTES", 1000)
    values = np.random.default_rng(0).standard_normal((500, 8))

    def write(name: str, array: np.ndarray) -> Path:
        path = tmp_path / f"{name}.{form}"
        if form == "npy":
            np.save(path, array)
        elif form == "npz":
            np.savez(path, x=array)
        else:
            shutil.rmtree(path, ignore_errors=True)
            zarr.create_array(path, data=array, chunks=(100, 8))
        return path

    path = write("one", values)
    first = fingerprint(open_array(path))
    assert fingerprint(open_array(path)) == first
    if not large:  # of a large one, that files are of another time tells, too
        assert fingerprint(open_array(write("two", values))) == first
    changed = values.copy()
    changed[250, 3] += 1e-9
    assert fingerprint(open_array(write("one", changed))) != first
    assert fingerprint(open_array(write("three", values.astype("f4")))) != first
    assert fingerprint(open_array(write("four", values.reshape(1000, 4)))) != first


# The command line.


def command(folder: Path, *more: str) -> list[str]:
    return [
        *(str(BIN / "streameval"), "evaluate", "--query", "q.npy", "--gallery", "g.npy"),
        *("--query-ids", "qid.npy", "--gallery-ids", "gid.npy", "--protocol", "no-camera"),
        *("--out", "out", *more),
    ]


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
SLOW = """
import sys
import clusters
import faults
from dataclasses import replace
from functools import partial
from streameval.run import checkpoint, passes
checkpoint.COMMIT_SECONDS = 0.0
passes.COUNT = replace(passes.COUNT, compute=faults.noted_slow)
from streameval.cli import main
main(sys.argv[1:])
"""


def finished(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_line_killed_and_resumed(folder: Path) -> None:
    arguments = [*command(folder)[1:], "--threads", "16", "--json"]
    slow = [sys.executable, "-c", SLOW, *arguments]
    process = subprocess.Popen(slow, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        while attempts(folder) < 1 or not (folder / "out.progress" / "record" / "refs").is_dir():
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert not (folder / "out").exists()
    refused = finished(folder, slow)
    assert refused.returncode == 2
    assert re.search(r"out\.progress holds the unfinished work.*--resume", refused.stderr)
    resumed = finished(folder, [*slow, "--resume"])
    assert resumed.returncode == 0, resumed.stderr
    assert not (folder / "out.progress").exists()
    counted = attempts(folder)
    again = finished(folder, [*slow, "--resume"])  # the result is shown, and nothing evaluated
    assert again.stdout == resumed.stdout
    assert attempts(folder) == counted
    plain = finished(folder, command(folder, "--overwrite", "--json"))
    summaries = [json.loads(one.stdout) for one in (resumed, plain)]
    assert summaries[0]["metrics"] == summaries[1]["metrics"]
    other = finished(folder, command(folder, "--resume", "--junk-id", "3"))
    assert other.returncode == 2
    assert "out holds the result of another evaluation" in other.stderr


@pytest.mark.slow
def test_a_finished_result_that_is_read_otherwise_is_written_again(folder: Path) -> None:
    """``--group-by`` and ``--ci`` count nothing: what is printed is what the folder holds."""

    def told(*more: str) -> tuple[dict[str, Any], dict[str, Any]]:
        arguments = command(folder, "--metrics", "CMC@1", "--json", *more)
        run = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout), json.loads((folder / "out" / "summary.json").read_bytes())

    first, _ = told()
    printed, written = told("--resume", "--group-by", "id", "--ci", "90")
    assert printed == written
    assert written["groups"]["by"] == "id"
    assert written["confidence"]["how"]["level"] == 0.9
    assert written["provenance"]["given"] == first["provenance"]["given"] | {
        "group-by": "id",
        "ci": 90.0,
    }
    assert (folder / "out" / "groups.csv").exists()
    half = np.arange(len(np.load(folder / "qid.npy"))) % 2
    for groups in (half, 1 - half):
        np.save(folder / "half.npy", groups)
        printed, written = told("--resume", "--group-by", "half.npy")
        assert printed == written
    assert told("--resume")[1] == written  # nothing is asked for: as it is


@pytest.mark.slow
def test_a_finished_result_is_read_by_other_rules_and_counts_nothing(folder: Path) -> None:
    def told(out: str, *more: str) -> dict[str, Any]:
        arguments = [*command(folder, "--metrics", "CMC@1,mAP,mINP", "--json", *more), "--out", out]
        run = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        printed = json.loads(run.stdout)
        assert printed == json.loads((folder / out / "summary.json").read_bytes())
        return dict(printed)

    first = told("out")
    rules = ("--ap", "trapezoid", "--ties", "optimistic")
    fresh, again = told("other", *rules), told("out", *rules, "--resume")
    for part in ("metrics", "options", "counts"):
        assert again[part] == fresh[part]
    assert again["metrics"] != first["metrics"]
    assert again["provenance"]["started"] == first["provenance"]["started"]  # counted then
    assert again["provenance"]["given"] == fresh["provenance"]["given"]
    more = told("out", "--metrics", "MRR", "--resume")  # of the same counts
    assert list(more["metrics"]) == ["MRR"]
    assert told("out", "--metrics", "CMC@1,mAP,mINP", "--resume")["metrics"] == first["metrics"]
    other = finished(folder, command(folder, "--resume", "--metrics", "EER"))
    assert other.returncode == 2
    assert "out holds the result of another evaluation" in other.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_unfinished_work_is_gone_on_with_by_other_rules(folder: Path) -> None:
    stop_in_the_middle(folder)
    rules = replace(OPTIONS, ap="trapezoid", ties="optimistic")
    found = run(folder, rules=rules)
    plain = runs.run(prepared(folder, "features"), rules)
    assert found.statistics.equals(plain.statistics)
    assert found.metrics.scalars == plain.metrics.scalars


def test_resume_wants_a_folder(folder: Path) -> None:
    arguments = command(folder)[:-2]
    done = finished(folder, [*arguments, "--resume"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "give --out DIR" in done.stderr


@pytest.mark.slow
def test_a_result_is_replaced_whole_or_not_at_all(folder: Path) -> None:
    first = finished(folder, command(folder, "--json"))
    assert first.returncode == 0, first.stderr
    before = (folder / "out" / "summary.json").read_bytes()
    arguments = [*command(folder)[1:], "--overwrite", "--ap", "trapezoid"]
    slow = [sys.executable, "-c", SLOW, *arguments]
    process = subprocess.Popen(slow, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    while not attempts(folder):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert (folder / "out" / "summary.json").read_bytes() == before
    resumed = finished(folder, [*slow, "--resume", "--json"])
    assert resumed.returncode == 0, resumed.stderr
    found = json.loads((folder / "out" / "summary.json").read_bytes())
    assert found["options"]["ap"] == "trapezoid"
    assert not (folder / "out.progress").exists()
