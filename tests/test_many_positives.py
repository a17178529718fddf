"""Many positives a query: counts are those of float64 brute force, as they are of few."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_statistics
from profiles import examples
from reference import canonical_distances
from support.kernels import Columns, Positives, Tile
from support.package import order_within

import streameval as se

Array = npt.NDArray[Any]
METRICS = ("cosine", "euclidean", "dot")


def evaluate(source: Any, query: Array, gallery: Array, **options: Any) -> se.Evaluation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        labels = {"query": se.Labels(query), "gallery": se.Labels(gallery)}
        return se.evaluate(source, **labels, protocol="no-camera", **options)


def expected_of(distances: Array, query: Array, gallery: Array, result: Any) -> se.RankStatistics:
    thresholds = result.statistics.thresholds
    return oracle_statistics(
        distances, query, gallery, thresholds=thresholds, same_identity_and_camera=False
    )


def spread_out(rng: np.random.Generator, rows: int, width: int) -> Array:
    return rng.standard_normal((rows, width))


def of_few_values(rng: np.random.Generator, rows: int, width: int) -> Array:
    return rng.integers(1, 4, (rows, width)).astype(float)


def nearly_equal(rng: np.random.Generator, rows: int, width: int) -> Array:
    """Return rows that differ by 1e-3: most values are in doubt, and go to finer tiles."""
    return np.linspace(0.5, 2, width) * (1 + 1e-3 * rng.standard_normal((rows, width)))


def far_outliers(rng: np.random.Generator, rows: int, width: int) -> Array:
    """Return rows of which most share a cell of a grid over all."""
    return rng.standard_normal((rows, width)) * 10.0 ** rng.choice([0, 0, 0, 0, 3], (rows, 1))


@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("data", [spread_out, of_few_values, nearly_equal, far_outliers])
@examples(12)
@given(
    seed=st.integers(0, 10**6),
    identities=st.integers(1, 4),
    gallery=st.integers(300, 1500),
    width=st.integers(1, 40),
    metric=st.sampled_from(METRICS),
    metrics=st.sampled_from([None, "CMC@1,mAP"]),
    tile=st.tuples(st.integers(1, 40), st.integers(100, 1600)),
)
def test_features_with_many_positives(
    data: Any,
    seed: int,
    identities: int,
    gallery: int,
    width: int,
    metric: Any,
    metrics: str | None,
    tile: tuple[int, int],
) -> None:
    rng = np.random.default_rng(seed)
    q, g = (data(rng, rows, width).astype(np.float32) for rows in (7, gallery))
    query, items = rng.integers(0, identities, 7), rng.integers(0, identities, gallery)
    source = se.Features(q, g, metric)
    result = evaluate(source, query, items, metrics=metrics, tile=tile, threads=1)
    distances = canonical_distances(q, g, metric)
    assert result.statistics.equals(expected_of(distances, query, items, result))


@examples(25)
@given(
    seed=st.integers(0, 10**6),
    identities=st.integers(1, 4),
    gallery=st.sampled_from([300, 1000, 17_000]),  # counted in two pieces
    levels=st.sampled_from([2, 255, 10**6]),
    dtype=st.sampled_from(["float32", "float64", "uint8"]),
)
def test_stored_distances_with_many_positives(
    seed: int, identities: int, gallery: int, levels: int, dtype: str
) -> None:
    rng = np.random.default_rng(seed)
    matrix = (255 * np.round(rng.random((5, gallery)) * levels) / levels).astype(dtype)
    query, items = rng.integers(0, identities, 5), rng.integers(0, identities, gallery)
    result = evaluate(se.Distances(matrix), query, items, range=(0.0, 255.0), threads=1)
    expected = expected_of(matrix.astype(np.float64), query, items, result)
    assert result.statistics.equals(expected)


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(0, 60) | st.integers(200, 900), max_size=9),
    levels=st.sampled_from([1, 5, 10**6]),
    far=st.sampled_from([0.5, 1e9, 1e300, np.inf]),  # the others are in few buckets
    base=st.sampled_from([(0, 1 / 7), (1, 2.0**-52), (0, 5e-324)]),  # and steps above it
    threads=st.integers(1, 4),
)
def test_positives_are_sorted_by_distance_then_by_item(
    seed: int,
    counts: list[int],
    levels: int,
    far: float,
    base: tuple[float, float],
    threads: int,
) -> None:
    rng = np.random.default_rng(seed)
    indptr = np.append(0, np.cumsum(counts, dtype=np.int64))
    query = np.repeat(np.arange(len(counts)), counts)
    rows = [np.sort(rng.permutation(999)[:count]) for count in counts]
    item = np.concatenate([np.empty(0, np.int64), *rows])
    distance = base[0] + rng.integers(0, levels, len(item)) * base[1]
    distance *= rng.choice([-1.0, 1.0], len(item))
    distance[rng.random(len(item)) < 0.01] = far
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.sorting.SPREAD", 10)
        found = Positives.sort(indptr, distance.copy(), item.copy(), threads)
    order = np.lexsort((item, distance, query))
    assert np.array_equal(found.distance, distance[order])
    assert np.array_equal(found.item, item[order])


@examples(60)
@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(0, 300), max_size=6),
    levels=st.sampled_from([1, 3, 50, 10**6]),
    kind=st.sampled_from(["shuffled", "sorted", "no numbers"]),
)
def test_entries_are_ordered_by_several_keys(
    seed: int, counts: list[int], levels: int, kind: str
) -> None:
    rng, size = np.random.default_rng(seed), sum(counts)
    indptr = np.append(0, np.cumsum(counts, dtype=np.int64))
    row = np.repeat(np.arange(len(counts)), counts)
    item, distance = rng.integers(0, 40, size), rng.integers(0, levels, size).astype(np.float64)
    flag = rng.random(size) < 0.5
    distance[rng.random(size) < 0.02] = np.inf
    if kind == "sorted":
        distance = distance[np.lexsort((distance, row))]
    elif kind == "no numbers":
        distance[:] = np.nan
    for keys in ((item,), (item, distance), (item, flag, distance)):
        assert np.array_equal(order_within(indptr, *keys), np.lexsort((*keys, row)))


@pytest.mark.parametrize("order", ["halves", "saw", "odd"])
def test_positives_amid_a_far_one_are_sorted_in_their_time(order: str) -> None:
    count = 200_000  # inserted one by one, these would take minutes
    near = 1.0 + np.arange(count) * 2.0**-40
    if order == "halves":
        near = np.roll(near, count // 2)
    elif order == "saw":
        near = near.reshape(-1, 100).T.reshape(-1)
    else:
        near[1::2] = near[1::2][::-1]
    distance, item = np.append(near, 1e9), np.arange(count + 1)
    found = Positives.sort(np.array([0, count + 1]), distance.copy(), item.copy())
    assert np.array_equal(found.item, np.argsort(distance, kind="stable"))


@pytest.mark.parametrize("count", [3, 40, 3000])
def test_positives_that_are_no_numbers_stay_what_they_are(count: int) -> None:
    rng = np.random.default_rng(count)
    distance = rng.standard_normal(count) * 10.0 ** rng.integers(-5, 5, count)
    distance[rng.permutation(count)[: count // 3]] = rng.choice([np.nan, np.inf, -np.inf])
    distance[rng.permutation(count)[: count // 3]] = np.nan
    found = Positives.sort(np.array([0, count]), distance.copy(), np.arange(count))
    assert np.array_equal(np.sort(found.item), np.arange(count))
    assert np.array_equal(found.distance, distance[found.item], equal_nan=True)


@examples(60)
@given(seed=st.integers(0, 10**6), missing=st.floats(0, 0.9), listed=st.integers(0, 40))
def test_listed_pairs_are_masked_whatever_items_are_left_out(
    seed: int, missing: float, listed: int
) -> None:
    rng = np.random.default_rng(seed)
    item = np.flatnonzero(rng.random(60) >= missing) + 5
    lists = [np.sort(rng.permutation(75)[:listed]) for _ in range(3)]
    masked = rng.random(3 * listed) < 0.7
    values, taken = rng.random((3, len(item))), np.full(3 * listed, np.nan)
    before = values.copy()
    columns = Columns(item, None, np.zeros((1, len(item))))
    tile = Tile(values, np.arange(3), np.zeros(3, np.int64), columns)
    finite = tile.mask(np.arange(4) * listed, np.concatenate(lists), masked, taken)
    kept = masked.reshape(3, listed)
    expected = [np.isin(item, own[some]) for own, some in zip(lists, kept, strict=True)]
    assert np.array_equal(np.isinf(values), expected)
    assert finite == np.sum(expected)
    assert np.array_equal(taken[~np.isnan(taken)], before[expected])
