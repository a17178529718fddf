"""A ledger under random changes: after each one, the statistics are those of the oracle."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from oracle import Problem, oracle_statistics
from profiles import examples
from reference import canonical_distances

import streameval as se
from streameval import InputError

Array = npt.NDArray[Any]
SIZES = st.integers(0, 9)
SEEDS = st.integers(0, 2**32 - 1)
WIDTH, IDENTITIES, LOW, HIGH = 3, 6, 0.0, 64.0
HISTOGRAM = ("impostor_histogram", "histogram_edges")


@pytest.fixture(autouse=True, scope="module")
def _in_a_folder_that_goes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep all ledgers in one folder: an example that is broken off leaves its own behind."""
    folder = tmp_path_factory.mktemp("ledgers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Items:
    """A segment as it should be: what is in the gallery of it."""

    name: str
    path: Path
    values: Array  # features [n, D], or distances [Q, n]
    ids: Array
    cams: Array
    kept: Array  # [n] bool
    rows: int  # of the values, when the segment came


class Machine(RuleBasedStateMachine):
    """Changes of a ledger, and of what it should be."""

    metric: Any = "sqeuclidean"

    @initialize(seed=SEEDS, queries=st.integers(1, 6), near=st.integers(1, 4), camera=st.booleans())
    def create(self, seed: int, queries: int, near: int, camera: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-"))
        self.files = 0
        self.segments: list[Items] = []
        self.saved: list[se.RankStatistics] = []
        self.protocol = "separate-camera" if camera else "market1501"
        rng = np.random.default_rng(seed)
        self.query, self.query_id, self.query_cam = self.draw_queries(rng, queries)
        features = None if self.metric is None else self.write(self.query)
        self.ledger = se.Ledger.create(
            self.folder / "L",
            query=features,
            metric=self.metric,
            query_labels=se.Labels(self.query_id, self.query_cam),
            protocol=self.protocol,
            range=(LOW, HIGH),
            metrics="all",
            keep=12 * queries * near,
        )

    def draw_queries(self, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
        return (
            rng.integers(-2, 3, (count, WIDTH)).astype("f4"),
            rng.integers(0, IDENTITIES + 1, count),
            rng.integers(0, 2, count),
        )

    def write(self, values: Array) -> Path:
        self.files += 1
        path = self.folder / f"{self.files}.npy"
        np.save(path, values)
        return path

    @rule(seed=SEEDS, count=SIZES)
    def append(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        if self.metric is None:
            values = rng.integers(0, 9, (len(self.query), count)) * 8.0
        else:
            values = rng.integers(-2, 3, (count, WIDTH)).astype("f4")
        ids, cams = rng.integers(-1, IDENTITIES, count), rng.integers(0, 2, count)
        path = self.write(values)
        items = Items(path.stem, path, values, ids, cams, np.ones(count, np.bool_), len(values))
        # Distances are compared for the queries that there were when the segment came.
        known = [one.values[: one.rows] for one in self.segments if count]
        rows = [len(one) if self.metric is None else count for one in known]
        if any(np.array_equal(values[:n], one) for n, one in zip(rows, known, strict=True)):
            with pytest.raises(InputError, match="holds the same data"):
                self.ledger.append(path, se.Labels(ids, cams))
            return
        forecast = self.ledger.plan(path, se.Labels(ids, cams))
        snapshot = self.ledger.append(path, se.Labels(ids, cams))
        assert (forecast.pairs, forecast.rescanned) == (snapshot.pairs, snapshot.rescanned)
        self.segments.append(items)

    @precondition(lambda self: any(len(one.ids) for one in self.segments))
    @rule(pick=st.integers(0, 99), label=SEEDS)
    def append_the_same_again(self, pick: int, label: int) -> None:
        full = [one for one in self.segments if len(one.ids)]
        one = full[pick % len(full)]
        ids = np.random.default_rng(label).integers(0, IDENTITIES, len(one.ids))
        values = one.values if self.metric is not None else self.matrix(one, whole=True)
        with pytest.raises(InputError, match=f"same data as segment '{one.name}'"):
            self.ledger.append(self.write(values), se.Labels(ids, one.cams), name="again")

    @precondition(lambda self: self.segments)
    @rule(pick=st.integers(0, 99))
    def remove(self, pick: int) -> None:
        gone = self.segments.pop(pick % len(self.segments))
        gone.path.unlink()  # it is not needed any more
        self.ledger.remove(gone.name)

    @rule(ids=st.lists(st.integers(-1, IDENTITIES), min_size=1, max_size=3, unique=True))
    def forget(self, ids: list[int]) -> None:
        if not any((np.isin(one.ids, ids) & one.kept).any() for one in self.segments):
            with pytest.raises(InputError, match="none of the"):
                self.ledger.forget(ids)
            return
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "[1-3] of the [1-3] identities to be forgotten are not"
            )
            self.ledger.forget(ids)
        for one in self.segments:
            one.kept &= ~np.isin(one.ids, ids)

    @rule(seed=SEEDS, count=st.integers(1, 3))
    def add_queries(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        query, ids, cams = self.draw_queries(rng, count)
        values = query
        if self.metric is None:
            raw = sum(len(one.ids) for one in self.segments)
            values = rng.integers(0, 9, (count, raw)) * 8.0
            edges = np.cumsum([0, *(len(one.ids) for one in self.segments)])
            for one, first, last in zip(self.segments, edges, edges[1:], strict=False):
                one.values = np.concatenate([one.values, values[:, first:last]])
        self.ledger.add_queries(self.write(values), se.Labels(ids, cams))
        self.query = np.concatenate([self.query, query])
        self.query_id = np.concatenate([self.query_id, ids])
        self.query_cam = np.concatenate([self.query_cam, cams])

    @precondition(lambda self: self.segments)
    @rule(pick=st.integers(0, 99))
    def move(self, pick: int) -> None:
        one = self.segments[pick % len(self.segments)]
        place = self.folder / f"moved-{one.path.name}"
        one.path.replace(place)
        self.ledger.move(one.name, place)
        one.path = place

    @precondition(lambda self: self.segments)
    @rule(pick=st.integers(0, 99), later=st.integers(1, 10**9))
    def touch(self, pick: int, later: int) -> None:
        os.utime(self.segments[pick % len(self.segments)].path, ns=(later, later))

    @precondition(lambda self: self.saved)
    @rule(pick=st.integers(0, 99))
    def look_back(self, pick: int) -> None:
        at = pick % len(self.saved)
        assert evaluation(self.ledger, at).statistics.equals(self.saved[at])

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def matrix(self, one: Items, *, whole: bool = False) -> Array:
        chosen = slice(None) if whole else one.kept
        if self.metric is None:
            return one.values[:, chosen]
        distances: Array = canonical_distances(self.query, one.values[chosen], self.metric)
        return distances

    @invariant()
    def statistics_are_those_of_the_oracle(self) -> None:
        empty = np.empty((len(self.query), 0))
        distances = np.concatenate([empty, *(self.matrix(one) for one in self.segments)], axis=1)
        nobody = np.empty(0, np.int64)
        ids = np.concatenate([nobody, *(one.ids[one.kept] for one in self.segments)])
        cams = np.concatenate([nobody, *(one.cams[one.kept] for one in self.segments)])
        found = evaluation(self.ledger)
        problem = {
            "distances": distances,
            "query_id": self.query_id,
            "gallery_id": ids,
            "query_cam": self.query_cam,
            "gallery_cam": cams,
            "same_camera": self.protocol == "separate-camera",
        }
        expected = oracle_statistics(**problem, thresholds=found.statistics.thresholds)
        assert found.statistics.equals(expected, ignoring=HISTOGRAM)
        fresh = self.fresh(distances, ids, cams)
        assert found.statistics.equals(fresh.statistics)
        assert str(found.metrics.scalars) == str(fresh.metrics.scalars)
        assert found.counts == fresh.counts
        trajectory = self.ledger.trajectory
        assert trajectory[-1].counts == dict(found.counts)
        if len(trajectory) > len(self.saved):
            self.saved.append(found.statistics)
        assert len(trajectory) == len(self.saved)
        self.check_near(Problem(**problem))

    def fresh(self, distances: Array, ids: Array, cams: Array) -> se.Evaluation:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", se.StreamevalWarning)
            source: Any = se.Distances(distances)
            if self.metric is not None:
                none = np.empty((0, WIDTH), "f4")
                rows = np.concatenate([none, *(one.values[one.kept] for one in self.segments)])
                source = se.Features(self.query, rows, self.metric)
            return se.evaluate(
                source,
                query=se.Labels(self.query_id, self.query_cam),
                gallery=se.Labels(ids, cams),
                protocol=self.protocol,
                range=(LOW, HIGH),
                metrics="all",
                threads=1,
            )

    def check_near(self, problem: Problem) -> None:
        """All negatives that are nearer than a query's reach are kept, and no others."""
        near = self.ledger._store.contents().state().near
        for i, away in enumerate(problem.distances):
            ignored, same = problem.row(i)
            negatives = np.sort(away[~ignored & ~same])
            held = near.distance[i][np.isfinite(near.distance[i])]
            assert np.array_equal(held, negatives[negatives < near.reach[i]])
            assert ((near.segment[i] >= 0) == np.isfinite(near.distance[i])).all()


def evaluation(ledger: se.Ledger, at: int | None = None) -> se.Evaluation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        return ledger.evaluation(at)


class StoredMachine(Machine):
    """The same of stored distances, that come in blocks of columns."""

    metric = None


class EuclideanMachine(Machine):
    """The same of euclidean distances, whose roots are not round."""

    metric = "euclidean"


TestFeatures = Machine.TestCase
TestFeatures.settings = examples(6, stateful_step_count=10)
TestStored = StoredMachine.TestCase
TestStored.settings = examples(6, stateful_step_count=10)
TestEuclidean = EuclideanMachine.TestCase
TestEuclidean.settings = examples(4, stateful_step_count=10)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Machine, StoredMachine, EuclideanMachine])
def test_long_histories(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=examples(4, stateful_step_count=25))
