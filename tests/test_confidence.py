"""Confidence intervals: equal to metrics of queries that are really drawn; what they cover."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.cli import main
from support.metrics import (
    CHOICES,
    Identities,
    Metrics,
    Resampling,
    compute_metrics,
    measures_of,
    normalised_thresholds,
    resampled_values,
)

import streameval as se
from streameval import InputError, OptionError, RankStatistics, StreamevalWarning
from tests.oracle import oracle_statistics
from tests.problems import problems

THRESHOLDS = np.linspace(0, 1, 11)
AT_DISTANCES = ("DIR@1|tau=0.4", "FNIR@2|tau=0.3", "FPIR|tau=0.4")
HOW = Resampling(resamples=7, seed=3)
PLACES = {"tau_max": "mReP"}  # where a maximum is: two places may be equally high but for rounding


def drawn_metrics(stats: RankStatistics, drawn: np.ndarray, options: Any) -> Metrics:
    """Compute the metrics of the queries of a resample, each as often as it is there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        return compute_metrics(stats.take(np.repeat(np.arange(stats.queries), drawn)), options)


def check_resamples(stats: RankStatistics, ids: np.ndarray, options: se.MetricOptions) -> None:
    identities = Identities(ids)
    measures = [one for one in measures_of(options, stats) if one.metric.resamples]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        whole = compute_metrics(stats, options).scalars
    measures = [one for one in measures if not np.isnan(whole[one.name])]
    values = resampled_values(stats, options, measures, identities, HOW)
    (draws,) = identities.draws(HOW)
    assert draws.shape == (HOW.resamples, identities.count)
    assert (draws.sum(axis=1) == identities.count).all()
    for at, drawn in enumerate(draws.astype(int)):
        expected = drawn_metrics(stats, drawn[identities.code], options)
        for name, own in values.items():
            found = own[at]
            if name in PLACES and not np.isnan(found):
                curve = expected.curves[PLACES[name]]
                place = np.flatnonzero(normalised_thresholds(len(curve)) == found)
                assert curve[place] == pytest.approx(curve.max(), abs=1e-12)
            else:
                np.testing.assert_allclose(
                    found, expected.scalars[name], rtol=1e-12, atol=1e-13, err_msg=name
                )


@examples(60)
@given(problems(max_queries=14), st.sampled_from(CHOICES["ties"]), st.data())
def test_resamples_are_metrics_of_the_queries_drawn(
    problem: dict[str, Any], ties: Any, data: st.DataObject
) -> None:
    stats = oracle_statistics(**problem, thresholds=THRESHOLDS)
    options = se.MetricOptions(
        ties=ties,
        ap=data.draw(st.sampled_from(CHOICES["ap"])),
        vp=data.draw(st.sampled_from(CHOICES["vp"])),
        cmc=data.draw(st.sampled_from(("first-match", "all-shots"))),
        unmatched=data.draw(st.sampled_from(("exclude", "miss"))),
        false_rate_budget=3,
        false_accept_rates=(0.1, 0.25, 0.5),
        metrics=("all", *AT_DISTANCES),
    )
    check_resamples(stats, problem["query_id"], options)


@pytest.mark.parametrize("protocol", ["cuhk03", "market1501"])
def test_resamples_of_an_evaluation(protocol: str) -> None:
    result = evaluation(seed=5, protocol=protocol, metrics="all")
    check_resamples(result.statistics, np.asarray(result.columns["id"]), result.options)


def evaluation(seed: int, queries: int = 60, **more: Any) -> se.Evaluation:
    """Evaluate clusters of 10 identities, and queries of 5 others."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((15, 6))
    query, gallery = rng.integers(0, 15, queries), rng.integers(0, 10, 90)
    return se.evaluate(
        se.Features(
            *((centres[ids] + rng.standard_normal((len(ids), 6))) for ids in (query, gallery))
        ),
        query=se.Labels(id=query, cam=rng.integers(0, 3, queries)),
        gallery=se.Labels(id=gallery, cam=rng.integers(0, 3, 90)),
        threads=1,
        **more,
    )


def test_intervals_enclose_the_value_and_follow_the_seed() -> None:
    result = evaluation(seed=1)
    found = result.confidence()
    assert found.identities == len(np.unique(result.columns["id"]))
    for name in ("mAP", "mINP", "CMC@1", "MREP", "MFR", "mReP_max"):
        low, high = found.intervals[name]
        assert low < result[name] < high
    assert result.confidence().intervals == found.intervals
    assert result.confidence(seed=1).intervals != found.intervals
    wide, narrow = (result.confidence(level).intervals["mAP"] for level in (0.99, 0.5))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_draws_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    result = evaluation(seed=2)
    whole = result.confidence(resamples=50).intervals
    monkeypatch.setattr("streameval.metrics.confidence.BLOCK_BYTES", 8 * 15 * 7)
    monkeypatch.setattr("streameval.metrics.confidence.CACHED_BYTES", 8 * 60 * 3)
    parts = result.confidence(resamples=50).intervals
    assert parts.keys() == whole.keys()
    for name, interval in parts.items():
        assert interval == pytest.approx(whole[name], rel=1e-12)


def test_what_has_no_interval_says_why() -> None:
    result = evaluation(seed=3, metrics="mAP,EER,AUC,DIR@1|FAR=0.5")
    scarce = f"DIR@1|FAR={1 / result.counts['queries_negative']!r}"  # in many resamples, too few
    result = result.with_options(metrics=(*result.options.metrics, scarce))
    assert not np.isnan(result[scarce])
    found = result.confidence()
    assert set(found.intervals) == {"mAP", "DIR@1|FAR=0.5"}
    assert "histogram" in found.reasons["EER"]
    assert "resamples" in found.reasons[scarce]
    extreme = evaluation(seed=3).confidence()
    assert "extreme" in extreme.reasons["tau_nz"]
    one = se.evaluate(
        se.Distances(np.array([[0.1, 0.2], [0.3, 0.4]])),
        query=se.Labels(id=np.array([1, 1])),
        gallery=se.Labels(id=np.array([1, 2])),
        protocol="no-camera",
    ).confidence()
    assert not one.intervals
    assert "one identity" in one.reasons["mAP"]


def test_the_summary_is_saved_with_its_intervals_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = evaluation(seed=1)
    assert "confidence" not in result.summary()
    chosen = result.with_confidence(0.9, resamples=100, seed=4)
    own = chosen.confidence(0.9, resamples=100, seed=4)
    assert chosen.chosen_confidence is not None
    assert chosen.chosen_confidence.intervals == own.intervals
    summary = json.loads(json.dumps(chosen.summary(), allow_nan=False))["confidence"]
    assert summary["how"] == {"level": 0.9, "resamples": 100, "seed": 4}
    assert summary["intervals"]["mAP"] == list(own.intervals["mAP"])
    chosen.save("saved")
    assert se.Evaluation.load("saved").summary() == chosen.summary()
    shown = CliRunner().invoke(main, ["show", "saved"]).stdout
    low, high = own.intervals["mAP"]
    assert f"{100 * low:.2f} - {100 * high:.2f} %" in shown
    assert "90 % intervals" in shown
    other = CliRunner().invoke(main, ["show", "saved", "--ci", "99", "--json", "--metrics", "mAP"])
    assert json.loads(other.stdout)["confidence"]["how"]["level"] == 0.99
    assert list(json.loads(other.stdout)["confidence"]["intervals"]) == ["mAP"]


def test_a_run_prints_and_saves_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("distances.npy", rng.random((12, 30)))
    np.save("query_ids.npy", rng.integers(0, 6, 12))
    np.save("gallery_ids.npy", rng.integers(0, 5, 30))
    given = ["evaluate", "--distances", "distances.npy", "--query-ids", "query_ids.npy"]
    given += ["--gallery-ids", "gallery_ids.npy", "--protocol", "no-camera", "--quiet"]
    printed = CliRunner().invoke(main, [*given, "--ci", "95", "--out", "result"])
    assert printed.exit_code == 0
    assert "95 % intervals" in printed.stdout
    summary = json.loads(Path("result/summary.json").read_text())
    low, high = summary["confidence"]["intervals"]["mAP"]
    assert low < summary["metrics"]["mAP"] < high


@pytest.mark.parametrize("level", ["0.95", "100", "-5", "nan"])
def test_a_level_is_a_percentage(level: str) -> None:
    refused = CliRunner().invoke(main, ["show", "nowhere", "--ci", level])
    assert refused.exit_code == 2
    assert "--ci" in refused.stderr


@pytest.mark.parametrize(
    "given", [{"level": 95}, {"level": 0}, {"resamples": 1}, {"seed": -1}, {"seed": 0.5}]
)
def test_what_cannot_be(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(given))):
        evaluation(seed=1, queries=20).confidence(**given)


def test_queries_without_identities_have_no_intervals() -> None:
    result = evaluation(seed=1, queries=20)
    bare = se.Evaluation.compute(
        result.statistics, result.options, range=result.range, columns={}, provenance={}
    )
    with pytest.raises(InputError, match="id"):
        bare.confidence()


@pytest.mark.slow
def test_coverage() -> None:
    """Of 150 samples of 60 clustered identities, about 95 % of the intervals hold the truth."""
    rng = np.random.default_rng(0)
    covered, naive = [], []
    for seed in range(150):
        skill = rng.random(60)  # P[rank 1] of an identity: its 8 queries are not independent
        hit = rng.random((60, 8)) < skill[:, None]
        ids = np.repeat(np.arange(60), 8)
        stats = oracle_of_first_ranks(hit.reshape(-1))
        options = se.MetricOptions(metrics=("CMC@1",))
        measures = measures_of(options, stats)
        for kept, labels in ((covered, ids), (naive, np.arange(len(ids)))):
            how = Resampling(resamples=200, seed=seed)
            values = resampled_values(stats, options, measures, Identities(labels), how)["CMC@1"]
            low, high = np.quantile(values, (0.025, 0.975))
            kept.append(low <= 0.5 <= high)
    assert 0.88 <= np.mean(covered) <= 0.99
    assert np.mean(naive) < 0.8  # what taking the queries as independent would claim


def oracle_of_first_ranks(hit: np.ndarray) -> RankStatistics:
    """Return statistics of queries with one positive and one negative, closer where missed."""
    count = len(hit)
    ones, zeros = np.ones(count, np.int64), np.zeros(count, np.int64)
    return RankStatistics(
        indptr=np.arange(count + 1),
        positive_distance=np.full(count, 0.5),
        thresholds=np.empty(0),
        closer=(~hit).astype(np.int64),
        tied=zeros,
        tied_before=zeros,
        negatives_within=np.empty((count, 0), np.int64),
        nearest_negative=np.where(hit, 0.9, 0.1),
        valid=2 * ones,
        ignored=zeros,
        same_identity=ones,
    )


def test_groups_have_intervals_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = evaluation(seed=1)
    assert plain.grouped("cam").group_confidence == {}
    result = plain.grouped("cam").with_confidence(0.9, resamples=60, seed=4)
    cams, ids = (np.asarray(plain.columns[name]) for name in ("cam", "id"))
    for cam, found in result.group_confidence.items():
        own = cams == cam  # as of a run on these queries alone
        alone = se.Evaluation.compute(
            plain.statistics.take(own),
            plain.options,
            range=plain.range,
            columns={"id": ids[own]},
            provenance={},
        ).confidence(0.9, resamples=60, seed=4)
        assert found.intervals == alone.intervals
        assert found.identities == len(np.unique(ids[own]))
        low, high = found.intervals["mAP"]
        assert low < result.groups[cam].scalars["mAP"] < high
    assert len(result.group_confidence) == 3
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))["groups"]["values"]
    assert set(summary["0"]["confidence"]) == {"identities", "intervals", "reasons"}
    result.save("saved")
    assert se.Evaluation.load("saved").summary() == result.summary()
    with Path("saved/groups.csv").open(newline="") as file:
        rows = {row["cam"]: row for row in csv.DictReader(file)}
    for cam, found in result.group_confidence.items():
        written = tuple(float(rows[str(cam)][f"mAP {end}"]) for end in ("low", "high"))
        assert written == found.intervals["mAP"]
    shown = CliRunner().invoke(main, ["show", "saved"]).stdout
    low, high = result.group_confidence[0].intervals["CMC@1"]
    assert f"({100 * low:.2f}-{100 * high:.2f})" in shown


def test_a_group_of_one_identity_has_none() -> None:
    result = evaluation(seed=1).grouped("id").with_confidence(resamples=20)
    for found in result.group_confidence.values():
        assert not found.intervals
        assert set(found.reasons.values()) <= {
            "the queries are of one identity: there is nothing to draw from",
            *evaluation(seed=1).confidence().reasons.values(),
        }
    assert "confidence" not in str(result.grouped("cam-pair").summary()["groups"]["values"])
