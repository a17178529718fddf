"""The guard band: no filter value is further from the canonical distance than it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference import canonical_distances
from test_exactness import HOSTILE

from streameval.kernels.canonical import row_norms
from streameval.kernels.filtering import (
    Filter,
    guard_band,
    prepare_gallery,
    prepare_queries,
    write_products,
)
from streameval.kernels.matrix_unit import supported
from streameval.kernels.products import VARIABLE, panel_bytes

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
    if queries.panels.digits.size:
        gallery = gallery.packed(np.empty(panel_bytes(*g.shape), np.uint8))
    filter_ = Filter.of(metric, queries, gallery)
    if not filter_.usable:
        return  # every pair is decided canonically
    values = np.empty((len(q), len(g)), np.float32)
    write_products(queries, 0, gallery, values)
    tile = values * filter_.weight(gallery) + filter_.offset(gallery)
    canonical = canonical_distances(q, g, metric)
    error = np.abs(tile - distance_of(canonical, metric, queries.norms, filter_.scale))
    if metric == "cosine":  # clipped distances have lost what lies beyond
        error[(canonical == 0) | (canonical == 2)] = 0
    band = np.array([guard_band(filter_, norm) for norm in queries.norms])
    assert np.all(error <= band[:, None])


def gamma_of(rows: npt.NDArray[np.float32]) -> float:
    queries, gallery = (
        prepare_queries(rows, row_norms(rows), "cosine"),
        prepare_gallery(rows, row_norms(rows)),
    )
    if queries.panels.digits.size:
        gallery = gallery.packed(np.empty(panel_bytes(*rows.shape), np.uint8))
    return Filter.of("cosine", queries, gallery).gamma


def test_the_band_of_blas_grows_with_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "blas")
    gammas = [gamma_of(np.ones((1, width), np.float32)) for width in (1, 128, 512, 4096, 100_000)]
    assert gammas == sorted(gammas)
    assert gammas[2] == pytest.approx(520 * 2.0**-24, rel=1e-4)


@pytest.mark.skipif(not supported(), reason="this machine has no matrix unit")
def test_the_band_of_the_matrix_unit_depends_on_the_rows() -> None:
    rng = np.random.default_rng(0)
    for width in (64, 512, 4096):
        ordinary = rng.standard_normal((100, width)).astype(np.float32)
        uneven = ordinary * np.where(np.arange(width) == 0, 1e4, 1).astype(np.float32)
        assert 20 <= gamma_of(ordinary) * 2**24 <= 100
        assert gamma_of(uneven) > gamma_of(ordinary)


def test_the_band_ends_where_float32_says_nothing(product: str) -> None:
    empty = np.empty((0, 10**7), np.float32)
    nothing = prepare_gallery(empty, row_norms(empty))
    assert (
        Filter.of("dot", prepare_queries(empty, row_norms(empty), "dot"), nothing).gamma == np.inf
    )
