"""What τ = 0 and τ = 1 stand for: bounds of the metric, of the data, or given."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from reference import canonical_distances
from spread import spread
from support.kernels import threshold_distances
from support.runs import plan_any_budget
from test_exactness import (
    GALLERY,
    METRICS,
    QUERIES,
    Array,
    evaluate,
    labels,
    least_memory,
    normal,
    oracle,
)

import streameval as se

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@given(bounds=st.tuples(FINITE, FINITE).filter(lambda b: b[0] < b[1]), offsets=st.data())
def test_a_threshold_is_the_last_distance_within_it(bounds: Any, offsets: Any) -> None:
    low, high = bounds
    edges = threshold_distances(low, high)
    for t in offsets.draw(st.lists(st.integers(0, 100), min_size=1, max_size=5)):
        edge = edges[t]
        assert (edge - low) / (high - low) <= t / 100
        assert (math.nextafter(edge, math.inf) - low) / (high - low) > t / 100


def test_equal_distances_are_all_normalised_to_zero() -> None:
    assert (threshold_distances(0.5, 0.5) == 0.5).all()
    sides = {"query": se.Labels(np.array([1, 2])), "gallery": se.Labels(np.array([1, 3]))}
    result = evaluate(se.Distances(np.full((2, 2), 0.5)), **sides, protocol="no-camera")
    assert result.range == {"mode": "minmax", "low": 0.5, "high": 0.5}
    assert (result.statistics.negatives_within == [[1], [2]]).all()


@pytest.mark.parametrize("tile", [None, (5, 16)])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "dot"])
def test_minmax_is_over_all_pairs_that_are_not_ignored(metric: Any, tile: Any) -> None:
    rng = np.random.default_rng(1)
    q, g = normal(rng)
    sides = labels(rng, QUERIES, GALLERY)
    result = evaluate(se.Features(q, g, metric), **sides, tile=tile)
    distances = canonical_distances(q, g, metric)
    query, gallery = sides["query"], sides["gallery"]
    same = query.id[:, None] == gallery.id
    ignored = same & (query.cam[:, None] == gallery.cam)  # type: ignore[index]
    valid = distances[~ignored & (gallery.id != -1)]
    assert result.range == {"mode": "minmax", "low": valid.min(), "high": valid.max()}
    assert result.statistics.negatives_within[:, -1].tolist() == list(result.statistics.negatives)


def with_ignored_extremes(
    rng: np.random.Generator, q: Array, g: Array
) -> tuple[dict[str, se.Labels], Array]:
    """Return labels by which the nearest and the furthest items are ignored; and the features.

    Query 0 and junk item 0 are equal; query 1 and item 1 are of one image, far from all others.
    """
    sides = labels(rng, QUERIES, GALLERY)
    query, gallery = sides["query"], sides["gallery"]
    g[0], q[1], g[1] = q[0], 9 * q[1], -9 * q[1]
    gallery.id[:2], gallery.cam[:2] = (-1, query.id[1]), query.cam[:2]  # type: ignore[index]
    return sides, g


@pytest.mark.parametrize(
    ("metric", "protocol", "tile"),
    spread(METRICS, ["market1501", "separate-camera", "no-camera"], [None, (5, 16)]),
)
def test_minmax_all_is_over_every_pair(metric: Any, protocol: str, tile: Any) -> None:
    rng = np.random.default_rng(6)
    q, g = normal(rng)
    sides, g = with_ignored_extremes(rng, q, g)
    source = se.Features(q, g, metric)
    options: dict[str, Any] = {"protocol": protocol, "range": "minmax-all", "threads": 2}
    result = evaluate(source, **sides, **options, tile=tile, metrics="all")
    distances = canonical_distances(q, g, metric)
    low, high = distances.min(), distances.max()
    assert result.range == {"mode": "minmax-all", "low": low, "high": high}
    given = evaluate(source, **sides, **{**options, "range": (low, high)}, metrics="all")
    assert result.statistics.equals(given.statistics)


@pytest.mark.parametrize("ignored", ["own images", "listed"])
@pytest.mark.parametrize("layout", ["strips", "rectangles"])
def test_minmax_all_of_stored_distances(layout: str, ignored: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(7)
    distances = rng.choice(np.linspace(0.5, 2, 40), (QUERIES, GALLERY))
    sides = labels(rng, QUERIES, GALLERY)
    distances[3, 3], distances[5, 5] = 0.25, 7.0
    zarr.create_array(tmp_path / "d.zarr", data=distances, chunks=(5, 16))
    source = se.Distances(tmp_path / "d.zarr")
    options: dict[str, Any] = {"protocol": "no-camera", "self_match": "key"}
    if ignored == "listed":
        good = [[query + 20] for query in range(QUERIES)]
        junk = [[query] * (query in (3, 5)) for query in range(QUERIES)]
        options = {"listed": se.ListedPairs.of(good, [np.array(row, int) for row in junk])}
        sides["gallery"].id[20 : 20 + QUERIES] = sides["query"].id
    else:
        sides = {side: se.Labels(one.id, key=np.arange(len(one))) for side, one in sides.items()}
    options["range"] = "minmax-all"
    with pytest.MonkeyPatch.context() as patch:
        plan_any_budget(patch)
        memory = 10**9 if layout == "strips" else least_memory(source, sides, **options)
        result = evaluate(source, **sides, **options, memory=memory, threads=2)
        narrow = evaluate(source, **sides, **{**options, "range": "minmax"}, memory=memory)
    assert result.provenance["plan"]["layout"] == layout
    assert result.range == {"mode": "minmax-all", "low": 0.25, "high": 7.0}
    assert narrow.range == {"mode": "minmax", "low": 0.5, "high": 2.0}
    given = evaluate(source, **sides, **{**options, "range": (0.25, 7.0)})
    assert result.statistics.equals(given.statistics)


def test_minmax_all_needs_no_pair_that_takes_part() -> None:
    sides = {"query": se.Labels([1], [1]), "gallery": se.Labels([1, -1], [1, 1])}
    result = evaluate(se.Distances([[1.0, 3.0]]), **sides, range="minmax-all")
    assert result.range == {"mode": "minmax-all", "low": 1.0, "high": 3.0}


def test_lists_do_not_tell_minmax_all() -> None:
    sides = {"query": se.Labels([1], [1]), "gallery": se.Labels([1, 2], [2, 2])}
    lists = se.Neighbors([[0, 1]], [[0.5, 0.75]])
    with pytest.raises(se.OptionError, match="lists hold some of them: give --range LO,HI"):
        evaluate(lists, **sides, range="minmax-all")
    result = evaluate(lists, **sides, range="minmax-all", metrics="CMC@1")
    assert result.range["mode"] == "unused"


@pytest.mark.parametrize(("metric", "high"), [("euclidean", 2.0), ("sqeuclidean", 4.0)])
def test_unit_vectors_have_bounds_of_their_own(metric: Any, high: float) -> None:
    rng = np.random.default_rng(2)
    q, g = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in normal(rng))
    g[0] = -q[0]
    sides = labels(rng, QUERIES, GALLERY)
    source = se.Features(q.astype(np.float32), g.astype(np.float32), metric)
    result = evaluate(source, **sides)
    assert result.range == {"mode": "auto", "low": 0.0, "high": high}
    assert result.statistics.negatives_within[:, -1].tolist() == list(result.statistics.negatives)


def test_one_gallery_row_that_is_no_unit_vector_makes_it_minmax() -> None:
    rng = np.random.default_rng(3)
    q, g = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in normal(rng))
    g[-1] *= 1.5
    sides = labels(rng, QUERIES, GALLERY)
    auto = evaluate(se.Features(q, g, "euclidean"), **sides)
    minmax = evaluate(se.Features(q, g, "euclidean"), **sides, range="minmax")
    assert auto.range == minmax.range
    assert auto.statistics.equals(minmax.statistics)


@pytest.mark.parametrize("kind", ["features", "strips"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.2), (0.9, 2.0)])
def test_a_distance_outside_a_given_range_is_named(kind: str, low: float, high: float) -> None:
    rng = np.random.default_rng(4)
    q, g = normal(rng)
    distances = canonical_distances(q, g, "cosine")
    sides = labels(rng, QUERIES, GALLERY)
    source = se.Features(q, g) if kind == "features" else se.Distances(distances)
    with pytest.raises(se.InputError, match=r"outside the given range .* --range") as caught:
        evaluate(source, **sides, range=(low, high))
    named = re.search(r"query (\d+) to gallery item (\d+) is (\S+),", str(caught.value))
    assert named is not None
    query, item, value = int(named[1]), int(named[2]), float(named[3])
    assert value == pytest.approx(distances[query, item], abs=1e-8)
    assert not low <= value <= high


def test_a_range_that_holds_every_distance_counts_as_the_oracle() -> None:
    rng = np.random.default_rng(5)
    q, g = normal(rng)
    sides = labels(rng, QUERIES, GALLERY)
    result = evaluate(se.Features(q, g), **sides, range=(0.25, 1.75))
    distances = canonical_distances(q, g, "cosine")
    limits = threshold_distances(0.25, 1.75)
    for t in range(101):
        assert np.array_equal(distances <= limits[t], (distances - 0.25) / 1.5 <= t / 100)
    assert result.statistics.equals(oracle(distances, sides, limits))


@pytest.mark.parametrize("wanted", ["all", (1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1)])
def test_a_range_that_is_none_is_refused(wanted: Any) -> None:
    sides = {"query": se.Labels(np.array([1])), "gallery": se.Labels(np.array([1]))}
    with pytest.raises(se.OptionError, match="range is"):
        evaluate(se.Features(np.ones((1, 2)), np.ones((1, 2))), **sides, range=wanted)


def test_a_range_whose_width_is_not_finite_is_refused() -> None:
    sides = {"query": se.Labels(np.array([1])), "gallery": se.Labels(np.array([1]))}
    with pytest.raises(se.OptionError, match=r"HI - LO is beyond float64: choose a narrower range"):
        evaluate(se.Features(np.ones((1, 2)), np.ones((1, 2))), **sides, range=(-1e308, 1e308))


def test_pairs_that_are_all_ignored_have_no_range() -> None:
    sides = {"query": se.Labels(np.array([1]), np.array([1]))}
    sides["gallery"] = se.Labels(np.array([1]), np.array([1]))
    with pytest.warns(se.StreamevalWarning) as caught:
        result = se.evaluate(se.Distances(np.ones((1, 1))), **sides)
    assert any("every pair is ignored" in str(one.message) for one in caught)
    assert result.counts["queries_excluded"] == 1
