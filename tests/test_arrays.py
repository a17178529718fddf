"""Arrays by URI: every format gives the blocks that NumPy gives, and refuses what it must."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streameval.errors import InputError
from streameval.inputs import Array, open_array
from streameval.inputs.npy import NpyArray
from streameval.inputs.uri import FORMATS, parse_uri

zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")
scipy_io = pytest.importorskip("scipy.io")

QUICK = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NUMBERS = ["<f4", ">f4", "<f2", "<f8", ">i4", "u1", "<i8", ">u2"]


def write_npy(folder: Path, values: np.ndarray) -> str:
    np.save(folder / "a.npy", values)
    return f"{folder}/a.npy"


def write_npz(folder: Path, values: np.ndarray) -> str:
    np.savez(folder / "a.npz", first=np.arange(3), values=values)
    return f"{folder}/a.npz::values"


def write_npz_compressed(folder: Path, values: np.ndarray) -> str:
    np.savez_compressed(folder / "b.npz", first=np.arange(3), values=values)
    return f"{folder}/b.npz::values"


def write_mat(folder: Path, values: np.ndarray) -> str:
    if values.dtype == np.float16:  # MATLAB has none
        values = values.astype(np.float32)
    scipy_io.savemat(folder / "a.mat", {"other": 1, "values": values}, do_compression=True)
    return f"{folder}/a.mat::values"


def write_zarr(folder: Path, values: np.ndarray, name: str = "values", **options: object) -> str:
    if values.dtype.kind in "SU":  # fixed widths are outside the v3 specification
        options.setdefault("zarr_format", 2)
    options.setdefault("chunks", tuple(max(1, size // 3) for size in values.shape))
    array = zarr.create_array(
        folder / "a.zarr",
        name=name,
        shape=values.shape,
        dtype=values.dtype,
        config={"write_empty_chunks": True},
        overwrite=True,
        **options,
    )
    array[...] = values
    return f"{folder}/a.zarr::{name}"


WRITERS = [write_npy, write_npz, write_npz_compressed, write_mat, write_zarr]

ZARR_LAYOUTS = [
    {"zarr_format": version, "compressors": codec, **more}
    for version, codecs in (
        (2, [None, numcodecs.Blosc(), numcodecs.Zstd(), numcodecs.GZip(), numcodecs.LZ4()]),
        (
            3,
            [None, zarr.codecs.BloscCodec(), zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec()],
        ),
    )
    for codec in codecs
    for more in (
        [{}, {"order": "F"}] if version == 2 else [{}, {"shards": "two"}]  # two chunks each way
    )
]


@st.composite
def values_and_block(
    draw: st.DrawFn,
) -> tuple[np.ndarray, tuple[int, int], tuple[int, int]]:
    rows, columns = draw(st.integers(1, 13)), draw(st.integers(1, 9))
    dtype = np.dtype(draw(st.sampled_from(NUMBERS)))
    values = (np.arange(rows * columns) % 251).reshape(rows, columns).astype(dtype)
    if draw(st.booleans()):
        values = np.asfortranarray(values)

    def span(size: int) -> tuple[int, int]:
        a, b = draw(st.integers(0, size)), draw(st.integers(0, size))
        return min(a, b), max(a, b)

    return values, span(rows), span(columns)


def check_blocks(
    array: Array, values: np.ndarray, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    assert array.shape == values.shape
    assert len(array.chunks) == 2
    assert array.dtype.isnative
    for block, expected in (
        (array.read(rows, columns), values[slice(*rows), slice(*columns)]),
        (array.read(rows), values[slice(*rows)]),
        (array.read_all(), values),
        (array.take(np.arange(*rows, 2)), values[rows[0] : rows[1] : 2]),
    ):
        assert block.dtype == array.dtype
        assert block.flags.c_contiguous
        np.testing.assert_array_equal(block, expected)


@pytest.mark.parametrize("write", WRITERS)
@QUICK
@given(case=values_and_block())
def test_any_block_is_the_slice(tmp_path: Path, write, case) -> None:
    values, rows, columns = case
    array = open_array(write(tmp_path, values))
    check_blocks(array, values, rows, columns)
    check_blocks(pickle.loads(pickle.dumps(array)), values, rows, columns)


@QUICK
@given(case=values_and_block())
def test_any_block_of_an_array_in_memory(case) -> None:
    values, rows, columns = case
    array = open_array(values)
    check_blocks(array, values, rows, columns)
    check_blocks(pickle.loads(pickle.dumps(array)), values, rows, columns)
    assert array.resident_bytes == 0


@pytest.mark.parametrize("layout", ZARR_LAYOUTS, ids=str)
@settings(QUICK, max_examples=5)
@given(case=values_and_block(), chunks=st.tuples(st.integers(1, 6), st.integers(1, 6)))
def test_any_zarr_layout(tmp_path: Path, layout, case, chunks) -> None:
    values, rows, columns = case
    layout = {**layout, "chunks": chunks}
    if "shards" in layout:
        layout["shards"] = tuple(2 * edge for edge in chunks)
    array = open_array(write_zarr(tmp_path, values, **layout))
    assert array.chunks == chunks
    check_blocks(array, values, rows, columns)


def test_zarr_filters_that_zarrs_does_not_know(tmp_path: Path) -> None:
    values = np.arange(60, dtype="<i4").reshape(12, 5)
    filters = [numcodecs.Delta(dtype="<i4")]
    array = open_array(write_zarr(tmp_path, values, zarr_format=2, filters=filters))
    check_blocks(array, values, (1, 11), (2, 4))


def test_opening_leaves_the_configuration_of_zarr_alone(tmp_path: Path) -> None:
    before = zarr.config.get("codec_pipeline")
    open_array(write_zarr(tmp_path, np.ones((4, 4)))).read_all()
    assert zarr.config.get("codec_pipeline") == before


@pytest.mark.parametrize("write", WRITERS)
@settings(QUICK, max_examples=15)
@given(data=st.data())
def test_take_is_fancy_indexing(tmp_path: Path, write, data) -> None:
    values = np.arange(23 * 7, dtype=np.float32).reshape(23, 7)
    array = open_array(write(tmp_path, values))
    chosen = data.draw(st.sets(st.integers(0, 22)))
    rows = np.array(sorted(chosen), dtype=np.int64)
    np.testing.assert_array_equal(array.take(rows), values[rows])


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("dtype", ["U5", ">U3", "S4"])
def test_strings(tmp_path: Path, write, dtype: str) -> None:
    values = np.array(["a", "héé"[: 3 if "U" in dtype else 1], "", "xyz"]).astype(dtype)
    if write is write_mat:
        values = np.array(["abc", "xyz"])
    array = open_array(write(tmp_path, values))
    assert array.shape == values.shape
    assert array.read_all().tolist() == values.tolist()
    assert array.take(np.array([1])).tolist() == values[[1]].tolist()


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_strings_of_any_length(tmp_path: Path, version: int) -> None:
    words = np.array(["query", "", "a much longer one", "é"], dtype=np.dtypes.StringDType())
    array = open_array(write_zarr(tmp_path, words, zarr_format=version))
    assert array.read_all().tolist() == words.tolist()


@pytest.mark.parametrize("write", WRITERS)
def test_one_dimension(tmp_path: Path, write) -> None:
    values = np.arange(11, dtype=np.int64)
    array = open_array(write(tmp_path, values))
    read = array.read_all()
    assert read.reshape(-1).tolist() == values.tolist()
    if len(array.shape) == 1:  # MATLAB has no 1-d arrays
        assert array.read((3, 7)).tolist() == [3, 4, 5, 6]
        assert array.take(np.array([0, 9])).tolist() == [0, 9]


@pytest.mark.parametrize("write", [write_npy, write_npz, write_npz_compressed, write_zarr])
def test_an_array_without_rows(tmp_path: Path, write) -> None:
    values = np.zeros((0, 4), np.float32)
    array = open_array(write(tmp_path, values))
    assert array.read_all().shape == (0, 4)
    assert array.take(np.zeros(0, np.int64)).shape == (0, 4)


@pytest.mark.parametrize("write", WRITERS)
def test_threads_read_at_once(tmp_path: Path, write) -> None:
    values = np.random.default_rng(0).normal(size=(200, 30)).astype(np.float32)
    array = open_array(write(tmp_path, values))

    def same(start: int) -> bool:
        block = array.read((start, start + 20), (start % 7, 25))
        return np.array_equal(block, values[start : start + 20, start % 7 : 25])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(same, list(range(0, 180, 3)) * 3))


def test_what_is_resident(tmp_path: Path) -> None:
    values = np.ones((10, 5), np.float32)
    resident = {
        write: open_array(write(tmp_path, values)).resident_bytes
        for write in (write_npy, write_npz, write_npz_compressed, write_zarr)
    }
    assert resident == {
        write_npy: 0,
        write_npz: 0,
        write_npz_compressed: values.nbytes,
        write_zarr: 0,
    }


def test_stored_members_are_read_in_place(tmp_path: Path) -> None:
    assert isinstance(open_array(write_npz(tmp_path, np.ones((3, 2)))), NpyArray)


def test_scratch_of_a_read(tmp_path: Path) -> None:
    values = np.ones((64, 64), np.float32)
    assert open_array(write_npy(tmp_path, values)).read_scratch_bytes(10, 10) == 0
    fortran = open_array(write_npy(tmp_path, np.asfortranarray(values)))
    assert fortran.read_scratch_bytes(10, 10) == 400
    array = open_array(write_zarr(tmp_path, values, chunks=(16, 16)))
    chunk = 16 * 16 * 4
    assert array.read_scratch_bytes(16, 16) == 2 * chunk  # one, encoded and decoded
    assert array.read_scratch_bytes(17, 16) == 2 * 3 * chunk + 2 * chunk  # and two held in part
    raw = open_array(write_zarr(tmp_path, values, chunks=(16, 16), compressors=None))
    assert raw.read_scratch_bytes(17, 16) == 2 * 3 * chunk
    sharded = open_array(write_zarr(tmp_path, values, chunks=(16, 16), shards=(32, 32)))
    assert sharded.read_scratch_bytes(32, 32) == 2 * 4 * chunk + 4 * chunk


def test_a_single_array_needs_no_key(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    np.savez(tmp_path / "one.npz", features=values)
    scipy_io.savemat(tmp_path / "one.mat", {"features": values})
    write_zarr(tmp_path, values, name="nested/features")
    for uri in ("one.npz", "one.mat", "a.zarr", "a.zarr::nested"):
        array = open_array(tmp_path / uri)
        assert array.uri.endswith("::nested/features" if "zarr" in uri else "::features")
        np.testing.assert_array_equal(array.read_all(), values)


def test_zarr_array_by_its_own_folder(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    write_zarr(tmp_path, values, name="nested/features")
    folder = tmp_path / "a.zarr" / "nested" / "features"
    np.testing.assert_array_equal(open_array(folder).read_all(), values)


def test_importing_inputs_imports_no_heavy_library() -> None:
    code = (
        "import sys, streameval.inputs.uri, streameval.inputs.labels\n"
        "print([m for m in ('zarr', 'zarrs', 'scipy', 'pyarrow') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# --- what must be refused -------------------------------------------------------------------


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
    scipy_io.savemat(tmp_path / "s.mat", {"cell": np.array([1, "a"], dtype=object)})
    refused(tmp_path / "s.mat", "MATLAB class cell")
    path = Path(uri.partition("::")[0])
    path.write_bytes(path.read_bytes()[:-20])
    refused(uri, "damaged")


def test_mat_of_version_7_3(tmp_path: Path) -> None:
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 .".ljust(124)
    (tmp_path / "h.mat").write_bytes(header + b"\x00\x02IM" + bytes(512))
    refused(tmp_path / "h.mat", "7.3", "-v7")


def test_zarr_groups(tmp_path: Path) -> None:
    write_zarr(tmp_path, np.ones((2, 2)), name="gallery")
    uri = write_zarr(tmp_path, np.ones((2, 2)), name="deep/query")
    root = uri.partition("::")[0]
    refused(root, "2 arrays", "deep/query, gallery")
    refused(f"{root}::nothing", "'nothing'", "deep/query, gallery")
    refused(f"{root}::../a.zarr/gallery", "'..'")
    zarr.create_group(tmp_path / "empty.zarr")
    refused(tmp_path / "empty.zarr", "0 arrays", "none")


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
    {"zarr_format": version, "compressors": codec, **more}
    for version, codecs in (
        (2, [None, numcodecs.Blosc(), numcodecs.Zstd(), numcodecs.GZip(), numcodecs.LZ4()]),
        (
            3,
            [None, zarr.codecs.BloscCodec(), zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec()],
        ),
    )
    for codec in codecs
    for more in (
        [{}, {"order": "F"}] if version == 2 else [{}, {"shards": "two"}]  # two chunks each way
    )
]


@st.composite
def values_and_block(
    draw: st.DrawFn,
) -> tuple[np.ndarray, tuple[int, int], tuple[int, int]]:
    rows, columns = draw(st.integers(1, 13)), draw(st.integers(1, 9))
    dtype = np.dtype(draw(st.sampled_from(NUMBERS)))
    values = (np.arange(rows * columns) % 251).reshape(rows, columns).astype(dtype)
    if draw(st.booleans()):
        values = np.asfortranarray(values)

    def span(size: int) -> tuple[int, int]:
        a, b = draw(st.integers(0, size)), draw(st.integers(0, size))
        return min(a, b), max(a, b)

    return values, span(rows), span(columns)


def check_blocks(
    array: Array, values: np.ndarray, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    assert array.shape == values.shape
    assert len(array.chunks) == 2
    assert array.dtype.isnative
    for block, expected in (
        (array.read(rows, columns), values[slice(*rows), slice(*columns)]),
        (array.read(rows), values[slice(*rows)]),
        (array.read_all(), values),
        (array.take(np.arange(*rows, 2)), values[rows[0] : rows[1] : 2]),
    ):
        assert block.dtype == array.dtype
        assert block.flags.c_contiguous
        np.testing.assert_array_equal(block, expected)


@pytest.mark.parametrize("write", WRITERS)
@QUICK
@given(case=values_and_block())
def test_any_block_is_the_slice(tmp_path: Path, write, case) -> None:
    values, rows, columns = case
    array = open_array(write(tmp_path, values))
    check_blocks(array, values, rows, columns)
    check_blocks(pickle.loads(pickle.dumps(array)), values, rows, columns)


@QUICK
@given(case=values_and_block())
def test_any_block_of_an_array_in_memory(case) -> None:
    values, rows, columns = case
    array = open_array(values)
    check_blocks(array, values, rows, columns)
    check_blocks(pickle.loads(pickle.dumps(array)), values, rows, columns)
    assert array.resident_bytes == 0


@pytest.mark.parametrize("layout", ZARR_LAYOUTS, ids=str)
@settings(QUICK, max_examples=5)
@given(case=values_and_block(), chunks=st.tuples(st.integers(1, 6), st.integers(1, 6)))
def test_any_zarr_layout(tmp_path: Path, layout, case, chunks) -> None:
    values, rows, columns = case
    layout = {**layout, "chunks": chunks}
    if "shards" in layout:
        layout["shards"] = tuple(2 * edge for edge in chunks)
    array = open_array(write_zarr(tmp_path, values, **layout))
    assert array.chunks == chunks
    check_blocks(array, values, rows, columns)


def test_zarr_filters_that_zarrs_does_not_know(tmp_path: Path) -> None:
    values = np.arange(60, dtype="<i4").reshape(12, 5)
    filters = [numcodecs.Delta(dtype="<i4")]
    array = open_array(write_zarr(tmp_path, values, zarr_format=2, filters=filters))
    check_blocks(array, values, (1, 11), (2, 4))


def test_opening_leaves_the_configuration_of_zarr_alone(tmp_path: Path) -> None:
    before = zarr.config.get("codec_pipeline")
    open_array(write_zarr(tmp_path, np.ones((4, 4)))).read_all()
    assert zarr.config.get("codec_pipeline") == before


@pytest.mark.parametrize("write", WRITERS)
@settings(QUICK, max_examples=15)
@given(data=st.data())
def test_take_is_fancy_indexing(tmp_path: Path, write, data) -> None:
    values = np.arange(23 * 7, dtype=np.float32).reshape(23, 7)
    array = open_array(write(tmp_path, values))
    chosen = data.draw(st.sets(st.integers(0, 22)))
    rows = np.array(sorted(chosen), dtype=np.int64)
    np.testing.assert_array_equal(array.take(rows), values[rows])


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("dtype", ["U5", ">U3", "S4"])
def test_strings(tmp_path: Path, write, dtype: str) -> None:
    values = np.array(["a", "héé"[: 3 if "U" in dtype else 1], "", "xyz"]).astype(dtype)
    if write is write_mat:
        values = np.array(["abc", "xyz"])
    array = open_array(write(tmp_path, values))
    assert array.shape == values.shape
    assert array.read_all().tolist() == values.tolist()
    assert array.take(np.array([1])).tolist() == values[[1]].tolist()


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_strings_of_any_length(tmp_path: Path, version: int) -> None:
    words = np.array(["query", "", "a much longer one", "é"], dtype=np.dtypes.StringDType())
    array = open_array(write_zarr(tmp_path, words, zarr_format=version))
    assert array.read_all().tolist() == words.tolist()


@pytest.mark.parametrize("write", WRITERS)
def test_one_dimension(tmp_path: Path, write) -> None:
    values = np.arange(11, dtype=np.int64)
    array = open_array(write(tmp_path, values))
    read = array.read_all()
    assert read.reshape(-1).tolist() == values.tolist()
    if len(array.shape) == 1:  # MATLAB has no 1-d arrays
        assert array.read((3, 7)).tolist() == [3, 4, 5, 6]
        assert array.take(np.array([0, 9])).tolist() == [0, 9]


@pytest.mark.parametrize("write", [write_npy, write_npz, write_npz_compressed, write_zarr])
def test_an_array_without_rows(tmp_path: Path, write) -> None:
    values = np.zeros((0, 4), np.float32)
    array = open_array(write(tmp_path, values))
    assert array.read_all().shape == (0, 4)
    assert array.take(np.zeros(0, np.int64)).shape == (0, 4)


@pytest.mark.parametrize("write", WRITERS)
def test_threads_read_at_once(tmp_path: Path, write) -> None:
    values = np.random.default_rng(0).normal(size=(200, 30)).astype(np.float32)
    array = open_array(write(tmp_path, values))

    def same(start: int) -> bool:
        block = array.read((start, start + 20), (start % 7, 25))
        return np.array_equal(block, values[start : start + 20, start % 7 : 25])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(same, list(range(0, 180, 3)) * 3))


def test_what_is_resident(tmp_path: Path) -> None:
    values = np.ones((10, 5), np.float32)
    resident = {
        write: open_array(write(tmp_path, values)).resident_bytes
        for write in (write_npy, write_npz, write_npz_compressed, write_zarr)
    }
    assert resident == {
        write_npy: 0,
        write_npz: 0,
        write_npz_compressed: values.nbytes,
        write_zarr: 0,
    }


def test_stored_members_are_read_in_place(tmp_path: Path) -> None:
    assert isinstance(open_array(write_npz(tmp_path, np.ones((3, 2)))), NpyArray)


def test_scratch_of_a_read(tmp_path: Path) -> None:
    values = np.ones((64, 64), np.float32)
    assert open_array(write_npy(tmp_path, values)).read_scratch_bytes(10, 10) == 0
    fortran = open_array(write_npy(tmp_path, np.asfortranarray(values)))
    assert fortran.read_scratch_bytes(10, 10) == 400
    array = open_array(write_zarr(tmp_path, values, chunks=(16, 16)))
    chunk = 16 * 16 * 4
    assert array.read_scratch_bytes(16, 16) == 2 * chunk  # one, encoded and decoded
    assert array.read_scratch_bytes(17, 16) == 2 * 3 * chunk + 2 * chunk  # and two held in part
    raw = open_array(write_zarr(tmp_path, values, chunks=(16, 16), compressors=None))
    assert raw.read_scratch_bytes(17, 16) == 2 * 3 * chunk
    sharded = open_array(write_zarr(tmp_path, values, chunks=(16, 16), shards=(32, 32)))
    assert sharded.read_scratch_bytes(32, 32) == 2 * 4 * chunk + 4 * chunk


def test_a_single_array_needs_no_key(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    np.savez(tmp_path / "one.npz", features=values)
    scipy_io.savemat(tmp_path / "one.mat", {"features": values})
    write_zarr(tmp_path, values, name="nested/features")
    for uri in ("one.npz", "one.mat", "a.zarr", "a.zarr::nested"):
        array = open_array(tmp_path / uri)
        assert array.uri.endswith("::nested/features" if "zarr" in uri else "::features")
        np.testing.assert_array_equal(array.read_all(), values)


def test_zarr_array_by_its_own_folder(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    write_zarr(tmp_path, values, name="nested/features")
    folder = tmp_path / "a.zarr" / "nested" / "features"
    np.testing.assert_array_equal(open_array(folder).read_all(), values)


def test_importing_inputs_imports_no_heavy_library() -> None:
    code = (
        "import sys, streameval.inputs.uri, streameval.inputs.labels\n"
        "print([m for m in ('zarr', 'zarrs', 'scipy', 'pyarrow') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# --- what must be refused -------------------------------------------------------------------


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
    scipy_io.savemat(tmp_path / "s.mat", {"cell": np.array([1, "a"], dtype=object)})
    refused(tmp_path / "s.mat", "MATLAB class cell")
    path = Path(uri.partition("::")[0])
    path.write_bytes(path.read_bytes()[:-20])
    refused(uri, "damaged")


def test_mat_of_version_7_3(tmp_path: Path) -> None:
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 .".ljust(124)
    (tmp_path / "h.mat").write_bytes(header + b"\x00\x02IM" + bytes(512))
    refused(tmp_path / "h.mat", "7.3", "-v7")


def test_zarr_groups(tmp_path: Path) -> None:
    write_zarr(tmp_path, np.ones((2, 2)), name="gallery")
    uri = write_zarr(tmp_path, np.ones((2, 2)), name="deep/query")
    root = uri.partition("::")[0]
    refused(root, "2 arrays", "deep/query, gallery")
    refused(f"{root}::nothing", "'nothing'", "deep/query, gallery")
    refused(f"{root}::../a.zarr/gallery", "'..'")
    zarr.create_group(tmp_path / "empty.zarr")
    refused(tmp_path / "empty.zarr", "0 arrays", "none")


def test_zarr_of_the_wrong_kind(tmp_path: Path) -> None:
    refused(write_zarr(tmp_path, np.ones((2, 2), bool)), "bool")
    refused(write_zarr(tmp_path, np.ones((2, 2), complex)), "complex128")
    refused(write_zarr(tmp_path, np.ones((2, 2, 2))), "(2, 2, 2)")
    uri = write_zarr(tmp_path, np.ones((2, 2)))
    (tmp_path / "a.zarr" / "values" / "zarr.json").write_text("{")
    refused(uri, "can't be opened")


def test_zarr_codec_that_unpickles(tmp_path: Path) -> None:
    uri = write_zarr(tmp_path, np.ones((2, 2)), zarr_format=2, compressors=numcodecs.Zlib())
    metadata = tmp_path / "a.zarr" / "values" / ".zarray"
    plain = metadata.read_text()
    start = plain.index('"compressor": {')
    stop = plain.index("}", start) + 1
    metadata.write_text(plain[:start] + '"compressor": {"id": "pickle"}' + plain[stop:])
    refused(uri, "pickle", "never loaded")


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
    assert str(array.fill_value) in message
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
