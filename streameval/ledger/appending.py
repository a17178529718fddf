"""A segment on its way into a ledger: a forecast, then the counts.

Old positives are counted against the new segment, together with its own. Old negatives ahead of
a new positive are looked up among the nearest ones that are kept of its query, where it is within
their reach; the queries of the others count all old segments again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import SelectedArray
from streameval.arrays.fingerprint import content
from streameval.errors import InputError
from streameval.ledger.counting import Block, Part
from streameval.ledger.forecast import Forecast
from streameval.ledger.head import Head, Place, Record, Segment
from streameval.ledger.labels import label_arrays
from streameval.ledger.sources import Gallery, check_same, open_matrix, place_of
from streameval.ledger.state import Near, Positives, State, Totals, cells_of, record_arrays
from streameval.ledger.store import Change
from streameval.protocols.protocol import Labels
from streameval.run.session import Session
from streameval.sources.sources import Distances, Features
from streameval.statistics import FloatArray, IntArray, RankStatistics


class Appending:
    """A segment on its way into a ledger.

    Parameters
    ----------
    state : State
    source : Gallery
        Of the ledger.
    gallery : str or Path
        URI of the segment's features or distances.
    labels : Labels
        Of its items.
    name : str or None
        By default the key of the array, where it has one, else the name of the file.
    session : Session

    Attributes
    ----------
    name : str
    forecast : Forecast

    Raises
    ------
    InputError
        If the segment doesn't fit, or is there already.
    """

    def __init__(
        self,
        state: State,
        source: Gallery,
        gallery: str | Path,
        labels: Labels,
        name: str | None,
        session: Session,
    ) -> None:
        head = state.head
        self._state, self._source, self._means = state, source, session
        self.queries = source.queries()
        self._features = source.features()
        array = open_matrix(gallery, "gallery")
        _check_fits(array, labels, head, self._features)
        self.name = _default_name(gallery) if name is None else str(name)
        place = replace(place_of(array), stop=head.queries)
        _check_new(head, self.name, place, array)
        self._array, self._place = array, place
        self._columns = label_arrays(labels)
        columns = tuple(self._columns)
        self._segment = Segment(
            head.next_segment, self.name, len(labels), 0, head.rows, columns, (place,)
        )
        self._block: Block | None = None
        self._new = Positives.none()
        if len(labels):
            parts = [Part(self._segment, labels, array)]
            self._block = Block(head.settings, self.queries, self._features, parts, session)
            self._new = self._block.find_positives(head.next_serial)
        beyond = self._new.distance >= state.near.reach[self._new.query]
        self._hard = np.unique(self._new.query[beyond])
        self._spent = self._hard[state.near.few()[self._hard]]
        old = head.gallery if len(self._hard) else 0
        self.forecast = Forecast(
            0 if self._block is None else self._block.size,
            len(self._hard) * old,
            len(self._hard),
            head.queries * (head.gallery + len(labels)),
            items=len(labels),
            old=old,
            searched=len(self._spent) * old,
            features=head.settings.metric is not None,
        )

    def run(self, change: Change) -> State:
        """Count; return the state with the segment.

        Raises
        ------
        InputError
            If data can't be read, or have changed in the meantime; or a distance lies outside the
            range.
        """
        state, head, segment = self._state, self._state.head, self._segment
        number, most = segment.number, head.settings.near(head.queries)
        positives, totals, near = state.positives.with_more(self._new), state.totals, state.near
        own = Totals.none(head.queries, head.settings)
        cells: list[IntArray] = []
        further: list[tuple[int, FloatArray]] = []
        if self._block is not None:
            reach = near.reach.copy()
            reach[self._spent] = np.inf
            counted = self._block.count(positives, most, reach)[0]
            own = Totals.of(counted)
            totals = totals.plus(own)
            positives = plus_counted(positives, counted)
            cells.append(cells_of(positives.serial, number, counted.closer, counted.tied))
            further = near_of(number, counted)
        positives, looked_up = self._look_up(positives)
        cells.extend(looked_up)
        if len(self._hard):
            positives, rescanned, found = self._rescan(positives)
            cells.extend(rescanned)
            fresh = Near.none(len(self._spent), most).with_more(found, most)
            near = near.put(self._spent, fresh)
        check_same(self._array, self._place)
        record = Record(len(head.happened), (number,), 0, head.queries)
        change.append(segment.begin, segment.size, self._columns)
        change.write_record(record.number, record_arrays(cells, [own]))
        after = replace(
            head,
            segments=(*head.segments, segment),
            records=(*head.records, record),
            next_segment=number + 1,
            rows=head.rows + segment.size,
            next_serial=head.next_serial + len(self._new),
        )
        near = near.with_more(further, most)
        return State(after, positives, totals, near, state.forgotten)

    def _look_up(self, positives: Positives) -> tuple[Positives, list[IntArray]]:
        """Count the old negatives ahead of new positives that are within reach."""
        near = self._state.near
        own = positives.segment == self._segment.number
        easy = np.flatnonzero(own & ~np.isin(positives.query, self._hard))
        away, query = positives.distance[easy][:, None], positives.query[easy]
        known, owner = near.distance[query], near.segment[query]
        nearer, equal = known < away, known == away
        columns = {name: getattr(positives, name).copy() for name in _COUNTED}
        columns["closer"][easy] += nearer.sum(axis=1)
        columns["tied"][easy] += equal.sum(axis=1)
        columns["before"][easy] += equal.sum(axis=1)  # all that is old comes before what is new
        row, column = np.nonzero(nearer | equal)
        pairs = np.stack([row, owner[row, column]])
        found, place = np.unique(pairs, axis=1, return_inverse=True)
        counts = [
            np.bincount(place.reshape(-1), which[row, column], found.shape[1]).astype(np.int64)
            for which in (nearer, equal)
        ]
        cells = [cells_of(positives.serial[easy][found[0]], found[1], *counts)]
        return replace(positives, **columns), cells

    def _rescan(
        self, positives: Positives
    ) -> tuple[Positives, list[IntArray], list[tuple[int, FloatArray]]]:
        """Count all old segments for the queries with new positives beyond their reach.

        The nearest negatives are looked for again of those that have few left.
        """
        head, parts = self._state.head, self._source.parts()
        if not parts:
            return positives, [], []
        own = positives.segment == self._segment.number
        columns = {name: getattr(positives, name).copy() for name in _COUNTED}
        cells: list[IntArray] = []
        found: list[tuple[int, FloatArray]] = []
        for queries in (np.setdiff1d(self._hard, self._spent), self._spent):
            if not len(queries):
                continue
            at = np.flatnonzero(own & np.isin(positives.query, queries))
            some, ranks = positives.take(at), head.settings.ranks_alone()
            block = Block(ranks, self.queries, self._features, parts, self._means, queries)
            if queries is self._spent:
                most = head.settings.near(head.queries)
                statistics = block.count(some, most, np.full(len(queries), np.inf))
                ahead = np.stack([[one.closer, one.tied] for one in statistics])
                for part, one in zip(parts, statistics, strict=True):
                    found += near_of(part.segment.number, one)
            else:
                ahead = block.ahead(some)
            numbers = np.array([part.segment.number for part in parts])
            every = np.broadcast_to(some.serial, (len(parts), len(some)))
            owner = np.broadcast_to(numbers[:, None], every.shape)
            cells.append(cells_of(every, owner, ahead[:, 0], ahead[:, 1]))
            closer, tied = ahead.sum(axis=0)
            columns["closer"][at] += closer
            columns["tied"][at] += tied
            columns["before"][at] += tied  # all that is old comes before what is new
        return replace(positives, **columns), cells, found


_COUNTED = ("closer", "tied", "before")


def plus_counted(positives: Positives, counted: RankStatistics) -> Positives:
    """Return the positives with what was counted of one more segment."""
    return replace(
        positives,
        closer=positives.closer + counted.closer,
        tied=positives.tied + counted.tied,
        before=positives.before + counted.tied_before,
    )


def near_of(segment: int, counted: RankStatistics) -> list[tuple[int, FloatArray]]:
    """Return the nearest negatives that were found in a segment, as `Near.with_more` takes them."""
    found = counted.nearest_negatives
    return [] if found is None else [(segment, found)]


def _default_name(gallery: str | Path) -> str:
    _, separator, key = str(gallery).rpartition("::")
    return key if separator else Path(str(gallery)).stem


def _check_fits(array: Array, labels: Labels, head: Head, features: Array | None) -> None:
    if head.settings.metric is not None and features is not None:
        Features(features, array, head.settings.metric)
        if array.shape[0] != len(labels):
            raise InputError(
                f"gallery features {array.uri} have {array.shape[0]} rows, and {labels.source} "
                f"{len(labels)} ids: one id a gallery item is needed"
            )
        return
    Distances(array)
    if array.shape != (head.queries, len(labels)):
        raise InputError(
            f"distances {array.uri} are {array.shape[0]} × {array.shape[1]}, and there are "
            f"{head.queries} queries in the ledger and {len(labels)} ids in {labels.source}: a row "
            "a query and a column an item are needed"
        )


def _check_new(head: Head, name: str, place: Place, array: Array) -> None:
    """Refuse a segment that is there already, or that has no name.

    Of stored distances, those from the queries that there were when the other came are compared.
    """
    if not name:
        raise InputError(
            "the name of the segment is empty: give one (--name NAME), or leave it out, and it has "
            "that of its file"
        )
    known = {array.shape[0]: place.content}
    for segment in head.segments:
        first = segment.places[0]
        rows = array.shape[0] if head.settings.metric is not None else first.stop
        if rows not in known:
            known[rows] = content(SelectedArray(array, np.arange(rows)))
        if segment.size and known[rows] == first.content:
            raise InputError(
                f"{place.uri} holds the same data as segment {segment.name!r} "
                f"({first.uri}): nothing has been changed; each item counts once"
            )
        if segment.name == name:
            raise InputError(
                f"there is a segment {name!r} already ({first.uri}): nothing has been changed; "
                "give another name (--name)"
            )
