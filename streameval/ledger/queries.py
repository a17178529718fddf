"""The queries of a ledger: those that it is created with, and further ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.errors import BadRowError, InputError, OptionError
from streameval.ledger.gallery import Gallery, check_same, open_matrix, place_of
from streameval.ledger.head import Batch, Head, Place, Settings
from streameval.ledger.state import Near, Positives, State, arrays_of, cells_of, no_statistics
from streameval.ledger.trajectory import NOTHING, Forecast, entry_of
from streameval.planning.range import UNIT_TOLERANCE, Range
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import find_pairs
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT
from streameval.request import Terms
from streameval.run.preparation import BINS, THRESHOLDS
from streameval.run.session import parse_bytes
from streameval.sources.distances import Distances
from streameval.sources.features import Features
from streameval.statistics import RankStatistics

_ROWS = 4096  # of features that are checked at a time


def first_state(given: Mapping[str, Any]) -> State:
    """Return the state of a ledger without a gallery, from the keywords of `Ledger.create`.

    Raises
    ------
    InputError
        If labels and features don't fit, or the features can't be evaluated.
    OptionError
        If an option is unknown, or can't be kept up to date.
    """
    labels: Labels = given["query_labels"]
    terms, uri = Terms.of(given), given["query"]
    array = None if uri is None else open_matrix(uri, "query features")
    settings = settings_of(array, given["metric"], terms, given["keep"])
    if array is not None and array.shape[0] != len(labels):
        raise InputError(
            f"query features {array.uri} have {array.shape[0]} rows, and {labels.source} "
            f"{len(labels)} ids: one id a query is needed"
        )
    if not len(labels):
        raise InputError(f"{labels.source} has no ids: at least one query is needed")
    nothing = labels.take(np.empty(0, np.int64))
    find_pairs(labels, nothing, settings.protocol)  # what it refuses, it always would
    place = None
    if array is not None:
        _check_rows(array, settings)
        place = place_of(array)
    head = Head(settings, (Batch(0, len(labels), place),))
    empty = State.empty(head)
    entry = entry_of(empty, empty, labels, ("create", ""), NOTHING, 0.0)
    return replace(empty, head=head.with_entry(entry))


def settings_of(array: Array | None, metric: str | None, terms: Terms, keep: str | int) -> Settings:
    """Return the settings of a ledger, which stay fixed.

    Raises
    ------
    OptionError
        If an option can't be kept up to date while the gallery grows.
    """
    if array is None and metric is not None:
        raise OptionError(
            f"got metric {metric} without query features: give them, or leave it out where "
            "distances are stored"
        )
    chosen = terms.protocol
    if chosen.listed:
        raise OptionError(
            f"protocol {chosen.name} takes its pairs from lists of the whole gallery, which a "
            "ledger does not have beforehand: choose a protocol by identity and camera"
        )
    if chosen.self_match == "index":
        raise OptionError(
            "self_match by index means that query i is gallery item i, and a gallery that grows "
            "has others: match by key"
        )
    if chosen.cmc == SINGLE_GALLERY_SHOT:
        raise OptionError(
            f"protocol {chosen.name} draws one item of each gallery identity, which is no sum over "
            "segments: choose market1501 or separate-camera, or evaluate the whole gallery"
        )
    needs, used = terms.fields_needed, terms.range if isinstance(terms.range, Range) else None
    thresholds = THRESHOLDS if "negatives_within" in needs or used else 0
    edges = BINS + 1 if "impostor_histogram" in needs else 0
    features = None if array is None else Features(array, array, metric or "cosine")
    if terms.range == "auto" and features is not None and (thresholds or edges):
        used = features.bounds()
    if used is None and (thresholds or edges):
        raise OptionError(
            f"range is {terms.range}, and would be the least and greatest distance of the data: it "
            "moves when the gallery grows, and all that was counted with it; give a range that "
            "stays (--range LO,HI), or metrics that need none (--metrics CMC@1,mAP,mINP)"
        )
    of = None if features is None else features.metric
    size = parse_bytes(keep, "keep")
    return Settings(of, chosen, terms.options, used, thresholds, edges, size)


def add_queries(gallery: Gallery, uri: str | Path, labels: Labels) -> tuple[State, str, Forecast]:
    """Return the state with further queries, what messages call them, and what was counted.

    Parameters
    ----------
    gallery : Gallery
        Of the ledger.
    uri : str or Path
        Of their features, or of their distances from all items of all segments.
    labels : Labels

    Raises
    ------
    InputError
        If they can't be evaluated, or data that are to be read have changed, or are gone.
    """
    state, more = gallery.state, len(labels)
    settings, first = state.head.settings, state.head.queries
    array = open_matrix(uri, "queries")
    _check_fits(array, more, state.head)
    _check_rows(array, settings)
    gallery.queries = _stack_labels(gallery.queries, labels)
    place = place_of(array)
    head = _with_place(state.head, place, more)
    gallery.state = replace(state, head=head)
    parts, most, size = gallery.parts(), settings.near(first + more), 0
    positives, statistics = Positives.none(), no_statistics(more, settings)
    near = Near.none(more, most)
    if parts:
        block = gallery.block(parts, np.arange(first, first + more))
        try:
            size, positives = block.size, block.find_positives(head.next_serial)
            counted, nearest = block.count(positives, most)
        except BadRowError:  # the new array itself is named, not what is made of it
            settings.source(array, array).first_bad_row(more)
            raise
        statistics, near = reduce(RankStatistics.merge, counted), near.merge(nearest, most)
        numbers = [part.segment.number for part in parts]
        cells = [
            cells_of(positives.serial, number, shard.closer, shard.tied)
            for number, shard in zip(numbers, counted, strict=True)
        ]
        added = [arrays_of(shard) for shard in counted]
        head = gallery.contents.write_record(head, numbers, cells, added, first)
        head = replace(head, next_serial=head.next_serial + len(positives))
    check_same(array, place.uri, place.files)
    gallery.contents.write_queries(gallery.queries)
    after = State(
        head,
        state.positives.join(positives)[0],
        RankStatistics.stack([state.statistics, statistics]),
        state.near.stack(near, most),
        state.forgotten,
    )
    return after, f"{more} of {Path(str(uri)).name}", Forecast(size, 0, 0, 0)


def _check_rows(array: Array, settings: Settings) -> None:
    """Raise InputError for features of queries that can't be evaluated: none is ever removed."""
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
    head = replace(head, batches=(*head.batches, Batch(first, last, place)))
    if head.settings.metric is not None:
        return head
    segments, column = [], 0
    for segment in head.segments:
        columns = replace(place, start=first, stop=last, column=column)
        segments.append(replace(segment, places=(*segment.places, columns)))
        column += segment.size
    return replace(head, segments=tuple(segments))


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
