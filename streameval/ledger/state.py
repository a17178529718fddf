"""What a ledger knows: counts that every segment can be taken out of.

Totals alone would do for adding. To subtract exactly, without reading what is to go, each
change keeps what it added, by segment: see `Record`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.ledger.head import Head, Record, Settings
from streameval.statistics import FloatArray, IntArray, RankStatistics


@dataclass(frozen=True, eq=False)
class Positives:
    """Every positive pair, by query, then distance, then place in the gallery.

    Attributes
    ----------
    serial : [P] int64
        What a positive is known by in records: never given twice.
    query, segment, index : [P] int64
        Number of the segment, and the item's index in it, forgotten ones counted.
    distance : [P] float64
    closer, tied, before : [P] int64
        As in `RankStatistics`; ``before`` is `tied_before`.
    """

    serial: IntArray
    query: IntArray
    segment: IntArray
    index: IntArray
    distance: FloatArray
    closer: IntArray
    tied: IntArray
    before: IntArray

    @classmethod
    def none(cls) -> Positives:
        """Return no positives."""
        return cls(*(np.empty(0, _dtype(one.name)) for one in fields(cls)))

    @classmethod
    def new(
        cls,
        serial: int,
        query: IntArray,
        segment: IntArray,
        index: IntArray,
        distance: FloatArray,
    ) -> Positives:
        """Return positives of which nothing is counted yet; `serial` is that of the first."""
        count, zero = len(query), np.zeros(len(query), np.int64)
        given = np.arange(serial, serial + count)
        return cls(given, query, segment, index, distance, zero, zero.copy(), zero.copy())

    def __len__(self) -> int:
        return len(self.serial)

    def take(self, chosen: npt.NDArray[Any]) -> Positives:
        """Return those of some indices, or where a mask holds."""
        return Positives(*(getattr(self, one.name)[chosen] for one in fields(self)))

    def with_more(self, more: Positives) -> Positives:
        """Return these and others, in order."""
        both = Positives(
            *(np.concatenate([getattr(self, f.name), getattr(more, f.name)]) for f in fields(self))
        )
        return both.take(np.lexsort((both.index, both.segment, both.distance, both.query)))

    def indptr(self, queries: IntArray) -> IntArray:
        """Return where each of some queries, ascending, begins; all positives are of these."""
        begin = np.searchsorted(self.query, queries)
        return np.append(begin, len(self)).astype(np.int64)


def _dtype(column: str) -> str:
    return "float64" if column == "distance" else "int64"


@dataclass(frozen=True, eq=False)
class Near:
    """The nearest negatives of each query: all that are nearer than its reach.

    Attributes
    ----------
    distance : [Q, M] float64
        Ascending; +inf behind the last.
    segment : [Q, M] int32
        Number of the segment; −1 behind the last.
    reach : [Q] float64
        +inf where these are all negatives there are; −inf where none are kept.
    """

    distance: FloatArray
    segment: npt.NDArray[np.int32]
    reach: FloatArray

    @classmethod
    def none(cls, queries: int, most: int) -> Near:
        """Return what is known of an empty gallery."""
        shape = queries, most
        return cls(np.full(shape, np.inf), np.full(shape, -1, np.int32), np.full(queries, np.inf))

    def with_more(self, found: Sequence[tuple[int, FloatArray]], most: int) -> Near:
        """Return these and those of further segments, at most so many of each query.

        Parameters
        ----------
        found : sequence of (int, [Q, m] float64)
            A segment, and its nearest negatives: all that are within the reach, or m of them;
            −inf where float32 can't tell them apart.
        most : int
        """
        several, owners = [self.distance], [self.segment]
        for number, values in found:
            some = values[:, : int(np.isfinite(values).sum(axis=1).max(initial=0)) + 1]
            several.append(some)
            owners.append(np.full(some.shape, number, np.int32))
        distance, segment = np.concatenate(several, axis=1), np.concatenate(owners, axis=1)
        reach = np.where((distance == -np.inf).any(axis=1), -np.inf, self.reach)
        distance = np.where(distance < reach[:, None], distance, np.inf)
        order = np.argsort(distance, axis=1, kind="stable")[:, : most + 1]
        distance = np.take_along_axis(distance, order, axis=1)
        segment = np.take_along_axis(segment, order, axis=1)
        for _, values in found:  # m of a segment, and there may be more of it
            reach = np.minimum(reach, values[:, -1])
        if distance.shape[1] > most:
            reach = np.minimum(reach, distance[:, most])
        return Near(distance, segment, reach)._kept(most)

    def _kept(self, most: int) -> Near:
        """Return what is nearer than the reach, `most` columns wide."""
        inside = self.distance < self.reach[:, None]
        width = max(most - self.distance.shape[1], 0)
        distance = np.pad(
            np.where(inside, self.distance, np.inf), ((0, 0), (0, width)), constant_values=np.inf
        )
        segment = np.pad(
            np.where(inside, self.segment, -1), ((0, 0), (0, width)), constant_values=-1
        )
        return Near(distance[:, :most], segment[:, :most].astype(np.int32), self.reach)

    def without(self, gone: npt.NDArray[np.bool_]) -> Near:
        """Return what is left where some [Q, M] are gone."""
        distance = np.where(gone, np.inf, self.distance)
        order = np.argsort(distance, axis=1, kind="stable")
        segment = np.take_along_axis(np.where(gone, -1, self.segment), order, axis=1)
        return Near(np.take_along_axis(distance, order, axis=1), segment, self.reach)

    def stacked(self, other: Near, most: int) -> Near:
        """Return these and those of further queries, at most so many of each."""
        one, two = self.with_more([], most), other.with_more([], most)
        return Near(
            np.concatenate([one.distance, two.distance]),
            np.concatenate([one.segment, two.segment]),
            np.concatenate([one.reach, two.reach]),
        )

    def few(self) -> npt.NDArray[np.bool_]:
        """Tell of which queries, for what has gone since, less than half is left, [Q]."""
        left = np.isfinite(self.distance).sum(axis=1)
        few: npt.NDArray[np.bool_] = 2 * left < self.distance.shape[1]
        return few & (self.reach < np.inf)

    def put(self, queries: IntArray, other: Near) -> Near:
        """Return these, of some queries those of another, of the same width."""
        arrays = []
        for name in ("distance", "segment", "reach"):
            values = getattr(self, name).copy()
            values[queries] = getattr(other, name)
            arrays.append(values)
        return Near(*arrays)


@dataclass(frozen=True, eq=False)
class Totals:
    """The sums over all segments.

    Attributes
    ----------
    per_query : [Q, 3] int64
        valid, ignored, same_identity.
    within : [Q, T] int64
    nearest : [Q] float64
    histogram : [E + 1] int64
        Empty where there is none.
    """

    per_query: IntArray
    within: IntArray
    nearest: FloatArray
    histogram: IntArray

    @classmethod
    def none(cls, queries: int, settings: Settings) -> Totals:
        """Return the totals of an empty gallery."""
        return cls(
            np.zeros((queries, 3), np.int64),
            np.zeros((queries, settings.thresholds), np.int64),
            np.full(queries, np.inf),
            np.zeros(settings.edges + 1 if settings.edges else 0, np.int64),
        )

    @classmethod
    def of(cls, statistics: RankStatistics) -> Totals:
        """Return what was counted of one segment."""
        counts = (statistics.valid, statistics.ignored, statistics.same_identity)
        histogram = statistics.impostor_histogram
        return cls(
            np.stack(counts, axis=1),
            statistics.negatives_within,
            statistics.nearest_negative,
            np.zeros(0, np.int64) if histogram is None else histogram,
        )

    def plus(self, other: Totals) -> Totals:
        """Return the sum with those of another segment."""
        return Totals(
            self.per_query + other.per_query,
            self.within + other.within,
            np.minimum(self.nearest, other.nearest),
            self.histogram + other.histogram,
        )

    def minus(self, other: Totals, nearest: FloatArray) -> Totals:
        """Return the difference; a minimum can't be subtracted from, and is given."""
        return Totals(
            self.per_query - other.per_query,
            self.within - other.within,
            nearest,
            self.histogram - other.histogram,
        )

    def stacked(self, other: Totals) -> Totals:
        """Return the totals of these queries and of others."""
        return Totals(
            np.concatenate([self.per_query, other.per_query]),
            np.concatenate([self.within, other.within]),
            np.concatenate([self.nearest, other.nearest]),
            self.histogram + other.histogram,
        )


@dataclass(frozen=True, eq=False)
class State:
    """A ledger at one moment.

    Attributes
    ----------
    head : Head
    positives : Positives
    totals : Totals
    near : Near
    forgotten : [f] int64
        Items that have been forgotten, ascending, counted among all that ever came.
    """

    head: Head
    positives: Positives
    totals: Totals
    near: Near
    forgotten: IntArray

    @classmethod
    def empty(cls, head: Head) -> State:
        """Return the state of a ledger without segments."""
        queries, settings = head.queries, head.settings
        return cls(
            head,
            Positives.none(),
            Totals.none(queries, settings),
            Near.none(queries, settings.near(queries)),
            np.empty(0, np.int64),
        )

    def with_entry(self, entry: Mapping[str, Any]) -> State:
        """Return the state with a further entry of its trajectory."""
        return replace(self, head=self.head.with_entry(entry))


RecordArrays = Mapping[str, npt.NDArray[Any]]


def record_arrays(cells: Sequence[IntArray], parts: Sequence[Totals]) -> dict[str, Any]:
    """Return the arrays of a record.

    Parameters
    ----------
    cells : sequence of [4, c] int64
    parts : sequence of Totals
        Of each segment.
    """
    stacked = {
        one.name: np.stack([getattr(part, one.name) for part in parts]) for one in fields(Totals)
    }
    return {"cells": np.concatenate([np.empty((4, 0), np.int64), *cells], axis=1), **stacked}


def cells_of(
    serial: IntArray, segment: int | IntArray, closer: IntArray, tied: IntArray
) -> IntArray:
    """Return the cells of positives of which anything is counted, [4, c] int64."""
    owner = np.broadcast_to(np.asarray(segment, np.int64), serial.shape)
    every = np.stack([serial, owner, closer, tied]).astype(np.int64)
    return every[:, (closer != 0) | (tied != 0)]


@dataclass
class Taken:
    """What all records together say that one segment has added.

    Attributes
    ----------
    totals : Totals
        ``nearest`` is that of the segment.
    cells : list of [4, c] int64
        Of the segment alone.
    """

    totals: Totals
    cells: list[IntArray] = field(default_factory=list)

    def add(self, record: Record, arrays: RecordArrays, segment: int) -> None:
        """Add what a record of the segment says."""
        self.add_cells(arrays["cells"], segment)
        row, own = record.segments.index(segment), slice(record.start, record.stop)
        self.totals.per_query[own] += arrays["per_query"][row]
        self.totals.within[own] += arrays["within"][row]
        self.totals.histogram[...] += arrays["histogram"][row]
        newer = arrays["nearest"][row]
        self.totals.nearest[own] = np.where(np.isnan(newer), self.totals.nearest[own], newer)

    def add_cells(self, cells: IntArray, segment: int) -> None:
        """Add the cells of the segment among those of a record."""
        self.cells.append(cells[:, cells[1] == segment])

    def of_positives(self, serial: IntArray) -> tuple[IntArray, IntArray]:
        """Return closer and tied of positives by their serials, each [P] int64."""
        cells = np.concatenate([np.empty((4, 0), np.int64), *self.cells], axis=1)
        order = np.argsort(serial)
        at = np.minimum(np.searchsorted(serial[order], cells[0]), max(len(serial) - 1, 0))
        known = serial[order][at] == cells[0] if len(serial) else np.zeros(cells.shape[1], np.bool_)
        place = order[at[known]] if len(serial) else np.empty(0, np.int64)
        closer, tied = np.zeros(len(serial), np.int64), np.zeros(len(serial), np.int64)
        np.add.at(closer, place, cells[2, known])
        np.add.at(tied, place, cells[3, known])
        return closer, tied
