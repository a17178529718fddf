"""What is no array that can be evaluated is refused, and the message says why and what to do."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import scipy.io
import zarr
from array_files import write_mat, write_npy, write_npz, write_npz_compressed, write_zarr
from support.arrays import FORMATS, open_array, parse_uri

from streameval import InputError


def refused(source: object, *words: str) -> str:
    with pytest.raises(InputError) as caught:
        open_array(source)  # type: ignore[arg-type]
    message = str(caught.value)
    for word in words:
        assert word in message
    return message


def test_parse_uri() -> None:
    assert parse_uri("a/b.npz::k") == (Path("a/b.npz"), "k")
    assert parse_uri(Path("a.zarr::x/y")) == (Path("a.zarr"), "x/y")
    assert parse_uri("b.npy") == (Path("b.npy"), None)
    for bad in ("::k", "a.npz::", ""):
        with pytest.raises(InputError, match="PATH::KEY"):
            parse_uri(bad)
    with pytest.raises(InputError, match="object stores"):
        parse_uri("s3://bucket/a.zarr")


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    refused(tmp_path / "none.npy", "none.npy", "does not exist")
    (tmp_path / "a.hdf").write_bytes(b"x")
    refused(tmp_path / "a.hdf", "'.hdf'", *FORMATS)
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "no Zarr array or group", "zarr.json")
    (tmp_path / "file.zarr").write_bytes(b"x")
    refused(tmp_path / "file.zarr", "is a folder")
    refused(write_npy(tmp_path, np.ones(3)) + "::k", "no keys")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones((2, 2), bool), ["bool", "uint8"]),
        (np.ones((2, 2), complex), ["complex128"]),
        (np.ones((2, 2), "M8[s]"), ["datetime64", "int64"]),
        (np.ones(2, [("x", "f4"), ("y", "f4")]), ["each field"]),
        (np.ones((2, 2, 2)), ["(2, 2, 2)", "3 dimensions"]),
        (np.array(5.0), ["()", "0 dimensions"]),
    ],
)
@pytest.mark.parametrize("write", [None, write_npy, write_npz])
def test_arrays_of_the_wrong_kind(tmp_path: Path, write, values, words) -> None:
    refused(write(tmp_path, values) if write else values, *words)


@pytest.mark.parametrize("write", [write_npy, write_npz, write_npz_compressed])
def test_objects_are_never_unpickled(tmp_path: Path, write) -> None:
    trap = tmp_path / "executed"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (trap,)  # type: ignore[return-value]

    refused(write(tmp_path, np.array([Trap(), None], dtype=object)), "object", "never loaded")
    assert not trap.exists()


@pytest.mark.parametrize("kept", [0, 5, 60, 200])
def test_npy_cut_short(tmp_path: Path, kept: int) -> None:
    path = Path(write_npy(tmp_path, np.ones((10, 10))))
    path.write_bytes(path.read_bytes()[:kept])
    refused(path, str(path), *(["200 bytes", "928 bytes"] if kept == 200 else [".npy header"]))


def test_npy_cut_short_after_it_was_opened(tmp_path: Path) -> None:
    path = Path(write_npy(tmp_path, np.ones((10, 10))))
    array = open_array(path)
    path.write_bytes(path.read_bytes()[:200])
    assert array.read((0, 0)).shape == (0, 10)
    with pytest.raises(InputError, match="ends at byte 200"):
        array.read_all()


def test_npz_members(tmp_path: Path) -> None:
    uri = write_npz(tmp_path, np.ones((2, 2)))
    refused(uri.replace("values", "valves"), "no such array", "first, values")
    refused(uri.partition("::")[0], "several arrays", "first, values")
    (tmp_path / "no.npz").write_bytes(b"not a zip")
    refused(tmp_path / "no.npz", "no.npz", "numpy.savez")


@pytest.mark.parametrize("write", [write_npz, write_npz_compressed])
def test_npz_cut_short(tmp_path: Path, write) -> None:
    path, _, key = write(tmp_path, np.random.default_rng(0).normal(size=(50, 50))).partition("::")
    Path(path).write_bytes(Path(path).read_bytes()[:9000])
    refused(f"{path}::{key}", path, "damaged")


def test_npz_damaged_inside(tmp_path: Path) -> None:
    uri = write_npz_compressed(tmp_path, np.random.default_rng(0).normal(size=(50, 50)))
    path = Path(uri.partition("::")[0])
    content = bytearray(path.read_bytes())
    content[9000] ^= 255
    path.write_bytes(content)
    refused(uri, "damaged")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_npz_whose_header_promises_more(tmp_path: Path, compression: int) -> None:
    content = Path(write_npy(tmp_path, np.ones((10, 10)))).read_bytes()
    with zipfile.ZipFile(tmp_path / "c.npz", "w", compression) as archive:
        archive.writestr("values.npy", content[:-8])
    refused(tmp_path / "c.npz", "792 bytes", "800 bytes")


def test_mat_variables(tmp_path: Path) -> None:
    uri = write_mat(tmp_path, np.ones((2, 2)))
    refused(uri.replace("values", "valves"), "no such variable", "other, values")
    refused(uri.partition("::")[0], "several variables")
    scipy.io.savemat(tmp_path / "s.mat", {"cell": np.array([1, "a"], dtype=object)})
    refused(tmp_path / "s.mat", "MATLAB class cell")
    path = Path(uri.partition("::")[0])
    path.write_bytes(path.read_bytes()[:-20])
    refused(uri, "damaged")


def test_mat_of_version_7_3(tmp_path: Path) -> None:
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 .".ljust(124)
    (tmp_path / "h.mat").write_bytes(header + b"\x00\x02IM" + bytes(512))
    refused(tmp_path / "h.mat", "can't be read as HDF5", "write it again")


def test_zarr_groups(tmp_path: Path) -> None:
    write_zarr(tmp_path, np.ones((2, 2)), name="gallery")
    uri = write_zarr(tmp_path, np.ones((2, 2)), name="deep/query")
    root = uri.partition("::")[0]
    refused(root, "several arrays", "deep/query, gallery")
    refused(f"{root}::nothing", "'nothing'", "deep/query, gallery")
    refused(f"{root}::../a.zarr/gallery", "'..'")
    refused(f"{root}/gallery::key", "is a Zarr array itself")
    zarr.create_group(tmp_path / "empty.zarr")
    refused(tmp_path / "empty.zarr", "no such array", "none")


def test_zarr_of_the_wrong_kind(tmp_path: Path) -> None:
    refused(write_zarr(tmp_path, np.ones((2, 2), bool)), "bool")
    refused(write_zarr(tmp_path, np.ones((2, 2), complex)), "complex128")
    refused(write_zarr(tmp_path, np.ones((2, 2, 2))), "(2, 2, 2)")
    uri = write_zarr(tmp_path, np.ones((2, 2)))
    (tmp_path / "a.zarr" / "values" / "zarr.json").write_text("{")
    refused(uri, "can't be opened")


def test_zarr_codec_that_unpickles(tmp_path: Path) -> None:
    words = np.array(["a", "b"], dtype=np.dtypes.StringDType())
    uri = write_zarr(tmp_path, words, zarr_format=2, compressors=None)
    metadata = tmp_path / "a.zarr" / "values" / ".zarray"
    plain = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(plain | {"compressor": {"id": "pickle", "protocol": 5}}))
    refused(uri, "'pickle'", "never loaded")


LAYOUTS = [
    {"zarr_format": 3},
    {"zarr_format": 3, "shards": (4, 4)},
    {"zarr_format": 2},
    {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_zarr_chunks_never_written(tmp_path: Path, layout) -> None:
    array = zarr.create_array(
        tmp_path / "half.zarr", shape=(9, 6), chunks=(2, 2), dtype="f4", **layout
    )
    refused(tmp_path / "half.zarr", "incomplete", "rows 0:", "write_empty_chunks")
    array[:6, :] = 1
    message = refused(
        tmp_path / "half.zarr", "incomplete", "rows 6:8" if "shards" in layout else "rows 6:"
    )
    assert f"would read them as {array.fill_value}:" in message
    assert "np." not in message
    array[6:, :] = 1
    assert open_array(tmp_path / "half.zarr").shape == (9, 6)


def test_zarr_chunks_of_the_fill_value_can_be_meant(tmp_path: Path) -> None:
    for options in ({}, {"shards": (4, 4)}):
        array = open_array(write_zarr(tmp_path, np.zeros((8, 8)), chunks=(2, 2), **options))
        assert not array.read_all().any()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("codec", [None, "blosc", "zstd", "gzip"])
@pytest.mark.parametrize("damage", ["truncated", "empty"])
def test_zarr_damaged_chunk(tmp_path: Path, version: int, codec, damage: str) -> None:
    codecs = {
        "blosc": (numcodecs.Blosc(), zarr.codecs.BloscCodec()),
        "zstd": (numcodecs.Zstd(), zarr.codecs.ZstdCodec()),
        "gzip": (numcodecs.GZip(), zarr.codecs.GzipCodec()),
    }
    values = np.random.default_rng(0).normal(size=(40, 20)).astype(np.float32)
    compressors = None if codec is None else codecs[codec][version - 2]
    uri = write_zarr(
        tmp_path, values, chunks=(10, 20), zarr_format=version, compressors=compressors
    )
    chunk = tmp_path / "a.zarr" / "values" / ("1.0" if version == 2 else "c/1/0")
    content = chunk.read_bytes()
    chunk.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    array = open_array(uri)
    np.testing.assert_array_equal(array.read((20, 40)), values[20:])
    for rows in ((0, 20), (15, 35)):
        with pytest.raises(InputError) as caught:
            array.read(rows)
        for words in (uri, f"rows {rows[0]}:{rows[1]} and columns 0:20", "(40, 20)", "truncated"):
            assert words in str(caught.value)
    with pytest.raises(InputError):
        array.take(np.array([2, 19]))


def test_zarr_shard_cut_short(tmp_path: Path) -> None:
    uri = write_zarr(tmp_path, np.ones((8, 8)), chunks=(2, 2), shards=(4, 4))
    shard = tmp_path / "a.zarr" / "values" / "c" / "0" / "1"
    content = shard.read_bytes()
    shard.write_bytes(content[:20])
    refused(uri, str(shard), "20 bytes")
    shard.write_bytes(content[:-10])
    with pytest.raises(InputError):  # on opening or on reading, but never values
        open_array(uri).read_all()


def test_npy_gone_after_it_was_opened(tmp_path: Path) -> None:
    uri = write_npy(tmp_path, np.ones((8, 8)))
    array = open_array(uri)
    shutil.move(uri, uri + ".old")
    with pytest.raises(InputError, match="can't be read"):
        array.read_all()


def test_blocks_beyond_the_array() -> None:
    array = open_array(np.ones((4, 3)))
    for rows, columns in (((0, 5), None), ((-1, 2), None), ((2, 1), None), ((0, 1), (0, 4))):
        with pytest.raises(IndexError, match="beyond"):
            array.read(rows, columns)
    with pytest.raises(IndexError, match="beyond"):
        array.take(np.array([4]))
    for rows in (np.array([1, 1]), np.array([2, 1]), np.array([[0]])):
        with pytest.raises(ValueError, match="ascending"):
            array.take(rows)
