"""Inputs of every registered format, and what may befall their files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import array_files
import numpy as np
import pytest
import test_formats
from profiles import by_night

Writer = Callable[[np.ndarray], str]
HERE = Path()
NIGHTLY = 160  # combinations, of which one is not for the night alone


def zarr(**options: object) -> Writer:
    return lambda values: array_files.write_zarr(HERE, values, **options)


def vecs(name: str, dtype: str) -> Writer:
    return lambda values: test_formats.write_vecs(values.astype(dtype), name)


WRITERS: Mapping[str, Writer] = {
    ".npy": partial(array_files.write_npy, HERE),
    ".npz": partial(array_files.write_npz, HERE),
    ".npz compressed": partial(array_files.write_npz_compressed, HERE),
    ".mat": partial(array_files.write_mat, HERE),
    ".mat 7.3": test_formats.write_mat73,
    ".zarr": zarr(compressors=None),
    ".zarr compressed": zarr(),
    ".zarr sharded": zarr(chunks=(9, 4), shards=(27, 8)),
    ".zarr 2": zarr(zarr_format=2),
    ".zarr of files": test_formats.write_images,
    ".zarr of shards": test_formats.write_shard_folder,
    ".npy shards": test_formats.write_shards,
    ".h5": test_formats.write_hdf5_chunked,
    ".hdf5": test_formats.write_hdf5,
    ".fvecs": vecs("a.fvecs", "f4"),
    ".ivecs": vecs("a.ivecs", "i4"),
    ".bvecs": vecs("a.bvecs", "u1"),
    ".parquet": test_formats.write_parquet_fixed,
}
"""What writes small whole numbers in the working folder, by format; returns the URI."""

Fault = Callable[[list[Path], Path], None]
"""What befalls files, given another version of them in a folder: by the same names."""


def in_place(files: list[Path], other: Path) -> None:
    for file in files:
        with file.open("r+b") as opened:
            opened.write((other / file).read_bytes())
            opened.truncate()


def restored_mtime(files: list[Path], other: Path) -> None:
    times = [file.stat() for file in files]
    in_place(files, other)
    for file, status in zip(files, times, strict=True):
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(files: list[Path], other: Path) -> None:
    for file in files:
        shutil.copy(other / file, f"{file}.new")
        Path(f"{file}.new").replace(file)


def truncated(files: list[Path], other: Path) -> None:
    largest = max(files, key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def extended(files: list[Path], other: Path) -> None:
    with max(files, key=lambda file: file.stat().st_size).open("ab") as opened:
        opened.write(bytes(1000))


def deleted(files: list[Path], other: Path) -> None:
    for file in files:
        file.unlink()


def chunk_deleted(files: list[Path], other: Path) -> None:
    max(files, key=lambda file: file.stat().st_size).unlink()


def dangling(files: list[Path], other: Path) -> None:
    largest = max(files, key=lambda file: file.stat().st_size)
    largest.unlink()
    largest.symlink_to("nowhere")


FAULTS: tuple[Fault, ...] = (
    in_place,
    restored_mtime,
    replaced,
    truncated,
    extended,
    deleted,
    chunk_deleted,
    dangling,
)


def files_of(uri: str) -> list[Path]:
    """Return the files of an array in the working folder."""
    path = uri.rpartition("::")[0] or uri
    found = [Path(path)] if Path(path).exists() else sorted(HERE.glob(path))
    return [
        file
        for one in found
        for file in ([one] if one.is_file() else sorted(one.rglob("*")))
        if file.is_file()
    ]


def pairwise_first(
    *axes: Iterable[Any], daily: int | None = None, sampled: bool = True
) -> list[Any]:
    """Return all combinations as parameters of a test.

    For every day are some that hold each pair of values, or the first `daily` of such a cover, of
    which the rest is slow. Of the others, few are slow if `sampled`, and most are for the night;
    by day, when they only take time to collect, these are not returned.
    """
    every = list(product(*axes))
    Random(0).shuffle(every)

    def pairs_of(case: tuple[Any, ...]) -> set[tuple[int, int, object, object]]:
        return {(i, j, case[i], case[j]) for i, j in combinations(range(len(case)), 2)}

    seen: set[tuple[int, int, object, object]] = set()
    cover: dict[tuple[Any, ...], None] = {}  # those that add the most pairs first
    for new in reversed(range(1, len(pairs_of(every[0])) + 1)):
        for case in every:
            if len(pairs_of(case) - seen) >= new:
                seen |= pairs_of(case)
                cover[case] = None
    cases = []
    for number, case in enumerate([*cover, *(case for case in every if case not in cover)]):
        if number < len(cover):
            marks = [] if daily is None or number < daily else [pytest.mark.slow]
        elif sampled and number % NIGHTLY == 0:
            marks = [pytest.mark.slow]
        elif by_night():
            marks = [pytest.mark.nightly]
        else:
            continue
        cases.append(pytest.param(*case, marks=marks))
    return cases
