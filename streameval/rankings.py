"""Rankings: the first items of a few queries' ranked lists, from the inputs of a saved result.

A result keeps what metrics are made of, and not who is ranked where. `reopen` opens what it was
evaluated from, and refuses what is no longer the same; `nearest_items` computes the distances of a
few queries to the whole gallery again, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.arrays.identity import unchanging
from streameval.arrays.remote import is_remote
from streameval.errors import InputError
from streameval.labels.columns import read_sides
from streameval.labels.pair_files import read_listed_pairs, read_pairs
from streameval.protocols.labels import Labels
from streameval.protocols.listed import ListedPairs
from streameval.protocols.pairs import Pairs, find_pairs
from streameval.protocols.shipped import saved_protocol
from streameval.result import Evaluation
from streameval.result.same_task import positive_items
from streameval.sources.distances import Distances
from streameval.sources.features import Features
from streameval.sources.tiled import TiledSource
from streameval.typing import AnyArray, FloatArray

SIDES = ("query", "gallery")
BLOCK_BYTES = 16 << 20  # of the gallery, read at a time


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a result was evaluated from."""

    source: TiledSource
    labels: Mapping[str, Labels]  # of the sides, "query" and "gallery"
    tables: Mapping[str, str]  # the path, of the sides whose labels are in a table
    pairs: Pairs


def reopen(result: Evaluation, name: str) -> Inputs:
    """Open what a result was evaluated from; `name` is what messages call it.

    Relative paths are those of the folder that it was evaluated in.

    Raises InputError if the result does not say where its inputs are, is of lists of neighbours or
    of a ledger; if an input is not there any more, or is not what it was.
    """
    told = result.provenance
    for key, what in (("ledger", "a ledger"), ("lists", "lists of neighbours")):
        if key in told:
            raise InputError(
                f"{name} is a result of {what}, whose ranked lists can't be computed again: "
                "leave --images out, or evaluate the features or distances"
            )
    if told["inputs"].get("steps"):
        raise InputError(
            f"{name} is of features that were expanded or re-ranked, whose ranked lists can't be "
            "computed again: leave --images out"
        )
    if "view" in told:
        raise InputError(
            f"{name} is of selected queries or gallery items, whose ranked lists can't be computed "
            "again: leave --images out"
        )
    if "labels" not in told:
        raise InputError(
            f"{name} does not say where its labels are (it was evaluated from Python, or by an "
            "earlier version): evaluate again by streameval evaluate --out, or leave --images out"
        )

    def located(uri: str | None) -> str | None:
        folder = told.get("folder")
        return uri if uri is None or folder is None or is_remote(uri) else str(Path(folder) / uri)

    uris = {
        side: {column: located(uri) for column, uri in told["labels"][side].items()}
        for side in SIDES
    }
    inputs = told["inputs"]
    filled = {"fill_missing": inputs.get("fill_missing", False)}
    try:
        source: TiledSource
        if "distances" in inputs:
            source = Distances(str(located(inputs["distances"])), **filled)
        else:
            query_uri, gallery_uri = (str(located(inputs[side])) for side in SIDES)
            source = Features(query_uri, gallery_uri, inputs["metric"], **filled)
        protocol = saved_protocol(told["protocol"])
        pattern = told.get("pattern")
        query, gallery = read_sides(
            *uris.values(), shared=protocol.columns, pattern=pattern, **filled
        )
        listed = _read_lists(told, query, gallery, located)
        _check_unchanged(source, told.get("fingerprints", {}))
    except (InputError, OSError) as error:
        raise InputError(
            f"the inputs of {name} can't be read again: {error}; put back what it was evaluated "
            "from, or evaluate again"
        ) from error
    sizes = (len(query), len(gallery))
    if source.shape != sizes or sizes != (result.statistics.queries, result.counts["gallery"]):
        raise _changed(name, f"there are {source.shape} rows and {sizes} labels of queries, items")
    pairs = find_pairs(query, gallery, protocol, listed)
    _check_labels(result, query, pairs, name)
    tables = {side: own["table"] for side, own in uris.items() if own["table"] is not None}
    return Inputs(source, {"query": query, "gallery": gallery}, tables, pairs)


def _read_lists(
    told: Mapping[str, Any], query: Labels, gallery: Labels, located: Callable[[str], str | None]
) -> ListedPairs | None:
    """Return the lists of pairs that a result was evaluated with; None without."""
    if "listed" in told:
        files, listed_as = told["listed"], told["listed"]["listed_as"]
        good, junk = (located(files[name]) for name in ("good", "junk"))
        return read_listed_pairs(
            str(good), junk, queries=len(query), gallery=gallery, listed_as=listed_as
        )
    if "pairs" not in told:
        return None
    how = {"query": query, "gallery": gallery, "listed_as": told["pairs"]["listed_as"]}
    files = told["pairs"]["files"]
    return ListedPairs(
        {name: read_pairs(str(located(path)), **how) for name, path in files.items()}
    )


def _check_unchanged(source: TiledSource, recorded: Mapping[str, str]) -> None:
    """Check inputs against the fingerprints that a result recorded, if it did."""
    for item in source.inputs():
        found = item.fingerprint() if item.name in recorded else None
        if found is not None and found != recorded[item.name]:
            raise InputError(
                f"{item.name} {item.uri} are not what they were: their fingerprint is {found}, "
                f"and was {recorded[item.name]}"
            )


def _check_labels(result: Evaluation, query: Labels, pairs: Pairs, name: str) -> None:
    """Check that labels make the same of every pair."""
    for column in ("id", "cam"):
        own, values = result.columns.get(column), query.columns.get(column)
        if own is not None and (values is None or not np.array_equal(own, values)):
            raise _changed(name, f"the queries' {column} are not those of the result")
    statistics = result.statistics
    counts = statistics.positives, statistics.ignored, statistics.same_identity
    same = all(map(np.array_equal, pairs.counts_in(0, pairs.gallery), counts))
    if same and "positive_item" in statistics.held:
        same = all(
            np.array_equal(positive_items(statistics, span), pairs.block(*span).positives()[1])
            for span in statistics.spans
        )
    if not same:
        raise _changed(name, "the labels make other pairs positive or ignored")


def _changed(name: str, how: str) -> InputError:
    return InputError(
        f"the inputs of {name} have changed since it was evaluated: {how}; put back what it was "
        "evaluated from, or evaluate again"
    )


class Kind(IntEnum):
    """What a gallery item is for a query."""

    MISMATCH = 0
    MATCH = 1
    IGNORED = 2


@dataclass(frozen=True)
class Item:
    """A gallery item in a ranked list."""

    row: int  # of the gallery
    distance: float
    kind: Kind
    rank: int | None  # from 1; ignored items have none


@dataclass(frozen=True)
class RankedList:
    """How the gallery is ranked for one query."""

    query: int
    items: tuple[Item, ...]  # the nearest first; ignored ones are where they would be
    next_match: Item | None  # the nearest match, where it is none of these


def nearest_items(
    result: Evaluation, inputs: Inputs, queries: Sequence[int], most: int, name: str
) -> list[RankedList]:
    """Return the first items of some queries' ranked lists, `most` of each.

    Equal distances are in the order of the result's tie rule, then of the gallery. Memory: a
    block of the gallery, and the distances of the queries to it.

    Raises InputError if a distance is not what it was; `name` is what the message calls the
    result.
    """
    if not queries:
        return []
    kept: list[list[AnyArray]] = [[] for _ in queries]
    of_matches: list[list[FloatArray]] = [[] for _ in queries]
    nearest_negative = [math.inf] * len(queries)
    read = (item.data for item in inputs.source.inputs() if isinstance(item.data, Array))
    with unchanging(*read):
        for start, block in inputs.source.distance_blocks(queries, BLOCK_BYTES):
            for at, (query, distances) in enumerate(zip(queries, block, strict=True)):
                kinds = _kinds(inputs.pairs, query, start, start + len(distances))
                of_matches[at].append(distances[kinds == Kind.MATCH])
                others = distances[kinds == Kind.MISMATCH]
                nearest_negative[at] = min(
                    nearest_negative[at], float(others.min(initial=math.inf))
                )
                first = _first(distances, kinds, result.options.ties, most, start)
                kept[at] = [np.sort(np.concatenate([*kept[at], first]))[:most]]
    for at, query in enumerate(queries):
        statistics = result.statistics
        positives = slice(*statistics.indptr[query : query + 2].tolist())
        matches = np.sort(np.concatenate(of_matches[at]))
        if (
            not np.array_equal(matches, statistics.positive_distance[positives])
            or nearest_negative[at] != statistics.nearest_negative[query]
        ):
            raise _changed(name, f"query {query} has other distances than in the result")
    return [_ranked(result, query, own) for query, [own] in zip(queries, kept, strict=True)]


def _kinds(pairs: Pairs, query: int, start: int, stop: int) -> npt.NDArray[np.int8]:
    """Return what the items of a range are for a query, [n] int8: values of `Kind`."""
    kinds = np.full(stop - start, Kind.MISMATCH, np.int8)
    kinds[pairs.junk[start:stop]] = Kind.IGNORED
    kinds[pairs.classes.ignored(pairs.classes.query[[query]], slice(start, stop))] = Kind.IGNORED
    listed = slice(*pairs.indptr[query : query + 2].tolist())
    item, positive = pairs.item[listed], pairs.positive[listed]
    within = (item >= start) & (item < stop)
    kinds[item[within] - start] = np.where(positive[within], Kind.MATCH, Kind.IGNORED)
    return kinds


def _first(
    distances: FloatArray, kinds: npt.NDArray[np.int8], ties: str, most: int, start: int
) -> AnyArray:
    """Return the first items: distance, place among items at one distance, row, kind."""
    last = min(most, len(distances)) - 1
    near = np.flatnonzero(distances <= np.partition(distances, last)[last])
    order = {"pessimistic": (0, 1, 2), "optimistic": (1, 0, 2)}.get(ties, (0, 0, 0))
    places = np.array(order)[kinds[near]]
    first = np.lexsort((near, places, distances[near]))[:most]
    near, places = near[first], places[first]
    return np.rec.fromarrays([distances[near], places, near + start, kinds[near]])


def _ranked(result: Evaluation, query: int, kept: AnyArray) -> RankedList:
    items: list[Item] = []
    rank = 0
    for distance, _, row, value in kept.tolist():
        kind = Kind(value)
        rank += kind is not Kind.IGNORED
        items.append(Item(row, distance, kind, None if kind is Kind.IGNORED else rank))
    found = any(one.kind is Kind.MATCH for one in items)
    return RankedList(query, tuple(items), None if found else _next_match(result, query))


def _next_match(result: Evaluation, query: int) -> Item | None:
    """Return the nearest match of a query, from the result; None where it has none."""
    statistics = result.statistics
    start, stop = statistics.indptr[query : query + 2].tolist()
    if start == stop or statistics.positive_item is None:
        return None
    ahead = statistics.closer[start]
    if result.options.ties in ("pessimistic", "stable"):
        tied = statistics.tied if result.options.ties == "pessimistic" else statistics.tied_before
        ahead += tied[start]
    distance = float(statistics.positive_distance[start])
    return Item(int(statistics.positive_item[start]), distance, Kind.MATCH, int(ahead) + 1)
