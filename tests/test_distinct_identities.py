"""CMC over distinct identities: repeated identities are removed from the ranking before it is read.

The reference removes them: a full sort of every query, of which the first item of each identity
is left.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from oracle import Problem, orders
from profiles import examples
from reference import canonical_distances
from spread import spread
from support.package import stack
from support.report import compare_conventions
from support.runs import plan_any_budget
from test_exactness import HOSTILE, METRICS, few_valued, labels, least_memory

import streameval as se

Array = npt.NDArray[Any]
RULES: Any = ("optimistic", "stable", "pessimistic")
DISTINCT: Any = "distinct-identities"
QUERIES, GALLERY, WIDTH = 12, 150, 40
PROTOCOLS = {
    "camera of the identity": se.Protocol("distinct", ("same(id, cam)",), cmc=DISTINCT),
    "camera": se.Protocol("distinct", ("same(id, cam)", "same(cam)"), cmc=DISTINCT),
}
COMMON = PROTOCOLS["camera of the identity"]


def distinct_ranks(problem: Problem, ties: str) -> Array:
    """Return the rank of each query's identity among distinct ones, [Q]; 0 without positives."""
    ranks = np.zeros(len(problem.distances), int)
    for i, distance in enumerate(problem.distances):
        ignored, same = problem.row(i)
        items = np.flatnonzero(~ignored)
        (order,) = orders(distance[items], same[items], ties)
        ranked = list(dict.fromkeys(problem.gallery_id[items[order]].tolist()))
        own = problem.query_id.tolist()[i]
        ranks[i] = ranked.index(own) + 1 if own in ranked else 0
    return ranks


def problem_of(distances: Array, sides: Mapping[str, se.Labels], protocol: se.Protocol) -> Problem:
    query, gallery = sides["query"], sides["gallery"]
    return Problem(
        distances,
        query.id,
        gallery.id,
        query.cam,
        gallery.cam,
        same_camera="same(cam)" in protocol.ignore,
    )


def evaluate(source: Any, sides: Mapping[str, Any], **options: Any) -> se.Evaluation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        return se.evaluate(source, **{"protocol": COMMON, **sides, **options})


def ahead_of(result: se.Evaluation) -> list[list[int]]:
    ahead = result.statistics.identities_ahead
    assert ahead is not None
    rows: list[list[int]] = ahead.tolist()
    return rows


def check(result: se.Evaluation, problem: Problem) -> None:
    """Check counts, values and curves under each tie rule."""
    ahead = ahead_of(result)
    ranks = {ties: distinct_ranks(problem, ties) for ties in RULES}
    expected = np.column_stack([ranks[ties] for ties in RULES])
    positive = expected[:, 0] > 0
    assert np.array_equal(positive, result.statistics.has_positive)
    assert ahead == np.where(positive[:, None], expected - 1, 0).tolist()
    for ties in RULES:
        metrics = quiet_options(result, ties=ties, metrics="CMC@1,CMC@3,CMC@1000").metrics
        for x in (1, 3, 1000):
            share = np.mean(ranks[ties][positive] <= x) if positive.any() else np.nan
            np.testing.assert_equal(metrics[f"CMC@{x}"], share)
        length = len(metrics.curves["CMC"])
        assert length == min(100, len(problem.gallery_id))
        if positive.any():
            curve = [np.mean(ranks[ties][positive] <= x) for x in range(1, length + 1)]
            assert metrics.curves["CMC"].tolist() == curve


def quiet_options(result: se.Evaluation, **options: Any) -> se.Evaluation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        return result.with_options(**options)


def small_problem(seed: int, levels: int = 30) -> tuple[Array, dict[str, se.Labels]]:
    rng = np.random.default_rng(seed)
    return rng.choice(np.linspace(0.5, 2, levels), (QUERIES, GALLERY)), labels(
        rng, QUERIES, GALLERY
    )


@pytest.mark.parametrize(
    ("ids", "rank"),
    [("AAB", 2), ("ABB", 2), ("BAA", 1), ("AACAB", 3), ("ACAB", 3), ("ACADCB", 4), ("AAAA", 0)],
)
def test_repeated_identities_count_once(ids: str, rank: int) -> None:
    """A query of B; A, A, B in order is rank 2, not 3."""
    distances = np.arange(1.0, len(ids) + 1)[None]
    sides = {"query": se.Labels(["B"]), "gallery": se.Labels(list(ids))}
    protocol = se.Protocol("distinct", cmc=DISTINCT)
    result = evaluate(se.Distances(distances), sides, protocol=protocol, metrics="CMC@2,mAP,mINP")
    assert ahead_of(result) == [[max(rank - 1, 0)] * 3]
    if rank:
        found = np.flatnonzero(np.array(list(ids)) == "B") + 1
        assert result.curves["CMC"].tolist() == [float(x >= rank) for x in range(1, len(ids) + 1)]
        assert result["CMC@2"] == (rank <= 2)
        assert result["mAP"] == np.mean(np.arange(1, len(found) + 1) / found)  # of images
        assert result["mINP"] == len(found) / found[-1]
        assert result.per_query["first_rank"].tolist() == [found[0]]


def test_ties_by_hand() -> None:
    """A is as far as B and earlier, C as far and later, D closer; a second B decides nothing."""
    ids, distances = list("DABCBE"), np.array([[1.0, 2.0, 2.0, 2.0, 2.0, 3.0]])
    sides = {"query": se.Labels(["B"]), "gallery": se.Labels(ids)}
    protocol = se.Protocol("distinct", cmc=DISTINCT)
    result = evaluate(se.Distances(distances), sides, protocol=protocol, metrics="CMC@2,CMC@4")
    assert ahead_of(result) == [[1, 2, 3]]
    assert result.intervals == {"CMC@2": (0, 1)}
    assert [result.with_options(ties=ties).metrics.curves["CMC"].tolist() for ties in RULES] == [
        [0, 1, 1, 1, 1, 1],
        [0, 0, 1, 1, 1, 1],
        [0, 0, 0, 1, 1, 1],
    ]


@pytest.mark.parametrize(("data", "metric", "protocol"), spread(HOSTILE, METRICS, PROTOCOLS))
@pytest.mark.usefixtures("product")
def test_features_count_as_brute_force(data: Any, metric: Any, protocol: str) -> None:
    rng = np.random.default_rng(15)
    q, g = (side.astype(np.float32) for side in data(rng))
    sides = labels(rng, QUERIES, GALLERY)
    distances = canonical_distances(q, g, metric)
    problem = problem_of(distances, sides, PROTOCOLS[protocol])
    for source in (se.Features(q, g, metric), se.Distances(distances)):
        check(evaluate(source, sides, protocol=PROTOCOLS[protocol], threads=1), problem)


@pytest.mark.usefixtures("product")
@examples(30)
@given(
    seed=st.integers(0, 10**6),
    queries=st.integers(1, 30),
    gallery=st.integers(0, 300),
    identities=st.sampled_from([1, 7, 400]),
    levels=st.sampled_from([0, 1, 3]),
    protocol=st.sampled_from(list(PROTOCOLS)),
    tile=st.tuples(st.integers(1, 40), st.integers(1, 500)),
    threads=st.integers(1, 3),
    block=st.sampled_from([1 << 10, 1 << 25]),
    together=st.integers(1, 40),
)
def test_any_problem_under_any_tiling(
    seed: int,
    queries: int,
    gallery: int,
    identities: int,
    levels: int,
    protocol: str,
    tile: tuple[int, int],
    threads: int,
    block: int,
    together: int,
) -> None:
    rng = np.random.default_rng(seed)
    q, g = (few_valued(rng, rows, 20, levels) for rows in (queries, gallery))
    sides = {
        name: se.Labels(rng.integers(-1, identities, rows), rng.integers(0, 3, rows))
        for name, rows in (("query", queries), ("gallery", gallery))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.planning.planner.TARGET_BLOCK_BYTES", block)
        patch.setattr("streameval.planning.planner.SHOT_QUERIES", together)
        patch.setattr("streameval.kernels.identities.IDENTITY_DOUBTS", 1)
        found = evaluate(
            se.Features(q, g, "euclidean"),
            sides,
            protocol=PROTOCOLS[protocol],
            tile=tile,
            threads=threads,
        )
    distances = canonical_distances(q, g, "euclidean")
    check(found, problem_of(distances, sides, PROTOCOLS[protocol]))


@examples(15)
@given(
    seed=st.integers(0, 10**6),
    chunks=st.tuples(st.integers(1, 12), st.integers(1, 150)),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    protocol=st.sampled_from(list(PROTOCOLS)),
    strip=st.booleans(),
)
def test_any_chunking_of_a_stored_matrix(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    chunks: tuple[int, int],
    dtype: str,
    protocol: str,
    strip: bool,
) -> None:
    matrix, sides = small_problem(seed, 40)
    path = tmp_path_factory.mktemp("chunks") / "d.zarr"
    matrix = matrix.astype(dtype)
    zarr.create_array(path, shape=matrix.shape, chunks=chunks, dtype=dtype)[:] = matrix
    source, own = se.Distances(path), PROTOCOLS[protocol]
    with pytest.MonkeyPatch.context() as patch:
        plan_any_budget(patch)
        memory = 10**9 if strip else least_memory(source, sides, protocol=own)
        found = evaluate(source, sides, protocol=own, memory=memory, threads=2)
    check(found, problem_of(matrix.astype(np.float64), sides, own))


@pytest.mark.parametrize(("metric", "noise"), spread(METRICS, [0.0, 1e-7, 1e-5]))
@pytest.mark.usefixtures("product")
def test_collapsed_models(metric: Any, noise: float) -> None:
    rng = np.random.default_rng(16)
    one = rng.standard_normal(WIDTH)
    q, g = (
        (one * (1 + noise * rng.standard_normal((n, WIDTH)))).astype(np.float32)
        for n in (130, GALLERY)
    )
    g[::5] = g[3]
    sides = labels(rng, 130, GALLERY)
    distances = canonical_distances(q, g, metric)
    found = evaluate(se.Features(q, g, metric), sides, tile=(50, 64), threads=2)
    check(found, problem_of(distances, sides, COMMON))
    more: dict[str, Any] = {"range": (-100, 100), "metrics": "all"}
    stored = evaluate(se.Distances(distances), sides, **more)
    mixed = evaluate(se.Features(q, g, metric), sides, tile=(7, 90), **more)
    assert mixed.statistics.equals(stored.statistics)


def test_a_rule_of_both_sides_and_listed_pairs_of_a_query() -> None:
    """Items of one camera are ignored by queries of another, and a query's own image by it."""
    rng = np.random.default_rng(4)
    ids, cams = rng.integers(0, 9, 60), rng.choice([1, 2, 3, 6], 60)
    keys, distances = np.arange(60), rng.integers(0, 40, (60, 60)) / 8
    protocol = se.Protocol(
        "distinct",
        ("query.cam == 3 and gallery.cam == 2",),
        cmc=DISTINCT,
        junk_ids=(8,),
        self_match="key",
    )
    sides = dict.fromkeys(("query", "gallery"), se.Labels(ids, cams, keys))
    found = ahead_of(evaluate(se.Distances(distances), sides, protocol=protocol))
    for i in range(60):
        left = (ids != 8) & (keys != i) & ~((cams[i] == 3) & (cams == 2))
        alone = Problem(distances[i : i + 1, left], ids[i : i + 1], ids[left], junk_ids=())
        ranks = [int(distinct_ranks(alone, ties)[0]) for ties in RULES]
        assert found[i] == [max(rank - 1, 0) for rank in ranks]


def test_all_identities_differ_then_it_is_first_match() -> None:
    """A model that ranks each identity once gains nothing; and CMC@x is never lower."""
    matrix, sides = small_problem(3)
    matrix = np.argsort(np.argsort(matrix, axis=None)).reshape(matrix.shape) / 2048
    result = evaluate(se.Distances(matrix), sides)
    first = result.with_options(cmc="first-match")
    assert (result.curves["CMC"] >= first.curves["CMC"]).all()
    assert (result.curves["CMC"] > first.curves["CMC"]).any()
    assert first["mAP"] == result["mAP"]
    rng = np.random.default_rng(3)
    once = {
        "query": se.Labels(rng.integers(0, GALLERY, QUERIES)),
        "gallery": se.Labels(rng.permutation(GALLERY)),
    }
    result = evaluate(se.Distances(matrix), once, protocol=se.Protocol("d", cmc=DISTINCT))
    first = result.with_options(cmc="first-match")
    assert result.curves["CMC"].tolist() == first.curves["CMC"].tolist()


def infrared(seed: int) -> tuple[Array, dict[str, se.Labels]]:
    """Return distances without ties and labels: six strangers, single positives, excluded ones."""
    rng = np.random.default_rng(seed)
    query, gallery = rng.integers(0, 30, 80), rng.integers(0, 30, 400)
    gallery[gallery == 29] = 28
    cams = rng.choice([3, 6], 80), rng.choice([1, 2, 4, 5], 400)
    query[:6] = 90 + np.arange(6)
    cams[1][gallery == 0] = 2
    gallery[np.flatnonzero(gallery == 1)[1:]] = 2
    distances = rng.permutation(80 * 400).reshape(80, 400)
    distances = distances - 6000 * (query[:, None] == gallery) - 4000 * (gallery % 5 == 3)
    order = np.argsort(np.argsort(distances, axis=None, kind="stable"))
    sides = {"query": se.Labels(query, cams[0]), "gallery": se.Labels(gallery, cams[1])}
    return order.reshape(80, 400).astype(np.float32), sides


# mangye16/Cross-Modal-Re-ID-baseline, commit e817a2672c1e, eval_metrics.py, eval_sysu, run aside:
# CMC@1, 5, 10, 20 in float32; mAP and mINP in float64.
SYSU = {
    20: (
        [0.6056337952613831, 0.8450704216957092, 0.9014084339141846, 0.9436619877815247],
        [0.19304365208410726, 0.04906592179957631],
    ),
    21: (
        [0.5571428537368774, 0.8857142925262451, 0.9285714030265808, 0.9285714030265808],
        [0.1921685646169486, 0.06364889249837498],
    ),
}


@pytest.mark.parametrize("seed", SYSU)
def test_the_code_of_sysu_mm01(seed: int, tmp_path: Path) -> None:
    (tmp_path / "infrared.toml").write_text(
        'ignore = ["query.cam == 3 and gallery.cam == 2"]\njunk_ids = []\n'
        'cmc = "distinct-identities"\n'
    )
    protocol = se.read_protocol(tmp_path / "infrared.toml")
    distances, sides = infrared(seed)
    result = evaluate(se.Distances(distances), sides, protocol=protocol)
    cmc, means = SYSU[seed]
    found = np.array([result[f"CMC@{x}"] for x in (1, 5, 10, 20)])
    assert found.astype(np.float32) == pytest.approx(cmc, rel=2e-7)
    assert [result["mAP"], result["mINP"]] == pytest.approx(means, rel=1e-14)
    assert result.counts["queries_excluded"] > 0
    assert result.counts["queries_negative"] > 5
    assert result["CMC@5"] > result.with_options(cmc="first-match")["CMC@5"] + 0.1


def test_random_tie_breaks_have_a_value_only_without_ties() -> None:
    matrix, sides = small_problem(5)
    result = evaluate(se.Distances(matrix), sides, ties="expected", metrics="CMC@1,mAP")
    assert np.isnan(result["CMC@1"])
    assert np.isnan(result.curves["CMC"]).all()
    assert "random tie-breaks" in result.metrics.details["CMC@1"].reason
    untied = np.argsort(np.argsort(matrix, axis=None)).reshape(matrix.shape) / 2048
    result = evaluate(se.Distances(untied), sides, ties="expected")
    assert result["CMC@1"] == result.with_options(ties="stable")["CMC@1"]


def test_groups_and_intervals_are_of_the_queries() -> None:
    matrix, sides = small_problem(6)
    result = evaluate(se.Distances(matrix), sides)
    ranks = distinct_ranks(problem_of(matrix, sides, COMMON), "pessimistic")
    assert sides["query"].cam is not None
    for cam, metrics in result.grouped("cam").groups.items():
        own = ranks[(sides["query"].cam == cam) & (ranks > 0)]
        np.testing.assert_equal(metrics["CMC@5"], np.mean(own <= 5) if len(own) else np.nan)
    low, high = result.confidence(resamples=200).intervals["CMC@5"]
    assert low <= result["CMC@5"] <= high
    assert low < high
    cell = next(iter(result.grouped("cam-pair").groups.values()))
    assert "mAP" in cell.scalars
    assert "CMC@1" not in cell.scalars


def test_blocks_of_queries_stack_and_galleries_do_not_merge() -> None:
    matrix, sides = small_problem(7)
    stats = evaluate(se.Distances(matrix), sides, metrics="CMC@1,mAP").statistics
    parts = [stats.block(0, 5), stats.block(5, QUERIES)]
    assert stack(parts).equals(stats)
    some = np.array([7, 2, 2])
    assert stats.identities_ahead is not None
    taken = stats.take(some).identities_ahead
    assert taken is not None
    assert np.array_equal(taken, stats.identities_ahead[some])
    assert stats.select_positives(np.ones(stats.indptr[-1], bool)).identities_ahead is None
    with pytest.raises(ValueError, match="identities_ahead is of a whole gallery"):
        stats.merge(stats)


def test_saved_and_loaded(tmp_path: Path) -> None:
    matrix, sides = small_problem(8)
    result = evaluate(se.Distances(matrix), sides)
    result.save(tmp_path / "out")
    again = se.Evaluation.load(tmp_path / "out")
    assert again.statistics.equals(result.statistics)
    assert again.options.cmc == DISTINCT
    for ties in RULES:
        values = (one.with_options(ties=ties)["CMC@5"] for one in (result, again))
        assert len(set(values)) == 1


def test_only_what_metrics_need_is_counted() -> None:
    matrix, sides = small_problem(9)

    def held(**options: Any) -> bool:
        return evaluate(se.Distances(matrix), sides, **options).statistics.identities_ahead is None

    assert held(metrics="mAP")
    assert held(metrics="rank")
    assert not held(metrics="CMC@1")
    assert not held()
    lean = evaluate(se.Distances(matrix), sides, metrics="mAP")
    with pytest.raises(se.OptionError, match=r"needs identities_ahead, .* a Protocol with cmc"):
        lean.with_options(metrics="CMC@1")
    assert lean.with_options(metrics="CMC@1", cmc="first-match")["CMC@1"] >= 0


def test_other_tools_read_it_as_they_do() -> None:
    matrix, sides = small_problem(13)
    result = evaluate(se.Distances(matrix), sides)
    readings = compare_conventions(result)
    assert readings["this run"].values["CMC@5"] == result["CMC@5"]
    effect = result.with_options(cmc="first-match")["CMC@5"] - result["CMC@5"]
    assert readings["fastreid"].effects["cmc=first-match"]["CMC@5"] == effect != 0


def test_what_is_refused() -> None:
    matrix, sides = small_problem(10)
    source, options = se.Distances(matrix), se.MetricOptions(cmc=DISTINCT)
    for protocol in ("market1501", "cuhk03"):
        with pytest.raises(se.OptionError, match=f"distinct gallery identities, and {protocol} d"):
            evaluate(source, sides, protocol=protocol, options=options)
    with pytest.raises(se.OptionError, match="protocol that counts distinct gallery identities"):
        evaluate(
            source, sides, protocol="cuhk03", options=options, metrics="CMC@1,CMC_sampled@1,mAP"
        )
    with pytest.raises(se.OptionError, match="CMC_sampled@1 needs a protocol that draws"):
        evaluate(source, sides, metrics="CMC_sampled@1")
    with pytest.raises(se.OptionError, match="protocol distinct draws nothing"):
        evaluate(source, sides, shot_draws=3)
    with pytest.raises(se.OptionError, match="its CMC counts distinct gallery identities: give s"):
        se.Protocol("mine", positive="same(model)", cmc=DISTINCT)
    with pytest.raises(se.OptionError, match="lists, and its CMC counts distinct gallery"):
        replace(se.PROTOCOLS["listed"], cmc=DISTINCT)
    features = se.Features(np.ones((QUERIES, 3), "f4"), np.ones((GALLERY, 3), "f4"))
    neighbors = se.Neighbors(features=features, index="Flat", k=20)
    with pytest.raises(se.OptionError, match="under distinct identities counts the items"):
        evaluate(neighbors, sides)


def test_a_ledger_refuses_it(tmp_path: Path) -> None:
    _, sides = small_problem(11)
    with pytest.raises(se.OptionError, match="distinct counts distinct gallery identities, which"):
        se.Ledger.create(tmp_path / "L", query_labels=sides["query"], protocol=COMMON, range=(0, 1))


def test_a_gallery_of_nothing() -> None:
    sides = {
        "query": se.Labels([1, 2], [0, 0]),
        "gallery": se.Labels(np.empty(0, int), np.empty(0, int)),
    }
    for source in (
        se.Features(np.ones((2, 3)), np.empty((0, 3))),
        se.Distances(np.empty((2, 0))),
    ):
        result = evaluate(source, sides)
        assert np.isnan(result["CMC@1"])
        assert ahead_of(result) == [[0, 0, 0]] * 2
