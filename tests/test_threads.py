"""The threads of one machine: every item once, the first error, and what had been finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.planning import Plan
from support.run import Cancelled, Job, Pass, ThreadExecutor, Watch
from waiting import PATIENCE

from streameval import Distances, InputError, Progress

JOB = Job(
    Distances(np.zeros((1, 1))),
    Plan("strips", (), 1, (1, 1), 1, 1, {}, 0, 0),
)


def work(compute: Callable[[int, Watch], int]) -> Pass[int, int]:
    return Pass("count", lambda _, item, watch: compute(item, watch))


@examples(60)
@given(data=st.data(), threads=st.integers(1, 5), count=st.integers(0, 12))
def test_every_item_once_or_the_first_error_and_all_that_was_finished(
    data: st.DataObject, threads: int, count: int
) -> None:
    waits = data.draw(st.lists(st.sampled_from([0, 0.001, 0.003]), min_size=count, max_size=count))
    bad = data.draw(st.sets(st.integers(0, 11))) if data.draw(st.booleans()) else set()
    bad = {index for index in bad if index < count}
    finished = []

    def compute(item: int, watch: Watch) -> int:
        time.sleep(waits[item])
        if item in bad:
            raise InputError(f"item {item}")
        finished.append(item)
        return item

    found: list[int] = []
    raised = None
    try:
        for indices, part in ThreadExecutor(threads).run(
            work(compute), JOB, dict(enumerate(range(count))), Watch(Progress())
        ):
            assert indices == (part,)
            found.append(part)
    except InputError as error:
        raised = str(error)
    assert len(set(found)) == len(found)
    if bad:
        assert raised == f"item {min(bad)}"
        assert set(found) >= set(range(min(bad)))
        assert set(found) <= set(finished)
    else:
        assert (raised, sorted(found)) == (None, list(range(count)))


def test_what_runs_beside_a_failing_item_comes_before_its_error() -> None:
    failed = threading.Event()

    def compute(item: int, watch: Watch) -> int:
        if item == 1:
            failed.set()
            raise InputError("item 1")
        assert failed.wait(PATIENCE)
        return item

    done = ThreadExecutor(2).run(work(compute), JOB, {0: 0, 1: 1, 2: 2}, Watch(Progress()))
    assert next(done) == ((0,), 0)
    with pytest.raises(InputError, match="item 1"):
        next(done)


def test_a_task_that_begins_late_is_done_though_one_after_it_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = threading.Event()

    class Late(ThreadPoolExecutor):
        def submit(self, function: Any, /, index: int, *given: Any) -> Any:
            def begin() -> Any:
                if index == 0:
                    assert failed.wait(PATIENCE)
                    time.sleep(0.05)  # until it is known
                return function(index, *given)

            return super().submit(begin)

    def compute(item: int, watch: Watch) -> int:
        if item == 1:
            failed.set()
            raise InputError("item 1")
        return item

    monkeypatch.setattr("streameval.run.executor.ThreadPoolExecutor", Late)
    done = ThreadExecutor(2).run(work(compute), JOB, {0: 0, 1: 1, 2: 2}, Watch(Progress()))
    assert next(done) == ((0,), 0)
    with pytest.raises(InputError, match="item 1"):
        next(done)


def test_what_nobody_waits_for_is_cancelled_and_nothing_more_begins() -> None:
    begun: list[int] = []
    ended: list[Any] = []

    def compute(item: int, watch: Watch) -> int:
        begun.append(item)
        try:
            while item:
                time.sleep(0.01)
                watch.advance(0)
        except Cancelled:
            ended.append(item)
            raise
        return item

    items = {index: min(index, 1) for index in range(50)}
    done = ThreadExecutor(2).run(work(compute), JOB, items, Watch(Progress()))
    assert next(done)[1] == 0
    done.close()
    assert len(begun) <= 3
    assert ended == begun[1:]
    assert not [one for one in threading.enumerate() if one.name.startswith("streameval")]
