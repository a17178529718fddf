"""A block of a ledger: some of its queries against some of its segments, or parts of these.

Labels, pairs, plan and passes are those of any evaluation, with two differences: the positives to
rank are given, as they may lie in other segments, and each segment is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import JoinedArray, SelectedArray
from streameval.errors import BadRowError, InputError
from streameval.kernels.edges import Positives as KnownPositives
from streameval.ledger.head import Segment, Settings
from streameval.ledger.state import Nearest, Positives
from streameval.planning.range import NotUnitError, Range
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import find_pairs
from streameval.run.job import Job
from streameval.run.passes import count_stretches, find_positives, rank_stretches
from streameval.run.session import Session
from streameval.run.share import Near, Share, Thresholds
from streameval.run.task import RangeError
from streameval.statistics import RankStatistics
from streameval.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Part:
    """Items of a segment that are counted together.

    Attributes
    ----------
    segment : Segment
    labels : Labels
        Of these items.
    array : Array
        Their features [m, D], or their distances from all queries [Q, m].
    rows : [m] int64, optional
        Which items of the segment; all by default.
    """

    segment: Segment
    labels: Labels
    array: Array
    rows: IntArray | None = None

    def place(self, index: IntArray) -> IntArray:
        """Return the number of these items before each of some indices of the segment."""
        return index if self.rows is None else np.searchsorted(self.rows, index)

    def index(self, place: IntArray) -> IntArray:
        """Return the indices in the segment of some of these items."""
        return place if self.rows is None else self.rows[place]


def joined(arrays: Sequence[Array], axis: int, name: str) -> Array:
    """Return one or several arrays as one."""
    return arrays[0] if len(arrays) == 1 else JoinedArray(arrays, axis, name)


class Block:
    """A rectangle of the ledger: some queries and some parts of segments, none of them empty.

    Labels and features are of all queries, features None where distances are stored; parts are in
    the order of the gallery; `queries` [q] are ascending, all by default.
    """

    def __init__(
        self,
        settings: Settings,
        labels: Labels,
        features: Array | None,
        parts: Sequence[Part],
        session: Session,
        queries: IntArray | None = None,
    ) -> None:
        self.parts = parts
        self.queries = np.arange(len(labels)) if queries is None else queries
        self._settings, self._session = settings, session
        self._range = settings.range or Range(0.0, 1.0)
        self._found: FloatArray | None = None
        self._begin = np.cumsum([0, *(len(part.labels) for part in parts)]).astype(np.int64)
        self._numbers = np.array([part.segment.number for part in parts])
        stored, name = int(features is None), f"the gallery, {len(parts)} segments"
        sides: list[Any] = [features, joined([part.array for part in parts], stored, name)]
        if queries is not None:  # their features, or their rows of distances
            sides[stored] = SelectedArray(sides[stored], queries)
        self.source = settings.source(*sides)
        gallery = Labels.join(
            [part.labels for part in parts], parts[0].labels.source if len(parts) == 1 else name
        )
        self.pairs = find_pairs(labels.take(self.queries), gallery, settings.protocol)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.queries) * int(self._begin[-1])

    def find_positives(self, serial: int) -> Positives:
        """Find the distances of the positive pairs, whose serials begin with `serial`."""
        with self._explain_errors():
            job = find_positives(self._job(0, 0), self._session)
        found, self._found = job.only.known_positives(), job.only.found
        number = np.searchsorted(self._begin, found.item, side="right") - 1
        index = found.item - self._begin[number]
        for at, part in enumerate(self.parts):
            index[number == at] = part.index(index[number == at])
        query = np.repeat(self.queries, np.diff(found.indptr))
        serials = np.arange(serial, serial + len(query))
        return Positives(serials, query, self._numbers[number], index, found.distance)

    def count(
        self, positives: Positives, near: int = 0, reach: FloatArray | None = None
    ) -> tuple[list[RankStatistics], Nearest]:
        """Count every pair, each part apart, with all of the positives to be ranked.

        Returns the statistics of each part; and where so many nearest negatives of each query are
        looked for, within a reach [q], these [q, near] beside the number of a part's segment.
        """
        with self._explain_errors():
            job = self._counting(positives, near)
            if near:
                reach = np.full(len(self.queries), np.inf) if reach is None else reach
                job = job.counting(replace(job.only, near=Near(near, reach)))
            counted = count_stretches(job, self._begin[1:].tolist(), self._session)
        nearest = [
            (number, shard.nearest_negatives)
            for number, shard in zip(self._numbers.tolist(), counted, strict=True)
            if shard.nearest_negatives is not None
        ]
        bare = [replace(shard, positive_item=None, nearest_negatives=None) for shard in counted]
        return bare, nearest

    def ahead(self, positives: Positives) -> IntArray:
        """Count negatives closer than positives behind all parts, and as far, [parts, 2, P]."""
        with self._explain_errors():
            job = self._counting(positives, 0)
            return rank_stretches(job, self._begin[1:].tolist(), self._session)

    def _counting(self, positives: Positives, near: int) -> Job:
        """Return the job that counts what is ahead of positives."""
        number = np.searchsorted(self._numbers, positives.segment)
        item = self._begin[number]
        for at, part in enumerate(self.parts):
            inside = positives.segment == self._numbers[at]
            item[inside] += part.place(positives.index[inside])
        given = KnownPositives(positives.indptr(self.queries), positives.distance, item)
        job = self._job(len(positives), near)
        job = job.counting(replace(job.only, positives=given, found=self._found))
        self._session.progress.begin(self.size, job.plan.bytes_read)
        return job

    def _job(self, positives: int, near: int) -> Job:
        settings, source = self._settings, self.source
        problem = source.problem(self.pairs.counts)
        sizes = problem.pairs
        sizes = replace(
            sizes, positives=sizes.positives + positives, listed=sizes.listed + positives
        )
        problem = replace(
            problem,
            pairs=sizes,
            thresholds=settings.thresholds,
            edges=settings.edges,
            near=near,
        )
        plan = source.plan(problem, self._session.limits(source))
        if plan.layout == "strips":  # these would take their positives from themselves
            plan = replace(plan, layout="rectangles")
        thresholds = Thresholds(self._range, *settings.limits)
        return Job(source, plan, (Share(self.pairs, thresholds),))

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Raise errors that name the pair outside the range, or the first row that is wrong."""
        low, high = self._range.low, self._range.high
        try:
            yield
        except RangeError as error:
            at = int(np.searchsorted(self._begin, error.item, side="right")) - 1
            part = self.parts[at]
            item = int(part.index(np.array([error.item - self._begin[at]]))[0])
            raise InputError(
                f"the distance of query {int(self.queries[error.query])} to item {item} of segment "
                f"{part.segment.name!r} is {error.value!r}, outside the range [{low!r}, {high!r}] "
                "that the ledger was created with; nothing has been changed: correct the data, or "
                "create a ledger with a wider --range"
            ) from error
        except NotUnitError as error:
            raise InputError(
                f"the range [{low!r}, {high!r}] is that of vectors of length 1, and there are "
                "others; nothing has been changed: scale them to length 1, or create a ledger with "
                "--range LO,HI"
            ) from error
        except BadRowError as error:  # a pass may meet a later one first
            self.source.first_bad_row(error.row)
            raise
