"""Rounds: queries that are finished before others begin.

What a query leaves behind is in memory for one round, and on disk afterwards. Where all fits, there
is one round, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from streameval.kernels.places import MOST_POSITIVES
from streameval.memory import give_back
from streameval.output import TemporaryFolder, refused
from streameval.planning.plan import Plan
from streameval.protocols.counts import PairCounts
from streameval.protocols.pairs import PairSource
from streameval.protocols.views import View
from streameval.result.stored import StatisticsWriter, StoredStatistics
from streameval.run.job import Job
from streameval.run.preparation import Prepared
from streameval.run.session import Session
from streameval.run.share import Several, Share, Thresholds, drawn_from, together
from streameval.stacked import stack
from streameval.statistics import RankStatistics
from streameval.typing import Span


def rounds_of(
    prepared: Sequence[Prepared], thresholds: Sequence[Thresholds] = ()
) -> Iterator[tuple[Job, list[int]]]:
    """Yield the job of each round, and which of the evaluations its results are of, in order.

    Parameters
    ----------
    prepared : sequence of Prepared
        With one plan.
    thresholds : sequence of Thresholds, optional
        Of each. Evaluations that have the same, and differ in listed pairs alone, are then counted
        together; without thresholds, none are.
    """
    plan = prepared[0].plan
    spans = plan.round_queries if plan.round else [(0, prepared[0].source.shape[0])]
    groups = _groups(prepared, thresholds)
    order = [number for group in groups for number in group]
    for tasks, span in zip(plan.rounds, spans, strict=True):
        joined = tuple(_joined(prepared, thresholds, group, span) for group in groups)
        yield Job(prepared[0].source, replace(plan, tasks=tasks), joined, span[0]), order


def _joined(
    prepared: Sequence[Prepared], thresholds: Sequence[Thresholds], group: list[int], span: Span
) -> Share:
    """Return what evaluations that are counted together count in a round."""
    own = [prepared[number] for number in group]
    base = own[0].base if len(group) > 1 else None
    if base is None:
        share = together([_share(one, one.view, one.pairs, span) for one in own])
    else:
        share = _share(own[0], base.view, base.pairs, span)
        share = drawn_from(share, [base.drawn[one.view] for one in own], base.anywhere)
    return replace(share, thresholds=thresholds[group[0]]) if thresholds else share


def _share(prepared: Prepared, view: View, pairs: PairSource, queries: Span) -> Share:
    """Return what one evaluation counts in a round, or those of galleries drawn from a view."""
    own, _ = view.spans(queries, (0, 0))
    found, groups = pairs.block(*own), prepared.groups
    return Share(found, identities=prepared.identities, groups=groups, view=view)


def _groups(prepared: Sequence[Prepared], thresholds: Sequence[Thresholds]) -> list[list[int]]:
    """Return which evaluations are counted together."""
    groups: list[list[int]] = []
    for number, one in enumerate(prepared):
        for group in groups if thresholds else ():
            first = group[0]
            if thresholds[first].same(thresholds[number]) and _alike(prepared[first], one):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _alike(one: Prepared, other: Prepared) -> bool:
    """Return whether evaluations differ in listed pairs alone, or are drawn from one base."""
    if one.identities is not None or other.identities is not None:
        return False
    if one.base is not None or other.base is not None:
        return one.base is other.base and _placeable(one)
    sides = one.pairs, other.pairs
    classes = [side.classes for side in sides]
    arrays = [
        (side.junk, own.query, own.code, own.item) for side, own in zip(sides, classes, strict=True)
    ]
    return (
        one.view.same_rows(other.view)
        and classes[0].clauses == classes[1].clauses
        and all(map(np.array_equal, *arrays))
    )


def _placeable(one: Prepared) -> bool:
    """Return whether pairs can be placed among the positives in all galleries of its base."""
    if one.base is None:
        return False
    return int(one.base.pairs.counts.positive.max(initial=0)) <= MOST_POSITIVES


def count_rounds(
    prepared: Sequence[Prepared],
    rounds: Iterator[tuple[Job, list[int]]],
    count: Callable[[Job], Several],
    session: Session,
) -> list[RankStatistics]:
    """Count all rounds: the statistics of each evaluation.

    Of several rounds, the statistics are in a folder that is removed with them.
    """
    kept = keeping([one.counts for one in prepared], prepared[0].plan, session)
    for job, order in rounds:
        counted = count(job)
        for number, own in zip(order, counted, strict=True):
            kept.add(number, own)
        del counted
        if prepared[0].plan.round:
            session.record.release()
    return kept.finish()


def keeping(counts: Sequence[PairCounts], plan: Plan, session: Session) -> Kept:
    """Return what keeps statistics of these pairs, which come block by block."""
    return KeptOnDisk(counts, session) if plan.round else Kept(len(counts))


class Kept:
    """Several statistics, each of blocks of queries that come one after the other."""

    def __init__(self, number: int) -> None:
        self._parts: list[list[RankStatistics]] = [[] for _ in range(number)]

    def add(self, number: int, block: RankStatistics) -> None:
        """Keep the statistics of the queries that follow."""
        self._parts[number].append(block)

    def finish(self) -> list[RankStatistics]:
        """Return the statistics of all blocks."""
        return list(map(stack, self._parts))


class KeptOnDisk(Kept):
    """Such statistics in a folder that is removed with the last of them."""

    def __init__(self, counts: Sequence[PairCounts], session: Session) -> None:
        with _keeping():
            self._folder = TemporaryFolder(session.scratch)
            self._paths = [
                self._folder.path / f"statistics-{number}.zarr" for number in range(len(counts))
            ]
            self._writers = [
                StatisticsWriter(path, len(own.positive), int(own.positive.sum()))
                for path, own in zip(self._paths, counts, strict=True)
            ]

    def add(self, number: int, block: RankStatistics) -> None:
        """Write the statistics of the queries that follow."""
        with _keeping():
            self._writers[number].add(block)

    def finish(self) -> list[RankStatistics]:
        """Return the statistics of all blocks."""
        with _keeping():
            for writer in self._writers:
                writer.close()
        give_back()  # of parts of all rounds, which the threads have taken and freed
        return [StoredStatistics(path, self._folder) for path in self._paths]


def _keeping() -> AbstractContextManager[None]:
    return refused(
        "statistics that don't fit the memory can't be kept on disk",
        "make room; set TMPDIR to a folder with room; or raise --memory",
    )
