"""Protocols that ignore pairs by any label columns."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from profiles import examples
from support.protocols import PairCounts, find_pairs, lists_of, multiplicities
from test_cli import CSV, STORED, data, run
from test_cli_metrics import refused, summary

import streameval as se

__all__ = ["data"]

COLUMNS = ("id", "cam", "clothes", "site")
BLOCKS = st.sampled_from([1, 3, 1 << 16])
SETS = st.sampled_from([0, 1, 32])
LISTS: Mapping[str, list[float]] = {"some": [-1] * 9 + [1], "many": [-1, 0, 0.5, 1, np.nan]}
EMPTY: Mapping[str, np.ndarray] = {}
COUNTED = ("indptr", "positive_distance", "closer", "tied", "tied_before", "nearest_negative")

# A rule as a tree: its text is parsed by the package, its pairs are found here.
SAME = st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3, unique=True).map(
    lambda columns: ("same", *columns)
)
LITERALS = st.one_of(
    st.tuples(
        st.sampled_from(["cam", "score"]),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.sampled_from([0, 1, 2, 0.5, 1.0, 1.5, -1e300]),
    ),
    st.tuples(st.just("score"), st.sampled_from(["in", "not in"]), st.just((0.25, 1))),
    st.tuples(st.just("id"), st.sampled_from(["in", "not in"]), st.just((-1, 2))),
    st.tuples(st.just("clothes"), st.just("=="), st.just("coat")),
    st.tuples(st.just("clothes"), st.just("in"), st.just(("suit", "shirt"))),
)
TESTS = st.tuples(st.just("test"), st.sampled_from(["query", "gallery"]), LITERALS)
PAIRS = st.one_of(
    st.tuples(st.just("pair"), st.sampled_from(["some", "many"])),
    st.tuples(
        st.just("value"),
        st.sampled_from(
            [("==", 1), ("!=", 0.5), ("<", 0.5), (">=", 1.0), ("in", (0, 0.5)), ("not in", (1,))]
        ),
    ),
)
RULES = st.recursive(
    SAME | TESTS | PAIRS,
    lambda inner: (
        st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner)
    ),
    max_leaves=4,
)
POSITIVES = st.just(("same", "id")) | st.one_of(
    SAME,
    st.tuples(st.just("and"), SAME, RULES),
    st.tuples(st.just("or"), SAME, st.tuples(st.just("and"), SAME, TESTS)),
    PAIRS,
    st.tuples(st.sampled_from(["and", "or"]), SAME, PAIRS),
)


def text(rule: Any) -> str:
    """Return a tree as a protocol has it."""
    kind, *parts = rule
    if kind == "same":
        return f"same({', '.join(parts)})"
    if kind == "test":
        side, (column, operator, value) = parts
        return f"{side}.{column} {operator} {value!r}"
    if kind == "pair":
        return f"pair.{parts[0]}"
    if kind == "value":
        return "pair.many {} {!r}".format(*parts[0])
    if kind == "not":
        return f"not ({text(parts[0])})"
    return f"({text(parts[0])}) {kind} ({text(parts[1])})"


def holds(
    rule: Any, query: se.Labels, gallery: se.Labels, lists: Mapping[str, np.ndarray] = EMPTY
) -> np.ndarray:
    """Return of which pairs a tree holds, [Q, G] bool.

    `lists` are the values of listed pairs; NaN of one without, −1 of a pair that is not listed.
    """
    kind, *parts = rule
    if kind == "pair":
        return lists[parts[0]] != -1
    if kind == "value":
        ((operator, value),) = parts
        with_value = [None if one == -1 or one != one else one for one in lists["many"].ravel()]
        found = [compared(one, operator, value) for one in with_value]
        return np.array(found, bool).reshape(len(query), len(gallery))
    if kind == "same":
        columns = [(labels_of(query, name), labels_of(gallery, name)) for name in parts]
        return np.array(
            [
                [all(own[q] == item[g] is not None for own, item in columns) for g in range(count)]
                for q in range(len(query))
                for count in [len(gallery)]
            ]
        ).reshape(len(query), len(gallery))
    if kind == "test":
        side, (column, operator, value) = parts
        labels = labels_of(query if side == "query" else gallery, column)
        found = np.array(
            [compared(one, operator, value) for one in labels],
            bool,
        )
        shape = len(query), len(gallery)
        return np.broadcast_to(found[:, None] if side == "query" else found, shape)
    left, *right = (holds(part, query, gallery, lists) for part in parts)
    if kind == "not":
        return ~left
    return left & right[0] if kind == "and" else left | right[0]


def compared(label: Any, operator: str, value: Any) -> bool:
    """Compare as Python does; nothing is equal to a missing label."""
    if label is None:
        return operator in ("!=", "not in")
    return bool(eval(f"label {operator} value", {"value": value, "label": label}))


def labels_of(labels: se.Labels, column: str) -> list[Any]:
    """Return the labels of a column as Python has them; None where one is missing."""
    values = labels.columns[column].tolist()
    return [None if one == "" or one != one else one for one in values]


def side(rng: np.random.Generator, count: int, gaps: tuple[float, ...] = (0, 0.2)) -> se.Labels:
    """Return random labels; of each column, one of these shares is missing."""
    columns = {
        "cam": rng.integers(0, 3, count).tolist(),
        "key": rng.choice(["a", "b", "a longer name", "c", "d"], count).tolist(),
        "clothes": rng.choice(["coat", "shirt", "suit"], count).tolist(),
        "site": rng.integers(0, 3, count).tolist(),
        "score": (rng.integers(0, 9, count) / 4).tolist(),
    }
    for name, values in columns.items():
        share = rng.choice(gaps)
        columns[name] = [
            None if gone else one
            for one, gone in zip(values, rng.random(count) < share, strict=True)
        ]
    return se.Labels.of({"id": rng.integers(-1, 4, count), **columns})


def masks(
    query: se.Labels,
    gallery: se.Labels,
    protocol: se.Protocol,
    rules: Any,
    positive: Any,
    lists: Mapping[str, np.ndarray] = EMPTY,
) -> tuple[np.ndarray, ...]:
    """Return which pairs are positive, and which are ignored, [Q, G] bool: by the definition."""
    shape = len(query), len(gallery)
    ignored = np.broadcast_to(np.isin(gallery.id, protocol.junk_ids), shape).copy()
    for rule in rules:
        ignored |= holds(rule, query, gallery, lists)
    if protocol.self_match == "key":
        ignored |= holds(("same", "key"), query, gallery)
    if protocol.self_match == "index":
        ignored |= np.eye(len(query), dtype=bool)
    return holds(positive, query, gallery, lists) & ~ignored, ignored


@examples(300)
@given(
    st.lists(RULES, max_size=3),
    POSITIVES,
    st.integers(0, 2**32 - 1),
    st.sampled_from([None, "index", "key"]),
    BLOCKS,
    SETS,
)
def test_pairs_and_their_counts_are_those_of_the_rules(
    rules: list[Any], sought: Any, seed: int, self_match: Any, block: int, sets: int
) -> None:
    rng = np.random.default_rng(seed)
    count, gaps = 20 if self_match == "index" else 7, (0, 0, 0.3, 1)
    query, gallery = side(rng, count, gaps), side(rng, 20, gaps)
    try:
        protocol = se.Protocol(
            "rules", tuple(map(text, rules)), self_match=self_match, positive=text(sought)
        )
    except se.OptionError as error:
        if "too many" not in str(error):  # of nothing, or of other pairs than those alike
            raise
        reject()
    lists = {name: rng.choice(own, (len(query), 20)) for name, own in LISTS.items()}
    listed = lists_of(
        {
            name: {"query": rows, "item": items, "value": values[rows, items]}
            for name, values in lists.items()
            if name in protocol.lists
            for rows, items in [rng.permutation(np.argwhere(values != -1)).T]
        },
        len(query),
    )
    positive, ignored = masks(query, gallery, protocol, rules, sought, lists)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.protocols.agreement.BLOCK", block)
        patch.setattr("streameval.protocols.listed.PAIRS", block)
        patch.setattr("streameval.protocols.counts.MOST_SETS", sets)
        pairs = find_pairs(query, gallery, protocol, listed)
        counts = PairCounts.of(query, gallery, protocol, listed)
    assert np.array_equal(counts.positive, positive.sum(axis=1))
    assert np.array_equal(counts.listed, np.diff(pairs.indptr))
    assert counts.classes == pairs.classes.sizes
    for part in (pairs, pickle.loads(pickle.dumps(pairs)), pairs.block(0, len(query))):
        found, dropped = np.zeros_like(positive), np.zeros_like(ignored)
        found[part.query, part.item] = part.positive
        dropped[part.query, part.item] = ~part.positive
        every, item = np.divmod(np.arange(dropped.size), 20)
        by_rule = part.classes.ignored(part.classes.query[every], item)
        dropped |= part.junk | by_rule.reshape(dropped.shape)
        assert np.array_equal(found, positive)
        assert np.array_equal(dropped, ignored)
    whole = holds(sought, query, gallery, lists)
    for start, stop in ((0, 20), (5, 13)):
        counts = pairs.counts_in(start, stop)
        assert np.array_equal(counts[0], positive[:, start:stop].sum(axis=1))
        assert np.array_equal(counts[1], ignored[:, start:stop].sum(axis=1))
        assert np.array_equal(counts[2], whole[:, start:stop].sum(axis=1))
    part, kept = pairs.block(2, 5), ignored[2:5]
    assert np.array_equal(part.counts_in(3, 20)[1], kept[:, 3:].sum(axis=1))


@given(
    st.lists(st.integers(-2, 5), max_size=20),
    st.lists(st.integers(-2, 7), max_size=3),
    st.sampled_from(["int8", "uint16", "int32", "int64", ">i8", "<U1", "<U4", ">U4"]),
    BLOCKS,
)
def test_multiplicities(values: list[int], left: list[int], dtype: str, block: int) -> None:
    kind = np.dtype(dtype)
    shift = 0 if kind.kind == "U" else 2 if kind.kind == "u" else np.iinfo(kind).min + 2
    labels = np.array([value + shift for value in values], np.int64).astype(kind)
    without = np.array([value + shift for value in left], np.int64).astype(kind.kind + "8")
    known, count = np.unique(labels, return_counts=True)
    expected = np.unique(np.where(np.isin(known, without), 0, count), return_counts=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.protocols.agreement.BLOCK", block)
        found = multiplicities(labels, without)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@pytest.mark.parametrize("count", [8, 40])
def test_many_rules_on_different_columns(count: int) -> None:
    """Their sets of columns, 2^40, are never built."""
    rng = np.random.default_rng(2)
    names = [f"column {number}" for number in range(count)]
    query, gallery = (
        se.Labels(
            rng.integers(-1, 3, rows), more={name: rng.integers(0, 20, rows) for name in names}
        )
        for rows in (15, 90)
    )
    rules = [("same", "id", name) for name in names]
    protocol = se.Protocol("many", tuple(("id", name) for name in names))
    positive, _ = masks(query, gallery, protocol, rules, ("same", "id"))
    pairs, counts = find_pairs(query, gallery, protocol), PairCounts.of(query, gallery, protocol)
    assert 0 < positive.sum() < len(pairs.item)
    for numbers in (counts, pairs.counts):
        assert np.array_equal(numbers.positive, positive.sum(axis=1))
        assert np.array_equal(numbers.listed, np.diff(pairs.indptr))
    words = se.Labels(gallery.id, more=gallery.more | {names[-1]: ["a"] * 90}, source="g.csv")
    with pytest.raises(se.InputError, match=r"labels, g\.csv are integers and strings"):
        PairCounts.of(query, words, protocol)


OTHER_CLOTHES = ("and", ("same", "cam"), ("not", ("same", "clothes")))
CAMERAS = (
    "and",
    ("test", "query", ("cam", "in", (1, 2))),
    ("test", "gallery", ("cam", "==", 0)),
)
COAT = ("test", "gallery", ("clothes", "==", "coat"))
ELSEWHERE = ("and", ("same", "id"), ("not", ("same", "cam")))


@pytest.mark.parametrize(
    ("rules", "sought"),
    [
        ([("same", "id", "cam"), ("same", "id", "clothes")], ("same", "id")),
        ([("same", "cam"), ("same", "clothes")], ("same", "id")),
        ([("same", "cam", "clothes"), ("same", "id", "site")], ("same", "id")),
        ([OTHER_CLOTHES, CAMERAS], ("same", "id")),
        ([COAT, ("same", "id", "cam")], ("same", "id")),
        ([OTHER_CLOTHES], ELSEWHERE),
        ([("not", ("same", "site"))], ("or", ("same", "id", "site"), ("same", "clothes", "cam"))),
    ],
)
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.filterwarnings("ignore:.*good pairs are of different identities")
def test_counts_are_those_of_lists_of_the_same_pairs(
    rules: list[Any], sought: Any, stored: bool
) -> None:
    rng = np.random.default_rng(3)
    query, gallery = side(rng, 30), side(rng, 200)
    source: se.Distances | se.Features = se.Distances(rng.integers(0, 9, (30, 200)) / 8)
    if not stored:
        source = se.Features(rng.normal(size=(30, 8)), rng.normal(size=(200, 8)))
    protocol = se.Protocol("rules", tuple(map(text, rules)), positive=text(sought))
    positive, ignored = masks(query, gallery, protocol, rules, sought)
    listed = se.ListedPairs.of(map(np.flatnonzero, positive), map(np.flatnonzero, ignored))
    sides = {"query": query, "gallery": gallery, "metrics": "mAP,CMC@1", "tile": (8, 32)}
    by_rule = se.evaluate(source, **sides, protocol=protocol).statistics
    by_list = se.evaluate(source, **sides, listed=listed).statistics
    assert positive.any()
    for name in (*COUNTED, "valid", "ignored"):
        assert np.array_equal(getattr(by_rule, name), getattr(by_list, name))


@pytest.mark.parametrize(
    ("dtype", "junk"),
    [("u1", -1), ("i1", 300), ("i8", 2**70), (">i2", 300), ("U1", "1 more"), (">U1", "1 more")],
)
@pytest.mark.parametrize("protocol", ["market1501", "cuhk03-torchreid"])
def test_labels_of_any_size_and_byte_order(dtype: str, junk: int | str, protocol: str) -> None:
    rng = np.random.default_rng(6)
    source = se.Distances(rng.integers(0, 40, (30, 200)) / 32)
    sides = {"query": rng.integers(0, 6, 30), "gallery": rng.integers(0, 6, 200)}
    plain, small = (
        {side: se.Labels(ids.astype(kind), 0 * ids + len(ids)) for side, ids in sides.items()}
        for kind in ("i8", dtype)
    )
    mixed = plain | {"query": small["query"]} if "U" not in dtype else small
    expected = se.evaluate(source, **plain, protocol=protocol).statistics
    for given_ in (small, mixed):
        found = se.evaluate(source, **given_, protocol=protocol, junk_ids=[junk])
        assert found.statistics.equals(expected)
        named = se.Protocol("junk", junk_ids=(junk,))
        pairs = find_pairs(**given_, protocol=named)
        counts = PairCounts.of(**given_, protocol=named)
        assert np.array_equal(counts.positive, pairs.counts.positive)
        assert counts.positive.all()


def test_single_gallery_shot_with_two_rules_over_items() -> None:
    """Cameras lie within sites: to ignore a camera, too, changes nothing."""
    rng = np.random.default_rng(5)
    source = se.Distances(rng.integers(0, 40, (30, 200)) / 32)
    sides = {}
    for name, count in (("query", 30), ("gallery", 200)):
        cam = rng.integers(0, 6, count)
        sides[name] = se.Labels(rng.integers(0, 9, count), cam, more={"site": cam // 2})
    one, two = (
        se.evaluate(
            source,
            **sides,
            protocol=se.Protocol("sites", rules, cmc="single-gallery-shot"),
            metrics="CMC@1,CMC@5,CMC_sampled@1",
        )
        for rules in ((("site",),), (("cam",), ("site",)))
    )
    assert one.metrics.scalars == two.metrics.scalars
    assert 0 < one["CMC@1"] < 1


def test_a_missing_column_is_named_with_its_side() -> None:
    whole = se.Labels([1, 2], [1, 2], more={"clothes": [1, 2]})
    without = se.Labels([1, 2], [1, 2], source="g.csv")
    source = se.Distances(np.ones((2, 2)))
    for query, gallery, where in ((whole, without, "gallery"), (without, whole, "query")):
        with pytest.raises(se.OptionError) as caught:
            se.evaluate(source, query=query, gallery=gallery, protocol="cloth-changing")
        for part in (
            "protocol cloth-changing needs column clothes of both sides for the rule "
            "'same(id, clothes)'",
            f"g.csv has no column clothes for the {where} (it has id, cam)",
            "more={'clothes': ...}",
        ):
            assert part in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("same(id", "can't be read at column 5"),
        ("same()", "'same()'; expected the names of label columns"),
        ("alike(id)", "'alike'; expected same(...)"),
        ("same(id) and cam == 3", "'cam'; expected query.COLUMN or gallery.COLUMN"),
        ("item.cam == 3", "'item.cam'; expected query.COLUMN or gallery.COLUMN"),
        ("query.cam in 3", "'3'; expected a list of values, such as [3, 6], after in"),
        ("query.cam == [3]", "'[3]'; expected one value after =="),
        ("query.cam < 'a'", "\"'a'\"; expected a number after <"),
        ("0 < query.cam < 3", "'0 < query.cam < 3'; expected one comparison"),
        ("query.cam is 3", "'query.cam is 3'; expected one comparison"),
        ("query.cam in [3, 'a']", "expected finite numbers, or texts in quotes, all of one kind"),
        ("query.cam == gallery.cam", "'gallery.cam'; expected a number, a text in quotes"),
        ("query.cam == 1e999", "'1e999'; expected finite numbers"),
        ("query.cam == True", "'True'; expected finite numbers"),
        ("query.cam in ['a', '']", "all of one kind and not empty"),
        ("id", "'id'; expected same(COLUMN, ...)"),
        ("__import__('os').system('true')", "expected same(...)"),
        ("same(*id)", "'*id'; expected the name of a label column"),
    ],
)
def test_a_rule_that_is_wrong_shows_the_word(rule: str, word: str) -> None:
    with pytest.raises(se.OptionError, match=re.escape(word)) as caught:
        se.Protocol("mine", (rule,))
    assert "protocol mine: rule " in str(caught.value)


def test_rules_that_multiply_out_to_too_many_terms_are_refused() -> None:
    either = [f"(same(a{n}) or same(b{n}))" for n in range(7)]
    with pytest.raises(se.OptionError, match="at most 64 alternatives \\(it has 128\\)"):
        se.Protocol("mine", (" and ".join(either),))


@pytest.mark.parametrize(
    "positive", ["query.cam == 3", "not same(id)", "same(id) and not same(id)"]
)
def test_positives_must_have_a_label_in_common(positive: str) -> None:
    with pytest.raises(se.OptionError, match="needs same"):
        se.Protocol("mine", positive=positive)


def test_single_gallery_shot_is_of_identities() -> None:
    with pytest.raises(se.OptionError, match="one item of each gallery identity"):
        se.Protocol("mine", positive="same(model)", cmc="single-gallery-shot")


def test_a_test_of_labels_of_another_kind_is_refused() -> None:
    source, labels = se.Distances(np.ones((2, 2))), se.Labels([1, 2], [1, 2])
    protocol = se.Protocol("mine", ("gallery.cam == 'c1'",))
    with pytest.raises(se.OptionError, match=r"compares gallery.cam with 'c1'.*holds integers"):
        se.evaluate(source, query=labels, gallery=labels, protocol=protocol)


def test_a_test_of_an_empty_gallery_holds_of_nothing() -> None:
    query, gallery = se.Labels([1, 2], ["a", "b"]), se.Labels([], [])
    protocol = se.Protocol("mine", ("gallery.cam == 'a'", "same(cam) and query.cam == 'b'"))
    pairs = find_pairs(query, gallery, protocol)
    assert pairs.classes.sizes == PairCounts.of(query, gallery, protocol).classes
    assert len(pairs.item) == 0


def test_a_column_of_one_side_is_needed_on_that_side_alone() -> None:
    rng = np.random.default_rng(8)
    source = se.Distances(rng.random((9, 40)))
    ids = rng.integers(0, 3, 9), rng.integers(0, 3, 40)
    score = rng.integers(0, 10, 40)
    query, gallery = se.Labels(ids[0]), se.Labels(ids[1], more={"score": score})
    protocol = se.Protocol("mine", ("gallery.score < 5",))
    found = se.evaluate(source, query=query, gallery=gallery, protocol=protocol)
    assert found.counts["pairs_ignored"] == 9 * (score < 5).sum()


def test_a_column_that_one_rule_needs_of_one_side() -> None:
    query, gallery = se.Labels([1, 2]), se.Labels([1, 2], source="g.csv")
    protocol = se.Protocol("mine", ("same(id) and gallery.score < 0.5",))
    with pytest.raises(se.OptionError, match="column score of the gallery for the rule 'same"):
        find_pairs(query, gallery, protocol)
    protocol = se.Protocol("mine", ("query.cam == 1",))
    with pytest.raises(se.OptionError, match="needs cameras of the query for the rule 'query"):
        find_pairs(query, gallery, protocol)


def test_fractions_can_be_compared_with_numbers_alone() -> None:
    query, gallery = (
        se.Labels([1, 2], more={"score": [0.5, 2], "site": [1.0, None]}, source=name)
        for name in ("q.csv", "g.csv")
    )
    kept = se.Protocol("mine", ("gallery.score < 1", "same(site)"))
    assert find_pairs(query, gallery, kept).positives()[1].tolist() == [1]
    says = r"'same\(score\)', and column score of q.csv .* no integers \(0.5 in row 0\): compare it"
    with pytest.raises(se.OptionError, match=says):
        find_pairs(query, gallery, se.Protocol("mine", ("same(score)",)))


def test_large_integers_are_compared_exactly() -> None:
    ids = np.array([2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
    labels = se.Labels(ids, more={"some": [1, None, 3, 4]})
    for rule, expected in (
        ("gallery.id == 9007199254740993", [1]),
        ("gallery.id <= 9007199254740992.0", [0, 3]),
        ("gallery.id > 9007199254740992.0", [1, 2]),
        ("gallery.id in [9223372036854775807, 9223372036854775808, 1e300]", [2]),
        ("gallery.id < 9223372036854775808", [0, 1, 2, 3]),
        ("gallery.some in [4, 9223372036854775808]", [3]),
    ):
        pairs = find_pairs(labels, labels, se.Protocol("mine", (rule,)))
        assert np.flatnonzero(pairs.junk).tolist() == expected
    with pytest.raises(se.InputError, match="holds 9007199254740992 beside missing labels"):
        se.Labels(ids[:2], more={"some": [2**53, None]})


@pytest.fixture
def tables(data: Path) -> tuple[str, ...]:
    """Write tables with a column of clothes; return the options that name them."""
    rng = np.random.default_rng(1)
    for name in ("query", "gallery"):
        head, *rows = Path(f"{name}.csv").read_text().splitlines()
        lines = [f"{head},clothes", *(f"{row},{rng.integers(3)}" for row in rows)]
        Path(f"{name}_clothes.csv").write_text("\n".join(lines) + "\n")
    return ("--query-labels", "query_clothes.csv", "--gallery-labels", "gallery_clothes.csv")


def test_cloth_changing_on_the_command_line(tables: tuple[str, ...]) -> None:
    changing = ("--protocol", "cloth-changing", "--metrics", "mAP,CMC@1")
    found = run(*STORED, *tables, *changing, "--quiet", "--out", "out")
    assert (found.exit_code, found.stderr) == (0, "")
    query, gallery = (
        se.read_label_table(name, more=["clothes"]) for name in (tables[1], tables[3])
    )
    python = se.evaluate(
        se.Distances(STORED[-1]),
        query=query,
        gallery=gallery,
        protocol="cloth-changing",
        metrics=("mAP", "CMC@1"),
    )
    saved = se.Evaluation.load("out")
    assert saved.metrics.scalars == python.metrics.scalars
    assert saved.columns.keys() == {"id", "cam", "clothes"}
    assert saved.provenance["protocol"]["ignore"] == ["same(id, cam)", "same(id, clothes)"]
    plain = summary("--protocol", "market1501", "--metrics", "mAP,CMC@1")
    assert saved.summary()["counts"]["pairs_ignored"] > plain["counts"]["pairs_ignored"]
    refused(
        run(*STORED, *CSV, *changing),
        "cloth-changing needs column clothes of both sides for the rule 'same(id, clothes)'",
        "query.csv has no column clothes for the query (it has id, cam, key)",
    )


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    source, protocol = se.Distances(np.ones((2, 2))), se.Protocol("mine", ("same(cloth)",))
    (tmp_path / "t.csv").write_text("id,clothes,score\n1,1,0.5\n2,2,0.5\n")
    csv = se.read_label_table(tmp_path / "t.csv", shared=["cloth"])
    for labels in (csv, pa.table({"id": [1, 2], "clothes": [1, 2], "score": [0.5, 0.5]})):
        with pytest.raises(se.OptionError, match=r"\(it has id, clothes, score\): give it"):
            se.evaluate(source, query=labels, gallery=labels, protocol=protocol)


def test_columns_of_both_tables_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("id,clothes\n1,1\n2,2\n")
    (tmp_path / "g.csv").write_text("id,clothes\n1,1\n2,b\n")
    query, gallery = se.read_label_tables(
        tmp_path / "q.csv", tmp_path / "g.csv", shared=["clothes", "site"]
    )
    assert query.more["clothes"].tolist() == ["1", "2"]
    assert gallery.more["clothes"].tolist() == ["1", "b"]
    assert "site" not in query.more
