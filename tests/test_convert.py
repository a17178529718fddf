"""Conversion to Zarr: the same values, in bounded memory, going on after any crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from spread import spread
from support.arrays import chunks_for, conversion, convert, open_array
from support.cli import main
from test_formats import VALUES, WRITERS
from test_memory import MEASURED

from streameval import BudgetError, InputError, OutputError

MEMORY = 1 << 31

# Converts, and is killed as it writes the n-th block: sys.argv is SOURCE OUT N.
KILLED = """
import os, signal, sys
import zarr
from streameval.arrays import convert as conversion, open_array
conversion.CHUNK_BYTES, conversion.BLOCK_BYTES = 1 << 12, 1 << 13
left = [int(sys.argv[3])]
write = zarr.Array.__setitem__
def killed(self, at, values):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    write(self, at, values)
zarr.Array.__setitem__ = killed
done = conversion.convert(open_array(sys.argv[1]), sys.argv[2], memory=1 << 31)
print(done.blocks, done.kept)
"""


KILLED_HALF_WAY = """
import os, signal, zarr
write = zarr.Array.__setitem__
def killed(self, at, values):
    if os.path.exists("out.zarr.progress/array/c/120"):
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, at, values)
zarr.Array.__setitem__ = killed
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_shards(count: int, rows: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    parts = []
    for at in range(count):
        part = rng.standard_normal((rows, width), dtype=np.float32)
        with Path(f"gallery-{at}.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.write(part.tobytes())
        parts.append(part if rows < 10_000 else part[:1])
    return np.concatenate(parts)


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_keeps_its_values(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "CHUNK_BYTES", 100)
    monkeypatch.setattr(conversion, "BLOCK_BYTES", 300)
    convert(open_array(write(VALUES)), "out.zarr", memory=MEMORY)
    array = zarr.open_array("out.zarr", mode="r")
    assert (array.chunks, array.dtype) == ((4, 5), VALUES.dtype)
    assert np.array_equal(array[...], VALUES)
    assert not Path("out.zarr.progress").exists()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    spread([(50,), (7, 9000), (3, 4096), (1, 1), (70, 33)], ["f2", "f8", "i8", "u1", ">f4"]),
)
def test_every_shape(shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(conversion, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(conversion, "CHUNK_COLUMNS", 64)
    values = (np.arange(np.prod(shape)) % 127).reshape(shape).astype(dtype)
    done = convert(open_array(values), "out.zarr", memory=MEMORY)
    assert np.array_equal(open_array("out.zarr").read_all(), values)
    assert np.prod(done.chunks) * values.dtype.itemsize <= 1 << 10


def test_chunks_are_of_whole_rows_and_of_a_size() -> None:
    assert chunks_for((10**6, 256), 4) == (4096, 256)
    assert chunks_for((10**4, 10**6), 4) == (256, 4096)
    assert chunks_for((100, 2048), 4) == (100, 2048)
    assert chunks_for((10**9,), 8) == (524288,)


@pytest.mark.slow
def test_a_hundred_shards_killed_again_and_again() -> None:
    values = write_shards(100, 37, 16)  # 58 chunks of 64 rows, in blocks of two
    for survived in (0, 1, 20, 3):
        command = [sys.executable, "-c", KILLED, "gallery-*.npy", "out.zarr", str(survived)]
        assert subprocess.run(command, check=False).returncode == -9
        assert not Path("out.zarr").exists()
    command[-1] = "1000"
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    blocks, kept = (int(word) for word in done.stdout.split())
    assert (blocks, kept) == (29, 24)
    assert np.array_equal(open_array("out.zarr").read_all(), values)
    assert not Path("out.zarr.progress").exists()
    assert not list(Path("out.zarr").rglob("*.partial"))


def test_what_is_left_of_other_data_is_not_used() -> None:
    write_shards(3, 200, 16)
    command = [sys.executable, "-c", KILLED, "gallery-*.npy", "out.zarr", "3"]
    assert subprocess.run(command, check=False).returncode == -9
    values = np.ones((200, 16), "f4")
    np.save("gallery-0.npy", values)
    command[-1] = "1000"
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split()[1] == "0"
    assert np.array_equal(open_array("out.zarr").read((0, 200)), values)


def test_a_chunk_of_zeros_is_written() -> None:
    convert(open_array(np.zeros((9, 4), "f4")), "out.zarr", memory=MEMORY)
    assert not open_array("out.zarr").read_all().any()


def test_what_is_refused() -> None:
    values = VALUES.copy()
    values[17, 2] = np.nan
    with pytest.raises(InputError, match="row 17 holds nan"):
        convert(open_array(values), "out.zarr", memory=MEMORY)
    assert not Path("out.zarr").exists()
    with pytest.raises(InputError, match="numbers are converted"):
        convert(open_array(np.array(["a"])), "out.zarr", memory=MEMORY)
    with pytest.raises(BudgetError, match="raise --memory"):
        convert(open_array(VALUES), "out.zarr", memory=1 << 20)
    Path("full").mkdir()
    Path("full/mine.txt").write_text("")
    for overwrite, words in ((False, "--overwrite"), (True, "no Zarr array")):
        with pytest.raises(OutputError, match=words):
            convert(open_array(VALUES), "full", memory=MEMORY, overwrite=overwrite)


def test_the_command() -> None:
    np.save("a.npy", VALUES)
    done = CliRunner().invoke(main, ["convert", "a.npy", "out.zarr"])
    assert done.exit_code == 0
    assert done.stdout == "out.zarr: 23 x 5 of float32, all finite, in chunks of 23 x 5\n"
    again = CliRunner().invoke(main, ["convert", "a.npy", "out.zarr"])
    assert (again.exit_code, again.stdout) == (2, "")
    assert "--overwrite" in again.stderr
    np.save("a.npy", VALUES + 1)
    done = CliRunner().invoke(main, ["convert", "a.npy", "out.zarr", "--overwrite", "--json"])
    assert json.loads(done.stdout)["shape"] == [23, 5]
    assert np.array_equal(open_array("out.zarr").read_all(), VALUES + 1)
    assert sorted(one.name for one in Path().iterdir()) == ["a.npy", "out.zarr"]


@pytest.mark.slow
def test_a_million_rows_in_half_a_gigabyte() -> None:
    firsts = write_shards(100, 10_000, 256)
    command = ["convert", "gallery-*.npy", "out.zarr", "--memory", "500MB"]
    killed = subprocess.run([sys.executable, "-c", KILLED_HALF_WAY + MEASURED, *command])
    assert killed.returncode == -9
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command, "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kept"] > 0
    assert int(done.stderr.split()[-1]) <= 500e6
    array = open_array("out.zarr")
    assert array.shape == (1_000_000, 256)
    assert np.array_equal(array.take(np.arange(100) * 10_000), firsts)
