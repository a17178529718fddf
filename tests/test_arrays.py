"""Arrays by URI: every format gives the blocks that NumPy gives, and refuses what it must."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import scipy.io
import zarr
from array_files import WRITERS, write_mat, write_npy, write_npz, write_npz_compressed, write_zarr
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.arrays import Array, LoadedArray, NpyArray, open_array
from support.arrays import npy_module as npy
from support.arrays import scattered_module as scattered

NUMBERS = ["<f4", ">f4", "<f2", "<f8", ">i4", "u1", "<i8", ">u2"]


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


def layout_name(layout: dict[str, object]) -> str:
    codec = type(layout["compressors"]).__name__
    return "-".join([f"v{layout['zarr_format']}", codec, *(set(layout) & {"order", "shards"})])


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
    order = np.random.default_rng(0).permutation(values.size)[::2]
    some, others = np.unravel_index(order, values.shape)
    np.testing.assert_array_equal(array.entries(some, others), values[some, others])


@pytest.mark.parametrize("write", WRITERS)
@examples(25)
@given(case=values_and_block())
def test_any_block_is_the_slice(tmp_path: Path, write, case) -> None:
    values, rows, columns = case
    array = open_array(write(tmp_path, values))
    check_blocks(array, values, rows, columns)
    check_blocks(pickle.loads(pickle.dumps(array)), values, rows, columns)


@examples(25)
@given(case=values_and_block())
def test_any_block_of_an_array_in_memory(case) -> None:
    values, rows, columns = case
    array = open_array(values)
    check_blocks(array, values, rows, columns)
    check_blocks(pickle.loads(pickle.dumps(array)), values, rows, columns)


@pytest.mark.parametrize("layout", ZARR_LAYOUTS, ids=layout_name)
@examples(5)
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
@examples(15)
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


def test_compressed_members_alone_are_loaded(tmp_path: Path) -> None:
    assert isinstance(open_array(write_npz(tmp_path, np.ones((3, 2)))), NpyArray)
    assert isinstance(open_array(write_npz_compressed(tmp_path, np.ones((3, 2)))), LoadedArray)


def test_scratch_of_a_read(tmp_path: Path) -> None:
    values = np.ones((64, 64), np.float32)
    assert open_array(write_npy(tmp_path, values)).read_scratch_bytes(10, 10) == 0
    fortran = open_array(write_npy(tmp_path, np.asfortranarray(values)))
    assert fortran.chunks == (1, 64)  # any rows can be read, of all columns
    assert fortran.read_scratch_bytes(10, 10) == 400
    array = open_array(write_zarr(tmp_path, values, chunks=(16, 16)))
    chunk = 16 * 16 * 4
    two, four = (min(os.cpu_count() or 1, count) for count in (2, 4))  # decoded at a time
    assert array.read_scratch_bytes(16, 16) == 3 * chunk
    assert array.read_scratch_bytes(17, 16) == 3 * two * chunk + 2 * chunk  # both held in part
    turned = {"chunks": (16, 16), "compressors": None, "order": "F", "zarr_format": 2}
    raw = open_array(write_zarr(tmp_path, values, **turned))
    assert raw.read_scratch_bytes(17, 16) == 3 * two * chunk
    plain = open_array(write_zarr(tmp_path, values, chunks=(16, 16), compressors=None))
    assert plain.read_scratch_bytes(17, 16) == 0
    blosc = {"chunks": (16, 16), "compressors": zarr.codecs.BloscCodec()}
    assert open_array(write_zarr(tmp_path, values, **blosc)).read_scratch_bytes(17, 16) == (
        2 * chunk + 16  # encoded and decoded
    )
    sharded = open_array(write_zarr(tmp_path, values, chunks=(16, 16), shards=(32, 32)))
    assert sharded.read_scratch_bytes(32, 32) == 3 * four * chunk + 4 * chunk


@examples(25)
@given(rows=st.integers(1, 3000), columns=st.integers(1, 12), data=st.data())
def test_scratch_of_fortran_order_is_what_is_taken(tmp_path: Path, rows, columns, data) -> None:
    values = np.asfortranarray(np.arange(rows * columns, dtype=">f8").reshape(rows, columns))
    count = data.draw(st.integers(1, rows))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(npy, "_PANEL_BYTES", 1 << 12)
        array = open_array(write_npy(tmp_path, values))
        tracemalloc.start()
        block = array.read((rows - count, rows))
        taken = tracemalloc.get_traced_memory()[1] - block.nbytes
        tracemalloc.stop()
        np.testing.assert_array_equal(block, values[rows - count :])
        assert taken <= array.read_scratch_bytes(count, columns) + (48 << 10)


def test_rows_of_fortran_order_are_taken_in_few_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.asfortranarray(np.arange(40_000.0).reshape(10_000, 4))
    array = open_array(write_npy(tmp_path, values))
    calls: list[int] = []
    read = scattered.read_scattered

    def counted(fileno, offset, rows, pieces, window, out) -> int:
        calls.append(len(pieces))
        return read(fileno, offset, rows, pieces, window, out)

    monkeypatch.setattr(scattered, "read_scattered", counted)
    monkeypatch.setattr(array, "_fill", None)
    rows = np.r_[np.arange(0, 2000, 7), np.arange(9000, 10_000, 3)]
    np.testing.assert_array_equal(array.take(rows), values[rows])
    assert calls == 4 * [2]  # two stretches, of each column


def test_slashes_around_a_key(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    write_zarr(tmp_path, values, name="nested/features")
    for key in ("/nested/features", "nested/features/", "/nested/", "//nested/features//", "/"):
        array = open_array(f"{tmp_path}/a.zarr::{key}")
        np.testing.assert_array_equal(array.read_all(), values)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)).read_all(), values)


def test_a_single_array_needs_no_key(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    np.savez(tmp_path / "one.npz", features=values)
    scipy.io.savemat(tmp_path / "one.mat", {"features": values})
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
        "import sys, streameval.arrays.uri, streameval.labels.columns\n"
        "print([m for m in ('zarr', 'zarrs', 'scipy', 'pyarrow') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "|u1"])
def test_scattered_rows_alone_and_in_windows(tmp_path: Path, dtype: str) -> None:
    values = (np.arange(4000 * 40).reshape(4000, 40) % 251).astype(dtype)
    array = open_array(write_npy(tmp_path, values))
    near, far = np.arange(0, 1000, 3), np.array([1500, 2600, 2601, 3999])
    rows = np.concatenate([near, far])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scattered, "NEAR_BYTES", 200)
        patched.setattr(scattered, "_WINDOW_BYTES", 3000)
        np.testing.assert_array_equal(array.take(rows), values[rows])


def test_scattered_rows_that_the_kernel_is_refused_are_read_again(tmp_path: Path) -> None:
    values = np.arange(4000 * 40, dtype=">f4").reshape(4000, 40)
    array = open_array(write_npy(tmp_path, values))
    rows = np.array([0, 7, 1500, 1502, 3999])
    tried: list[int] = []

    def refused(fileno, offset, rows, pieces, window, out) -> int:
        tried.append(len(pieces))
        return 0

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scattered, "read_scattered", refused)
        np.testing.assert_array_equal(array.take(rows), values[rows])
    assert len(tried) == 1
