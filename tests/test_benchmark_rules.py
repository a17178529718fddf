"""Shipped protocols against their benchmarks' own code, and against rules written as loops.

Each case names the repository and the commit of that code. It ran aside, on the data of
`official_data`; none of it is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import official_data
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from official_data import Array, Data
from profiles import examples

import streameval as se

SINGLE, DOUBLE = 1e-7, 1e-14
"""How far figures in float32 and in float64 may be off."""


def evaluate(data: Data, protocol: str, **options: Any) -> se.Evaluation:
    sides = {
        side: se.Labels(data[f"{side}_id"], data.get(f"{side}_cam"))
        for side in ("query", "gallery")
    }
    return se.evaluate(se.Distances(data["distances"]), **sides, protocol=protocol, **options)


def having_positives(data: Data) -> Data:
    """Return the data without the queries that have no positive of another camera."""
    same = data["query_id"][:, None] == data["gallery_id"]
    kept = (same & (data["query_cam"][:, None] != data["gallery_cam"])).any(axis=1)
    asked = {name: data[name][kept] for name in ("distances", "query_id", "query_cam")}
    return data | asked


# JDAI-CV/fast-reid, commit c9bc3ceb2f7a, fastreid/evaluation/rank.py: evaluate_rank, which its data
# sets MSMT17, VeRi and VeRiWild share. Its compiled twin gives the same, in float32.
FASTREID = {
    "CMC@1": 0.4576271176338196,
    "CMC@5": 0.5254237055778503,
    "CMC@10": 0.5762711763381958,
    "mAP": 0.08971835755612682,
    "mINP": 0.052993267062094875,
}


@pytest.mark.parametrize("name", ["msmt17", "veri", "veri-wild"])
def test_fastreid(name: str) -> None:
    found = evaluate(official_data.cameras(), name)
    assert {name: found[name] for name in FASTREID} == pytest.approx(FASTREID, abs=SINGLE)
    counts = [found.counts[f"queries_{kind}"] for kind in ("positive", "negative", "excluded")]
    assert counts == [59, 5, 6]


# liangzheng06/MARS-evaluation, commit 3a91bbc762fa, utils/evaluation_mars.m with GNU Octave 7.3.0:
# of all queries, where its mAP is NaN, and of those that have a positive.
MARS_ALL = {
    "CMC@1": 0.5,
    "CMC@5": 0.55,
    "CMC@10": 0.6,
    "CMC@20": 0.6333333333333333,
}
MARS_POSITIVE = {
    "CMC@1": 0.54545454545454541,
    "CMC@5": 0.59999999999999998,
    "CMC@10": 0.65454545454545454,
    "CMC@20": 0.69090909090909092,
    "mAP": 0.12676678804917299,
}


def test_mars() -> None:
    data = official_data.tracklets()
    found = evaluate(having_positives(data), "mars")
    assert {name: found[name] for name in MARS_POSITIVE} == pytest.approx(MARS_POSITIVE, abs=DOUBLE)
    assert found.counts["ties"] > 0
    whole = evaluate(data, "mars")
    assert (whole.counts["queries_positive"], whole.counts["queries"]) == (55, 60)
    assert {name: whole[name] for name in MARS_ALL} == pytest.approx(MARS_ALL, abs=DOUBLE)


# tjddus9597/Proxy-Anchor-CVPR2020, commit 51db57031e38, code/utils.py: evaluate_cos_SOP, which
# counts the 43 items that are alone in their class as misses; with torch 2.14.1, in float64.
SOP = {"CMC@1": 0.08, "CMC@10": 0.3375, "CMC@100": 0.8075, "CMC@1000": 0.9633333333333334}


def test_sop() -> None:
    data = official_data.products()
    labels, own = se.Labels(data["id"]), data["features"]
    found = se.evaluate(
        se.Features(own, own), query=labels, gallery=labels, protocol="sop", metrics=tuple(SOP)
    )
    assert found.counts["queries_excluded"] == 43
    assert {name: found[name] for name in SOP} == pytest.approx(SOP, abs=DOUBLE)


# The same, evaluate_cos_Inshop, in float32: its products are exact here.
IN_SHOP = {
    "CMC@1": 0.5875,
    "CMC@10": 0.6375,
    "CMC@20": 0.7,
    "CMC@30": 0.7375,
    "CMC@40": 0.825,
    "CMC@50": 0.875,
}


def test_in_shop() -> None:
    data = official_data.clothes()
    found = se.evaluate(
        se.Features(data["query"], data["gallery"]),
        query=se.Labels(data["query_id"]),
        gallery=se.Labels(data["gallery_id"]),
        protocol="in-shop",
        metrics=tuple(IN_SHOP),
    )
    assert {name: found[name] for name in IN_SHOP} == pytest.approx(IN_SHOP, abs=DOUBLE)
    assert found.counts["queries_positive"] == 80
    assert found.counts["ties"] > 0


# filipradenovic/revisitop, commit be398328edcd, python/evaluate.py: compute_map, with the lists of
# python/example_evaluate.py; mAP, mP@1, mP@5, mP@10, and the number of queries left out.
REVISITED = {
    "easy": (0.30982271834076447, [0.75, 0.35000000000000003, 0.2], 8),
    "medium": (
        0.33613552094216115,
        [0.8947368421052632, 0.4526315789473684, 0.2578947368421053],
        5,
    ),
    "hard": (0.2594901065244846, [0.6428571428571429, 0.2571428571428571, 0.12857142857142856], 10),
}
GOOD_AND_JUNK = {
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}


@pytest.mark.parametrize("data_set", ["roxford", "rparis"])
def test_revisited(data_set: str) -> None:
    """All three from one pass."""
    distances, listed = official_data.landmarks()
    found = se.evaluate_all(
        se.Distances(distances),
        query=se.Labels(np.zeros(24, int)),
        gallery=se.Labels(np.zeros(300, int)),
        protocols=[f"{data_set}/{name}" for name in REVISITED],
        pairs={kind: [query[kind] for query in listed] for kind in ("easy", "hard", "junk")},
        metrics="mAP,mP@1,mP@5,mP@10",
    )
    for name, (mean, precisions, left_out) in REVISITED.items():
        one = found[f"{data_set}/{name}"]
        assert isinstance(one, se.Evaluation)
        assert one["mAP"] == pytest.approx(mean, abs=DOUBLE)
        at = [one[f"mP@{k}"] for k in (1, 5, 10)]
        assert at == pytest.approx(precisions, abs=DOUBLE)
        assert one.counts["queries"] - one.counts["queries_positive"] == left_out


Kind = Literal["positive", "negative", "ignored"]
Item = dict[str, Any]
"""The labels of one item, and its number."""


def seen_elsewhere(query: Item, item: Item) -> Kind:
    if query["id"] != item["id"]:
        return "negative"
    return "ignored" if query["cam"] == item["cam"] else "positive"


def without_junk(query: Item, item: Item) -> Kind:
    return "ignored" if item["id"] == -1 else seen_elsewhere(query, item)


def other_image(query: Item, item: Item) -> Kind:
    if query["number"] == item["number"]:
        return "ignored"
    return "positive" if query["id"] == item["id"] else "negative"


def alike(query: Item, item: Item) -> Kind:
    return "positive" if query["id"] == item["id"] else "negative"


RULES: dict[str, Callable[[Item, Item], Kind]] = {
    "msmt17": seen_elsewhere,
    "veri": seen_elsewhere,
    "veri-wild": seen_elsewhere,
    "mars": without_junk,
    "sop": other_image,
    "in-shop": alike,
}


def drawn(seed: int, *, one_set: bool) -> Data:
    """Return a small problem with ties, strangers and single positives.

    The queries are the gallery if it is one set. Otherwise it may be empty, and is for seed 0.
    """
    rng = np.random.default_rng(seed)
    queries, gallery, levels = rng.integers(1, 9), seed and rng.integers(0, 15), rng.integers(1, 7)
    data = {
        "query_id": rng.integers(-1, 6, queries),
        "gallery_id": rng.integers(-1, 5, gallery),
        "query_cam": rng.integers(0, 3, queries),
        "gallery_cam": rng.integers(0, 3, gallery),
    }
    if one_set:
        gallery = queries
        data |= {f"gallery_{name}": data[f"query_{name}"] for name in ("id", "cam")}
    return data | {"distances": rng.integers(0, levels, (queries, gallery)) / 8}


def items(data: Data, side: str) -> list[Item]:
    labels = zip(data[f"{side}_id"].tolist(), data[f"{side}_cam"].tolist(), strict=True)
    return [{"number": n, "id": own, "cam": cam} for n, (own, cam) in enumerate(labels)]


def ranked(kinds: list[Kind], distances: list[float], ties: str) -> list[bool]:
    """Return which of the items that take part are positive, in ranked order."""

    def place(item: int) -> tuple[float, int]:
        positive = kinds[item] == "positive"
        return distances[item], {"pessimistic": positive, "optimistic": not positive}.get(
            ties, item
        )

    order = sorted(range(len(kinds)), key=place)
    return [kinds[item] == "positive" for item in order if kinds[item] != "ignored"]


def precision(hits: list[bool], ap: str) -> float:
    """Return AP as the area under precision, step by step or by trapezoids."""
    area, before, found = 0.0, 1.0, 0
    for rank, hit in enumerate(hits, 1):
        found += hit
        now = found / rank
        if hit:
            area += (before + now) / 2 if ap == "trapezoid" else now
        before = now
    return area / found


def check(found: se.Evaluation, every: list[list[Kind]], distances: Array) -> None:
    """Compare numbers of pairs, and metrics, with what the kinds of all pairs give."""
    ties, ap = found.options.ties, found.options.ap
    asked = [
        ranked(kinds, row, ties)
        for kinds, row in zip(every, distances.tolist(), strict=True)
        if "positive" in kinds
    ]
    assert found.counts["queries_positive"] == len(asked)
    for kind in ("positive", "ignored"):
        assert found.counts[f"pairs_{kind}"] == sum(kinds.count(kind) for kinds in every)
    expected = {"mAP": [precision(hits, ap) for hits in asked]}
    expected |= {f"CMC@{k}": [float(any(hits[:k])) for hits in asked] for k in (1, 5, 10, 20)}
    for metric, values in expected.items():
        mean = np.mean(values) if values else np.nan
        assert found[metric] == pytest.approx(mean, abs=1e-12, nan_ok=True)


def random_problems(test: Callable[..., None]) -> Callable[..., None]:
    """Call a test with seeds, and options of ties and AP."""
    drawing = given(
        seed=st.integers(0, 2**32 - 1),
        ties=st.sampled_from(["pessimistic", "optimistic", "stable"]),
        ap=st.sampled_from(["step", "trapezoid"]),
    )
    drawn_once = example(seed=0, ties="stable", ap="step")(drawing(test))
    return pytest.mark.filterwarnings("ignore::streameval.StreamevalWarning")(
        examples(60)(drawn_once)
    )


@pytest.mark.parametrize("name", RULES)
@random_problems
def test_rules_written_as_loops(name: str, seed: int, ties: str, ap: str) -> None:
    data = drawn(seed, one_set=RULES[name] is other_image)
    every = [
        [RULES[name](query, item) for item in items(data, "gallery")]
        for query in items(data, "query")
    ]
    found = evaluate(data, name, ties=ties, ap=ap, unmatched="exclude")
    check(found, every, data["distances"])
    known = (data["query_id"][:, None] == data["gallery_id"]).any(axis=1)
    assert found.counts["queries_negative"] == np.count_nonzero(~known)


@pytest.mark.parametrize("name", GOOD_AND_JUNK)
@random_problems
def test_lists_read_as_loops(name: str, seed: int, ties: str, ap: str) -> None:
    rng = np.random.default_rng(seed)
    queries, gallery, levels = rng.integers(1, 9), seed and rng.integers(0, 15), rng.integers(1, 7)
    written = rng.choice(
        ["easy", "hard", "junk", "none"], (queries, gallery), p=[0.2, 0.2, 0.1, 0.5]
    )
    distances = rng.integers(0, levels, (queries, gallery)) / 8
    good, junk = (np.isin(written, kinds) for kinds in GOOD_AND_JUNK[name])
    pairs = {
        kind: [np.flatnonzero(row == kind) for row in written] for kind in ("easy", "hard", "junk")
    }
    found = se.evaluate(
        se.Distances(distances),
        query=se.Labels(np.zeros(queries, int)),
        gallery=se.Labels(np.zeros(gallery, int)),
        protocol=f"roxford/{name}",
        pairs=pairs,
        ties=ties,
        ap=ap,
    )
    kinds = np.select([good, junk], ["positive", "ignored"], "negative")
    check(found, kinds.tolist(), distances)
    assert found.counts["queries_negative"] == np.count_nonzero(~(good | junk).any(axis=1))
