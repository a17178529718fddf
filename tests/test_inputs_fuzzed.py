"""Malformed inputs: each ends in an error of ours or a right answer, in time and in memory.

Seeded, hundreds of them: files cut short, bytes changed, headers that promise too much, bombs.
"""

from __future__ import annotations

import io
import json
import resource
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_formats
import zarr
from array_files import write_mat, write_npy, write_npz, write_npz_compressed
from support.arrays import open_array

from streameval import StreamevalError, read_label_table

VALUES = test_formats.VALUES
BOUND = 64 << 20  # bytes: the inputs are of some kilobytes
SEEDS = range(60)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True, scope="module")
def memory() -> Iterator[None]:
    """Check what libraries allocate behind Python's back, too: the process does not grow."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # KiB


def outcome(uri: str) -> np.ndarray | None:
    """Open and read the first rows; None where that is refused. Anything else fails the test."""
    tracemalloc.start()
    try:
        array = open_array(uri)
        return array.read((0, min(array.shape[0], len(VALUES))))
    except StreamevalError:
        return None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < BOUND, (uri, peak)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut a file short, change some of its bytes, or put some in."""
    changed = bytearray(content)
    way = rng.integers(4)
    if way == 0:
        return bytes(changed[: rng.integers(len(changed))])
    reach = len(changed) if way == 1 else min(len(changed), 256)  # headers above all
    for at in rng.integers(0, reach, rng.integers(1, 8)):
        changed[at] = rng.integers(256)
    if way == 3:
        at = int(rng.integers(len(changed)))
        changed[at:at] = rng.bytes(int(rng.integers(1, 32)))
    return bytes(changed)


def here(write):
    return lambda values: write(Path(), values)


WRITERS = {
    "npy": here(write_npy),
    "npz": here(write_npz),
    "npz-compressed": here(write_npz_compressed),
    "mat": here(write_mat),
    "mat73": test_formats.write_mat73,
    "hdf5": test_formats.write_hdf5_chunked,
    "parquet": test_formats.write_parquet,
    "fvecs": test_formats.write_vecs,
}


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files(name: str) -> None:
    uri = WRITERS[name](VALUES)
    path = uri.partition("::")[0]
    content = Path(path).read_bytes()
    refused = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        Path(path).write_bytes(damaged(content, rng))
        for one in {uri, path}:
            refused += outcome(one) is None
    assert refused > len(SEEDS) // 4
    Path(path).write_bytes(content)
    found = outcome(uri)
    assert found is not None
    assert np.array_equal(found, VALUES)


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin-1")


SHAPES = (
    *("(10**3,)", "(1000000000000, 512)", "(-1, 4)", "(2**70, 2)", "(4, 4.0)", "'a'", "()"),
    "(9999999999999999999,)",
)
DTYPES = ("<f4", "|O", "<f16", "|V9999999999", "<c8", "junk", "<U999999999")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_headers_that_promise_what_is_not_there(shape: str, dtype: str) -> None:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n"
    content = npy_header(text) + b"\x00" * 64
    Path("a.npy").write_bytes(content)
    assert outcome("a.npy") is None
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile("a.npz", "w", method) as archive:
            archive.writestr("a.npy", content)
        assert outcome("a.npz::a") is None


def test_zip_bombs() -> None:
    inner = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        inner, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 64)}
    )
    with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", inner.getvalue() + bytes(1 << 20))
    assert outcome("bomb.npz") is None  # it promises more than it holds
    content = bytearray(Path("bomb.npz").read_bytes())
    size = len(inner.getvalue()) + (1 << 20)
    for at in range(len(content) - 4):  # and lies about what it holds
        if content[at : at + 4] == struct.pack("<I", size):
            content[at : at + 4] = struct.pack("<I", 0xFFFFFFF0)
    Path("bomb.npz").write_bytes(content)
    assert outcome("bomb.npz") is None


def test_a_true_bomb_is_refused_by_what_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed("large.npz", a=np.zeros((1 << 15, 64), "f4"))  # 8 MB in 8 KB
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1 << 20))
    assert outcome("large.npz") is None


def test_huge_shapes_and_absent_keys() -> None:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("huge", (1 << 50, 512), "f4", chunks=(16, 512))
        file.create_dataset("objects", data=np.array(["a", "b"], object), dtype=h5py.string_dtype())
        file.create_dataset("scalar", data=1.0)
        file.create_dataset("none", data=h5py.Empty("f4"))
        file["soft"] = h5py.SoftLink("/soft")  # a cycle
        file["outside"] = h5py.ExternalLink("none.h5", "/x")
        file["group/again"] = file["/"]  # another
    for key in ("huge", "scalar", "none", "soft", "outside", "group", "group/again", "", "/", ".."):
        assert outcome(f"a.h5::{key}") is None
    pq.write_table(pa.table({"m": [{"a": 1}], "t": [[["a"]]], "e": [[]], "b": [True]}), "a.parquet")
    for key in ("m", "t", "b", "x", "m.a"):
        assert outcome(f"a.parquet::{key}") is None


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_zarr(seed: int) -> None:
    rng = np.random.default_rng(seed)
    version = 2 + seed % 2
    codec = None if seed % 3 else "auto"
    zarr.create_array("a.zarr", data=VALUES, chunks=(7, 5), zarr_format=version, compressors=codec)
    files = sorted(one for one in Path("a.zarr").rglob("*") if one.is_file())
    metadata = [one for one in files if one.name in ("zarr.json", ".zarray")]
    chosen = metadata[0] if seed % 4 else files[rng.integers(len(files))]
    if seed % 5 == 0 and chosen in metadata:
        said = json.loads(chosen.read_text())
        said["shape"] = [[1 << 60, 5], [-4, 5], [], ["a"], None, [23, 1 << 40]][rng.integers(6)]
        chosen.write_text(json.dumps(said))
        assert outcome("a.zarr") is None
    else:
        chosen.write_bytes(damaged(chosen.read_bytes(), rng))
        outcome("a.zarr")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "txt"])
def test_damaged_tables(suffix: str) -> None:
    path = Path(f"labels.{suffix}")
    ids = np.arange(40)
    if suffix == "csv":
        path.write_text("id,cam\n" + "".join(f"{one},{one % 3}\n" for one in ids))
    elif suffix == "txt":
        path.write_text("".join(f"{one:04d}_c1s1_000451_03.jpg\n" for one in ids))
    else:
        pq.write_table(pa.table({"id": ids, "cam": ids % 3}), path)
    content = path.read_bytes()
    for seed in SEEDS:
        path.write_bytes(damaged(content, np.random.default_rng(seed)))
        with suppress(StreamevalError):
            assert len(read_label_table(path).id) < 100
