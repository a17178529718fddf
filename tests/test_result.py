"""Saved results: whole or not at all, nothing foreign lost, damage found on loading."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.result import (
    BEST,
    ENTRIES,
    GROUPS,
    ResultFolder,
    check_output,
    load_statistics,
    save_statistics,
)

import streameval as se

LONG = "x" * 300


@pytest.fixture(scope="module")
def result() -> se.Evaluation:
    return se.evaluate(
        se.Distances(np.random.default_rng(1).integers(0, 5, (4, 9)) / 4.0),
        query=se.Labels(id=[1, 2, 3, 9]),
        gallery=se.Labels(id=[1, 2, 3, 1, 2, 3, 4, 4, 4]),
        protocol="no-camera",
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def same(one: se.Evaluation, other: se.Evaluation) -> bool:
    return json.dumps(one.summary()) == json.dumps(other.summary())


def refuses(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(se.OutputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("names", ["mAP,CMC@1", ["mAP", "CMC@1"], ("mAP", "CMC@1")])
def test_metrics_are_named_as_evaluate_takes_them(result: se.Evaluation, names: object) -> None:
    read = result.with_options(metrics=names)
    assert read.options.metrics == ("mAP", "CMC@1")
    assert dict(read.metrics.scalars) == {name: result[name] for name in ("CMC@1", "mAP")}


def test_a_result_is_shown_in_a_line(result: se.Evaluation) -> None:
    assert repr(result).startswith("<Evaluation of 4 queries × 9 gallery items: ")
    assert len(repr(result.with_options(metrics=("all",)))) < 400


def test_saved_and_loaded_is_the_same(result: se.Evaluation, folder: Path) -> None:
    result.save("deep/down/out")
    written = {path.name for path in Path("deep/down/out").iterdir()}
    assert written == {*ENTRIES} - {GROUPS, BEST}  # there are none
    assert same(se.Evaluation.load("deep/down/out"), result)
    assert [path.name for path in Path("deep/down").iterdir()] == ["out"]
    assert Path("deep/down/out").stat().st_mode == Path("deep").stat().st_mode  # by the umask


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("foreign", ["notes.txt", ".hidden", "weights"])
def test_a_folder_that_holds_anything_else_is_not_replaced(
    result: se.Evaluation, foreign: str
) -> None:
    result.save("out")
    if "." in foreign:
        Path("out", foreign).write_text("precious")
    else:
        Path("out", foreign).mkdir()
    refuses(lambda: result.save("out", overwrite=True), f"out holds {foreign}", "no part of")
    assert Path("out", foreign).exists()
    assert same(se.Evaluation.load("out"), result)


@pytest.mark.usefixtures("folder")
def test_what_is_no_result_is_not_replaced(
    result: se.Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("full").mkdir()
    Path("full/statistics.zarr").mkdir()
    refuses(lambda: result.save("full", overwrite=True), "without a result in it")
    refuses(lambda: result.save("", overwrite=True), "name of the output folder is empty")
    result.save("out")
    monkeypatch.chdir("out")
    for here in (".", "../out"):
        refuses(lambda here=here: result.save(here), "exists already")
        refuses(lambda here=here: result.save(here, overwrite=True), "current folder")
    monkeypatch.chdir("statistics.zarr")
    refuses(lambda: result.save("..", overwrite=True), "current folder")
    refuses(lambda: result.save("/", overwrite=True), "current folder")


@pytest.mark.usefixtures("folder")
def test_where_nothing_can_be_written(
    result: se.Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    for name in (LONG, f"new/{LONG}", f"{LONG}/new"):
        refuses(lambda name=name: result.save(name), "too long")
    refuses(lambda: result.save("file/new"), "file/new", "Not a directory")
    assert [path.name for path in Path.cwd().iterdir()] == ["file"]

    def forbid(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for call in ("stat", "lstat", "mkdir"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, call, forbid)
            refuses(lambda: result.save("new"), "new", "Permission denied")
    result.save("out")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", forbid)
        refuses(lambda: check_output("out", overwrite=True), "out", "Permission denied")


@pytest.mark.usefixtures("folder")
def test_a_failed_write_leaves_what_was_there(
    result: se.Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    result.save("out")
    before = sorted(Path.cwd().rglob("*"))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", full)
        refuses(lambda: result.save("out", overwrite=True), "No space left")
        refuses(lambda: result.save("new"), "No space left")
    rename = Path.rename
    with monkeypatch.context() as patched:
        patched.setattr(
            Path, "rename", lambda a, b: full() if ".partial." in a.name else rename(a, b)
        )
        refuses(lambda: result.save("out", overwrite=True), "No space left")
    assert sorted(Path.cwd().rglob("*")) == before
    assert same(se.Evaluation.load("out"), result)


@pytest.mark.usefixtures("folder")
def test_what_killed_processes_left_is_swept(result: se.Evaluation) -> None:
    def leave(state: str) -> Path:
        name = ResultFolder("out", overwrite=True).partial.name.replace("partial", state)
        Path(name).mkdir()
        return Path(name)

    foreign = Path(".out.notes")
    foreign.mkdir()
    dead, only_copy = leave("partial"), leave("old")
    result.save("out")
    assert not dead.exists()
    assert only_copy.exists()
    result.save("out", overwrite=True)
    assert sorted(path.name for path in Path.cwd().iterdir()) == [".out.notes", "out"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda: Path("out/statistics.zarr/closer/c/0").unlink(), ["closer", "incomplete", "c/0"]),
        (lambda: shutil.rmtree("out/statistics.zarr/valid"), ["valid"]),
        (lambda: shutil.rmtree("out/statistics.zarr"), ["statistics.zarr"]),
        (lambda: Path("out/statistics.zarr/tied/zarr.json").write_text("{"), ["JSON"]),
        (lambda: flip("out/statistics.zarr/closer/c/0"), ["statistics.zarr"]),
        (lambda: Path("out/per_query.parquet").unlink(), ["per_query.parquet"]),
        (lambda: Path("out/per_query.parquet").write_bytes(b"PAR1"), ["damaged"]),
    ],
)
def test_damage_is_found(
    result: se.Evaluation, damage: Callable[[], object], words: list[str]
) -> None:
    result.save("out")
    damage()
    refuses(lambda: se.Evaluation.load("out"), "out is damaged", *words)


def flip(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 2] ^= 4
    Path(path).write_bytes(content)


@pytest.mark.usefixtures("folder")
def test_a_result_of_the_first_format_is_read(result: se.Evaluation) -> None:
    result.save("out")
    summary = json.loads(Path("out/summary.json").read_text())
    summary["provenance"]["format"] = 1
    summary["provenance"]["protocol"]["cmc"] = "first match"
    del summary["details"]
    for option in ("cmc", "metrics"):
        del summary["options"][option]
    Path("out/summary.json").write_text(json.dumps(summary))
    group = Path("out/statistics.zarr/zarr.json")
    attributes = json.loads(group.read_text())
    del attributes["attributes"]["fields"]
    group.write_text(json.dumps(attributes))
    shutil.rmtree("out/statistics.zarr/positive_item")  # it had no optional fields
    loaded = se.Evaluation.load("out")
    assert loaded.statistics.equals(result.statistics, ignoring=["positive_item"])
    assert loaded.statistics.positive_item is None
    assert json.dumps(loaded.summary()["metrics"]) == json.dumps(result.summary()["metrics"])


@pytest.mark.usefixtures("folder")
def test_a_histogram_is_kept(result: se.Evaluation) -> None:
    more = {"impostor_histogram": np.arange(6), "histogram_edges": np.linspace(0, 1, 5)}
    save_statistics(replace(result.statistics, **more), Path("out.zarr"))
    assert load_statistics(Path("out.zarr")).equals(replace(result.statistics, **more))
    shutil.rmtree("out.zarr/impostor_histogram")
    refuses(lambda: load_statistics(Path("out.zarr")), "impostor_histogram")


@pytest.mark.usefixtures("folder")
def test_statistics_of_another_run_are_found(result: se.Evaluation) -> None:
    result.save("out")
    other = replace(result.statistics, tied=result.statistics.tied + 1)
    save_statistics(other, Path("out/statistics.zarr"))
    refuses(lambda: se.Evaluation.load("out"), "out is damaged", "ties", "summary.json says")


@pytest.mark.usefixtures("folder")
def test_what_is_no_result_is_not_loaded() -> None:
    for name in ("none", LONG, "."):
        refuses(lambda name=name: se.Evaluation.load(name), "is not a saved result")
    for text in ("{", "[]", "{}", '{"provenance": {"format": "x"}}'):
        Path("summary.json").write_text(text)
        refuses(lambda: se.Evaluation.load("."), "is not a saved result")
    Path("summary.json").write_text('{"provenance": {"format": 99}}')
    refuses(lambda: se.Evaluation.load("."), "format 99", "newer streameval")


@pytest.mark.usefixtures("folder")
def test_values_that_json_has_not(result: se.Evaluation) -> None:
    scalars = result.metrics.scalars | {"mAP": np.inf, "mINP": -np.inf, "MFR": np.nan}
    odd = replace(
        result,
        metrics=replace(result.metrics, scalars=scalars, intervals={"mAP": (0.5, np.inf)}),
        provenance=result.provenance | {"junk": [np.int64(3), np.float32(0.5)]},
    )
    odd.save("out")
    summary = json.loads(Path("out/summary.json").read_text())
    assert [summary["metrics"][name] for name in ("mAP", "mINP", "MFR")] == [None] * 3
    assert summary["intervals"] == {"mAP": [0.5, None]}
    assert summary["provenance"]["junk"] == [3, 0.5]
