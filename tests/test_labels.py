"""Labels from arrays and from tables."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import zarr
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.protocols import find_pairs

from streameval import PROTOCOLS, InputError, Labels, read_label_table, read_labels


def test_labels_by_uri(tmp_path: Path) -> None:
    ids, cams = np.array([3, -1, 0]), np.array(["c1", "c2", "c1"])
    np.save(tmp_path / "id.npy", ids)
    np.savez(tmp_path / "l.npz", cam=cams, key=np.array([b"x", b"y", b"z"]))
    labels = read_labels(tmp_path / "id.npy", f"{tmp_path}/l.npz::cam", f"{tmp_path}/l.npz::key")
    assert labels.id.tolist() == ids.tolist()
    assert labels.cam is not None
    assert labels.cam.tolist() == cams.tolist()
    assert labels.key is not None
    assert labels.key.tolist() == ["x", "y", "z"]


def test_a_file_without_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "id.npy", np.empty(0, np.int64))
    assert len(read_labels(tmp_path / "id.npy")) == 0


def test_labels_in_memory() -> None:
    labels = read_labels(np.array(["a", "b"], dtype=object))
    assert labels.id.tolist() == ["a", "b"]
    assert labels.cam is None


def test_columns_of_a_matrix_file_are_flattened(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "l.mat", {"row": [[1, 2, 3]], "column": [[4], [5], [6]]})
    labels = read_labels(f"{tmp_path}/l.mat::row", f"{tmp_path}/l.mat::column")
    assert labels.id.tolist() == [1, 2, 3]
    assert labels.cam is not None
    assert labels.cam.tolist() == [4, 5, 6]


def test_real_labels_of_a_matrix_file() -> None:
    found = sorted(Path(__file__).parents[2].glob("shared/data/sketch-reid-features/**/*.mat"))
    if not found:
        pytest.skip("../shared/data/sketch-reid-features is not there")
    labels = read_labels(f"{found[0]}::gallery_label", f"{found[0]}::gallery_cam")
    assert len(labels) == 100


def test_zarr_strings_as_labels(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "id.zarr", shape=(3,), chunks=(2,), dtype=str)
    array[:] = np.array(["p1", "p2", "p1"])
    assert read_labels(tmp_path / "id.zarr").id.tolist() == ["p1", "p2", "p1"]


def test_features_given_as_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.ones((5, 3)))
    with pytest.raises(InputError, match=r"f\.npy has shape \(5, 3\)"):
        read_labels(tmp_path / "f.npy")
    np.save(tmp_path / "g.npy", np.ones(5))
    with pytest.raises(InputError, match=r"g\.npy id is of dtype float64"):
        read_labels(tmp_path / "g.npy")


def test_lengths_that_differ(tmp_path: Path) -> None:
    np.save(tmp_path / "id.npy", np.arange(5))
    with pytest.raises(InputError, match=r"id\.npy has 5 ids, and labels 4 entries of cam"):
        read_labels(tmp_path / "id.npy", np.arange(4))
    with pytest.raises(InputError, match="labels has 5 ids, and 4 entries of key"):
        Labels(np.arange(5), key=np.arange(4))
    np.save(tmp_path / "cam.npy", np.arange(4))
    with pytest.raises(InputError, match=r"id\.npy has 5 ids, and .*cam\.npy 4 entries of cam"):
        read_labels(tmp_path / "id.npy", tmp_path / "cam.npy")


def test_the_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "id.npy", np.arange(5))
    np.save(tmp_path / "cam.npy", np.array([1, 2, 0.5, 4, 5]))
    with pytest.raises(InputError, match=r"/cam\.npy cam row 2 is 0.5"):
        read_labels(tmp_path / "id.npy", tmp_path / "cam.npy")
    with pytest.raises(InputError, match=r"/cam\.npy key row 2 is 0.5"):
        read_labels(tmp_path / "id.npy", keys=tmp_path / "cam.npy")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([np.int64(3), 4, np.uint8(5)], dtype=object), [3, 4, 5]),
        (np.array([np.str_("a"), "bc"], dtype=object), ["a", "bc"]),
        ([3, 4], [3, 4]),
        (["a", "bc"], ["a", "bc"]),
        ((1, 2), [1, 2]),
        ([np.int64(7)], [7]),
        ([b"x", b"yz"], ["x", "yz"]),
        ([], []),
        (np.ma.masked_array([3, 4], mask=False), [3, 4]),
    ],
)
def test_objects_and_lists(values: Any, expected: list[object]) -> None:
    for labels in (Labels(id=values, cam=values), read_labels(values, values)):
        assert labels.id.dtype.kind in "iU"
        assert labels.id.tolist() == expected
        assert labels.cam is not None
        assert labels.cam.tolist() == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, "a"], "int, str"),
        (np.array([1, None], dtype=object), "labels id row 1 is None: a label is needed"),
        (["a", "b", None, None], "labels id row 2 is None: a label is needed"),
        ([[None], [3]], "labels id row 0 is None: a label is needed"),
        ([1, True], "bool, int; integers or strings are needed, all of one kind"),
        ([1, np.True_], "int; integers or strings are needed, all of one kind"),
        (["a", True], "bool, str"),
        ([True, False], "bool"),
        ([2**63], "beyond int64"),
        (np.array([True, False], dtype=object), "bool"),
        (np.array([2**63], dtype=object), "beyond int64"),
        ([1.5, 2.0], "float64"),
        (np.ma.masked_array([3, 4], mask=[0, 1]), "labels id has masked values"),
        ([[1], [1, 2]], "labels id can't be made an array of NumPy"),
        ("ids.npy", r"labels id is a text, 'ids.npy'; labels themselves are needed"),
        (None, "labels has no id: an identity per item is needed"),
    ],
)
def test_objects_and_lists_refused(values: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Labels(id=values)


def test_further_columns_that_have_no_names() -> None:
    with pytest.raises(InputError, match="further columns of labels are of type list; a mapping"):
        Labels(id=[1, 2], more=[[3, 4]])  # type: ignore[arg-type]


def test_a_table_in_a_folder_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", forbid)
    for read, name in ((read_label_table, "a.csv"), (read_labels, "a.npy")):
        with pytest.raises(InputError, match=rf"{name} can't be \w+.*Permission denied"):
            read(tmp_path / name)


def write_csv(folder: Path, text: str) -> Path:
    path = folder / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return path


def columns(labels: Labels) -> list[list[object] | None]:
    return [None if c is None else c.tolist() for c in (labels.id, labels.cam, labels.key)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,cam\n1,2\n-1,3\n", [[1, -1], [2, 3], None]),
        ("path,key,id\na.jpg,k1,0002\nb.jpg,k2,+7\n", [[2, 7], None, ["k1", "k2"]]),
        ("id, cam\n 1 , c1\n 2 ,c2\n\n", [[1, 2], ["c1", "c2"], None]),
        ("id\n1\nx2\n", [["1", "x2"], None, None]),
        ("\ufeffid\n2020-01-01\n2020-01-02\n", [["2020-01-01", "2020-01-02"], None, None]),
        ("id\nNASA\ntrue\n", [["NASA", "true"], None, None]),
        ("id\n1.5\nx\n", [["1.5", "x"], None, None]),
        ("id\n99999999999999999999\n1\n", [["99999999999999999999", "1"], None, None]),
        ('"id","cam"\n"a,b",1\n', [["a,b"], [1], None]),
        ("id,cam\n", [[], [], None]),
    ],
)
def test_csv(tmp_path: Path, text: str, expected: list[object]) -> None:
    assert columns(read_label_table(write_csv(tmp_path, text))) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,cam\nx,1\n", ["no column id", "name, cam"]),
        ("", ["no column id", "none"]),
        ("id,cam\n1,2\n3,NA\n4,NA\n", ["column cam holds NA in 2 rows", "first in row 1"]),
        ("id\n1\n\n3\n", ["column id is empty", "row 1"]),
        ("id\n1\n2.0\n", ["column id holds 2.0 in row 1", "integers or strings"]),
        ("id\n1\nnan\n", ["column id is empty in 1 rows", "row 1", "holds nan"]),
        ("id,cam\n1,2\n3\n", ["can't be read"]),
        ("id,id\n1,2\n", ["2 columns id"]),
    ],
)
def test_csv_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read_label_table(write_csv(tmp_path, text))
    for word in ["labels.csv", *words]:
        assert word in str(caught.value)


def test_csv_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"id\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"b\.csv is no text in UTF-8 \(byte 0xff at 3\)"):
        read_label_table(tmp_path / "b.csv")


def write_parquet(folder: Path, **table: object) -> Path:
    pq.write_table(pa.table(table), folder / "labels.parquet")
    return folder / "labels.parquet"


@examples(30)
@given(
    ids=st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0")).map(lambda t: f"x{t}"),
            min_size=1,
        ),
    )
)
def test_parquet_round_trip(tmp_path: Path, ids: list[int] | list[str]) -> None:
    labels = read_label_table(write_parquet(tmp_path, id=ids, other=[0.5] * len(ids)))
    assert labels.id.tolist() == ids


def test_parquet_categories(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, id=pa.array(["a", "b", "a"]).dictionary_encode())
    assert read_label_table(path).id.tolist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": [1]}, ["no column id", "name"]),
        ({"id": [1, None, 2]}, ["column id is empty in 1 rows", "row 1"]),
        ({"id": ["a", ""]}, ["column id is empty", "row 1"]),
        ({"id": [1.0, 2.0]}, ["id is of dtype float64"]),
        ({"id": [1, 2], "cam": [0.5, float("nan")]}, ["cam row 0 is 0.5"]),
        ({"id": [True, False]}, ["bool"]),
        ({"id": [[1], [2]]}, ["id"]),
    ],
)
def test_parquet_refused(tmp_path: Path, table: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read_label_table(write_parquet(tmp_path, **table))
    for word in ["labels.parquet", *words]:
        assert word in str(caught.value)


def test_tables_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_label_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"\.csv, \.parquet"):
        read_label_table(tmp_path / "ids.dat")
    os.mkfifo(tmp_path / "names.txt")
    with pytest.raises(InputError, match="is not a file"):
        read_label_table(tmp_path / "names.txt")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"bad\.parquet can't be read"):
        read_label_table(tmp_path / "bad.parquet")


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(10**6, 10**6 + 9)


@given(st.lists(INTEGERS, max_size=9), st.lists(INTEGERS, max_size=20), st.booleans())
def test_matches_are_found_wherever_labels_lie(
    query: list[int], gallery: list[int], text: bool
) -> None:
    sides = [np.array(own, np.int64) for own in (query, gallery)]
    if text:
        sides = [own.astype(str) for own in sides]
    pairs = find_pairs(*(Labels(own) for own in sides), PROTOCOLS["no-camera"])
    expected = sides[0][:, None] == sides[1]
    found = np.zeros_like(expected)
    found[np.repeat(np.arange(len(query)), np.diff(pairs.indptr)), pairs.item] = True
    assert np.array_equal(found, expected)
