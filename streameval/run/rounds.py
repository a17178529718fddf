"""Rounds: queries that are finished before others begin.

What a query leaves behind is in memory for one round, and on disk afterwards. Where all fits, there
is one round, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

from streameval.output import TemporaryFolder, refused
from streameval.result.stored import StatisticsWriter, StoredStatistics
from streameval.run.job import Job
from streameval.run.preparation import Prepared
from streameval.run.session import Session
from streameval.statistics import RankStatistics


def rounds_of(prepared: Prepared) -> Iterator[Job]:
    """Yield the job of each round: its tasks and its pairs."""
    plan = prepared.plan
    spans = plan.round_queries if plan.round else [(0, prepared.pairs.queries)]
    for tasks, (first, last) in zip(plan.rounds, spans, strict=True):
        pairs, own = prepared.pairs.block(first, last), replace(plan, tasks=tasks)
        job = Job(prepared.source, pairs, own, groups=prepared.groups)
        yield replace(job, identities=prepared.identities)


def count_rounds(
    prepared: Prepared, count: Callable[[Job], RankStatistics], session: Session
) -> RankStatistics:
    """Count all rounds; of several, the statistics are in a folder that is removed with them."""
    rounds = rounds_of(prepared)
    if len(prepared.plan.rounds) == 1:
        return count(next(rounds))
    counts = prepared.counts
    with _keeping():
        folder = TemporaryFolder(session.scratch)
        path = folder.path / "statistics.zarr"
        writer = StatisticsWriter(path, len(counts.positive), int(counts.positive.sum()))
    for job in rounds:
        counted = count(job)
        with _keeping():
            writer.add(counted)
        del counted
        session.record.release()
    with _keeping():
        writer.close()
    return StoredStatistics(path, folder)


def _keeping() -> AbstractContextManager[None]:
    return refused(
        "statistics that don't fit the memory can't be kept on disk",
        "make room; set TMPDIR to a folder with room; or raise --memory",
    )
