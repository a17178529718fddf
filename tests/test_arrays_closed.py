"""Arrays that the file system keeps closed, or that declare more than there can be."""

from __future__ import annotations

import errno
import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from array_files import write_zarr
from support.arrays import open_array
from test_arrays_refused import LAYOUTS, refused

from streameval import InputError


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_zarr_that_declares_any_number_of_chunks(tmp_path: Path, layout) -> None:
    array = zarr.create_array(
        tmp_path / "vast.zarr", shape=(10**12, 10**6), chunks=(2, 2), dtype="f4", **layout
    )
    tracemalloc.start()
    refused(tmp_path / "vast.zarr", "more than 1000 of its chunks are absent", "rows 0:")
    array[:4, :4] = 1
    refused(tmp_path / "vast.zarr", "more than 1000 of its chunks are absent", "columns 4:")
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


@pytest.fixture
def without_permissions() -> Iterator[Path]:
    """Yield a folder in which `chmod` binds the process, whoever runs the tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        user = os.geteuid()
        yield Path(folder)
        os.seteuid(user)


@pytest.mark.parametrize("codec", ["auto", None])
def test_zarr_chunk_without_permission(without_permissions: Path, codec) -> None:
    values = np.ones((8, 4), np.float32)
    uri = write_zarr(without_permissions, values, chunks=(2, 4), compressors=codec)
    array = open_array(uri)
    assert np.array_equal(array.read((0, 2)), values[:2])  # by kernels of the first user's
    (without_permissions / "a.zarr/values/c/1/0").chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(InputError) as caught:
        array.read((0, 8))
    for words in (uri, "rows 0:8", "Permission denied", "check the permissions"):
        assert words in str(caught.value)
    assert "truncated" not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 300, f"{'x' * 300}.npy::k", f"{'x' * 300}/a.zarr"])
def test_names_that_are_too_long(tmp_path: Path, name: str) -> None:
    refused(f"{tmp_path}/{name}", "can't be opened", "too long")


def test_a_folder_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", forbid)
    for name in ("a.npy", "a.zarr", "a.npz::k", "a.mat"):
        refused(tmp_path / name, name, "can't be opened", "Permission denied")
