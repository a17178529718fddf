"""The nearest gallery items of queries, and of gallery items among the others: exact searches.

Under euclidean, squared distances are compared, as in re-ranking; under other metrics, their own.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streameval.kernels.limits import Reach
from streameval.planning.plan import Limits, Plan, Task
from streameval.planning.planner import make_plan
from streameval.planning.problem import PairSizes, Problem
from streameval.protocols.classes import ItemClasses
from streameval.protocols.pairs import Pairs
from streameval.reranking.everyone import Everyone, Gallery
from streameval.reranking.lists import check_found, merge_nearest, unpacked
from streameval.reranking.nearest import Looker, NearestItems
from streameval.reranking.stages import NEIGHBORS, rank_all, search_record
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import by_queries
from streameval.run.progress import Watch
from streameval.run.session import Session
from streameval.run.share import Share
from streameval.run.task import masked_tiles
from streameval.sources.features import Features
from streameval.typing import FloatArray, Int32Array


class Neighbors(NamedTuple):
    """The nearest of each row.

    Attributes
    ----------
    item : [n, K] int32
        Gallery index, in order of distance, ties by index.
    distance : [n, K] float64
        Canonical; squared under euclidean.
    """

    item: Int32Array
    distance: FloatArray


class AmongOthers(Gallery):
    """The gallery against itself."""

    def nearest(
        self, most: int, limits: Limits, session: Session, folder: Path | None
    ) -> Neighbors:
        """Return the nearest K items of each item, itself left out."""
        ranking = rank_all(self, most, limits, session, folder)
        return Neighbors(ranking.item[:, 1:], ranking.distance[:, 1:])


class InGallery(Everyone):
    """The queries against the gallery.

    Parameters
    ----------
    features : Features
    """

    def __init__(self, features: Features) -> None:
        super().__init__(features)
        self.query, self.gallery = features.query, features.gallery

    def neighbor_plan(self, most: int, limits: Limits) -> Plan:
        """Return how the search is cut.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """
        near = 2 * most + 1
        return make_plan(Problem(*self.shape, PairSizes(0, 0), self.data(), near=near), limits)

    def nearest(
        self, most: int, limits: Limits, session: Session, folder: Path | None
    ) -> Neighbors:
        """Return the nearest K items of each query."""
        (queries, items), none = self.shape, np.zeros(0, np.int64)
        every, classes = none.astype(np.bool_), ItemClasses.none(queries, items)
        begin, junk = np.zeros(queries + 1, np.int64), np.zeros(items, np.bool_)
        share = Share(Pairs(begin, none, every, every, junk, classes))
        plan = self.neighbor_plan(most, limits)
        item, distance = np.empty((queries, most), np.int32), np.empty((queries, most))
        with search_record(self, most, limits, folder) as (record, with_record):
            plan = with_record(plan)
            stage = record.stage(NEIGHBORS, plan.tasks)
            work: Pass[Task, FloatArray]
            work = Pass(NEIGHBORS, partial(_nearest, most), merge_nearest, by_queries)
            for rows, packed in session.sums(work, Job(self, plan, (share,)), stage).items():
                distance[slice(*rows)], item[slice(*rows)], _ = unpacked(packed)
            record.release()
        check_found(item)
        return Neighbors(item, distance)


def _nearest(most: int, job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the nearest items of a task's queries in its shard, packed."""
    size = job.only.pairs.queries
    reach = job.cache.once("reach", (most, size), partial(Reach.unknown, size))
    by_query = NearestItems(most, reach.of(task.queries), task.queries[0])
    looker = Looker(by_query, NearestItems(most, Reach.unknown(0), 0))
    for _, tile in masked_tiles(job, task, watch, wanted=looker.wanted):
        looker.look(tile)
    return by_query.packed
