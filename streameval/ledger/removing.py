"""Taking segments and identities out of a ledger: what they have added is subtracted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, StreamevalWarning
from streameval.ledger.counting import Block, Part
from streameval.ledger.forecast import Forecast
from streameval.ledger.head import Head, Record, Segment
from streameval.ledger.sources import Gallery
from streameval.ledger.state import Near, Positives, State, Taken, Totals, cells_of, record_arrays
from streameval.ledger.store import Change, Reader
from streameval.protocols.protocol import Labels
from streameval.run.session import Session
from streameval.statistics import FloatArray, IntArray


def taken(reader: Reader, head: Head, segment: int) -> Taken:
    """Return what all records say that a segment has added."""
    found = Taken(Totals.none(head.queries, head.settings))
    for record in head.records:
        if segment in record.segments:
            found.add(record, reader.record(record.number), segment)
        else:
            found.add_cells(reader.outline(record.number)["cells"], segment)
    return found


def nearest_by_segment(reader: Reader, head: Head) -> dict[int, FloatArray]:
    """Return the nearest negative of each query in each segment, [Q] each."""
    nearest = {segment.number: np.full(head.queries, np.inf) for segment in head.segments}
    for record in head.records:
        values = reader.outline(record.number)["nearest"]
        for number, newer in zip(record.segments, values, strict=True):
            if number in nearest:
                own = nearest[number][record.start : record.stop]
                own[...] = np.where(np.isnan(newer), own, newer)
    return nearest


def without_segment(state: State, segment: Segment, change: Change) -> State:
    """Return the state without a segment; its data are not read."""
    head, number = state.head, segment.number
    gone = taken(change, head, number)
    left = state.positives.take(state.positives.segment != number)
    closer, tied = gone.of_positives(left.serial)
    left = replace(
        left,
        closer=left.closer - closer,
        tied=left.tied - tied,
        before=left.before - np.where(left.segment > number, tied, 0),
    )
    segments = tuple(one for one in head.segments if one.number != number)
    nearest = nearest_by_segment(change, replace(head, segments=segments))
    least = np.min([np.full(head.queries, np.inf), *nearest.values()], axis=0)
    alone = next(record for record in head.records if number in record.segments)
    records = head.records
    if alone.segments == (number,) and alone.start == 0:  # what came with it goes with it
        change.delete_record(alone.number)
        records = tuple(one for one in records if one is not alone)
    own = (state.forgotten >= segment.begin) & (state.forgotten < segment.begin + segment.size)
    return State(
        replace(head, segments=segments, records=records),
        left,
        state.totals.minus(gone.totals, least),
        state.near.without(state.near.segment == number),
        state.forgotten[~own],
    )


def without_identities(
    state: State, wanted: npt.NDArray[Any], gallery: Gallery, change: Change, session: Session
) -> tuple[State, Forecast]:
    """Return the state without the items of some identities, and what was counted for it.

    Raises
    ------
    InputError
        If none of them is in the gallery, or data that are to be read have changed, or are gone.
    """
    head, queries, features = state.head, gallery.queries(), gallery.features()
    rows = _rows_of(wanted, gallery)
    if not rows:
        raise InputError(
            f"none of the {len(wanted)} identities is in the gallery: nothing has been changed"
        )
    parts = [gallery.part(one, rows[one.number]) for one in head.segments if one.number in rows]
    _warn_of_unknown(wanted, parts)
    gone = np.zeros(len(state.positives), np.bool_)
    for number, own in rows.items():
        gone |= (state.positives.segment == number) & np.isin(state.positives.index, own)
    left = state.positives.take(~gone)
    block = Block(head.settings, queries, features, parts, session)
    most = state.near.distance.shape[1]
    counted = block.count(left, most, state.near.reach.copy())
    nearest = nearest_by_segment(change, head)
    totals, near, recounted = state.totals, state.near, 0
    cells: list[IntArray] = []
    added: list[Totals] = []
    segments = {one.number: one for one in head.segments}
    for part, one in zip(parts, counted, strict=True):
        number, gone_with = part.segment.number, Totals.of(one)
        gallery.forget(part.segment.begin + rows[number])
        forgotten = part.segment.forgotten + len(rows[number])
        segments[number] = replace(part.segment, forgotten=forgotten)
        left = replace(
            left,
            closer=left.closer - one.closer,
            tied=left.tied - one.tied,
            before=left.before - one.tied_before,
        )
        cells.append(cells_of(left.serial, number, -one.closer, -one.tied))
        written = np.full(head.queries, np.nan)
        lost = np.flatnonzero(
            (one.nearest_negative == nearest[number]) & (one.nearest_negative < np.inf)
        )
        if len(lost):
            found = np.full(len(lost), np.inf)
            if segments[number].items:
                rest = [gallery.part(segments[number])]
                again = Block(head.settings, queries, features, rest, session, lost)
                found = again.count(Positives.none())[0].nearest_negative
                recounted += again.size
            written[lost] = nearest[number][lost] = found
        added.append(Totals(-gone_with.per_query, -gone_with.within, written, -gone_with.histogram))
        totals = totals.minus(gone_with, totals.nearest)
        if one.nearest_negatives is not None:
            near = without_distances(near, number, one.nearest_negatives)
    least = np.min([np.full(head.queries, np.inf), *nearest.values()], axis=0)
    record = Record(len(head.happened), tuple(rows), 0, head.queries)
    change.write_record(record.number, record_arrays(cells, added))
    after = replace(head, segments=tuple(segments.values()), records=(*head.records, record))
    work = Forecast(block.size, recounted, 0, 0)
    totals = replace(totals, nearest=least)
    return State(after, left, totals, near, gallery.gone), work


def _rows_of(wanted: npt.NDArray[Any], gallery: Gallery) -> dict[int, IntArray]:
    """Return which items of each segment are of some identities, and not forgotten yet."""
    rows: dict[int, IntArray] = {}
    for segment in gallery.head.segments:
        if not segment.items:
            continue
        labels = gallery.labels(segment)
        _check_kind(wanted, labels, segment)
        there = np.isin(labels.id, wanted)
        there[gallery.forgotten(segment)] = False
        if there.any():
            rows[segment.number] = np.flatnonzero(there)
    return rows


def some(identities: npt.NDArray[Any]) -> str:
    """Name the first three identities, and say how many more there are."""
    named = ", ".join(str(one) for one in identities[:3].tolist())
    return named if len(identities) <= 3 else f"{named} and {len(identities) - 3} more"


def _warn_of_unknown(wanted: npt.NDArray[Any], parts: Sequence[Part]) -> None:
    unknown = np.setdiff1d(wanted, np.concatenate([part.labels.id for part in parts]))
    if len(unknown):
        warnings.warn(
            f"{len(unknown)} of the {len(np.unique(wanted))} identities to be forgotten are not in "
            f"the gallery: {some(unknown)}",
            StreamevalWarning,
            stacklevel=4,
        )


def _check_kind(wanted: npt.NDArray[Any], labels: Labels, segment: Segment) -> None:
    strings = [one.dtype.kind == "U" for one in (wanted, labels.id)]
    if strings[0] != strings[1]:
        kinds = ["strings" if one else "integers" for one in strings]
        raise InputError(
            f"the identities to be forgotten are {kinds[0]}, those of segment {segment.name!r} "
            f"{kinds[1]}: give both as the same"
        )


def without_distances(near: Near, segment: int, values: FloatArray) -> Near:
    """Return the nearest negatives without some of a segment, [Q, m]; as often as they occur."""
    gone = np.zeros(near.distance.shape, np.bool_)
    reach = np.where((values == -np.inf).any(axis=1), -np.inf, near.reach)
    for i in np.flatnonzero(np.isfinite(values[:, 0])).tolist():
        own = np.flatnonzero(near.segment[i] == segment)
        at = np.searchsorted(near.distance[i, own], values[i])
        earlier = np.arange(values.shape[1]) - np.searchsorted(values[i], values[i])
        at = at + earlier  # of equal distances, the first for the first
        known = at < len(own)
        known[known] &= near.distance[i, own[at[known]]] == values[i][known]
        gone[i, own[at[known]]] = True
    gone |= reach[:, None] == -np.inf
    return Near(near.distance, near.segment, reach).without(gone)
