"""Queries, galleries and items of a protocol that are given by their row numbers."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import zarr
from click.testing import CliRunner
from support.cli import main
from test_one_pass import check, labels_of, taken

import streameval as se
from streameval import InputError, OptionError

QUERIES, ITEMS, WIDTH = 30, 90, 5
ASKING, RANKED = np.array([21, 4, 0, 7, 29, 12, 13]), np.arange(ITEMS)[::-1][: ITEMS // 2]
GALLERIES = [[0, 3, 5, 80, 81, 82, 83], [5, 3, 10, 89], [*range(20, 60)]]
MINE = se.Protocol("mine", ["same(id, cam)"])
BY_ROWS = replace(MINE, queries=se.Rows(ASKING), gallery=se.Rows(RANKED.tolist()))


def marked(labels: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {**labels, "mark": np.isin(np.arange(len(labels["id"])), rows).astype(int)}


@pytest.fixture(scope="module")
def problem() -> dict[str, Any]:
    """Return features and labels, with the rows that take part in column ``mark``."""
    rng = np.random.default_rng(7)
    query, gallery = (
        {**labels_of(rng, rows), "id": rng.integers(0, 4, rows)} for rows in (QUERIES, ITEMS)
    )
    return {
        "features": [rng.standard_normal((rows, WIDTH)) for rows in (QUERIES, ITEMS)],
        "sides": {"query": marked(query, ASKING), "gallery": marked(gallery, RANKED)},
    }


def source_of(problem: dict[str, Any], kind: str, rows: Any, folder: Path) -> Any:
    query, gallery = (side[own] for side, own in zip(problem["features"], rows, strict=True))
    if kind == "features":
        return se.Features(query, gallery, "euclidean")
    distances = np.abs(query[:, None] - gallery).sum(axis=2)
    path = folder / f"{len(query)}-{len(gallery)}.zarr"
    zarr.create_array(path, data=distances, chunks=(8, 16), overwrite=True)
    return se.Distances(path)


WHOLE = np.arange(QUERIES), np.arange(ITEMS)


@pytest.mark.parametrize("kind", ["features", "matrix"])
def test_equal_to_a_rule_and_to_the_rows_alone(
    problem: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    sides, whole = problem["sides"], source_of(problem, kind, WHOLE, tmp_path)
    by_rule = replace(MINE, queries="mark == 1", gallery="mark == 1")
    expected = se.evaluate(whole, **sides, protocol=by_rule)
    found = se.evaluate(whole, **sides, protocol=BY_ROWS)
    assert found.statistics.equals(expected.statistics)
    assert found.metrics.scalars == expected.metrics.scalars
    rows = [np.sort(ASKING), np.sort(RANKED)]
    alone = se.evaluate(
        source_of(problem, kind, rows, tmp_path),
        query=taken(sides["query"], rows[0]),
        gallery=taken(sides["gallery"], rows[1]),
        protocol=MINE,
    )
    check(found, alone, rows)
    assert found.per_query["label:row"].tolist() == rows[0].tolist()


@pytest.mark.parametrize("kind", ["features", "matrix"])
def test_galleries_of_rows(problem: dict[str, Any], kind: str, tmp_path: Path) -> None:
    sides, whole = problem["sides"], source_of(problem, kind, WHOLE, tmp_path)
    protocol = replace(MINE, galleries=[se.Rows(rows) for rows in GALLERIES])
    found = se.evaluate_all(whole, **sides, protocols=[protocol])["mine"]
    assert isinstance(found, se.Average)
    assert list(found.runs) == ["gallery 1", "gallery 2", "gallery 3"]
    for run, rows in zip(found.runs.values(), map(np.sort, GALLERIES), strict=True):
        alone = se.evaluate(
            source_of(problem, kind, (WHOLE[0], rows), tmp_path),
            query=sides["query"],
            gallery=taken(sides["gallery"], rows),
            protocol=MINE,
        )
        check(run, alone, [WHOLE[0], rows])
    with pytest.raises(InputError, match="by a label column, not by their rows"):
        found.cells("mAP")
    assert "galleries that are given (3)" in str(found)
    found.save(tmp_path / "saved")
    assert str(se.Average.load(tmp_path / "saved")) == str(found)


def test_rows_are_drawn_from_and_the_rest_asks(problem: dict[str, Any]) -> None:
    features, labels = problem["features"][1], problem["sides"]["gallery"]
    among = np.sort(RANKED)
    drawn = replace(
        MINE, ignore=(), queries="rest", gallery=se.Rows(among), trials=se.Trials(2, times=3)
    )
    source = se.Features(features, features)
    sides = {"query": labels, "gallery": labels, "metrics": "CMC@1,mAP"}
    found = se.evaluate_all(source, **sides, protocols=[drawn])["mine"]
    by_rule = replace(drawn, gallery="mark == 1")
    expected = se.evaluate_all(source, **sides, protocols=[by_rule])["mine"]
    assert isinstance(found, se.Average)
    assert isinstance(expected, se.Average)
    for name, run in found.runs.items():
        assert run.statistics.equals(expected.runs[name].statistics)
        assert np.isin(run.per_query["label:row"], among).all()
    galleries = replace(drawn, queries="", galleries=[se.Rows(among[:9]), se.Rows(among[5:])])
    found = se.evaluate_all(source, **sides, protocols=[galleries])["mine"]
    names = [f"gallery {one} trial {trial}" for one in (1, 2) for trial in (1, 2, 3)]
    assert list(found.runs) == names  # type: ignore[union-attr]


def test_saved_results_know_rows_by_their_digest(problem: dict[str, Any], tmp_path: Path) -> None:
    source = se.Features(*problem["features"])
    given = {**problem["sides"], "metrics": "CMC@1,mAP"}
    found = se.evaluate(source, **given, protocol=BY_ROWS)
    assert "queries of 7 rows that are given" in str(found)
    found.save(tmp_path / "saved")
    summary = json.loads((tmp_path / "saved" / "summary.json").read_text())
    assert summary["provenance"]["protocol"]["queries"]["count"] == len(ASKING)
    loaded = se.Evaluation.load(tmp_path / "saved")
    assert str(loaded) == str(found)
    assert se.compare(loaded, found)
    others = replace(BY_ROWS, gallery=se.Rows([*RANKED[:-1], 3]))
    other = se.evaluate(source, **given, protocol=others)
    assert other.counts["gallery"] == found.counts["gallery"]
    with pytest.raises(InputError, match="differ in protocol"):
        se.average({"a": loaded, "b": other})
    with pytest.raises(InputError, match="differ in protocol"):
        se.average({"a": found, "b": other})


def test_rows_are_values() -> None:
    rows = se.Rows(np.array([4, 0, 2], np.uint8))
    assert rows == se.Rows([0, 2, 4]) != se.Rows([0, 2, 5])
    assert hash(rows) == hash(se.Rows((2, 4, 0)))
    assert rows.numbers.tolist() == [0, 2, 4]
    assert pickle.loads(pickle.dumps(rows)).numbers.tolist() == [0, 2, 4]
    assert (str(rows), str(se.Rows([3]))) == ("3 rows that are given", "1 row that is given")


def write_rows(folder: Path) -> None:
    rows = np.array([[4, 0, 2]])
    np.save(folder / "flat.npy", rows[0])
    np.save(folder / "tall.npy", rows.T)
    np.save(folder / "wide.npy", rows)
    scipy.io.savemat(folder / "info.mat", {"query_IDX": rows.T + 1.0})
    (folder / "one.txt").write_text("5\n1\n3\n\n")
    (folder / "line.txt").write_text("4, 0 2")
    np.save(folder / "two.npy", np.array([[4, 0, 2], [1, 2, 3]]))
    (folder / "two.txt").write_text("5 1 3\n2,3,4\n")
    (folder / "ragged.txt").write_text("0 3\n2\n")


def read(folder: Path, *lines: str) -> se.Protocol:
    (folder / "mine.toml").write_text("\n".join(["ignore = []", *lines]))
    return se.read_protocol(folder / "mine.toml")


@pytest.mark.parametrize(
    ("name", "listed_as"),
    [
        ("flat.npy", "0-based"),
        ("tall.npy", "0-based"),
        ("wide.npy", "0-based"),
        ("info.mat::query_IDX", "1-based"),
        ("one.txt", "1-based"),
        ("line.txt", "0-based"),
    ],
)
def test_files_of_rows(name: str, listed_as: str, tmp_path: Path) -> None:
    write_rows(tmp_path)
    for path in (name, tmp_path / name):
        table = f'{{ rows = "{path}", listed_as = "{listed_as}" }}'
        found = read(tmp_path, f"queries = {table}", f"gallery = {table}")
        assert found.queries == found.gallery == se.Rows([0, 2, 4])


def test_files_of_galleries(tmp_path: Path) -> None:
    write_rows(tmp_path)
    for name, listed_as, expected in (
        ("two.npy", "0-based", ([0, 2, 4], [1, 2, 3])),
        ("two.txt", "1-based", ([0, 2, 4], [1, 2, 3])),
        ("ragged.txt", "0-based", ([0, 3], [2])),
    ):
        found = read(tmp_path, f'galleries = {{ rows = "{name}", listed_as = "{listed_as}" }}')
        assert found.galleries == tuple(map(se.Rows, expected))


@pytest.mark.parametrize(
    ("key", "table", "words"),
    [
        ("queries", 'rows = "one.txt"', "queries is .*; a file of row numbers, and what they"),
        ("queries", 'row = "one.txt", listed_as = "0-based"', "queries is"),
        ("gallery", 'rows = [0, 1], listed_as = "0-based"', "gallery is"),
        ("queries", 'rows = "one.txt", listed_as = "key"', "listed_as is 'key'; say what the row"),
        ("queries", 'rows = "line.txt", listed_as = "1-based"', "has row 0, and rows are said to"),
        ("galleries", 'rows = "ragged.txt", listed_as = "1-based"', "ragged.txt, gallery 1, has"),
        ("queries", 'rows = "none.txt", listed_as = "1-based"', "none.txt can't be read"),
        ("queries", 'rows = "none.npy", listed_as = "1-based"', "none.npy does not exist"),
        ("queries", 'rows = "two.npy", listed_as = "0-based"', "shape .2, 3.; row numbers, .n.,"),
        ("galleries", 'rows = "flat.npy", listed_as = "0-based"', ".n. for each gallery, are"),
        ("queries", 'rows = "half.npy", listed_as = "0-based"', "is float64 .2,.; row numbers"),
        ("queries", 'rows = "bad.txt", listed_as = "0-based"', "bad.txt, line 2, has 'x'"),
        ("queries", 'rows = "empty.txt", listed_as = "0-based"', "empty.txt has no rows"),
        ("galleries", 'rows = "empty.txt", listed_as = "0-based"', "of each gallery are needed"),
        ("galleries", 'rows = "gap.txt", listed_as = "0-based"', "gallery 2, has no rows"),
        ("gallery", 'rows = "twice.txt", listed_as = "0-based"', "twice.txt names row 3 twice"),
        ("galleries", 'rows = "twice.txt", listed_as = "0-based"', "gallery 1, names row 3 twice"),
    ],
)
def test_files_that_are_refused(key: str, table: str, words: str, tmp_path: Path) -> None:
    write_rows(tmp_path)
    np.save(tmp_path / "half.npy", np.array([0.5, 1]))
    for name, text in (
        ("bad.txt", "1\nx\n"),
        ("empty.txt", "\n"),
        ("gap.txt", "1\n\n2\n"),
        ("twice.txt", "3 1 3\n"),
    ):
        (tmp_path / name).write_text(text)
    with pytest.raises((InputError, OptionError), match=words):
        read(tmp_path, f"{key} = {{ {table} }}")


@pytest.mark.parametrize(
    "rows", [[], [1, 1], [0.5], "rows.txt", [[0, 1]], [True], [-1], [[0], [1, 2]]]
)
def test_numbers_that_are_no_rows(rows: Any) -> None:
    with pytest.raises(InputError, match=r"rows (has|is|names|can't)"):
        se.Rows(rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queries": [0, 1]}, "queries of protocol mine is .0, 1.; a rule, such as .*Rows"),
        ({"gallery": {"count": 1}}, "gallery of protocol mine is {'count': 1}; a rule"),
        ({"galleries": []}, "galleries of protocol mine is ..; the name of a label column, or a l"),
        ({"galleries": [[0], [1]]}, "or a list of Rows is needed"),
        ({"galleries": se.Rows([0])}, "or a list of Rows is needed"),
    ],
)
def test_values_that_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        replace(MINE, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queries": se.Rows([3, 30])}, "protocol mine, queries, has row 30; the 30 rows of query"),
        ({"gallery": se.Rows([90])}, "gallery, has row 90; .* 0 to 89: do the rows count from 1"),
        ({"galleries": [se.Rows([0]), se.Rows([90])]}, "protocol mine, gallery 2, has row 90"),
        (
            {"gallery": se.Rows([0, 1]), "galleries": [se.Rows([0, 1, 7])]},
            "protocol mine, gallery 1, has row 7, which protocol mine leaves out: give rows that",
        ),
    ],
)
def test_rows_that_are_not_there(
    problem: dict[str, Any], change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    source = se.Features(*problem["features"])
    given = {**problem["sides"], "protocols": [replace(MINE, **change)]}
    with pytest.raises(InputError, match=words):
        se.evaluate_all(source, **given, checkpoint=tmp_path / "work")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("first", "status"), [(0, 0), (1, 2)])
def test_on_the_command_line(
    problem: dict[str, Any], first: int, status: int, tmp_path: Path
) -> None:
    arguments = []
    for name, features in zip(("query", "gallery"), problem["features"], strict=True):
        np.save(tmp_path / f"{name}.npy", features)
        np.save(tmp_path / f"{name}_ids.npy", problem["sides"][name]["id"])
        arguments += [f"--{name}", str(tmp_path / f"{name}.npy")]
        arguments += [f"--{name}-ids", str(tmp_path / f"{name}_ids.npy")]
    (tmp_path / "rows.txt").write_text(" ".join(map(str, ASKING + first)))
    read(tmp_path, 'queries = { rows = "rows.txt", listed_as = "0-based" }')
    arguments += ["--protocol", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, ["evaluate", *arguments, "--metrics", "CMC@1,mAP"])
    assert done.exit_code == status
    if status:
        assert "protocol mine, queries, has row 30; the 30 rows of" in done.stderr
        assert not (tmp_path / "out").exists()
        return
    assert "queries of 7 rows that are given" in done.stdout
    ids = {side: {"id": own["id"]} for side, own in problem["sides"].items()}
    protocol = se.Protocol("mine", [], queries=se.Rows(ASKING))
    expected = se.evaluate(se.Features(*problem["features"]), **ids, protocol=protocol)
    found = se.Evaluation.load(tmp_path / "out")
    assert found.metrics["mAP"] == expected.metrics["mAP"]
