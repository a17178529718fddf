"""Formats that people have: each gives the blocks that NumPy gives, and refuses what it must."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import zarr
from support.arrays import LoadedArray, fingerprint, natural_order, open_array

import streameval as se
from streameval import InputError, OptionError

ROWS, WIDTH = 23, 5
VALUES = (np.arange(ROWS * WIDTH) % 97).reshape(ROWS, WIDTH).astype("f4")


def write_hdf5(values: np.ndarray, **options: object) -> str:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("deep/values", data=values, **options)
        file["other"] = np.arange(3)
    return "a.h5::deep/values"


def write_hdf5_chunked(values: np.ndarray) -> str:
    return write_hdf5(values, chunks=(4, *values.shape[1:]), compression="gzip")


def write_hdf5_big_endian(values: np.ndarray) -> str:
    return write_hdf5(values.astype(values.dtype.newbyteorder(">")))


def write_mat73(values: np.ndarray, kind: str = "single") -> str:
    with h5py.File("v73.mat", "w", userblock_size=512) as file:
        stored = file.create_dataset("values", data=values.T, chunks=True)
        stored.attrs["MATLAB_class"] = np.bytes_(kind)
        file.create_dataset("#refs#/a", data=np.arange(3))
    content = bytearray(Path("v73.mat").read_bytes())
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    content[: len(head)] = head
    Path("v73.mat").write_bytes(content)
    return "v73.mat::values"


def write_parquet(values: np.ndarray, kind: str = "list", **options: object) -> str:
    flat = pa.array(values.reshape(-1))
    if kind == "list":
        offsets = pa.array(np.arange(len(values) + 1, dtype="i4") * values.shape[1])
        column = pa.ListArray.from_arrays(offsets, flat)
    else:
        column = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    table = pa.table({"id": np.arange(len(values)), "embedding": column})
    pq.write_table(table, "a.parquet", **options)
    return "a.parquet::embedding"


def write_parquet_fixed(values: np.ndarray) -> str:
    return write_parquet(values, "fixed", row_group_size=4)


def write_vecs(values: np.ndarray, name: str = "a.fvecs") -> str:
    lengths = np.full((len(values), 1), values.shape[1], "<i4")
    width = values.shape[1] * values.dtype.itemsize
    rows = [lengths.view("u1"), np.ascontiguousarray(values).view("u1").reshape(-1, width)]
    np.hstack(rows).tofile(name)
    return name


def write_shards(values: np.ndarray) -> str:
    for at, part in enumerate(np.array_split(values, 11)):
        np.save(f"gallery-{at}.npy", part)  # 10 is after 2
    return "gallery-*.npy"


def write_shard_folder(values: np.ndarray) -> str:
    Path("shards").mkdir()
    for at, part in enumerate(np.array_split(values, 11)):
        np.save(f"shards/part{at}.npy", part)
    return "shards"


def write_images(values: np.ndarray) -> str:
    Path("images").mkdir()
    for at, row in enumerate(values):
        np.save(f"images/{at}.npy", row)
    return "images"


WRITERS = [
    write_hdf5,
    write_hdf5_chunked,
    write_hdf5_big_endian,
    write_mat73,
    write_parquet,
    write_parquet_fixed,
    write_vecs,
    write_shards,
    write_shard_folder,
    write_images,
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("write", WRITERS)
def test_any_block_is_the_slice(write) -> None:
    array = open_array(write(VALUES))
    assert (array.shape, array.dtype) == (VALUES.shape, VALUES.dtype)
    for one in (array, pickle.loads(pickle.dumps(array))):
        for start, stop in ((0, ROWS), (3, 4), (5, 17), (ROWS, ROWS), (21, ROWS)):
            assert np.array_equal(one.read((start, stop)), VALUES[start:stop])
            assert np.array_equal(one.read((start, stop), (1, 4)), VALUES[start:stop, 1:4])
        for rows in ([0, 1, 7, 22], [5], range(ROWS), [3, 4, 6, 19]):
            assert np.array_equal(one.take(np.array(rows)), VALUES[rows])
        with pytest.raises(IndexError):
            one.read((0, ROWS + 1))
    assert array.read_scratch_bytes(4, 4) >= 0
    assert fingerprint(array) == fingerprint(open_array(VALUES))


@pytest.mark.parametrize("write", WRITERS)
def test_features_are_evaluated_as_those_in_memory(write) -> None:
    labels = se.Labels(id=np.arange(ROWS) % 4)
    query = VALUES[:6] + 1
    want, got = (
        se.evaluate(
            se.Features(query, gallery, "euclidean"),
            query=se.Labels(id=np.arange(6) % 4),
            gallery=labels,
            protocol="no-camera",
        )
        for gallery in (VALUES, write(VALUES))
    )
    assert dict(want.metrics.scalars) == dict(got.metrics.scalars)


@pytest.mark.parametrize("write", [write_hdf5, write_mat73, write_shards, write_images])
def test_labels_of_any_format(write) -> None:
    ids = np.arange(ROWS)[:, None] * 3
    uri = write(ids) if write is not write_mat73 else write_mat73(ids, "int64")
    assert np.array_equal(se.read_labels(uri).id, ids[:, 0])


def test_texts_as_labels() -> None:
    names = ["a", "bcd", "ef"]
    with h5py.File("a.h5", "w") as file:
        file["texts"] = names
        file["bytes"] = np.array(names, "S")
    pq.write_table(pa.table({"id": names, "n": [3, 1, 2]}), "a.parquet")
    codes = np.array([[ord(c) for c in name.ljust(3)] for name in names], "u2")
    for uri in ("a.h5::texts", "a.h5::bytes", "a.parquet::id", write_mat73(codes, "char")):
        assert se.read_labels(uri).id.tolist() == names
    assert se.read_labels("a.parquet::n").id.tolist() == [3, 1, 2]


def test_one_array_needs_no_key() -> None:
    write_parquet(VALUES)
    assert np.array_equal(open_array("a.parquet").read_all(), VALUES)  # the one column of lists
    uri = write_mat73(VALUES).partition("::")[0]
    assert np.array_equal(open_array(uri).read_all(), VALUES)


def test_natural_order() -> None:
    names = ["g-10", "g-2", "g-1", "h", "g-01", "g"]
    assert sorted(names, key=natural_order) == ["g", "g-01", "g-1", "g-2", "g-10", "h"]


def test_shards_that_are_loaded_whole() -> None:
    for at, part in enumerate(np.array_split(VALUES, 3)):
        np.savez_compressed(f"part{at}.npz", f=part)
        scipy.io.savemat(f"part{at}.mat", {"f": part})
    for uri in ("part*.npz", "part*.mat"):
        array = open_array(uri)
        out = np.full_like(VALUES[2:20], np.nan)
        assert np.array_equal(array.read((2, 20), out=out), VALUES[2:20])
        assert np.array_equal(array.read((2, 20), (1, 3)), VALUES[2:20, 1:3])


def test_shards_of_keyed_arrays() -> None:
    for at, part in enumerate(np.array_split(VALUES, 3)):
        np.savez(f"part{at}.npz", f=part, ids=np.arange(len(part)))
        zarr.create_array(f"part{at}.zarr", data=part, chunks=(3, WIDTH))
    assert np.array_equal(open_array("part*.npz::f").read_all(), VALUES)
    assert np.array_equal(open_array("part?.zarr").read_all(), VALUES)
    before = fingerprint(open_array("part*.npz::f"))
    np.savez("part1.npz", f=np.array_split(VALUES, 3)[1] + 1)
    assert fingerprint(open_array("part*.npz::f")) != before
    np.save("literal[1].npy", VALUES)  # a file of that name is no pattern
    assert open_array("literal[1].npy").shape == VALUES.shape


def refused(uri: str, *words: str, read: bool = False) -> None:
    with pytest.raises((InputError, OptionError)) as caught:
        open_array(uri).read((0, 2 if read else 0))
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_what_is_refused() -> None:
    refused(write_hdf5(VALUES) + "s", "no such dataset", "deep/values, other")
    refused("a.h5", "several datasets")
    refused(write_parquet(VALUES) + "s", "no such column", "id, embedding")
    refused(write_mat73(VALUES) + "s", "no such variable", "in it: values")
    refused(write_mat73(VALUES, "struct"), "MATLAB class struct")
    refused(write_vecs(VALUES) + "::k", "no keys")
    refused("none-*.npy", "no file fits")
    for name in ("a.h5", "a.parquet", "a.fvecs", "v73.mat"):
        Path(f"cut-{name}").write_bytes(Path(name).read_bytes()[:200])
        refused(f"cut-{name}", f"cut-{name}")


def test_rows_that_differ_are_refused() -> None:
    uri = write_shards(VALUES)
    np.save("gallery-3.npy", VALUES[:2, :3])
    refused(uri, "gallery-3.npy", "(2, 3)", "one number of columns")
    write_images(VALUES)
    np.save("images/1.npy", VALUES[0, :3])
    refused("images", "row 1 is 1.npy", "one row", read=True)
    pq.write_table(pa.table({"e": [[1.0, 2.0], [3.0]]}), "uneven.parquet")
    refused("uneven.parquet", "row 1 is 1 long", read=True)
    pq.write_table(pa.table({"e": [[1.0, 2.0], None]}), "null.parquet")
    refused("null.parquet", "null in row 1", read=True)
    pq.write_table(pa.table({"e": [[1.0, 2.0], [3.0, None]]}), "null.parquet")
    refused("null.parquet", "null in row 1", read=True)


def test_rows_that_were_never_written_are_refused() -> None:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("v", (10**12, 512), "f4", chunks=(64, 512))[:64] = 1
        file.create_dataset("w", (10**6, 512), "f4")
    refused("a.h5::v", "1 of 15625000000 chunks", "never written")
    refused("a.h5::w", "0 of 2048000000 bytes")


def test_values_that_lie_in_other_files_are_refused() -> None:
    VALUES.tofile("raw.bin")
    with h5py.File("part.h5", "w") as file:
        file["v"] = VALUES
    layout = h5py.VirtualLayout(VALUES.shape, VALUES.dtype)
    layout[:] = h5py.VirtualSource("part.h5", "v", VALUES.shape)
    with h5py.File("a.h5", "w") as file:
        file.create_virtual_dataset("virtual", layout)
        outside = [("raw.bin", 0, VALUES.nbytes)]
        file.create_dataset("external", VALUES.shape, VALUES.dtype, external=outside)
        file["link"] = h5py.ExternalLink("part.h5", "/v")
    refused("a.h5::virtual", "lie elsewhere (part.h5)", "part-*.h5::features")
    refused("a.h5::external", "lie elsewhere (raw.bin)")
    refused("a.h5::link", "no such dataset")


def test_parquet_is_read_by_row_groups_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streameval.arrays.parquet._PIECE_BYTES", 60)
    for groups in (1, 7, ROWS):
        array = open_array(write_parquet(VALUES, row_group_size=groups))
        assert array.chunks == (groups, WIDTH)
        for start in range(ROWS):
            assert np.array_equal(array.read((start, ROWS)), VALUES[start:])


def test_a_tensor_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    Path("a.pt").write_bytes(b"")
    refused("a.pt", "pip install torch", "numpy.save")


def test_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.from_numpy(VALUES)
    torch.save(tensor, "one.pt")
    torch.save({"model": {"f": tensor, "ids": torch.arange(3)}, "list": [tensor]}, "more.pth")
    torch.save(tensor.to(torch.bfloat16), "short.pt")
    for uri in ("one.pt", "more.pth::model/f", "more.pth::list/0", "short.pt"):
        array = open_array(uri)
        assert np.array_equal(array.read_all(), VALUES)
        assert np.array_equal(pickle.loads(pickle.dumps(array)).read_all(), VALUES)
        assert isinstance(array, LoadedArray)
    refused("more.pth", "several tensors", "model/f, model/ids, list/0")

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (Path("executed"),)  # type: ignore[return-value]

    torch.save({"f": tensor, "trap": Trap()}, "trap.pt")
    refused("trap.pt::f", "never loaded")
    assert not Path("executed").exists()


def test_pytorch_result_version_7(tmp_path: Path) -> None:
    scipy.io.savemat("r.mat", {"gallery_f": VALUES, "gallery_label": [np.arange(ROWS)]})
    assert se.read_labels("r.mat::gallery_label").id.tolist() == list(range(ROWS))
