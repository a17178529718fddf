"""The histogram of impostors: exact however the work is cut, counted only where it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_pairs import (
    best_f1,
    equal_error_rate,
    impostor_histogram,
    operating_points,
    pair_auc,
    pairs_of,
    recall_at_precision,
)
from profiles import examples
from reference import canonical_distances
from spread import spread
from support.package import uniform_edges
from support.run import BINS
from support.run import passes_module as refining
from support.runs import plan_any_budget, prepare
from test_exactness import (
    GALLERY,
    HOSTILE,
    METRICS,
    QUERIES,
    binary,
    duplicates,
    evaluate,
    labels,
    least_memory,
    normal,
    oracle,
)

import streameval as se
from streameval import Progress, RankStatistics

Array = npt.NDArray[Any]
PAIRS = "TAR|FAR=0.1,EER,AUC,F1_best,recall|precision=0.5"


def problem_of(distances: Array, sides: dict[str, se.Labels]) -> dict[str, Any]:
    query, gallery = sides["query"], sides["gallery"]
    return {
        "distances": distances,
        "query_id": query.id,
        "gallery_id": gallery.id,
        "query_cam": query.cam,
        "gallery_cam": gallery.cam,
    }


def check(statistics: RankStatistics, distances: Array, sides: dict[str, se.Labels]) -> None:
    """Compare every field with brute force, bit for bit."""
    expected = oracle(distances, sides, statistics.thresholds)
    histogram = ("impostor_histogram", "histogram_edges")
    assert statistics.equals(expected, ignoring=histogram)
    edges = statistics.histogram_edges
    assert edges is not None
    assert (np.diff(edges) > 0).all()
    impostor = pairs_of(problem_of(distances, sides))[1]
    assert np.array_equal(statistics.impostor_histogram, impostor_histogram(impostor, edges))


@pytest.mark.parametrize(("data", "metric"), spread(HOSTILE, METRICS))
def test_features_and_stored_distances_count_as_brute_force(data: Any, metric: Any) -> None:
    rng = np.random.default_rng(5)
    q, g = (side.astype(np.float32) for side in data(rng))
    sides = labels(rng, QUERIES, GALLERY)
    distances = canonical_distances(q, g, metric)
    result = evaluate(se.Features(q, g, metric), **sides, metrics=f"{PAIRS},MREP", threads=1)
    check(result.statistics, distances, sides)
    low, high = result.range["low"], result.range["high"]
    assert np.array_equal(result.statistics.histogram_edges, uniform_edges(low, high, BINS))
    stored = evaluate(
        se.Distances(distances),
        **sides,
        metrics=PAIRS,
        range=(low, high) if result.range["mode"] == "auto" else "minmax",
        threads=1,
    )
    assert np.array_equal(
        stored.statistics.impostor_histogram, result.statistics.impostor_histogram
    )


@examples(25)
@given(
    seed=st.integers(0, 10**6),
    data=st.sampled_from([normal, duplicates, binary]),
    metric=st.sampled_from(METRICS),
    tile=st.tuples(st.integers(1, 20), st.integers(1, 200)),
    threads=st.integers(1, 2),
    metrics=st.sampled_from([PAIRS, f"{PAIRS},MREP"]),
)
def test_any_tiling(
    seed: int, data: Any, metric: Any, tile: tuple[int, int], threads: int, metrics: str
) -> None:
    rng = np.random.default_rng(seed)
    q, g = (side.astype(np.float32) for side in data(rng))
    sides = labels(rng, QUERIES, GALLERY)
    source = se.Features(q, g, metric)
    result = evaluate(source, **sides, metrics=metrics, tile=tile, threads=threads)
    check(result.statistics, canonical_distances(q, g, metric), sides)


@pytest.mark.parametrize("strip", [True, False])
def test_strips_and_rectangles_of_a_stored_matrix(strip: bool, tmp_path: Any) -> None:
    import zarr

    rng = np.random.default_rng(7)
    matrix = rng.choice(np.linspace(0.5, 2, 400), (QUERIES, GALLERY)).astype(np.float32)
    sides = labels(rng, QUERIES, GALLERY)
    array = zarr.create_array(tmp_path / "d.zarr", shape=matrix.shape, chunks=(5, 31), dtype="f4")
    array[:] = matrix
    source = se.Distances(tmp_path / "d.zarr")
    options = se.MetricOptions(metrics=("EER",))
    with pytest.MonkeyPatch.context() as patch:
        plan_any_budget(patch)
        memory = 10**9 if strip else least_memory(source, sides, options=options)
        result = evaluate(source, **sides, options=options, memory=memory, threads=2)
    assert result.provenance["plan"]["layout"] == ("strips" if strip else "rectangles")
    check(result.statistics, matrix.astype(np.float64), sides)


@pytest.mark.parametrize("refine", [(), ("TAR|FAR=0.1", "EER")])
@pytest.mark.parametrize("kind", ["features", "strips", "rectangles"])
def test_groups_have_the_figures_of_their_queries_alone(
    kind: str, refine: tuple[str, ...], tmp_path: Any
) -> None:
    import zarr

    rng = np.random.default_rng(8)
    sides = labels(rng, QUERIES, GALLERY)
    q, g = (rng.standard_normal((n, 6)).astype(np.float32) for n in (QUERIES, GALLERY))
    matrix = rng.choice(np.linspace(0.5, 2, 40), (QUERIES, GALLERY)).astype(np.float32)
    array = zarr.create_array(tmp_path / "d.zarr", shape=matrix.shape, chunks=(5, 31), dtype="f4")
    array[:] = matrix
    day = rng.integers(0, 3, QUERIES).astype(str)
    options: dict[str, Any] = {"metrics": f"mAP,{PAIRS}", "range": (-1.0, 3.0), "refine": refine}

    def source(rows: Array) -> Any:
        if kind == "features":
            return se.Features(q[rows], g, "cosine")
        return se.Distances(tmp_path / "d.zarr" if rows.all() else matrix[rows])

    with pytest.MonkeyPatch.context() as patch:
        plan_any_budget(patch)
        if kind == "rectangles":
            options["memory"] = least_memory(
                source(day == day),
                sides,
                group_by=day,
                range=options["range"],
                refine=refine,
                options=se.MetricOptions(metrics=("mAP", *PAIRS.split(","))),
            )
        result = evaluate(
            source(day == day), **sides, **options, threads=2, group_by=day, tile=(4, 50)
        )
    assert result.provenance["plan"]["layout"] == kind
    options.pop("memory", None)
    for label, found in result.groups.items():
        rows = day == label
        query = se.Labels(sides["query"].id[rows], sides["query"].cam[rows])
        alone = evaluate(source(rows), query=query, gallery=sides["gallery"], **options)
        names = set(found.scalars) if not refine else {"mAP", *refine}
        for name in names:
            exact = found.details[name].error == 0 == alone.metrics.details[name].error
            if not refine or exact:
                np.testing.assert_equal(found.scalars[name], alone[name], name)
        if not refine:
            own = result.statistics.take(rows)
            assert own.equals(alone.statistics)
    result.save(tmp_path / "saved")
    loaded = se.Evaluation.load(tmp_path / "saved")
    assert loaded.statistics.equals(result.statistics)
    for label, found in result.groups.items():
        np.testing.assert_equal(loaded.groups[label].scalars, found.scalars)
    two = result.grouped(np.where(day == "0", "one", "rest"))  # unions of groups do, too
    assert np.isfinite(two.groups["rest"].scalars["EER"])
    halves = result.grouped(np.arange(QUERIES) % 2)
    assert "not by group" in halves.groups[0].details["EER"].reason


def test_too_many_groups_have_no_histogram_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    sides = labels(rng, QUERIES, GALLERY)
    source = se.Distances(rng.random((QUERIES, GALLERY)))
    prepared = {
        most: prepare(source, **sides, options=se.MetricOptions(metrics=("EER",)), group_by="cam")
        for most in (100, 2)
        if not monkeypatch.setattr("streameval.result.groups.MOST_GROUPS", most)
    }
    assert prepared[100].problem.groups == len(np.unique(sides["query"].cam)) > 2
    assert prepared[2].groups is None
    assert prepared[2].problem.groups == 0
    assert prepared[100].plan.peak > prepared[2].plan.peak
    plain = prepare(source, **sides, options=se.MetricOptions(metrics=("mAP",)), group_by="cam")
    assert plain.groups is None  # nothing needs it


def exact_of(problem: dict[str, Any], f: float) -> float:
    """Return TAR at the largest threshold with FAR <= f, from all pairs sorted."""
    _, far, tar = operating_points(problem)
    return float(tar[far <= f].max())


@examples(40)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([1.0, 1e-6]),
    levels=st.sampled_from([0, 5, 60]),
    most=st.sampled_from([4, 1001]),
)
def test_refined_figures_are_those_of_all_pairs_sorted(
    seed: int, spread: float, levels: int, most: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.random((QUERIES, GALLERY))
    if levels:
        matrix = np.round(matrix * levels) / levels
    matrix = 0.5 + spread * matrix
    matrix[0, 0] = 3.0  # nearly all distances are in few of the bins
    sides = labels(rng, QUERIES, GALLERY)
    problem = problem_of(matrix, sides)
    genuine, impostor = pairs_of(problem)
    rates = [f for f in (0.5, 0.1, 0.01) if f * len(impostor) >= 1]
    names = (*(f"TAR|FAR={f:g}" for f in rates), *(f"FNMR|FMR={f:g}" for f in rates))
    recalls = {f"recall|precision={p:g}": p for p in (0.05, 0.2, 0.9)}
    names = (*names, "EER", "F1_best", *recalls)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refining, "PER_PASS", most)
        result = evaluate(se.Distances(matrix), **sides, refine=names, metrics="AUC", threads=1)
    check(result.statistics, matrix, sides)
    if not len(genuine):
        return
    for f in rates:
        name = f"TAR|FAR={f:g}"
        assert result[name] == exact_of(problem, f)
        threshold = result.metrics.details[name].threshold
        assert result[name] == np.mean(genuine <= threshold)
        assert np.mean(impostor <= threshold) <= f
        missed = round(len(genuine) * (1 - exact_of(problem, f)))
        assert result[f"FNMR|FMR={f:g}"] == missed / len(genuine)
    assert result["EER"] == pytest.approx(equal_error_rate(problem), abs=1e-14)
    assert result["F1_best"] == best_f1(problem)
    best = result.metrics.details["F1_best"].threshold
    found, wrong = int(np.sum(genuine <= best)), int(np.sum(impostor <= best))
    assert result["F1_best"] == 2 * found / (found + wrong + len(genuine))
    for name, p in recalls.items():
        assert result[name] == recall_at_precision(problem, p)
        found = int(np.sum(genuine <= result.metrics.details[name].threshold))
        assert result[name] == found / len(genuine)
    assert all(result.metrics.details[name].error == 0 for name in names)
    detail = result.metrics.details["AUC"]
    assert abs(result["AUC"] - pair_auc(problem)) <= detail.error + 1e-14


def test_the_best_is_found_however_few_edges_a_pass_counts() -> None:
    rng = np.random.default_rng(5)
    matrix = rng.random((QUERIES, GALLERY))
    sides = labels(rng, QUERIES, GALLERY)
    names = ("F1_best", "recall|precision=0.09")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refining, "PER_PASS", 6)  # far fewer than there are genuine distances
        result = evaluate(se.Distances(matrix), **sides, refine=names, range=(-50.0, 50.0))
    problem = problem_of(matrix, sides)
    assert result["F1_best"] == best_f1(problem)
    assert 0 < result["recall|precision=0.09"] == recall_at_precision(problem, 0.09) < 1
    assert all(result.metrics.details[name].error == 0 for name in names)


def test_one_pass_refines_features_to_the_same() -> None:
    rng = np.random.default_rng(3)
    q, g = (side.astype(np.float32) for side in normal(rng))
    sides = labels(rng, QUERIES, GALLERY)
    rough = evaluate(se.Features(q, g), **sides, metrics="TAR|FAR=0.1,mAP")
    refined = evaluate(se.Features(q, g), **sides, refine="TAR|FAR=0.1", tile=(5, 16))
    detail = rough.metrics.details["TAR|FAR=0.1"]
    problem = problem_of(canonical_distances(q, g, "cosine"), sides)
    assert refined["TAR|FAR=0.1"] == exact_of(problem, 0.1)
    assert 0 <= refined["TAR|FAR=0.1"] - rough["TAR|FAR=0.1"] <= detail.error + 1e-15
    assert {"mAP", "MREP", "CMC@1"} <= refined.metrics.scalars.keys()  # beside the usual ones
    assert refined["mAP"] == rough["mAP"]
    assert refined.provenance["refined"] == ["TAR|FAR=0.1"]


def test_passes_that_refine_are_told() -> None:
    class Stages(Progress):
        def start(self, label: str, pairs: int) -> None:
            stages.append(label)

    stages: list[str] = []
    matrix = np.array([[0.1, 0.1003, 0.1006, 0.9]] * 2)
    sides = {"query": se.Labels([1, 1]), "gallery": se.Labels([2, 1, 2, 2])}
    what: dict[str, Any] = {**sides, "protocol": "no-camera", "refine": "TAR|FAR=0.5"}
    result = evaluate(se.Distances(matrix), **what, progress=Stages())
    assert stages == ["range", "counting", "refining"]
    assert result["TAR|FAR=0.5"] == 1.0
    assert result.metrics.details["TAR|FAR=0.5"].error == 0


def test_what_has_no_threshold_cannot_be_refined() -> None:
    source = se.Distances(np.ones((1, 2)))
    sides = {"query": se.Labels([1]), "gallery": se.Labels([1, 2])}
    with pytest.raises(se.OptionError, match="AUC has no threshold"):
        se.evaluate(source, **sides, protocol="no-camera", refine="EER,AUC")


@pytest.mark.parametrize("source", ["features", "stored"])
def test_no_more_is_counted_than_the_metrics_need(source: str) -> None:
    rng = np.random.default_rng(4)
    q, g = (side.astype(np.float32) for side in normal(rng))
    sides = labels(rng, QUERIES, GALLERY)
    distances = canonical_distances(q, g, "dot")
    what = se.Features(q, g, "dot") if source == "features" else se.Distances(distances)
    usual = prepare(what, **sides)
    assert (usual.problem.thresholds, usual.problem.edges, usual.range) == (101, 0, None)
    options = se.MetricOptions(metrics=("mAP", "CMC@1", "DIR@1|FAR=0.1"))
    lean = prepare(what, **sides, options=options)
    assert (lean.problem.thresholds, lean.problem.edges) == (0, 0)
    assert lean.problem.passes == 1  # no pass to find a range
    assert lean.plan.parts["counts"] < usual.plan.parts["counts"]
    pairs = prepare(what, **sides, options=se.MetricOptions(metrics=("EER",)))
    assert (pairs.problem.thresholds, pairs.problem.edges) == (0, BINS + 1)
    assert pairs.plan.parts["counts"] > usual.plan.parts["counts"]

    result = evaluate(what, **sides, options=options)
    whole = evaluate(what, **sides)
    assert result.range == {"mode": "unused", "low": None, "high": None}
    unlike = ("thresholds", "negatives_within")
    assert result.statistics.equals(whole.statistics, ignoring=unlike)
    assert result["mAP"] == whole["mAP"]


def test_a_lean_result_says_which_run_gives_the_rest(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    q, g = normal(rng)
    sides = labels(rng, QUERIES, GALLERY)
    result = evaluate(se.Features(q, g), **sides, metrics="mAP")
    result.save(tmp_path / "lean")
    loaded = se.Evaluation.load(tmp_path / "lean")
    assert loaded.range == result.range
    assert loaded.statistics.equals(result.statistics)
    for name in ("MREP", "EER", "F1_max/micro"):
        with pytest.raises(se.OptionError, match=f"evaluate again.*--metrics '{name}'"):
            loaded.with_options(metrics=(name,))
    usual = loaded.with_options(metrics=())
    assert "CMC@1" in usual.metrics.scalars
    assert "MREP" not in usual.metrics.scalars


def test_a_range_that_is_given_is_checked_whatever_the_metrics() -> None:
    rng = np.random.default_rng(4)
    q, g = normal(rng)
    sides = labels(rng, QUERIES, GALLERY)
    with pytest.raises(se.InputError, match="outside the given range"):
        evaluate(se.Features(q, g), **sides, metrics="mAP", range=(0.0, 0.9))
