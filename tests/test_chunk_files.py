"""Chunk files: any block of any chunks, with the digests of its rows; files are closed again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from array_files import write_zarr
from spread import with_daily
from support.arrays import Readings, digest, open_array, witnessed
from waiting import wait_until

from streameval import InputError

OPEN = Path("/proc/self/fd")


def open_in(folder: Path) -> list[Path]:
    """Return the files of a folder that this process holds open."""
    targets = [Path(os.path.realpath(descriptor)) for descriptor in OPEN.iterdir()]
    return [target for target in targets if target.is_relative_to(folder)]


def check_block(path: str, values: np.ndarray[Any, Any], rows: Any, columns: Any) -> None:
    """Check what is read of a block, and its digest."""
    array = open_array(path)
    with witnessed({"a": array}, Readings()) as readings:
        block = array.read(rows, columns)
    expected = values[slice(*rows), slice(*columns)]
    np.testing.assert_array_equal(block, expected)
    known = digest.total(digest.of_rows(expected, columns[0]), np.arange(*rows))
    assert readings.blocks == {("a", rows, columns): known}


@pytest.mark.parametrize("codec", [None, zarr.codecs.BloscCodec()], ids=["stored", "blosc"])
@pytest.mark.parametrize("dtype", with_daily(["<f4", "<f8", "<f2", "u1"], "<f4", "u1"))
@pytest.mark.parametrize("high", with_daily([1, 2, 3, 4, 11], 1, 4))
def test_blocks_and_their_digests(tmp_path: Path, high: int, dtype: str, codec: Any) -> None:
    values = np.random.default_rng(high).integers(0, 99, (11, 29)).astype(dtype)
    path = write_zarr(tmp_path, values, chunks=(high, 7), compressors=codec)
    for rows in ((0, 11), (2, 9), (5, 6)):
        for columns in ((0, 29), (3, 20), (7, 14)):
            check_block(path, values, rows, columns)


@pytest.mark.parametrize("high", [1, 3, 4, 9])
@pytest.mark.parametrize("columns", [(0, 140_000), (5, 139_990)])
def test_rows_of_more_than_is_read_at_a_time(tmp_path: Path, high: int, columns: Any) -> None:
    values = np.random.default_rng(high).normal(size=(9, 140_000)).astype(np.float32)
    path = write_zarr(tmp_path, values, chunks=(high, 140_000), compressors=None)
    check_block(path, values, (1, 9), columns)


@pytest.mark.skipif(not OPEN.exists(), reason="the system does not list open files")
@pytest.mark.parametrize("damage", ["absent", "short", "long"])
def test_files_are_closed_when_one_is_not_as_it_should_be(tmp_path: Path, damage: str) -> None:
    values = np.ones((8, 6), np.float32)
    array = open_array(write_zarr(tmp_path, values, chunks=(1, 6), compressors=None))
    chunk = next(tmp_path.rglob("c/6/0"))
    if damage == "absent":
        chunk.unlink()
    else:
        chunk.write_bytes(b"\0" * (20 if damage == "short" else 28))
    with pytest.raises(InputError):
        array.read((0, 8))
    np.testing.assert_array_equal(array.read((0, 6)), values[:6])
    wait_until(lambda: not open_in(tmp_path), tmp_path)  # what reads by other means may be late
