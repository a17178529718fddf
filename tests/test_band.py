"""The guard band: no filter value is further from the canonical distance than it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference import canonical_distances
from test_exactness import HOSTILE

from streameval.counting.canonical import row_norms
from streameval.counting.filtering import (
    Filter,
    guard_band,
    prepare_gallery,
    prepare_queries,
    write_products,
)
from streameval.counting.products import panel_bytes

Array = npt.NDArray[Any]


def distance_of(value: Array, metric: str, norm: Array, scale: float) -> Array:
    """Return the filter value of a canonical distance, in float64."""
    if metric == "cosine":
        return value - 1
    if metric == "dot":
        return value * scale
    squared = value**2 if metric == "euclidean" else value
    return (squared - norm[:, None] ** 2) * scale


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "dot"])
@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data.__name__)
@pytest.mark.parametrize("width", [1, 31, 128, 384, 512, 2048])
def test_filter_values_stay_within_the_band(
    data: Any, metric: Any, width: int, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_exactness.WIDTH", width)
    q, g = (side.astype(np.float32) for side in data(np.random.default_rng(width)))
    queries = prepare_queries(q, row_norms(q), metric)
    gallery = prepare_gallery(g, row_norms(g))
    filter_ = Filter.of(metric, queries, gallery)
    if not filter_.usable:
        return  # every pair is decided canonically
    values = np.empty((len(q), len(g)), np.float32)
    if queries.panels.size:
        gallery = gallery.packed(np.empty(panel_bytes(*g.shape), np.uint8))
    write_products(queries, 0, gallery, values)
    tile = values * filter_.weight(gallery) + filter_.offset(gallery)
    canonical = canonical_distances(q, g, metric)
    error = np.abs(tile - distance_of(canonical, metric, queries.norms, filter_.scale))
    if metric == "cosine":  # clipped distances have lost what lies beyond
        error[(canonical == 0) | (canonical == 2)] = 0
    band = np.array([guard_band(filter_, norm) for norm in queries.norms])
    assert np.all(error <= band[:, None])


def test_the_band_grows_with_the_width_and_ends_where_float32_says_nothing(product: str) -> None:
    gammas = []
    for width in (1, 128, 512, 4096, 100_000):
        row = np.ones((1, width), np.float32)
        queries = prepare_queries(row, row_norms(row), "cosine")
        gammas.append(Filter.of("cosine", queries, prepare_gallery(row, row_norms(row))).gamma)
    assert gammas == sorted(gammas)
    roundings = 520 if product == "blas" else 1.01 * (17 + 6 * 16) + 10.1
    assert gammas[2] == pytest.approx(roundings * 2.0**-24, rel=1e-4)
    empty = np.empty((0, 10**7), np.float32)
    nothing = prepare_gallery(empty, row_norms(empty))
    assert (
        Filter.of("dot", prepare_queries(empty, row_norms(empty), "dot"), nothing).gamma == np.inf
    )
