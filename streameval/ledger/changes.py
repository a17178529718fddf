"""Changes of a ledger: each returns the state after it, its name, and what was counted for it.

Old positives are counted against a new segment, together with its own. Old negatives ahead of a
new positive are looked up among the nearest ones that are kept of its query, where it is within
their reach; for the queries of the others, all old segments are counted again. What a segment, or
some items of it, have added is subtracted when they go. New queries are counted against all
segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import SelectedArray
from streameval.arrays.fingerprint import content
from streameval.errors import BadRowError, InputError, refuse, warn
from streameval.ledger.block import Part
from streameval.ledger.gallery import Gallery, check_columns, check_queries, open_input, place_of
from streameval.ledger.head import Head, Segment, Settings
from streameval.ledger.state import (
    Near,
    Nearest,
    Positives,
    State,
    add_positives,
    cells_of,
    join_cells,
    no_statistics,
)
from streameval.ledger.store import check_kinds
from streameval.ledger.trajectory import Change, Forecast, with_snapshot
from streameval.protocols.labels import KNOWN_COLUMNS, Labels
from streameval.protocols.pairs import find_pairs
from streameval.request import Terms
from streameval.stacked import stack
from streameval.statistics import RankStatistics
from streameval.typing import AnyArray, FloatArray, IntArray, Keywords


def first_state(given: Keywords) -> State:
    """Return the state of a ledger without a gallery, from the keywords of `Ledger.create`."""
    labels: Labels = given["query_labels"]
    uri = given["query"]
    array = (
        None
        if uri is None
        else open_input(uri, "query features", fill_missing=given["fill_missing"])
    )
    settings = Settings.of(array, given["metric"], Terms.of(given), given["keep"])
    check_queries(labels, array, settings)
    find_pairs(labels, labels.take(slice(0)), settings.protocol)  # what it refuses, it always would
    place = None if array is None else place_of(array)
    head = Head(settings).with_queries(place, len(labels))
    empty = State.empty(head, len(labels))
    return with_snapshot(empty, (empty, "", Forecast()), "create", labels)[0]


def add_queries(gallery: Gallery, uri: str | Path, labels: Labels, *, fill_missing: bool) -> Change:
    """Return the state with further queries.

    `uri` is of their features, or of their distances from all items of all segments.
    """
    state, more = gallery.state, len(labels)
    settings, first = gallery.head.settings, gallery.head.queries
    array = open_input(uri, "queries", fill_missing=fill_missing)
    check_queries(labels, array, settings)
    items = sum(segment.size for segment in gallery.head.segments)
    if settings.metric is None and array.shape[1] != items:
        raise InputError(
            f"distances {array.uri} have {array.shape[1]} columns, and the segments {items} items, "
            "forgotten ones among them: a column each is needed, in the order of the gallery"
        )
    gallery.queries = _stack_labels(gallery.queries, labels)
    head = gallery.head.with_queries(gallery.place(array), more)
    gallery.state, queries = replace(state, head=head), np.arange(first, first + more)
    try:
        added, shards = gallery.count(queries, head.next_serial)
    except BadRowError:  # the new array itself is named, not what is made of it
        settings.source(array, array).first_bad_row(more)
        raise
    if shards:
        head = gallery.contents.write_record(head, added.positives, shards, first)
    gallery.contents.write_queries(gallery.queries)
    after = State(
        replace(head, next_serial=head.next_serial + len(added.positives)),
        state.positives.join(added.positives)[0],
        stack([state.statistics, added.statistics]),
        state.near.stack(added.near),
        state.forgotten,
    )
    return after, f"{more} of {Path(str(uri)).name}", Forecast(more * head.gallery)


def _stack_labels(labels: Labels, more: Labels) -> Labels:
    """Return the labels of the ledger's queries and of further ones, of the same columns."""
    old, new, known = labels.columns, more.columns, "the queries of the ledger"
    for name in sorted(old.keys() ^ new.keys()):
        lacking, others = (more.source, known) if name in old else (known, more.source)
        raise InputError(
            f"{lacking} have no column {name!r}, and {others} have one: give queries with the same "
            "columns"
        )
    for name, values in old.items():
        check_kinds(f"{name} of {known}", values, f"of {more.source}", new[name])
    return Labels.join([labels, more], labels.source)


class NewSegment:
    """A segment that is to be appended to a ledger, and the forecast of what that counts.

    Its name is by default the key of the array, where it has one, else that of the file.
    """

    def __init__(
        self,
        gallery: Gallery,
        uri: str | Path,
        labels: Labels,
        name: str | None,
        *,
        fill_missing: bool,
    ) -> None:
        state, head = gallery.state, gallery.head
        array = open_input(uri, "gallery", fill_missing=fill_missing)
        head.settings.source(gallery.features(), array).check_rows(gallery.queries, labels)
        self._gallery, self._new = gallery, Positives.none()
        _, separator, key = str(uri).rpartition("::")
        default = key if separator else Path(str(uri)).stem
        self._labels = labels.select((*KNOWN_COLUMNS, *head.settings.protocol.columns))
        check_columns(self._labels)
        self._segment = segment = Segment(
            head.next_segment,
            default if name is None else str(name),
            len(labels),
            0,
            head.rows,
            tuple(self._labels.columns),
            (replace(gallery.place(array), stop=head.queries),),
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

    def append(self) -> Change:
        """Count the segment; return the state with it."""
        gallery, state, segment = self._gallery, self._gallery.state, self._segment
        head, near = state.head, state.near
        most = head.settings.near(head.queries)
        positives, order = state.positives.join(self._new)
        statistics = add_positives(state.statistics, positives, order)
        added = no_statistics(head.queries, positives, head.settings)
        further: Nearest = ()
        if self._block is not None:
            reach = near.reach.copy()
            reach[self._spent] = np.inf
            (added,), further = self._block.count(positives, most, reach)
            statistics = statistics.merge(added)
        old = [self._look_up()]
        if len(self._hard):
            recounted, nearest = self._rescan(most)
            old += recounted
            near = near.put(self._spent, Near.none(len(self._spent), most).merge(nearest))
        closer, tied = positives.sum_cells(join_cells(old))
        statistics = replace(
            statistics,
            closer=statistics.closer + closer,
            tied=statistics.tied + tied,
            tied_before=statistics.tied_before + tied,  # all that is old comes before what is new
        )
        gallery.contents.append_labels(segment.begin, self._labels)
        head = gallery.contents.write_record(head, positives, {segment.number: added}, cells=old)
        head = replace(
            head,
            segments=(*head.segments, segment),
            next_segment=segment.number + 1,
            rows=segment.end,
            next_serial=head.next_serial + len(self._new),
        )
        after = State(head, positives, statistics, near.merge(further), state.forgotten)
        return after, segment.name, self.forecast

    def _look_up(self) -> IntArray:
        """Return the cells of old negatives ahead of new positives that are within reach."""
        near = self._gallery.state.near
        easy = self._new.take(~np.isin(self._new.query, self._hard))
        known, owner = near.distance[easy.query], near.segment[easy.query]
        row, column = np.nonzero(known <= easy.distance[:, None])
        tied = known[row, column] == easy.distance[row]
        numbers = int(owner.max(initial=0)) + 1
        pairs, place = np.unique(row * numbers + owner[row, column], return_inverse=True)
        row, number = np.divmod(pairs, numbers)
        counts = np.bincount(2 * place + tied, minlength=2 * len(pairs))
        return cells_of(easy.serial[row], number, *counts.reshape(-1, 2).T)

    def _rescan(self, most: int) -> tuple[list[IntArray], Nearest]:
        """Count all old segments for the queries with new positives beyond their reach.

        Returns cells of old negatives ahead of these positives; and by segment, the nearest
        negatives [q, m] of the queries that have few left.
        """
        parts = self._gallery.parts()
        cells: list[IntArray] = []
        nearest: Nearest = ()
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
        refuse(
            InputError,
            segment.size
            and known[rows] == first.content
            and f"{array.uri} holds the same data as segment {segment.name!r} ({first.uri}): "
            "nothing has been changed; each item counts once",
            segment.name == new.name
            and f"there is a segment {new.name!r} already ({first.uri}): nothing has been changed; "
            "give another name (--name)",
        )


def remove_segment(gallery: Gallery, name: str) -> Change:
    """Return the state without a segment; its data are not read."""
    state, head = gallery.state, gallery.head
    segment = head.find_segment(name)
    number, kept = segment.number, state.positives.segment != segment.number
    left = state.positives.take(kept)
    nearest, shares = gallery.contents.shares(head, left, [number])
    del nearest[number]
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
        _minus(state, kept, shares[number], nearest),
        state.near.without(state.near.segment == number),
        state.forgotten[others],
    )
    return after, name, Forecast()


def forget_identities(gallery: Gallery, wanted: AnyArray) -> Change:
    """Return the state without the items of some identities, their names, and what was counted."""
    head, near = gallery.head, gallery.state.near
    parts = _parts_of(wanted, gallery)
    if not parts:
        raise InputError(
            f"none of the {len(wanted)} identities is in the gallery: nothing has been changed"
        )
    segments = {segment.number: segment for segment in head.segments}
    unknown = np.setdiff1d(wanted, np.concatenate([part.labels.id for part in parts]))
    if len(unknown):
        warn(
            f"{len(unknown)} of the {len(np.unique(wanted))} identities to be forgotten are not in "
            f"the gallery: {_listed(unknown)}"
        )
    known = gallery.state.positives
    kept = ~np.isin(gallery.queries.id[known.query], wanted)
    left, block = known.take(kept), gallery.block(parts)
    counted, gone = block.count(left, near.distance.shape[1], near.reach.copy())
    for number, distances in gone:
        near = near.without_distances(number, distances)
    nearest, _ = gallery.contents.shares(head, left)
    nothing = no_statistics(head.queries, left, head.settings)
    taken: dict[int, RankStatistics] = {}
    recounted = 0
    for part, shard in zip(parts, counted, strict=True):
        number = part.segment.number
        segments[number] = segment = gallery.forget(part)
        written = np.full(head.queries, np.nan)
        lost = np.flatnonzero(
            (shard.nearest_negative == nearest[number]) & (shard.nearest_negative < np.inf)
        )
        if len(lost):
            written[lost] = np.inf
            if segment.items:
                again = gallery.block([gallery.part(segment)], lost)
                written[lost] = again.count(Positives.none())[0][0].nearest_negative
                recounted += again.size
            nearest[number][lost] = written[lost]
        taken[number] = nothing.minus(shard, {"nearest_negative": written})
    statistics = _minus(gallery.state, kept, reduce(RankStatistics.merge, counted), nearest)
    head = gallery.contents.write_record(head, left, taken)
    head = replace(head, segments=tuple(segments.values()))
    after = State(head, left, statistics, near, gallery.state.forgotten)
    return after, _listed(wanted), Forecast(block.size, recounted)


def _minus(
    state: State, kept: AnyArray, gone: RankStatistics, nearest: Mapping[int, FloatArray]
) -> RankStatistics:
    """Return the statistics of the positives that are kept without those of what is gone.

    `nearest` holds the nearest negative of each query [Q] in each segment that is left.
    """
    left = reduce(np.minimum, nearest.values(), np.full(state.head.queries, np.inf))
    return state.statistics.select_positives(kept).minus(gone, {"nearest_negative": left})


def _parts_of(wanted: AnyArray, gallery: Gallery) -> list[Part]:
    """Return the items of some identities in each segment, without forgotten ones."""
    parts: list[Part] = []
    for segment in gallery.head.segments:
        if not segment.items:
            continue
        ids = gallery.labels(segment).id
        others = f"those of segment {segment.name!r}"
        check_kinds("the identities to be forgotten", wanted, others, ids)
        there = np.isin(ids, wanted)
        there[gallery.forgotten(segment)] = False
        if there.any():
            parts.append(gallery.part(segment, np.flatnonzero(there)))
    return parts


def _listed(identities: AnyArray) -> str:
    """Return the first three identities and the number of others, for messages."""
    named = ", ".join(map(str, identities[:3].tolist()))
    return named if len(identities) <= 3 else f"{named} and {len(identities) - 3} more"
