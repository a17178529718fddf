"""Metrics of ranked lists and of the open set equal the oracle, on small problems full of ties."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_statistics
from oracle_lists import (
    all_shots,
    average_precision,
    discounted_gain,
    global_average_precision,
    hits_at,
    interpolated_precision,
    mean_over_lists,
    median_rank,
    open_set_lists,
    precision_to_last,
    recall_at_percent,
    reciprocal_rank,
)
from problems import problems
from profiles import examples
from support.metrics import RANK, RankedQueries, at_recall, precision_recall
from test_metrics import ALL_RULES, FIXED, RATES, quietly

from streameval import MetricOptions

CUTS = (1, 2, 3, 5, 30)
AP_RULES = ("step", "trapezoid", "threshold")
DENOMINATORS = ("hits", "total", "min")
READINGS: dict[str, Any] = {"R-precision": hits_at("G", "total"), "MRR": reciprocal_rank}
for percent in ("0.07", "1", "12.5", "20", "30", "50", "70", "100"):
    READINGS[f"recall@{percent}%"] = recall_at_percent(Fraction(percent))
for k in CUTS:
    READINGS[f"P@{k}"] = hits_at(k, "k")
    READINGS[f"P@{k}/min"] = hits_at(k, "min")
    READINGS[f"mP@{k}"] = precision_to_last(k)
    READINGS[f"recall@{k}"] = hits_at(k, "total")
    READINGS[f"nDCG@{k}"] = discounted_gain(k)


def values_of(problem: dict[str, Any], names: tuple[str, ...], **options: Any) -> dict[str, float]:
    stats = oracle_statistics(**problem)
    return quietly(stats, MetricOptions(metrics=names, **options)).scalars


@examples(60)
@given(problem=problems(), ties=st.sampled_from(FIXED))
def test_counts_within_a_cutoff_equal_the_oracle(problem: dict[str, Any], ties: Any) -> None:
    values = values_of(problem, tuple(READINGS), ties=ties)
    for name, read in READINGS.items():
        np.testing.assert_equal(values[name], mean_over_lists(problem, ties, read), name)


@examples(60)
@given(problem=problems(), ties=st.sampled_from(FIXED), ap=st.sampled_from(AP_RULES))
def test_average_precision_within_a_cutoff_equals_the_oracle(
    problem: dict[str, Any], ties: Any, ap: Any
) -> None:
    readings = {f"mAP@{k}/{by}": average_precision(k, by, ap) for k in CUTS for by in DENOMINATORS}
    readings["MAP@R"] = average_precision("G", "total", ap)
    readings["mAP"] = average_precision(10**6, "total", ap)
    values = values_of(problem, tuple(readings), ties=ties, ap=ap)
    for name, read in readings.items():
        np.testing.assert_equal(values[name], mean_over_lists(problem, ties, read), name)
    assert all(math.isnan(one) or 0 <= one <= 1 for one in values.values())


@examples(60)
@given(problem=problems(max_queries=3, max_gallery=8, levels=3), ap=st.sampled_from(AP_RULES))
def test_expected_is_the_mean_over_all_tie_breaks(problem: dict[str, Any], ap: Any) -> None:
    readings = {f"mAP@{k}/{by}": average_precision(k, by, ap) for k in CUTS for by in DENOMINATORS}
    readings |= {**READINGS, "MAP@R": average_precision("G", "total", ap)}
    values = values_of(problem, tuple(readings), ties="expected", ap=ap)
    for name, read in readings.items():
        expected = mean_over_lists(problem, "expected", read)
        np.testing.assert_allclose(values[name], expected, 0, 1e-13, err_msg=name)


@examples(60)
@given(problem=problems(max_queries=4, max_gallery=8, levels=3), ties=st.sampled_from(ALL_RULES))
def test_all_shots_equals_the_oracle(problem: dict[str, Any], ties: Any) -> None:
    names = tuple(f"CMC@{x}" for x in CUTS)
    values = values_of(problem, names, ties=ties, cmc="all-shots")
    for x in CUTS:
        expected = mean_over_lists(problem, ties, all_shots(x))
        tolerance = 1e-14 if ties == "expected" else 0
        np.testing.assert_allclose(values[f"CMC@{x}"], expected, 0, tolerance)


@examples(40)
@given(problem=problems(), ties=st.sampled_from(FIXED))
def test_precision_at_recall_equals_the_oracle(problem: dict[str, Any], ties: Any) -> None:
    recalls = (0.0, 0.1, 1 / 3, 0.5, 0.9, 1.0)
    stats = oracle_statistics(**problem)
    options = MetricOptions(ties, metrics=tuple(f"mP@recall={r}" for r in recalls))
    metrics = quietly(stats, options)
    values = list(metrics.scalars.values())
    for r, value in zip(recalls, values, strict=True):
        expected = mean_over_lists(problem, ties, interpolated_precision(r))
        np.testing.assert_equal(value, expected)
    curve = [mean_over_lists(problem, ties, interpolated_precision(t / 100)) for t in range(101)]
    np.testing.assert_array_equal(metrics.curves["mPrecision"], curve)
    ranked = RankedQueries(stats, options)
    recall, precision = precision_recall(ranked)
    assert len(recall) == len(precision) == len(stats.positive_distance)
    assert (recall[stats.indptr[1:][stats.has_positive] - 1] == 1).all()
    np.testing.assert_array_equal(precision * ranked.ranks.rank, ranked.ranks.order)  # type: ignore[attr-defined]


@examples(60)
@given(problem=problems(), ties=st.sampled_from(FIXED))
def test_the_median_rank_equals_the_oracle(problem: dict[str, Any], ties: Any) -> None:
    stats = oracle_statistics(**problem)
    metrics = quietly(stats, MetricOptions(ties, metrics=("MedR",)))
    np.testing.assert_equal(metrics.scalars["MedR"], median_rank(problem, ties))
    assert metrics.details["MedR"].kind is RANK
    assert metrics.per_query.keys() >= {"first_rank"}


def test_the_first_positive_at_a_recall_is_exact() -> None:
    """Of G positives it is the least j >= t·G/100, in integers; the product is rounded."""
    counts = np.arange(1, 151)
    query = np.repeat(np.arange(len(counts)), counts)
    stats = oracle_statistics(
        np.zeros((len(counts), len(query))), np.arange(len(counts)), query, junk_ids=()
    )
    ranked = RankedQueries(stats, MetricOptions())
    order = ranked.ranks.order.astype(np.float64)
    for t in range(101):
        least = np.maximum(-(-t * counts // 100), 1)
        np.testing.assert_array_equal(at_recall(ranked, order, t / 100), least)
    just_above = np.nextafter(1 / 3, 1)  # three times that is 1, rounded
    assert at_recall(ranked, order, just_above)[2] == 2


@pytest.mark.parametrize("name", ["mP@recall=0.5", "MedR"])
def test_some_metrics_have_no_expectation_over_ties(name: str) -> None:
    problem = {
        "distances": np.array([[0.5, 0.5]]),
        "query_id": np.array([1]),
        "gallery_id": np.array([1, 2]),
    }
    options = MetricOptions("expected", metrics=(name,))
    metrics = quietly(oracle_statistics(**problem), options)
    assert math.isnan(metrics.scalars[name])
    assert "under another tie rule" in metrics.details[name].reason
    untied = {**problem, "distances": np.array([[0.5, 0.6]])}
    assert values_of(untied, (name,), ties="expected") == {name: 1.0}


@examples(80)
@given(problem=problems(max_queries=12), ties=st.sampled_from(FIXED), x=st.sampled_from((1, 3)))
def test_open_set_equals_the_oracle_and_thresholds_reach_it(
    problem: dict[str, Any], ties: Any, x: int
) -> None:
    first, nearest, strangers = open_set_lists(problem)
    names = tuple(
        name
        for f in RATES
        for name in (
            f"DIR@{x}|FAR={f:g}",
            f"FNIR@{x}|FPIR={f:g}",
            f"TTR/set|FTR={f:g}",
            f"TTR/individual|FTR={f:g}",
        )
    )
    stats = oracle_statistics(**problem)
    options = MetricOptions(ties, metrics=(*names, f"DIR_AUC@{x}"))
    metrics = quietly(stats, options)
    if not first or not strangers:
        assert all(math.isnan(one) for one in metrics.scalars.values())
        assert all(detail.reason for detail in metrics.details.values())
        return
    found = quietly(stats, MetricOptions(ties, cmc_ranks=(x,))).per_query["first_rank"]
    hit = found[~np.isnan(found)] <= x
    for name in names:
        f = float(name.partition("=")[2])
        threshold = metrics.details[name].threshold
        if 1 / len(strangers) > f:
            assert math.isnan(metrics.scalars[name])
            assert "of Q−" in metrics.details[name].reason
            assert threshold is None
            continue
        assert threshold is not None
        assert np.mean(np.array(strangers) <= threshold) <= f or threshold == np.inf
        distance, counts = {
            f"DIR@{x}": (first, hit),
            f"FNIR@{x}": (first, hit),
            "TTR/set": (nearest, np.ones_like(hit)),
            "TTR/individual": (first, np.ones_like(hit)),
        }[name.partition("|")[0]]
        counted = counts & (np.array(distance) <= threshold)
        if name.startswith("FNIR"):
            counted = ~counted
        assert metrics.scalars[name] == int(counted.sum()) / len(first)
        further = [d for d in strangers if d > threshold]  # one more would be too many
        if further:
            within = np.mean(np.array(strangers) <= min(further))
            assert within > f
    pairs = [(d, u, one) for d, one in zip(first, hit, strict=True) for u in strangers]
    halves = sum(one * (2 * (d < u) + (d == u)) for d, u, one in pairs)
    assert metrics.scalars[f"DIR_AUC@{x}"] == halves / (2 * len(pairs))


@pytest.mark.parametrize("ties", ALL_RULES)
def test_the_area_is_that_of_the_curve(ties: Any) -> None:
    rng = np.random.default_rng(4)
    problem = {
        "distances": rng.random((40, 25)),  # without ties: no diagonal steps
        "query_id": rng.integers(0, 16, 40),
        "gallery_id": rng.integers(0, 8, 25),
    }
    metrics = quietly(
        oracle_statistics(**problem), MetricOptions(ties, metrics=("DIR@1|FAR=0.1", "DIR_AUC@1"))
    )
    far, dir_1 = metrics.curves["FAR"], metrics.curves["DIR@1"]
    assert metrics.scalars["DIR_AUC@1"] == pytest.approx(np.sum(np.diff(far) * dir_1[:-1]))


@examples(120)
@given(problem=problems(levels=4), ties=st.sampled_from(FIXED))
def test_global_average_precision_equals_the_oracle(problem: dict[str, Any], ties: Any) -> None:
    values = values_of(problem, ("GAP",), ties=ties)
    np.testing.assert_equal(values["GAP"], global_average_precision(problem, ties))


@examples(60)
@given(problem=problems(max_queries=5, max_gallery=6, levels=3))
def test_expected_global_average_precision(problem: dict[str, Any]) -> None:
    values = values_of(problem, ("GAP",), ties="expected")
    expected = global_average_precision(problem, "expected")
    np.testing.assert_allclose(values["GAP"], expected, 0, 1e-13)


def test_ties_of_predictions_are_ties() -> None:
    """Two queries at one distance, one correct: no positive and negative of a query are tied."""
    problem = {
        "distances": np.array([[0.1, 0.9], [0.1, 0.9]]),
        "query_id": np.array([1, 3]),
        "gallery_id": np.array([1, 2]),
    }
    stats = oracle_statistics(**problem)
    found = {
        ties: quietly(stats, MetricOptions(ties, metrics=("GAP", "mAP"))) for ties in ALL_RULES
    }
    values = {ties: one["GAP"] for ties, one in found.items()}
    assert values == {"pessimistic": 0.5, "optimistic": 1.0, "stable": 1.0, "expected": 0.75}
    assert all(one.intervals == {"GAP": (0.5, 1.0)} for one in found.values())
    assert found["stable"].counts["ties"] == 0
