"""Metrics by name: parsed by their declarations, refused where unknown or impossible."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_statistics
from oracle_pairs import with_histogram
from support.metrics import (
    METRICS,
    compute_metrics,
    find_measure,
    metrics_by_group,
    names_of,
    required_fields,
    wanted_measures,
)
from support.package import FIELDS, REQUIRED, stack
from test_metrics import problem_of_every_class, quietly, statistics_of

import streameval as se
from streameval import InputError, MetricOptions, OptionError

NAMES = [one.name for metric in METRICS for one in metric.measures(MetricOptions())]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_read_as_it_is_written(name: str) -> None:
    assert find_measure(name).name == name
    assert sum(len(metric.called(name)) for metric in METRICS) == 1


def test_rank_stands_for_all_that_need_no_thresholds() -> None:
    named, listed = wanted_measures(MetricOptions(metrics=("rank",)))
    _, every = wanted_measures(MetricOptions(metrics=("all",)))
    unranked = {one.name for one in every} - {one.name for one in listed}
    assert not named
    assert {"CMC@1", "mAP", "mINP", "DIR@1|FAR=0.01"} <= {one.name for one in listed}
    assert {"mReP_max", "EER", "FMR@tau=0.5"} <= unranked
    needed = required_fields(MetricOptions(metrics=("rank",)))
    assert needed.isdisjoint({"thresholds", "negatives_within", "impostor_histogram"})


@given(x=st.integers(1, 10**9), f=st.floats(0, 1))
def test_parameters_keep_every_digit(x: int, f: float) -> None:
    name = f"DIR@{x}|FAR={f!r}"
    measure = find_measure(name)
    assert measure.values == (x, f)
    assert find_measure(measure.name) == measure


def test_every_threshold_has_a_name() -> None:
    for t in range(101):
        assert find_measure(f"FMR@tau={t / 100:g}").values == (t / 100,)
        assert find_measure(f"FMR@tau=0.{t:02}" if t < 100 else "FMR@tau=1.00").values == (t / 100,)


def test_one_metric_has_one_name() -> None:
    for text in ("TAR|FAR=1e-6", "TAR|FAR=0.000001", "TAR|FAR=1E-06"):
        assert find_measure(text).name == "TAR|FAR=1e-06"
    options = MetricOptions(metrics=("CMC@1", "CMC@1", "retrieval"))
    named, listed = wanted_measures(options)
    names = [one.name for one in (*named, *listed)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Rank-0", ["unknown metric 'Rank-0'", "`streameval metrics` lists all"]),
        ("mAP@7", ["that is mAP@7/hits or mAP@7/total or mAP@7/min;"]),
        ("F1@tau=0.5", ["that is F1/micro@tau=0.5 or F1/macro@tau=0.5;"]),
        ("rank-first", ["unknown metric 'rank-first': none has a name like it"]),
        ("nAP", ["unknown metric 'nAP': the nearest are mAP"]),
        ("CMC@0", ["x of CMC@{x} is '0'", "a positive integer"]),
        ("CMC@one", ["x of CMC@{x} is 'one'", "a positive integer"]),
        ("CMC@+1", ["x of CMC@{x} is '+1'"]),
        ("DIR@1|FAR=2", ["f of DIR@{x}|FAR={f} is '2'", "a fraction between 0 and 1"]),
        ("TAR|FAR=nan", ["'nan'", "a fraction between 0 and 1"]),
        ("F1/micro@tau=0.305", ["tau of F1/{average}@tau={tau} is '0.305'", "a multiple of 0.01"]),
        ("mAP@10/all", ["'all'", "hits or total or min"]),
    ],
)
def test_names_that_are_no_metrics(name: str, words: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        find_measure(name)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("Rank-1", "CMC@1"),
        ("rank1", "CMC@1"),
        ("median rank", "MedR"),
        ("MdR", "MedR"),
        ("recall at top 1%", "recall@1%"),
        ("Recall@0.5%", "recall@0.5%"),
        ("rank-10", "CMC@10"),
        ("top-1", "CMC@1"),
        ("top5", "CMC@5"),
        ("R1", "CMC@1"),
        ("R@1", "CMC@1"),
        ("cmc@1", "CMC@1"),
        ("mAp", "mAP"),
        ("AP", "mAP"),
        ("precision@5", "P@5"),
        ("map@r", "MAP@R"),
        ("TPR@FPR=1E-3", "TAR|FAR=0.001"),
        ("TPIR@5|FPIR=0.01", "DIR@5|FAR=0.01"),
    ],
)
def test_names_of_the_field_are_understood(name: str, ours: str) -> None:
    assert find_measure(name).name == ours


def test_a_result_and_its_tables_understand_the_names_of_the_field() -> None:
    rng = np.random.default_rng(0)
    sides = [se.Labels(id=rng.integers(0, 5, n), cam=rng.integers(0, 2, n)) for n in (20, 60)]
    result = se.evaluate(
        se.Distances(rng.random((20, 60))),
        query=sides[0],
        gallery=sides[1],
        metrics="rank1,R5,ap",
    )
    assert list(result.metrics.scalars) == ["CMC@1", "CMC@5", "mAP"]
    for name in ("Rank-1", "rank1", "top-1", "R1", "CMC@1"):
        assert result[name] == result.metrics.scalars["CMC@1"]
    assert list(result.with_options(metrics="Rank-20").metrics.scalars) == ["CMC@20"]
    cells = [result.camera_matrix(name).values for name in ("CMC@1", "rank1")]
    np.testing.assert_array_equal(*cells)
    for name in ("rank10", "mAP@10", "none"):
        with pytest.raises(KeyError, match=f"no metric '{name}'; there are CMC@1, CMC@5, mAP"):
            result[name]


def test_names_elsewhere_stand_for_one_metric() -> None:
    for metric in METRICS:
        for template in metric.also:
            name = template.format_map(
                {"x": 3, "k": 3, "p": 3, "r": 0.3, "f": 0.3, "tau": 0.3, "precision": 0.3}
            )
            named = [one for other in METRICS for one in other.called(name)]
            assert named, name
            assert {one.metric.name for one in named} == {metric.name}, name


def test_only_what_is_asked_for_is_computed() -> None:
    stats = statistics_of(problem_of_every_class())
    metrics = compute_metrics(stats, MetricOptions(metrics=("MREP", "mAP", "CMC@3")))
    assert list(metrics.scalars) == ["CMC@3", "mAP", "MREP"]
    assert "mFR" not in metrics.curves
    everything = quietly(stats, MetricOptions(metrics=("all",)))
    parts = quietly(stats, MetricOptions(metrics=("gom", "retrieval", "open-set", "verification")))
    assert everything.scalars.keys() == parts.scalars.keys()
    assert "EER" not in everything.scalars  # the statistics have no histogram
    whole = with_histogram(stats, problem_of_every_class())
    held = [name for name in NAMES if "sampled" not in name]  # the statistics have no draws
    assert list(quietly(whole, MetricOptions(metrics=("all",))).scalars) == held


def test_what_a_plan_has_to_count() -> None:
    assert required_fields(MetricOptions(metrics=("MFR",))) == {
        "indptr",
        "thresholds",
        "negatives_within",
        "same_identity",
    }
    assert "impostor_histogram" in required_fields(MetricOptions(metrics=("EER",)))
    assert required_fields(MetricOptions()) <= REQUIRED
    assert required_fields(MetricOptions(metrics=("all",))) <= set(FIELDS)


def test_what_statistics_cannot_give_says_which_run_would() -> None:
    stats = oracle_statistics(**problem_of_every_class())
    with pytest.raises(
        OptionError,
        match=r"MREP needs thresholds, negatives_within, which .* do "
        r"not hold: evaluate again.*--metrics 'MREP'",
    ):
        compute_metrics(stats, MetricOptions(metrics=("MREP",)))
    with pytest.raises(OptionError, match="EER needs impostor_histogram, histogram_edges"):
        compute_metrics(statistics_of(problem_of_every_class()), MetricOptions(metrics=("EER",)))


def test_a_run_refuses_what_it_will_not_count_before_any_work() -> None:
    source = se.Distances(np.ones((1, 2)))
    labels = {"query": se.Labels([1]), "gallery": se.Labels([1, 2])}
    with (
        patch("streameval.request.FIELDS", REQUIRED),
        pytest.raises(OptionError, match="EER needs histogram_edges, impostor_histogram, which no"),
    ):
        se.evaluate(source, **labels, protocol="no-camera", metrics=["EER"])
    with pytest.raises(OptionError, match="unknown metric 'rank-one'"):
        se.evaluate(source, **labels, protocol="no-camera", metrics=["rank-one"])


def test_names_in_one_text_or_several() -> None:
    what: dict[str, Any] = {"query": se.Labels([1]), "gallery": se.Labels([1, 2])}
    for names in ("mAP,CMC@1", ["mAP", "CMC@1"]):
        result = se.evaluate(
            se.Distances(np.array([[0.1, 0.2]])), **what, protocol="no-camera", metrics=names
        )
        assert result.metrics.scalars == {"CMC@1": 1.0, "mAP": 1.0}


def test_names_are_split_at_commas() -> None:
    assert names_of(" CMC@1, mAP,,MREP ", "metrics") == ("CMC@1", "mAP", "MREP")
    for text in ("", " ,"):
        with pytest.raises(OptionError, match="expected names such as CMC@1,mAP, or all"):
            names_of(text, "metrics")


def test_groups_are_what_their_queries_alone_would_give() -> None:
    problem = problem_of_every_class()
    stats = with_histogram(statistics_of(problem), problem)
    labels = np.array(["b", "a", "b", "a", "b", "c"])
    options = MetricOptions(metrics=("all",))
    groups = metrics_by_group(stats, labels, options)
    assert list(groups) == ["a", "b", "c"]
    for label, metrics in groups.items():
        rows = labels == label
        own = {
            name: value[rows] if name in ("distances", "query_id", "query_cam") else value
            for name, value in problem.items()
        }
        alone = oracle_statistics(**own, thresholds=stats.thresholds)
        assert stats.take(rows).equals(alone)
        expected = quietly(alone, options)
        for name, value in expected.scalars.items():
            np.testing.assert_equal(metrics.scalars[name], value, name)
        assert metrics.counts == expected.counts
        assert math.isnan(metrics.scalars["EER"])
        assert metrics.details["EER"].reason.startswith("counted over all queries together")
    assert metrics_by_group(stats, labels == "", MetricOptions()).keys() == {False}


@pytest.mark.parametrize("labels", [np.zeros(5, int), np.zeros((6, 1), int)])
def test_groups_need_a_label_a_query(labels: Any) -> None:
    stats = statistics_of(problem_of_every_class())
    with pytest.raises(InputError, match="6 queries: one label a query is needed"):
        metrics_by_group(stats, labels)


def test_statistics_with_a_histogram_merge_stack_and_start_from_zero() -> None:
    problem = problem_of_every_class()
    stats = with_histogram(statistics_of(problem), problem)
    assert stats.histogram_edges is not None
    zero = type(stats).zero(
        stats.indptr,
        stats.positive_distance,
        stats.thresholds,
        stats.histogram_edges,
        stats.positive_item,
    )
    assert zero.merge(stats).equals(stats)
    with pytest.raises(ValueError, match="differ in impostor_histogram"):
        stats.merge(statistics_of(problem))
    halves = []
    for rows in (slice(0, 2), slice(2, 6)):
        own = {
            name: value[rows] if name in ("distances", "query_id", "query_cam") else value
            for name, value in problem.items()
        }
        halves.append(with_histogram(oracle_statistics(**own, thresholds=stats.thresholds), own))
    assert stack(halves).equals(stats)
    with pytest.raises(ValueError, match="both or neither"):
        type(stats)(
            **{f.name: getattr(stats, f.name) for f in fields(stats)} | {"histogram_edges": None}
        )
