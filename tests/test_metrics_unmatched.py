"""What queries without a positive are to metrics: left out, misses, an error."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_metrics, oracle_statistics, oracle_thresholds
from oracle_lists import average_precision, values_over_lists
from problems import problems
from profiles import examples
from test_metrics import FIXED, quietly
from test_metrics_lists import READINGS

import streameval as se
from streameval import MetricOptions

DISTANCES = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.1, 0.3, 0.2], [0.2, 0.1, 0.3]])
LABELS = {
    "query": se.Labels([1, 2, 9, 3], [0, 0, 0, 0]),  # of 9 none is there; 3 is of its camera alone
    "gallery": se.Labels([1, 2, 3], [1, 1, 0]),
}


def evaluate(metrics: str = "CMC@1,mAP", **given: Any) -> se.Evaluation:
    return se.evaluate(se.Distances(DISTANCES), **LABELS, metrics=metrics, threads=1, **given)


@examples(60)
@given(problem=problems(), ties=st.sampled_from(FIXED))
def test_a_miss_counts_as_zero(problem: dict[str, Any], ties: Any) -> None:
    readings = {**READINGS, "mAP": average_precision(10**6, "total", "step")}
    stats = oracle_statistics(**problem)
    found = quietly(stats, MetricOptions(ties, metrics=tuple(readings), unmatched="miss"))
    for name, read in readings.items():
        values = values_over_lists(problem, ties, read)
        expected = math.fsum(values) / stats.queries if values else math.nan
        np.testing.assert_equal(found[name], expected, name)
    column = found.per_query["AP"]
    assert not np.isnan(column).any() or not stats.has_positive.any()
    assert (column[~stats.has_positive] == 0).all() or not stats.has_positive.any()


@examples(40)
@given(problem=problems(), ties=st.sampled_from(FIXED))
def test_curves_and_gom_count_misses_and_the_open_set_does_not(
    problem: dict[str, Any], ties: Any
) -> None:
    stats = oracle_statistics(
        **problem, thresholds=oracle_thresholds(problem["distances"], 0.0, 1.0)
    )
    scalars, curves, _ = oracle_metrics(**problem, ties=ties)
    found = quietly(stats, MetricOptions(ties, max_rank=20, unmatched="miss"))
    share = stats.has_positive.mean()
    for name in ("CMC@1", "CMC@5", "mAP", "mINP", "mVP_max", "mReP_max", "MREP"):
        np.testing.assert_allclose(found[name], share * scalars[name], 1e-12, err_msg=name)
    for name in ("CMC", "mRP", "mVP", "mReP"):
        expected = share * curves[name][: len(found.curves[name])]
        np.testing.assert_allclose(found.curves[name], expected, 1e-12, err_msg=name)
    for name in ("MFR", "tau_nz", "DIR@1|FAR=0.1"):
        np.testing.assert_equal(found[name], scalars[name], name)


def test_excluded_queries_are_misses_too() -> None:
    usual, missed = evaluate(), evaluate(unmatched="miss")
    assert (usual["CMC@1"], usual["mAP"]) == (0.5, 0.75)
    assert (missed["CMC@1"], missed["mAP"]) == (0.25, 0.375)
    assert missed.counts == usual.counts
    assert "2 queries of Q+, 2 without a positive as misses" in str(missed)
    assert "unmatched miss" in str(missed)
    assert "miss" not in str(usual)
    assert missed.options.unmatched == "miss"
    assert usual.with_options({"unmatched": "miss"}).metrics.scalars == missed.metrics.scalars
    groups = missed.grouped(["a", "a", "a", "b"]).groups
    assert groups["a"]["CMC@1"] == 1 / 3
    assert math.isnan(groups["b"]["CMC@1"])  # no positive in the group


def test_single_gallery_shot_counts_misses() -> None:
    usual = evaluate("CMC@1,CMC@2,CMC_sampled@1", protocol="cuhk03")
    missed = usual.with_options({"unmatched": "miss"})
    for name, value in usual.metrics.items():
        assert missed[name] == value / 2
    np.testing.assert_array_equal(missed.curves["CMC"], usual.curves["CMC"] / 2)


def test_an_error_names_the_first_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(se.InputError, match=r"query 2 has no positive .*\(2 of 4 queries have"):
        evaluate(unmatched="error")
    broken = np.where(DISTANCES < 0.2, np.nan, DISTANCES)
    with pytest.raises(se.InputError, match="query 2 has no positive"):
        se.evaluate(se.Distances(broken), **LABELS, unmatched="error")
    with pytest.raises(se.InputError, match="query 2 has no positive"):
        evaluate().with_options({"unmatched": "error"})
    lists = se.Neighbors(np.argsort(DISTANCES), np.sort(DISTANCES))
    with pytest.raises(se.InputError, match="query 2 has no positive"):
        se.evaluate(lists, **LABELS, metrics="mAP", unmatched="error")
    with pytest.raises(se.OptionError, match="unmatched is error, and no query has a positive"):
        se.Ledger.create(tmp_path / "L", query_labels=LABELS["query"], unmatched="error")
    sides = {"query": LABELS["query"].take(slice(2)), "gallery": LABELS["gallery"]}
    found = se.evaluate(se.Distances(DISTANCES[:2]), **sides, unmatched="error", metrics="mAP")
    assert found["mAP"] == 0.75


def test_a_protocol_sets_it_and_what_is_given_goes_before(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text('ignore = ["same(id, cam)"]\ncmc = "all-shots"\nunmatched = "miss"\n')
    protocol = se.read_protocol(path)
    found = evaluate(protocol=protocol)
    assert (found.options.cmc, found.options.unmatched) == ("all-shots", "miss")
    assert found["CMC@1"] == 0.25
    found.save(tmp_path / "saved")
    assert se.Evaluation.load(tmp_path / "saved").summary() == found.summary()
    given = evaluate(protocol=protocol, unmatched="exclude")
    assert (given.options.cmc, given.options.unmatched) == ("all-shots", "exclude")
    with pytest.raises(se.InputError, match="query 2 has no positive"):
        evaluate(protocol=protocol, options=MetricOptions(unmatched="error"))
    with pytest.raises(
        se.OptionError, match="unmatched of protocol p is 'skip'; one of 'exclude', 'miss', 'error'"
    ):
        se.Protocol("p", unmatched="skip")  # type: ignore[arg-type]


def test_the_conventions_of_tools_set_it() -> None:
    assert evaluate(None, preset="market-matlab")["CMC@1"] == 0.25  # type: ignore[arg-type]
    assert evaluate(None, preset="torchreid")["CMC@1"] == 0.5  # type: ignore[arg-type]


def test_results_that_differ_in_it_are_not_compared() -> None:
    with pytest.raises(se.InputError, match="differ in options: unmatched exclude and miss"):
        se.compare(evaluate(), evaluate(unmatched="miss"))


def test_without_any_positive_there_is_no_value() -> None:
    sides = {"query": se.Labels([7, 8]), "gallery": LABELS["gallery"]}
    with pytest.warns(se.StreamevalWarning, match=r"Q\+ is empty"):
        found = se.evaluate(
            se.Distances(DISTANCES[:2]), **sides, protocol="no-camera", unmatched="miss"
        )
    assert math.isnan(found["mAP"])
    assert np.isnan(found.curves["CMC"]).all()


def test_a_ledger_counts_misses(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", DISTANCES)
    ledger = se.Ledger.create(
        tmp_path / "L", query_labels=LABELS["query"], metrics="CMC@1,mAP", unmatched="miss"
    )
    ledger.append(tmp_path / "d.npy", LABELS["gallery"])
    found = ledger.evaluation()
    assert found.metrics.scalars == evaluate(unmatched="miss").metrics.scalars
    assert found.options.unmatched == "miss"
