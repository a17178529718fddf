"""Stretches: sums of what belongs to rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.package import left_of, sums_of


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_stretches_are_those_of_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 5, rng.integers(0, 9)) * (rng.random() < 0.9)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    count = int(indptr[-1])
    for values in (rng.random(count) < 0.5, rng.integers(0, 1 << 60, count)):
        expected = [values[a:b].sum() for a, b in pairwise(indptr)]
        found = sums_of(values, indptr)
        assert found.dtype == np.int64
        assert found.tolist() == expected
    kept = rng.random(count) < 0.5
    expected = [int(kept[:start].sum()) for start in indptr]
    assert left_of(kept, indptr).tolist() == expected


def test_flags_of_many_stretches_do_not_overflow() -> None:
    assert sums_of(np.ones(1000, np.bool_), np.array([0, 700, 1000])).tolist() == [700, 300]


def test_stretches_beyond_the_values_are_refused() -> None:
    for values in (np.ones(3, np.bool_), np.ones(3, np.int64)):
        with pytest.raises(IndexError):
            sums_of(values, np.array([0, 2, 100_000, 200_000]))
