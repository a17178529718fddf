"""Sums in lanes: the bits of the canonical distance."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from reference import lane_sum
from support.distances import absolute_difference, inner_product, squared_difference


@numba.njit
def sums(a, b, out):  # type: ignore[no-untyped-def]
    for i in range(len(a)):
        for k in range(len(b)):
            out[0, i, k] = inner_product(a, i, b, k)
            out[1, i, k] = squared_difference(a, i, b, k)
            out[2, i, k] = absolute_difference(a, i, b, k)


@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f8", "f8"), ("f4", "f8")], ids=str)
@pytest.mark.parametrize("width", [0, 1, 31, 32, 33, 63, 64, 127, 512, 1000])
def test_sums_have_the_bits_of_the_definition(width: int, dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(width)
    a, b = (
        (rng.standard_normal((n, width)) * 10.0 ** rng.uniform(-9, 9, (n, width))).astype(dtype)
        for n, dtype in zip((5, 9), dtypes, strict=True)
    )
    out = np.empty((3, 5, 9))
    sums(a, b, out)
    x, y = a.astype(np.float64)[:, None], b.astype(np.float64)[None]
    assert np.array_equal(out[0], lane_sum(x * y))
    assert np.array_equal(out[1], lane_sum((x - y) ** 2))
    assert np.array_equal(out[2], lane_sum(np.abs(x - y)))


def test_rows_are_not_read_beyond_their_end() -> None:
    a = np.ones((3, 37))
    a[1:] = np.nan  # what follows the first row
    out = np.empty((3, 1, 1))
    sums(a[:1], np.ones((1, 37)), out)
    assert out[:, 0, 0].tolist() == [37.0, 0.0, 0.0]


@pytest.mark.parametrize("rows", [np.ones((4, 6))[:, ::2], np.ones((4, 6), int)], ids=["A", "int"])
def test_other_rows_are_refused(rows: Any) -> None:
    with pytest.raises(TypingError, match="is needed"):
        sums(rows, rows, np.empty((3, 4, 4)))
