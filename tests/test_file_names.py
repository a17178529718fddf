"""Labels by file names, and one file that holds features and labels of both sides."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner
from support.cli import main
from support.labels import NAMES

import streameval as se
from streameval import InputError

SKETCH = Path(__file__).resolve().parents[2] / "shared/data/sketch-reid-features"
MARKET = ["-1_c3s2_002.jpg", "0000_c1s1_000451_03.jpg", "0002_c1s1_000451_03.jpg"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("lines", "ids", "cams"),
    [
        (MARKET, [-1, 0, 2], [3, 1, 1]),
        (["0005_c2_f0046985.jpg", "4000_c8_f0044158.jpg"], [5, 4000], [2, 8]),
        (["0002_c002_00030600_0.jpg", "776_c020_00085060_1.jpg"], [2, 776], [2, 20]),
        (
            [
                "0000/0000_000_01_0303morning_0008_0.jpg 0",
                "test\\3059\\3059_044_15_0114afternoon_1593_1_ex.jpg",
            ],
            [0, 3059],
            [1, 15],
        ),
    ],
)
def test_names_in_a_text(lines: list[str], ids: list[int], cams: list[int]) -> None:
    Path("names.txt").write_text("\n".join(lines) + "\n\n")
    labels = se.read_label_table("names.txt")
    assert labels.id.tolist() == ids
    assert labels.cam is not None
    assert labels.cam.tolist() == cams
    assert labels.key is not None
    assert all(key in line for key, line in zip(labels.key.tolist(), lines, strict=True))
    assert all(key.endswith(".jpg") for key in labels.key.tolist())


def test_names_of_a_folder_are_in_the_order_of_its_features() -> None:
    Path("f").mkdir()
    names = ["10_c2s1_000001_00.npy", "9_c1s1_000001_00.npy", "-1_c1s1_000002_00.npy"]
    for name in names:
        np.save(f"f/{name}", np.full(4, float(name.partition("_")[0])))
    Path("f/Thumbs.db").write_text("")
    labels = se.read_label_table("f")
    from support.arrays import open_array

    assert labels.id.tolist() == open_array("f").read_all()[:, 0].tolist() == [9, 10, -1]


def test_names_beside_a_csv() -> None:
    Path("names.txt").write_text("\n".join(MARKET))
    Path("query.csv").write_text("id,cam\n0002,2\n0003,1\n")
    query, gallery = se.read_label_tables("query.csv", "names.txt")
    assert query.id.tolist() == [2, 3]
    assert gallery.id.tolist() == [-1, 0, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no file names"),
        ("image.jpg\n", "name 0"),
        (MARKET[0] + "\nimage.jpg\n", "name 1"),
        (MARKET[0] + "\n\n" + MARKET[1], "name 1"),
        (MARKET[0] + "\n0000_000_01_0303morning_0008_0.jpg", "all of one kind"),
        ("9" * 30 + "_c1s1_1.jpg", "name 0"),
    ],
)
def test_names_that_tell_nothing(text: str, words: str) -> None:
    Path("names.txt").write_text(text)
    with pytest.raises(InputError, match=words):
        se.read_label_table("names.txt")


def run(*arguments: str) -> dict:
    done = CliRunner().invoke(main, ["evaluate", *arguments, "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_one_file_holds_all() -> None:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.integers(0, 4, 9) if "_f" not in name else rng.normal(size=(9, 5)).astype("f4")
        for name in NAMES.values()
    }
    scipy.io.savemat("pytorch_result.mat", arrays)
    np.savez("all.npz", **arrays)
    for name, values in arrays.items():
        np.save(f"{name}.npy", values)
    by_option = [f"--{option.replace('_', '-')}={name}.npy" for option, name in NAMES.items()]
    want = run(*by_option)
    for one in ("pytorch_result.mat", "all.npz"):
        got = run(one)
        assert (got["metrics"], got["counts"]) == (want["metrics"], want["counts"])
    for name in ("query_cam", "gallery_cam"):
        del arrays[name]
    np.savez("no-cameras.npz", **arrays)
    assert run("no-cameras.npz", "--protocol", "no-camera")["metrics"]["mAP"] > 0
    del arrays["gallery_label"]
    np.savez("less.npz", **arrays)
    for given, words in (
        (["less.npz"], "One file alone must hold query_f, gallery_f, query_label"),
        (["all.npz", "--query", "q.npy"], "got all.npz and --query"),
        (["none.mat"], "does not exist"),
    ):
        done = CliRunner().invoke(main, ["evaluate", *given])
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr


@pytest.mark.skipif(not SKETCH.is_dir(), reason=f"{SKETCH} is not there")
def test_real_features_as_the_baseline_saves_them() -> None:
    path = SKETCH / "pytorch_result.mat"
    found = run(str(path))["metrics"]
    data = scipy.io.loadmat(path)
    sides = [data[f"{side}_f"].astype("f8") for side in ("query", "gallery")]
    query, gallery = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in sides)
    order = np.argsort(-(query @ gallery.T), axis=1, kind="stable")
    same = data["gallery_label"] == data["query_label"].T
    match = np.take_along_axis(same, order, 1)
    assert not (same & (data["gallery_cam"] == data["query_cam"].T)).any()
    for rank in (1, 5, 10, 20):
        assert found[f"CMC@{rank}"] == match[:, :rank].any(axis=1).mean()
    precision = np.cumsum(match, axis=1) / np.arange(1, match.shape[1] + 1)
    average = (precision * match).sum(axis=1) / match.sum(axis=1)
    assert found["mAP"] == pytest.approx(average.mean(), abs=1e-12)


CROPS = ["A/001/cropped_rgb001.jpg", "B/001/cropped_rgb002.jpg", "C/032/cropped_rgb001.jpg"]
BY_FOLDER = r"(?P<cam>[ABC])/(?P<id>\d+)/"


def test_a_pattern_tells_the_columns() -> None:
    Path("names.txt").write_text("\n".join(f"{name} 3" for name in CROPS) + "\n")
    labels = se.read_label_table("names.txt", pattern=BY_FOLDER)
    assert labels.id.tolist() == [1, 1, 32]
    assert labels.columns["cam"].tolist() == ["A", "B", "C"]
    assert labels.columns["key"].tolist() == [name.rpartition("/")[2] for name in CROPS]
    wide = se.read_label_table("names.txt", pattern=BY_FOLDER + r"\w+?(?P<frame>\d+)\.")
    assert wide.more["frame"].tolist() == [1, 2, 1]


def test_a_pattern_of_the_keys_of_a_table() -> None:
    Path("t.csv").write_text("key,weather\n" + "".join(f"{name},wet\n" for name in CROPS))
    labels = se.read_label_table("t.csv", more=["weather"], pattern=BY_FOLDER)
    assert labels.id.tolist() == [1, 1, 32]
    assert labels.more["weather"].tolist() == ["wet"] * 3


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(?P<id>", "is no regular expression: missing"),
        (r"(?P<cam>\w)", "has no group id \\(it has cam\\)"),
        (r"(\d+)", "has no group id \\(it has none\\)"),
        (r"(?P<id>\d+)(?P<group>\w)", "group group, a name that is reserved"),
        (
            r"(?P<id>\d+)_x",
            "name 0 .* is 'A/001/cropped_rgb001.jpg', which does not fit by pattern",
        ),
        (r"(?P<id>\d+)/(?P<cam>\d*)", "name 0 .*which tells no cam by pattern"),
    ],
)
def test_patterns_that_are_refused(pattern: str, says: str) -> None:
    Path("names.txt").write_text("\n".join(CROPS))
    with pytest.raises(se.StreamevalError, match=says):
        se.read_label_table("names.txt", pattern=pattern)


def test_tables_that_a_pattern_does_not_suit() -> None:
    Path("t.csv").write_text("key,id\nA/001/,1\n")
    with pytest.raises(InputError, match="has a column id, and so has the pattern"):
        se.read_label_table("t.csv", pattern=BY_FOLDER)
    Path("t.csv").write_text("name\nA/001/\n")
    with pytest.raises(InputError, match="has no column key, whose names a pattern is of"):
        se.read_label_table("t.csv", pattern=BY_FOLDER)


def test_a_pattern_on_the_command_line() -> None:
    rng = np.random.default_rng(3)
    sides = {"query": 6, "gallery": 40}
    for side, count in sides.items():
        np.save(f"{side}.npy", rng.standard_normal((count, 8)))
        names = [f"{rng.choice(['A', 'B'])}/{rng.integers(5):03}/{n}.jpg" for n in range(count)]
        Path(f"{side}.txt").write_text("\n".join(names))
    files = ["--query", "query.npy", "--gallery", "gallery.npy"]
    tables = ["--query-labels", "query.txt", "--gallery-labels", "gallery.txt"]
    command = ["evaluate", *files, *tables, "--pattern", BY_FOLDER, "--json", "--out", "result"]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == 0, found.stderr
    query, gallery = se.read_label_tables("query.txt", "gallery.txt", pattern=BY_FOLDER)
    python = se.evaluate(se.Features("query.npy", "gallery.npy"), query=query, gallery=gallery)
    assert json.loads(found.stdout)["metrics"]["mAP"] == python["mAP"]
    again = CliRunner().invoke(main, ["report", "result", "--images", ".", "--out", "r.html"])
    assert "can't be read again" not in again.stderr
    ids = ["--query-ids", "query.npy", "--gallery-ids", "gallery.npy"]
    refused = CliRunner().invoke(main, ["evaluate", *files, *ids, "--pattern", BY_FOLDER])
    assert refused.exit_code == 2
    assert "got --pattern, which has no effect here" in refused.stderr
