"""The nearest items of a few queries, exactly: canonical distances to the whole gallery."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.protocols.pairs import Pairs
from streameval.rankings.inputs import Inputs
from streameval.result import Evaluation
from streameval.statistics import FloatArray, IntArray

BLOCK_BYTES = 16 << 20  # of the gallery, read at a time


class Kind(Enum):
    """What a gallery item is for a query."""

    MISMATCH = 0
    MATCH = 1
    IGNORED = 2


@dataclass(frozen=True)
class Item:
    """A gallery item in a ranked list.

    Attributes
    ----------
    row : int
        In the gallery.
    distance : float
    kind : Kind
    rank : int, optional
        From 1; ignored items have none.
    """

    row: int
    distance: float
    kind: Kind
    rank: int | None


@dataclass(frozen=True)
class RankedList:
    """How the gallery is ranked for one query.

    Attributes
    ----------
    query : int
    items : tuple of Item
        The nearest first; ignored ones are where they would be.
    next_match : Item, optional
        The nearest match, where it is none of these.
    """

    query: int
    items: tuple[Item, ...]
    next_match: Item | None


def nearest_items(
    result: Evaluation, inputs: Inputs, queries: Sequence[int], most: int, name: str
) -> list[RankedList]:
    """Return the first items of some queries' ranked lists.

    Equal distances are in the order of the result's tie rule, then of the gallery. Memory: a
    block of the gallery, and the distances of the queries to it.

    Parameters
    ----------
    result : Evaluation
    inputs : Inputs
        That it was evaluated from.
    queries : sequence of int
    most : int
        Items of each.
    name : str
        What messages call the result.

    Raises
    ------
    InputError
        If a distance is not what it was.
    """
    if not queries:
        return []
    kept: list[list[tuple[Any, ...]]] = [[] for _ in queries]
    of_matches: list[list[FloatArray]] = [[] for _ in queries]
    nearest_negative = [math.inf] * len(queries)
    for start, block in inputs.source.distance_blocks(queries, BLOCK_BYTES):
        for at, (query, distances) in enumerate(zip(queries, block, strict=True)):
            kinds = _kinds(inputs.pairs, query, start, start + len(distances))
            of_matches[at].append(distances[kinds == Kind.MATCH.value])
            others = distances[kinds == Kind.MISMATCH.value]
            nearest_negative[at] = min(nearest_negative[at], float(others.min(initial=math.inf)))
            first = _first(distances, kinds, result.options.ties, most)
            found = zip(
                distances[first].tolist(),
                _place(kinds[first], result.options.ties).tolist(),
                (first + start).tolist(),
                kinds[first].tolist(),
                strict=True,
            )
            kept[at] = sorted([*kept[at], *found])[:most]
    for at, query in enumerate(queries):
        _check(result, query, np.concatenate(of_matches[at]), nearest_negative[at], name)
    return [_ranked(result, query, own) for query, own in zip(queries, kept, strict=True)]


def _kinds(pairs: Pairs, query: int, start: int, stop: int) -> npt.NDArray[np.int8]:
    """Return what the items of a range are for a query, [n] int8: values of `Kind`."""
    kinds = np.where(pairs.junk[start:stop], Kind.IGNORED.value, Kind.MISMATCH.value)
    kinds = kinds.astype(np.int8)
    ignored = pairs.classes.ignored(int(pairs.classes.query[query]), slice(start, stop))
    kinds[ignored] = Kind.IGNORED.value
    listed = slice(*pairs.indptr[query : query + 2].tolist())
    item, positive = pairs.item[listed], pairs.positive[listed]
    within = (item >= start) & (item < stop)
    kinds[item[within] - start] = np.where(
        positive[within], Kind.MATCH.value, Kind.IGNORED.value
    ).astype(np.int8)
    return kinds


def _place(kinds: npt.NDArray[np.int8], ties: str) -> npt.NDArray[np.int64]:
    """Return the place of each kind among items at one distance, [n] int64."""
    order = {"pessimistic": (0, 1, 2), "optimistic": (1, 0, 2)}.get(ties, (0, 0, 0))
    return np.array(order)[kinds]


def _first(
    distances: FloatArray, kinds: npt.NDArray[np.int8], ties: str, most: int
) -> npt.NDArray[np.int64]:
    """Return the indices of the first items, in order."""
    near = np.arange(len(distances))
    if len(distances) > most:
        near = np.flatnonzero(distances <= np.partition(distances, most - 1)[most - 1])
    order = np.lexsort((near, _place(kinds[near], ties), distances[near]))
    return near[order][:most]


def _check(
    result: Evaluation, query: int, of_matches: FloatArray, nearest_negative: float, name: str
) -> None:
    """Check distances against the result's own.

    Raises
    ------
    InputError
    """
    statistics = result.statistics
    own = statistics.positive_distance[slice(*statistics.indptr[query : query + 2].tolist())]
    if not (
        np.array_equal(np.sort(of_matches), own)
        and nearest_negative == statistics.nearest_negative[query]
    ):
        raise InputError(
            f"the inputs of {name} have changed since it was evaluated: query {query} has other "
            "distances than in the result; put back what it was evaluated from, or evaluate again"
        )


def _ranked(result: Evaluation, query: int, kept: Sequence[tuple[Any, ...]]) -> RankedList:
    items: list[Item] = []
    rank = 0
    for distance, _, row, value in kept:
        kind = Kind(value)
        rank += kind is not Kind.IGNORED
        items.append(Item(row, distance, kind, None if kind is Kind.IGNORED else rank))
    found = any(one.kind is Kind.MATCH for one in items)
    return RankedList(query, tuple(items), None if found else _next_match(result, query))


def _next_match(result: Evaluation, query: int) -> Item | None:
    """Return the nearest match of a query, from the result; None where it has none."""
    statistics = result.statistics
    start, stop = statistics.indptr[query : query + 2].tolist()
    items: IntArray | None = statistics.positive_item
    if start == stop or items is None:
        return None
    ahead = statistics.closer[start] + {
        "pessimistic": statistics.tied[start],
        "stable": statistics.tied_before[start],
    }.get(result.options.ties, 0)
    distance = float(statistics.positive_distance[start])
    return Item(int(items[start]), distance, Kind.MATCH, int(ahead) + 1)
