"""Values to cells: by vectors, and one at a time."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.kernels import (
    ABOVE,
    CELLS,
    LAST,
    RUN,
    SEARCH,
    WAYS,
    bin_row,
    cell_of,
    lay_grid,
    quantise,
    span_grid,
)

Array = npt.NDArray[Any]


@numba.njit
def cells_of(values, weight, offset, origin, scale, far, row, cells):  # type: ignore[no-untyped-def]
    return quantise(values, weight, offset, origin, scale, far, row, cells)


@examples(60)
@given(
    n=st.integers(0, 150),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
    far=st.sampled_from([10.0, 3000.5, ABOVE + 10.0, np.inf]),
    seed=st.integers(0, 99),
)
def test_every_value_is_in_the_cell_that_it_is_in_alone(
    n: int, dtype: Any, weighted: bool, far: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values, weight, offset = (rng.standard_normal(n).astype(dtype) for _ in range(3))
    offset[rng.random(n) < 0.1] = np.inf
    weight = np.abs(weight) if weighted else np.ones(n, dtype)
    if not weighted:
        values[rng.random(n) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    origin, scale, reach = dtype(-2.0), dtype(1000.0), dtype(far)
    row, cells = np.full(n + 3, 7, dtype), np.full(n + 3, 9, np.uint16)
    given_weight = weight if weighted else None
    lowest, odd = cells_of(values, given_weight, offset, origin, scale, reach, row, cells)
    assert row[n:].tolist() == [7, 7, 7]
    assert cells[n:].tolist() == [9, 9, 9]
    with np.errstate(invalid="ignore"):
        expected_row = values * weight + offset
        place = (expected_row - origin) * scale
    assert np.array_equal(row[:n], expected_row, equal_nan=True)
    for k in range(n):
        inside = np.minimum(place[k] if place[k] > 0 else dtype(0), dtype(ABOVE)) <= reach
        expected = cell_of(expected_row[k], origin, scale) if inside else LAST
        assert cells[k] == expected
    assert lowest == min(cells[:n].tolist(), default=LAST)
    assert odd == (0 if weighted else np.count_nonzero(~np.isfinite(values)))


def test_rows_of_other_kinds_are_refused() -> None:
    row, cells = np.zeros(4, np.float32), np.zeros(4, np.uint16)
    zero = np.float32(0)
    with pytest.raises(numba.TypingError, match="all must be contiguous, of float32"):
        cells_of(row, row.astype(np.float64), row, zero, zero, zero, row, cells)


@pytest.mark.parametrize("band", [0.0, 1e-6])
def test_a_row_without_edges_has_next_to_nothing_to_place(band: float) -> None:
    values = np.random.default_rng(0).standard_normal(8192).astype(np.float32)
    ones, zeros = np.ones(8192, np.float32), np.zeros(8192, np.float32)
    code = np.empty(CELLS + RUN, np.uint8)
    none = np.empty(0)
    origin, scale, far = span_grid(none, none, band, 0.0, 0.0, values, ones, zeros)
    assert lay_grid(none, none, band, origin, scale, values, code) == (0, 0)
    cells = np.full(8192, LAST, np.uint16)
    cells_of(values, ones, zeros, origin, scale, far, np.empty(8192, np.float32), cells)
    fours, touched = np.empty(8192 // 4 + 1, np.uint32), np.empty(8192 + 4, np.uint32)
    found = bin_row(cells, code, np.zeros((WAYS, SEARCH + 1), np.uint32), fours, touched)
    assert found < 8192 // 20
    inside = np.setdiff1d(np.arange(8192), touched[:found])
    assert np.all(code[cells[inside]] % 2 == 0)


@pytest.mark.parametrize("band", [0.0, 1e-6])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.9, 1.0])
def test_values_on_either_side_of_an_edge_are_not_placed(share: float, band: float) -> None:
    values = np.random.default_rng(0).standard_normal(8192).astype(np.float32)
    ones, zeros = np.ones(8192, np.float32), np.zeros(8192, np.float32)
    edge, code = np.quantile(values, [share]).astype(float), np.empty(CELLS + RUN, np.uint8)
    origin, scale, far = span_grid(edge, edge, band, 0.0, 0.0, values, ones, zeros)
    lay_grid(edge, edge, band, origin, scale, values, code)
    cells = np.full(8192, LAST, np.uint16)
    cells_of(values, ones, zeros, origin, scale, far, np.empty(8192, np.float32), cells)
    fours, touched = np.empty(8192 // 4 + 1, np.uint32), np.empty(8192 + 4, np.uint32)
    bins = np.zeros((WAYS, SEARCH + 1), np.uint32)
    found = bin_row(cells, code, bins, fours, touched)
    assert found < 8192 // 100
    clear = np.setdiff1d(np.arange(8192), touched[:found])
    assert bins[:, 0].sum() == np.count_nonzero(values[clear] < edge - band)
