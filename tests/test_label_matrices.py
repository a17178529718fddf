"""Labels that are columns or rows of a matrix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from array_files import WRITERS, write_mat, write_npy
from test_cli import STORED, data, run
from test_cli_metrics import refused

import streameval as se

__all__ = ["data"]

TRACKS = np.arange(40).reshape(10, 4) % 7 - 1


def write_hdf5(folder: Path, values: np.ndarray) -> str:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "a.h5", "w") as file:
        file["values"] = values
    return f"{folder}/a.h5::values"


def write_mat73(folder: Path, values: np.ndarray) -> str:
    h5py = pytest.importorskip("h5py")
    path = folder / "b.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["values"] = values.T
        file["values"].attrs["MATLAB_class"] = np.bytes_(b"double")
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(116))
        raw.seek(124)
        raw.write(b"\x00\x02IM")
    return f"{path}::values"


@pytest.mark.parametrize("write", [*WRITERS, write_hdf5, write_mat73])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
def test_columns_and_rows_of_every_format(
    tmp_path: Path, write: Callable[[Path, np.ndarray], str], dtype: str
) -> None:
    values = np.abs(TRACKS).astype(dtype) if dtype == "uint8" else TRACKS.astype(dtype)
    uri = write(tmp_path, values)
    labels = se.read_labels(f"{uri}[:,2]", f"{uri}[:, 0]", f"{uri}[:,3]")
    expected = np.abs(TRACKS) if dtype == "uint8" else TRACKS
    for name, column in (("id", 2), ("cam", 0), ("key", 3)):
        assert labels.columns[name].dtype.kind == "i"
        assert labels.columns[name].tolist() == expected[:, column].tolist()
    assert se.read_labels(f"{uri}[9,:]").id.tolist() == expected[9].tolist()


def test_columns_of_text(tmp_path: Path) -> None:
    uri = write_npy(tmp_path, np.array([["a", "c1"], ["b", "c2"]]))
    assert se.read_labels(f"{uri}[:,1]").id.tolist() == ["c1", "c2"]


def test_whole_numbers_of_matlab_are_integers(tmp_path: Path) -> None:
    uri = write_mat(tmp_path, np.array([[3.0, -1.0, 2.0]]))
    assert se.read_labels(uri).id.tolist() == [3, -1, 2]
    for values, words in (
        ([[3.0, 0.5]], "id is of dtype float64"),
        ([[2.0**53, 1]], "id is of dtype float64"),
        ([[np.nan, 1]], "id row 0 is nan"),
        ([[np.inf, 1]], "id row 0 is inf"),
    ):
        with pytest.raises(se.InputError, match=words):
            se.read_labels(write_mat(tmp_path, np.array(values)))


@pytest.mark.parametrize(
    "selector",
    ["[:,4]", "[10,:]", "[:,-1]", "[:,:]", "[1,2]", "[:,a]", "[:,1.0]", "[,]", "[0:2,1]"],
)
def test_what_is_not_there_is_refused_with_what_is(tmp_path: Path, selector: str) -> None:
    uri = write_npy(tmp_path, TRACKS)
    with pytest.raises(se.InputError) as caught:
        se.read_labels(uri + selector)
    for part in (f"a.npy{selector} names", "(10, 4)", "[:,0] to [:,3]", "[0,:] to [9,:]"):
        assert part in str(caught.value)


def test_a_vector_has_no_columns(tmp_path: Path) -> None:
    uri = write_npy(tmp_path, np.arange(3))
    with pytest.raises(se.InputError, match=re.escape("shape (3,), and a column is selected from")):
        se.read_labels(f"{uri}[:,0]")


def test_a_matrix_without_a_selector_says_how(tmp_path: Path) -> None:
    with pytest.raises(se.InputError, match=re.escape("select a column, [:,0] to [:,3]")):
        se.read_labels(write_npy(tmp_path, TRACKS))


def test_columns_on_the_command_line(data: Path) -> None:
    for side in ("query", "gallery"):
        columns = [np.load(f"{side}_{name}.npy") for name in ("id", "cam")]
        np.save(f"{side}_all.npy", np.stack(columns, axis=1).astype(float))
    labels = [
        part
        for side in ("query", "gallery")
        for at, name in enumerate(("ids", "cams"))
        for part in (f"--{side}-{name}", f"{side}_all.npy[:,{at}]")
    ]
    plain = [
        part.replace("_all.npy[:,0]", "_id.npy").replace("_all.npy[:,1]", "_cam.npy")
        for part in labels
    ]
    found, expected = (run(*STORED, *own, "--json") for own in (labels, plain))
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["metrics"] == json.loads(expected.stdout)["metrics"]
    grouped = run(*STORED, *labels, "--group-by", "query_all.npy[:,1]", "--json")
    assert grouped.exit_code == 0
    refused(run(*STORED, *labels[:-1], "gallery_all.npy[:,2]"), "[:,0] to [:,1]", "gallery_all")
