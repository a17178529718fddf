"""Removing segments and identities from a ledger: what they have added is subtracted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, StreamevalWarning
from streameval.ledger.block import Block, Part
from streameval.ledger.gallery import Gallery
from streameval.ledger.head import Record, Segment
from streameval.ledger.history import cells_of, least, read_shares, record_of
from streameval.ledger.state import Positives, State, arrays_of
from streameval.ledger.store import Contents
from streameval.ledger.trajectory import Forecast
from streameval.protocols.labels import Labels
from streameval.run.session import Session
from streameval.statistics import IntArray
from streameval.store import Arrays


def remove_segment(state: State, segment: Segment, change: Contents) -> State:
    """Return the state without a segment; its data are not read."""
    head, number = state.head, segment.number
    kept = state.positives.segment != number
    left = state.positives.take(kept)
    nearest, shares = read_shares(change, head, left, [number])
    del nearest[number]
    nearest_negative = least(nearest.values(), head.queries)
    statistics = state.statistics.select_positives(kept)
    statistics = statistics.minus(shares[number], {"nearest_negative": nearest_negative})
    segments = tuple(other for other in head.segments if other.number != number)
    alone = next(record for record in head.records if number in record.segments)
    records = head.records
    if alone.segments == (number,) and alone.start == 0:  # what came with it goes with it
        change.delete_record(alone.number)
        records = tuple(record for record in records if record is not alone)
    begin, end = np.searchsorted(state.forgotten, [segment.begin, segment.begin + segment.size])
    return State(
        replace(head, segments=segments, records=records),
        left,
        statistics,
        state.near.without(state.near.segment == number),
        np.delete(state.forgotten, slice(begin, end)),
    )


def forget_identities(
    state: State, wanted: npt.NDArray[Any], gallery: Gallery, change: Contents, session: Session
) -> tuple[State, Forecast]:
    """Return the state without the items of some identities, and what was counted for it.

    Raises
    ------
    InputError
        If none of them is in the gallery, or data that are to be read have changed, or are gone.
    """
    head, queries, features = state.head, gallery.queries, gallery.features()
    rows = _rows_of(wanted, gallery)
    if not rows:
        raise InputError(
            f"none of the {len(wanted)} identities is in the gallery: nothing has been changed"
        )
    changed = [segment for segment in head.segments if segment.number in rows]
    parts = [gallery.part(segment, rows[segment.number]) for segment in changed]
    _warn_of_unknown(wanted, parts)
    kept = np.ones(len(state.positives), np.bool_)
    for number, items in rows.items():
        inside = state.positives.segment == number
        kept &= ~(inside & np.isin(state.positives.index, items))
    left, statistics = state.positives.take(kept), state.statistics.select_positives(kept)
    block = Block(head.settings, queries, features, parts, session)
    counted, near = block.count(left, state.near.distance.shape[1], state.near.reach.copy())
    nearest, _ = read_shares(change, head, left)
    segments = {segment.number: segment for segment in head.segments}
    cells: list[IntArray] = []
    added: list[Arrays] = []
    recounted = 0
    for part, shard in zip(parts, counted, strict=True):
        number = part.segment.number
        gallery.forget(part.segment.begin + rows[number])
        forgotten = part.segment.forgotten + len(rows[number])
        segments[number] = replace(part.segment, forgotten=forgotten)
        written = np.full(head.queries, np.nan)
        gone = shard.nearest_negative
        lost = np.flatnonzero((gone == nearest[number]) & (gone < np.inf))
        if len(lost):
            written[lost] = np.inf
            if segments[number].items:
                rest = [gallery.part(segments[number])]
                again = Block(head.settings, queries, features, rest, session, lost)
                written[lost] = again.count(Positives.none())[0][0].nearest_negative
                recounted += again.size
            nearest[number][lost] = written[lost]
        statistics = statistics.minus(shard, {"nearest_negative": statistics.nearest_negative})
        cells.append(cells_of(left.serial, number, -shard.closer, -shard.tied))
        taken = {name: -values for name, values in arrays_of(shard).items()}
        added.append(taken | {"nearest": written})
    statistics = replace(statistics, nearest_negative=least(nearest.values(), head.queries))
    for number, distances in near:
        state = replace(state, near=state.near.without_distances(number, distances))
    record = Record(len(head.happened), tuple(rows), 0, head.queries)
    change.write_record(record.number, record_of(cells, added))
    after = replace(head, segments=tuple(segments.values()), records=(*head.records, record))
    work = Forecast(block.size, recounted, 0, 0)
    return State(after, left, statistics, state.near, gallery.gone), work


def _rows_of(wanted: npt.NDArray[Any], gallery: Gallery) -> dict[int, IntArray]:
    """Return the items of some identities in each segment, without forgotten ones."""
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


def list_identities(identities: npt.NDArray[Any]) -> str:
    """Return the first three identities and the number of others, for messages."""
    named = ", ".join(map(str, identities[:3].tolist()))
    return named if len(identities) <= 3 else f"{named} and {len(identities) - 3} more"


def _warn_of_unknown(wanted: npt.NDArray[Any], parts: Sequence[Part]) -> None:
    unknown = np.setdiff1d(wanted, np.concatenate([part.labels.id for part in parts]))
    if len(unknown):
        warnings.warn(
            f"{len(unknown)} of the {len(np.unique(wanted))} identities to be forgotten are not in "
            f"the gallery: {list_identities(unknown)}",
            StreamevalWarning,
            stacklevel=6,
        )


def _check_kind(wanted: npt.NDArray[Any], labels: Labels, segment: Segment) -> None:
    kinds = ["strings" if ids.dtype.kind == "U" else "integers" for ids in (wanted, labels.id)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"the identities to be forgotten are {kinds[0]}, those of segment {segment.name!r} "
            f"{kinds[1]}: give both as the same"
        )
