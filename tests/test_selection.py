"""Values that may be of interest, where they are few: counts are those of brute force."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_statistics
from profiles import examples
from reference import canonical_distances
from support.kernels import BEYOND, few_up_to, limit_of, select, selects

import streameval as se

Array = npt.NDArray[Any]
IDENTITIES = 12
needs_selection = pytest.mark.skipif(selects() is None, reason="no vectors (AVX2)")


@numba.njit
def selected(values, weight, offset, limit, row, places):  # type: ignore[no-untyped-def]
    return select(values, weight, offset, limit, row, places)


@needs_selection
@examples(60)
@given(
    n=st.integers(0, 150),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
    share=st.sampled_from([0.0, 0.1, 0.7, 1.0]),
    seed=st.integers(0, 99),
)
def test_values_up_to_a_limit_are_written_in_order(
    n: int, dtype: Any, weighted: bool, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values, weight, offset = (rng.standard_normal(n).astype(dtype) for _ in range(3))
    offset[rng.random(n) < 0.1] = np.inf
    if not weighted:
        values[rng.random(n) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    with np.errstate(invalid="ignore"):
        whole = values * weight + offset if weighted else values + offset
    finite = whole[np.isfinite(whole)]
    limit = dtype(np.quantile(finite, share)) if len(finite) else dtype(0)  # a value, at an end
    row, places = np.full(n + BEYOND + 3, 7, dtype), np.full(n + BEYOND + 3, 9, np.uint32)
    given_weight = weight if weighted else None
    count, odd = selected(values, given_weight, offset, limit, row, places)
    expected = np.flatnonzero(whole <= limit)
    assert places[:count].tolist() == expected.tolist()
    assert np.array_equal(row[:count], whole[expected])
    assert odd == (0 if weighted else np.count_nonzero(~np.isfinite(values)))
    assert row[n + BEYOND :].tolist() == [7, 7, 7]
    assert places[n + BEYOND :].tolist() == [9, 9, 9]


def test_a_limit_is_not_below_what_may_be_of_interest() -> None:
    tied, like = np.array([0.1, 0.3]), np.empty(0, np.float32)
    for reach in (0.2, 0.7, np.inf):
        limit = limit_of(tied, 1e-9, reach, like)
        assert limit >= max(0.3 + 1e-9, reach)
        assert limit <= np.nextafter(np.float32(max(0.3 + 1e-9, reach)), np.float32(np.inf))
    assert limit_of(tied[:0], 1e-9, 0.5, like) == np.float32(0.5)
    assert limit_of(tied, 1e-9, np.nan, like) == np.inf
    assert not few_up_to(limit_of(tied - np.inf, np.inf, 0.5, like), like, None, like)


def test_few_are_told_by_a_sample() -> None:
    values = np.random.default_rng(0).random(5000).astype(np.float32)
    none = np.zeros(5000, np.float32)
    assert few_up_to(np.float32(0.3), values, None, none)
    assert not few_up_to(np.float32(0.9), values, None, none)
    assert not few_up_to(np.float32(np.inf), values, None, none + np.float32(np.inf))


def near_positives(
    rng: np.random.Generator, gallery: int, width: int, levels: int
) -> tuple[Array, Array, Array, Array]:
    """Return rows of two sides, near the centres of their identities, and these."""
    centres = rng.standard_normal((IDENTITIES, width))
    sides = []
    for count in (7, gallery):
        identity = rng.integers(0, IDENTITIES, count)
        rows = centres[identity] + 0.3 * rng.standard_normal((count, width))
        sides += [np.round(rows * levels).astype(np.float32), identity]
    q, query, g, items = sides
    return q, query, g, items


@pytest.fixture(params=["vectors", "loops"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "loops":
        monkeypatch.setattr("streameval.kernels.counting.selects", lambda: None)


@pytest.mark.usefixtures("_way", "product")
@examples(12)
@given(
    seed=st.integers(0, 10**6),
    gallery=st.sampled_from([300, 2000, 5000]),
    levels=st.sampled_from([2, 1000]),  # most are tied; few
    metric=st.sampled_from(["cosine", "euclidean"]),
    stored=st.booleans(),
    tile=st.tuples(st.integers(1, 40), st.integers(100, 5000)),
)
def test_few_values_of_interest_are_counted_as_all(
    seed: int, gallery: int, levels: int, metric: Any, stored: bool, tile: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    q, query, g, items = near_positives(rng, gallery, 16, levels)
    distances = canonical_distances(q, g, metric)
    source: Any = se.Distances(distances) if stored else se.Features(q, g, metric)
    result = se.evaluate(
        source,
        query=se.Labels(query),
        gallery=se.Labels(items),
        protocol="no-camera",
        metrics="CMC@1,mAP",
        threads=1,
        tile=None if stored else tile,
    )
    expected = oracle_statistics(
        distances,
        query,
        items,
        thresholds=result.statistics.thresholds,
        same_identity_and_camera=False,
    )
    assert result.statistics.equals(expected)
