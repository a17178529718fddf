"""Ranks alone: pairs that one digit marks, and counts that are those of brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from reference import canonical_distances
from support.distances import Vectors, find_distance
from support.kernels import (
    LOOPS,
    NARROW_VECTORS,
    UNIT,
    VECTORS,
    Digits,
    FeatureColumns,
    Limits,
    MarkColumns,
    Operands,
    Panels1,
    ProductColumns,
    QueryBlock,
    Reach,
    has_avx2,
    has_vnni,
    item_bytes,
    limits_of,
    line_of,
    mark,
    panel_bytes,
    sieve_of,
    supported,
    up_to,
)
from test_exactness import HOSTILE, METRICS, evaluate, few_valued, labels, oracle

import streameval as se

Array = npt.NDArray[Any]


def operands_of(query: Array, gallery: Array, metric: str) -> Operands:
    memory = np.empty(item_bytes(*gallery.shape), np.uint8)
    ruled_out, item = np.zeros((1, len(gallery)), np.float32), np.arange(len(gallery))
    queries = QueryBlock(Vectors.of(query), find_distance(metric), np.zeros(len(query), np.int64))
    return FeatureColumns(queries, Vectors.of(gallery), item, ruled_out, memory).operands


RANKS = ["mAP", "mINP", "CMC@1"]
COSTS = {"listed": 1e9, "as is": None, "whole": 0.0}  # of products, beside what is listed


def ranks(*args: Any, **kwargs: Any) -> se.RankStatistics:
    """Evaluate what needs ranks alone, with a sieve from the first few columns on."""
    costs = kwargs.pop("costs", "as is")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.sources.features.FIRST_ITEMS", 16)
        if COSTS[costs] is not None:
            patch.setattr(
                "streameval.kernels.marks.gallery_row_seconds",
                lambda count, width: np.full(len(count), COSTS[costs]) * count,
            )
            patch.setattr("streameval.kernels.features.worth_marking", lambda *_: True)
        return evaluate(*args, **kwargs, metrics=RANKS).statistics


def marks_of(tile: Any) -> Array:
    """Return the marks of a tile, a number each."""
    return np.unpackbits(tile.values.view(np.uint8), axis=1, bitorder="little")


needs_sieve = pytest.mark.skipif(not sieve_of(8), reason="no instructions to multiply bytes")


def some_limits(rng: np.random.Generator, rows: int, columns: int, *, both: bool) -> Limits:
    """Return limits at random, of rows alone or of both sides; of some of them none."""
    lines = np.zeros((rows, 6), np.float32)
    lines[:, 1:5] = [-np.inf, np.inf, 0, np.inf]
    lines[:, 3] = rng.standard_normal(rows)
    near, far = (np.full(columns, own, np.float32) for own in (-np.inf, np.inf))
    if both:
        lines[::2, 4] = rng.uniform(4, 9, len(lines[::2]))
        lines[::4, :3] = rng.normal([2, 0, 3], 1, (len(lines[::4]), 3))
        near[::3], far[::5] = (rng.standard_normal(len(own)) for own in (near[::3], far[::5]))
    return Limits(lines, near, far)


@pytest.mark.parametrize("both", [False, True], ids=["queries", "both sides"])
@pytest.mark.parametrize("width", [1, 3, 64, 100, 513])
def test_all_ways_mark_the_same_pairs(width: int, both: bool) -> None:
    rng = np.random.default_rng(width)
    q, g = (rng.standard_normal((rows, width)).astype(np.float32) for rows in (77, 205))
    q[5], g[7], g[-1] = 0, 0, 1e-35
    weight = rng.uniform(0.5, 2, len(g)).astype(np.float32)
    offset = np.full((2, 224), np.nan, np.float32)
    offset[:, :205] = rng.standard_normal((2, 205))
    offset[1, ::3] = np.nan
    chosen = np.flatnonzero(rng.random(77) < 0.8)
    row, limits = rng.integers(0, 2, len(chosen)), some_limits(rng, len(chosen), len(g), both=both)
    for way, there in ((VECTORS, has_vnni()), (NARROW_VECTORS, has_avx2()), (UNIT, supported())):
        if not there:
            continue
        queries = Digits.of(q, way)
        panels = Panels1.of(g, weight, np.empty(panel_bytes(len(g), width), np.uint8), way)
        given = chosen, panels, offset, row, limits
        fast, slow = (np.zeros((len(chosen), 7), np.uint32) for _ in range(2))
        mark(queries, *given, fast)
        mark(queries._replace(way=LOOPS), *given, slow)
        assert (fast == slow).all()
        assert 0 < np.bitwise_count(slow).sum() < 0.9 * slow.size * 32
        for own in (way, LOOPS):
            third = np.zeros((len(chosen), 3), np.uint32)
            mark(queries._replace(way=own), *given, third, 3)
            assert (third == slow[:, ::3]).all()


def test_sums_of_the_greatest_numbers_do_not_overflow() -> None:
    q = np.ones((5, 64), np.float32)
    g = np.concatenate([np.ones((20, 64)), -np.ones((20, 64))]).astype(np.float32)
    offset, row = np.zeros((1, 64), np.float32), np.zeros(5, np.int64)
    for way, there in ((VECTORS, has_vnni()), (NARROW_VECTORS, has_avx2()), (UNIT, supported())):
        if there:
            memory, ones = np.empty(panel_bytes(40, 64), np.uint8), np.ones(40, np.float32)
            panels = Panels1.of(g, ones, memory, way)
            for limit, expected in ((-64.5, 0), (-63.5, 20), (63.5, 20), (64.5, 40)):
                out = np.zeros((5, 2), np.uint32)
                limits = some_limits(np.random.default_rng(0), 5, 40, both=False)
                limits.lines[:, 3] = limit
                mark(Digits.of(q, way), np.arange(5), panels, offset, row, limits, out)
                bits = np.unpackbits(out.view(np.uint8), axis=1)[:, :40]
                assert bits.sum() == 5 * expected


@needs_sieve
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data.__name__)
@pytest.mark.usefixtures("product")
def test_what_is_not_marked_is_further(data: Any, metric: Any) -> None:
    rng = np.random.default_rng(11)
    q, g = (side.astype(np.float32) for side in data(rng))
    distances = canonical_distances(q, g, metric)
    operands = operands_of(q, g, metric)
    if not operands.fits:
        return
    for share in (0.0, 0.01, 0.1, 0.5, 1.0):
        reach = np.quantile(distances, share, axis=1, method="lower")
        memory = np.empty(q.shape[0] * (len(g) + 32), np.uint8)
        columns = MarkColumns(operands)
        marked = marks_of(columns.tile(np.arange(len(q)), up_to(reach), memory))
        assert marked[:, : len(g)][distances <= reach[:, None]].all()
        assert not marked[:, len(g) :].any()
        near, far = (
            [np.quantile(distances, at, axis=axis, method="nearest") for axis in (1, 0)]
            for at in (share, 1 - share / 2)
        )
        sides = Reach(near[0], far[0]), Reach(near[1], far[1])
        marked = marks_of(columns.tile(np.arange(len(q)), sides, memory))
        for axis in (1, 0):
            own = distances if axis else distances.T
            wanted = (own <= near[1 - axis][:, None]) | (own >= far[1 - axis][:, None])
            assert marked[:, : len(g)][wanted if axis else wanted.T].all()
        assert not marked[:, len(g) :].any()


@needs_sieve
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("side", ["query", "gallery"])
def test_what_digits_leave_out_may_all_lie_one_way(side: str, metric: Any) -> None:
    rows = np.random.default_rng(14).standard_normal((60, 100)).astype(np.float32)
    scale = np.abs(rows).max(axis=1, keepdims=True) / sieve_of(100).most
    left_out = rows - scale * np.round(rows / scale)
    left_out *= 100 / np.linalg.norm(left_out, axis=1, keepdims=True)
    q, g = (rows, left_out) if side == "query" else (left_out, rows)
    for sign in (1, -1):
        g = (sign * g).astype(np.float32)
        own = np.diag(canonical_distances(q, g, metric))
        marks = MarkColumns(operands_of(q, g, metric))
        memory, none = np.empty(60 * 64, np.uint8), np.full(60, np.inf)
        for reach in (Reach(own, none), Reach(-none, own)):
            for sides in ((reach, Reach.unknown(0)), (Reach(-none, none), reach)):
                tile = marks.tile(np.arange(60), sides, memory)
                assert np.diag(marks_of(tile)[:, :60]).all()


@needs_sieve
def test_a_sample_tells_which_queries_are_counted_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streameval.kernels.features.worth_marking", lambda *_: True)
    asked: list[tuple[int, int]] = []  # how many queries, and one of how many panels

    def noted(digits: Digits, chosen: Array, *given: Any) -> None:
        asked.append((len(chosen), given[-1]))
        mark(digits, chosen, *given)

    monkeypatch.setattr("streameval.kernels.marks.mark", noted)
    rng, n = np.random.default_rng(3), 20_000
    q, g = (rng.standard_normal((count, 64)).astype(np.float32) for count in (40, n))
    queries = QueryBlock(Vectors.of(q), find_distance("cosine"), np.zeros(40, np.int64))
    given = np.arange(n), np.zeros((1, n), np.float32), np.empty(item_bytes(n, 64), np.uint8)
    columns = FeatureColumns(queries, Vectors.of(g), *given)
    share = np.where(np.arange(40) % 2, 0.6, 0.0001)  # of the gallery is of interest
    distances = canonical_distances(q, g, "cosine")
    reach = np.array([np.quantile(own, at) for own, at in zip(distances, share, strict=True)])

    def marked() -> list[Array]:
        """Return the numbers of queries in tiles of marks; the others are multiplied."""
        memory = np.empty(4 * 40 * n, np.uint8)
        tiles = [
            (tile.query, tile.sparse) for tile in columns.tiles(40, memory, lambda _: up_to(reach))
        ]
        whole = [query for query, sparse in tiles if not sparse]
        assert np.array_equal(np.concatenate(whole), np.flatnonzero(share > 0.5))
        return [query for query, sparse in tiles if sparse]

    for _ in range(2):
        assert [query.tolist() for query in marked()] == [np.flatnonzero(share < 0.5).tolist()]
    assert asked == [(40, 16), (20, 1), (20, 1)]
    queries.crowded[:] = False
    assert np.array_equal(np.concatenate(marked()), np.flatnonzero(share < 0.5))
    assert asked[3:] == [(40, 1)]  # no sample again: all are marked, and half of them left out


@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("powers", [(30, 60, 70), (0, 60, 60), (30, 62, 45), (30, 60, 20)])
def test_lines_that_float32_cannot_hold_limit_nothing(
    powers: tuple[int, int, int], dtype: Any
) -> None:
    rng = np.random.default_rng(0)
    short, long, longest = powers
    q = rng.standard_normal((40, 64)) * 2.0**short
    q[0] = np.abs(q[0]) * 2.0**longest
    g = np.abs(rng.standard_normal((64, 64)) * 2.0**long)
    q, g = q.astype(dtype), g.astype(dtype)
    exact = canonical_distances(q, g, "dot")
    near, far = np.sort(exact, axis=0)[1], exact.max(axis=0)
    operands = operands_of(q, g, "dot")
    tile = ProductColumns(operands, 40).tile(
        np.arange(40), np.empty((40, 64), np.float32), last=True
    )
    none = Reach(np.full(40, -np.inf), np.full(40, np.inf))
    lost, kind = np.zeros((2, 40)), np.dtype(np.float32)
    lines, near32, far32 = limits_of(tile, (none, Reach(near, far)), kind, lost).outwards(kind)
    assert tile.columns.weight is not None
    value = tile.values * tile.columns.weight + tile.columns.offset[0]
    with np.errstate(invalid="ignore", over="ignore"):
        nearer = np.fmax(lines[:, :1] * near32 + lines[:, 1:2], lines[:, 3:4])
        further = np.fmin(lines[:, :1] * far32 + lines[:, 2:3], lines[:, 4:5])
    assert (value <= nearer)[exact <= near].all()
    assert ((value >= further) | (value <= nearer))[exact >= far].all()


@pytest.mark.parametrize("size", [1.0, 2.0**300, 2.0**400, 2.0**480])
def test_levels_of_euclidean_distances_are_no_line(size: float) -> None:
    rows = np.random.default_rng(3).standard_normal((40, 8)) * size
    for metric, expected in (("euclidean", False), ("sqeuclidean", True)):
        tile = ProductColumns(operands_of(rows, rows, metric), 40).tile(
            np.arange(40), np.empty((40, 40), np.float32), last=True
        )
        assert (line_of(tile)[1] > 0).all() == (expected and size < 2.0**480)
        assert expected or np.isnan(line_of(tile)[1]).all()


@needs_sieve
def test_ordinary_pairs_are_few() -> None:
    rng = np.random.default_rng(12)
    q, g = (rng.standard_normal((rows, 512)).astype(np.float32) for rows in (40, 4000))
    operands = operands_of(q, g, "cosine")
    distances = canonical_distances(q, g, "cosine")
    reach = np.quantile(distances, 0.001, axis=1)
    memory = np.empty(40 * 4032, np.uint8)
    tile = MarkColumns(operands).tile(np.arange(40), up_to(reach), memory)
    most = 0.5 / operands.queries.digits.way.most  # the band grows with a unit of the digits
    assert 0.001 < np.bitwise_count(tile.values).sum() / distances.size < 0.002 + most


@pytest.mark.parametrize(
    ("protocol", "costs"),
    [
        ("separate-camera", "listed"),
        *(
            pytest.param(protocol, costs, marks=pytest.mark.slow)
            for protocol in ("market1501", "separate-camera")
            for costs in ("as is", "whole")
        ),
    ],
)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data.__name__)
@pytest.mark.usefixtures("product")
def test_ranks_alone_are_those_of_brute_force(
    data: Any, metric: Any, protocol: str, costs: str
) -> None:
    rng = np.random.default_rng(5)
    q, g = (side.astype(np.float32) for side in data(rng))
    sides = labels(rng, len(q), len(g))
    found = ranks(se.Features(q, g, metric), **sides, protocol=protocol, threads=1, costs=costs)
    expected = oracle(
        canonical_distances(q, g, metric),
        sides,
        np.empty(0),
        same_camera=protocol == "separate-camera",
    )
    assert found.equals(expected)


@pytest.mark.usefixtures("product")
@examples(40)
@given(
    seed=st.integers(0, 10**6),
    queries=st.integers(1, 90),
    gallery=st.integers(1, 400),
    width=st.integers(1, 140),
    levels=st.sampled_from([0, 1, 3]),
    metric=st.sampled_from(METRICS),
    protocol=st.sampled_from(["market1501", "separate-camera", "no-camera"]),
    tile=st.tuples(st.integers(1, 40), st.integers(1, 500)),
    threads=st.integers(1, 2),
    costs=st.sampled_from(sorted(COSTS)),
)
def test_ranks_alone_of_any_problem_under_any_tiling(
    seed: int,
    queries: int,
    gallery: int,
    width: int,
    levels: int,
    metric: Any,
    protocol: str,
    tile: tuple[int, int],
    threads: int,
    costs: str,
) -> None:
    rng = np.random.default_rng(seed)
    q, g = (few_valued(rng, rows, width, levels) for rows in (queries, gallery))
    sides = labels(rng, queries, gallery)
    source = se.Features(q, g, metric)
    found = ranks(source, **sides, protocol=protocol, tile=tile, threads=threads, costs=costs)
    expected = oracle(
        canonical_distances(q, g, metric),
        sides,
        np.empty(0),
        same_identity_and_camera=protocol != "no-camera",
        same_camera=protocol == "separate-camera",
    )
    assert found.equals(expected)


@pytest.mark.usefixtures("product")
def test_positives_in_front_leave_few_pairs_to_list() -> None:
    rng = np.random.default_rng(13)
    centres = rng.standard_normal((50, 96))
    ids = {"query": rng.integers(0, 50, 300), "gallery": rng.integers(0, 45, 5000)}
    q, g = (
        (centres[own] + 0.3 * rng.standard_normal((len(own), 96))).astype(np.float32)
        for own in ids.values()
    )
    sides = {side: se.Labels(own) for side, own in ids.items()}
    expected = oracle(canonical_distances(q, g, "cosine"), sides, np.empty(0))
    for threads in (1, 2):
        found = ranks(se.Features(q, g), **sides, protocol="no-camera", threads=threads)
        assert found.equals(expected)
