"""The plan of a search for the nearest of all: every pair once, within the budget, no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.planning import Data, Limits, Workers, search_plan

import streameval as se

RESERVED = 50_000_000
NUMBERS = 8 * (20 + 10 + 1)  # of an image: 20 distances, as many items of 4 bytes, the greatest


def data_of(width: int = 128, chunk: int = 1) -> Data:
    return Data(width, 4, 4, lambda rows, columns: 0, (chunk, width))


@examples(200)
@given(
    images=st.integers(1, 5000),
    most=st.integers(1, 40),
    data=st.builds(data_of, width=st.sampled_from([1, 64, 2048]), chunk=st.integers(1, 400)),
    spare=st.integers(1 << 22, 1 << 27),
    threads=st.integers(1, 8),
)
def test_every_pair_is_looked_at_once_and_the_peak_within_the_budget(
    images: int, most: int, data: Data, spare: int, threads: int
) -> None:
    limits = Limits(RESERVED + spare, threads, RESERVED)
    try:
        plan = search_plan(images, most, data, limits)
    except se.BudgetError:
        return
    assert plan.peak <= limits.memory
    seen = np.zeros((images, images), np.int8)
    for task in plan.tasks:
        ways = {(task.queries, task.gallery), (task.gallery, task.queries)}
        for queries, items in ways:
            seen[slice(*queries), slice(*items)] += 1
    assert (seen == 1).all()
    assert all(size >= 1 for size in (plan.block, *plan.tile))
    larger = replace(limits, memory=4 * limits.memory)
    assert search_plan(images, most, data, replace(larger, cut=plan.cut)).cut == plan.cut


def test_a_plan_holds_no_more_where_more_is_allowed() -> None:
    plans = [
        search_plan(93_820, 20, data_of(512), Limits(memory, 2, RESERVED))
        for memory in (2 * 10**9, 8 * 10**9)
    ]
    assert plans[0].peak == plans[1].peak < 6 * 10**8


@pytest.mark.parametrize("workers", [None, Workers(4, 2, 2 * 10**9, RESERVED)])
def test_what_is_held_grows_by_what_has_been_found_of_an_image(workers: Workers | None) -> None:
    limits = Limits(8 * 10**9, 2, RESERVED, workers)
    small, large = (search_plan(images, 20, data_of(), limits) for images in (10**6, 2 * 10**6))
    where, tasks = ("parts", 0) if workers is None else ("client", 2000 * 10**6)
    held = [sum(getattr(plan, where).values()) for plan in (small, large)]
    assert NUMBERS * 10**6 < held[1] - held[0] < (NUMBERS + 12 * 21 + 8 + 80) * 10**6 + tasks
    if workers is not None:  # which hold none of it
        assert large.peak - small.peak < 50 * 10**6


def test_a_ranking_that_does_not_fit_is_refused() -> None:
    with pytest.raises(se.BudgetError, match="too small for the nearest of 10000000 queries"):
        search_plan(10**7, 20, data_of(), Limits(4 * 10**9, 2, RESERVED))
