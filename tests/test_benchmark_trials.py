"""Benchmarks that draw galleries: plain loops against figures that their own code printed.

That code ran aside on the data that the functions here generate; none of it is here. The figures,
with repository, commit and function, are in `recorded/benchmark_trials.toml`.
"""

from __future__ import annotations

import random
import tomllib
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from oracle import Array
from oracle_benchmarks import (
    Benchmark,
    Figures,
    Group,
    Trial,
    choose_one,
    first_of_permuted,
    first_of_shuffled,
    means_by_view,
    oracle_trial,
    oracle_trials,
    oracle_views,
    rest_of,
    rows_by,
    write_permutations,
)

SINGLE, DOUBLE = 2e-7, 1e-14
"""How far off a figure in float32 and in float64 may be, relatively."""
STEP = 2048
RECORDED = tomllib.loads((Path(__file__).parent / "recorded" / "benchmark_trials.toml").read_text())
Stored = dict[Group, Array]


def features(rng: np.random.Generator, query_id: Array, gallery_id: Array) -> tuple[Array, Array]:
    """Return whole-number features whose inner products are exact in float32, without ties.

    All products are multiples of `STEP`, plus a number that differs for each item and each query.
    """
    centres = rng.integers(-5, 6, (1 + max(query_id.max(), gallery_id.max()), 16))
    sides = []
    for ids in (query_id, gallery_id):
        own = rng.permutation(len(ids))
        noise = rng.integers(-6, 7, (len(ids), 16))
        sides.append((centres[ids] + noise, own, np.ones_like(own)))
    (query, asking, one), (items, shown, unit) = sides
    assert max(len(query), len(items)) < STEP
    return (
        np.column_stack([query, one, asking]).astype(np.float32),
        np.column_stack([STEP * items, shown, unit]).astype(np.float32),
    )


def distances(sides: tuple[Array, Array]) -> Array:
    """Return the negative inner products, [Q, G] float64."""
    query, items = (side.astype(np.float64) for side in sides)
    return np.asarray(-(query @ items.T))


def table(seen: list[tuple[int, int]]) -> dict[str, Array]:
    ids, cams = np.array(seen).T
    return {"id": ids, "cam": cams}


def sysu() -> tuple[tuple[Array, Array], dict[str, dict[str, Array]], Stored]:
    """Return features, labels and drawing orders of 44 people, 6 cameras: 3 and 6 are infrared.

    Rows are sorted by person, camera and image. Two people are in no colour camera, one in camera 2
    alone (ignored for queries of camera 3), one in camera 4 alone (a single positive).
    """
    rng = np.random.default_rng(2017)
    people = np.sort(rng.permutation(np.arange(1, 100))[:44]).tolist()
    only = {people[0]: 0, people[1]: 0, people[2]: 2, people[3]: 4}
    sides: dict[str, list[tuple[int, int]]] = {"query": [], "gallery": []}
    stored: Stored = {}
    for person in people:
        for cam in range(1, 7):
            infrared = cam in (3, 6)
            there = rng.random() < (0.9 if infrared else 0.75)
            count = int(rng.integers(1, 4) if infrared else rng.integers(10, 14))
            if person in only:
                there = infrared or cam == only[person]
            if there:
                sides["query" if infrared else "gallery"] += [(person, cam)] * count
                orders = [1 + rng.permutation(count) for _ in range(10)]
                stored[cam, person] = np.array(orders, dtype=np.uint8)
    labels = {side: table(seen) for side, seen in sides.items()}
    return features(rng, labels["query"]["id"], labels["gallery"]["id"]), labels, stored


def llcm() -> tuple[tuple[Array, Array], dict[str, dict[str, Array]]]:
    """Return features and labels of 40 people: near infrared (no camera 3) asks 9 visible cameras.

    One person is in infrared alone, one in visible alone, one in camera 4 alone on both sides.
    """
    rng = np.random.default_rng(2023)
    people = np.sort(rng.permutation(np.arange(1, 300))[:40]).tolist()
    sides: dict[str, list[tuple[int, int]]] = {"query": [], "gallery": []}
    for person in people:
        for side, seen in sides.items():
            for cam in range(1, 10):
                there = rng.random() < 0.35
                count = int(rng.integers(1, 4))
                if person == people[2]:
                    there = cam == 4
                if person == people[0 if side == "gallery" else 1] or (side, cam) == ("query", 3):
                    there = False
                seen += [(person, cam)] * (count if there else 0)
    labels = {side: table(seen) for side, seen in sides.items()}
    return features(rng, labels["query"]["id"], labels["gallery"]["id"]), labels


def regdb(split: int) -> tuple[tuple[Array, Array], dict[str, dict[str, Array]]]:
    """Return features and labels of a split: visible images ask thermal images of 30 people.

    One person is in visible images alone, one in thermal images alone; some have a single image.
    """
    rng = np.random.default_rng([206, split])
    people = np.sort(rng.permutation(np.arange(412))[:30])
    labels = {
        side: {"id": np.repeat(there, rng.integers(1, 6, len(there)))}
        for side, there in (("query", people[1:]), ("gallery", people[:-1]))
    }
    return features(rng, labels["query"]["id"], labels["gallery"]["id"]), labels


def vehicles() -> tuple[tuple[Array, Array], dict[str, Array]]:
    """Return features of all images as queries and as items, and their vehicles: 1 to 6 images."""
    rng = np.random.default_rng(800)
    ids = rng.permutation(np.repeat(1 + np.arange(60), rng.integers(1, 7, 60)))
    return features(rng, ids, ids), {"id": ids}


VIEWS = np.array([f"{18 * angle:03d}" for angle in range(11)])
WALKS = {"NM": ("nm-05", "nm-06"), "BG": ("bg-01", "bg-02"), "CL": ("cl-01", "cl-02")}
SHOWN = ("nm-01", "nm-02", "nm-03", "nm-04")


def walks() -> tuple[Array, dict[str, Array]]:
    """Return features [S, 16], and labels, of 12 people in 10 sequences and 11 views; some missing.

    Two people are in no gallery sequence.
    """
    rng = np.random.default_rng(124)
    kinds = [*SHOWN, *sum(WALKS.values(), ())]
    seen = [
        (person, kind, view)
        for person in range(12)
        for kind in kinds
        for view in VIEWS
        if rng.random() < 0.8 and not (person in (3, 8) and kind in SHOWN)
    ]
    ids, types, views = (np.array(column) for column in zip(*seen, strict=True))
    centres = rng.integers(-60, 61, (12, 16))
    turned = rng.integers(-60, 61, (len(VIEWS), 16))
    worn = {"nm": 60, "bg": 110, "cl": 160}
    noise = np.array([rng.integers(-worn[kind[:2]], worn[kind[:2]] + 1, 16) for kind in types])
    rows = centres[ids] + turned[np.searchsorted(VIEWS, views)] + noise
    return rows.astype(np.float32), {"id": ids, "type": types, "view": views}


def within(labels: dict[str, Array], rows: Array) -> dict[Group, list[int]]:
    """Return the rows of each person and camera among these rows."""
    chosen = set(rows.tolist())
    groups = rows_by(labels, ("id", "cam")).items()
    return {key: group for key, group in groups if chosen.issuperset(group)}


Drawn = tuple[Benchmark, list[Trial]]


def sysu_benchmark(mode: str) -> tuple[Benchmark, Array, Array, Stored]:
    """Return the benchmark, the rows of queries and of the gallery, and the drawing orders."""
    sides, labels, stored = sysu()
    cams = {side: labels[side]["cam"] for side in labels}
    ignored = (cams["query"][:, None] == 3) & (cams["gallery"] == 2)
    colour = {"all": (1, 2, 4, 5), "indoor": (1, 2)}[mode]
    return (
        Benchmark(distances(sides), **labels, ignored=ignored, distinct=True),
        np.flatnonzero(np.isin(cams["query"], (3, 6))),
        np.flatnonzero(np.isin(cams["gallery"], colour)),
        stored,
    )


def sysu_one_shot(mode: str) -> Drawn:
    benchmark, queries, items, _ = sysu_benchmark(mode)
    groups = within(benchmark.gallery, items).values()
    return benchmark, [(queries, choose_one(groups, random.Random(seed))) for seed in range(10)]


def sysu_stored(mode: str, shots: int) -> Drawn:
    benchmark, queries, items, stored = sysu_benchmark(mode)
    seen = within(benchmark.gallery, items).items()
    groups: dict[Group, list[int]] = {(cam, person): rows for (person, cam), rows in seen}
    ordered = dict(sorted(groups.items()))
    trials = [(queries, first_of_permuted(ordered, stored, trial, shots)) for trial in range(10)]
    return benchmark, trials


def llcm_trials(drawing: str) -> Drawn:
    """Draw visible images as the gallery, or infrared images as the queries."""
    sides, labels = llcm()
    same = [labels["query"][name][:, None] == labels["gallery"][name] for name in ("id", "cam")]
    benchmark = Benchmark(distances(sides), **labels, ignored=same[0] & same[1], distinct=True)
    groups = rows_by(labels[drawing], ("id", "cam")).values()
    drawn = [choose_one(groups, random.Random(seed)) for seed in range(10)]
    queries, items = (np.arange(len(labels[side]["id"])) for side in ("query", "gallery"))
    if drawing == "query":
        return benchmark, [(rows, items) for rows in drawn]
    return benchmark, [(queries, rows) for rows in drawn]


def vehicle_trials(drawing: str) -> Drawn:
    """Draw one image of each vehicle as the gallery; all others ask."""
    sides, labels = vehicles()
    ids = labels["id"]
    benchmark = Benchmark(distances(sides), labels, labels, np.zeros((len(ids), len(ids)), bool))
    groups, generator = rows_by(labels, ("id",)).values(), random.Random(0)
    drawn = [
        first_of_shuffled(ids, random.Random(seed))
        if drawing == "shuffle"
        else choose_one(groups, generator)
        for seed in range(10)
    ]
    return benchmark, [(rest_of(len(ids), items), items) for items in drawn]


DRAWN = {
    "sysu-all": lambda: sysu_one_shot("all"),
    "sysu-indoor": lambda: sysu_one_shot("indoor"),
    "sysu-all-1-shot": lambda: sysu_stored("all", 1),
    "sysu-all-10-shot": lambda: sysu_stored("all", 10),
    "sysu-indoor-1-shot": lambda: sysu_stored("indoor", 1),
    "sysu-indoor-10-shot": lambda: sysu_stored("indoor", 10),
    "llcm-ir-to-vis": lambda: llcm_trials("gallery"),
    "llcm-vis-to-ir": lambda: llcm_trials("query"),
    "vehicleid-shuffle": lambda: vehicle_trials("shuffle"),
    "vehicleid-choice": lambda: vehicle_trials("choice"),
}
"""The benchmarks that draw, by their names in the file of figures."""


def check(found: Figures, name: str, figures: list[float]) -> None:
    """Compare with the figures of a benchmark's code, to the digits of its dtype."""
    recorded = RECORDED[name]
    for metric, value in zip(recorded["figures"], figures, strict=True):
        single = metric.startswith("CMC") and recorded["cmc_dtype"] == "float32"
        wanted = pytest.approx(value, rel=SINGLE if single else DOUBLE)
        assert found[metric] == wanted, (name, metric)


@pytest.mark.parametrize("name", DRAWN)
def test_figures_of_drawn_galleries(name: str) -> None:
    benchmark, trials = DRAWN[name]()
    found, means = oracle_trials(benchmark, trials)
    for figures, wanted in zip(found, RECORDED[name]["trials"], strict=True):
        check(figures, name, wanted)
    check(means, name, RECORDED[name]["mean"])


@pytest.mark.parametrize("name", [name for name in DRAWN if "drawn" in RECORDED[name]])
def test_galleries_are_those_that_the_code_drew(name: str) -> None:
    side = 0 if name == "llcm-vis-to-ir" else 1
    drawn = [trial[side].astype("<i8").tobytes() for trial in DRAWN[name]()[1]]
    assert [zlib.crc32(rows) for rows in drawn] == RECORDED[name]["drawn"]


@pytest.mark.parametrize("asking", ["visible", "thermal"])
def test_regdb(asking: str) -> None:
    name = {"visible": "regdb-visible-to-thermal", "thermal": "regdb-thermal-to-visible"}[asking]
    splits = []
    for split in range(1, 11):
        sides, labels = regdb(split)
        away, order = distances(sides), ("query", "gallery")
        if asking == "thermal":
            away, order = away.T, ("gallery", "query")
        query, items = (labels[side] for side in order)
        benchmark = Benchmark(away, query, items, np.zeros(away.shape, bool))
        rows = (np.arange(away.shape[0]), np.arange(away.shape[1]))
        splits.append(oracle_trial(benchmark, rows))
        check(splits[-1], name, RECORDED[name]["trials"][split - 1])
        assert splits[-1]["queries_negative"] > 0
    means = {metric: float(np.mean([one[metric] for one in splits])) for metric in splits[0]}
    check(means, name, RECORDED[name]["mean"])


@pytest.mark.parametrize("kind", WALKS)
def test_casia_b(kind: str) -> None:
    rows, labels = walks()
    squares = ((rows[:, None].astype(np.float64) - rows) ** 2).sum(-1)
    benchmark = Benchmark(np.sqrt(squares), labels, labels, np.zeros(squares.shape, bool))
    queries = np.flatnonzero(np.isin(labels["type"], WALKS[kind]))
    items = np.flatnonzero(np.isin(labels["type"], SHOWN))
    recorded = RECORDED["casia-b"][kind]
    rounded = np.round(100 * oracle_views(benchmark, queries, items), 2)
    np.testing.assert_allclose(rounded, recorded["cells"], rtol=DOUBLE)
    by_view = means_by_view(rounded, equal_views=False)
    assert by_view == pytest.approx(recorded["by_view"], rel=DOUBLE)
    assert np.mean(by_view) == pytest.approx(recorded["mean"], rel=DOUBLE)
    every = np.mean(means_by_view(rounded, equal_views=True))
    assert every == pytest.approx(recorded["mean_with_equal_views"], rel=DOUBLE)


def test_nearest_sequences_are_not_tied() -> None:
    rows, labels = walks()
    items = np.flatnonzero(np.isin(labels["type"], SHOWN))
    for i in np.flatnonzero(~np.isin(labels["type"], SHOWN)):
        squares = ((rows[items].astype(np.float64) - rows[i]) ** 2).sum(-1)
        assert squares.max() < 2**23  # square roots of such whole numbers differ in float32
        for view in VIEWS:
            least = np.sort(squares[labels["view"][items] == view])[:2]
            assert least[0] < least[1]


@pytest.mark.parametrize("name", DRAWN)
def test_the_data_have_every_kind_of_query(name: str) -> None:
    benchmark, trials = DRAWN[name]()
    assert all(len(np.unique(row)) == len(row) for row in benchmark.distances)
    found = oracle_trial(benchmark, trials[0])
    alone = [
        np.count_nonzero(benchmark.gallery["id"][trials[0][1]] == benchmark.query["id"][i]) == 1
        for i in trials[0][0]
    ]
    assert any(alone) or "10-shot" in name
    if not name.startswith("vehicleid"):
        assert min(found["queries_negative"], found["queries_excluded"]) > 0
        assert found["pairs_ignored"] > 0


def by_hand(away: list[float], ids: list[int], own: int, ties: str = "stable") -> Figures:
    benchmark = Benchmark(
        np.array([away]),
        {"id": np.array([own])},
        {"id": np.array(ids)},
        np.zeros((1, len(ids)), bool),
        distinct=True,
    )
    return oracle_trial(benchmark, (np.array([0]), np.arange(len(ids))), ties, cutoffs=(1, 2, 3))


def test_repeated_identities_count_once() -> None:
    """Ids A, A, B: the query of B is found second. Its mean precision counts images: 1/3."""
    found = by_hand([1, 2, 3], [0, 0, 1], own=1)
    assert [found["CMC@1"], found["CMC@2"], found["CMC@3"]] == [0, 1, 1]
    assert [found["mAP"], found["mINP"]] == [1 / 3, 1 / 3]


@pytest.mark.parametrize(
    ("ties", "cmc", "precision"),
    [
        ("pessimistic", [0, 0, 1], 1 / 4),
        ("optimistic", [1, 1, 1], 1),
        ("stable", [0, 1, 1], 1 / 3),
        # the query's item comes 1st to 4th alike; in the third place, 1 of 3 orders has A, A ahead
        ("expected", [1 / 4, 1 / 4 + 1 / 4 + 1 / 12, 1], (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4),
    ],
)
def test_ties_by_hand(ties: str, cmc: list[float], precision: float) -> None:
    """Ids A, A, B, C at one distance, and a query of B."""
    found = by_hand([1, 1, 1, 1], [0, 0, 1, 2], own=1, ties=ties)
    assert [found[f"CMC@{x}"] for x in (1, 2, 3)] == pytest.approx(cmc, rel=1e-15)
    assert found["mAP"] == pytest.approx(precision, rel=1e-15)


def test_a_trial_without_positives_has_no_metric() -> None:
    found = by_hand([1, 2], [0, 0], own=1)
    assert np.isnan([found["CMC@1"], found["mAP"], found["mINP"]]).all()
    assert (found["queries_positive"], found["queries_negative"]) == (0, 1)


def test_permutations_are_laid_out_as_the_file_of_the_benchmark(tmp_path: Path) -> None:
    _, labels, stored = sysu()
    write_permutations(tmp_path / "rand_perm_cam.mat", stored)
    cells = scipy.io.loadmat(tmp_path / "rand_perm_cam.mat")["rand_perm_cam"]
    assert cells.shape == (6, 1)
    for cam, cell in enumerate(cells[:, 0], start=1):
        side = labels["query" if cam in (3, 6) else "gallery"]
        for person, orders in enumerate(cell[:, 0], start=1):
            seen = np.count_nonzero((side["id"] == person) & (side["cam"] == cam))
            assert orders.shape == (10, seen)
            assert (np.sort(orders, axis=1) == 1 + np.arange(seen)).all()
