"""Further queries of a ledger: counted against all of its segments."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array
from streameval.errors import BadRowError, InputError
from streameval.ledger.block import Block
from streameval.ledger.gallery import Gallery, check_same, open_matrix, place_of
from streameval.ledger.head import Batch, Head, Place, Record, Settings
from streameval.ledger.history import cells_of, record_of
from streameval.ledger.state import Near, Positives, State, no_statistics
from streameval.ledger.store import Contents
from streameval.ledger.trajectory import Forecast
from streameval.planning.range import UNIT_TOLERANCE
from streameval.protocols.labels import Labels
from streameval.run.session import Session
from streameval.sources.distances import Distances
from streameval.sources.features import Features
from streameval.statistics import RankStatistics

_ROWS = 4096  # of features that are checked at a time


def add_queries(
    state: State,
    uri: str | Path,
    labels: Labels,
    gallery: Gallery,
    change: Contents,
    session: Session,
) -> tuple[State, Forecast]:
    """Return the state with further queries, and what was counted for it.

    Parameters
    ----------
    state : State
    uri : str or Path
        Of their features, or of their distances from all items of all segments.
    labels : Labels
    gallery : Gallery
        Of the ledger.
    change, session

    Raises
    ------
    InputError
        If they can't be evaluated, or data that are to be read have changed, or are gone.
    """
    head, settings, first, more = state.head, state.head.settings, state.head.queries, len(labels)
    array = open_matrix(uri, "queries")
    _check_fits(array, more, head)
    check_rows(array, settings)
    both = _stack_labels(gallery.queries, labels)
    place = place_of(array)
    grown = _with_place(head, place, more)
    gallery.head = grown
    features, parts = gallery.features(), gallery.parts()
    most, positives = settings.near(first + more), Positives.none()
    statistics, near = no_statistics(more, settings), Near.none(more, most)
    size = 0
    if parts:
        chosen = np.arange(first, first + more)
        block = Block(settings, both, features, parts, session, chosen)
        try:
            size, positives = block.size, block.find_positives(head.next_serial)
            counted, nearest = block.count(positives, most, np.full(more, np.inf))
        except BadRowError:  # the new array itself is named, not what is made of it
            settings.source(array, array).first_bad_row(more)
            raise
        statistics, near = reduce(RankStatistics.merge, counted), near.merge(nearest, most)
        numbers = tuple(part.segment.number for part in parts)
        cells = [
            cells_of(positives.serial, number, shard.closer, shard.tied)
            for number, shard in zip(numbers, counted, strict=True)
        ]
        record = Record(len(head.happened), numbers, first, first + more)
        change.write_record(record.number, record_of(cells, counted))
        serial = head.next_serial + len(positives)
        grown = replace(grown, records=(*head.records, record), next_serial=serial)
    check_same(array, place)
    change.write_queries(both)
    gallery.queries = both
    after = State(
        grown,
        state.positives.join(positives)[0],
        RankStatistics.stack([state.statistics, statistics]),
        state.near.stack(near, most),
        state.forgotten,
    )
    return after, Forecast(size, 0, 0, 0)


def check_rows(array: Array, settings: Settings) -> None:
    """Check features of queries: they can't be removed from a ledger.

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
    """Return the head with the place of the data of further queries."""
    first, last = head.queries, head.queries + queries
    batches = (*head.batches, Batch(first, last, place))
    if head.settings.metric is not None:
        return replace(head, batches=batches)
    segments, column = [], 0
    for segment in head.segments:
        columns = replace(place, start=first, stop=last, column=column)
        segments.append(replace(segment, places=(*segment.places, columns)))
        column += segment.size
    return replace(head, batches=batches, segments=tuple(segments))


def _stack_labels(labels: Labels, more: Labels) -> Labels:
    """Return the labels of the ledger's queries and of further ones.

    Raises InputError if they have different columns, or columns of different kinds.
    """
    old, new = labels.columns, more.columns
    for name in [*old, *new]:
        if name not in new:
            raise InputError(
                f"{more.source} have no column {name!r}, and the queries of the ledger have one: "
                "give queries with the same columns"
            )
        if name not in old:
            raise InputError(
                f"the queries of the ledger have no column {name!r}, and these have one: give "
                "queries with the same columns"
            )
        if (old[name].dtype.kind == "U") != (new[name].dtype.kind == "U"):
            kinds = [
                "strings" if side[name].dtype.kind == "U" else "integers" for side in (old, new)
            ]
            raise InputError(
                f"{name} of the queries of the ledger are {kinds[0]}, of {more.source} "
                f"{kinds[1]}: give both as the same"
            )
    return Labels.join([labels, more], labels.source)
