"""Lists ranked by canonical distances, and how far FAISS's float32 lets them be certain."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.distances.distance import FaissMetric
from streameval.errors import InputError
from streameval.neighbors.faiss_index import faiss_metric
from streameval.neighbors.lists import Lists
from streameval.neighbors.search import Hits, check_lengths, distances_of, gallery_lengths
from streameval.planning import Plan
from streameval.sources.features import Features
from streameval.statistics import FloatArray, IntArray

if TYPE_CHECKING:
    from streameval.neighbors.source import ListSource
    from streameval.run.session import Session


ROUNDINGS = 24  # beside those of a sum: of normalising, of rows, and of what is added up


def _rounding(width: int) -> float:
    """Return a bound on the relative error of an inner product in float32.

    γ = n u / (1 − n u), u = 2⁻²⁴, with n = D (Higham, §3.1), in any order of summation.
    """
    n = (width + ROUNDINGS) * 2.0**-24
    return n / (1 - n) * (1 + 1e-6)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranks the lists of a source, block by block.

    Attributes
    ----------
    source : ListSource
    plan : Plan
    session : Session
    longest : float
        Length of the longest gallery vector; NaN where it is not needed, or a search tells it.
    """

    source: ListSource
    plan: Plan
    session: Session
    longest: float = math.nan

    @classmethod
    def of(cls, source: ListSource, plan: Plan, session: Session) -> Ranking:
        """Return the ranking of a source; looks at the whole gallery where bounds rely on it."""
        if source.features is None or not source.needs_lengths:
            return cls(source, plan, session)
        return cls(source, plan, session, gallery_lengths(source.features, plan, session)[1])

    def rank(self, lists: Lists, hits: Hits | None, queries: tuple[int, int]) -> Lists:
        """Return the nearest k of each list, by the distances that it is read by.

        Parameters
        ----------
        lists : Lists
            Of a block of queries, with the distances that are stored, or FAISS's own.
        hits : Hits, optional
            What FAISS has returned, where it has searched here.
        queries : (int, int)
        """
        source, size = self.source, np.diff(lists.indptr)
        whole = size >= source.shape[1]
        some = (size > 0) & ~whole
        horizon = np.where(whole | (source.reading == "never"), np.inf, -np.inf)
        if source.features is not None and source.canonical:
            query = lists.query + queries[0]
            distance = distances_of(
                source.features, self.plan, self.session, query, lists.item, "distances"
            )
            ranked = replace(lists, distance=distance)
            if source.reading == "bounds":
                certain = self._certain(source.features, lists, ranked, hits, queries)
                horizon[some] = certain[some]
        else:
            ranked = lists
            if source.reading == "bounds":
                horizon[some] = lists.distance[lists.indptr[1:][some] - 1]
        return replace(ranked, horizon=horizon).nearest(source.depth)

    def _certain(
        self,
        features: Features,
        told: Lists,
        ranked: Lists,
        hits: Hits | None,
        queries: tuple[int, int],
    ) -> FloatArray:
        """Return the least distance that an item missing from each list may have, [m] float64."""
        metric, (_, norms) = faiss_metric(features), features.read_query(*queries)
        longest = self.longest if hits is None or math.isnan(hits.longest) else hits.longest
        check_lengths(features, norms, longest)
        error = metric.error(_rounding(features.width), norms, longest)
        values = metric.value(ranked.distance)
        self._check_values(metric, told, values, error, queries[0])
        if hits is not None:
            last = hits.last
        else:
            last = np.full(len(norms), -np.inf)
            np.maximum.at(last, told.query, values)
            last -= error  # the value of FAISS may have been less
        least: FloatArray = np.maximum(metric.distance(last - error), metric.least)
        return least

    def _check_values(
        self, metric: FaissMetric, told: Lists, values: FloatArray, error: FloatArray, first: int
    ) -> None:
        """Check the distances of lists against the canonical ones.

        Raises
        ------
        InputError
            If they differ by more than rounding explains.
        """
        if np.isnan(told.distance).all():
            return
        theirs = metric.value(told.distance)
        slack = error[told.query] + 16 * self.source.precision * (
            1 + np.abs(theirs) + np.abs(values)
        )
        wrong = np.flatnonzero(np.abs(theirs - values) > slack)
        if len(wrong):
            at = int(wrong[0])
            canonical = float(metric.distance(values[at : at + 1])[0])
            name = "" if self.source.features is None else self.source.features.metric
            raise InputError(
                f"the lists of {self.source.name} have gallery item {told.item[at]} at "
                f"{float(told.distance[at])!r} from query {first + told.query[at]}; the "
                f"{name} distance of the features is {canonical!r}: they are of "
                "other features, or of another metric (squared, or a similarity)"
            )

    def missing_distances(
        self, lists: Lists, missing: tuple[IntArray, IntArray], queries: tuple[int, int]
    ) -> FloatArray | None:
        """Return the distances of positives that are missing from lists, [m] float64.

        Raises
        ------
        InputError
            If one is closer than the end of its list: the search was not exact.
        """
        if self.source.features is None:
            return None
        query, item = missing
        distance = distances_of(
            self.source.features, self.plan, self.session, query + queries[0], item, "distances"
        )
        closer = np.flatnonzero(distance < lists.horizon[query])
        if len(closer):
            at = int(closer[0])
            raise InputError(
                f"gallery item {item[at]} is at {float(distance[at])!r} from query "
                f"{query[at] + queries[0]}, closer than the end of its list "
                f"({float(lists.horizon[query[at]])!r}), and not in it: the lists are not those of "
                "an exact search; read them as of a system deployed: --missing never"
            )
        return distance
