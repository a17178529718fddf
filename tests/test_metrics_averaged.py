"""Means over groups of queries of the groups' means, against plain loops."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_statistics
from problems import problems
from profiles import examples
from support.metrics import METRICS, Identities, Resampling, measures_of, resampled_values
from test_cli import CSV, STORED, data, run
from test_cli_metrics import call, summary
from test_metrics import ALL_RULES, quietly
from test_metrics_lists import READINGS

import streameval as se
from streameval import MetricOptions

__all__ = ["data"]

HOW = Resampling(resamples=9, seed=2)
NAMES = (*READINGS, "mAP", "mP@recall=0.5")
MEANS = tuple(one.name for one in METRICS if one.values is not None)


def averaged(column: np.ndarray, group: np.ndarray) -> float:
    """Return the mean of the means of a per-query column by group; NaN is of no query."""
    means = []
    for label in sorted(set(group.tolist())):
        own = [value for value, of in zip(column, group, strict=True) if of == label]
        own = [value for value in own if not math.isnan(value)]
        if own:
            means.append(math.fsum(own) / len(own))
    return math.fsum(means) / len(means) if means else math.nan


def columns_of(found: Any, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the per-query columns of metrics by the metrics' names."""
    return {
        name: found.per_query[{"mAP": "AP", "MRR": "RR", "mINP": "INP"}.get(name, name)]
        for name in names
        if name != "mP@recall=0.5"
    }


@examples(60)
@given(
    problem=problems(max_queries=12),
    ties=st.sampled_from(ALL_RULES),
    unmatched=st.sampled_from(["exclude", "miss"]),
    groups=st.integers(1, 5),
)
def test_means_of_means_equal_plain_loops(
    problem: dict[str, Any], ties: Any, unmatched: Any, groups: int
) -> None:
    stats = oracle_statistics(**problem)
    group = np.random.default_rng(groups).integers(0, groups, stats.queries)
    names = NAMES if ties != "expected" else NAMES[:-1]
    options = MetricOptions(ties, metrics=names, unmatched=unmatched, average="day")
    found = quietly(stats.with_mean_group(group), options)
    assert not found.curves
    for name, column in columns_of(found, names).items():
        np.testing.assert_equal(
            found[name], averaged(column, group) if stats.has_positive.any() else math.nan, name
        )
    usual = quietly(stats, MetricOptions(ties, metrics=names, unmatched=unmatched))
    for name, column in columns_of(usual, names).items():
        np.testing.assert_array_equal(columns_of(found, names)[name], column)
    alone = quietly(stats.with_mean_group(group * 0), options)
    assert alone.scalars == pytest.approx(usual.scalars, rel=1e-15, nan_ok=True)
    assert alone.intervals.keys() == usual.intervals.keys()


@examples(40)
@given(
    problem=problems(max_queries=14),
    unmatched=st.sampled_from(["exclude", "miss"]),
    nested=st.booleans(),
)
def test_resamples(problem: dict[str, Any], unmatched: Any, nested: bool) -> None:
    """Groups of one identity are drawn with it, as often; others are there once."""
    stats = oracle_statistics(**problem)
    if not stats.has_positive.any():
        return
    rng = np.random.default_rng(3)
    identities = Identities(problem["query_id"])
    group = rng.integers(0, 3, stats.queries)
    if nested:
        group = group + 10 * identities.code
    options = MetricOptions(metrics=("mAP", "P@3"), unmatched=unmatched, average="day")
    grouped = stats.with_mean_group(group)
    measures = measures_of(options, grouped)
    values = resampled_values(grouped, options, measures, identities, HOW)
    (draws,) = identities.draws(HOW)
    counted = stats.has_positive | (unmatched == "miss")
    pairs = {*zip(group[counted].tolist(), identities.code[counted].tolist(), strict=True)}
    nested = len(pairs) == len(set(group[counted].tolist()))
    for at, drawn in enumerate(draws.astype(int)):
        rows = np.repeat(np.arange(stats.queries), drawn[identities.code])
        copy = np.concatenate([np.arange(n) for n in drawn[identities.code]])
        labels = group[rows] + (1000 * copy if nested else 0)
        taken = stats.take(rows).with_mean_group(labels)
        expected = quietly(taken, options)
        for name, own in values.items():
            np.testing.assert_allclose(own[at], expected[name], 1e-12, err_msg=name)


def evaluation(**given: Any) -> se.Evaluation:
    rng = np.random.default_rng(7)
    query = {"id": rng.integers(0, 9, 40), "cam": rng.integers(0, 3, 40)}
    gallery = {"id": rng.integers(0, 8, 120), "cam": rng.integers(0, 3, 120)}
    site = np.where(query["id"] < 5, "north", "south")
    return se.evaluate(
        se.Distances(rng.random((40, 120)).astype("f4")),
        query={**query, "site": site},
        gallery=gallery,
        threads=1,
        **given,
    )


@pytest.mark.parametrize("column", ["id", "cam", "site"])
def test_any_column_of_the_queries(column: str, tmp_path: Path) -> None:
    usual = evaluation(metrics="CMC@1,mAP")
    found = evaluation(metrics="CMC@1,mAP", average=column)
    expected = averaged(usual.per_query["AP"], usual.columns[column])
    assert found["mAP"] == expected != usual["mAP"]
    assert usual.with_options({"average": column}).metrics.scalars == found.metrics.scalars
    back = found.with_options({"average": ""})
    assert back.metrics.scalars == usual.metrics.scalars
    assert found.summary()["options"]["average"] == column
    assert f"average over {column}" in str(found)
    groups = found.grouped("cam").groups
    rows = usual.columns["cam"] == 1
    assert groups[1]["mAP"] == averaged(usual.per_query["AP"][rows], usual.columns[column][rows])
    low, high = found.confidence(resamples=200).intervals["mAP"]
    assert low < found["mAP"] < high
    found.with_confidence(resamples=50).save(tmp_path / "saved")
    loaded = se.Evaluation.load(tmp_path / "saved")
    assert loaded.summary() == found.with_confidence(resamples=50).summary()
    assert se.compare(found, loaded, resamples=50).differences[0].difference == 0
    with pytest.raises(se.InputError, match=f"differ in options: average  and {column}"):
        se.compare(usual, found)


def test_metrics_by_default_are_those_that_are_means() -> None:
    found = evaluation(average="id")
    assert list(found.metrics.scalars) == ["CMC@1", "CMC@5", "CMC@10", "CMC@20", "mAP", "mINP"]
    every = evaluation(average="id", metrics="all")
    assert {one.metric.name for one in every.measures()} == {*MEANS} - {"CMC_sampled@{x}"}
    with pytest.raises(
        se.OptionError, match=r"MedR, GAP: no mean over queries, and average is 'id'"
    ):
        evaluation(average="id", metrics="mAP,MedR,GAP")
    with pytest.raises(se.OptionError, match=r"EER, .*no mean over queries"):
        evaluation(average="id", metrics="verification")
    with pytest.raises(se.OptionError, match="EER: no mean over queries"):
        evaluation(average="id", metrics="mAP", refine="EER", range=(0, 1))


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        se.InputError,
        match="no column 'day' of groups to average over; the queries have id, cam, site",
    ):
        evaluation(average="day")
    with pytest.raises(se.OptionError, match="average: got 3; expected the name of a label column"):
        evaluation(average=3)
    with pytest.raises(
        se.InputError, match="this run averages over groups by id, and has no curves"
    ):
        evaluation(average="id").plot("CMC")
    features = se.Features(*(np.ones((n, 4), "f4") for n in (3, 5)))
    labels = {"query": se.Labels([1, 2, 3]), "gallery": se.Labels([1, 2, 3, 1, 2])}
    with pytest.raises(se.OptionError, match="indexes are compared by means over queries"):
        se.compare_index(
            features,
            ["Flat"],
            k=2,
            **labels,
            protocol="no-camera",
            options=MetricOptions(average="id"),
        )


def test_lists_and_large_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    distances = rng.random((30, 50))
    labels: dict[str, Any] = {
        "query": {"id": rng.integers(0, 6, 30), "site": rng.integers(0, 3, 30)},
        "gallery": {"id": rng.integers(0, 5, 50)},
        "protocol": "no-camera",
        "metrics": "mAP,CMC@1,P@5",
        "average": "site",
    }
    exact = se.evaluate(se.Distances(distances), **labels)
    order = np.argsort(distances)
    for k in (10, 50):
        lists = order[:, :k], np.take_along_axis(distances, order[:, :k], 1)
        found = se.evaluate(se.Neighbors(*lists), **labels)
        for name, (low, high) in found.metrics.bounds.items():
            assert low <= exact[name] <= high
        assert (found["P@5"], found["CMC@1"]) == (exact["P@5"], exact["CMC@1"])
    assert found.metrics.scalars == exact.metrics.scalars
    rows = rng.standard_normal((30, 4)), rng.standard_normal((50, 4))
    features = se.Features(*(row.astype("f4") for row in rows))
    searched = se.evaluate(se.Neighbors(features=features, index="Flat", k="auto"), **labels)
    assert searched.metrics.scalars == se.evaluate(features, **labels).metrics.scalars
    exact.save(tmp_path / "saved")
    monkeypatch.setattr("streameval.result.stored.WHOLE_BYTES", 0)
    monkeypatch.setattr("streameval.result.stored.BLOCK_BYTES", 2000)
    stored = se.Evaluation.load(tmp_path / "saved")
    assert len(stored.statistics.spans) > 1
    assert stored.metrics.scalars == exact.metrics.scalars
    other = exact.with_options({"average": "id"})
    assert stored.with_options({"average": "id"}).metrics.scalars == other.metrics.scalars
    both = [one.confidence(resamples=20).intervals["mAP"] for one in (stored, exact)]
    assert both[0] == pytest.approx(both[1], rel=1e-12)


def test_a_ledger_averages(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    query = {"id": np.array([1, 1, 1, 2, 3]), "cam": np.zeros(5, int)}
    gallery = se.Labels([1, 2, 3, 1, 2, 3, 3], np.ones(7, int))
    distances = rng.random((5, 7))
    np.save(tmp_path / "d.npy", distances)
    options = MetricOptions(average="id", metrics=("mAP",))
    ledger = se.Ledger.create(tmp_path / "L", query_labels=query, options=options)
    ledger.append(tmp_path / "d.npy", gallery)
    fresh = se.evaluate(se.Distances(distances), query=query, gallery=gallery, options=options)
    assert ledger.evaluation()["mAP"] == fresh["mAP"]
    assert ledger.trajectory[-1].metrics["mAP"] == fresh["mAP"]


@pytest.mark.usefixtures("data")
def test_on_the_command_line() -> None:
    found = summary("--metrics", "mAP", "--average", "id", "--unmatched", "miss", "--out", "out")
    loaded = se.Evaluation.load("out")
    assert found["options"]["average"] == "id"
    assert found["options"]["unmatched"] == "miss"
    column = np.nan_to_num(loaded.per_query["AP"])
    assert found["metrics"]["mAP"] == averaged(column, loaded.columns["id"])
    refused = run(*STORED, *CSV, "--average", "weather", "--metrics", "mAP")
    assert refused.exit_code == 2
    assert "weather" in refused.stderr
    shown = json.loads(call("show", "out", "--json").stdout)
    assert shown["metrics"] == found["metrics"]
    assert Path("out/statistics.zarr/mean_group").exists()
    assert "average=queries" in call("conventions", "out").stdout
