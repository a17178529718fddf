"""Places: in which slot between its query's edges each pair of a tile lies.

What many evaluations count of the same pairs is looked up in these, so that each pair is placed,
and each doubt settled, once. Slots are those of `edges`.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.buckets import Room, lay_codes
from streameval.kernels.cells import quantise
from streameval.kernels.edges import slot_of
from streameval.kernels.grids import CELLS, LAST, span_grid
from streameval.kernels.settling import edge_near

MOST_POSITIVES = 30_000  # of a query: with other limits, no more edges than two bytes number


@compiled
def nowhere(edges):  # type: ignore[no-untyped-def]
    """Return the place of a pair that is no negative of a query with so many edges."""
    return 2 * edges + 2


@compiled
def room_for_places(query, indptr):  # type: ignore[no-untyped-def]
    """Return memory to place rows of some queries, whose edges begin at `indptr`."""
    m = 0
    for i in query:
        m = max(m, indptr[i + 1] - indptr[i])
    return Room(
        np.empty(CELLS, np.uint16),
        np.zeros((1, 1), np.uint16),
        np.empty((2, m + 1)),
        np.empty((2, m), np.uint16),
        np.empty(0, np.uint32),
    )


@compiled
def place_row(row, query, given, own, room, values, cells, touched, out, doubts, filled):  # type: ignore[no-untyped-def]
    """Write the place of each pair of a row; list pairs in doubt.

    Parameters
    ----------
    row : int
    query : int
        Of the row.
    given : tuple
        Values of the row [n], and their weight and offset: see `quantise`.
    own : tuple
        Edges and band of the row: `closer`, `tied`, `band`.
    room : Room
    values, cells, touched
        [>= n], written: the row weighted and offset, and scratch.
    out : [n] uint16, written
        Of pairs in doubt, any slot.
    doubts, filled : Doubts, int
        Of n more pairs; appended to.

    Returns
    -------
    how many doubts there are; how many values are NaN or ±inf, which is counted without weight
    """
    (closer, tied, band), (raw, weight, offset) = own, given
    m, n = len(tied), len(raw)
    kind = values.dtype.type
    origin, scale, far = span_grid(closer, tied, band, 0.0, 0.0, raw, weight, offset)
    _, odd = quantise(raw, weight, offset, origin, scale, far, values, cells)
    code, begins, ends = room.code, room.bounds[0], room.bounds[1]
    infinite, none = kind(np.inf), np.uint16(nowhere(m))
    found, one = np.uint64(0), np.uint64(1)
    doubt_query, doubt_column, doubt_edge = doubts
    if band == np.inf:  # nothing is told by the values
        code[:] = 1 if m else 0
        begins[:m], ends[:] = -np.inf, np.inf
        begins[m] = np.nan
    else:
        lay_codes((closer, tied, band, origin, scale), values, room)
        code[LAST] = 2 * m
    for k in range(n):
        at = code[cells[k]]
        taken = values[k] != infinite
        out[k] = at if taken else none
        touched[found] = k
        found += np.uint64(at) & np.uint64(taken) & one
    for t in range(found):
        k = touched[t]
        value = np.float64(values[k])
        e = np.int64(out[k] >> np.uint16(1))
        while ends[e] < value:
            e += 1
        inside = value >= begins[e]
        out[k] = 2 * e + (inside and band == 0.0)
        if inside and band > 0.0:
            doubt_query[filled], doubt_column[filled], doubt_edge[filled] = query, k, e
            filled += 1
    return filled, odd


@compiled
def settle_estimates(values, row, indptr, levels, band, doubts, places):  # type: ignore[no-untyped-def]
    """Write the places of pairs that lie clear of every edge; keep the others on the list.

    Parameters
    ----------
    values : [filled] float32
        Of the doubts, closer than those that left them in doubt.
    row, doubts, places
        As of `settle_places`.
    indptr : [queries of the block + 1] int64
    levels : Levels
        Of all edges of the block.
    band : [queries of the block] float64

    Returns
    -------
    how many doubts are left
    """
    (query, column, edge), (closer, tied) = doubts, levels
    left = 0
    for t in range(len(values)):
        i, k, e, value = query[t], column[t], edge[t], np.float64(values[t])
        if e >= 0:
            near, in_doubt = edge_near(value, closer, tied, band[i], indptr[i], indptr[i + 1], e)
            e = near - indptr[i]
            if not in_doubt:
                places[row[i], k] = 2 * e
                continue
        query[left], column[left], edge[left] = i, k, e
        left += 1
    return left


@compiled
def settle_places(exact, row, edges, doubts, places):  # type: ignore[no-untyped-def]
    """Write the places of pairs that were in doubt, from their canonical distances, [filled].

    Parameters
    ----------
    exact : [filled] float64
    row : [queries of the block] int64
        The row of each query.
    edges : Edges
    doubts : Doubts
        Those with an edge below 0 are placed already.
    places : [m, n] uint16, written
    """
    indptr, distance = edges.indptr, edges.distance
    query, column, edge = doubts
    for t in range(len(exact)):
        if edge[t] >= 0:
            i = query[t]
            slot = slot_of(exact[t], edge[t], distance, indptr[i], indptr[i + 1])
            places[row[i], column[t]] = slot
