"""Verification: exact on the thresholds, and within its stated error from a histogram."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import Problem, oracle_statistics, oracle_thresholds
from oracle_pairs import (
    best_f1,
    equal_error_rate,
    operating_points,
    pair_auc,
    pairs_of,
    recall_at_precision,
    with_histogram,
)
from problems import problems
from profiles import examples
from support.metrics import EMPTY, Metrics
from test_metrics import quietly

from streameval import MetricOptions

BINS = st.sampled_from([1, 2, 7, 64])
LIMITS = st.sampled_from([(0.0, 1.0), (-0.3, 0.8), (0.4, 0.5)])
RATES = (0.5, 0.25, 0.1, 0.01)
ROUNDING = 1e-14


def compute(problem: dict[str, Any], names: tuple[str, ...], bins: int, limits: Any) -> Metrics:
    stats = with_histogram(oracle_statistics(**problem), problem, *limits, bins)
    return quietly(stats, MetricOptions(metrics=names))


def off_by(metrics: Metrics, name: str, exact: float) -> float:
    """Return by how much a value is further from the exact one than it says."""
    return abs(metrics.scalars[name] - exact) - metrics.details[name].error - ROUNDING


@examples(120)
@given(problem=problems(), bins=BINS, limits=LIMITS)
def test_rates_are_within_their_error(problem: dict[str, Any], bins: int, limits: Any) -> None:
    names = tuple(f"{kind}={f:g}" for f in RATES for kind in ("TAR|FAR", "FNMR|FMR"))
    metrics = compute(problem, names, bins, limits)
    genuine, impostor = pairs_of(problem)
    if not len(genuine) or not len(impostor):
        reason = EMPTY["Q+"] if not len(genuine) else EMPTY["negatives"]
        assert {detail.reason for detail in metrics.details.values()} <= set(EMPTY.values())
        assert len(genuine) + len(impostor) == 0 or metrics.details[names[0]].reason == reason
        return
    _, far, tar = operating_points(problem)
    for f in RATES:
        for name, sign in ((f"TAR|FAR={f:g}", 1), (f"FNMR|FMR={f:g}", -1)):
            value, detail = metrics.scalars[name], metrics.details[name]
            if 1 / len(impostor) > f:
                assert math.isnan(value)
                assert f"impostor pairs, has {len(impostor)}" in detail.reason
                continue
            exact = tar[far <= f].max() if sign == 1 else 1 - tar[far <= f].max()
            assert off_by(metrics, name, exact) <= 0
            assert (exact - value) * sign >= -ROUNDING  # it errs to the careful side
            assert detail.threshold is not None
            assert np.mean(impostor <= detail.threshold) <= f
            reached = np.mean(genuine <= detail.threshold)
            assert value == pytest.approx(reached if sign == 1 else 1 - reached, abs=ROUNDING)


@examples(120)
@given(problem=problems(), bins=BINS, limits=LIMITS)
def test_areas_and_crossings_are_within_their_error(
    problem: dict[str, Any], bins: int, limits: Any
) -> None:
    metrics = compute(problem, ("EER", "AUC", "F1_best"), bins, limits)
    genuine, impostor = pairs_of(problem)
    if len(genuine) and len(impostor):
        assert off_by(metrics, "EER", equal_error_rate(problem)) <= 0
        assert off_by(metrics, "AUC", pair_auc(problem)) <= 0
    if len(genuine):
        assert off_by(metrics, "F1_best", best_f1(problem)) <= 0


@examples(120)
@given(problem=problems(), bins=BINS, limits=LIMITS)
def test_recall_at_a_precision_is_within_its_error(
    problem: dict[str, Any], bins: int, limits: Any
) -> None:
    precisions = (0.0, 0.25, 0.5, 0.9, 1.0)
    names = tuple(f"recall|precision={p:g}" for p in precisions)
    metrics = compute(problem, names, bins, limits)
    genuine, impostor = pairs_of(problem)
    for name, p in zip(names, precisions, strict=True):
        if not len(genuine):
            assert math.isnan(metrics[name])
            continue
        assert off_by(metrics, name, recall_at_precision(problem, p)) <= 0
        threshold = metrics.details[name].threshold
        assert threshold is not None
        found, wrong = (int(np.sum(some <= threshold)) for some in (genuine, impostor))
        assert metrics[name] == found / len(genuine)  # reached there, with that precision
        assert metrics[name] == 0 or found / (found + wrong) >= p


@pytest.mark.slow
def test_finer_bins_leave_less_open() -> None:
    rng = np.random.default_rng(0)
    problem = {
        "distances": rng.random((30, 60)),
        "query_id": rng.integers(0, 5, 30),
        "gallery_id": rng.integers(0, 5, 60),
    }
    names = ("EER", "AUC", "TAR|FAR=0.1", "F1_best", "recall|precision=0.3")
    coarse, fine = (compute(problem, names, bins, (0.0, 1.0)) for bins in (10, 10_000))
    for name in names:
        assert fine.details[name].error < coarse.details[name].error / 50
    assert fine.scalars["AUC"] == pytest.approx(pair_auc(problem), abs=1e-3)
    assert fine.details["EER"].threshold_error == pytest.approx(1e-4)


def test_distances_at_the_edges_are_exact() -> None:
    problem = {  # all distances are edges of the bins: nothing is left open but ties inside them
        "distances": np.array([[0.25, 0.5, 0.5, 1.0, 0.75]]),
        "query_id": np.array([1]),
        "gallery_id": np.array([1, 1, 2, 2, 3]),
    }
    metrics = compute(problem, ("TAR|FAR=0.5", "EER"), 4, (0.0, 1.0))
    assert metrics.scalars == {"TAR|FAR=0.5": 1.0, "EER": 1 / 6}
    assert metrics.details["TAR|FAR=0.5"].threshold == 0.5
    careful = compute(problem, ("TAR|FAR=0.333",), 4, (0.0, 1.0))
    withheld = careful.details["TAR|FAR=0.333"].reason
    assert withheld == "needs 4 impostor pairs, has 3"
    beyond = {**problem, "distances": np.array([[0.25, 0.75, 0.5, 1.0, 0.75]])}
    at_the_next_edge = compute(beyond, ("TAR|FAR=0.5",), 4, (0.0, 1.0))
    assert at_the_next_edge.scalars == {"TAR|FAR=0.5": 0.5}
    assert at_the_next_edge.details["TAR|FAR=0.5"].error == 0  # certainly not within it
    assert metrics.curves["genuine"].tolist() == [0, 1, 1, 0, 0, 0]
    assert metrics.curves["impostor"].tolist() == [0, 0, 1, 1, 1, 0]
    np.testing.assert_array_equal(metrics.curves["FMR"], np.array([0, 0, 1, 2, 3]) / 3)
    np.testing.assert_array_equal(metrics.curves["FNMR"], [1, 0.5, 0, 0, 0])


def test_a_rate_that_the_pairs_cannot_support_is_withheld() -> None:
    stats = oracle_statistics(np.array([[0.1, 0.2]]), np.array([1]), np.array([1, 2]))
    edges = np.array([0.0, 0.5, 1.0])
    stats = replace(stats, impostor_histogram=np.array([0, 100, 9_900, 0]), histogram_edges=edges)
    metrics = quietly(stats, MetricOptions(metrics=("TAR|FAR=1e-4", "TAR|FAR=0.000001")))
    assert not math.isnan(metrics.scalars["TAR|FAR=0.0001"])
    assert math.isnan(metrics.scalars["TAR|FAR=1e-06"])
    reason = metrics.details["TAR|FAR=1e-06"].reason
    assert reason == "needs 1,000,000 impostor pairs, has 10,000"
    zero = quietly(stats, MetricOptions(metrics=("FNMR|FMR=0",)))
    assert zero.details["FNMR|FMR=0"].reason == "no number of impostor pairs supports a rate of 0"


@examples(80)
@given(problem=problems(), limits=st.sampled_from([(0.0, 1.0), (-0.3, 0.8), (0.1, 0.4)]))
def test_figures_at_thresholds_equal_the_oracle(problem: dict[str, Any], limits: Any) -> None:
    lo, hi = limits
    stats = oracle_statistics(**problem, thresholds=oracle_thresholds(problem["distances"], lo, hi))
    taus = (0.0, 0.25, 0.5, 1.0)
    figures = ("precision", "recall", "F1")
    names = tuple(
        f"{figure}/{how}@tau={tau:g}"
        for figure in figures
        for how in ("micro", "macro")
        for tau in taus
    )
    names += tuple(f"{rate}@tau={tau:g}" for rate in ("FMR", "FNMR") for tau in taus)
    metrics = quietly(stats, MetricOptions(metrics=(*names, "F1_max/micro", "F1_max/macro")))
    whole = Problem(**problem)
    impostor = pairs_of(problem)[1]
    for tau in taus:
        counts = []
        for i, distance in enumerate(whole.distances):
            ignored, same = whole.row(i)
            within = (distance - lo) / (hi - lo) <= tau
            counts.append(
                [int((part & ~ignored).sum()) for part in (same & within, ~same & within, same)]
            )
        tp, fp, total = np.array(counts).sum(axis=0).tolist()
        own = [row for row in counts if row[2]]
        expected = {
            "precision/micro": tp / (tp + fp) if total and tp + fp else np.nan,
            "recall/micro": tp / total if total else np.nan,
            "F1/micro": 2 * tp / (tp + fp + total) if total else np.nan,
            "precision/macro": mean_of([t / (t + f) for t, f, _ in own if t + f]),
            "recall/macro": mean_of([t / g for t, _, g in own]),
            "FMR": fp / len(impostor) if len(impostor) else np.nan,
            "FNMR": (total - tp) / total if total else np.nan,
            "F1/macro": mean_of([2 * t / (t + f + g) for t, f, g in own]),
        }
        for name, value in expected.items():
            np.testing.assert_equal(metrics.scalars[f"{name}@tau={tau:g}"], value, name)
    for how in ("micro", "macro"):
        np.testing.assert_equal(
            metrics.scalars[f"F1_max/{how}"], np.max(metrics.curves[f"F1/{how}"])
        )


def mean_of(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def test_a_threshold_that_was_not_counted_says_so() -> None:
    stats = oracle_statistics(
        np.array([[0.1, 0.2]]), np.array([1]), np.array([1, 2]), thresholds=np.arange(11) / 10
    )
    metrics = quietly(stats, MetricOptions(metrics=("F1/micro@tau=0.35", "precision/micro@tau=0")))
    reason = metrics.details["F1/micro@tau=0.35"].reason
    assert reason == "only multiples of 1/10 of τ were counted"
    assert metrics.details["precision/micro@tau=0"].reason == "nothing is returned at this τ"
