"""The guard band: no filter value is further from the canonical distance than it says."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference import canonical_distances
from support.distances import DISTANCES, Vectors, find_distance
from support.kernels import (
    FEW_ROWS,
    VARIABLE,
    FeatureColumns,
    ProductColumns,
    QueryBlock,
    item_bytes,
)
from test_exactness import HOSTILE
from test_products import in_digits

Array = npt.NDArray[Any]


def distance_of(value: Array, metric: str, norm: Array, scale: float) -> Array:
    """Return the filter value of a canonical distance, in float64."""
    if metric == "cosine":
        return value - 1
    if metric == "dot":
        return value * scale
    squared = value**2 if metric == "euclidean" else value
    return (squared - norm[:, None] ** 2) * scale


def columns_of(query: Array, gallery: Array, metric: str) -> ProductColumns:
    distance = find_distance(metric)
    memory = np.empty(item_bytes(*gallery.shape), np.uint8)
    ruled_out, item = np.zeros((1, len(gallery)), np.float32), np.arange(len(gallery))
    queries = QueryBlock(Vectors.of(query), distance, np.zeros(len(query), np.int64))
    columns = FeatureColumns(queries, Vectors.of(gallery), item, ruled_out, memory)
    return ProductColumns(columns.operands, len(query))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "dot"])
@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data.__name__)
@pytest.mark.parametrize("width", [1, 31, 128, 384, 512, 2048])
def test_filter_values_stay_within_the_band(
    data: Any, metric: Any, width: int, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_exactness.WIDTH", width)
    q, g = (side.astype(np.float32) for side in data(np.random.default_rng(width)))
    columns = columns_of(q, g, metric)
    if not columns.usable:
        return  # every pair is decided canonically
    tile = columns.tile(np.arange(len(q)), np.empty((len(q), len(g)), np.float32), last=True)
    assert tile.columns.weight is not None
    values = tile.values * tile.columns.weight + tile.columns.offset[0]
    canonical = canonical_distances(q, g, metric)
    norms = columns.norms
    level = distance_of(canonical, metric, norms, columns.scale)
    error = np.abs(values - level)
    if metric == "cosine":  # clipped distances have lost what lies beyond
        error[(canonical == 0) | (canonical == 2)] = 0
    assert np.all(error <= tile.band[:, None])
    indptr = len(g) * np.arange(len(q) + 1)
    for bound in tile.levels(np.arange(len(q)), indptr, canonical.ravel()):
        assert np.array_equal(bound.reshape(level.shape), level)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_rows_that_are_nearly_alike_are_told_apart_in_float32(
    metric: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "blas")
    rng = np.random.default_rng(1)
    one = 1e3 * rng.standard_normal(128)
    q, g = (one + rng.standard_normal((rows, 128)) for rows in (70, 300))
    q, g = q.astype(dtype), np.concatenate([g, one[None], -one[None]]).astype(dtype)
    columns = columns_of(q, g, metric)
    assert columns.queries.centred
    tile = columns.tile(np.arange(70), np.empty((70, 302), np.float32), last=True)
    canonical = canonical_distances(q, g, metric)
    level = distance_of(canonical, metric, columns.norms, columns.scale)
    assert tile.columns.weight is not None
    values = tile.values * tile.columns.weight + tile.columns.offset[0]
    assert np.all(np.abs(values - level) <= tile.band[:, None])
    near = columns_of(q, g[:300], metric)
    tile = near.tile(np.arange(70), np.empty((70, 300), np.float32), last=True)
    spread = level[:, :300].std(axis=1) * near.scale / columns.scale
    assert np.all(tile.band < 1e-3 * spread)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_other_rows_are_multiplied_as_they_are(metric: Any) -> None:
    rows = np.random.default_rng(2).standard_normal((300, 64)).astype(np.float32)
    copies = [np.repeat(rows[:1].astype(np.float64) / 3, count, axis=0) for count in (2, 100, 300)]
    for given in (rows, rows[:1], *copies):
        assert not columns_of(given, rows, metric).queries.centred


def gamma_of(rows: npt.NDArray[np.float32]) -> float:
    return float(np.max(columns_of(rows, rows, "cosine").gamma))


def test_the_band_of_blas_grows_with_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "blas")
    roundings = {1: 1, 128: 128, 512: 512, 1024: 1024, 1025: 514, 4096: 1027, 100_000: 1118}
    of_few = {1: 1, 2: 2, 5: 4, 128: 19, 1025: 132, 8192: 1027, 100_000: 977}  # eight sums each
    for rows, expected in ((FEW_ROWS + 1, roundings), (FEW_ROWS, of_few), (1, of_few)):
        for width, count in expected.items():
            gamma = gamma_of(np.ones((rows, width), np.float32))
            assert gamma == pytest.approx((count + 8) * 2.0**-24, rel=1e-3)


@in_digits
@pytest.mark.usefixtures("product")
def test_the_band_of_digits_depends_on_the_rows() -> None:
    rng = np.random.default_rng(0)
    for width in (64, 512, 4096):
        ordinary = rng.standard_normal((100, width)).astype(np.float32)
        uneven = ordinary * np.where(np.arange(width) == 0, 1e4, 1).astype(np.float32)
        assert 20 <= gamma_of(ordinary) * 2**24 <= 100
        assert gamma_of(uneven) > gamma_of(ordinary)


def test_the_band_ends_where_float32_says_nothing(product: str) -> None:
    empty = np.empty((0, 10**7), np.float32)
    assert columns_of(empty, empty, "dot").gamma == np.inf


def test_levels_take_no_more_memory_than_is_planned() -> None:
    rng = np.random.default_rng(0)
    q, g = rng.random((64, 8), np.float32), rng.random((4, 8), np.float32)
    tile = columns_of(q, g, "euclidean").tile(
        np.arange(64), np.empty((64, 4), np.float32), last=True
    )
    edges = 4000
    distances = rng.random(64 * edges)
    tracemalloc.start()
    tile.levels(np.arange(64), edges * np.arange(65), distances)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * distances.nbytes


def test_queries_are_ready_before_threads_share_them() -> None:
    rows = np.ones((32, 8), np.float32)
    queries = QueryBlock(Vectors.of(rows), find_distance("cosine"), np.zeros(32, np.int64))
    assert {"digits", "_multiplier"} <= vars(queries).keys()


@pytest.mark.parametrize("metric", DISTANCES)
@pytest.mark.parametrize("items", [60, 9000])  # of the last a cache does not hold all
def test_listed_pairs_have_the_canonical_distance(metric: str, items: int) -> None:
    rng = np.random.default_rng(items)
    q, g = (rng.standard_normal((count, 35)).astype(np.float32) for count in (20, items))
    sides, canonical = (Vectors.of(q), Vectors.of(g)), canonical_distances(q, g, metric)
    query, item = rng.integers(0, len(q), 3000), rng.integers(0, items, 3000)
    by_query = np.argsort(query, kind="stable")
    for own in (slice(None), by_query, slice(0, 1), slice(0, 0)):
        found = find_distance(metric).pairs(*sides, query[own], item[own])
        assert np.array_equal(found, canonical[query[own], item[own]])
