"""Several protocols, trials and galleries in one pass equal evaluations of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
from spread import spread
from support.protocols import View, views_of

import streameval as se
from streameval import Average, Evaluation, OptionError, OutputError, Protocol
from streameval.cli import main

QUERIES, GALLERY, WIDTH = 45, 210, 6
MARKET = se.PROTOCOLS["market1501"]
TRIALS = {"draw": 1, "per": ["id", "cam"], "times": 3}
PROTOCOLS = [
    MARKET,
    se.PROTOCOLS["no-camera"],  # counted together with the one before
    replace(MARKET, name="positive", positive="same(id) and not same(view)"),
    replace(MARKET, name="junk", junk_ids=(-1, 3)),
    se.PROTOCOLS["separate-camera"],
    replace(MARKET, name="selected", queries="cam in [3, 5]", gallery="cam != 3 and id >= 0"),
    replace(MARKET, name="drawn", queries="cam in [3, 5]", gallery="cam <= 2", trials=TRIALS),
    replace(MARKET, name="asking", trials={"draw": 2, "side": "query", "times": 2}),
    replace(MARKET, name="views", galleries="view"),
    replace(MARKET, name="distinct", gallery="view < 3", cmc="distinct-identities"),
    se.PROTOCOLS["cuhk03"],
]
KINDS = ("features", "collapsed", "strips", "rectangles", "computed")


def labels_of(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    return {
        "id": rng.integers(-1, 12, rows),
        "cam": rng.integers(0, 6, rows),
        "view": rng.integers(0, 4, rows),
    }


@pytest.fixture(scope="module")
def problem() -> dict[str, Any]:
    """Return features with ties and copies, and labels with strangers and junk."""
    rng = np.random.default_rng(2)
    query, gallery = (
        rng.integers(-2, 3, (rows, WIDTH)).astype(np.float32) + 0.5 for rows in (QUERIES, GALLERY)
    )
    return {
        "sides": [labels_of(rng, QUERIES), labels_of(rng, GALLERY)],
        "features": [query, gallery],
    }


def source_of(problem: dict[str, Any], kind: str, rows: list[np.ndarray], folder: Path) -> Any:
    """Return the distances of some queries to some items."""
    query, gallery = (side[own] for side, own in zip(problem["features"], rows, strict=True))
    if kind == "collapsed":  # float32 can't tell them apart
        return se.Features(1 + 1e-4 * query, 1 + 1e-4 * gallery, "cosine")
    if kind == "features":
        return se.Features(query, gallery, "euclidean")
    distances = np.abs(query[:, None] - gallery).sum(axis=2).astype(np.float32)
    if kind == "computed":
        return se.Computed(lambda q, g: distances[q, g], distances.shape)
    chunks = (16, 64) if kind == "rectangles" else (8, max(len(gallery), 1))
    path = folder / f"{kind}-{len(query)}-{abs(hash(rows[1].tobytes()))}.zarr"
    compressors = None if kind == "rectangles" else "auto"
    zarr.create_array(path, data=distances, chunks=chunks, compressors=compressors, overwrite=True)
    return se.Distances(path)


def taken(labels: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[rows] for name, column in labels.items()}


def rows_of(view: View) -> list[np.ndarray]:
    sizes = zip((view.queries, view.items), (QUERIES, GALLERY), strict=True)
    return [np.arange(size) if rows is None else rows for rows, size in sizes]


def check(found: Evaluation, alone: Evaluation, rows: list[np.ndarray]) -> None:
    """Compare an evaluation of one pass with one of its own, of the rows of its view."""
    statistics, expected = found.statistics, alone.statistics
    assert set(statistics.held) >= set(expected.held)
    for name in expected.held:
        values = getattr(expected, name)
        if name == "positive_item":
            values = rows[1][values]
        assert np.array_equal(getattr(statistics, name), values), name
    for name, value in alone.metrics.items():
        assert found[name] == value or np.isnan(value)
        assert np.isnan(found[name]) == np.isnan(value)


def check_all(problem: dict[str, Any], kind: str, folder: Path, **options: Any) -> None:
    query, gallery = problem["sides"]
    source = source_of(problem, kind, [np.arange(QUERIES), np.arange(GALLERY)], folder)
    results = se.evaluate_all(source, query=query, gallery=gallery, protocols=PROTOCOLS, **options)
    assert list(results) == [protocol.name for protocol in PROTOCOLS]
    compared = 0
    for protocol in PROTOCOLS:
        result = results[protocol.name]
        runs = result.runs if isinstance(result, Average) else {"": result}
        for view in views_of(protocol, se.Labels.of(query), se.Labels.of(gallery)):
            rows = rows_of(view)
            alone = se.evaluate(
                source_of(problem, kind, rows, folder),
                query=taken(query, rows[0]),
                gallery=taken(gallery, rows[1]),
                protocol=view.protocol(protocol),
                range=options.get("range"),
                metrics=options.get("metrics"),
                refine=options.get("refine", ()),
            )
            check(runs[view.name], alone, rows)
            compared += 1
    assert compared == 7 + 1 + 3 + 2 + 4


@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_evaluations_of_their_own(
    problem: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    check_all(problem, kind, tmp_path)


OPTIONS = {
    "small tiles": {"tile": (7, 13), "threads": 1},
    "range": {"tile": (64, 50), "threads": 2, "range": "minmax"},
    "memory": {"range": (0.0, 40.0), "memory": "200MB"},
    "ranks": {"metrics": "CMC@1,mAP,mINP"},
    "refined": {"metrics": "TAR|FAR=0.01,EER", "refine": "TAR|FAR=0.01"},
    "range of all": {"range": "minmax-all"},
}


@pytest.mark.parametrize(("kind", "how"), spread(["features", "rectangles"], OPTIONS, of=7))
def test_equal_however_they_are_counted(
    problem: dict[str, Any], kind: str, how: str, tmp_path: Path
) -> None:
    check_all(problem, kind, tmp_path, **OPTIONS[how])


OVERLAPPING = {"draw": 1, "per": ["id", "cam"], "times": 9}
DRAWN = {
    protocol.name: protocol
    for protocol in (
        replace(MARKET, name="usual", trials=OVERLAPPING),
        replace(se.PROTOCOLS["separate-camera"], name="classes", trials=OVERLAPPING),
        replace(MARKET, name="some", queries="cam != 1", gallery="view < 3", trials=OVERLAPPING),
        replace(MARKET, name="many", trials={"draw": 4, "per": ["cam"], "times": 5}),
    )
}


@pytest.mark.filterwarnings("ignore:no query has a positive")
@pytest.mark.parametrize(("drawn", "kind"), spread(DRAWN, KINDS, of=8))
def test_galleries_drawn_from_one(
    problem: dict[str, Any], drawn: str, kind: str, tmp_path: Path
) -> None:
    """Each equals an evaluation of its own, in all that is counted, of groups of queries, too."""
    query, gallery = problem["sides"]
    protocol = DRAWN[drawn]
    options: dict[str, Any] = {"group_by": "cam", "metrics": ["all"]}
    if protocol.name == "many":
        options = {"metrics": "CMC@1,mAP", "tile": (7, 50)}
    source = source_of(problem, kind, [np.arange(QUERIES), np.arange(GALLERY)], tmp_path)
    found = se.evaluate_all(source, query=query, gallery=gallery, protocols=[protocol], **options)
    result = found[protocol.name]
    assert isinstance(result, Average)
    for view in views_of(protocol, se.Labels.of(query), se.Labels.of(gallery)):
        rows = rows_of(view)
        alone = se.evaluate(
            source_of(problem, kind, rows, tmp_path),
            query=taken(query, rows[0]),
            gallery=taken(gallery, rows[1]),
            protocol=view.protocol(protocol),
            **options,
        )
        own = result.runs[view.name]
        check(own, alone, rows)
        assert own.groups.keys() == alone.groups.keys()
        for group in alone.groups:
            for name, value in alone.groups[group].items():
                assert np.array_equal(own.groups[group][name], value, equal_nan=True)


def test_labels_of_items_that_are_never_drawn_are_no_matter(problem: dict[str, Any]) -> None:
    """A rule that asks for whole numbers is about items that take part."""
    query, gallery = ({**side, "half": np.zeros(len(side["id"]))} for side in problem["sides"])
    gallery["half"] = np.full(GALLERY, 0.5)
    drawn = [[3, 5, 8, 13], [5, 8, 21, 34]]
    gallery["half"][np.unique(drawn)] = 1
    protocol = replace(MARKET, name="given", ignore=("same(id, half)",), trials={"draw": "given"})
    source = se.Features(*problem["features"], "euclidean")
    sides = {"query": query, "gallery": gallery, "metrics": "CMC@1,mAP"}
    found = se.evaluate_all(source, **sides, protocols=[protocol], drawn=drawn)
    assert len(found.runs) == 2


def test_own_images_in_drawn_galleries(problem: dict[str, Any]) -> None:
    """They are left out where they are drawn."""
    features, labels = problem["features"][1], problem["sides"][1]
    protocol = replace(
        se.PROTOCOLS["no-camera"], name="own", self_match="index", junk_ids=(), trials=OVERLAPPING
    )
    found = se.evaluate_all(
        se.Features(features, features), query=labels, gallery=labels, protocols=[protocol]
    )
    result = found["own"]
    assert isinstance(result, Average)
    for view in views_of(protocol, se.Labels.of(labels), se.Labels.of(labels)):
        assert view.items is not None
        key = {"key": np.arange(GALLERY)}
        alone = se.evaluate(
            se.Features(features, features[view.items]),
            query=labels | key,
            gallery=taken(labels | key, view.items),
            protocol=view.protocol(protocol),
        )
        assert alone.counts["pairs_ignored"] == len(view.items)
        check(result.runs[view.name], alone, [np.arange(GALLERY), view.items])


@pytest.mark.slow
def test_in_rounds(
    problem: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streameval.planning.planner._first_round", lambda *_: 16)
    check_all(problem, "features", tmp_path)


@pytest.mark.slow
def test_on_a_cluster(problem: dict[str, Any], tmp_path: Path) -> None:
    with Client(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", dashboard_address=":0"
    ) as client:
        check_all(problem, "strips", tmp_path, client=client)


@pytest.mark.filterwarnings("ignore:no query has a positive")  # so it may be drawn
@examples(40)
@given(data=st.data())
def test_listed_pairs_shared_by_protocols(data: st.DataObject) -> None:
    """Protocols that differ in pairs of one identity share their counts."""
    rules = ["same(id, cam)", "same(id, view)", "same(id) and not same(cam)", "same(id, cam, view)"]
    chosen = data.draw(st.lists(st.sampled_from(rules), max_size=2, unique=True))
    positive = data.draw(st.sampled_from(["same(id)", "same(id, view)", "same(id) or same(cam)"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    query, gallery = labels_of(rng, 9), labels_of(rng, 40)
    features = [rng.integers(-1, 2, (rows, 3)).astype(np.float32) + 0.25 for rows in (9, 40)]
    protocols = [
        MARKET,
        Protocol("drawn", tuple(chosen), positive=positive),
        Protocol("none", ()),
    ]
    source = se.Features(*features, "sqeuclidean")
    sides = {"query": query, "gallery": gallery}
    found = se.evaluate_all(source, **sides, protocols=protocols)
    for protocol in protocols:
        alone = se.evaluate(source, **sides, protocol=protocol)
        check(found[protocol.name], alone, [np.arange(9), np.arange(40)])


@pytest.mark.slow
def test_resumed(problem: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several evaluations have counted is kept, and read again."""
    from support.run import checkpoint_module, passes_module

    monkeypatch.setattr(checkpoint_module, "COMMIT_SECONDS", 0.0)
    query, gallery = problem["sides"]
    given = {"query": query, "gallery": gallery, "protocols": PROTOCOLS, "threads": 1}
    source = source_of(problem, "features", [np.arange(QUERIES), np.arange(GALLERY)], tmp_path)
    expected = se.evaluate_all(source, **given)
    merge, calls = passes_module.COUNT.compute, []

    def fails(job: Any, task: Any, watch: Any) -> Any:
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return merge(job, task, watch)

    monkeypatch.setattr("streameval.planning.planner._takes_all", lambda _: True)
    monkeypatch.setattr("streameval.planning.planner.SHOT_QUERIES", 10)
    monkeypatch.setattr("streameval.planning.planner._first_round", lambda *_: 12)
    failing = replace(passes_module.COUNT, compute=fails)
    usual = passes_module.COUNT
    monkeypatch.setattr(passes_module, "COUNT", failing)
    folder = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        se.evaluate_all(source, **given, checkpoint=folder)
    assert folder.exists()
    monkeypatch.setattr(passes_module, "COUNT", usual)
    found = se.evaluate_all(source, **given, checkpoint=folder, resume=True)
    for name, one in found.runs.items():
        assert one.statistics.equals(expected.runs[name].statistics)
    assert not folder.exists()


def test_cells_are_of_the_queries_label_and_the_gallery(problem: dict[str, Any]) -> None:
    """Each view of the queries against each of the gallery, as by a command for each of these."""
    query, gallery = (
        {**side, "id": side["id"] % 3, "view": np.arange(len(side["id"])) % 11}
        for side in problem["sides"]
    )
    source = se.Features(*problem["features"], "euclidean")
    sides = {"query": query, "gallery": gallery, "metrics": "CMC@1,mAP"}
    views = replace(MARKET, name="views", galleries="view", unmatched="miss")
    result = se.evaluate_all(source, **sides, protocols=[views])["views"]
    assert isinstance(result, Average)
    labels = np.unique(gallery["view"])
    for name in ("CMC@1", "mAP"):
        cells = result.cells(name)
        assert cells.queries == cells.galleries == tuple(map(str, labels))
        for at, view in enumerate(labels):
            one = replace(MARKET, name="one", gallery=f"view == {view}", unmatched="miss")
            grouped = se.evaluate(source, **sides, protocol=one, group_by="view").groups
            expected = [own[name] for own in grouped.values()]
            assert np.array_equal(cells.values[:, at], expected, equal_nan=True)
        rows = [np.delete(row, at) for at, row in enumerate(cells.values)]
        assert cells.mean == pytest.approx(np.mean(cells.values), abs=1e-12)
        assert cells.mean_of_others == pytest.approx(np.mean(rows), abs=1e-12)
        assert result.summary()["cells"]["metrics"][name]["mean"] == cells.mean
    assert "... of another view" in str(result)
    with pytest.raises(se.InputError, match="there is no metric mINP"):
        result.cells("mINP")
    alone = se.evaluate(source, **sides)
    with pytest.raises(se.InputError, match="cells need runs of one protocol with galleries"):
        se.average([alone]).cells("mAP")


@pytest.mark.parametrize("gallery", ["", "cam == 1", "cam == 2"])
def test_own_images_are_told_by_their_rows_in_the_source(
    problem: dict[str, Any], gallery: str
) -> None:
    """Also where as many queries as items are selected."""
    labels = dict(problem["sides"][1])
    labels["cam"] = np.arange(GALLERY) % 3
    features = problem["features"][1]
    own = replace(
        se.PROTOCOLS["no-camera"], name="own", self_match="index", junk_ids=(), queries="cam == 1"
    )
    found = se.evaluate(
        se.Features(features, features),
        query=labels,
        gallery=labels,
        protocol=replace(own, gallery=gallery),
    )
    ranked = np.ones(GALLERY, np.bool_) if not gallery else labels["cam"] == int(gallery[-1])
    asking = np.flatnonzero(labels["cam"] == 1)
    assert found.counts["pairs_ignored"] == np.count_nonzero(ranked[asking])
    same = labels["id"][asking][:, None] == labels["id"][ranked]
    alike = np.count_nonzero(same) - np.count_nonzero(ranked[asking])
    assert found.counts["pairs_positive"] == alike
    with pytest.raises(OptionError, match="needs query i to be gallery item i"):
        se.evaluate(
            se.Features(features[:5], features),
            query=taken(labels, np.arange(5)),
            gallery=labels,
            protocol=replace(own, gallery=gallery),
        )


def test_saved_and_loaded(problem: dict[str, Any], tmp_path: Path) -> None:
    query, gallery = problem["sides"]
    source = se.Features(*problem["features"])
    given = {"query": query, "gallery": gallery, "metrics": "CMC@1,mAP"}
    results = se.evaluate_all(source, **given, protocols=[MARKET, PROTOCOLS[6]])
    results.save(tmp_path / "out")
    loaded = se.Evaluation.load(tmp_path / "out" / "market1501")
    assert loaded["mAP"] == results["market1501"]["mAP"]  # type: ignore[index]
    again = se.Evaluations.load(tmp_path / "out")
    assert again.summary() == results.summary()
    with pytest.raises(OutputError, match="no results of protocols"):
        se.Evaluations.load(tmp_path / "out" / "drawn")
    average = Average.load(tmp_path / "out" / "drawn")
    drawn = results["drawn"]
    assert isinstance(drawn, Average)
    assert average.mean["mAP"] == drawn.mean["mAP"]
    assert average.runs["trial 1"].provenance["view"]["of"] == [QUERIES, GALLERY]
    with pytest.raises(OutputError, match="already"):
        results.save(tmp_path / "out")
    results.save(tmp_path / "out", overwrite=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queries": "cam in [3"}, "queries of protocol bad: rule 'cam in \\[3' can't be read"),
        ({"queries": "same(id)"}, "has 'same\\(id\\)'; expected a column of the query compared"),
        ({"gallery": "query.cam == 1"}, "has 'query.cam'; expected the name of a label column"),
        ({"gallery": "rest"}, "which only queries can be"),
        ({"queries": "rest"}, "no trial draws gallery items"),
        ({"trials": {"drawn": 1}}, "an unknown key 'drawn'"),
        ({"trials": {"per": "id"}}, "per is 'id'; a list of label columns"),
        ({"trials": {"times": 0}}, "times is 0; a whole number of at least 1"),
        ({"trials": {"side": "both"}}, "side is 'both'; 'gallery' or 'query'"),
        ({"trials": 3}, "trials of protocol bad is 3"),
    ],
)
def test_rules_of_who_takes_part_are_checked(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        replace(MARKET, name="bad", **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queries": "cam == 77"}, "holds of none of the 45 items"),
        ({"gallery": "cam == 'a'"}, "holds integers"),
        ({"gallery": "colour == 1"}, "colour"),
        ({"galleries": "colour"}, "colour"),
        ({"trials": {"per": ["colour"]}}, "colour"),
        ({"queries": "rest", "trials": {}}, "give the same images on both sides"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    problem: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    query, gallery = problem["sides"]
    bad = replace(MARKET, name="bad", **changes)
    with pytest.raises(OptionError, match=words):
        se.evaluate_all(
            se.Features(*problem["features"]), query=query, gallery=gallery, protocols=[bad]
        )


def test_what_selects_is_refused_where_all_take_part(problem: dict[str, Any]) -> None:
    query, gallery = problem["sides"]
    sides = {"query": query, "gallery": gallery}
    features = se.Features(*problem["features"])
    with pytest.raises(OptionError, match="evaluate_all returns all of them"):
        se.evaluate(features, **sides, protocol=PROTOCOLS[6])
    with pytest.raises(OptionError, match="lists of neighbours are of the whole gallery"):
        se.evaluate(
            se.Neighbors(features=features, index="Flat", k=5), **sides, protocol=PROTOCOLS[5]
        )
    with pytest.raises(OptionError, match="lists leave items out"):
        se.evaluate_all(
            se.Neighbors(features=features, index="Flat", k=5),
            **sides,
            protocols=["market1501", "cuhk03"],
            metrics="CMC@1",
        )
    with pytest.raises(OptionError, match="a ledger ranks all that is appended"):
        se.Ledger.create("never", query_labels=query, protocol=PROTOCOLS[5])
    with pytest.raises(OptionError, match="comes twice"):
        se.evaluate_all(features, **sides, protocols=["market1501", MARKET])
    with pytest.raises(OptionError, match="a list of them is needed"):
        se.evaluate_all(features, **sides, protocols="market1501")
    with pytest.raises(OptionError, match="a list of them is needed"):
        se.evaluate_all(features, **sides, protocols=[])


def test_a_distance_outside_the_range_is_named_as_the_source_numbers_it(
    problem: dict[str, Any],
) -> None:
    query, gallery = problem["sides"]
    distances = np.ones((QUERIES, GALLERY))
    row, item = (np.flatnonzero(side["cam"] == 5)[-1] for side in (query, gallery))
    distances[row, item] = 7.0
    last = replace(MARKET, name="last", queries="cam == 5", gallery="cam == 5")
    with pytest.raises(se.InputError, match=f"query {row} to gallery item {item} is 7.0, outside"):
        se.evaluate(
            se.Distances(distances), query=query, gallery=gallery, protocol=last, range=(0, 2)
        )


def test_trials_draw_as_the_standard_library_does() -> None:
    import random

    labels = se.Labels([5, 5, 5, 2, 2, 9], [0, 1, 1, 0, 0, 3])
    protocol = replace(MARKET, name="t", trials={"per": ["id", "cam"], "times": 2, "seed": 7})
    for trial, view in enumerate(views_of(protocol, labels, labels)):
        generator = random.Random(7 + trial)
        drawn = [generator.choice(rows) for rows in ([3, 4], [0], [1, 2], [5])]
        assert view.items is not None
        assert view.items.tolist() == sorted(drawn)


def test_the_rest_asks(problem: dict[str, Any]) -> None:
    _, gallery = problem["sides"]
    labels = se.Labels.of(gallery)
    protocol = replace(MARKET, name="t", queries="rest", trials={"times": 2})
    for view in views_of(protocol, labels, labels):
        assert view.items is not None
        assert view.queries is not None
        assert np.array_equal(np.union1d(view.items, view.queries), np.arange(GALLERY))
        assert np.array_equal(np.unique(gallery["id"][view.items]), np.unique(gallery["id"]))
        assert len(view.items) == len(np.unique(gallery["id"]))


def test_the_command_line(problem: dict[str, Any], tmp_path: Path) -> None:
    for side, features, labels in zip(
        ("query", "gallery"), problem["features"], problem["sides"], strict=True
    ):
        np.save(tmp_path / f"{side}.npy", features)
        rows = zip(*(labels[name] for name in ("id", "cam", "view")), strict=True)
        lines = ["id,cam,view", *(",".join(map(str, row)) for row in rows)]
        (tmp_path / f"{side}.csv").write_text("\n".join(lines) + "\n")
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'ignore = ["same(id, cam)"]\nqueries = "cam in [3, 5]"\ngallery = "cam <= 2"\n'
        '[trials]\ndraw = 1\nper = ["id", "cam"]\ntimes = 3\n'
    )
    places = [f"--{name}={tmp_path}/{name}.npy" for name in ("query", "gallery")]
    places += [f"--{name}-labels={tmp_path}/{name}.csv" for name in ("query", "gallery")]
    command = ["evaluate", *places, "--protocol", str(mine), "--quiet"]

    def run(*more: str) -> str:
        done = CliRunner().invoke(main, [*command, *more])
        assert done.exit_code == 0, done.output
        return done.output

    out = tmp_path / "out"
    text = run("--protocol", "no-camera", "--out", str(out), "--metrics", "CMC@1,mAP")
    assert "3 trials of 1 of the items of each id and cam" in text
    assert "Protocol  no-camera" in text
    query, gallery = problem["sides"]
    results = se.evaluate_all(
        se.Features(*problem["features"]),
        query=query,
        gallery=gallery,
        protocols=[se.read_protocol(mine), "no-camera"],
    )
    saved = Average.load(out / "mine")
    drawn = results["mine"]
    assert isinstance(drawn, Average)
    assert saved.mean["mAP"] == drawn.mean["mAP"]
    again = run("--protocol", "no-camera", "--out", str(out), "--metrics", "mAP", "--resume")
    assert "Average of  3 runs" in again
    assert "3, in one pass" in run("--dry-run")
    near = np.flatnonzero(gallery["cam"] <= 2)
    rows = [near[:9], near[3:]]
    (tmp_path / "rows.txt").write_text("".join(" ".join(map(str, own + 1)) + "\n" for own in rows))
    drawn_rows = f"--drawn={tmp_path}/rows.txt"
    text = run(drawn_rows, "--drawn-as", "1-based", "--metrics", "mAP", "--format", "csv")
    known = se.evaluate_all(
        se.Features(*problem["features"]),
        query=query,
        gallery=gallery,
        protocols=[se.read_protocol(mine)],
        drawn=rows,
    )["mine"]
    assert isinstance(known, Average)
    assert [float(line.split(",")[1]) for line in text.splitlines()[1:3]] == [
        one["mAP"] for one in known.runs.values()
    ]
    for more in ([], ["--drawn-as", "1-based", "--shots", "1"]):
        done = CliRunner().invoke(main, [*command, drawn_rows, *more])
        assert "give --drawn-as 0-based or --drawn-as 1-based" in done.output
    for shown, words in ((out, "Protocol  no-camera"), (out / "mine", "Average of  3 runs")):
        done = CliRunner().invoke(main, ["show", str(shown)])
        assert done.exit_code == 0, done.output
        assert words in done.output
    assert run("--metrics", "mAP", "--format", "csv").splitlines()[0] == "run,mAP"


def test_a_gallery_for_each_group_of_queries(problem: dict[str, Any]) -> None:
    """Queries that see the items of their own label equal evaluations label by label."""
    sides, features = problem["sides"], problem["features"]
    own = replace(
        MARKET,
        name="own",
        positive="same(id, view)",
        ignore=("same(id, cam)", "not same(view)"),
    )
    found = se.evaluate(
        se.Features(*features, "euclidean"),
        query=sides[0],
        gallery=sides[1],
        protocol=own,
        range=(0, 40),
    )
    for view in range(4):
        rows = [np.flatnonzero(side["view"] == view) for side in sides]
        alone = se.evaluate(
            se.Features(*(side[at] for side, at in zip(features, rows, strict=True)), "euclidean"),
            query=taken(sides[0], rows[0]),
            gallery=taken(sides[1], rows[1]),
            protocol=MARKET,
            range=(0, 40),
        )
        statistics = found.statistics.take(rows[0])
        for name in ("closer", "tied", "negatives_within", "valid", "same_identity"):
            assert np.array_equal(getattr(statistics, name), getattr(alone.statistics, name)), name
        for name in ("class", "AP", "INP"):
            values, expected = found.per_query[name][rows[0]], alone.per_query[name]
            assert np.array_equal(values, expected, equal_nan=name != "class"), name
