"""RankStatistics: what merging, stacking and keeping them must hold."""

from __future__ import annotations

import itertools
import pickle
from copy import copy
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import Problem, oracle_statistics
from problems import problems
from profiles import examples
from support.package import FIELDS, stack
from support.result import load_statistics, save_statistics

from streameval import RankStatistics

THRESHOLDS = np.linspace(0, 1, 11)


def statistics_of(problem: dict[str, Any]) -> RankStatistics:
    return oracle_statistics(**problem, thresholds=THRESHOLDS)


def shards_of(problem: dict[str, Any], cuts: list[int]) -> list[RankStatistics]:
    """Count each gallery shard against the positives of the whole gallery, by brute force."""
    whole = statistics_of(problem)
    gallery = len(problem["gallery_id"])
    bounds = [0, *sorted(cut % (gallery + 1) for cut in cuts), gallery]
    shards = []
    for start, stop in itertools.pairwise(bounds):
        inside = (np.arange(gallery) >= start) & (np.arange(gallery) < stop)
        counted = {name: [] for name in ("closer", "tied", "tied_before", "negatives_within")}
        nearest, valid, ignored, same_identity = [], [], [], []
        for i, distance in enumerate(problem["distances"]):
            out, same = Problem(**problem).row(i)
            away = ~same & ~out & inside
            positives = np.flatnonzero(same & ~out)
            positives = positives[np.argsort(distance[positives], kind="stable")]
            for k in positives:
                equal = away & (distance == distance[k])
                counted["closer"].append(np.sum(away & (distance < distance[k])))
                counted["tied"].append(np.sum(equal))
                counted["tied_before"].append(np.sum(equal[:k]))
            counted["negatives_within"].append([np.sum(away & (distance <= t)) for t in THRESHOLDS])
            nearest.append(distance[away].min(initial=np.inf))
            valid.append(np.sum(~out & inside))
            ignored.append(np.sum(out & inside))
            same_identity.append(np.sum(same & inside))
        arrays = {name: np.array(values, np.int64) for name, values in counted.items()}
        arrays["negatives_within"] = arrays["negatives_within"].reshape(-1, len(THRESHOLDS))
        shards.append(
            RankStatistics(
                whole.indptr,
                whole.positive_distance,
                whole.thresholds,
                **arrays,
                positive_item=whole.positive_item,
                nearest_negative=np.array(nearest),
                valid=np.array(valid, np.int64),
                ignored=np.array(ignored, np.int64),
                same_identity=np.array(same_identity, np.int64),
            )
        )
    return shards


@examples(60)
@given(problem=problems(), cuts=st.lists(st.integers(0, 100), max_size=4), random=st.randoms())
def test_shards_merge_to_the_whole_in_any_order(
    problem: dict[str, Any], cuts: list[int], random: Any
) -> None:
    shards = shards_of(problem, cuts)
    random.shuffle(shards)
    whole = statistics_of(problem)
    assert reduce(RankStatistics.merge, shards).equals(whole)
    while len(shards) > 1:  # as a tree, too
        left, right = shards.pop(), shards.pop(random.randrange(len(shards)))
        shards.insert(random.randrange(len(shards) + 1), left.merge(right))
    assert shards[0].equals(whole)


@examples(30)
@given(problem=problems())
def test_zero_is_the_identity_of_merge(problem: dict[str, Any]) -> None:
    whole = statistics_of(problem)
    zero = RankStatistics.zero(
        whole.indptr,
        whole.positive_distance,
        whole.thresholds,
        positive_item=whole.positive_item,
    )
    assert whole.merge(zero).equals(whole)
    assert zero.merge(whole).equals(whole)


@examples(30)
@given(problem=problems(), cut=st.integers(0, 100))
def test_a_shard_is_taken_out_again(problem: dict[str, Any], cut: int) -> None:
    first, *others = shards_of(problem, [cut])
    for shard in others:
        both = first.merge(shard)
        left = {"nearest_negative": first.nearest_negative}
        assert both.minus(shard, left).equals(first)
        with pytest.raises(ValueError, match="nearest_negative can't be subtracted: give what"):
            both.minus(shard, {})


def test_what_only_a_whole_gallery_has_is_not_subtracted() -> None:
    one = {"distances": np.array([[0.5, 1]]), "query_id": np.array([1])}
    whole = statistics_of(one | {"gallery_id": np.array([1, 2])})
    drawn = replace(whole, single_shot=np.zeros((1, 3, 2)))
    distinct = replace(whole, identities_ahead=np.zeros((1, 3), np.int64))
    for name, counted in (("single_shot", drawn), ("identities_ahead", distinct)):
        with pytest.raises(ValueError, match=f"{name} is of a whole gallery"):
            counted.minus(whole, {"nearest_negative": whole.nearest_negative})


@examples(30)
@given(problem=problems(), cut=st.integers(0, 100))
def test_blocks_of_queries_stack_to_the_whole(problem: dict[str, Any], cut: int) -> None:
    queries = len(problem["query_id"])
    cut %= queries + 1

    def some(rows: slice) -> RankStatistics:
        part = {
            name: value[rows] if name in ("distances", "query_id", "query_cam") else value
            for name, value in problem.items()
        }
        return statistics_of(part)

    cuts = 0, cut // 2, cut, cut, queries
    parts = [some(slice(*span)) for span in pairwise(cuts)]
    whole = statistics_of(problem)
    assert stack(parts).equals(whole)
    distance = whole.positive_distance.copy()
    cuts = np.cumsum([0, *(len(part.positive_distance) for part in parts)])
    views = [
        replace(part, positive_distance=distance[first:last])
        for part, (first, last) in zip(parts, pairwise(cuts), strict=True)
    ]
    stacked = stack(views)
    assert stacked.equals(whole)
    assert not len(distance) or np.shares_memory(stacked.positive_distance, distance)
    assert stack(views[::-1]).equals(stack(parts[::-1]))


@examples(30)
@given(problem=problems(), cuts=st.lists(st.integers(0, 100), max_size=4), data=st.data())
def test_blocks_of_stacked_statistics_are_those_of_the_whole(
    problem: dict[str, Any], cuts: list[int], data: st.DataObject
) -> None:
    whole = statistics_of(problem)
    ends = [0, *sorted(cut % (whole.queries + 1) for cut in cuts), whole.queries]
    stacked = stack([whole.block(*span) for span in pairwise(ends)])
    some = st.sampled_from(ends) | st.integers(0, whole.queries)
    wanted = data.draw(st.lists(some, min_size=2, max_size=2).map(sorted))
    within = st.integers(0, wanted[1] - wanted[0])
    inner = data.draw(st.lists(within, min_size=2, max_size=2).map(sorted))
    for one in (copy(stacked), pickle.loads(pickle.dumps(stacked)), stacked):
        assert one.held == whole.held
        assert one.block(*wanted).equals(whole.block(*wanted))
        part, expected = one.block(*wanted), whole.block(*wanted)
        assert part.block(*inner).equals(expected.block(*inner))
        assert np.array_equal(part.tied, expected.tied)  # joined in the block
        assert part.block(*inner).equals(expected.block(*inner))
        assert part.held == expected.held
        assert np.array_equal(one.closer, whole.closer)  # joined from here on
        assert one.block(*wanted).equals(whole.block(*wanted))
        assert one.equals(whole)
        assert one.block(*wanted).equals(whole.block(*wanted))
        assert one.take(np.arange(*wanted)).equals(whole.take(np.arange(*wanted)))
        assert replace(one, valid=whole.valid).equals(whole)


@examples(10)
@given(problem=problems())
def test_saved_statistics_load_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, problem: dict[str, Any]
) -> None:
    path = Path(tmp_path_factory.mktemp("statistics")) / "s.zarr"
    whole = statistics_of(problem)
    save_statistics(whole, path)
    assert load_statistics(path).equals(whole)


def test_statistics_of_different_work_do_not_merge_or_stack() -> None:
    one = {"distances": np.array([[0.5, 1]]), "query_id": np.array([1])}
    a = statistics_of(one | {"gallery_id": np.array([1, 2])})
    b = statistics_of(one | {"gallery_id": np.array([2, 1])})
    with pytest.raises(ValueError, match="differ in positive_distance"):
        a.merge(b)
    c = oracle_statistics(**one, gallery_id=np.array([1, 2]), thresholds=[1.0])
    with pytest.raises(ValueError, match="differ in thresholds"):
        stack([a, c])
    near = [replace(a, nearest_negatives=np.ones((1, most))) for most in (1, 2)]
    with pytest.raises(ValueError, match="shape of nearest_negatives"):
        stack(near)
    for indptr in ([1, 1], [0, 2, 1]):
        with pytest.raises(ValueError, match="ascend from 0"):
            replace(a, indptr=np.array(indptr))
    with pytest.raises(ValueError, match="no statistics"):
        stack([])


def test_a_field_of_another_shape_or_dtype_is_refused() -> None:
    good = statistics_of(
        {
            "distances": np.array([[0.5, 1]]),
            "query_id": np.array([1]),
            "gallery_id": np.array([1, 2]),
        }
    )
    fields = {name: getattr(good, name) for name in FIELDS}
    with pytest.raises(ValueError, match=r"closer is int64 \(2,\); expected int64 \(1,\)"):
        RankStatistics(**(fields | {"closer": np.zeros(2, np.int64)}))
    with pytest.raises(ValueError, match="valid is int32"):
        RankStatistics(**(fields | {"valid": np.zeros(1, np.int32)}))
