"""The promise: the counts are those of float64 brute force, however the work is cut.

Everything here compares with ``==`` (`RankStatistics.equals`), against the oracle or between
two ways to do the same work.
"""

from __future__ import annotations

import warnings
import weakref
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_statistics
from profiles import examples
from reference import canonical_distances
from spread import spread
from support.kernels import FEW_ROWS
from support.planning import Range, Task
from support.run import Job, Share, Thresholds, Watch, count, find_positives
from support.runs import plan_any_budget, prepare, session_of

import streameval as se
from streameval import Progress

Array = npt.NDArray[Any]
METRICS = ("cosine", "euclidean", "sqeuclidean", "dot")
QUERIES, GALLERY, WIDTH = 12, 150, 40


def labels(rng: np.random.Generator, queries: int, gallery: int) -> dict[str, se.Labels]:
    """Identities in and out of the gallery, junk, three cameras."""
    return {
        "query": se.Labels(rng.integers(0, 9, queries), rng.integers(0, 3, queries)),
        "gallery": se.Labels(rng.integers(-1, 7, gallery), rng.integers(0, 3, gallery)),
    }


def few_valued(rng: np.random.Generator, rows: int, width: int, levels: int) -> Array:
    """Return features of few values, so that there are duplicates and ties; of any for 0 levels."""
    values = rng.standard_normal((rows, width)).astype(np.float32)
    return np.sign(values) * np.ceil(np.abs(values) * levels) if levels else values


def evaluate(*args: Any, **kwargs: Any) -> se.Evaluation:
    """Evaluate; that Q+ may be empty is no concern here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        return se.evaluate(*args, **kwargs)


def oracle(
    distances: Array, sides: dict[str, se.Labels], thresholds: Array, **ignore: Any
) -> se.RankStatistics:
    query, gallery = sides["query"], sides["gallery"]
    return oracle_statistics(
        distances,
        query.id,
        gallery.id,
        query.cam,
        gallery.cam,
        thresholds=thresholds,
        **ignore,
    )


def normal(rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.standard_normal((QUERIES, WIDTH)), rng.standard_normal((GALLERY, WIDTH))


def duplicates(rng: np.random.Generator) -> tuple[Array, Array]:
    q, g = normal(rng)
    g = g[rng.integers(0, 9, GALLERY)]
    q[::3] = g[: len(q[::3])]
    return q, g


def collapsed(rng: np.random.Generator) -> tuple[Array, Array]:
    one = rng.standard_normal(WIDTH)
    return np.repeat(one[None], QUERIES, 0), np.repeat(one[None], GALLERY, 0)


def one_ulp_apart(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return gallery rows that differ in a single float32 ulp of a single element."""
    q, g = collapsed(rng)
    q, g = q.astype(np.float32), g.astype(np.float32)
    for row in g:
        d = rng.integers(WIDTH)
        row[d] = np.nextafter(row[d], np.float32(rng.choice([-9, 9])))
    return q, g


def constant(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return constant vectors: BLAS errs the same way at each addition."""
    return (
        np.repeat(rng.uniform(0.5, 2, QUERIES)[:, None], WIDTH, 1),
        np.repeat(rng.uniform(0.5, 2, GALLERY)[:, None], WIDTH, 1),
    )


def one_sign(rng: np.random.Generator) -> tuple[Array, Array]:
    q, g = normal(rng)
    return np.abs(q), np.abs(g)


def dynamic_range(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return vectors with norms from 1e-3 to 1e3, and elements over twelve decades."""
    q, g = normal(rng)
    q *= 10.0 ** rng.uniform(-6, 6, WIDTH)
    g *= 10.0 ** rng.uniform(-6, 6, WIDTH)
    return q * 10.0 ** rng.uniform(-3, 3, (QUERIES, 1)), g * 10.0 ** rng.uniform(
        -3, 3, (GALLERY, 1)
    )


def tiny_and_huge(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return norms that float32 cannot hold squared."""
    q, g = normal(rng)
    return q * 1e-25, g * 10.0 ** rng.choice([-25, 0, 18], (GALLERY, 1))


def binary(rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.choice([-1.0, 1.0], (QUERIES, WIDTH)), rng.choice([-1.0, 1.0], (GALLERY, WIDTH))


def small_integers(rng: np.random.Generator) -> tuple[Array, Array]:
    return (
        rng.integers(1, 4, (QUERIES, WIDTH)).astype(float),
        rng.integers(1, 4, (GALLERY, WIDTH)).astype(float),
    )


HOSTILE = (
    normal,
    duplicates,
    collapsed,
    one_ulp_apart,
    constant,
    one_sign,
    dynamic_range,
    tiny_and_huge,
    binary,
    small_integers,
)


def with_more(q: Array, g: Array) -> Array:
    """Return queries, and gallery rows as further ones: so few are multiplied by BLAS alone."""
    return np.concatenate([q, g[: FEW_ROWS + 2 - len(q)]])


@pytest.mark.parametrize(
    ("data", "metric", "protocol"), spread(HOSTILE, METRICS, ["market1501", "separate-camera"])
)
@pytest.mark.usefixtures("product")
def test_features_count_as_float64_brute_force(data: Any, metric: Any, protocol: str) -> None:
    rng = np.random.default_rng(5)
    q, g = (side.astype(np.float32) for side in data(rng))
    q = with_more(q, g)
    sides = labels(rng, len(q), GALLERY)
    distances = canonical_distances(q, g, metric)
    result = evaluate(se.Features(q, g, metric), **sides, protocol=protocol, threads=1)
    expected = oracle(
        distances,
        sides,
        result.statistics.thresholds,
        same_camera=protocol == "separate-camera",
    )
    assert result.statistics.equals(expected)
    stored = evaluate(
        se.Distances(distances),
        **sides,
        protocol=protocol,
        range=(result.range["low"], result.range["high"])
        if result.range["mode"] == "auto"
        else "minmax",
        threads=1,
    )
    assert stored.statistics.equals(expected)


@pytest.mark.parametrize(
    ("metric", "dtype"),
    spread(METRICS, ["float16", "float32", "float64", "int8", "uint8", "int32"]),
)
@pytest.mark.usefixtures("product")
def test_any_dtype_of_features(metric: Any, dtype: str) -> None:
    rng = np.random.default_rng(6)
    q, g = ((side * 30).astype(dtype) for side in one_sign(rng))
    q = with_more(q, g)
    sides = labels(rng, len(q), GALLERY)
    result = evaluate(se.Features(q, g, metric), **sides, threads=1)
    expected = oracle(canonical_distances(q, g, metric), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int16"])
def test_any_dtype_of_stored_distances_with_ties(dtype: str) -> None:
    rng = np.random.default_rng(7)
    matrix = rng.choice([1, 2, 3, 5, 8], (QUERIES, GALLERY)).astype(dtype)
    sides = labels(rng, QUERIES, GALLERY)
    result = evaluate(se.Distances(matrix), **sides, threads=1)
    assert result.counts["ties"] > 0
    expected = oracle(matrix.astype(np.float64), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)


@pytest.mark.usefixtures("product")
@examples(40)
@given(
    seed=st.integers(0, 10**6),
    queries=st.integers(1, 30),
    gallery=st.integers(1, 400),
    width=st.integers(1, 70),
    levels=st.sampled_from([0, 1, 3]),
    metric=st.sampled_from(METRICS),
    protocol=st.sampled_from(["market1501", "separate-camera", "no-camera"]),
    tile=st.tuples(st.integers(1, 40), st.integers(1, 500)),
    threads=st.integers(1, 2),
    block=st.sampled_from([1 << 10, 1 << 14, 1 << 25]),
)
def test_any_problem_under_any_tiling(
    seed: int,
    queries: int,
    gallery: int,
    width: int,
    levels: int,
    metric: Any,
    protocol: str,
    tile: tuple[int, int],
    threads: int,
    block: int,
) -> None:
    rng = np.random.default_rng(seed)
    q, g = (few_valued(rng, rows, width, levels) for rows in (queries, gallery))
    sides = labels(rng, queries, gallery)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.planning.planner.TARGET_BLOCK_BYTES", block)
        result = evaluate(
            se.Features(q, g, metric), **sides, protocol=protocol, tile=tile, threads=threads
        )
    expected = oracle(
        canonical_distances(q, g, metric),
        sides,
        result.statistics.thresholds,
        same_identity_and_camera=protocol != "no-camera",
        same_camera=protocol == "separate-camera",
    )
    assert result.statistics.equals(expected)


@examples(10)
@given(
    seed=st.integers(0, 10**6),
    chunks=st.tuples(st.integers(1, 12), st.integers(1, 150)),
    zarr_format=st.sampled_from([2, 3]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    strip=st.booleans(),
)
@pytest.mark.slow
def test_any_chunking_of_a_stored_matrix(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    chunks: tuple[int, int],
    zarr_format: Any,
    dtype: str,
    strip: bool,
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.choice(np.linspace(0.5, 2, 40), (QUERIES, GALLERY)).astype(dtype)
    sides = labels(rng, QUERIES, GALLERY)
    path = tmp_path_factory.mktemp("chunks") / "d.zarr"
    array = zarr.create_array(
        path, shape=matrix.shape, chunks=chunks, dtype=dtype, zarr_format=zarr_format
    )
    array[:] = matrix
    source = se.Distances(path)
    with pytest.MonkeyPatch.context() as patch:
        plan_any_budget(patch)
        memory = 10**9 if strip else least_memory(source, sides)
        result = evaluate(source, **sides, memory=memory, threads=2)
    layout = result.provenance["plan"]["layout"]
    if strip or chunks[1] == GALLERY:
        assert layout == "strips"
    elif chunks[1] <= GALLERY // 2:  # beyond, what strips share of their columns may tell
        assert layout == "rectangles"
    expected = oracle(matrix.astype(np.float64), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)


def least_memory(source: se.Distances, sides: dict[str, se.Labels], **what: Any) -> int:
    """Return the smallest budget that is accepted."""
    refused, accepted = 0, 10**9
    while accepted - refused > 1:
        memory = (refused + accepted) // 2
        try:
            prepare(source, **sides, memory=memory, threads=2, **what)
        except se.BudgetError:
            refused = memory
        else:
            accepted = memory
    return accepted


def counted_by_task(features: se.Features, sides: dict[str, se.Labels]) -> list[se.RankStatistics]:
    """Count each gallery shard of a plan with many tasks by itself."""
    prepared = prepare(features, **sides, threads=1, tile=(5, 16))
    plan = replace(
        prepared.plan,
        tasks=tuple(Task((0, QUERIES), (g, min(g + 23, GALLERY))) for g in range(0, GALLERY, 23)),
    )
    used = Range(0.0, 2.0)
    pairs = prepared.pairs.block(0, QUERIES)
    share = Share(pairs, Thresholds(used, *used.limits(101, 0)))
    job = Job(features, plan, (share,))
    job = find_positives(job, session_of({"threads": 1}))
    return [count(job, task, Watch(Progress()))[0] for task in plan.tasks]


def test_shards_merged_in_any_order() -> None:
    rng = np.random.default_rng(8)
    features = se.Features(*(side.astype(np.float32) for side in duplicates(rng)))
    sides = labels(rng, QUERIES, GALLERY)
    whole = evaluate(features, **sides).statistics
    parts = counted_by_task(features, sides)
    for _ in range(20):
        order = rng.permutation(len(parts))
        assert reduce(se.RankStatistics.merge, [parts[k] for k in order]).equals(whole)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("data", [normal, duplicates, binary], ids=lambda data: data.__name__)
def test_a_permuted_gallery_counts_the_same_but_for_the_order_of_ties(
    data: Any, metric: Any
) -> None:
    rng = np.random.default_rng(9)
    q, g = (side.astype(np.float32) for side in data(rng))
    sides = labels(rng, QUERIES, GALLERY)
    one = evaluate(se.Features(q, g, metric), **sides)
    order = rng.permutation(GALLERY)
    gallery = sides["gallery"]
    assert gallery.cam is not None
    sides["gallery"] = se.Labels(gallery.id[order], gallery.cam[order])
    other = evaluate(se.Features(q, g[order], metric), **sides)
    assert other.statistics.equals(one.statistics, ignoring=["tied_before", "positive_item"])
    query = np.repeat(np.arange(QUERIES), one.statistics.positives)
    here, there = one.statistics.positive_item, other.statistics.positive_item
    assert here is not None
    assert set(zip(query, order[there], strict=True)) == set(zip(query, here, strict=True))
    assert str(other.metrics.scalars) == str(one.metrics.scalars)  # NaN where NaN


@pytest.mark.parametrize("self_match", [None, "index", "key"])
def test_a_query_that_is_in_the_gallery_too(self_match: Any) -> None:
    rng = np.random.default_rng(10)
    _, g = normal(rng)
    ids, keys = rng.integers(-1, 20, GALLERY), rng.permutation(GALLERY)
    sides = {"query": se.Labels(ids, key=keys), "gallery": se.Labels(ids, key=keys)}
    result = evaluate(
        se.Features(g, g), **sides, protocol="no-camera", self_match=self_match, tile=(16, 40)
    )
    expected = oracle(
        canonical_distances(g, g, "cosine"),
        sides,
        result.statistics.thresholds,
        self_index=self_match is not None,
    )
    assert result.statistics.equals(expected)


def test_keys_may_match_items_of_another_identity() -> None:
    rng = np.random.default_rng(11)
    q, g = normal(rng)
    distances = canonical_distances(q, g, "cosine")
    sides = labels(rng, QUERIES, GALLERY)
    own = rng.permutation(GALLERY)[:QUERIES]
    sides["query"] = se.Labels(sides["query"].id, key=own)
    sides["gallery"] = se.Labels(sides["gallery"].id, key=np.arange(GALLERY))
    result = evaluate(se.Features(q, g), **sides, protocol="no-camera", self_match="key")
    for i in range(QUERIES):
        keep = np.arange(GALLERY) != own[i]
        one = {
            "query": se.Labels(sides["query"].id[i : i + 1]),
            "gallery": se.Labels(sides["gallery"].id[keep]),
        }
        alone = oracle(distances[i : i + 1, keep], one, result.statistics.thresholds)
        begin, end = result.statistics.indptr[i : i + 2]
        assert np.array_equal(result.statistics.closer[begin:end], alone.closer)
        assert np.array_equal(result.statistics.negatives_within[i], alone.negatives_within[0])
        assert result.statistics.valid[i] == alone.valid[0]
        assert result.statistics.nearest_negative[i] == alone.nearest_negative[0]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("query_id", "gallery_id", "gallery_cam"),
    [
        ([5], [5], [1]),  # one query, one item: a positive
        ([5], [6], [1]),  # a negative
        ([5], [5], [0]),  # ignored: the query is excluded
        ([5], [-1], [1]),  # nothing but junk
        ([5], [5, 5, 5], [0, 0, 0]),  # all ignored
        ([5, 5, 6], [7, 8], [1, 1]),  # no positives at all
        ([-1], [-1, 3], [1, 1]),  # a junk query
        ([1, 2], [], []),  # an empty gallery
    ],
)
def test_the_smallest_problems(
    metric: Any, query_id: list[int], gallery_id: list[int], gallery_cam: list[int]
) -> None:
    rng = np.random.default_rng(12)
    q = rng.standard_normal((len(query_id), 3)).astype(np.float32)
    g = rng.standard_normal((len(gallery_id), 3)).astype(np.float32)
    sides = {
        "query": se.Labels(np.array(query_id), np.zeros(len(query_id), int)),
        "gallery": se.Labels(np.array(gallery_id, int), np.array(gallery_cam, int)),
    }
    distances = canonical_distances(q, g, metric)
    for source in (se.Features(q, g, metric), se.Distances(distances)):
        result = evaluate(source, **sides)
        expected = oracle(distances, sides, result.statistics.thresholds)
        assert result.statistics.equals(expected)


@pytest.mark.parametrize("tile", [(64, 16), (8, 64)])
def test_the_nearest_negative_beyond_all_positives(tile: tuple[int, int]) -> None:
    """Edges are of positives alone, and the nearest negative may be in any tile."""
    rng = np.random.default_rng(15)
    q = (100 + rng.standard_normal((40, 4))).astype(np.float32)
    g = np.concatenate([q, 100 + rng.standard_normal((200, 4))]).astype(np.float32)
    sides = {
        "query": se.Labels(np.arange(40)),
        "gallery": se.Labels(np.concatenate([np.arange(40), np.full(200, 99)])),
    }
    distances = canonical_distances(q, g, "sqeuclidean")
    source = se.Features(q, g, "sqeuclidean")
    found = evaluate(source, **sides, protocol="no-camera", metrics="CMC@1,mAP", tile=tile)
    distances[np.arange(40), np.arange(40)] = np.inf
    assert np.array_equal(found.statistics.nearest_negative, distances.min(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("far", [0.1, 0.5, 3.0])
def test_ranks_alone_of_stored_rows_that_are_selected_by_a_sample(far: float, dtype: Any) -> None:
    """Positives may be nearer, or further, than all that is sampled, and items be left out."""
    rng = np.random.default_rng(25)
    distances = (1 + rng.random((60, 700))).astype(dtype)
    distances[::2, 5] = 0.25  # a negative that no sample shows
    distances[1::3] = np.round(distances[1::3], 1)  # ties
    gallery = np.concatenate([np.arange(60), np.full(640, 99)])
    distances[np.arange(60), np.arange(60)] = far + 0.1 * rng.random(60)
    gallery[100:500] = -1  # most of what is sampled is junk
    query = np.arange(60)
    query[-3:] = 777  # without positives
    sides = {"query": se.Labels(query), "gallery": se.Labels(gallery)}
    options = {"protocol": "no-camera", "junk_ids": [-1], "metrics": "CMC@1,mAP"}
    found = evaluate(se.Distances(distances), **sides, **options).statistics
    expected = oracle(distances.astype(float), sides, found.thresholds)
    for name in ("closer", "tied", "tied_before", "nearest_negative", "positive_distance"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("ties", ["pessimistic", "expected"])
def test_a_cutoff_beyond_every_number_of_the_machine(ties: Any) -> None:
    rng = np.random.default_rng(26)
    sides = {"query": se.Labels(np.arange(9) % 4), "gallery": se.Labels(np.arange(40) % 5)}
    names = [f"P@{10**20}", "P@40"]
    distances = se.Distances(rng.random((9, 40)))
    found = evaluate(distances, **sides, protocol="no-camera", ties=ties, metrics=names).metrics
    assert found[names[0]] == pytest.approx(found["P@40"] * 40 / 10**20, rel=1e-15)


@pytest.mark.parametrize("dtype", ["int64", "uint16", "int8", "str", "bytes", "object"])
def test_any_type_of_labels(dtype: str) -> None:
    rng = np.random.default_rng(13)
    q, g = normal(rng)
    numbers = labels(rng, QUERIES, GALLERY)
    as_dtype = {"str": "U8", "bytes": "S8", "object": "U8"}.get(dtype, dtype)
    junk = [7] if dtype == "uint16" else None
    plain = {side: se.Labels(one.id + (8 if junk else 0), one.cam) for side, one in numbers.items()}
    typed = {}
    for side, one in plain.items():
        ids, cams = one.id.astype(as_dtype), one.cam.astype(as_dtype)
        if dtype == "object":
            ids, cams = ids.astype(object), cams.astype(object)
        typed[side] = se.Labels(ids, cams)
    one = evaluate(se.Features(q, g), **plain, junk_ids=junk)
    other = evaluate(se.Features(q, g), **typed, junk_ids=junk)
    assert other.statistics.equals(one.statistics)


@pytest.mark.parametrize("metric", spread(METRICS))
@pytest.mark.usefixtures("product")
def test_blocks_of_queries_under_the_smallest_budget(metric: Any) -> None:
    rng = np.random.default_rng(14)
    q = rng.standard_normal((900, 24)).astype(np.float32)
    g = rng.standard_normal((2000, 24)).astype(np.float32)
    sides = labels(rng, 900, 2000)
    source = se.Features(q, g, metric)
    whole = evaluate(source, **sides)
    with pytest.MonkeyPatch.context() as patch:
        plan_any_budget(patch)
        memory = least_memory(source, sides)
        plan = prepare(source, **sides, memory=memory, threads=2).plan
        assert len({task.queries for task in plan.tasks}) > 1
        parts = evaluate(source, **sides, memory=memory, threads=2)
    assert parts.range == whole.range
    assert parts.statistics.equals(whole.statistics)


@pytest.mark.parametrize(
    ("metric", "scale"),
    spread(METRICS, [1e-155, 1e-130, 1e-100, 1e-20, 1e20, 1e100, 1e145], of=3),
)
@pytest.mark.usefixtures("product")
def test_float64_features_of_any_magnitude(metric: Any, scale: float) -> None:
    rng = np.random.default_rng(15)
    q, g = (side * scale for side in duplicates(rng))
    g *= 10.0 ** rng.integers(-3, 3, (GALLERY, 1))
    q = with_more(q, g)
    sides = labels(rng, len(q), GALLERY)
    if metric == "cosine" and scale < 1e-140:
        with pytest.raises(se.InputError, match="row 0 is too short a vector"):
            evaluate(se.Features(q, g, metric), **sides)
        return
    for threads in (1, 16):  # of many, a task has few items, which may all be copies of a query
        result = evaluate(se.Features(q, g, metric), **sides, threads=threads)
        expected = oracle(canonical_distances(q, g, metric), sides, result.statistics.thresholds)
        assert result.statistics.equals(expected)


@pytest.mark.parametrize(
    ("noise", "way"), [(0.0, "distances"), (1e-7, "products"), (1e-5, "products")]
)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.usefixtures("product")
def test_collapsed_models_are_counted_row_by_row(
    metric: Any, noise: float, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.kernels import FineColumns

    copied = []
    called = getattr(FineColumns, way)

    def recorded(columns: FineColumns, *args: Any) -> Any:
        copied.append(columns.copied)
        return called(columns, *args)

    monkeypatch.setattr(FineColumns, way, recorded)
    rng = np.random.default_rng(16)
    one = rng.standard_normal(WIDTH)
    q, g = (
        (one * (1 + noise * rng.standard_normal((n, WIDTH)))).astype(np.float32)
        for n in (130, GALLERY)
    )
    g[::5] = g[3]
    sides = labels(rng, 130, GALLERY)
    result = evaluate(se.Features(q, g, metric), **sides, range=(-100.0, 100.0), tile=(50, 64))
    assert any(copied) if noise == 0 else copied
    expected = oracle(canonical_distances(q, g, metric), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)


def partly_collapsed(
    rng: np.random.Generator, queries: int, parts: list[bool], noise: float
) -> tuple[Array, Array]:
    """Return queries, and parts of 32 gallery rows that are as good as the same, or are not."""
    one = rng.standard_normal(WIDTH)
    q, *near = (
        one * (1 + noise * rng.standard_normal((rows, WIDTH)))
        for rows in (queries, *(32 for _ in parts))
    )
    g = [
        part if alike else rng.standard_normal(part.shape)
        for part, alike in zip(near, parts, strict=True)
    ]
    return q.astype(np.float32), np.concatenate(g).astype(np.float32)


@pytest.mark.usefixtures("product")
@examples(40)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.sampled_from([3e-7, 1e-5]),  # float64 products decide few pairs, or all
    st.sampled_from([1, 2, 3, 16]),
    st.sampled_from(METRICS),
    st.tuples(st.integers(1, 40), st.integers(20, 70)),
)
def test_parts_that_products_tell_nothing_of_count_the_same(
    seed: int, parts: list[bool], noise: float, again: int, metric: Any, tile: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    q, g = partly_collapsed(rng, 30, parts, noise)
    sides = labels(rng, len(q), len(g))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.kernels.query_block.AGAIN", again)
        result = evaluate(
            se.Features(q, g, metric),
            **sides,
            range=(-1000.0, 1000.0),
            tile=tile,
            threads=1 + seed % 2,
        )
    expected = oracle(canonical_distances(q, g, metric), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)


@pytest.mark.parametrize(
    ("parts", "made"),
    [
        ([True] * 32, [0, 4, 12, 28]),
        ([False] + [True] * 19, [*range(20)]),
        ([True] * 5 + [False] * 15, [0, 4, *range(12, 20)]),
        ([True] * 12 + [False] + [True] * 5, [0, 4, *range(12, 18)]),
    ],
    ids=["never", "at first", "later", "once"],
)
def test_products_that_have_told_nothing_are_tried_now_and_then(
    parts: list[bool], made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.kernels import ProductColumns

    monkeypatch.setenv("STREAMEVAL_PRODUCT", "blas")
    firsts = []
    multiplied = ProductColumns.tile

    def recorded(columns: ProductColumns, *args: Any, **kwargs: Any) -> Any:
        tile = multiplied(columns, *args, **kwargs)
        firsts.append(int(tile.columns.item[0]))
        return tile

    monkeypatch.setattr(ProductColumns, "tile", recorded)
    rng = np.random.default_rng(19)
    q, g = partly_collapsed(rng, 30, parts, 1e-5)
    query, gallery = rng.integers(0, 200, len(q)), rng.integers(0, 200, len(g))  # no junk
    sides = {"query": se.Labels(query), "gallery": se.Labels(gallery)}
    tile = len(q), 32
    result = evaluate(se.Features(q, g), **sides, protocol="no-camera", tile=tile, threads=1)
    distances, thresholds = canonical_distances(q, g, "cosine"), result.statistics.thresholds
    expected = oracle_statistics(distances, query, gallery, thresholds=thresholds)
    assert result.statistics.equals(expected)
    assert firsts == [32 * part for part in made]


def test_rows_in_float64_are_of_one_tile_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.kernels import FineColumns

    made: list[weakref.ref[FineColumns]] = []
    make = FineColumns.__init__

    def recorded(columns: FineColumns, *args: Any) -> None:
        held = [own for own in (known() for known in made) if own is not None]
        assert not any("_rows" in vars(own) for own in held)
        make(columns, *args)
        made.append(weakref.ref(columns))

    monkeypatch.setattr(FineColumns, "__init__", recorded)
    rng = np.random.default_rng(20)
    q, g = partly_collapsed(rng, 30, [True] * 8, 1e-5)
    evaluate(se.Features(q, g), **labels(rng, len(q), len(g)), tile=(30, 32), threads=1)
    assert len(made) > 5


def test_rows_of_wide_tiles_are_counted_whole_where_a_part_has_collapsed() -> None:
    rng = np.random.default_rng(18)
    one, gallery = rng.standard_normal(8), 33_000
    q = one + 1e-6 * rng.standard_normal((3, 8))
    g = rng.standard_normal((gallery, 8))
    g[:32_700] = one + 1e-6 * rng.standard_normal((32_700, 8))
    q, g = q.astype(np.float32), g.astype(np.float32)
    sides = labels(rng, 3, gallery)
    result = evaluate(se.Features(q, g), **sides, tile=(3, gallery), threads=1)
    expected = oracle(canonical_distances(q, g, "cosine"), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.usefixtures("product")
def test_copies_of_rows_that_are_equally_far_tie_in_the_order_of_the_gallery(metric: Any) -> None:
    rng = np.random.default_rng(17)
    one = np.append(0, rng.standard_normal(WIDTH - 1)).astype(np.float32)
    several = np.repeat(one[None], 3, 0)
    several[:, 0] = 1, -1, 0.5  # a query has 0 there
    q, g = np.repeat(one[None], 60, 0), several[rng.integers(3, size=GALLERY)]
    sides = labels(rng, len(q), GALLERY)
    result = evaluate(se.Features(q, g, metric), **sides, range=(-100.0, 100.0), tile=(50, 64))
    expected = oracle(canonical_distances(q, g, metric), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)
    assert result.statistics.tied_before.any()


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "dot"])
@pytest.mark.parametrize("items", [148, 149, 150, 151])
def test_what_no_filter_can_tell_is_decided_pair_by_pair(
    metric: Any, items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.kernels import FineColumns

    def never(*_: Any) -> None:
        raise AssertionError("float64 products of subnormal numbers tell nothing either")

    for way in ("products", "distances"):
        monkeypatch.setattr(FineColumns, way, never)
    rng = np.random.default_rng(17)
    q, g = (rng.standard_normal((n, WIDTH)) * 1e-145 for n in (QUERIES, items))
    sides = labels(rng, QUERIES, items)
    result = evaluate(se.Features(q, g, metric), **sides)
    expected = oracle(canonical_distances(q, g, metric), sides, result.statistics.thresholds)
    assert result.statistics.equals(expected)
