"""Distances that a function computes: as a stored matrix of the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import streameval as se

QUERIES, ITEMS = 23, 301
RNG = np.random.default_rng(0)
MATRIX = RNG.integers(0, 40, (QUERIES, ITEMS)) / 8
SIDES = {
    "query": se.Labels(id=RNG.integers(0, 9, QUERIES), cam=RNG.integers(0, 3, QUERIES)),
    "gallery": se.Labels(id=RNG.integers(0, 12, ITEMS), cam=RNG.integers(0, 3, ITEMS)),
}


class Table:
    """A function that reads a matrix, and notes what it is asked for."""

    def __init__(self, matrix: npt.NDArray[Any]) -> None:
        self.matrix = matrix
        self.asked: list[tuple[slice, slice]] = []

    def __call__(self, queries: slice, items: slice) -> npt.NDArray[Any]:
        self.asked.append((queries, items))
        return self.matrix[queries, items]


def of_module(queries: slice, items: slice) -> npt.NDArray[Any]:
    return MATRIX[queries, items]


def computed(matrix: npt.NDArray[Any] = MATRIX, **named: Any) -> se.Computed:
    return se.Computed(Table(matrix), matrix.shape, **named)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8])
@pytest.mark.parametrize("threads", [1, 3])
def test_counts_are_those_of_the_stored_matrix(dtype: Any, threads: int) -> None:
    matrix = (8 * MATRIX).astype(dtype)
    stored = se.evaluate(se.Distances(matrix.astype(np.float64)), **SIDES)
    result = se.evaluate(computed(matrix), **SIDES, threads=threads)
    assert result.statistics.equals(stored.statistics)
    assert result.range == stored.range


def test_counts_under_every_reading() -> None:
    wanted: dict[str, Any] = {"range": (0.0, 5.0), "refine": ["TAR@FAR=0.1"]}
    for options in (wanted, {"protocol": "cuhk03"}):
        stored = se.evaluate(se.Distances(MATRIX), **SIDES, **options)
        result = se.evaluate(computed(), **SIDES, **options)
        assert result.statistics.equals(stored.statistics)
        assert result.metrics.scalars == pytest.approx(stored.metrics.scalars, abs=0, nan_ok=True)


def test_the_function_is_called_once_a_pair_where_a_strip_fits() -> None:
    source = computed()
    se.evaluate(source, **SIDES, range=(0, 5))
    table: Any = source.function
    pairs = sum((q.stop - q.start) * (i.stop - i.start) for q, i in table.asked)
    assert pairs == MATRIX.size


def test_a_function_may_return_its_own_memory() -> None:
    kept = MATRIX.copy()
    se.evaluate(computed(kept), **SIDES)
    assert np.array_equal(kept, MATRIX)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_names_its_pair(value: float) -> None:
    matrix = MATRIX.copy()
    matrix[17, 203] = value
    with pytest.raises(se.InputError, match=rf"holds {value} in row 17, column 203"):
        se.evaluate(computed(matrix, name="parts"), **SIDES)


def test_what_is_returned_is_checked() -> None:
    for wrong in (MATRIX.T, MATRIX.astype(complex), MATRIX.astype(str), MATRIX > 1, MATRIX[:, :-1]):
        source = se.Computed(lambda queries, items, wrong=wrong: wrong, MATRIX.shape)
        with pytest.raises(se.InputError, match=r"numbers .* are needed"):
            se.evaluate(source, **SIDES)
    large = np.full(MATRIX.shape, 2**53 + 1)
    with pytest.raises(se.InputError, match="float64 holds integers up to 2\\^53"):
        se.evaluate(computed(large), **SIDES)


def test_what_is_given_is_checked() -> None:
    with pytest.raises(se.InputError, match="function is of type ndarray"):
        se.Computed(MATRIX, MATRIX.shape)  # type: ignore[arg-type]
    with pytest.raises(se.InputError, match="the numbers of queries and items are needed"):
        se.Computed(of_module, (3,))  # type: ignore[arg-type]
    with pytest.raises(se.InputError, match="has 301 items"):
        se.evaluate(computed(), query=SIDES["query"], gallery=SIDES["query"])


def test_a_checkpoint_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(se.OptionError, match="has no name"):
        se.evaluate(computed(), **SIDES, checkpoint=tmp_path / "work")
    first = se.evaluate(computed(name="parts"), **SIDES, checkpoint=tmp_path / "work")
    assert first.statistics.equals(se.evaluate(se.Distances(MATRIX), **SIDES).statistics)


class BrokenTable(Table):
    def __call__(self, queries: slice, items: slice) -> npt.NDArray[Any]:
        if (queries, items) in self.asked:  # the second pass
            raise RuntimeError("broken")
        return super().__call__(queries, items)


def test_work_is_resumed_under_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streameval.run.checkpoint.COMMIT_SECONDS", 0)
    options: dict[str, Any] = {**SIDES, "checkpoint": tmp_path / "work", "threads": 1}
    broken = se.Computed(BrokenTable(MATRIX), MATRIX.shape, name="parts")
    with pytest.raises(se.TaskError, match="broken"):
        se.evaluate(broken, **options)
    with pytest.raises(se.OutputError, match="function"):
        se.evaluate(computed(name="others"), **options, resume=True)
    source = computed(name="parts")
    result = se.evaluate(source, **options, resume=True)
    assert result.statistics.equals(se.evaluate(se.Distances(MATRIX), **SIDES).statistics)
    table: Any = source.function
    assert len(table.asked) == len(set(map(str, table.asked)))  # the range is not looked for again


@pytest.mark.slow
def test_on_workers() -> None:
    from distributed import Client

    with Client(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        source = se.Computed(Table(MATRIX), MATRIX.shape)
        result = se.evaluate(source, **SIDES, client=client)
        assert result.statistics.equals(se.evaluate(se.Distances(MATRIX), **SIDES).statistics)
        unsendable = se.Computed(lambda queries, items: MATRIX[queries, items], MATRIX.shape)
        with pytest.raises(se.InputError, match="can't be sent to workers"):
            se.evaluate(unsendable, **SIDES, client=client)


def test_part_based_distances() -> None:
    rng = np.random.default_rng(1)
    query, gallery = rng.standard_normal((QUERIES, 4, 6)), rng.standard_normal((ITEMS, 4, 6))

    def parts(queries: slice, items: slice) -> npt.NDArray[np.float64]:
        differences = query[queries, None] - gallery[None, items]
        return np.linalg.norm(differences, axis=-1).mean(axis=-1)

    whole = parts(slice(None), slice(None))
    result = se.evaluate(se.Computed(parts, whole.shape), **SIDES)
    assert result.statistics.equals(se.evaluate(se.Distances(whole), **SIDES).statistics)
