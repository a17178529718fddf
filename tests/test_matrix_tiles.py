"""Stored distances by tiles: positives are read by themselves, then all is counted in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from array_files import write_npy, write_zarr
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from spread import with_daily
from support.arrays import Array
from test_exactness import GALLERY, QUERIES, evaluate, labels, oracle

import streameval as se

BLOSC = {2: numcodecs.Blosc(cname="lz4"), 3: zarr.codecs.BloscCodec(cname="lz4")}
KINDS = [
    "in memory",
    ".npy",
    *(f"zarr {version} {codec}" for version in (2, 3) for codec in ("as it is", "Blosc")),
]
DAILY = ".npy", "zarr 3 as it is"


def stored(kind: str, values: np.ndarray, chunks: tuple[int, int], folder: Path) -> Any:
    """Return the values, or the URI of a file of them."""
    if kind == "in memory":
        return values
    if kind == ".npy":
        return write_npy(folder, values)
    version = int(kind.split()[1])
    codec = BLOSC[version] if kind.endswith("Blosc") else None
    return write_zarr(folder, values, chunks=chunks, zarr_format=version, compressors=codec)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a small matrix as if it were a large one."""
    for name, value in {
        "TILE_BYTES": 1000,
        "STRIP_BYTES": 1000,
        "TILE_ROWS": (3, 4),
        "COLUMNS": 40,
    }.items():
        monkeypatch.setattr(f"streameval.planning.planner.{name}", value)


def drawn(seed: int, dtype: str) -> tuple[np.ndarray, dict[str, se.Labels]]:
    rng = np.random.default_rng(seed)
    matrix = rng.choice(np.linspace(0.5, 2, 40), (QUERIES, GALLERY)).astype(dtype)
    return matrix, labels(rng, QUERIES, GALLERY)


@pytest.mark.parametrize("kind", with_daily(KINDS, *DAILY))
@examples(10)
@given(
    seed=st.integers(0, 10**6),
    chunks=st.tuples(st.integers(1, 12), st.integers(1, 60)),
    dtype=st.sampled_from(["<f2", "<f4", ">f4", "<f8", "u1"]),
    threads=st.integers(1, 3),
    range_=st.sampled_from([(0.0, 2.0), "minmax"]),
)
@pytest.mark.usefixtures("small_tiles")
def test_any_tiles_of_a_stored_matrix(
    tmp_path: Path, kind: str, seed: int, chunks: Any, dtype: str, threads: int, range_: Any
) -> None:
    matrix, sides = drawn(seed, dtype)
    source = se.Distances(stored(kind, matrix, chunks, tmp_path))
    result = evaluate(source, **sides, threads=threads, range=range_)
    if (
        not kind.endswith("Blosc")
        and dtype[0] != ">"
        and np.dtype(dtype).itemsize * min(chunks[0], 3) * GALLERY > 1000
    ):
        assert result.provenance["plan"]["layout"] == "rectangles"
    expected = oracle(matrix.astype(np.float64), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith("Blosc")])
@pytest.mark.usefixtures("small_tiles")
def test_positives_must_be_what_was_read_first(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, sides = drawn(1, "<f4")
    source = se.Distances(stored(kind, matrix, (4, 50), tmp_path))
    assert evaluate(source, **sides, threads=1).counts["pairs_positive"] > 0
    whole = Array.entries

    def other(self: Array, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        values = whole(self, rows, columns)
        values[rows == 5] += 1
        return values

    monkeypatch.setattr(Array, "entries", other)
    with pytest.raises(se.StreamevalError, match=r"has changed while it was read: rows 5:6 "):
        evaluate(source, **sides, threads=1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("small_tiles")
def test_a_distance_that_is_not_finite_is_named(tmp_path: Path, kind: str, bad: float) -> None:
    matrix, sides = drawn(2, "<f4")
    same = sides["query"].id[:, None] == sides["gallery"].id
    for positive in (True, False):
        row, column = np.argwhere(same == positive)[150]
        values = matrix.copy()
        values[row, column] = bad
        source = se.Distances(stored(kind, values, (4, 50), tmp_path))
        with pytest.raises(se.InputError, match=f"holds {bad} in row {row}, column {column}: "):
            evaluate(source, **sides, threads=1)


@pytest.mark.parametrize("codec", [None, BLOSC[3]])
@pytest.mark.parametrize("damage", ["shorter", "longer", "absent", "other bytes"])
def test_a_chunk_that_is_damaged_is_refused_as_by_zarr(
    tmp_path: Path, codec: Any, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It's read by Zarr once more, which says why."""
    matrix, sides = drawn(3, "<f4")
    source = se.Distances(write_zarr(tmp_path, matrix, chunks=(4, 50), compressors=codec))
    chunk = tmp_path / "a.zarr/values/c/1/1"
    content = chunk.read_bytes()
    if damage == "absent":
        chunk.unlink()
    else:
        changed = {"shorter": content[:-5], "longer": content + b"more"}
        chunk.write_bytes(changed.get(damage, bytes(len(content))))
    monkeypatch.setattr("streameval.run.guard.check_same", lambda files: None)

    def attempt() -> Any:
        try:
            return evaluate(source, **sides, threads=1).metrics.scalars
        except se.InputError as error:
            return str(error).partition("columns")[2].partition(" ")[2]

    found = attempt()
    monkeypatch.setattr("streameval.arrays.zarr_array.ZarrArray._direct", None)
    if isinstance(found, str):
        assert found == attempt()
        assert "write" in found
    else:
        assert found == pytest.approx(attempt(), nan_ok=True)
        assert (damage, codec) == ("other bytes", None)
