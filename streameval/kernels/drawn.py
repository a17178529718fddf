"""Counting for several galleries that are drawn from one: pairs are placed once, for all of them.

Each pair of a tile is placed among the edges of its query, and what is in doubt is settled by its
canonical distance. What a gallery has ahead of its positives is then looked up, item by item. So a
gallery costs as much as its items take to be looked up, and no doubt is settled twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.edges import Edges
from streameval.kernels.galleries import Found, Galleries, Meanings, look_up
from streameval.kernels.places import place_row, room_for_places, settle_estimates, settle_places
from streameval.kernels.tiles import DOUBTS, Columns, Doubts, LevelTable, Tile
from streameval.typing import AnyArray, FloatArray, IntArray

NEAREST = -1  # in place of an edge: perhaps the nearest negative of a gallery


class DrawnCounts(NamedTuple):
    """What is counted for m queries in each of T galleries.

    Attributes
    ----------
    negatives : [T, m] int64
    within : [T, m, thresholds] int64
        Negatives within each threshold.
    histogram : [T, groups, L + 2] int64
        Negatives between limits: up to the first, between it and the next, ... The last are no
        negatives.
    nearest : [T, m] float64
    """

    negatives: IntArray
    within: IntArray
    histogram: IntArray
    nearest: FloatArray


class DrawnCounter:
    """Counts negatives closer than each positive and within each threshold, in each gallery.

    Parameters
    ----------
    edges : Edges
        Of a block of queries: their positives in all galleries, and limits.
    thresholds : [T] float64
        Of the edges' limits, those whose negatives are counted for each query.
    galleries : Galleries
    group : [m] int64
        The group of each query, whose negatives are counted between limits.
    groups : int
        Number of groups.

    Attributes
    ----------
    counts : DrawnCounts
    found : Found
    not_finite : int
        As of `RankCounter`.
    """

    def __init__(
        self,
        edges: Edges,
        thresholds: FloatArray,
        galleries: Galleries,
        group: IntArray,
        groups: int,
    ) -> None:
        queries, count = len(edges.indptr) - 1, galleries.number
        self.edges, self.not_finite = edges, 0
        self.found = Found.of(edges.positives, galleries)
        limits = edges.thresholds[np.isfinite(edges.thresholds)]
        self.counts = DrawnCounts(
            np.zeros((count, queries), np.int64),
            np.zeros((count, queries, len(thresholds)), np.int64),
            np.zeros((count, groups, len(limits) + 2), np.int64),
            np.full((count, queries), np.inf),
        )
        self._step = np.searchsorted(thresholds, np.append(limits, np.inf))
        self._group, self._galleries = group, galleries
        self._meanings = Meanings.of(edges)
        self._table = LevelTable(edges.indptr, edges.distance)
        self._doubts = Doubts.of(DOUBTS)
        self._places = np.empty(0, np.uint16)
        self._columns: tuple[Columns, Galleries] | None = None

    def add(self, tile: Tile) -> None:
        """Count a tile."""
        crowded = self._count(tile)
        for finer in tile.finer(crowded) if crowded.size else ():
            self.add(finer)

    def _count(self, tile: Tile) -> IntArray:
        """Count a tile but for rows that are crowded; return which these are."""
        values, crowded = tile.values, np.zeros(len(tile.values), np.bool_)
        if self._places.size < values.size:
            self._places = np.empty(values.size, np.uint16)
        places = self._places[: values.size].reshape(values.shape)
        columns, (rows, levels) = self._columns_of(tile), self._table.rows(tile)
        self._doubts = self._doubts.enlarged(2 * values.shape[1])
        reach = self._reach(tile)
        row, crowd = 0, values.shape[1] // 2 if tile.refinable else values.shape[1]
        while row < len(values):
            where = self.edges.indptr, columns, self.counts.nearest, reach, places, self._doubts
            row, filled, not_finite = place_tile(rows, levels, row, crowd, crowded, *where)
            self.not_finite += not_finite
            self._settle(tile, columns, places, filled)
        of = tile.query, crowded, tile.columns.item, self.edges.positives.item
        counted = self._step, self._group, *self.counts[:3]
        look_up(places, of, columns, self._meanings, self.found, counted)
        return np.flatnonzero(crowded)

    def _columns_of(self, tile: Tile) -> Galleries:
        """Return which columns of a tile are in each gallery."""
        if self._columns is None or self._columns[0] is not tile.columns:
            self._columns = tile.columns, self._galleries.columns(tile.columns.item)
        return self._columns[1]

    def _reach(self, tile: Tile) -> FloatArray:
        """Return up to what value a pair may be the nearest of each row, in each gallery, [m, T].

        The band is left out.
        """
        known = np.ascontiguousarray(self.counts.nearest[:, tile.query].T)
        if np.isinf(known).all():
            return known
        begins = known.shape[1] * np.arange(len(known) + 1)
        return tile.levels(tile.query, begins, known.ravel()).tied.reshape(known.shape)

    def _settle(self, tile: Tile, columns: Galleries, places: AnyArray, filled: int) -> None:
        """Settle the doubts of some rows of a tile."""
        if not filled:
            return
        row = np.zeros(len(self.edges.indptr) - 1, np.int64)
        row[tile.query] = np.arange(len(tile.query))
        closer = tile.closer
        if closer is not None:
            values = self._doubts.estimates(closer, filled)
            levels = self._table.rows(tile)[1], closer.band
            own = row, self.edges.indptr, *levels, self._doubts, places
            filled = settle_estimates(values, *own)
        exact = self._doubts.resolve(tile, filled)
        settle_places(exact, row, self.edges, self._doubts, places)
        note_nearest(exact, self._doubts, columns, self.counts.nearest)

    def read(self, number: int) -> Any:
        """Return the counts of one gallery.

        Returns
        -------
        indptr, place : [m + 1], [p] int64
            Where the positives of each query begin, and which of all these are.
        closer, tied, tied_before : [p] int64
        """
        indptr = self.found.indptr[number]
        own = slice(int(indptr[0]), int(indptr[-1]))
        return indptr - indptr[0], self.found.place[own], *self.found.ahead[:, own]


@compiled
def place_tile(  # type: ignore[no-untyped-def]
    rows, levels, row, crowd, crowded, indptr, columns, nearest, reach, places, doubts
):
    """Place the pairs of rows of a tile, until the list of doubts might not hold a row more.

    Parameters
    ----------
    rows, levels
        Of the tile: +inf where the pair is not a negative.
    row : int
        The row to begin with.
    crowd, crowded : int, [m] bool
        A row with more doubts is not placed, but noted.
    indptr : [queries + 1] int64
        Where the edges of each query begin.
    columns : Galleries
        Of the columns.
    nearest : [T, queries] float64
        Lowered by values that are exact.
    reach : [m, T] float64
        Up to what value, and the band, a pair may be the nearest.
    places : [m, n] uint16, written
    doubts : Doubts
        Of 2 n pairs at least, written. Their edge is `NEAREST` where it is known.

    Returns
    -------
    the row to go on with (m where all are placed), how many doubts there are, and how many values
    are NaN or ±inf, which is counted where there are no weights
    """
    tile, of, n = rows.values, rows.columns, rows.values.shape[1]
    padded = n + -n % 4
    values, cells = np.full(padded, np.inf, tile.dtype), np.zeros(padded, np.uint16)
    touched, wanted = np.empty(n + 1, np.uint32), np.zeros(n, np.uint8)
    room = room_for_places(rows.query, indptr)
    filled, not_finite = 0, 0
    while row < tile.shape[0] and filled + 2 * n <= len(doubts.query):
        i, band = rows.query[row], rows.band[row]
        begin, end = indptr[i], indptr[i + 1]
        own = levels.closer[begin:end], levels.tied[begin:end], band
        given = tile[row], of.weight, of.offset[rows.offset[row]]
        scratch = room, values, cells, touched
        before = filled
        filled, odd = place_row(row, i, given, own, *scratch, places[row], doubts, filled)
        not_finite += odd
        crowded[row] = filled - before > crowd
        if crowded[row]:
            filled = before
        else:
            filled = _list_nearest(
                i, values, band, reach[row], columns, wanted, nearest, doubts, filled
            )
        row += 1
    return row, filled, not_finite


@compiled
def _list_nearest(i, values, band, reach, columns, wanted, nearest, doubts, filled):  # type: ignore[no-untyped-def]
    """List what may be the nearest negative of a query in each gallery; note what is exact."""
    count, infinite = len(columns.indptr) - 1, values.dtype.type(np.inf)
    for t in range(count):
        held = columns.item[columns.indptr[t] : columns.indptr[t + 1]]
        least = np.float64(_least(values, held))
        if band == 0.0:
            nearest[t, i] = min(nearest[t, i], least)
        elif least < np.inf and least <= reach[t] + band:
            most = min(reach[t] + band, least + 2 * band)
            for k in held:
                value = values[np.uint32(k)]
                wanted[np.uint32(k)] |= (value <= most) & (value < infinite)
    if band > 0.0:
        for k in range(len(wanted)):
            if wanted[k]:
                doubts.query[filled], doubts.column[filled] = i, k
                doubts.edge[filled] = NEAREST
                filled += 1
                wanted[k] = 0
    return filled


@compiled
def _least(values, held):  # type: ignore[no-untyped-def]
    """Return the least of some values, by four at a time; +inf of none."""
    a = values.dtype.type(np.inf)
    b, c, d = a, a, a
    whole = len(held) // 4
    for four in range(whole):
        k = 4 * four
        e, f = values[np.uint32(held[k])], values[np.uint32(held[k + 1])]
        g, h = values[np.uint32(held[k + 2])], values[np.uint32(held[k + 3])]
        a, b = e if e < a else a, f if f < b else b
        c, d = g if g < c else c, h if h < d else d
    for k in range(4 * whole, len(held)):
        e = values[np.uint32(held[k])]
        a = e if e < a else a
    a, c = b if b < a else a, d if d < c else c
    return c if c < a else a


@compiled
def note_nearest(exact, doubts, columns, nearest):  # type: ignore[no-untyped-def]
    """Lower the distance of the nearest negative in each gallery that has a pair, [filled]."""
    query, column, _ = doubts
    for t in range(len(exact)):
        k = column[t]
        for s in range(columns.of_item[k], columns.of_item[k + 1]):
            gallery = columns.gallery[s]
            nearest[gallery, query[t]] = min(nearest[gallery, query[t]], exact[t])
