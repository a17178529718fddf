"""The greatest distance of each image, where not all pairs are looked at.

That of a query is over all images, so that no re-ranked distance is above 1. That of a gallery item
is over a sample of the images. Both are those of float64: tiles tell which pairs may be furthest.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.memory import MemoryArray
from streameval.kernels.limits import Reach
from streameval.planning.plan import Limits, Plan, Task
from streameval.planning.planner import make_plan
from streameval.planning.problem import Holders, PairSizes, Problem
from streameval.protocols.classes import ItemClasses
from streameval.protocols.pairs import Pairs
from streameval.reranking.everyone import Everyone
from streameval.reranking.nearest import Looker, NearestItems
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import by_queries
from streameval.run.progress import Watch
from streameval.run.record import Record
from streameval.run.session import Session
from streameval.run.share import Share
from streameval.run.task import masked_tiles
from streameval.stretches import cumulated
from streameval.typing import FloatArray, IntArray, Span

SAMPLE = 4096  # images at most
GREATEST = "greatest"  # the passes


def sample_of(images: int) -> IntArray:
    """Return the images of the sample, ascending: one at random of each of equal ranges of all."""
    count = min(images, SAMPLE)
    edges = np.arange(count + 1) * images // max(count, 1)
    return np.random.default_rng(0).integers(edges[:-1], edges[1:])


class Side(Everyone):
    """The images of one side against all images, or a sample of them.

    Parameters
    ----------
    everyone : Everyone
    side : Array
        Its rows.
    first : int
        The number of its first image.
    sample : [S] int64, optional
    """

    def __init__(
        self, everyone: Everyone, side: Array, first: int, sample: IntArray | None = None
    ) -> None:
        self._sides, self.metric, self.dtype = everyone.inputs(), everyone.metric, everyone.dtype
        self.query, self.gallery = side, everyone.gallery
        self._first, self._sample = first, sample
        if sample is not None:
            nothing = np.broadcast_to(everyone.dtype.type(0), (len(sample), everyone.width))
            self.gallery = MemoryArray(nothing, "a sample of the images")

    def read(self, everyone: Everyone) -> None:
        """Read the rows of the sample, if there is one; a plan needs none."""
        if self._sample is not None:
            rows = everyone.take_gallery(self._sample).rows
            self.gallery = MemoryArray(rows, self.gallery.uri)

    def greatest_plan(self, beside: Holders, limits: Limits) -> Plan:
        """Return how the search for the greatest distances is cut.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """
        pairs = PairSizes(0, len(self._own()[1]))
        return make_plan(Problem(*self.shape, pairs, self.data(), near=3, beside=beside), limits)

    def greatest(self, plan: Plan, session: Session, record: Record) -> FloatArray:
        """Return the greatest distance of each image to the others, [n]; −inf without any."""
        (queries, items), (begin, own) = self.shape, self._own()
        none, junk = np.zeros(len(own), np.bool_), np.zeros(items, np.bool_)
        classes = ItemClasses.none(queries, items)
        share = Share(Pairs(begin, own, none, none, junk, classes))
        stage = record.stage(f"{GREATEST} {self._first}", plan.tasks)
        work = Pass(GREATEST, _greatest, np.maximum, by_queries)
        parts = session.sums(work, Job(self, plan, (share,)), stage)
        return np.concatenate(list(parts.values()))

    def _own(self) -> tuple[IntArray, IntArray]:
        """Return where each image is among those that it is compared with, as listed pairs."""
        images = self._first + np.arange(self.shape[0])
        if self._sample is None:
            return np.arange(len(images) + 1), images
        place = np.searchsorted(self._sample, images)
        inside = place < len(self._sample)
        inside[inside] = self._sample[place[inside]] == images[inside]
        return cumulated(inside), place[inside]


def _greatest(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the greatest distances of a task's queries to its items, [m] float64."""
    size = job.only.pairs.queries
    reach = job.cache.once("reach", (GREATEST, size), partial(Reach.unknown, size))
    by_query = NearestItems(1, reach.of(task.queries), task.queries[0])
    looker = Looker(by_query, NearestItems(1, Reach.unknown(0), 0))
    for _, tile in masked_tiles(job, task, watch, wanted=looker.wanted):
        looker.look(tile)
    return by_query.lists.greatest


def spans(queries: int, images: int) -> list[Span]:
    """Return the images of the queries and of the gallery; without a side that has none."""
    return [one for one in ((0, queries), (queries, images)) if one[0] < one[1]]
