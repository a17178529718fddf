"""Shipped protocols that draw galleries, against their benchmarks' own code, and against loops.

The data, and the figures that the code of the benchmarks printed, are those of
`test_benchmark_trials`; the loops are those of `oracle_benchmarks`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import test_benchmark_trials as official
from hypothesis import given
from hypothesis import strategies as st
from oracle import Array
from oracle_benchmarks import (
    Benchmark,
    Figures,
    Trial,
    choose_one,
    oracle_trial,
    oracle_trials,
    rest_of,
    rows_by,
)
from profiles import examples
from spread import spread
from support.protocols import View
from test_benchmark_trials import DRAWN, RECORDED, check, distances

import streameval as se

METRICS = ("CMC@1", "CMC@5", "CMC@10", "CMC@20", "mAP", "mINP")
COUNTS = ("queries_positive", "queries_negative", "queries_excluded", "pairs_ignored")
PROTOCOLS = {
    "sysu-all": "sysu-mm01/all",
    "sysu-indoor": "sysu-mm01/indoor",
    "llcm-ir-to-vis": "llcm/ir-to-vis",
    "llcm-vis-to-ir": "llcm/vis-to-ir",
}
"""The protocols that draw what the code of the benchmarks draws, by the names of its figures."""


def data(name: str) -> tuple[tuple[Array, Array], dict[str, Array], dict[str, Array]]:
    """Return the features and the labels of a benchmark."""
    if name.startswith("vehicleid"):
        sides, ids = official.vehicles()
        return sides, ids, ids
    sides, labels = official.llcm() if name.startswith("llcm") else official.sysu()[:2]
    return sides, labels["query"], labels["gallery"]


def sources(sides: tuple[Array, Array]) -> list[Any]:
    return [se.Features(*sides, "dot"), se.Distances(distances(sides))]


def average(
    source: Any, query: Any, gallery: Any, protocol: Any, ties: Any = "pessimistic", **more: Any
) -> se.Average:
    options = se.MetricOptions(ties=ties, metrics=METRICS)
    found = se.evaluate_all(
        source, query=query, gallery=gallery, protocols=[protocol], options=options, **more
    )
    (result,) = found.values()
    assert isinstance(result, se.Average)
    return result


@pytest.mark.parametrize(("name", "kind"), spread(PROTOCOLS, [0, 1]))
def test_figures_of_the_code(name: str, kind: int) -> None:
    sides, query, gallery = data(name)
    found = average(sources(sides)[kind], query, gallery, PROTOCOLS[name])
    for run, wanted in zip(found.runs.values(), RECORDED[name]["trials"], strict=True):
        check(dict(run.metrics), name, wanted)
    check(dict(found.mean), name, RECORDED[name]["mean"])


@pytest.mark.parametrize("asking", ["visible", "thermal"])
def test_figures_of_splits(asking: str) -> None:
    name = {"visible": "regdb-visible-to-thermal", "thermal": "regdb-thermal-to-visible"}[asking]
    splits = []
    for split in range(1, 11):
        sides, labels = official.regdb(split)
        order, source = ("query", "gallery"), se.Features(*sides, "dot")
        if asking == "thermal":
            order, source = ("gallery", "query"), se.Features(sides[1], sides[0], "dot")
        query, gallery = (labels[side] for side in order)
        splits.append(
            se.evaluate(source, query=query, gallery=gallery, protocol="regdb", metrics=METRICS)
        )
        check(dict(splits[-1].metrics), name, RECORDED[name]["trials"][split - 1])
    check(dict(se.average(splits).mean), name, RECORDED[name]["mean"])


@dataclass(frozen=True)
class Loops:
    """A benchmark as plain loops: who takes part, what is ignored, and what is drawn."""

    ignored: Callable[[int, int, int, int], bool]
    queries: Sequence[int] | None = None
    gallery: Sequence[int] | None = None
    per: tuple[str, ...] = ("id", "cam")
    side: str = "gallery"
    distinct: bool = True

    def trials(self, query: dict[str, Array], gallery: dict[str, Array]) -> list[Trial]:
        """Return the rows that ask and that are ranked, in ascending order."""
        rows = {}
        for side, labels, cams in (
            ("query", query, self.queries),
            ("gallery", gallery, self.gallery),
        ):
            every = enumerate(labels["cam"].tolist())
            rows[side] = np.array([row for row, cam in every if cams is None or cam in cams], int)
        labels, among = {"query": query, "gallery": gallery}[self.side], rows[self.side]
        own = {name: labels[name][among] for name in self.per}
        groups = [among[group].tolist() for _, group in sorted(rows_by(own, self.per).items())]
        drawn = [np.sort(choose_one(groups, random.Random(t))) for t in range(10)]
        return [tuple((rows | {self.side: one}).values()) for one in drawn]  # type: ignore[misc]

    def benchmark(
        self, distances: Array, query: dict[str, Array], gallery: dict[str, Array]
    ) -> Benchmark:
        asked, shown = (
            list(zip(labels["id"].tolist(), labels["cam"].tolist(), strict=True))
            for labels in (query, gallery)
        )
        pairs = [[self.ignored(*one, *other) for other in shown] for one in asked]
        ignored = np.array(pairs, bool).reshape(distances.shape)
        return Benchmark(distances, query, gallery, ignored, distinct=self.distinct)


def in_one_room(_: int, cam: int, _id: int, other: int) -> bool:
    return cam == 3 and other == 2


def by_one_camera(own: int, cam: int, identity: int, other: int) -> bool:
    return own == identity and cam == other


LOOPS = {
    "sysu-mm01/all": Loops(in_one_room, (3, 6), (1, 2, 4, 5)),
    "sysu-mm01/indoor": Loops(in_one_room, (3, 6), (1, 2)),
    "llcm/ir-to-vis": Loops(by_one_camera),
    "llcm/vis-to-ir": Loops(by_one_camera, side="query"),
}


def check_run(found: se.Evaluation, expected: Figures) -> None:
    """Compare with loops: numbers of queries and pairs, and metrics to 1e-12."""
    assert {name: found.counts[name] for name in COUNTS} == {
        name: expected[name] for name in COUNTS
    }
    for name in METRICS:
        assert found[name] == pytest.approx(expected[name], abs=1e-12, nan_ok=True), name


def check_average(found: se.Average, benchmark: Benchmark, trials: list[Trial], ties: str) -> None:
    """Compare each trial, and the mean of them."""
    every, means = oracle_trials(benchmark, trials, ties)
    for run, expected in zip(found.runs.values(), every, strict=True):
        check_run(run, expected)
    for name in METRICS:
        assert found.mean[name] == pytest.approx(means[name], abs=1e-12, nan_ok=True)


def random_labels(rng: np.random.Generator, count: int, cams: int) -> dict[str, Array]:
    return {"id": rng.integers(-1, 6, count), "cam": rng.integers(1, 1 + cams, count)}


drawing = given(
    seed=st.integers(0, 2**32 - 1),
    ties=st.sampled_from(["pessimistic", "optimistic", "stable"]),
)


@pytest.mark.filterwarnings("ignore::streameval.StreamevalWarning")
@pytest.mark.parametrize("name", LOOPS)
@examples(60)
@drawing
def test_trials_written_as_loops(name: str, seed: int, ties: str) -> None:
    rng, loops = np.random.default_rng(seed), LOOPS[name]
    queries, items, levels = rng.integers(1, 9), rng.integers(1, 25), rng.integers(1, 7)
    query, gallery = random_labels(rng, queries, 6), random_labels(rng, items, 6)
    query["cam"][0], gallery["cam"][0] = 3, 1  # somebody asks, and something is ranked
    away = rng.integers(0, levels, (queries, items)) / 8
    found = average(se.Distances(away), query, gallery, name, ties=ties)
    benchmark = loops.benchmark(away, query, gallery)
    check_average(found, benchmark, loops.trials(query, gallery), ties)


@pytest.mark.filterwarnings("ignore::streameval.StreamevalWarning")
@examples(60)
@drawing
def test_the_rest_written_as_loops(seed: int, ties: str) -> None:
    """VehicleID: what is not drawn asks. Ids of one image are in every gallery, and never ask."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 25))
    ids = {"id": rng.integers(0, 8, count)}
    away = rng.integers(0, rng.integers(1, 7), (count, count)) / 8
    groups = [rows for _, rows in sorted(rows_by(ids, ("id",)).items())]
    drawn = [np.sort(choose_one(groups, random.Random(t))) for t in range(10)]
    if len(groups) == count:
        with pytest.raises(se.OptionError, match="leaves no query"):
            average(se.Distances(away), ids, ids, "vehicleid", ties=ties)
        return
    found = average(se.Distances(away), ids, ids, "vehicleid", ties=ties)
    benchmark = Benchmark(away, ids, ids, np.zeros(away.shape, bool))
    check_average(found, benchmark, [(rest_of(count, one).astype(int), one) for one in drawn], ties)


@pytest.mark.filterwarnings("ignore::streameval.StreamevalWarning")
@examples(60)
@drawing
def test_splits_written_as_loops(seed: int, ties: str) -> None:
    rng = np.random.default_rng(seed)
    queries, items, levels = (
        rng.integers(1, 9),
        seed % 4 and rng.integers(0, 15),
        rng.integers(1, 7),
    )
    query, gallery = ({"id": rng.integers(0, 6, count)} for count in (queries, items))
    away = rng.integers(0, levels, (queries, items)) / 8
    found = se.evaluate(
        se.Distances(away),
        query=query,
        gallery=gallery,
        protocol="regdb",
        metrics=METRICS,
        ties=ties,
    )
    benchmark = Benchmark(away, query, gallery, np.zeros(away.shape, bool))
    check_run(found, oracle_trial(benchmark, (np.arange(queries), np.arange(items)), ties))


def check_alone(found: se.Evaluation, alone: se.Evaluation) -> None:
    """Compare an evaluation with one of the same rows alone: everything is equal."""
    assert found.counts == alone.counts
    assert dict(found.metrics) == dict(alone.metrics)
    for name, column in alone.per_query.items():
        if name != "positive_item":
            np.testing.assert_array_equal(found.per_query[name], column)


@pytest.mark.parametrize(("name", "kind"), spread([*PROTOCOLS, "vehicleid"], [0, 1]))
def test_a_trial_equals_an_evaluation_of_its_rows_alone(name: str, kind: int) -> None:
    sides, *labels = data(name)
    protocol = se.PROTOCOLS[PROTOCOLS.get(name, name)]
    found = average(sources(sides)[kind], *labels, protocol)
    if name == "vehicleid":
        count, groups = len(labels[0]["id"]), rows_by(labels[0], ("id",))
        drawn = [
            choose_one([groups[own] for own in sorted(groups)], random.Random(t)) for t in range(10)
        ]
        trials = [(rest_of(count, one), np.sort(one)) for one in drawn]
    else:
        trials = [tuple(map(np.sort, one)) for one in DRAWN[name]()[1]]
    for run, (queries, items) in zip(found.runs.values(), trials, strict=True):
        part = sides[0][queries], sides[1][items]
        query, gallery = (
            {column: values[rows] for column, values in own.items()}
            for own, rows in zip(labels, (queries, items), strict=True)
        )
        alone = se.evaluate(
            sources(part)[kind],
            query=query,
            gallery=gallery,
            protocol=View("", queries, items).protocol(protocol),
            metrics=METRICS,
        )
        check_alone(run, alone)


@pytest.mark.parametrize("name", [*LOOPS, "vehicleid"])
def test_an_empty_side_is_drawn_from_in_vain(name: str) -> None:
    one = {"id": np.array([1]), "cam": np.array([3])}
    none = {column: values[:0] for column, values in one.items()}
    query, gallery = (none, one) if name == "llcm/vis-to-ir" else (one, none)
    query = none if name == "vehicleid" else query
    away = np.zeros((len(query["id"]), len(gallery["id"])))
    with pytest.raises(se.StreamevalError, match=r"draw from nothing|at least one query"):
        average(se.Distances(away), query, gallery, name)


def gait(kind: str, source: Any, labels: dict[str, Array]) -> se.Average:
    return average(source, labels, labels, f"opengait/casia-b/{kind.lower()}")


@pytest.mark.parametrize("kind", official.WALKS)
def test_views_of_gait(kind: str) -> None:
    rows, labels = official.walks()
    found, recorded = (
        gait(kind, se.Features(rows, rows, "euclidean"), labels),
        RECORDED["casia-b"][kind],
    )
    assert list(found.runs) == [f"view {view}" for view in official.VIEWS]
    cells = found.cells("CMC@1")
    assert cells.queries == cells.galleries == tuple(official.VIEWS)
    rounded = np.round(100 * cells.values, 2)
    np.testing.assert_allclose(rounded, recorded["cells"], rtol=official.DOUBLE)
    for column, run in enumerate(found.runs.values()):
        groups = run.grouped("view").groups
        assert [groups[view]["CMC@1"] for view in official.VIEWS] == cells.values[
            :, column
        ].tolist()
    of_rounded = replace(cells, values=rounded)
    assert of_rounded.mean_of_others == pytest.approx(recorded["mean"], rel=official.DOUBLE)
    assert of_rounded.mean == pytest.approx(recorded["mean_with_equal_views"], rel=official.DOUBLE)
    assert sum(run.counts["queries_negative"] for run in found.runs.values()) > 0


def test_kinds_of_gait_in_one_pass() -> None:
    rows, labels = official.walks()
    source = se.Features(rows, rows, "euclidean")
    names = [f"opengait/casia-b/{kind.lower()}" for kind in official.WALKS]
    found = se.evaluate_all(source, query=labels, gallery=labels, protocols=names, metrics=METRICS)
    for kind, name in zip(official.WALKS, names, strict=True):
        one, alone = found[name], gait(kind, source, labels)
        assert isinstance(one, se.Average)
        for run, other in zip(one.runs.values(), alone.runs.values(), strict=True):
            check_alone(run, other)


@pytest.mark.filterwarnings("ignore::streameval.StreamevalWarning")
@pytest.mark.parametrize("kind", official.WALKS)
@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1), ties=st.sampled_from(["pessimistic", "optimistic", "stable"])
)
def test_views_written_as_loops(kind: str, seed: int, ties: str) -> None:
    """Each query counts in each view: one without a positive there is a miss."""
    rng = np.random.default_rng(seed)
    count, levels = int(rng.integers(2, 25)), rng.integers(1, 7)
    labels = {
        "id": rng.integers(0, 5, count),
        "type": rng.choice([*official.SHOWN, *official.WALKS[kind], "ex-01"], count),
        "view": rng.choice(["000", "090", "180"], count),
    }
    labels["type"][:2] = official.SHOWN[0], official.WALKS[kind][0]
    away = rng.integers(0, levels, (count, count)) / 8
    found = average(
        se.Distances(away), labels, labels, f"opengait/casia-b/{kind.lower()}", ties=ties
    )
    asking = np.flatnonzero(np.isin(labels["type"], official.WALKS[kind]))
    benchmark = Benchmark(away, labels, labels, np.zeros(away.shape, bool))
    shown = np.isin(labels["type"], official.SHOWN)
    views = np.unique(labels["view"][shown])
    assert list(found.runs) == [f"view {view}" for view in views]
    for view, run in zip(views, found.runs.values(), strict=True):
        items = np.flatnonzero(shown & (labels["view"] == view))
        expected = oracle_trial(benchmark, (asking, items), ties)
        share = expected["queries_positive"] / len(asking)
        means = {name: share * expected[name] for name in METRICS}  # NaN where all are misses
        check_run(run, expected | means)


def test_without_items_there_is_no_gallery() -> None:
    labels = {"id": [1, 1], "type": ["nm-01", "nm-05"], "view": ["000", "000"]}
    none = {name: np.array(own)[:0] for name, own in labels.items()}
    with pytest.raises(se.OptionError, match="none of the 0 items of gallery has one"):
        average(se.Distances(np.zeros((2, 0))), labels, none, "opengait/casia-b/nm")
