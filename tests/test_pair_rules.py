"""Rules that name lists of pairs, ``pair.NAME``: what lists may be, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.protocols import find_pairs, lists_of
from support.rankings import reopen
from test_cli import ARRAYS, CSV, STORED, data, run
from test_cli_metrics import refused

import streameval as se

pd, pl = (pytest.importorskip(name) for name in ("pandas", "polars"))

__all__ = ["data"]

QUERIES, ITEMS = 20, 60
RULES = se.Protocol("mine", ["pair.junk"], positive="pair.good or pair.junk", junk_ids=[])
OVERLAP = se.Protocol("overlap", ["pair.some < 0.4"], positive="pair.some >= 0.7", junk_ids=[])

Table = Mapping[str, np.ndarray]


@pytest.fixture
def sides() -> dict[str, se.Labels]:
    rng = np.random.default_rng(1)
    return {
        name: se.Labels(rng.integers(0, 7, count), key=[f"{name} {row}" for row in range(count)])
        for name, count in (("query", QUERIES), ("gallery", ITEMS))
    }


@pytest.fixture
def table() -> Table:
    rng = np.random.default_rng(2)
    query, item = rng.permutation(np.argwhere(rng.random((QUERIES, ITEMS)) < 0.2)).T
    return {"query": query, "item": item, "value": rng.integers(0, 10, len(query)) / 10}


def evaluate(sides: Mapping[str, se.Labels], **options: Any) -> se.Evaluation:
    source = se.Distances(np.random.default_rng(3).random((QUERIES, ITEMS)))
    return se.evaluate(source, **sides, metrics="mAP,CMC@1", **options)


def write_csv(table: Table, sides: Mapping[str, se.Labels]) -> se.PairList:
    pd.DataFrame(dict(table)).to_csv("pairs.csv", index=False)
    return se.read_pairs("pairs.csv", **sides)


def write_keys(table: Table, sides: Mapping[str, se.Labels]) -> se.PairList:
    keys = {
        name: [f"{side} {row}" for row in table[name]]
        for name, side in (("query", "query"), ("item", "gallery"))
    }
    pq.write_table(pa.table({**table, **keys}), "pairs.parquet")
    return se.read_pairs("pairs.parquet", **sides, listed_as="key")


FORMS: Mapping[str, Callable[[Table, Mapping[str, se.Labels]], Any]] = {
    "mapping": lambda table, _: table,
    "lists": lambda table, _: {name: own.tolist() for name, own in table.items()},
    "pandas": lambda table, _: pd.DataFrame(dict(table)),
    "polars": lambda table, _: pl.DataFrame(dict(table)),
    "PyArrow": lambda table, _: pa.table(dict(table)),
    "CSV": write_csv,
    "Parquet of keys": write_keys,
    "twice": lambda table, _: {name: np.append(own, own[:9]) for name, own in table.items()},
    "of a further column": lambda table, _: pd.DataFrame({**table, "annotator": "me"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table(
    form: str,
    sides: dict[str, se.Labels],
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    value = np.full((QUERIES, ITEMS), np.nan)
    value[table["query"], table["item"]] = table["value"]
    result = evaluate(sides, protocol=OVERLAP, pairs={"some": FORMS[form](table, sides)})
    assert result.statistics.positives.tolist() == (value >= 0.7).sum(axis=1).tolist()
    assert result.statistics.ignored.tolist() == (value < 0.4).sum(axis=1).tolist()


def test_lists_of_good_and_junk_items_are_rules(
    sides: dict[str, se.Labels], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    kind = rng.choice(3, (QUERIES, ITEMS), p=[0.8, 0.1, 0.1])
    kind[:3] = [[0], [2], [1]]
    good, junk = ([np.flatnonzero(row == one) for row in kind] for one in (1, 2))
    with pytest.warns(se.StreamevalWarning, match="different identities"):
        expected = evaluate(sides, listed=se.ListedPairs.of(good, junk))
    files = {}
    for name, rows in (("good", good), ("junk", junk)):
        Path(f"{name}.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        files[name] = se.read_pairs(f"{name}.txt", **sides, listed_as="0-based")
    for pairs in ({"good": good, "junk": junk}, files):
        found = evaluate(sides, protocol=RULES, pairs=pairs)
        assert found.statistics.equals(expected.statistics)
        fingerprint = found.provenance["label_fingerprints"]["listed pairs"]
        assert fingerprint == expected.provenance["label_fingerprints"]["listed pairs"]
    assert expected.per_query["class"][:3].tolist() == ["negative", "excluded", "positive"]
    good_alone = se.Protocol("mine", ["pair.junk"], positive="pair.good")
    found = evaluate(sides, protocol=good_alone, pairs=files)
    assert found.per_query["class"][:3].tolist() == ["negative", "negative", "positive"]
    assert np.array_equal(found.statistics.positives, expected.statistics.positives)


def test_a_pair_on_both_lists_of_rules_is_ignored(sides: dict[str, se.Labels]) -> None:
    rows = [[1, 2]] * QUERIES
    pairs = lists_of({"good": rows, "junk": [[2]] * QUERIES}, QUERIES)
    found = find_pairs(**sides, protocol=RULES, listed=pairs)
    assert found.positives()[1].tolist() == [1] * QUERIES


@pytest.mark.parametrize(
    ("protocol", "pairs", "message"),
    [
        (RULES, {"good": 0}, "rule 'pair.junk', and got pairs good: give --pairs junk=FILE"),
        (RULES, None, "and got no lists of pairs: give --pairs junk=FILE .in Python pairs="),
        ("no-camera", {"good": 0}, "no rule of protocol no-camera names pair.good: choose"),
        (OVERLAP, {"some": 0}, "pair.some .*, and pairs 'some' has no values: give a table"),
    ],
)
def test_lists_that_rules_do_not_name(
    sides: dict[str, se.Labels], protocol: Any, pairs: Any, message: str
) -> None:
    rows: Any = [[1]] * QUERIES
    given = None if pairs is None else dict.fromkeys(pairs, rows)
    with pytest.raises(se.OptionError, match=message):
        evaluate(sides, protocol=protocol, pairs=given)


def test_listed_and_pairs_together(sides: dict[str, se.Labels]) -> None:
    rows: Any = [[1]] * QUERIES
    with pytest.raises(se.OptionError, match="got listed and pairs"):
        evaluate(sides, listed=se.ListedPairs.of(rows), pairs={"good": rows})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"query": [0, 20], "item": [0, 0]}, "row 1 has query 20; the 20 queries are numbered 0"),
        ({"query": [0, -1], "item": [0, 0]}, "row 1 has query -1"),
        ({"query": [0, 3], "item": [0, 60]}, "'some', query 3 lists item 60; the 60 gallery items"),
        ({"query": [0, 1], "item": [0]}, "has 2 entries of query, and 1 of item"),
        ({"query": [0, 1]}, "has no column item: pairs need columns query and item"),
        ({"query": ["a"], "item": [0]}, "query holds texts; row numbers, counted from 0"),
        ({"query": [0.5], "item": [0]}, "query is of dtype float64"),
        ({"query": [0], "item": [0], "value": ["a"]}, "a number a pair is needed"),
        ({"query": [0, 0], "item": [0, 0], "value": [0.5, 1]}, "item 0 with values 0.5 and 1.0"),
        ([[0]] * 19, "has 19 lines, and there are 20 queries"),
        ([[0.5]] * 20, "gallery indices, a 1-d list of integers, are needed"),
        ("pairs.csv", "is of type str; a table .* .those of a file: read_pairs."),
        (3, "is of type int; a table"),
        (pa.table({"query": [0]}), "has no column item"),
        (pa.table({"query": [0, None], "item": [1, 1]}), "column query is empty in 1 rows"),
    ],
)
def test_lists_that_are_refused(sides: dict[str, se.Labels], given: Any, message: str) -> None:
    protocol = se.Protocol("mine", ["pair.some"])
    with pytest.raises(se.InputError, match=message):
        evaluate(sides, protocol=protocol, pairs={"some": given})


@pytest.mark.parametrize(
    ("content", "listed_as", "message"),
    [
        ("query,item\nquery 1,gallery 9\nnobody,gallery 9\n", "key", "row 1 .* has query 'nobody'"),
        ("query,item\nquery 1,gallery 60\n", "key", "row 0 .* 'gallery 60', a key .* has not"),
        ("query,item\nquery 1,gallery 9\n", "0-based", "list names as keys"),
        ("query,item\n1,2,3\n", "0-based", "has 3 of 2 cells"),
        ("query,item,item\n1,2,3\n", "0-based", "has 2 columns item"),
        ("query,item\n1,\n", "0-based", "column item is empty in 1 rows"),
    ],
)
def test_files_that_are_refused(
    sides: dict[str, se.Labels], tmp_path: Path, content: str, listed_as: Any, message: str
) -> None:
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(se.InputError, match=message):
        se.read_pairs(tmp_path / "p.csv", **sides, listed_as=listed_as)
    with pytest.raises(se.InputError, match=r"none\.csv can't be read"):
        se.read_pairs(tmp_path / "none.csv", **sides)
    without = {**sides, "query": se.Labels([1])}
    with pytest.raises(se.OptionError, match=r"p\.csv lists keys, and labels has none"):
        se.read_pairs(tmp_path / "p.csv", **without, listed_as="key")


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("not pair.junk", "exempts listed pairs of too many: .* needs one of pair.junk, same.id."),
        ("same(cam) and pair.some != 1", "exempts listed pairs of too many"),
        ("pair.some == 'a'", "\"'a'\"; expected a number after =="),
        ("pair.some in ['a']", "expected a number after in"),
        ("query.cam", "'query.cam'; expected a comparison with a value, as query.cam == 3"),
        ("pairs.some", "'pairs.some'; expected query.COLUMN or gallery.COLUMN, or pair.NAME"),
        ("pair", "'pair'; expected same.COLUMN, ...., or query.COLUMN .* or pair.NAME"),
    ],
)
def test_rules_that_are_refused(rule: str, word: str) -> None:
    with pytest.raises(se.OptionError, match=word):
        se.Protocol("mine", [rule])


def test_names_that_are_no_words(sides: dict[str, se.Labels]) -> None:
    protocol = se.Protocol("mine", ['pair["the junk"] and not same(id)'])
    rows: Any = [[1]] * QUERIES
    result = evaluate(sides, protocol=protocol, pairs={"the junk": rows})
    other = sides["query"].id != sides["gallery"].id[1]
    assert np.array_equal(result.statistics.ignored, other)


def test_ledgers_have_no_lists(sides: dict[str, se.Labels], tmp_path: Path) -> None:
    for protocol in (RULES, "listed"):
        with pytest.raises(se.OptionError, match="takes its pairs from lists"):
            se.Ledger.create(tmp_path / "L", query_labels=sides["query"], protocol=protocol)


def test_a_protocol_by_lists_alone_takes_no_own_images() -> None:
    with pytest.raises(se.OptionError, match="from lists alone, and got self_match"):
        se.Protocol("mine", listed=True, self_match="index")


@pytest.mark.usefixtures("data")
def test_lists_on_the_command_line() -> None:
    sides = {side: se.read_label_table(f"{side}.csv") for side in ("query", "gallery")}
    same = sides["query"].id[:, None] == sides["gallery"].id
    rng = np.random.default_rng(5)
    query, item = np.nonzero(same)
    table = {"query": query, "item": item, "overlap": rng.random(len(query)).round(1)}
    frame = pd.DataFrame(table).rename(columns={"overlap": "value"})
    frame.to_csv("near.csv", index=False)
    lines = [
        " ".join(map(str, np.flatnonzero(row) + 1)) for row in same & (rng.random(same.shape) < 0.3)
    ]
    Path("junk.txt").write_text("\n".join(lines) + "\n")
    Path("mine.toml").write_text(
        'positive = "same(id)"\nignore = ["pair.near < 0.5", "pair.junk"]\n'
    )
    files = ("--pairs", "near=near.csv", "--pairs", "junk=junk.txt")
    options = (*CSV, "--protocol", "mine.toml", *files)
    done = run(*STORED, *options, "--json", "--quiet", "--out", "out")
    assert (done.exit_code, done.stderr) == (0, "")
    pairs = {
        name: se.read_pairs(path, **sides)
        for name, path in (("near", "near.csv"), ("junk", "junk.txt"))
    }
    expected = se.evaluate(
        se.Distances(STORED[-1]), **sides, protocol=se.read_protocol("mine.toml"), pairs=pairs
    )
    assert json.loads(done.stdout)["metrics"]["mAP"] == expected["mAP"]
    saved = se.Evaluation.load("out")
    assert saved.statistics.equals(expected.statistics)
    assert (
        reopen(saved, "out").pairs.item.tolist()
        == find_pairs(
            **sides,
            protocol=se.read_protocol("mine.toml"),
            listed=lists_of(pairs, len(sides["query"])),
        ).item.tolist()
    )
    resumed = run(*STORED, *options, "--json", "--quiet", "--out", "out", "--resume")
    assert resumed.exit_code == 0
    refused(run(*STORED, *options, "--pairs", "junk=near.csv"), "got --pairs junk= twice")
    refused(run(*STORED, *options[:-2]), "rule 'pair.junk', and got pairs near: give --pairs junk=")
    refused(run(*STORED, *CSV, "--pairs", "junk"), "--pairs is 'junk'; expected NAME=FILE")
    refused(run(*STORED, *CSV, "--pairs", "junk=no.txt"), "list of pairs no.txt can't be read")
    refused(run(*STORED, *ARRAYS, "--listed-as", "key"), "got --listed-as")


def test_lists_of_selected_queries_and_items(table: Table) -> None:
    """Their pairs are those of the selection alone, numbered as the whole."""
    rng = np.random.default_rng(6)
    sides = {
        name: se.Labels(rng.integers(0, 7, count), rng.integers(0, 3, count))
        for name, count in (("query", QUERIES), ("gallery", ITEMS))
    }
    asking, ranked = (np.flatnonzero(sides[name].cam != 0) for name in ("query", "gallery"))
    value = np.full((QUERIES, ITEMS), np.nan)
    value[table["query"], table["item"]] = table["value"]
    chosen = replace(OVERLAP, queries="cam in [1, 2]", gallery="cam != 0")
    found = evaluate(sides, protocol=chosen, pairs={"some": table})
    own = value[np.ix_(asking, ranked)]
    assert found.statistics.positives.tolist() == (own >= 0.7).sum(axis=1).tolist()
    assert found.statistics.ignored.tolist() == (own < 0.4).sum(axis=1).tolist()
    distances = np.random.default_rng(3).random((QUERIES, ITEMS))[np.ix_(asking, ranked)]
    row, item = np.nonzero(~np.isnan(own))
    alone = se.evaluate(
        se.Distances(distances),
        query=sides["query"].take(asking),
        gallery=sides["gallery"].take(ranked),
        protocol=OVERLAP,
        metrics="mAP,CMC@1",
        pairs={"some": {"query": row, "item": item, "value": own[row, item]}},
    )
    assert found["mAP"] == alone["mAP"]
    beyond = {**table, "query": table["query"] + 1}
    with pytest.raises(se.InputError, match="the 20 queries are numbered 0 to 19"):
        evaluate(sides, protocol=chosen, pairs={"some": beyond})


def test_several_protocols_share_lists(sides: dict[str, se.Labels], table: Table) -> None:
    rows: Any = [[1, row % ITEMS] for row in range(QUERIES)]
    pairs = {"some": table, "junk": rows}
    protocols = [OVERLAP, se.Protocol("plain", ["pair.junk"]), "no-camera"]
    source = se.Distances(np.random.default_rng(3).random((QUERIES, ITEMS)))
    found = se.evaluate_all(source, **sides, protocols=protocols, pairs=pairs, metrics="mAP,CMC@1")
    for name, protocol, own in (
        ("overlap", OVERLAP, {"some": table}),
        ("plain", protocols[1], {"junk": rows}),
        ("no-camera", "no-camera", None),
    ):
        expected = evaluate(sides, protocol=protocol, pairs=own)
        result = found[name]
        assert isinstance(result, se.Evaluation)
        assert result.statistics.equals(expected.statistics)
    with pytest.raises(se.OptionError, match=r"no rule of protocol .* names pair.other"):
        se.evaluate_all(source, **sides, protocols=protocols, pairs={**pairs, "other": rows})
