"""Arrays in memory that change, and functions that don't repeat themselves, are errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from spread import with_daily
from support.arrays import Readings
from test_inputs_that_change import GALLERY, LABELS, MOMENTS, QUERY, attempt, moments

import streameval as se

MATRIX = ((QUERY[:, None] - GALLERY[None]) ** 2).sum(-1)


def evaluated(source: Any, **options: Any) -> se.Evaluation:
    return se.evaluate(source, **LABELS, range="minmax", **{"threads": 1, **options})


def check(found: se.Evaluation | str, name: str, versions: list[Any]) -> None:
    """Check that what is found is that of one version, or says what has changed."""
    if isinstance(found, str):
        assert f"{name} has changed while it was read" in found
    else:
        assert any(found.statistics.equals(evaluated(one).statistics) for one in versions)


@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize("side", ["query", "gallery", "matrix"])
def test_an_array_that_changes(side: str, when: tuple[int, int]) -> None:
    given = {"query": QUERY, "gallery": GALLERY, "matrix": MATRIX}
    own = given[side].copy()

    def source(array: np.ndarray) -> Any:
        if side == "matrix":
            return se.Distances(array)
        return se.Features(*({**given, side: array}[name] for name in ("query", "gallery")))

    versions = [source(own.copy()), source(own[::-1].copy())]

    def turned() -> None:
        own[...] = own[::-1].copy()

    with moments({when: turned}) as progress:
        found = attempt(lambda: evaluated(source(own), progress=progress))
    check(found, "array in memory", versions)


Array = npt.NDArray[Any]
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": np.ascontiguousarray,
    "part of wider rows": lambda array: np.tile(array, 2)[:, : array.shape[1]],
    "columns": np.asfortranarray,
    "every other column": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "backwards": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "float64": lambda array: array.astype(np.float64),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", with_daily([1, 2], 2))
def test_an_array_of_any_layout_is_read_again(layout: str, threads: int) -> None:
    own = LAYOUTS[layout](MATRIX)
    whole = evaluated(se.Distances(own), threads=threads)
    assert whole.statistics.equals(evaluated(se.Distances(MATRIX)).statistics)
    errors = 0
    for when in MOMENTS:
        own = LAYOUTS[layout](MATRIX)

        def change(own: Array = own) -> None:
            own[-1, -1] += 1

        source = se.Distances(own)
        with moments({when: change}) as progress:
            how = {"threads": threads, "progress": progress}
            found = attempt(partial(evaluated, source, **how))
        errors += isinstance(found, str)
        own = LAYOUTS[layout](MATRIX)
        own[-1, -1] += 1
        check(found, "array in memory", [se.Distances(MATRIX), se.Distances(own)])
    assert errors > 0


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_a_function_that_does_not_repeat_itself(kept: int) -> None:
    """It returns the same a few times, and then other distances."""
    calls = 0

    def distances(queries: slice, items: slice) -> np.ndarray:
        nonlocal calls
        calls += 1
        return MATRIX[queries, items] + (calls > kept)

    found = attempt(lambda: evaluated(se.Computed(distances, MATRIX.shape)))
    check(found, "distances", [se.Distances(MATRIX + more) for more in (0, 1)])
    assert isinstance(found, str) or calls <= kept


@pytest.mark.parametrize("seed", range(200))
def test_rows_that_are_read_otherwise_are_told_whatever_else_is_known(seed: int) -> None:
    rng, known = np.random.default_rng(seed), dict[int, int]()
    size = int(rng.integers(1, 30))
    digests, readings = rng.integers(0, 2**63, size).astype(np.uint64), Readings()
    for _ in range(8):
        first = int(rng.integers(0, size))
        rows = np.arange(first, int(rng.integers(first + 1, size + 1)))
        if rng.random() < 0.7:
            rows = np.sort(rng.permutation(size)[: rng.integers(1, size + 1)])
        own = digests[rows]
        if rng.random() < 0.2:
            own[rng.integers(0, len(own))] += np.uint64(1)
        found = dict(zip(rows.tolist(), own.tolist(), strict=True))
        differs = [row for row, value in found.items() if known.get(row, value) != value]
        other = Readings(rows={"gallery": (rows, own)})
        if differs:
            with pytest.raises(se.InputError, match=rf"rows {differs[0]}:{differs[0] + 1} are not"):
                readings.add(other)
            continue
        readings.add(other)
        known = found | known
        assert dict(zip(*(one.tolist() for one in readings.rows["gallery"]), strict=True)) == known
        assert readings.rows["gallery"][0].tolist() == sorted(known)
