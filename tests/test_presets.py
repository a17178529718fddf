"""Presets give what their tools do: figures that the tools' own code gave on the data of `drawn`.

Equation 5 of the GOM paper, which no tool computes, is written again from its description.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import problems, untied
from profiles import examples

import streameval as se

Array = npt.NDArray[Any]
QUERIES, GALLERY = 40, 150
SINGLE, DOUBLE = 1e-7, 1e-13
"""How far figures in float32 and in float64 may be off."""

# KaiyangZhou/deep-person-reid f8cd150f: torchreid/metrics/rank.py, eval_market1501, without junk.
TORCHREID = {
    "CMC@1": 0.8064516186714172,
    "CMC@5": 0.8064516186714172,
    "CMC@10": 0.8387096524238586,
    "CMC@20": 0.9677419066429138,
    "mAP": 0.30432690644799254,
}
# JDAI-CV/fast-reid c9bc3ceb: fastreid/evaluation/rank.py, eval_market1501, without junk.
FASTREID = {
    "CMC@1": 0.8064516186714172,
    "CMC@5": 0.8064516186714172,
    "CMC@10": 0.8387096524238586,
    "mAP": 0.30432690644799254,
    "mINP": 0.10062963340614954,
}
# Cysu/open-reid 3293ca79: reid/evaluators.py, evaluate_all: the column allshots, with scikit-learn
# 1.9.1, without junk.
OPEN_REID = {
    "CMC@1": 0.1863174459948653,
    "CMC@5": 0.22866837463611653,
    "CMC@10": 0.2618632263793554,
    "mAP": 0.3043269064479925,
}
# alibaba/cluster-contrast-reid 57b62e95: clustercontrast/evaluators.py, evaluate_all, with
# scikit-learn 1.9.1, without junk.
CLUSTER_CONTRAST = {
    "CMC@1": 0.8064516129032258,
    "CMC@5": 0.8064516129032258,
    "CMC@10": 0.8387096774193549,
    "mAP": 0.3043269064479925,
}
# layumi/Person_reID_baseline_pytorch 82ff40fb: evaluate_gpu.py, a port of the MATLAB code.
MARKET_MATLAB = {
    "CMC@1": 0.625,
    "CMC@5": 0.625,
    "CMC@10": 0.65,
    "CMC@20": 0.75,
    "mAP": 0.22711977181695278,
}
# open-metric-learning 4.0.0 (PyPI): oml.functional.metrics.calc_retrieval_metrics; of all queries,
# where precision is NaN, and of those with a positive.
OML = {"CMC@5": 0.75, "mAP@5/hits": 0.7391666769981384}
OML_POSITIVE = {
    "CMC@5": 0.9090909361839294,
    "P@5/min": 0.5636363625526428,
    "mAP@5/hits": 0.8959596157073975,
}
# YuanXinCherry/Person-reID-Evaluation 08fa6959: GOM.py, norm_distance and evaluate_closed; and
# evaluate_open on the strangers' rows of the normalised matrix, with B = 3000.
GOM_CODE = {
    "mVP_max": 0.13168647324897326,
    "mReP_max": 0.2702298859840306,
    "MREP": 0.1560811062112494,
}
GOM_TAU_MAX, GOM_TAU_NZ = 0.03, 0.02
GOM_FALSE_RATE_AT_HALF, GOM_MFR = 0.023619047619047623, 0.022929047619047616

FIGURES = {
    "torchreid": (TORCHREID, SINGLE),
    "fastreid": (FASTREID, SINGLE),
    "open-reid": (OPEN_REID, DOUBLE),
    "cluster-contrast": (CLUSTER_CONTRAST, DOUBLE),
    "market-matlab": (MARKET_MATLAB, DOUBLE),
    "oml": (OML, SINGLE),
    "gom-code": (GOM_CODE, DOUBLE),
}


def drawn() -> dict[str, Array]:
    """Return distances without ties, four cameras, junk, strangers, and an excluded query.

    The least and the greatest distance are of ignored pairs.
    """
    rng = np.random.default_rng(2026)
    query_id, gallery_id = rng.integers(0, 16, QUERIES), rng.integers(-1, 12, GALLERY)
    query_cam, gallery_cam = rng.integers(0, 4, QUERIES), rng.integers(0, 4, GALLERY)
    query_id[0], query_cam[0], gallery_id[0], gallery_cam[0] = 15, 0, 15, 0
    near = rng.random((QUERIES, GALLERY)) - 0.25 * (query_id[:, None] == gallery_id)
    ranks = near.ravel().argsort().argsort().reshape(near.shape)
    return {
        "distances": ranks / 7.0,
        "query_id": query_id,
        "gallery_id": gallery_id,
        "query_cam": query_cam,
        "gallery_cam": gallery_cam,
    }


def evaluate(problem: dict[str, Any], preset: str) -> se.Evaluation:
    return se.evaluate(
        se.Distances(problem["distances"]),
        query=se.Labels(problem["query_id"], problem["query_cam"]),
        gallery=se.Labels(problem["gallery_id"], problem["gallery_cam"]),
        preset=preset,
        threads=1,
    )


def test_the_data_have_every_kind_of_query_and_pair() -> None:
    counts = evaluate(drawn(), "torchreid").counts
    assert min(counts["queries_negative"], counts["queries_excluded"], counts["pairs_ignored"]) > 0
    assert counts["ties"] == 0


@pytest.mark.parametrize("preset", FIGURES)
def test_figures_of_the_tools_own_code(preset: str) -> None:
    result, (figures, rounding) = evaluate(drawn(), preset), FIGURES[preset]
    for name, value in figures.items():
        assert result[name] == pytest.approx(value, abs=rounding), name


def test_oml_where_every_query_has_a_positive() -> None:
    problem = drawn()
    positive = np.isin(problem["query_id"], problem["gallery_id"])
    for name in ("distances", "query_id", "query_cam"):
        problem[name] = problem[name][positive]
    result = evaluate(problem, "oml")
    assert set(OML_POSITIVE) == set(se.PRESETS["oml"].metrics)
    for name, value in OML_POSITIVE.items():
        assert result[name] == pytest.approx(value, abs=SINGLE), name


def test_gom_code_has_thresholds_and_strangers_of_its_own() -> None:
    problem = drawn()
    result = evaluate(problem, "gom-code")
    distances = problem["distances"]
    low, high = distances.min(), distances.max()
    assert result.range == {"mode": "minmax-all", "low": low, "high": high}
    assert (result["tau_max"], result["tau_nz"]) == (GOM_TAU_MAX, GOM_TAU_NZ)
    assert result.curves["mFR"][50] == pytest.approx(GOM_FALSE_RATE_AT_HALF, abs=DOUBLE)
    junk = np.count_nonzero(problem["gallery_id"] == -1)  # the code returns it at τ = 1
    counted = junk / result.options.false_rate_budget / 2 / 100
    assert result["MFR"] + counted == pytest.approx(GOM_MFR, abs=DOUBLE)


@st.composite
def setups(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a problem with cameras and without ties, which has a query with a positive."""
    problem = untied(draw(problems(max_queries=12, max_gallery=20)), draw(st.integers(0, 99)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    for side in ("query", "gallery"):
        problem[f"{side}_cam"] = rng.integers(0, 3, len(problem[f"{side}_id"]))
    problem["gallery_id"] = np.abs(problem["gallery_id"])
    problem["query_cam"][0], problem["gallery_cam"][0] = 0, 1
    problem["gallery_id"][0] = problem["query_id"][0]
    return problem


def ranked_lists(problem: dict[str, Any]) -> list[tuple[Array, Array]]:
    """Return matches and distances in ranked order, of the queries that have a match."""
    lists = []
    for i, distance in enumerate(problem["distances"]):
        same = problem["gallery_id"] == problem["query_id"][i]
        keep = ~same | (problem["gallery_cam"] != problem["query_cam"][i])
        order = np.argsort(distance)
        order = order[keep[order]]
        if same[order].any():
            lists.append((same[order], distance[order]))
    return lists


@examples(20)
@given(problem=setups())
def test_gom_as_printed(problem: dict[str, Any]) -> None:
    lists = ranked_lists(problem)
    result = evaluate(problem, "gom-paper")
    low, high = result.range["low"], result.range["high"]
    everything = np.concatenate([distance for _, distance in lists])
    assert low <= everything.min()
    assert high >= everything.max()
    curve = []
    for t in range(101):
        values = []
        for match, distance in lists:
            within = (distance - low) / max(high - low, 1e-9) <= t / 100
            tp = np.count_nonzero(match & within)
            values.append(tp / (np.count_nonzero(within) - tp + match.sum()))
        curve.append(np.mean(values))
    np.testing.assert_allclose(result.curves["mVP"], curve, 0, 1e-13)
