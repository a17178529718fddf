"""Further queries of a ledger: counted against all of its segments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array
from streameval.errors import BadRowError, InputError
from streameval.ledger.appending import near_of, plus_counted
from streameval.ledger.counting import Block
from streameval.ledger.forecast import Forecast
from streameval.ledger.head import Batch, Head, Place, Record, Settings
from streameval.ledger.labels import label_arrays, stack_labels
from streameval.ledger.sources import Gallery, check_same, open_matrix, place_of
from streameval.ledger.state import Near, Positives, State, Totals, cells_of, record_arrays
from streameval.ledger.store import QUERIES, Change
from streameval.planning.range import UNIT_TOLERANCE
from streameval.protocols.protocol import Labels
from streameval.run.session import Session
from streameval.sources.sources import Distances, Features
from streameval.statistics import IntArray

_ROWS = 4096  # of features that are checked at a time


def with_queries(
    state: State,
    query: str | Path,
    labels: Labels,
    source: Gallery,
    change: Change,
    session: Session,
) -> tuple[State, Forecast]:
    """Return the state with further queries, and what was counted for it.

    Parameters
    ----------
    state : State
    query : str or Path
        URI of their features, or of their distances from all items of all segments.
    labels : Labels
    source : Gallery
        Of the ledger.
    change, session

    Raises
    ------
    InputError
        If they can't be evaluated, or data that are to be read have changed, or are gone.
    """
    head, settings, first, more = state.head, state.head.settings, state.head.queries, len(labels)
    array = open_matrix(query, "queries")
    _check_fits(array, more, head)
    check_rows(array, settings)
    both = stack_labels(source.queries(), labels)
    place = place_of(array)
    grown = _with_place(head, place, more)
    source.head = grown
    features, parts = source.features(), source.parts()
    most, chosen = settings.near(first + more), np.arange(first, first + more)
    totals, near, positives = Totals.none(more, settings), Near.none(more, most), Positives.none()
    size = 0
    if parts:
        block = Block(settings, both, features, parts, session, chosen)
        try:
            size, positives = block.size, block.find_positives(head.next_serial)
            counted = block.count(positives, most, np.full(more, np.inf))
        except BadRowError:
            if settings.metric is None:  # the new matrix itself is named, not what is made of it
                Distances(array).first_bad_row(more)
            raise
        cells: list[IntArray] = []
        for part, one in zip(parts, counted, strict=True):
            totals = totals.plus(Totals.of(one))
            positives = plus_counted(positives, one)
            cells.append(cells_of(positives.serial, part.segment.number, one.closer, one.tied))
            near = near.with_more(near_of(part.segment.number, one), most)
        numbers = tuple(part.segment.number for part in parts)
        record = Record(len(head.happened), numbers, first, first + more)
        arrays = record_arrays(cells, [Totals.of(one) for one in counted])
        change.write_record(record.number, arrays)
        grown = replace(
            grown,
            records=(*head.records, record),
            next_serial=head.next_serial + len(positives),
        )
    check_same(array, place)
    change.write(QUERIES, label_arrays(both, more=True))
    after = State(
        grown,
        state.positives.with_more(positives),
        state.totals.stacked(totals),
        state.near.stacked(near, most),
        state.forgotten,
    )
    return after, Forecast(size, 0, 0, 0)


def check_rows(array: Array, settings: Settings) -> None:
    """Refuse features of queries that can't be evaluated, whatever the gallery.

    Queries can't be taken out of a ledger again.

    Raises
    ------
    InputError
        If a row can't be evaluated, or is not of length 1 where the range relies on it.
    """
    if settings.metric is None:
        Distances(array)
        return
    source, used = Features(array, array, settings.metric), settings.range
    for start in range(0, array.shape[0], _ROWS):
        _, norms = source.read_query(start, min(start + _ROWS, array.shape[0]))
        others = np.flatnonzero(np.abs(norms - 1) > UNIT_TOLERANCE)
        if used is not None and used.unit and len(others):
            raise InputError(
                f"{array.uri} row {start + others[0]} is of length {norms[others[0]]:.6g}, and the "
                f"range [{used.low!r}, {used.high!r}] is that of vectors of length 1: scale them "
                "to length 1, or create a ledger with --range LO,HI"
            )


def _check_fits(array: Array, queries: int, head: Head) -> None:
    if array.shape[0] != queries or not queries:
        raise InputError(
            f"{array.uri} has {array.shape[0]} rows, and there are {queries} ids: one id a query "
            "is needed, and at least one query"
        )
    items = sum(segment.size for segment in head.segments)
    if head.settings.metric is None and array.shape[1] != items:
        raise InputError(
            f"distances {array.uri} have {array.shape[1]} columns, and the segments {items} items, "
            "forgotten ones among them: a column each is needed, in the order of the gallery"
        )


def _with_place(head: Head, place: Place, queries: int) -> Head:
    """Return the head with where the data of further queries lie."""
    first, last = head.queries, head.queries + queries
    batches = (*head.batches, Batch(first, last, place))
    if head.settings.metric is not None:
        return replace(head, batches=batches)
    segments, column = [], 0
    for segment in head.segments:
        own = replace(place, start=first, stop=last, column=column)
        segments.append(replace(segment, places=(*segment.places, own)))
        column += segment.size
    return replace(head, batches=batches, segments=tuple(segments))
