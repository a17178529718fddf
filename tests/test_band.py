"""The guard band: no filter value is further from the canonical distance than it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference import canonical_distances
from test_exactness import HOSTILE

from streameval.counting.canonical import row_norms
from streameval.counting.features import Filter, band_factor, guard_band, prepare

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
    data: Any, metric: Any, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_exactness.WIDTH", width)
    q, g = (side.astype(np.float32) for side in data(np.random.default_rng(width)))
    queries = prepare(q, row_norms(q), metric, queries=True)
    gallery = prepare(g, row_norms(g), metric, queries=False)
    filter_ = Filter.of(metric, queries, gallery)
    if not filter_.usable:
        return  # every pair is decided canonically
    tile = np.matmul(queries.filter, gallery.filter.T) + filter_.offset(gallery.norms)
    canonical = canonical_distances(q, g, metric)
    error = np.abs(tile - distance_of(canonical, metric, queries.norms, filter_.scale))
    if metric == "cosine":  # clipped distances have lost what lies beyond
        error[(canonical == 0) | (canonical == 2)] = 0
    band = np.array([guard_band(filter_, norm, width) for norm in queries.norms])
    assert np.all(error <= band[:, None])


def test_the_band_grows_with_the_width_and_ends_where_float32_says_nothing() -> None:
    widths = [1, 128, 512, 4096, 100_000]
    factors = [band_factor(width) for width in widths]
    assert factors == sorted(factors)
    assert band_factor(512) < 3.2e-5
    assert band_factor(10**8) == np.inf
