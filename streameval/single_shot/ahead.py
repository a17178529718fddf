"""Negatives ahead of each positive, by identity: what CMC under single gallery shot is made of.

Only a negative that is not further than its query's furthest positive matters, mostly a small
part of them. It is listed once, for the first positive p that it is ahead of, in one of three
*rows*:

    3 p        closer than p, and further than the positives before
    3 p + 1    as far as p, which is the first of those as far that come later in the gallery
    3 p + 2    as far as p, the last of those as far, which all come earlier in the gallery

so that the negatives ahead of a positive, under any tie rule, are those of all rows of its query
up to one of its own. An entry of the list is a number of 64 bits,

    row | identity | how many

so that a list that is sorted has the rows one after the other, and what is equal side by side.

Where a row has so many identities ahead that the positive is surely not among the first R, it is
*hopeless*, and so are the query's rows after it: nothing is listed for them any more. So a query
lists few negatives, however large the gallery, and however bad the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.edges import Edges, Positives, first_reached, slot_of
from streameval.kernels.selection import list_values
from streameval.kernels.tiles import product
from streameval.metrics.ranks import tie_groups
from streameval.typing import HashArray, IntArray

ROWS = 3  # of each positive
SHOT_DOUBTS = 1 << 17  # pairs close to a positive that are kept, to be decided together
SHOT_RANKS = 100  # ranks of CMC that are counted
ROUNDING = 1e-6  # of identities: of a number that is rounded down, in a bound
ONE = 1 << 32  # the weight of a whole identity: in whole numbers, sums don't depend on the order


class Packing(NamedTuple):
    """Lowest bits of two numbers of an entry; the number of negatives lies below `identity`."""

    row: np.uint64
    identity: np.uint64


class Ahead(NamedTuple):
    """The list of negatives ahead of the positives of a block of m queries.

    Attributes
    ----------
    entries : [capacity] uint64
        See the module's overview.
    packing : Packing
    cut : [m] int64
        The first row of each query that is hopeless; beyond its last where none is.
    """

    entries: HashArray
    packing: Packing
    cut: IntArray

    @classmethod
    def of(cls, indptr: IntArray, identities: int, capacity: int) -> Ahead:
        """Return the list of nothing; memory that isn't filled is not touched.

        Parameters
        ----------
        indptr : [m + 1] int64
            Where each query's positives begin.
        identities, capacity : int
        """
        row = 64 - max(ROWS * int(indptr[-1]), 1).bit_length()
        packing = Packing(np.uint64(row), np.uint64(row - max(identities, 1).bit_length()))
        return cls(np.empty(capacity, np.uint64), packing, ROWS * indptr[1:])


def most_entries(items: IntArray, number: IntArray, rows: int, hopeless: int) -> int:
    """Return how many entries of a query are left at most after `fold`.

    Parameters
    ----------
    items : [n] int64
        Items of an identity, ascending, each number once.
    number : [n] int64
        Identities of so many items.
    rows : int
        Of the query.
    hopeless : int
        Identities ahead from which on a row is hopeless.
    """
    largest, number = items[items > 0][::-1], number[items > 0][::-1]
    weight = np.minimum(largest, max(rows, 1)) / largest  # of the entries of an identity
    before = np.cumsum(number * weight) - number * weight
    whole = np.floor((hopeless - before) / weight + ROUNDING)
    listed = np.clip(whole + 1, 0, number)
    return int(listed @ np.minimum(largest, rows))


def shot_entries(kept: int, spare: int) -> int:
    """Return the capacity of a list that keeps so many entries, and is given `spare` at a time."""
    return kept + kept // 4 + 2 * spare


class Leading(NamedTuple):
    """The distances of the positives of a block of m queries.

    Attributes
    ----------
    edges : Edges
        Of the positives alone.
    first : [E] int64
        The first of the positives at each edge.
    """

    edges: Edges
    first: IntArray

    @classmethod
    def of(cls, positives: Positives) -> Leading:
        """Return the distances of positives."""
        starts = positives.indptr[:-1][np.diff(positives.indptr) > 0]
        first, _ = tie_groups(positives.distance, starts)
        return cls(Edges.build(positives, np.empty(0)), first)


@compiled
def pack(row, identity, packing):  # type: ignore[no-untyped-def]
    """Return the entry of one negative."""
    return np.uint64(row) << packing.row | np.uint64(identity) << packing.identity | np.uint64(1)


@compiled
def unpack(entry, packing):  # type: ignore[no-untyped-def]
    """Return the row, the identity and the number of negatives of an entry."""
    row_bit, identity_bit = packing
    identity = entry >> identity_bit & ((np.uint64(1) << (row_bit - identity_bit)) - np.uint64(1))
    number = entry & ((np.uint64(1) << identity_bit) - np.uint64(1))
    return np.int64(entry >> row_bit), identity, np.int64(number)


@compiled
def fold(ahead, size, indptr, weight, most):  # type: ignore[no-untyped-def]
    """Add up what is equal in a sorted list, and leave out what is hopeless.

    Parameters
    ----------
    ahead : Ahead
        Sorted; written, and `cut` moved forward.
    size : int
        How many entries it has.
    indptr : [m + 1] int64
        Where each query's positives begin.
    weight : [H] int64
        Of an item of each identity, `ONE` over its items: how many drawn negatives are ahead,
        in the mean, is the sum of these at least.
    most : int
        More than that is hopeless.

    Returns
    -------
    how many entries there are
    """
    entries, packing, cut = ahead
    below = np.int64((np.uint64(1) << packing.identity) - np.uint64(1))
    kept, i, total, last_row, last_identity, last_number = 0, 0, 0, -1, np.uint64(0), 0
    for t in range(size):
        row, identity, number = unpack(entries[t], packing)
        while row >= ROWS * indptr[i + 1]:
            i, total = i + 1, 0
        if row >= cut[i]:
            continue
        total += weight[identity] * number
        if total > most:
            cut[i] = row
            while kept > 0 and np.int64(entries[kept - 1] >> packing.row) == row:
                kept -= 1
        elif row == last_row and identity == last_identity and number <= below - last_number:
            entries[kept - 1] += np.uint64(number)
            last_number += number
        else:
            entries[kept] = entries[t]
            last_row, last_identity, last_number = row, identity, number
            kept += 1
    return kept


@compiled
def collect(  # type: ignore[no-untyped-def]
    rows, levels, row, identity, leading, ahead, size, room, doubts, crowd, crowded
):
    """List the values of a tile that are clearly ahead of a positive, and those in doubt.

    Parameters
    ----------
    rows, levels : Rows, Levels
        Of the tile, and of the positives.
    row : int
        The row to begin with.
    identity : [n] int32
        Identity of each column.
    leading : Leading
    ahead : Ahead
        Appended to.
    size, room : int
        How many entries it has, and may have before it is to be folded.
    doubts : Doubts
        Of capacity n at least; written.
    crowd, crowded : int, [m] bool
        A row with more values in doubt is not listed, but noted.

    Returns
    -------
    the row to go on with (m where all are looked at), how many entries and doubts there are
    """
    tile, columns, filled = rows.values, rows.columns, 0
    n = tile.shape[1]
    # Taken out of their tuples: looked up there, each would count references.
    indptr, first = leading.edges.indptr, leading.first
    doubt_query, doubt_column, doubt_edge = doubts
    entries, packing, cut = ahead
    weight, closer, tied = columns.weight, levels.closer, levels.tied
    while row < tile.shape[0] and filled + n <= len(doubt_query) and size + n <= room:
        i, band, before = rows.query[row], rows.band[row], (size, filled)
        begin, end = indptr[i], indptr[i + 1]
        while begin < end and ROWS * first[end - 1] >= cut[i]:
            end -= 1
        if begin < end:
            values, offset = tile[row], columns.offset[rows.offset[row]]
            reach = tied[end - 1] + band
            for k in list_values(values, weight, offset, reach, np.inf, np.inf):
                value = np.float64(product(values, weight, k) + offset[k])
                low = first_reached(value, tied, band, begin, end)
                if low == end:
                    continue
                if value < closer[low] - band:
                    entries[size] = pack(ROWS * first[low], identity[k], packing)
                    size += 1
                else:
                    doubt_query[filled], doubt_column[filled] = i, k
                    doubt_edge[filled] = low - begin
                    filled += 1
        crowded[row] = filled - before[1] > crowd
        if crowded[row]:
            size, filled = before
        row += 1
    return row, size, filled


@compiled
def place(item, identity, leading, ahead, size, doubts, exact):  # type: ignore[no-untyped-def]
    """List the doubts by their canonical distances; return the number of entries."""
    edges, first = leading.edges, leading.first
    indptr, distances = edges.indptr, edges.distance
    last, _, items = edges.positives
    doubt_query, doubt_column, doubt_edge = doubts
    entries, packing, cut = ahead
    for t in range(len(exact)):
        i, k = doubt_query[t], doubt_column[t]
        slot = slot_of(exact[t], doubt_edge[t], distances, indptr[i], indptr[i + 1])
        e = indptr[i] + slot // 2
        if e == indptr[i + 1]:
            continue
        row = ROWS * first[e]
        if slot & 1:
            end = first[e + 1] if e + 1 < indptr[i + 1] else last[i + 1]
            ahead_of = first_reached(item[k], items, 0, first[e], end)
            row = ROWS * (end - 1) + 2 if ahead_of == end else ROWS * ahead_of + 1
        if row < cut[i]:
            entries[size] = pack(row, identity[k], packing)
            size += 1
    return size
