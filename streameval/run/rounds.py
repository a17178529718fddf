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
from streameval.protocols.pairs import PairSource
from streameval.protocols.views import View
from streameval.result.stored import StatisticsWriter, StoredStatistics
from streameval.run.job import Job
from streameval.run.preparation import Prepared
from streameval.run.session import Session
from streameval.run.share import Several, Share, Thresholds, drawn_from, together
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
    if len(prepared[0].plan.rounds) == 1:
        job, order = next(rounds)
        counted = count(job)
        return [counted[order.index(number)] for number in range(len(order))]
    with _keeping():
        folder = TemporaryFolder(session.scratch)
        paths = [folder.path / f"statistics-{number}.zarr" for number in range(len(prepared))]
        writers = [
            StatisticsWriter(path, len(counts.positive), int(counts.positive.sum()))
            for path, counts in zip(paths, (one.counts for one in prepared), strict=True)
        ]
    for job, order in rounds:
        counted = count(job)
        with _keeping():
            for number, own in zip(order, counted, strict=True):
                writers[number].add(own)
        del counted
        session.record.release()
    with _keeping():
        for writer in writers:
            writer.close()
    give_back()  # of parts of all rounds, which the threads have taken and freed
    return [StoredStatistics(path, folder) for path in paths]


def _keeping() -> AbstractContextManager[None]:
    return refused(
        "statistics that don't fit the memory can't be kept on disk",
        "make room; set TMPDIR to a folder with room; or raise --memory",
    )
