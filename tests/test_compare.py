"""Runs compared: paired resamples, p-values, the queries that changed, and what is refused."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import of_labels as of_labels_in
from support.cli import main
from support.metrics import Identities, Resampling
from support.result import differing, holm_adjusted, p_value

import streameval as se

QUERIES, ITEMS = 80, 120


def model(noise: float, *, items: int = ITEMS, seed: int = 0, **more: Any) -> se.Evaluation:
    """Evaluate features of 20 identities, 4 of them strangers, with so much noise on the side."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, 8))
    query, gallery = np.sort(rng.integers(0, 20, QUERIES)), rng.integers(0, 16, ITEMS)[:items]
    noisy = np.random.default_rng(seed)
    features = [
        centres[ids] + noise * noisy.standard_normal((len(ids), 8)) for ids in (query, gallery)
    ]
    given: dict[str, Any] = {"protocol": "no-camera", "threads": 1, **more}
    return se.evaluate(
        se.Features(*features),
        query=se.Labels(id=query),
        gallery=se.Labels(id=gallery),
        **given,
    )


@pytest.fixture(scope="module")
def good() -> se.Evaluation:
    return model(0.5)


@pytest.fixture(scope="module")
def bad() -> se.Evaluation:
    return model(1.5, seed=1)


def test_differences_are_of_the_same_resamples(good: se.Evaluation, bad: se.Evaluation) -> None:
    found = se.compare(good, bad, metrics="mAP,CMC@1", resamples=40, seed=2)
    identities = Identities(np.asarray(good.columns["id"]))
    (draws,) = identities.draws(Resampling(resamples=40, seed=2))
    gained = []
    for drawn in draws.astype(int):
        queries = np.repeat(np.arange(QUERIES), drawn[identities.code])
        both = [np.nanmean(one.per_query["AP"][queries]) for one in (good, bad)]
        gained.append(both[1] - both[0])
    (own,) = [one for one in found.differences if one.metric == "mAP"]
    assert own.interval == pytest.approx(tuple(np.quantile(gained, (0.025, 0.975))))
    assert own.difference == bad["mAP"] - good["mAP"]
    assert own.interval[1] < 0
    assert own.p == 2 / 41  # no resample on the other side


def test_equal_runs_do_not_differ(good: se.Evaluation) -> None:
    found = se.compare(good, good.with_options(), resamples=50)
    for one in found.differences:
        if one.interval is not None:
            assert one.interval == (0, 0)
        assert math.isnan(one.p) or one.p == one.p_holm == 1
    assert found.changes("run 2")["AP"] == {"better": 0, "worse": 0, "same": len_known(good)}
    assert found.extremes("run 2", 3) == {"better": [], "worse": []}


def len_known(result: se.Evaluation) -> int:
    return result.counts["queries_positive"]


def test_runs_alike_seldom_differ_significantly() -> None:
    """Of 200 pairs of models that are equally good, about one in 20 is taken to differ."""
    rng = np.random.default_rng(0)
    claimed = 0
    for _ in range(200):
        gained = rng.standard_normal((30, 6)) + rng.standard_normal(30)[:, None]  # clustered
        identities = Identities(np.repeat(np.arange(30), 6))
        sums = identities.sums(gained.reshape(-1))
        (draws,) = identities.draws(Resampling(resamples=200, seed=int(rng.integers(1 << 30))))
        claimed += p_value(draws @ sums / draws.sum(axis=1)) <= 0.05
    assert 0.02 <= claimed / 200 <= 0.12


def test_holm_by_hand() -> None:
    assert holm_adjusted([0.01, 0.04, 0.03, math.nan, 0.005]) == pytest.approx(
        [0.03, 0.06, 0.06, math.nan, 0.02], nan_ok=True
    )
    assert holm_adjusted([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_between_the_value_and_bonferroni(values: list[float]) -> None:
    adjusted = holm_adjusted(values)
    assert len(adjusted) == len(values)
    for p, own in zip(values, adjusted, strict=True):
        assert p <= own <= 1
    order = np.argsort(values)
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
    if values:
        assert min(adjusted) == min(len(values) * min(values), 1)


def test_queries_that_got_better_and_worse(good: se.Evaluation, bad: se.Evaluation) -> None:
    found = se.compare(good, bad, names=("good", "bad"), resamples=20)
    assert found.first == "good"
    columns = found.queries("bad")
    assert len(columns["query"]) == len_known(good)
    gained = columns["AP"] - columns["AP_first"]
    assert (np.diff(gained) <= 0).all()
    at = columns["query"]
    np.testing.assert_array_equal(columns["AP"], bad.per_query["AP"][at])
    np.testing.assert_array_equal(columns["first_rank_first"], good.per_query["first_rank"][at])
    np.testing.assert_array_equal(columns["id"], good.columns["id"][at])
    changes = found.changes("bad")["AP"]
    assert changes["worse"] == (gained < 0).sum()
    assert sum(changes.values()) == len(gained)
    worst = found.extremes("bad", 2)["worse"]
    assert worst[0]["AP"] - worst[0]["AP_first"] == gained.min()
    assert json.dumps(found.summary(), allow_nan=False)


def test_a_third_run_is_corrected_for_too(good: se.Evaluation, bad: se.Evaluation) -> None:
    two = se.compare(good, bad, metrics="mAP,CMC@1", resamples=99)
    three = se.compare(good, bad, model(0.6, seed=3), metrics="mAP,CMC@1", resamples=99)
    assert [one.run for one in three.differences] == ["run 2", "run 2", "run 3", "run 3"]
    for one, more in zip(two.differences, three.differences, strict=False):
        assert one.p == more.p
        assert more.p_holm >= one.p_holm


def test_what_has_no_p_value_says_why(good: se.Evaluation, bad: se.Evaluation) -> None:
    names = "mAP,tau_max,EER"
    runs = [model(noise, metrics=names) for noise in (0.5, 1.0)]
    own = {one.metric: one for one in se.compare(*runs, resamples=50).differences}
    assert own["mAP"].reason == ""
    assert math.isnan(own["tau_max"].p)
    assert own["tau_max"].interval is not None
    assert own["EER"].interval is None
    assert "histogram" in own["EER"].reason


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("protocol", {"protocol": "no-camera", "junk_ids": [3]}),
        ("gallery", {"items": 100}),
        ("options", {"ties": "optimistic"}),
        ("options", {"range": (0.0, 2.5)}),
    ],
)
def test_unlike_runs_are_compared_despite_it_only(
    good: se.Evaluation, kind: str, more: dict[str, Any]
) -> None:
    other = model(0.5, **more)
    with pytest.raises(se.InputError, match=f"differ in {kind}: .*--despite {kind}"):
        se.compare(good, other)
    despite = ["gallery", "protocol"] if kind == "protocol" else [kind]  # junk is left out
    found = se.compare(good, other, despite=despite, resamples=20)
    assert f"differ in {kind}" in found.remarks[0]


def of_labels(**gallery: Any) -> se.Evaluation:
    """Evaluate 3 queries of the identities 0 to 2; `gallery` is other labels than the usual."""
    how = {"protocol": "separate-camera", **gallery.pop("how", {})}
    usual = {"id": [0, 1, 2, 7, 8, 9], "cam": [1, 1, 1, 0, 1, 2]}
    return se.evaluate(
        se.Distances(np.arange(18.0).reshape(3, 6)),
        query=se.Labels(id=np.arange(3), cam=np.zeros(3, int)),
        gallery=se.Labels(**{**usual, **gallery}),
        **how,
    )


def of_junk(item: int) -> dict[str, Any]:
    pairs = se.ListedPairs.of([[0], [1], [2]], [[item], [], []])
    return {"how": {"protocol": None, "listed": pairs}}


@pytest.mark.parametrize(
    ("first", "other", "words"),
    [
        ({}, {"id": [0, 1, 2, 8, 7, 9]}, "gallery ids"),
        ({}, {"cam": [1, 1, 1, 1, 0, 2]}, "gallery cams"),  # another item is ignored
        (of_junk(4), of_junk(5), "listed pairs"),
    ],
)
def test_galleries_differ_in_what_no_count_tells(
    first: dict[str, Any], other: dict[str, Any], words: str, tmp_path: Path
) -> None:
    of_labels(**other).save(tmp_path / "other")
    runs = of_labels(**first), tmp_path / "other"
    with pytest.raises(se.InputError, match=f"differ in gallery: the {words}.*--despite gallery"):
        se.compare(*runs, resamples=5)
    found = se.compare(*runs, resamples=5, despite=["gallery"])
    assert words in found.remarks[0]


def test_equal_labels_compare_however_they_are_held() -> None:
    earlier = of_labels(id=[0, 1, 2, 8, 7, 9])
    earlier.provenance["label_fingerprints"].clear()  # as of an earlier version
    narrow = np.array([0, 1, 2, 7, 8, 9], np.uint8)
    for one in (of_labels(id=narrow), earlier):
        assert differing(of_labels(), one) == {}
    with_cameras, without = (
        of_labels(how={"protocol": "no-camera"}, **more) for more in ({}, {"cam": None})
    )
    assert differing(with_cameras, without) == {}


@given(st.lists(st.text(max_size=3).filter(lambda text: "\0" not in text), min_size=1, max_size=9))
def test_fingerprints_of_labels(labels: list[str]) -> None:
    own = np.array(labels)
    assert of_labels_in(own) == of_labels_in(own.astype("U30"))
    assert of_labels_in(own) != of_labels_in(np.array([*labels[:-1], labels[-1] + "."]))
    assert of_labels_in(own) != of_labels_in(np.array([*labels, ""]))


def test_other_queries_are_never_compared(good: se.Evaluation) -> None:
    rng = np.random.default_rng(0)
    for ids, words in ((rng.integers(0, 20, QUERIES), "has id"), (np.arange(9), "80 and 9")):
        other = se.evaluate(
            se.Distances(rng.random((len(ids), ITEMS))),
            query=se.Labels(id=ids),
            gallery=se.Labels(id=rng.integers(0, 16, ITEMS)),
            protocol="no-camera",
        )
        with pytest.raises(se.InputError, match=words):
            se.compare(good, other, despite=("protocol", "gallery", "options"))


@pytest.mark.parametrize(
    ("count", "more", "words"),
    [
        (1, {}, "at least two"),
        (2, {"despite": ("queries",)}, "known: protocol"),
        (2, {"names": ("a", "a")}, "all different"),
        (2, {"metrics": "mAPP"}, "mAPP"),
    ],
)
def test_what_cannot_be(good: se.Evaluation, count: int, more: Any, words: str) -> None:
    with pytest.raises(se.errors.OptionError, match=words):
        se.compare(*[good] * count, **more)


@pytest.fixture
def saved(
    good: se.Evaluation, bad: se.Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    monkeypatch.chdir(tmp_path)
    good.save("good")
    bad.save("bad")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


@pytest.mark.usefixtures("saved")
def test_printed_it_is_what_the_command_prints() -> None:
    found = se.compare("good", "bad", resamples=50)
    assert f"{found}\n" == run("good", "bad", "--resamples", "50").stdout
    shown = found._repr_html_()
    for words in ("Compared with", "Queries that got worse", "mAP"):
        assert words in str(found)
        assert words in shown


@pytest.mark.usefixtures("saved")
@pytest.mark.slow
def test_the_command() -> None:
    printed = run("good", "bad", "--resamples", "100")
    assert printed.exit_code == 0, printed.output
    for words in ("Compared with  good", "mAP", "Queries that got worse", "Holm", "100 resamples"):
        assert words in printed.stdout
    summary = json.loads(run("good", "bad", "--resamples", "100", "--json", "--ci", "90").stdout)
    assert summary["runs"] == ["good", "bad"]
    assert summary["how"] == {"level": 0.9, "resamples": 100, "seed": 0}
    assert len(summary["queries"]["bad"]["worse"]) == 5
    assert run("good", "bad", "--out", "table.txt").stdout == ""
    assert "mAP" in Path("table.txt").read_text()
    again = run("good", "bad", "--out", "table.txt")
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr
    assert run("good", "bad", "--out", "table.txt", "--overwrite").exit_code == 0


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("good",), "at least two"),
        (("good", "nowhere"), "nowhere"),
        (("good", "good"), "different"),
    ],
)
def test_the_command_refuses(arguments: tuple[str, ...], words: str) -> None:
    refused = run(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert words in refused.stderr


def test_the_kinds_in_which_results_differ(good: se.Evaluation) -> None:
    assert differing(good, good.with_options(metrics=("mAP",))) == {}
    assert set(differing(good, good.with_options(ap="trapezoid"))) == {"options"}
    assert set(differing(good, model(0.5, items=100))) == {"gallery"}
    rng = np.random.default_rng(0)
    fewer = se.evaluate(
        se.Distances(rng.random((9, ITEMS))),
        query=se.Labels(id=np.arange(9)),
        gallery=se.Labels(id=rng.integers(0, 16, ITEMS)),
        protocol="no-camera",
    )
    assert differing(good, fewer) == {"queries": "80 and 9 of them"}


@pytest.mark.usefixtures("saved")
def test_results_of_other_tasks_are_not_shown_together_silently() -> None:
    model(0.5, items=100).save("small")
    model(0.5, ties="optimistic").save("lenient")
    commands = [["show"]]
    with suppress(ImportError):
        import matplotlib  # noqa: F401

        commands.append(["plot", "-o", "figure.svg", "--overwrite", "--curve", "CMC"])
    for command in commands:
        for others, words in ((("bad", "lenient"), ""), (("bad", "small"), "differ in gallery")):
            done = CliRunner().invoke(main, [command[0], "good", *others, *command[1:]])
            assert done.exit_code == 0, done.output
            lines = done.stderr.splitlines()
            assert len(lines) == bool(words)
            assert all(line.startswith("warning: good and small differ in") for line in lines)
