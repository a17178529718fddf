"""The segments of a ledger: appended, removed, and without forgotten identities.

Old positives are counted against a new segment, together with its own. Old negatives ahead of a
new positive are looked up among the nearest ones that are kept of its query, where it is within
their reach; for the queries of the others, all old segments are counted again. What a segment, or
some items of it, have added is subtracted when they go.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.arrays.composed import SelectedArray
from streameval.arrays.fingerprint import content
from streameval.errors import InputError, StreamevalWarning
from streameval.ledger.block import Part
from streameval.ledger.gallery import Gallery, check_same, open_matrix, place_of
from streameval.ledger.head import Head, Segment
from streameval.ledger.state import (
    Near,
    Positives,
    State,
    add_positives,
    arrays_of,
    cells_of,
    join_cells,
    no_statistics,
)
from streameval.ledger.trajectory import NOTHING, Forecast
from streameval.protocols.labels import KNOWN_COLUMNS, Labels
from streameval.statistics import FloatArray, IntArray, RankStatistics
from streameval.store import Arrays


class NewSegment:
    """A segment that is to be appended to a ledger.

    Parameters
    ----------
    gallery : Gallery
        Of the ledger.
    uri : str or Path
        Of the segment's features or distances.
    labels : Labels
        Of its items.
    name : str or None
        By default the key of the array, where it has one, else the name of the file.

    Attributes
    ----------
    forecast : Forecast

    Raises
    ------
    InputError
        If the segment doesn't fit, or is there already.
    """

    def __init__(self, gallery: Gallery, uri: str | Path, labels: Labels, name: str | None) -> None:
        state, head = gallery.state, gallery.state.head
        array = open_matrix(uri, "gallery")
        head.settings.source(gallery.features(), array).check_rows(gallery.queries, labels)
        self._gallery, self._array, self._new = gallery, array, Positives.none()
        self._labels = labels.select((*KNOWN_COLUMNS, *head.settings.protocol.columns))
        self._segment = segment = Segment(
            head.next_segment,
            _default_name(uri) if name is None else str(name),
            len(labels),
            0,
            head.rows,
            tuple(self._labels.columns),
            (replace(place_of(array), stop=head.queries),),
        )
        _check_new(head, segment, array)
        self._block = None
        if len(labels):
            self._block = gallery.block([Part(segment, labels, array)])
            self._new = self._block.find_positives(head.next_serial)
        beyond = self._new.distance >= state.near.reach[self._new.query]
        self._hard = np.unique(self._new.query[beyond])
        self._spent = self._hard[state.near.few()[self._hard]]
        old = head.gallery if len(self._hard) else 0
        self.forecast = Forecast(
            self._block.size if self._block else 0,
            len(self._hard) * old,
            len(self._hard),
            head.queries * (head.gallery + len(labels)),
            items=len(labels),
            old=old,
            searched=len(self._spent) * old,
            features=head.settings.metric is not None,
        )

    def append(self) -> tuple[State, str, Forecast]:
        """Count the segment; return the state with it, its name and what was counted.

        Raises
        ------
        InputError
            If data can't be read, or have changed in the meantime; or a distance lies outside the
            range.
        """
        gallery, state, segment = self._gallery, self._gallery.state, self._segment
        head, near = state.head, state.near
        most = head.settings.near(head.queries)
        positives, order = state.positives.join(self._new)
        statistics = add_positives(state.statistics, positives, order)
        added = no_statistics(head.queries, head.settings)
        cells: list[IntArray] = []
        further: list[tuple[int, FloatArray]] = []
        if self._block is not None:
            reach = near.reach.copy()
            reach[self._spent] = np.inf
            (added,), further = self._block.count(positives, most, reach)
            statistics = statistics.merge(added)
            cells.append(cells_of(positives.serial, segment.number, added.closer, added.tied))
        old = [self._look_up()]
        if len(self._hard):
            recounted, nearest = self._rescan(most)
            old += recounted
            near = near.put(self._spent, Near.none(len(self._spent), most).merge(nearest, most))
        closer, tied = positives.sum_cells(join_cells(old))
        statistics = replace(
            statistics,
            closer=statistics.closer + closer,
            tied=statistics.tied + tied,
            tied_before=statistics.tied_before + tied,  # all that is old comes before what is new
        )
        check_same(self._array, segment.places[0].uri, segment.places[0].files)
        gallery.contents.append_labels(segment.begin, self._labels)
        head = gallery.contents.write_record(
            head, [segment.number], cells + old, [arrays_of(added)]
        )
        head = replace(
            head,
            segments=(*head.segments, segment),
            next_segment=segment.number + 1,
            rows=segment.end,
            next_serial=head.next_serial + len(self._new),
        )
        after = State(head, positives, statistics, near.merge(further, most), state.forgotten)
        return after, segment.name, self.forecast

    def _look_up(self) -> IntArray:
        """Return the cells of old negatives ahead of new positives that are within reach."""
        near = self._gallery.state.near
        easy = self._new.take(~np.isin(self._new.query, self._hard))
        known, owner = near.distance[easy.query], near.segment[easy.query]
        nearer, equal = known < easy.distance[:, None], known == easy.distance[:, None]
        row, column = np.nonzero(nearer | equal)
        pairs, place = np.unique(np.stack([row, owner[row, column]]), axis=1, return_inverse=True)
        counts = [
            np.bincount(place.reshape(-1), which[row, column], pairs.shape[1]).astype(np.int64)
            for which in (nearer, equal)
        ]
        return cells_of(easy.serial[pairs[0]], pairs[1], *counts)

    def _rescan(self, most: int) -> tuple[list[IntArray], list[tuple[int, FloatArray]]]:
        """Count all old segments for the queries with new positives beyond their reach.

        Returns
        -------
        list of [4, c] int64
            Cells of old negatives ahead of these positives.
        list of (int, [q, m] float64)
            By segment, the nearest negatives of the queries that have few left.
        """
        parts = self._gallery.parts()
        cells: list[IntArray] = []
        nearest: list[tuple[int, FloatArray]] = []
        numbers = np.array([[part.segment.number] for part in parts])
        for queries in (np.setdiff1d(self._hard, self._spent), self._spent):
            if not len(queries) or not parts:
                continue
            beyond = self._new.take(np.isin(self._new.query, queries))
            block = self._gallery.block(parts, queries, ranks=True)
            if queries is self._spent:
                counted, nearest = block.count(beyond, most)
                ahead = np.stack([[shard.closer, shard.tied] for shard in counted])
            else:
                ahead = block.ahead(beyond)
            cells.append(cells_of(beyond.serial, numbers, ahead[:, 0], ahead[:, 1]))
        return cells, nearest


def _default_name(gallery: str | Path) -> str:
    _, separator, key = str(gallery).rpartition("::")
    return key if separator else Path(str(gallery)).stem


def _check_new(head: Head, new: Segment, array: Array) -> None:
    """Raise InputError if the segment is in the ledger, or its name is taken or empty.

    Stored distances are compared for the queries that both segments have.
    """
    if not new.name:
        raise InputError(
            "the name of the segment is empty: give one (--name NAME), or leave it out, and it has "
            "that of its file"
        )
    known = {array.shape[0]: new.places[0].content}
    for segment in head.segments:
        first = segment.places[0]
        rows = array.shape[0] if head.settings.metric is not None else first.stop
        if rows not in known:
            known[rows] = content(SelectedArray(array, np.arange(rows)))
        if segment.size and known[rows] == first.content:
            raise InputError(
                f"{array.uri} holds the same data as segment {segment.name!r} "
                f"({first.uri}): nothing has been changed; each item counts once"
            )
        if segment.name == new.name:
            raise InputError(
                f"there is a segment {new.name!r} already ({first.uri}): nothing has been changed; "
                "give another name (--name)"
            )


def remove_segment(gallery: Gallery, name: str) -> tuple[State, str, Forecast]:
    """Return the state without a segment; its data are not read."""
    state, head = gallery.state, gallery.state.head
    segment = head.find_segment(name)
    number, kept = segment.number, state.positives.segment != segment.number
    left = state.positives.take(kept)
    nearest, shares = gallery.contents.shares(head, left, [number])
    del nearest[number]
    remaining = {"nearest_negative": _least(nearest.values(), head.queries)}
    alone = next(record for record in head.records if number in record.segments)
    records = head.records
    if alone.segments == (number,) and alone.start == 0:  # what came with it goes with it
        gallery.contents.delete_record(alone.number)
        records = tuple(record for record in records if record is not alone)
    segments = tuple(other for other in head.segments if other is not segment)
    others = (state.forgotten < segment.begin) | (state.forgotten >= segment.end)
    after = State(
        replace(head, segments=segments, records=records),
        left,
        state.statistics.select_positives(kept).minus(shares[number], remaining),
        state.near.without(state.near.segment == number),
        state.forgotten[others],
    )
    return after, name, NOTHING


def forget_identities(gallery: Gallery, wanted: npt.NDArray[Any]) -> tuple[State, str, Forecast]:
    """Return the state without the items of some identities, their names, and what was counted.

    Raises
    ------
    InputError
        If none of them is in the gallery, or data that are to be read have changed, or are gone.
    """
    head, near = gallery.state.head, gallery.state.near
    rows = _rows_of(wanted, gallery)
    if not rows:
        raise InputError(
            f"none of the {len(wanted)} identities is in the gallery: nothing has been changed"
        )
    segments = {segment.number: segment for segment in head.segments}
    parts = [gallery.part(segments[number], items) for number, items in rows.items()]
    _warn_of_unknown(wanted, parts)
    known = gallery.state.positives
    kept = np.ones(len(known), np.bool_)
    for number, items in rows.items():
        kept &= (known.segment != number) | ~np.isin(known.index, items)
    left, statistics = known.take(kept), gallery.state.statistics.select_positives(kept)
    block = gallery.block(parts)
    counted, gone = block.count(left, near.distance.shape[1], near.reach.copy())
    for number, distances in gone:
        near = near.without_distances(number, distances)
    nearest, _ = gallery.contents.shares(head, left)
    cells: list[IntArray] = []
    added: list[Arrays] = []
    recounted = 0
    for (number, items), shard in zip(rows.items(), counted, strict=True):
        segments[number] = gallery.forget(segments[number], items)
        written = np.full(head.queries, np.nan)
        lost = np.flatnonzero(
            (shard.nearest_negative == nearest[number]) & (shard.nearest_negative < np.inf)
        )
        if len(lost):
            written[lost] = np.inf
            if segments[number].items:
                again = gallery.block([gallery.part(segments[number])], lost)
                written[lost] = again.count(Positives.none())[0][0].nearest_negative
                recounted += again.size
            nearest[number][lost] = written[lost]
        cells.append(cells_of(left.serial, number, -shard.closer, -shard.tied))
        taken = {name: -values for name, values in arrays_of(shard).items()}
        added.append(taken | {"nearest": written})
    remaining = {"nearest_negative": _least(nearest.values(), head.queries)}
    statistics = statistics.minus(reduce(RankStatistics.merge, counted), remaining)
    head = gallery.contents.write_record(head, rows, cells, added)
    head = replace(head, segments=tuple(segments.values()))
    after = State(head, left, statistics, near, gallery.state.forgotten)
    return after, _listed(wanted), Forecast(block.size, recounted, 0, 0)


def _least(nearest: Iterable[FloatArray], queries: int) -> FloatArray:
    """Return the nearest negative of each query over segments, [Q] float64."""
    return reduce(np.minimum, nearest, np.full(queries, np.inf))


def _rows_of(wanted: npt.NDArray[Any], gallery: Gallery) -> dict[int, IntArray]:
    """Return the items of some identities in each segment, without forgotten ones."""
    rows: dict[int, IntArray] = {}
    for segment in gallery.state.head.segments:
        if not segment.items:
            continue
        ids = gallery.labels(segment).id
        kinds = ["strings" if side.dtype.kind == "U" else "integers" for side in (wanted, ids)]
        if kinds[0] != kinds[1]:
            raise InputError(
                f"the identities to be forgotten are {kinds[0]}, those of segment "
                f"{segment.name!r} {kinds[1]}: give both as the same"
            )
        there = np.isin(ids, wanted)
        there[gallery.forgotten(segment)] = False
        if there.any():
            rows[segment.number] = np.flatnonzero(there)
    return rows


def _listed(identities: npt.NDArray[Any]) -> str:
    """Return the first three identities and the number of others, for messages."""
    named = ", ".join(map(str, identities[:3].tolist()))
    return named if len(identities) <= 3 else f"{named} and {len(identities) - 3} more"


def _warn_of_unknown(wanted: npt.NDArray[Any], parts: Sequence[Part]) -> None:
    unknown = np.setdiff1d(wanted, np.concatenate([part.labels.id for part in parts]))
    if len(unknown):
        warnings.warn(
            f"{len(unknown)} of the {len(np.unique(wanted))} identities to be forgotten are not in "
            f"the gallery: {_listed(unknown)}",
            StreamevalWarning,
            stacklevel=6,
        )
