"""The pass that counts negatives ahead of given positives, each stretch of the gallery apart."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streameval.kernels.stretches import StretchCounter
from streameval.planning import Task
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.session import Session
from streameval.run.task import masked_tiles
from streameval.statistics import IntArray


@dataclass(frozen=True)
class Stretches:
    """A task, and the stretches that it is in.

    Attributes
    ----------
    task : Task
    cuts : tuple of int
        Where in the gallery they begin, within the task, and its end.
    first : int
        The number of the first.
    """

    task: Task
    cuts: tuple[int, ...]
    first: int

    def __str__(self) -> str:
        """Name it as people do."""
        return str(self.task)


def pairs_of(item: Stretches) -> int:
    """Return the pairs that a task works off."""
    return item.task.pairs


def ranks(job: Job, item: Stretches, watch: Watch) -> IntArray:
    """Count a task: negatives closer than each positive of its queries, and as far, [s, 2, p].

    Raises
    ------
    InputError
        If an input can't be read.
    """
    queries = item.task.queries
    positives = job.known_positives().block(*queries)
    counter = StretchCounter(positives, np.array(item.cuts), job.offset_rows(*queries))
    for tile in masked_tiles(job, item.task, watch):
        counter.add(tile)
    return counter.ahead


RANKS: Pass[Stretches, IntArray] = Pass("count", ranks, None, str, pairs_of)


def rank_stretches(job: Job, ends: Sequence[int], session: Session) -> IntArray:
    """Count the negatives ahead of the positives of a job, each stretch of the gallery apart.

    Parameters
    ----------
    job : Job
        With its positives.
    ends : sequence of int
        Where each stretch ends, strictly ascending; the last is the end of the gallery.
    session : Session

    Returns
    -------
    [stretches, 2, P] int64
        Negatives closer than each positive, and as far as it.
    """
    items: list[Stretches] = []
    for task in job.plan.tasks:
        left, right = task.gallery
        first, last = bisect_right(ends, left), bisect_right(ends, right - 1)
        items.append(Stretches(task, (left, *ends[first:last], right), first))
    indptr = job.known_positives().indptr
    ahead = np.zeros((len(ends), 2, int(indptr[-1])), np.int64)
    for indices, part in session.run(RANKS, job, items, "counting"):
        item = items[indices[0]]
        begin, end = (indptr[query] for query in item.task.queries)
        ahead[item.first : item.first + len(part), :, begin:end] += part
    return ahead
