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
