"""Every metric equals the oracle, on small problems full of ties."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_metrics, oracle_statistics, oracle_thresholds
from oracle_pairs import with_histogram
from problems import problems, untied
from profiles import examples
from support.metrics import METRICS, Metric, Metrics, RankedQueries, compute_metrics, prefix_sums
from support.package import FIELDS

from streameval import MetricOptions, RankStatistics, StreamevalWarning

FIXED = ("pessimistic", "optimistic", "stable")
ALL_RULES = (*FIXED, "expected")
RATES = (0.0, 0.001, 0.3, 0.5, 1.0)


def statistics_of(problem: dict[str, Any], lo: float = 0.0, hi: float = 1.0) -> RankStatistics:
    thresholds = oracle_thresholds(problem["distances"], lo, hi)
    return oracle_statistics(**problem, thresholds=thresholds)


def quietly(stats: RankStatistics, options: MetricOptions) -> Metrics:
    """Compute metrics where some sets of queries may be empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        return compute_metrics(stats, options)


def assert_same(mine: dict[str, Any], oracle: dict[str, Any], tolerance: float = 0.0) -> None:
    for name, expected in oracle.items():
        np.testing.assert_allclose(mine[name], expected, rtol=0, atol=tolerance, err_msg=name)


@examples(120)
@given(
    problem=problems(),
    ties=st.sampled_from(FIXED),
    ap=st.sampled_from(["step", "trapezoid"]),
    vp=st.sampled_from(["reference", "equation"]),
    budget=st.sampled_from([1, 5, 3000]),
    limits=st.sampled_from([(0.0, 1.0), (-0.3, 0.8), (0.1, 0.4)]),
)
def test_metrics_equal_the_oracle(
    problem: dict[str, Any],
    ties: Any,
    ap: Any,
    vp: Any,
    budget: int,
    limits: tuple[float, float],
) -> None:
    lo, hi = limits
    options = MetricOptions(
        ties, ap, vp, budget, false_accept_rates=RATES, dir_ranks=(1, 3), max_rank=20
    )
    metrics = quietly(statistics_of(problem, lo, hi), options)
    scalars, curves, per_query = oracle_metrics(
        **problem,
        ties=ties,
        ap=ap,
        vp=vp,
        lo=lo,
        hi=hi,
        budget=budget,
        rates=RATES,
        dir_ranks=(1, 3),
    )
    assert metrics.scalars.keys() == scalars.keys()
    assert_same(metrics.scalars, scalars)
    assert metrics.curves.keys() == curves.keys()
    gallery = len(problem["gallery_id"])
    assert_same(metrics.curves, {**curves, "CMC": curves["CMC"][:gallery]})
    assert_same(metrics.per_query, per_query)


@examples(60)
@given(
    problem=problems(max_queries=3, max_gallery=8, levels=3),
    ap=st.sampled_from(["step", "trapezoid"]),
    vp=st.sampled_from(["reference", "equation"]),
)
def test_expected_is_the_mean_over_all_tie_breaks(
    problem: dict[str, Any], ap: Any, vp: Any
) -> None:
    options = MetricOptions("expected", ap, vp, 5, dir_ranks=(1, 3))
    metrics = quietly(statistics_of(problem), options)
    scalars, curves, per_query = oracle_metrics(
        **problem, ties="expected", ap=ap, vp=vp, budget=5, dir_ranks=(1, 3)
    )
    # The place of a maximum may move where two thresholds are equal within rounding.
    del scalars["tau_max"]
    assert_same(metrics.scalars, scalars, 1e-14)
    assert_same(
        metrics.curves, {**curves, "CMC": curves["CMC"][: len(metrics.curves["CMC"])]}, 1e-14
    )
    assert_same(metrics.per_query, per_query, 1e-13)


@examples(40)
@given(problem=problems(), ap=st.sampled_from(["step", "trapezoid"]))
def test_without_ties_all_rules_are_equal(problem: dict[str, Any], ap: Any) -> None:
    stats = statistics_of(untied(problem), 0.0, 9.0)
    assert not stats.tied.any()
    reference = quietly(stats, MetricOptions(ap=ap))
    assert reference.intervals == {}
    for ties in ALL_RULES:
        metrics = quietly(stats, MetricOptions(ties, ap))
        assert_same(metrics.scalars, reference.scalars)
        assert_same(metrics.curves, reference.curves)


@examples(60)
@given(problem=problems(), vp=st.sampled_from(["reference", "equation"]))
def test_every_rule_is_between_pessimistic_and_optimistic(problem: dict[str, Any], vp: Any) -> None:
    stats = statistics_of(problem)
    values = {ties: quietly(stats, MetricOptions(ties, vp=vp)) for ties in ALL_RULES}
    low, high = values["pessimistic"].scalars, values["optimistic"].scalars
    for name in low.keys() - {"tau_max", "tau_nz"}:
        if np.isnan(low[name]):
            continue
        assert low[name] <= values["stable"].scalars[name] <= high[name], name
        assert low[name] - 1e-14 <= values["expected"].scalars[name] <= high[name] + 1e-14, name
    differ = {name for name in low if low[name] != high[name] and not np.isnan(low[name])}
    for ties in ALL_RULES:
        assert values[ties].intervals.keys() == differ
        for name, interval in values[ties].intervals.items():
            assert interval == tuple(sorted((low[name], high[name])))


@examples(30)
@given(problem=problems(), ties=st.sampled_from(ALL_RULES), seed=st.integers(0, 99))
def test_query_order_agnosticism(problem: dict[str, Any], ties: Any, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(problem["query_id"]))
    shuffled = dict(problem)
    for name in {"distances", "query_id", "query_cam"} & problem.keys():
        shuffled[name] = problem[name][order]
    one = quietly(statistics_of(problem), MetricOptions(ties))
    other = quietly(statistics_of(shuffled), MetricOptions(ties))
    assert_same(one.scalars, other.scalars)
    assert_same(one.curves, other.curves)
    assert one.counts == other.counts


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("ties", ALL_RULES)
def test_metric_reads_only_the_fields_it_declares(metric: Metric, ties: Any) -> None:
    stats = statistics_of(problem_of_every_class())
    stats = with_shots(with_histogram(stats, problem_of_every_class()))
    assert stats.impostor_histogram is not None
    group = np.zeros(stats.queries, np.int64)
    stats = replace(stats, group=group, group_histogram=stats.impostor_histogram[None])
    blanked = {
        f.name: getattr(stats, f.name)
        if f.name in (*metric.needs, "indptr", "thresholds") or getattr(stats, f.name) is None
        else np.zeros_like(getattr(stats, f.name))
        for f in fields(stats)
    }
    options = MetricOptions(ties)
    for measure in metric.measures(options):
        with np.errstate(all="ignore"):
            value = measure.finish(RankedQueries(stats, options).totals)
            again = measure.finish(RankedQueries(RankStatistics(**blanked), options).totals)
        assert_same({"": again.value}, {"": value.value})
        assert again.threshold == value.threshold
        assert_same(again.curves, value.curves)
        assert_same(again.per_query, value.per_query)


def with_shots(stats: RankStatistics) -> RankStatistics:
    """Add probabilities of single gallery shot, ascending with the rank."""
    shots = np.random.default_rng(0).random((2, stats.queries, 3, 30))
    single, sampled = np.sort(shots, axis=-1)
    return replace(stats, single_shot=single, sampled_shots=sampled)


def test_curves_and_columns_of_one_name_are_the_same() -> None:
    problem = problem_of_every_class()
    stats = with_shots(with_histogram(statistics_of(problem), problem))
    ranked = RankedQueries(stats, MetricOptions())
    measures = [one for metric in METRICS for one in metric.measures(MetricOptions())]
    assert len({one.name for one in measures}) == len(measures)
    seen: dict[str, Any] = {}
    for measure in measures:
        value = measure.finish(ranked.totals)
        for name, curve in {**value.curves, **value.per_query}.items():
            assert_same({name: curve}, {name: seen.setdefault(name, curve)})


def problem_of_every_class() -> dict[str, Any]:
    """Return three queries of Q+, two of Q−, one excluded; ties in the first two."""
    return {
        "distances": np.array(
            [
                [0.2, 0.2, 0.5, 0.9, 0.1],
                [0.3, 0.3, 0.3, 0.3, 0.1],
                [0.1, 0.6, 0.7, 0.2, 0.1],
                [0.4, 0.5, 0.8, 0.4, 0.1],
                [0.6, 0.9, 0.7, 0.9, 0.1],
                [0.2, 0.2, 0.2, 0.2, 0.1],
            ]
        ),
        "query_id": np.array([1, 1, 2, 7, 8, 3]),
        "gallery_id": np.array([1, 2, 1, 3, -1]),
        "query_cam": np.array([0, 0, 0, 0, 0, 5]),
        "gallery_cam": np.array([1, 1, 1, 5, 1]),
    }


def test_counts_and_columns() -> None:
    metrics = compute_metrics(statistics_of(problem_of_every_class()))
    assert metrics.counts == {
        "queries": 6,
        "queries_positive": 3,
        "queries_negative": 2,
        "queries_excluded": 1,
        "pairs_positive": 5,
        "pairs_ignored": 7,
        "ties": 5,
    }
    columns = metrics.per_query
    assert columns["class"].tolist() == [*["positive"] * 3, *["negative"] * 2, "excluded"]
    assert columns["positives"].tolist() == [2, 2, 1, 0, 0, 0]
    assert columns["negatives"].tolist() == [2, 2, 3, 4, 4, 3]
    assert columns["ignored"].tolist() == [1, 1, 1, 1, 1, 2]
    assert columns["ties"].tolist() == [1, 4, 0, 0, 0, 0]
    np.testing.assert_array_equal(columns["nearest_positive"][:4], [0.2, 0.3, 0.6, np.nan])
    np.testing.assert_array_equal(columns["nearest_negative"], [0.2, 0.3, 0.1, 0.4, 0.6, 0.2])


def test_without_thresholds_gom_is_absent() -> None:
    stats = oracle_statistics(**problem_of_every_class())
    metrics = compute_metrics(stats)
    assert not {"mReP", "mFR", "tau"} & metrics.curves.keys()
    assert not {"MREP", "MFR", "tau_nz"} & metrics.scalars.keys()
    assert {"mAP", "DIR@1|FAR=0.01"} <= metrics.scalars.keys()


def test_the_roc_is_the_best_at_each_achievable_rate() -> None:
    problem = {  # two of four queries of Q− accepted at once, at 0.3
        "distances": np.array([[0.2], [0.3], [0.35], [0.9], [0.1], [0.3], [0.3], [0.6]]),
        "query_id": np.array([1, 1, 1, 1, 6, 7, 8, 9]),
        "gallery_id": np.array([1]),
    }
    stats = oracle_statistics(**problem)
    metrics = compute_metrics(
        stats, MetricOptions(false_accept_rates=(0, 0.25, 0.5, 0.74, 0.75, 1))
    )
    assert metrics.curves["FAR"].tolist() == [0, 0.25, 0.75, 1]
    assert metrics.curves["DIR@1"].tolist() == [0, 0.25, 0.75, 1]
    assert metrics.curves["ROC_tau"].tolist() == [0.1, 0.3, 0.6, np.inf]
    scalars = [v for name, v in metrics.scalars.items() if name.startswith("DIR@1")]
    assert scalars[1:] == [0.25, 0.25, 0.25, 0.75, 1]
    assert np.isnan(scalars[0])


def test_rates_that_strangers_cannot_support_are_withheld() -> None:
    problem = {
        "distances": np.linspace(0, 1, 13)[:, None],
        "query_id": np.array([*[1] * 9, 6, 7, 8, 9]),
        "gallery_id": np.array([1]),
    }
    names = tuple(
        f"{name}={f}"
        for name in ("DIR@1|FAR", "TTR/set|FTR", "TTR/individual|FTR")
        for f in (0, 0.1, 0.2499, 0.25, 0.5)
    )
    metrics = quietly(oracle_statistics(**problem), MetricOptions(metrics=names))
    for name, detail in metrics.details.items():
        f = float(name.partition("=")[2])
        if f >= 0.25:
            assert detail.reason == ""
            assert detail.threshold is not None
            continue
        assert np.isnan(metrics.scalars[name])
        assert detail.threshold is None
        assert (
            detail.reason
            == {
                0: "no number of queries of Q− supports a rate of 0",
                0.1: "needs 10 queries of Q−, has 4",
                0.2499: "needs 5 queries of Q−, has 4",
            }[f]
        )
    assert metrics.curves["FAR"][1] == 0.25


@given(st.lists(st.floats(0, 1), max_size=30))
def test_prefix_sums_are_exactly_rounded(values: list[float]) -> None:
    import math

    sums = prefix_sums(np.array(values, dtype=np.float64))
    assert sums.tolist() == [math.fsum(values[:k]) for k in range(len(values) + 1)]


def test_a_declaration_names_fields_and_parameters_that_exist() -> None:
    assert all(set(metric.needs) <= set(FIELDS) for metric in METRICS)
    values = METRICS[0].values
    with pytest.raises(TypeError, match="unknown fields"):
        Metric("x", "", "", values, needs=("colour",))
    with pytest.raises(TypeError, match="has parameters"):
        Metric("x@{k}", "", "", values)
    with pytest.raises(TypeError, match="neither values nor a finish"):
        Metric("x", "", "")
