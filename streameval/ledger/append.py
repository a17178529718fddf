"""Appending a segment to a ledger: the forecast of a new segment, then its counts.

Old positives are counted against the new segment, together with its own. Old negatives ahead of
a new positive are looked up among the nearest ones that are kept of its query, where it is within
their reach; for the queries of the others, all old segments are counted again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import SelectedArray
from streameval.arrays.fingerprint import content
from streameval.errors import InputError
from streameval.ledger.block import Block, Part
from streameval.ledger.gallery import Gallery, check_same, open_matrix, place_of
from streameval.ledger.head import Head, Place, Record, Segment
from streameval.ledger.history import cells_of, join_cells, record_of, sum_cells
from streameval.ledger.state import Near, Positives, State, add_positives, no_statistics
from streameval.ledger.store import Contents, label_arrays
from streameval.ledger.trajectory import Forecast
from streameval.protocols.labels import KNOWN_COLUMNS, Labels
from streameval.run.session import Session
from streameval.statistics import FloatArray, IntArray


class NewSegment:
    """A segment that is to be appended to a ledger.

    Parameters
    ----------
    state : State
    gallery : Gallery
        Of the ledger.
    uri : str or Path
        Of the segment's features or distances.
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
        gallery: Gallery,
        uri: str | Path,
        labels: Labels,
        name: str | None,
        session: Session,
    ) -> None:
        head = state.head
        self._state, self._gallery, self._session = state, gallery, session
        self._queries, self._features = gallery.queries, gallery.features()
        array = open_matrix(uri, "gallery")
        head.settings.source(self._features, array).check_rows(self._queries, labels)
        self.name = _default_name(uri) if name is None else str(name)
        place = replace(place_of(array), stop=head.queries)
        _check_new(head, self.name, place, array)
        self._array, self._place = array, place
        kept = labels.select((*KNOWN_COLUMNS, *head.settings.protocol.columns))
        self._columns = label_arrays(kept)
        columns = tuple(kept.columns)
        self._segment = Segment(
            head.next_segment, self.name, len(labels), 0, head.rows, columns, (place,)
        )
        self._block: Block | None = None
        self._new = Positives.none()
        if len(labels):
            parts = [Part(self._segment, labels, array)]
            self._block = Block(head.settings, self._queries, self._features, parts, session)
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

    def append(self, change: Contents) -> State:
        """Count the segment; return the state with it.

        Raises
        ------
        InputError
            If data can't be read, or have changed in the meantime; or a distance lies outside the
            range.
        """
        state, head, number = self._state, self._state.head, self._segment.number
        most = head.settings.near(head.queries)
        positives, order = state.positives.join(self._new)
        statistics, near = add_positives(state.statistics, positives, order), state.near
        added = no_statistics(head.queries, head.settings)
        cells: list[IntArray] = []
        further: list[tuple[int, FloatArray]] = []
        if self._block is not None:
            reach = near.reach.copy()
            reach[self._spent] = np.inf
            (added,), further = self._block.count(positives, most, reach)
            statistics = statistics.merge(added)
            cells.append(cells_of(positives.serial, number, added.closer, added.tied))
        old = [self._look_up()]
        if len(self._hard):
            recounted, nearest = self._rescan()
            old += recounted
            near = near.put(self._spent, Near.none(len(self._spent), most).merge(nearest, most))
        closer, tied = sum_cells(join_cells(old), positives)
        statistics = replace(
            statistics,
            closer=statistics.closer + closer,
            tied=statistics.tied + tied,
            tied_before=statistics.tied_before + tied,  # all that is old comes before what is new
        )
        check_same(self._array, self._place)
        record = Record(len(head.happened), (number,), 0, head.queries)
        change.append_labels(self._segment.begin, self._segment.size, self._columns)
        change.write_record(record.number, record_of(cells + old, [added]))
        after = replace(
            head,
            segments=(*head.segments, self._segment),
            records=(*head.records, record),
            next_segment=number + 1,
            rows=head.rows + self._segment.size,
            next_serial=head.next_serial + len(self._new),
        )
        return State(after, positives, statistics, near.merge(further, most), state.forgotten)

    def _look_up(self) -> IntArray:
        """Return the cells of old negatives ahead of new positives that are within reach."""
        near = self._state.near
        easy = self._new.take(~np.isin(self._new.query, self._hard))
        known, owner = near.distance[easy.query], near.segment[easy.query]
        nearer = known < easy.distance[:, None]
        equal = known == easy.distance[:, None]
        row, column = np.nonzero(nearer | equal)
        pairs, place = np.unique(np.stack([row, owner[row, column]]), axis=1, return_inverse=True)
        counts = [
            np.bincount(place.reshape(-1), which[row, column], pairs.shape[1]).astype(np.int64)
            for which in (nearer, equal)
        ]
        return cells_of(easy.serial[pairs[0]], pairs[1], *counts)

    def _rescan(self) -> tuple[list[IntArray], list[tuple[int, FloatArray]]]:
        """Count all old segments for the queries with new positives beyond their reach.

        Returns
        -------
        list of [4, c] int64
            Cells of old negatives ahead of these positives.
        list of (int, [q, m] float64)
            By segment, the nearest negatives of the queries that have few left.
        """
        head, parts = self._state.head, self._gallery.parts()
        cells: list[IntArray] = []
        nearest: list[tuple[int, FloatArray]] = []
        numbers = np.array([part.segment.number for part in parts])
        for queries in (np.setdiff1d(self._hard, self._spent), self._spent):
            if not len(queries) or not parts:
                continue
            beyond = self._new.take(np.isin(self._new.query, queries))
            ranks = head.settings.ranks_alone()
            block = Block(ranks, self._queries, self._features, parts, self._session, queries)
            if queries is self._spent:
                most, reach = head.settings.near(head.queries), np.full(len(queries), np.inf)
                counted, nearest = block.count(beyond, most, reach)
                ahead = np.stack([[shard.closer, shard.tied] for shard in counted])
            else:
                ahead = block.ahead(beyond)
            every = np.broadcast_to(beyond.serial, (len(parts), len(beyond)))
            owner = np.broadcast_to(numbers[:, None], every.shape)
            cells.append(cells_of(every, owner, ahead[:, 0], ahead[:, 1]))
        return cells, nearest


def _default_name(gallery: str | Path) -> str:
    _, separator, key = str(gallery).rpartition("::")
    return key if separator else Path(str(gallery)).stem


def _check_new(head: Head, name: str, place: Place, array: Array) -> None:
    """Raise InputError if the segment is in the ledger, or its name is taken or empty.

    Stored distances are compared for the queries that both segments have.
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
