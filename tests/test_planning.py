"""The plan: every pair once, within the budget, or refused with the figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from profiles import examples
from support.planning import (
    ROW_PAIRS,
    Data,
    IdentitySizes,
    Limits,
    PairSizes,
    Plan,
    Problem,
    ShotSizes,
    Workers,
    best_rows,
    make_plan,
)
from support.protocols import PairCounts

import streameval as se
from streameval import BudgetError, InputError

RESERVED = 200 << 20

problems = st.builds(
    Problem,
    queries=st.integers(1, 300),
    gallery=st.integers(0, 3000),
    pairs=st.builds(
        PairSizes,
        positives=st.integers(0, 500),
        listed=st.integers(500, 900),
        classes=st.tuples(st.integers(0, 8), st.integers(0, 3)),
        most=st.none() | st.just(lambda queries: (2 * queries, 3 * queries)),
        taking_part=st.none() | arrays(np.bool_, st.integers(1, 50)),
    ),
    thresholds=st.sampled_from([0, 101]),
    data=st.builds(
        Data,
        width=st.sampled_from([0, 1, 64, 512]),
        itemsize=st.sampled_from([4, 8]),
        stored_itemsize=st.sampled_from([2, 4, 8]),
        scratch=st.just(lambda rows, columns: rows * columns),
        chunks=st.tuples(st.integers(1, 400), st.integers(1, 4000)),
        grain=st.sampled_from([None, (1, 1)]),
        in_files=st.booleans(),
    ),
    extra_passes=st.integers(0, 1),
    identities=st.none()
    | st.builds(IdentitySizes, identities=st.integers(0, 500))
    | st.builds(
        ShotSizes,
        identities=st.integers(0, 500),
        entries=st.integers(0, 1000),
        fields=st.integers(1, 2),
    ),
)


@examples(200)
@given(
    problem=problems,
    spare=st.integers(1 << 16, 1 << 25),
    threads=st.integers(1, 8),
    tile=st.none() | st.tuples(st.integers(1, 64), st.integers(1, 500)),
)
def test_every_pair_is_in_one_task_and_the_peak_within_the_budget(
    problem: Problem, spare: int, threads: int, tile: tuple[int, int] | None
) -> None:
    memory = RESERVED + spare
    try:
        plan = make_plan(problem, Limits(memory, threads, RESERVED, tile=tile))
    except BudgetError:  # what it says is shown below
        return
    assert plan.peak <= memory
    seen = np.zeros((problem.queries, problem.gallery), np.int8)
    for task in plan.tasks:
        seen[slice(*task.queries), slice(*task.gallery)] += 1
    assert (seen == 1).all()
    assert plan.pairs == problem.queries * problem.gallery
    if problem.identities is not None:
        assert all(task.gallery == (0, problem.gallery) for task in plan.tasks)
    assert all(size >= 1 for size in (plan.block, *plan.tile))


@given(
    problem=problems,
    spare=st.lists(st.integers(1 << 18, 1 << 25), min_size=2, max_size=2),
    threads=st.lists(st.integers(1, 8), min_size=2, max_size=2),
)
def test_an_earlier_cut_is_kept_where_it_fits(
    problem: Problem, spare: list[int], threads: list[int]
) -> None:
    first, second = (
        Limits(RESERVED + own, count, RESERVED) for own, count in zip(spare, threads, strict=True)
    )
    try:
        cut = make_plan(problem, first).cut
        plan = make_plan(problem, replace(second, cut=cut))
    except BudgetError:
        return
    assert plan.peak <= second.memory
    if threads[0] >= threads[1] and spare[0] <= spare[1]:
        assert plan.cut == cut
    if plan.cut != cut:
        assert plan == make_plan(problem, second)


ORDINARY = Problem(
    queries=1000,
    gallery=1_000_000,
    pairs=PairSizes(40_000, 50_000),
    thresholds=101,
    data=Data(
        width=512,
        itemsize=4,
        stored_itemsize=4,
        scratch=lambda rows, columns: 0,
        chunks=(1, 512),
    ),
)


def ordinary(*, gallery: int = ORDINARY.gallery, **data: Any) -> Problem:
    return replace(ORDINARY, gallery=gallery, data=replace(ORDINARY.data, **data))


def plan_of(problem: Problem, memory: float = 2e9, threads: int = 2) -> Plan:
    return make_plan(problem, Limits(int(memory), threads, RESERVED))


def test_the_peak_depends_on_the_gallery_by_a_byte_an_item_alone() -> None:
    large, small = (plan_of(replace(ORDINARY, gallery=gallery)) for gallery in (10**8, 10**6))
    assert large.parts["labels"] - small.parts["labels"] == 10**8 - 10**6
    assert large.peak - large.parts["labels"] == small.peak - small.parts["labels"]


def test_queries_are_finished_in_rounds_that_fit_the_most_of_their_positives() -> None:
    few, many = np.full(9000, 2), np.full(1000, 30_000)  # 30 million positives of a tenth
    each = np.concatenate([few, many])
    counts = PairCounts(each, each)
    sizes = PairSizes(int(each.sum()), int(each.sum()))
    problem = replace(ORDINARY, queries=10_000, gallery=100_000, pairs=sizes)
    with pytest.raises(BudgetError):
        plan_of(problem, memory=1e9)
    plan = plan_of(replace(problem, pairs=replace(sizes, most=counts.most())), memory=1e9)
    assert plan.peak <= 1e9
    ends = [last for _, last in plan.round_queries]
    assert plan.round_queries == list(pairwise([0, *ends]))
    assert ends[-1] == 10_000
    assert all(each[slice(*queries)].sum() <= 1e7 for queries in plan.round_queries)


def test_more_items_than_a_slot_counts_are_refused() -> None:
    plan_of(replace(ORDINARY, gallery=2**32 - 1), memory=1e11)
    with pytest.raises(InputError, match=r"4,294,967,296 items: at most 4,294,967,295.*ledger"):
        plan_of(replace(ORDINARY, gallery=2**32), memory=1e11)


def test_gallery_blocks_are_whole_chunks() -> None:
    plan = plan_of(ordinary(chunks=(3000, 512)))
    assert plan.block % 3000 == 0
    assert all(task.gallery[0] % 3000 == 0 for task in plan.tasks)


def test_a_gallery_of_one_chunk_still_keeps_every_thread_busy() -> None:
    plan = plan_of(ordinary(gallery=50_000, chunks=(50_000, 512)), threads=4)
    assert len(plan.tasks) >= 4


def test_a_stored_matrix_is_read_once_where_a_strip_fits_and_otherwise_twice() -> None:
    matrix = ordinary(width=0, chunks=(20, 10_000))
    once = plan_of(matrix)
    assert once.layout == "strips"
    assert once.bytes_read == 1000 * 1_000_000 * 4
    twice = plan_of(matrix, memory=3e8)
    assert twice.layout == "rectangles"
    assert twice.bytes_read == 2 * once.bytes_read
    more = plan_of(replace(matrix, extra_passes=1))
    assert more.bytes_read == 2 * once.bytes_read


@pytest.mark.parametrize("high", [1, 5, 31])
def test_files_of_few_rows_are_read_by_whole_rows_where_some_fit(high: int) -> None:
    files = ordinary(width=0, chunks=(high, 500_000), grain=(1, 1), in_files=True, gallery=500_000)
    plan = plan_of(files)
    assert plan.layout == "strips"
    assert plan.tile[0] % high == 0
    assert plan.tile[0] >= 16
    assert plan.tile[0] * 500_000 * 4 <= 64 << 20
    by_tiles = [
        plan_of(replace(files, data=replace(files.data, in_files=False))),  # opened once
        plan_of(files, memory=2.6e8),
        plan_of(replace(files, gallery=2_000_000)),
        plan_of(replace(files, data=replace(files.data, chunks=(100, 500_000)))),
    ]
    assert {plan.layout for plan in by_tiles} == {"rectangles"}


@examples(200)
@given(
    gallery=st.integers(10**5, 10**8),
    chunk=st.integers(1, 200_000),
    threads=st.integers(1, 64),
    workers=st.none() | st.integers(1, 30),
)
def test_a_large_gallery_is_cut_at_chunks_without_gaps(
    gallery: int, chunk: int, threads: int, workers: int | None
) -> None:
    problem = ordinary(gallery=gallery, chunks=(chunk, 512))
    on = None if workers is None else Workers(workers, threads, int(1e11), RESERVED)
    plan = make_plan(problem, Limits(int(1e11), threads, RESERVED, on))
    bounds = [task.gallery for task in plan.tasks]
    assert [bounds[0][0], bounds[-1][1]] == [0, gallery]
    assert all(left[1] == right[0] for left, right in pairwise(bounds))
    assert all(start < stop for start, stop in bounds)
    unit = chunk if plan.block % chunk == 0 else plan.block
    assert all(start % unit == 0 for start, _ in bounds)
    assert len(bounds) >= min(threads * (workers or 1), gallery // unit) / 2  # all have work


@examples(100)
@given(
    gallery=st.integers(10**5, 10**7),
    runs=st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 3)), min_size=1, max_size=8),
    threads=st.integers(2, 8),
)
def test_shards_of_threads_have_as_much_work(
    gallery: int, runs: list[tuple[int, int]], threads: int
) -> None:
    taking = np.concatenate([np.full(n, kind > 0) for n, kind in runs])  # one in four is junk
    problem = ordinary(gallery=gallery)
    problem = replace(problem, pairs=replace(problem.pairs, taking_part=taking))
    bounds = [task.gallery for task in plan_of(problem, memory=1e12, threads=threads).tasks]
    assert [bounds[0][0], bounds[-1][1]] == [0, gallery]
    assert all(left[1] == right[0] for left, right in pairwise(bounds))
    assert all(start < stop for start, stop in bounds)
    work = ROW_PAIRS + problem.queries * taking.astype(float)
    place = np.linspace(0, gallery, len(taking) + 1)
    before = np.interp(bounds, place, np.cumsum([0, *work]) * gallery / len(taking))
    own, ends = np.diff(before, axis=1)[:, 0], [end for _, end in bounds]
    large = ends.index(gallery * 3 // 4) + 1 if gallery * 3 // 4 in ends else len(ends)
    assert len(own) >= threads
    for part in (own[:large], own[large:]):  # a large shard of each thread, then small ones
        assert part.size == 0 or np.ptp(part) <= 3 * work.max()


def test_small_shards_are_smaller_where_features_are_wide() -> None:
    def sizes(gallery: int, width: int) -> tuple[list[int], int]:
        problem = ordinary(gallery=gallery, width=width, chunks=(1, width))
        plan = plan_of(problem, memory=1e12, threads=2)
        return [stop - start for start, stop in (task.gallery for task in plan.tasks)], plan.block

    assert sizes(100_000, 128)[0] == [50_000] * 2
    assert sizes(500_000, 128)[0] == [187_500] * 2 + [62_500] * 2
    assert sizes(500_000, 512)[0] == [187_500] * 2 + [20_834] * 5 + [20_830]
    few, block = sizes(100_000, 2048)
    assert few == [37_500] * 2 + [6250] * 4  # no more tiles than there would be
    assert block > 6250


def test_less_memory_makes_smaller_blocks_then_blocks_of_queries() -> None:
    many = replace(ORDINARY, queries=20_000)
    assert {task.queries for task in plan_of(many, memory=4e9).tasks} == {(0, 20_000)}
    few = plan_of(many, memory=5e8)
    assert len({task.queries for task in few.tasks}) > 1
    assert few.bytes_read > plan_of(many, memory=4e9).bytes_read


def test_where_positives_are_many_each_thread_takes_its_own_queries() -> None:
    def cuts(gallery: int, positives: int, **data: Any) -> tuple[int, int]:
        pairs = PairSizes(positives, positives)
        problem = replace(ordinary(gallery=gallery, **data), pairs=pairs)
        tasks = plan_of(problem, memory=1e12).tasks
        return len({task.queries for task in tasks}), len({task.gallery for task in tasks})

    assert cuts(100_000, 10_000_000) == (2, 1)
    assert cuts(100_000, 40_000) == (1, 4)
    computed = np.arange(1000, 100_001, 1000), np.array([512])  # chunks, each of them once
    assert cuts(100_000, 10_000_000, edges=computed)[0] == 1
    assert cuts(100_000_000, 10_000_000)[0] == 1
    blocks, shards = cuts(10_000_000, 1_000_000_000)  # of a task, not too much is lost
    assert blocks > 2
    assert shards == 1


def test_rows_of_a_tile_are_long_where_edges_are_many_and_features_narrow() -> None:
    def tile(width: int, positives: int) -> tuple[int, int]:
        pairs = PairSizes(8000 * positives, 8000 * positives)
        problem = ordinary(gallery=100_000, width=width, chunks=(1, width))
        return plan_of(replace(problem, queries=8000, pairs=pairs), memory=1e13).tile

    rows, items = tile(128, 20)
    for positives in (250, 2500):
        assert tile(128, positives) == (best_rows() // 4, 4 * items)
        assert tile(1024, positives) == (rows, items)


def test_a_refusal_names_what_takes_the_memory() -> None:
    with pytest.raises(BudgetError) as caught:
        plan_of(ORDINARY, memory=2e8)
    for words in ("200.0 MB is too small", "1000 queries × 1000000", "at least", "raise --memory"):
        assert words in str(caught.value)
    with pytest.raises(BudgetError, match="smaller chunks than 1000 × 1000000"):
        plan_of(ordinary(width=0, chunks=(1000, 1_000_000)), memory=1e9)


def test_lists_on_a_cluster_are_bound_by_the_workers_memory_not_by_what_this_process_holds() -> (
    None
):
    workers = Workers(count=2, threads=1, memory=1 << 30, libraries=300 << 20)
    features = se.Features(np.ones((1, 2)), np.ones((1, 2)))
    source = se.Neighbors(features=features, index="Flat", k=44)
    plan = source.plan(ORDINARY, Limits(4 << 30, 2, 3 << 30, workers))
    assert plan.peak <= workers.memory
    assert plan.client["libraries"] == 3 << 30
    small = replace(workers, memory=300 << 20)
    with pytest.raises(BudgetError, match="for each worker is too small for lists"):
        source.plan(ORDINARY, Limits(4 << 30, 2, 0, small))
