"""Expectations over all draws of a gallery equal the mean over each draw, evaluated by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.cli import main

import streameval as se
from streameval import InputError, OptionError, Protocol

MOST_DRAWS = 400
METRICS = "CMC@1,CMC@2,CMC@3,CMC@50,mAP,mINP,MRR"


def every_draw(gallery: dict[str, np.ndarray], per: list[str], draw: int) -> list[np.ndarray]:
    """Return the rows of every draw of a gallery."""
    rows = np.arange(len(gallery["id"]))
    keys = list(zip(*(gallery[name].tolist() for name in per), strict=True))
    groups = [rows[[key == own for key in keys]] for own in sorted(set(keys))]
    each = (combinations(group.tolist(), min(draw, len(group))) for group in groups)
    return [np.sort(np.concatenate(one)) for one in product(*each)]


def problem(
    rng: np.random.Generator, items: int, ids: int
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return distances with ties, and labels with strangers, junk and single positives."""
    query, gallery = (
        {"id": rng.integers(-1, ids, rows), "cam": rng.integers(0, 2, rows)} for rows in (7, items)
    )
    query["id"][:2] = gallery["id"][:2]  # some query has a positive
    return rng.integers(0, 9, (7, items)).astype(np.float32), query, gallery


def means(found: se.Average, name: str, which: np.ndarray) -> np.ndarray:
    """Return the mean over draws of a metric of each query, [queries]."""
    return np.mean([run.per_query[name][which] for run in found.runs.values()], axis=0)


def computed(distances: np.ndarray) -> se.Computed:
    return se.Computed(lambda query, item: distances[query, item], distances.shape)


def drawn_problems(data: st.DataObject) -> Iterator[Any]:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    per = data.draw(st.sampled_from([["id"], ["id", "cam"], ["cam", "id"]]))
    draw = data.draw(st.integers(1, 3))
    distances, *sides = problem(rng, data.draw(st.integers(3, 11)), data.draw(st.integers(1, 5)))
    draws = every_draw(sides[1], per, draw)
    if len(draws) <= MOST_DRAWS:
        yield distances, sides, per, draw, draws


@pytest.mark.filterwarnings("ignore:no query has a positive")
@examples(150)
@given(data=st.data())
def test_equal_to_the_mean_over_every_draw(data: st.DataObject) -> None:
    cmc = data.draw(st.sampled_from(["first-match", "distinct-identities"]))
    ties = data.draw(st.sampled_from(["pessimistic", "optimistic", "stable"]))
    unmatched = data.draw(st.sampled_from(["exclude", "miss"]))
    for distances, (query, gallery), per, draw, draws in drawn_problems(data):
        rules = ["same(id, cam)"] if "cam" in per or unmatched == "miss" else []
        trials = {"draw": draw, "per": per}
        protocol = Protocol("drawn", tuple(rules), cmc=cmc, trials=trials, ties=ties)
        source = computed(distances)
        given = {"query": query, "gallery": gallery, "metrics": METRICS}
        options = se.MetricOptions(unmatched=unmatched)
        all_draws = replace(protocol, trials={**trials, "times": "all"})
        found = se.evaluate(source, **given, protocol=all_draws, options=options)
        each = se.evaluate_all(source, **given, protocols=[protocol], drawn=draws, options=options)[
            "drawn"
        ]
        assert isinstance(each, se.Average)
        missed = 0.0 if unmatched == "miss" else np.nan  # in a draw where all queries are misses
        for name in METRICS.split(","):
            if name.startswith("CMC") or not np.isnan(found[name]):
                values = each.values[name]
                some = not np.isnan(values).all()
                mean = np.mean(np.nan_to_num(values, nan=missed) if some else values)
                assert found[name] == pytest.approx(mean, abs=1e-12, nan_ok=True), name
        curve = each.mean.curves["CMC"]
        if not np.isnan(curve).any():
            assert found.curves["CMC"][: len(curve)] == pytest.approx(curve, abs=1e-12)
        # AP, INP and 1/r of each query of which one positive is drawn, however many others are
        most = np.max([run.per_query["positives"] for run in each.runs.values()], axis=0)
        asks = found.per_query["class"] == "positive"
        for name in ("AP", "INP", "RR"):
            values = found.per_query[name]
            assert np.array_equal(np.isnan(values[asks]), most[asks] > 1) or unmatched == "miss"
            if unmatched == "miss":
                continue
            one = asks & (most == 1)
            assert values[one] == pytest.approx(means(each, name, one), abs=1e-12)


@examples(100)
@given(data=st.data())
def test_what_is_not_drawn_asks(data: st.DataObject) -> None:
    """Each query counts by how likely it asks."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    cmc = data.draw(st.sampled_from(["first-match", "distinct-identities"]))
    draw, size = data.draw(st.integers(1, 2)), data.draw(st.integers(4, 9))
    per, rules = data.draw(st.sampled_from([(["id"], ()), (["id", "cam"], ("same(id, cam)",))]))
    images = {"id": rng.integers(0, 3, size), "cam": rng.integers(0, 2, size)}
    images["id"][:3], images["cam"][:3] = 0, 0  # some are left by each draw of two
    images["id"][3], images["cam"][3] = 0, 1
    distances = rng.integers(0, 9, (size, size)).astype(np.float32)
    draws = every_draw(images, per, draw)
    protocol = Protocol("rest", rules, cmc=cmc, queries="rest", trials={"draw": draw, "per": per})
    given = {"query": images, "gallery": images, "metrics": METRICS}
    found = se.evaluate(computed(distances), **given, protocol=protocol, trials="all")
    each = se.evaluate_all(computed(distances), **given, protocols=[protocol], drawn=draws)["rest"]
    assert isinstance(each, se.Average)
    for name in METRICS.split(","):
        if name.startswith("CMC") or not np.isnan(found[name]):
            assert found[name] == pytest.approx(each.mean[name], abs=1e-12), name
    curve = each.mean.curves["CMC"]
    assert found.curves["CMC"][: len(curve)] == pytest.approx(curve, abs=1e-12)
    assert not np.isnan(found["mAP"]) or draw == 2 or len(per) == 2


def test_vehicleid_and_its_intervals() -> None:
    rng = np.random.default_rng(4)
    images = {"id": np.sort(rng.integers(0, 40, 200))}
    made = (rng.normal(size=(40, 6))[images["id"]] + rng.normal(size=(200, 6))).astype(np.float32)
    given = {"query": images, "gallery": images, "protocol": "vehicleid"}
    found = se.evaluate(se.Features(made, made), **given, trials="all")
    given["protocols"] = [given.pop("protocol")]
    trials = se.evaluate_all(se.Features(made, made), **given, trials=100)["vehicleid"]
    assert isinstance(trials, se.Average)
    for name in ("CMC@1", "CMC@5", "mAP"):
        assert abs(found[name] - trials.mean[name]) < 4 * trials.std[name] / 10
    intervals = found.confidence().intervals
    assert intervals["mAP"][0] < found["mAP"] < intervals["mAP"][1]


@pytest.mark.parametrize(("ahead", "draw"), [(0.01, 1), (0.3, 1), (0.9, 1), (0.4, 3)])
def test_many_identities(ahead: float, draw: int) -> None:
    """Where 1/r is summed by a rule, and CMC leaves out what is negligible."""
    ids, each = 2_000, 5
    rng = np.random.default_rng(3)
    gallery = {"id": np.append(np.repeat(np.arange(1, ids), each), 0)}  # a single positive
    closer = rng.random(len(gallery["id"])) < ahead
    distances = np.where(closer, 0.0, 2.0)[None].astype(np.float32)
    distances[0, -1] = 1.0
    trials = {"draw": draw, "times": "all"}
    found = se.evaluate(
        computed(distances),
        query={"id": [0]},
        gallery=gallery,
        protocol=Protocol("many", (), trials=trials),
        metrics="CMC@1,CMC@20,CMC@100,mAP",
    )
    chance = np.ones(1)
    for number in np.add.reduceat(closer[:-1], np.arange(0, len(closer) - 1, each)).tolist():
        ways = [math.comb(number, j) * math.comb(each - number, draw - j) for j in range(draw + 1)]
        chance = np.convolve(chance, np.array(ways) / math.comb(each, draw))
    assert found["mAP"] == pytest.approx(np.sum(chance / np.arange(1, len(chance) + 1)), rel=1e-12)
    for rank in (1, 20, 100):
        assert found[f"CMC@{rank}"] == pytest.approx(chance[:rank].sum(), rel=1e-12, abs=1e-18)


SIZES = 60, 300
SYSU = replace(
    se.PROTOCOLS["sysu-mm01/all"],
    name="sysu",
    queries="",
    gallery="",
    trials={"per": ["id", "cam"], "times": "all"},
)
SINGLE = Protocol("single", (), trials={"times": "all"})


@pytest.fixture(scope="module")
def features() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    sides = [
        {"id": rng.integers(0, 20, rows), "cam": rng.choice(cams, rows)}
        for rows, cams in zip(SIZES, ([3, 6], [1, 2, 4, 5]), strict=True)
    ]
    centres = rng.normal(size=(20, 8))
    made = [
        np.round(centres[own["id"]] + rng.normal(size=(len(own["id"]), 8)), 1).astype(np.float32)
        for own in sides
    ]
    return {"source": se.Features(*made), "query": sides[0], "gallery": sides[1]}


def arrays(features: dict[str, Any]) -> list[np.ndarray]:
    source = features["source"]
    return [source.query.read_all(), source.gallery.read_all()]


@pytest.mark.parametrize("protocol", [SYSU, SINGLE], ids=lambda one: one.name)
def test_same_bits_however_it_is_cut(
    features: dict[str, Any],
    protocol: Protocol,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = se.evaluate(**features, protocol=protocol, threads=1)
    assert set(expected.metrics) == {"CMC@1", "CMC@5", "CMC@10", "CMC@20", "mAP", "mINP"}
    assert np.isnan(expected["mAP"]) == (protocol is SYSU)
    for options in ({"tile": (7, 13), "threads": 2}, {"tile": (64, 50)}, {"memory": "200MB"}):
        found = se.evaluate(**features, protocol=protocol, **options)
        assert found.statistics.equals(expected.statistics)
    monkeypatch.setattr("streameval.planning.planner._first_round", lambda *_: 16)
    assert se.evaluate(**features, protocol=protocol).statistics.equals(expected.statistics)
    given = features | {"metrics": "CMC@1,mAP"}
    several = se.evaluate_all(**given, protocols=[protocol, "market1501"])
    beside = several[protocol.name]
    assert isinstance(beside, se.Evaluation)
    assert beside.statistics.equals(expected.statistics)


def test_on_a_cluster_from_a_stored_matrix(features: dict[str, Any], tmp_path: Path) -> None:
    query, gallery = arrays(features)
    distances = np.abs(query[:, None] - gallery).sum(axis=2).astype(np.float32)
    zarr.create_array(tmp_path / "d.zarr", data=distances, chunks=(8, 64))
    given = {name: features[name] for name in ("query", "gallery")}
    expected = se.evaluate(computed(distances), **given, protocol=SYSU)
    stored = se.Distances(tmp_path / "d.zarr")
    assert se.evaluate(stored, **given, protocol=SYSU).statistics.equals(expected.statistics)
    with Client(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", dashboard_address=":0"
    ) as client:
        found = se.evaluate(stored, **given, protocol=SYSU, client=client)
    assert found.statistics.equals(expected.statistics)


@pytest.mark.slow
def test_trials_are_about_the_expectation(features: dict[str, Any]) -> None:
    trials = se.evaluate_all(**features, protocols=[SYSU], trials=64)["sysu"]
    assert isinstance(trials, se.Average)
    found = se.evaluate(**features, protocol=SYSU)
    for name in ("CMC@1", "CMC@5", "CMC@10"):
        assert abs(found[name] - trials.mean[name]) < 4 * trials.std[name] / 8


def test_ten_items_of_each_group(features: dict[str, Any]) -> None:
    """All of a group are drawn where there are no more: one draw, and nothing is left to chance."""
    protocol = replace(SYSU, trials={"per": ["id", "cam"], "draw": 100, "times": "all"})
    found = se.evaluate(**features, protocol=protocol)
    whole = se.evaluate(**features, protocol=replace(protocol, trials=None))
    for name in ("CMC@1", "CMC@5", "CMC@10", "CMC@20"):
        assert found[name] == pytest.approx(whole[name], abs=1e-12)


def test_single_gallery_shot_is_the_same_draw(features: dict[str, Any]) -> None:
    """CUHK03's reading of CMC draws an item of each identity, of those that are not ignored."""
    shot = Protocol("shot", (), cmc="single-gallery-shot")
    found, own = (se.evaluate(**features, protocol=one) for one in (SINGLE, shot))
    for name in ("CMC@1", "CMC@5", "CMC@10"):
        assert found[name] == pytest.approx(own[name], abs=1e-12)


def test_saved_averaged_and_shown(features: dict[str, Any], tmp_path: Path) -> None:
    found = se.evaluate(**features, protocol=SINGLE, group_by="cam")
    assert sum(len(found.per_query[name]) for name in ("AP", "INP")) == 2 * SIZES[0]
    assert np.isnan(found.per_query["first_rank"]).all()
    assert "all draws of 1 of the items of each id" in str(found)
    assert "over all draws" in str(found)
    found.save(tmp_path / "out")
    loaded = se.Evaluation.load(tmp_path / "out")
    assert loaded.metrics == found.metrics
    assert loaded.options.over_draws
    assert loaded.with_options(metrics="MRR")["MRR"] == found["mAP"]
    ids = se.evaluate(**features, protocol=SINGLE, average="id")
    grouped = se.evaluate(**features, protocol=SINGLE, group_by="id").groups
    assert ids["mAP"] == pytest.approx(np.mean([own["mAP"] for own in grouped.values()]))
    with pytest.raises(OptionError, match="no exact expectation over all draws"):
        loaded.with_options(metrics="MedR")
    trapezoid = se.evaluate(**features, protocol=SINGLE, ap="trapezoid")
    assert np.isnan(trapezoid["mAP"])
    assert "of ap step" in trapezoid.metrics.details["mAP"].reason


def test_command_line(features: dict[str, Any], tmp_path: Path) -> None:
    names = ["evaluate"]
    for side, array in zip(("query", "gallery"), arrays(features), strict=True):
        np.save(tmp_path / f"{side}.npy", array)
        rows = zip(*features[side].values(), strict=True)
        text = "\n".join(["id,cam", *(f"{one},{cam}" for one, cam in rows)])
        (tmp_path / f"{side}.csv").write_text(text)
        names += [f"--{side}", str(tmp_path / f"{side}.npy")]
        names += [f"--{side}-labels", str(tmp_path / f"{side}.csv")]
    names += ["--protocol", "llcm/ir-to-vis", "--format", "csv"]
    printed = CliRunner().invoke(main, [*names, "--trials", "all"], catch_exceptions=False)
    assert printed.exit_code == 0, printed.output
    source, sides = features["source"], {side: features[side] for side in ("query", "gallery")}
    found = se.evaluate(source, **sides, protocol="llcm/ir-to-vis", trials="all")
    assert f"{found['CMC@1']}" in printed.output
    bad = CliRunner().invoke(main, [*names, "--trials", "some"])
    assert bad.exit_code == 2
    assert "expected a positive integer, or all" in bad.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trials": {"times": "every"}}, "times is 'every'; a whole number of at least 1"),
        ({"trials": {"times": "all", "draw": "given"}}, "the rows are given: give draw"),
        ({"trials": {"times": "all", "side": "query"}}, "queries are drawn"),
        ({"trials": {"times": "all", "per": ["cam"]}}, "groups of one identity; add id"),
        ({"cmc": "all-shots"}, "its cmc is 'all-shots'; 'first-match' or"),
        ({"positive": "same(id) and not same(cam)"}, "give same\\(id\\)"),
        ({"queries": "rest", "self_match": "key"}, "an image is told by its row"),
    ],
)
def test_draws_that_have_no_expectation(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        replace(SINGLE, name="bad", **changes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metrics": "MedR"}, "MedR: no exact expectation over all draws"),
        ({"metrics": "DIR@1|FAR=0.01"}, "no exact expectation over all draws"),
        ({"metrics": "CMC@101"}, "CMC@101 under all draws .* ranks up to 100"),
        ({"protocol": replace(SINGLE, ignore=("same(id, cam)",))}, "ignores pairs by cam"),
        ({"protocol": replace(SINGLE, self_match="index")}, "own image, by index"),
        ({"protocol": "market1501", "trials": "all"}, "market1501 draws no gallery"),
        ({"trials": 0}, "times is 0"),
        ({"trials": 3}, "evaluate_all returns all of them"),
        ({"protocol": replace(SINGLE, queries="rest"), "average": "id"}, "leave average out"),
        ({"protocol": replace(SINGLE, queries="rest")}, "there are 60 queries and 300 items"),
    ],
)
def test_expectations_that_are_refused(
    features: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        se.evaluate(**features, **{"protocol": SINGLE} | options)


def test_neither_lists_nor_rows_that_are_given(features: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="takes the mean over all draws: leave one of them out"):
        se.evaluate_all(**features, protocols=[SINGLE], drawn=[[0, 1]])
    lists = se.Neighbors(np.zeros((SIZES[0], 3), np.int64), np.zeros((SIZES[0], 3), np.float32))
    sides = {side: features[side] for side in ("query", "gallery")}
    with pytest.raises((OptionError, InputError), match="lists leave items out"):
        se.evaluate(lists, **sides, protocol=SINGLE)
