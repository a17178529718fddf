"""Lists ranked by canonical distances, and how far FAISS's float32 lets them be certain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streameval.errors import InputError
from streameval.neighbors.faiss_index import faiss_metric
from streameval.neighbors.lists import BoolArray, Lists, Places
from streameval.planning.plan import Plan, Task, pieces, ranges
from streameval.protocols.pairs import Pairs
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import listed_distances, whole_range, wider
from streameval.run.progress import Watch
from streameval.run.session import Session
from streameval.sources.features import Features
from streameval.statistics import FloatArray, IntArray

if TYPE_CHECKING:
    from streameval.neighbors.source import ListSource

ROUNDINGS = 24  # beside those of a sum: of normalising, of rows, and of what is added up
LEAST_NORM, MOST_NORM = 1e-12, 1e12  # lengths that float32 can square, and add up
NO_PAIRS = Pairs.assumed(0, 0, 0)  # of a job that searches, or computes listed distances


def _rounding(width: int) -> float:
    """Return a bound on the relative error of an inner product in float32.

    γ = n u / (1 − n u), u = 2⁻²⁴, with n = D (Higham, §3.1), in any order of summation.
    """
    n = (width + ROUNDINGS) * 2.0**-24
    return n / (1 - n) * (1 + 1e-6)


class Ranking:
    """Ranks the lists of a source, block by block.

    `longest` is the length of the longest gallery vector; NaN where it is not needed, or a search
    tells it.
    """

    def __init__(self, source: ListSource, plan: Plan, session: Session) -> None:
        self.source, self.plan, self.session, self.longest = source, plan, session, math.nan
        self.features = cast("Features", source.features)
        if source.needs_lengths:
            self.longest = float(gallery_lengths(self.features, plan, session)[1])

    def rank(self, lists: Lists, longest: float, queries: tuple[int, int]) -> Lists:
        """Return the nearest k of each list of a block, by the distances that it is read by.

        Lists come with the distances that are stored, or FAISS's own, and with the length of the
        longest gallery vector that the search has looked at, NaN where that isn't known.
        """
        source, size, ranked = self.source, np.diff(lists.indptr), lists
        horizon = np.where(size < source.shape[1], -np.inf, np.inf)
        some = (size > 0) & (horizon < 0)
        if source.canonical:
            ranked = replace(lists, distance=self._distances(lists.query, lists.item, queries))
        if source.reading == "never":
            horizon[:] = np.inf
        elif source.canonical:
            horizon[some] = self._certain(lists, ranked, longest, queries)[some]
        else:
            horizon[some] = lists.distance[lists.indptr[1:][some] - 1]
        return replace(ranked, horizon=horizon).nearest(source.depth)

    def _distances(self, query: IntArray, item: IntArray, queries: tuple[int, int]) -> FloatArray:
        query = query + queries[0]
        return distances_of(self.features, self.plan, self.session, query, item, "distances")

    def _certain(
        self, told: Lists, ranked: Lists, longest: float, queries: tuple[int, int]
    ) -> FloatArray:
        """Return the least distance that an item missing from each list may have, [m] float64."""
        metric, norms = faiss_metric(self.features), self.features.read_query(*queries).norms
        longest = float(np.fmax(self.longest, longest))
        for side, size in (("query", norms.max(initial=0)), ("gallery", longest)):
            if not metric.normalised and (size > MOST_NORM or 0 < size < LEAST_NORM):
                raise InputError(
                    f"the longest vector of the {side} features has length {size:g}, which float32 "
                    f"can't square without loss; lengths from {LEAST_NORM:g} to {MOST_NORM:g} are "
                    "needed for FAISS: scale the features"
                )
        error = metric.faiss_error(_rounding(self.features.width), norms, longest)
        theirs, values = metric.value(told.distance), metric.value(ranked.distance)
        if not np.isnan(theirs).all():
            rounding = self.source.precision * (1 + np.abs(theirs) + np.abs(values))
            slack = error[told.query] + 16 * rounding
            self._check_values(told, ranked, np.abs(theirs - values) > slack, queries[0])
        # Of stored lists, the values of FAISS may have been less.
        reach = theirs if self.source.searches else values - error[told.query]
        last = np.full(len(norms), -np.inf)
        np.maximum.at(last, told.query, reach)
        return np.maximum(metric.distance(last - error), metric.least)

    def _check_values(self, told: Lists, ranked: Lists, wrong: BoolArray, first: int) -> None:
        """Refuse distances of lists that differ by more than rounding from the canonical ones."""
        for at in np.flatnonzero(wrong)[:1]:
            raise InputError(
                f"the lists of {self.source.name} have gallery item {told.item[at]} at "
                f"{float(told.distance[at])!r} from query {first + told.query[at]}; the "
                f"{self.features.metric} distance of the features is "
                f"{float(ranked.distance[at])!r}: they are of other features, or of another metric "
                "(squared, or a similarity)"
            )

    def missing_distances(self, places: Places, queries: tuple[int, int]) -> FloatArray:
        """Return the distances of positives that are missing from lists, [m] float64."""
        (query, item), horizon = places.missing_positives(), places.lists.horizon
        distance = self._distances(query, item, queries)
        for at in np.flatnonzero(distance < horizon[query])[:1]:
            raise InputError(
                f"gallery item {item[at]} is at {float(distance[at])!r} from query "
                f"{query[at] + queries[0]}, closer than the end of its list "
                f"({float(horizon[query[at]])!r}), and not in it: the lists are not those of "
                "an exact search; read them as of a system deployed: --missing never"
            )
        return distance


def lengths(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the least and the greatest length of a task's gallery vectors, [2] float64."""
    ends = np.array([np.inf, 0.0])
    for rows in pieces(task.gallery, job.plan.block):
        _, norms = cast("Features", job.source).read_gallery(*rows)
        ends = wider(ends, np.array([norms.min(), norms.max()]))
    watch.advance(task.pairs)
    return ends


LENGTHS: Pass[Task, FloatArray] = Pass("lengths", lengths, wider, whole_range)


def gallery_lengths(features: Features, plan: Plan, session: Session) -> FloatArray:
    """Return the least and the greatest length of all gallery vectors, in one pass over them."""
    items = features.shape[1]
    step = max(-(-items // (4 * plan.threads * max(plan.workers, 1))), plan.block)
    tasks = tuple(Task((0, 1), part) for part in ranges(items, step))
    job = Job(features, NO_PAIRS, replace(plan, tasks=tasks))
    return session.sums(LENGTHS, job)[None]


def distances_of(
    features: Features, plan: Plan, session: Session, query: IntArray, item: IntArray, name: str
) -> FloatArray:
    """Return the canonical distances of pairs, [p] float64, in a pass of this name."""
    tasks = tuple(Task(block, (0, 0)) for block in ranges(features.shape[0], plan.tile[0]))
    job = Job(features, NO_PAIRS, replace(plan, tasks=tasks))
    return listed_distances(job, query, item, session, name=name)
