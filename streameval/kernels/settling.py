"""Settling: pairs that the values of a tile leave in doubt, counted by what tells them closer.

First by products of single pairs, where these are closer than a tile's; then by canonical
distances.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.edges import first_reached, note_tie, slot_of
from streameval.typing import Float32Array, FloatArray, Indices

NEAREST = -1  # in place of an edge: close to none, but perhaps the query's nearest negative


class Closer(Protocol):
    """What tells single pairs closer than the values of a tile, in their unit.

    Attributes
    ----------
    band : [queries of the block] float64
    """

    band: FloatArray

    def estimates(self, query: Indices, column: Indices) -> Float32Array:
        """Return the values of pairs in doubt, [p]; note of which queries they are many."""


@compiled(inline="always")
def edge_near(value, closer, tied, band, begin, end, hint):  # type: ignore[no-untyped-def]
    """Return the first edge of a query whose band does not end before a value, and if it is in it.

    Parameters
    ----------
    value : float64
    closer, tied : [E] float64
        `Levels` of all edges.
    band : float64
    begin, end : int
        The query's edges; `end` is returned where all end before the value.
    hint : int
        Of its edges, counted from its first, where to begin to look; may be beyond the last.
    """
    e, step = min(begin + np.int64(hint), end), 1
    if e < end:
        e += np.int64(tied[e] + band < value)  # as likely as not: no branch
    while e < end and tied[e] + band < value:
        e += 1
    if e > begin and tied[e - 1] + band >= value:
        while e - step >= begin and tied[e - step] + band >= value:
            e, step = e - step, 2 * step
        e = first_reached(value, tied, band, max(e - step, begin), e)
    return e, e < end and not value < closer[e] - band


@compiled
def place_estimates(  # type: ignore[no-untyped-def]
    values, listed, edges, levels, band, reach, counts, doubts, filled
):
    """Count pairs whose values lie clear of every edge; list the others.

    Parameters
    ----------
    values : [p] float32
    listed : Doubts
        The edge of each is where to begin to look; `NEAREST` of one that is counted already.
    edges, levels : Edges, Levels
    band, reach : [queries of the block] float64
        A value up to the second, which is lowered, may be the query's nearest negative.
    counts : Counts
        Added to.
    doubts, filled : Doubts, int
        Of p more pairs, or `listed` and 0; appended to.

    Returns
    -------
    how many doubts there are
    """
    indptr, slots = edges.indptr, counts.slots
    (closer, tied), (queries, columns, hints) = levels, listed
    doubt_query, doubt_column, doubt_edge = doubts
    for t in range(len(values)):
        i = queries[t]
        reach[i] = min(reach[i], np.float64(values[t]) + 2 * band[i])
    for t in range(len(values)):
        i, value = queries[t], np.float64(values[t])
        in_doubt, begin, e = False, indptr[i], np.int64(0)
        if hints[t] != NEAREST:
            e, in_doubt = edge_near(value, closer, tied, band[i], begin, indptr[i + 1], hints[t])
            if not in_doubt:
                slots[2 * e + i] += 1
        if in_doubt or value <= reach[i]:
            doubt_query[filled], doubt_column[filled] = i, columns[t]
            doubt_edge[filled] = e - begin if in_doubt else NEAREST
            filled += 1
    return filled


@compiled
def place_doubts(exact, item, edges, counts, doubts):  # type: ignore[no-untyped-def]
    """Count doubts of one set of columns by their canonical distances, [filled] float64."""
    indptr, distances, known, _ = edges
    of_query, positives, items = known
    slots, ties, nearest = counts
    doubt_query, doubt_column, doubt_edge = doubts
    for t in range(len(exact)):  # query by query, with the query's edges in the cache
        i = doubt_query[t]
        nearest[i] = min(nearest[i], exact[t])
        if doubt_edge[t] == NEAREST:
            continue
        slot = slot_of(exact[t], doubt_edge[t], distances, indptr[i], indptr[i + 1])
        slots[2 * indptr[i] + i + slot] += 1
        if slot & 1:  # at an edge
            tied_item = item[doubt_column[t]]
            note_tie(exact[t], tied_item, positives, items, of_query[i], of_query[i + 1], ties)
