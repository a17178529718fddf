"""A run that is begun with any budget goes on with any other: the plan changes, counts do not."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support import runs
from support.planning import Workers
from support.run import Checkpoint, checkpoint_module, count, passes_module

import streameval as se

OPTIONS = se.MetricOptions()
KINDS = ("features", "distances")


class Place(NamedTuple):
    """Where a run is planned: threads or workers, and a budget, from the least on."""

    threads: int
    workers: int
    share: float

    def within(self, low: int, high: int) -> dict[str, Any]:
        """Return the options of a run with a budget between two, in steps of equal ratio."""
        memory = int(low * (high / low) ** self.share)
        if not self.workers:
            return {"threads": self.threads, "memory": memory}
        on = Workers(self.workers, self.threads, memory, libraries=0)
        return {"threads": 1, "memory": high, "workers": on}


places = st.builds(Place, st.integers(1, 4), st.integers(0, 3), st.floats(0, 1))


def make_source(folder: Path, kind: str, queries: int, items: int) -> se.Source:
    rng = np.random.default_rng(queries)
    if kind == "distances":
        stored = zarr.create_array(
            folder / "d.zarr", shape=(queries, items), chunks=(7, 50), dtype="f4"
        )
        stored[...] = rng.integers(1, 99, (queries, items))
        return se.Distances(folder / "d.zarr")
    for side, rows in (("q", queries), ("g", items)):
        np.save(folder / f"{side}.npy", rng.integers(0, 9, (rows, 5)).astype("f4"))
    return se.Features(folder / "q.npy", folder / "g.npy", "euclidean")


def least(source: se.Source, asked: dict[str, Any], place: Place) -> int:
    """Return about the least budget that is not refused."""
    low, high = 1, 1 << 32
    while high > 1.01 * low + 1:
        middle = int((low * high) ** 0.5)
        try:
            runs.prepare(source, **asked, **place._replace(share=0.0).within(middle, 1 << 32))
        except se.BudgetError:
            low = middle
        else:
            high = middle
    return high


def run(folder: Path, ready: Any, stop: int | None) -> se.Evaluation:
    """Evaluate with a record, going on with what is there; all tasks fail from one on."""
    done: list[object] = []

    def counted(job: Any, task: Any, watch: Any) -> Any:
        if stop is not None and len(done) >= stop:
            raise RuntimeError("the cable is cut")
        done.append(task)
        return count(job, task, watch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes_module, "COUNT", replace(passes_module.COUNT, compute=counted))
        patch.setattr(checkpoint_module, "COMMIT_SECONDS", 0.0)
        with Checkpoint(folder / "kept", resume=True) as record:
            ready = runs.recorded(ready, OPTIONS, record)
            return runs.run(ready, OPTIONS, record=record)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the plan in:streameval.errors.StreamevalWarning")
@given(
    st.sampled_from(KINDS),
    st.integers(1, 200),
    st.integers(50, 900),
    places,
    places,
    st.integers(0, 6),
)
@examples(6)
def test_any_budget_resumes(
    kind: str, queries: int, items: int, before: Place, after: Place, stop: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        runs.plan_any_budget(patch)
        source = make_source(Path(name), kind, queries, items)
        rng = np.random.default_rng(items)
        asked: dict[str, Any] = {
            "query": se.Labels(id=rng.integers(0, 9, queries)),
            "gallery": se.Labels(id=rng.integers(0, 9, items)),
            "protocol": "no-camera",
            "range": (0.0, 99.0),
        }
        expected = runs.run(runs.prepare(source, **asked, memory=1 << 32, threads=1), OPTIONS)
        first, second = (
            runs.prepare(source, **asked, **place.within(least(source, asked, place), 1 << 28))
            for place in (before, after)
        )
        try:
            found = run(Path(name), first, stop)
        except se.TaskError:
            found = run(Path(name), second, None)
        assert found.statistics.equals(expected.statistics)
        assert repr(found.metrics.scalars) == repr(expected.metrics.scalars)
