"""Counting of ranks and thresholds: the negatives in every slot between the edges of a query.

`count_tile` counts the values of a tile that lie clear of every edge, and puts the others on a list
of `Doubts`, which `settling` counts. Values that are exact are counted at once. Rows of which most
values are in doubt are left to finer tiles.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streameval.compilation import compiled
from streameval.distances.llvm import trailing_zeros
from streameval.kernels.buckets import FEWEST, MOST, count_row, room_for
from streameval.kernels.cells import BLOCK, bin_row, bits_up_to, least_of
from streameval.kernels.edges import Edges, note_tie, read_slots
from streameval.kernels.grids import (
    CELLS,
    RUN,
    SEARCH,
    WAYS,
    edge_of,
    fold,
    lay_grid,
    may_be_within,
    span_grid,
)
from streameval.kernels.limits import Sides, up_to
from streameval.kernels.selection import (
    cells_of_row,
    least_sampled,
    limit_of,
    room_for_cells,
    selects,
)
from streameval.kernels.settling import NEAREST, place_doubts, place_estimates
from streameval.kernels.tiles import DOUBTS, Columns, Doubts, LevelTable, Tile, greatest_finite
from streameval.typing import FloatArray, IntArray

COLUMNS = 4 * (8192 + 48)  # counted at a time: their offsets and values stay in L2
MOST_ITEMS = (1 << 32) - 1  # of a task: what a slot holds


class Counts(NamedTuple):
    """What is counted for a block of m queries.

    Attributes
    ----------
    slots : [2E + m] uint32
        Those of query i begin at 2·indptr[i] + i. A task has `MOST_ITEMS` at most.
    ties : [P] int64
        Negatives that tie with a positive, as `edges.note_tie` notes them.
    nearest : [m] float64
    """

    slots: npt.NDArray[np.uint32]
    ties: IntArray
    nearest: FloatArray


class RankCounter:
    """Counts negatives closer than each positive and within each threshold.

    Parameters
    ----------
    edges : Edges
        Of a block of queries.

    Attributes
    ----------
    counts : Counts
    not_finite : int
        Values of exact tiles so far that are NaN or ±inf; the counts are of no use where there
        are others than those masked.
    """

    def __init__(self, edges: Edges) -> None:
        queries = len(edges.indptr) - 1
        self.edges, self.not_finite = edges, 0
        self.counts = Counts(
            np.zeros(2 * len(edges.distance) + queries, np.uint32),
            np.zeros(len(edges.positives.distance), np.int64),
            np.full(queries, np.inf),
        )
        self._furthest = edges.positives.furthest()
        self._table = LevelTable(edges.indptr, edges.distance)
        self._doubts, self._filled, self._vectors = Doubts.of(DOUBTS), 0, selects()
        finite = edges.thresholds[np.isfinite(edges.thresholds)]
        pitch = np.median(np.diff(finite)) if len(finite) > 1 else 0.0
        # Three of evenly spaced thresholds; none where there are no two.
        self._three = finite[-1:] - pitch * np.array([2.0, 1.0, 0.0]) if pitch else finite[:0]

    def wanted(self, item: IntArray) -> Sides:
        """Return up to which distance of each query negatives change the ranks.

        That of the furthest positive, or of the nearest negative so far.
        """
        return up_to(np.maximum(self._furthest, self.counts.nearest))

    def add(self, tile: Tile) -> None:
        """Count a tile."""
        crowded = self._list(tile) if tile.sparse else self._count(tile)
        for finer in tile.finer(crowded) if crowded.size else ():
            self.add(finer)
        if tile.last:
            self._settle(tile)

    def _list(self, tile: Tile) -> IntArray:
        """List the pairs of a tile that are marked; none of its rows is crowded."""
        rows, levels = self._table.rows(tile)
        band, reach = np.full((2, len(self.counts.nearest)), -np.inf)
        band[tile.query] = rows.band
        reach[tile.query] = tile.row_levels(self.counts.nearest[tile.query]).tied + rows.band
        for listed, values in tile.listed():
            count = len(values)
            if self._filled + 2 * count > len(self._doubts.query):
                self._settle(tile)
                self._doubts = self._doubts.enlarged(2 * count)
            known = self.edges, levels, band, reach
            self._filled = place_estimates(
                values, listed, *known, self.counts, self._doubts, self._filled
            )
        return np.empty(0, np.int64)

    def _count(self, tile: Tile) -> IntArray:
        """Count a tile but for rows that are crowded; return which these are."""
        values, crowded = tile.values, np.zeros(len(tile.values), np.bool_)
        rows, levels = self._table.rows(tile)
        pitch, phase = self._even_levels(tile)
        whole = values.shape[1] <= COLUMNS  # a row that is counted in pieces stays with this tile
        crowd = values.shape[1] // 2 if tile.refinable and whole else sys.maxsize
        for left in range(0, values.shape[1], COLUMNS):
            right, row = min(left + COLUMNS, values.shape[1]), 0
            item, weight, offset = tile.columns
            weight = None if weight is None else weight[left:right]
            part = rows._replace(columns=Columns(item[left:right], weight, offset))
            while row < len(values):
                reach = tile.row_levels(self.counts.nearest[tile.query]).tied + rows.band
                grid, noted = (pitch, phase, reach), (self._doubts, self._filled)
                where = self.edges, self.counts
                crowding = crowd, crowded, self._vectors
                row, self._filled, not_finite = count_tile(
                    part, levels, grid, row, left, right, *where, *noted, *crowding
                )
                self.not_finite += not_finite
                if row < len(values):
                    self._settle(tile)
        return np.flatnonzero(crowded)

    def _even_levels(self, tile: Tile) -> tuple[FloatArray, FloatArray]:
        """Return how far apart most thresholds are in the unit of each row, and the last of them.

        0 where there are none, or where distances are even and values, their squares, are not.
        """
        rows = len(tile.query)
        if not len(self._three):
            return np.zeros(rows), np.zeros(rows)
        three = np.tile(self._three, rows)
        level = tile.levels(tile.query, 3 * np.arange(rows + 1), three).tied.reshape(rows, 3)
        with np.errstate(invalid="ignore"):
            before, step = np.diff(level).T
            even = np.abs(step - before) <= 1e-6 * step
        return np.where(even, step, 0.0), level[:, 2].copy()  # kernels take it in one layout

    def _settle(self, tile: Tile) -> None:
        """Count the doubts so far; they are of one set of columns."""
        closer = tile.closer if self._filled else None
        if closer is not None:
            values = self._doubts.estimates(closer, self._filled)
            _, levels = self._table.rows(tile)
            every, nearest = np.arange(len(closer.band) + 1), self.counts.nearest
            reach = tile.levels(every[:-1], every, nearest).tied + closer.band
            known = self.edges, levels, closer.band, reach
            self._filled = place_estimates(
                values, self._doubts, *known, self.counts, self._doubts, 0
            )
        if self._filled:
            exact = self._doubts.resolve(tile, self._filled)
            place_doubts(exact, tile.columns.item, self.edges, self.counts, self._doubts)
        self._filled = 0

    def read(self, negatives: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return counts per positive and per threshold: see `read_slots`."""
        self._table.clear()  # their memory is free before more is taken
        return read_slots(self.edges, self.counts.slots, self.counts.ties, negatives)


@compiled
def count_tile(  # type: ignore[no-untyped-def]
    rows, levels, grid, row, left, right, edges, counts, doubts, filled, crowd, crowded, vectors
):
    """Count rows of a tile, until the list of doubts might not hold a row more.

    Parameters
    ----------
    rows, levels
        Of the tile: +inf where the pair is not a negative. Item and weight are of the columns to
        count, values and the offset of all.
    grid : tuple of [m] float64
        Pitch and phase: see `grids.lay_grid`. A value up to the third may be the query's nearest
        negative.
    row : int
        The row to begin with.
    left, right : int
        The columns to count.
    edges : Edges
    counts : Counts
        Added to.
    doubts, filled : Doubts, int
        Of capacity 2n at least where there is a band; appended to.
    crowd, crowded : int, [m] bool
        A row with more values in touched cells is not counted, but noted.
    vectors : True or None
        Whether values are selected where few are of interest: see `selection`.

    Returns
    -------
    the row to go on with (m where all are counted), how many doubts there are, and how many
    values are NaN or ±inf, which is counted where there are no weights
    """
    tile, columns, n = rows.values, rows.columns, right - left
    room, many = room_for_cells(n, tile), room_for(rows.query, edges.indptr, n)
    fours, touched = np.empty(n // 4 + 2, np.uint32), np.empty(n + 7, np.uint32)
    code, bins = np.empty(CELLS + RUN, np.uint8), np.zeros((WAYS, SEARCH + 1), np.uint32)
    # Taken out of their tuples: looked up there, each would count references.
    indptr, slots, nearest = edges.indptr, counts.slots, counts.nearest
    item, weight, (pitch, phase, reaches) = columns.item, columns.weight, grid
    not_finite = 0
    while row < tile.shape[0]:
        i, band = rows.query[row], rows.band[row]
        if band > 0.0 and filled + 2 * n > len(doubts.query):
            break
        begin, end = indptr[i], indptr[i + 1]
        closer, tied = levels.closer[begin:end], levels.tied[begin:end]
        given, add = tile[row][left:right], columns.offset[rows.offset[row]][left:right]
        reach = reaches[row] if band > 0.0 else nearest[i]
        if reach == np.inf:
            reach = least_sampled(given, weight, add) + 2 * band
        span = span_grid(closer, tied, band, pitch[row], phase[row], given, weight, add)
        (origin, scale, far), limit = span, limit_of(tied, band, reach, tile)
        written = cells_of_row((given, weight, add), span, limit, room, vectors)
        of_row, of_cell, places, lowest, odd = written
        not_finite += odd
        own, where = (closer, tied, band, origin, scale), (i, left, item, places)
        if FEWEST <= end - begin <= MOST and band < np.inf:
            found, listed, least = count_row(own, of_row, of_cell, many, fours, touched)
            crowded[row] = 4 * listed > crowd
            if not crowded[row]:
                at = touched[:listed], many.near
                filled = _decide(of_row, at, band, where, edges, counts, doubts, filled)
                fold(many.bins, end - begin, slots, 2 * begin + i)
            before = lowest == 0 and not many.code[0] & 1
        else:
            base, stop = lay_grid(closer, tied, band, origin, scale, tile, code)
            found = bin_row(of_cell, code, bins, fours, touched)
            crowded[row], least = found > crowd, np.inf
            if not crowded[row]:
                touch = of_row, of_cell, code, touched[:found]
                if band > 0.0:
                    slot = 2 * begin + i
                    least, filled = _sort_out(touch, base, own, where, slots, slot, doubts, filled)
                else:
                    least = _place(touch, base, own, where, edges, counts)
                fold(bins, stop - base, slots, 2 * (begin + base) + i)
            before = lowest == 0 and not code[0] & 1
        row += 1
        if crowded[row - 1]:
            bins[:] = 0
            many.bins[:] = 0
            continue
        if before or may_be_within(lowest, tile.dtype.type(reach), origin, scale, far):
            least = np.float64(least_of(of_row))
        if band == 0.0:
            nearest[i] = min(nearest[i], least)
        elif least <= reach and least < np.inf:  # perhaps the nearest negative, or one of them
            reach = min(reach, least + 2 * band)
            filled = _list_up_to(of_row, places, reach, i, left, doubts, filled)
    return row, filled, not_finite


@compiled
def _list_up_to(values, places, most, query, left, doubts, filled):  # type: ignore[no-untyped-def]
    """List the finite values of a row up to one as perhaps nearest; return how many doubts are.

    Their columns are `places`, counted from `left`.
    """
    queries, columns, edges = doubts
    most = min(most, greatest_finite(values))
    for start in range(0, len(values), BLOCK):
        bits = bits_up_to(values, start, most)
        while bits != 0:
            queries[filled], edges[filled] = query, NEAREST
            columns[filled] = left + places[start + trailing_zeros(bits)]
            filled += 1
            bits &= bits - np.uint32(1)
    return filled


@compiled
def _sort_out(touch, base, own, where, slots, first_slot, doubts, filled):  # type: ignore[no-untyped-def]
    """Count values in touched cells, list those in doubt; return the least, and how many.

    It takes no branch where either way is as likely, and unsigned numbers, as `cells.bin_row` does.
    """
    values, cells, code, touched = touch
    (closer, tied, band), (query, column, edge) = own[:3], doubts
    (i, left, _, places), least = where, np.inf
    m, first, to = np.uint64(len(tied)), np.uint64(first_slot), np.uint64(filled)
    for k in touched:
        value = np.float64(values[k])
        e = edge_of(value, code[cells[k]], base, tied, band)
        within = closer[min(e, m - np.uint64(1))] - band if m else np.inf
        clear = e == m or value < within
        slots[first + e + e] += clear
        query[to], column[to], edge[to] = i, left + places[k], e
        to += np.uint64(not clear and value != np.inf)
        least = min(least, value)
    return least, np.int64(to)


@compiled
def _place(touch, base, own, where, edges, counts):  # type: ignore[no-untyped-def]
    """Count exact values in touched cells; return the least."""
    values, cells, code, touched = touch
    closer, tied, _ = own[:3]
    i, _, item, places = where
    least, m, slots, ties = np.inf, np.uint64(len(tied)), counts.slots, counts.ties
    first_slot = np.uint64(2 * edges.indptr[i] + i)
    of_query, positives, items = edges.positives
    first, last = of_query[i], of_query[i + 1]
    previous, e, tie, before = np.nan, np.uint64(0), first, 0
    for k in touched:
        value, own_item = np.float64(values[k]), item[places[k]]
        if value != previous:  # copies of a row follow one another
            e, tie, previous = edge_of(value, code[cells[k]], base, tied, 0.0), first, value
            least = min(least, value)
        if e == m or value < closer[e]:
            slots[first_slot + e + e] += 1
        else:
            slots[first_slot + e + e + np.uint64(1)] += 1
            tie = first if own_item < before else tie  # of another row, as far
            tie, before = note_tie(value, own_item, positives, items, tie, last, ties), own_item
    return least


@compiled
def _decide(values, listed, band, where, edges, counts, doubts, filled):  # type: ignore[no-untyped-def]
    """Count exact values that are at edges, or list values as doubts; return how many these are."""
    (touched, near), (i, left, item, places) = listed, where
    first_slot, slots, ties = 2 * edges.indptr[i] + i, counts.slots, counts.ties
    of_query, positives, items = edges.positives
    first, last = of_query[i], of_query[i + 1]
    doubt_query, doubt_column, doubt_edge = doubts
    previous, tie, before = np.nan, first, 0
    for t in range(len(touched)):
        k, e = touched[t], near[t]
        if band > 0.0:
            doubt_query[filled], doubt_column[filled] = i, left + places[k]
            doubt_edge[filled] = e
            filled += 1
        else:
            value, own_item = np.float64(values[k]), item[places[k]]
            slots[first_slot + 2 * np.int64(e) + 1] += 1
            tie = first if value != previous or own_item < before else tie
            tie, before = note_tie(value, own_item, positives, items, tie, last, ties), own_item
            previous = value
    return filled
