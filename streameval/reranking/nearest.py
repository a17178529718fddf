"""The nearest images of every image, and its greatest distance: the first stage of re-ranking.

All images are ranked against all by tiles of products, as for counting. What a tile leaves open is
decided by canonical distances: the nearest K, ties by index, and the greatest distance are those
of float64. Distances are symmetric, to the bit: each tile is looked at by rows, and then, turned,
by columns, so that half of all pairs are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.extremes import list_limits
from streameval.kernels.tiles import Columns, Doubts, Rows, Tile, product
from streameval.planning.plan import Task
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.task import masked_tiles
from streameval.typing import BoolArray, FloatArray, Indices, IntArray, Span

NOTHING = -1  # in place of an item, where there are fewer
GROUPS = 4  # of columns, for each neighbour: the least of each bounds the K-th least of all
FAR = 2.0**100  # a distance whose level tells how levels ascend
ROUNDED = 2.0**-49  # relative error of a level
SQUARE = 32  # rows and columns that are turned together


class Reach(NamedTuple):
    """What the tasks of a process know of queries: no others are wanted than those within.

    Attributes
    ----------
    nearest : [queries] float64
        No less than the K-th least distance; tasks lower it.
    greatest : [queries] float64
        A distance that there is; tasks raise it.
    """

    nearest: FloatArray
    greatest: FloatArray

    @classmethod
    def unknown(cls, queries: int) -> Reach:
        """Return what is known at first."""
        return cls(np.full(queries, np.inf), np.full(queries, -np.inf))

    def of(self, queries: Span) -> Reach:
        """Return what is known of some queries; what is written to it is known of all."""
        return Reach(*(own[slice(*queries)] for own in self))


class NearestItems:
    """Keeps the nearest K items of each query of a block, and its greatest distance.

    Parameters
    ----------
    most : int
        K.
    reach : Reach
        Of its queries.

    Attributes
    ----------
    distance : [queries, K] float64
        Ascending, ties by item; +inf where there are fewer.
    item : [queries, K] int64
    greatest : [queries] float64
        −inf where there is no item.
    """

    def __init__(self, most: int, reach: Reach) -> None:
        queries = len(reach.nearest)
        self.distance = np.full((queries, most), np.inf)
        self.item = np.full((queries, most), NOTHING)
        self.greatest = np.full(queries, -np.inf)
        self._reach, self._doubts = reach, Doubts.of(0)

    def add(self, tile: Tile) -> IntArray:
        """Note what is nearest in a tile, and what is furthest; pairs left out are +inf.

        Returns the rows that have too many values near either end, which are not noted.
        """
        rows, kept = Rows.of(tile), (self.distance, self.item, self.greatest)
        if not tile.values.size:
            return np.empty(0, np.int64)
        if rows.band.any():
            return self._decide(tile, rows)
        _keep_values(rows, *kept)
        return np.empty(0, np.int64)

    def _decide(self, tile: Tile, rows: Rows) -> IntArray:
        """Note the distances of values near either end; return the rows with too many."""
        (m, n), query, row = tile.values.shape, tile.query, 0
        reach = self._reach
        low = tile.row_levels(reach.nearest[query]).tied + rows.band
        high = tile.row_levels(reach.greatest[query]).closer - rows.band
        new = ~np.isfinite(low) | ~np.isfinite(high)
        _first_limits(rows, new, self.item.shape[1], low, high)
        crowd = n // 2 if tile.refinable else n
        crowded: BoolArray = np.zeros(m, np.bool_)
        self._doubts = self._doubts.enlarged(2 * n)
        while row < m:
            row, filled = list_limits(rows, row, low, high, self._doubts, crowd, crowded)
            exact = self._doubts.resolve(tile, filled)
            item = tile.columns.item[self._doubts.column[:filled]]
            _keep(exact, self._doubts.query, item, self.distance, self.item, self.greatest)
        reach.nearest[:] = np.minimum(reach.nearest, self.distance[:, -1])
        reach.greatest[:] = np.maximum(reach.greatest, self.greatest)
        return np.flatnonzero(crowded)

    def packed(self) -> FloatArray:
        """Return distances, items and the greatest distance side by side, [queries, 2K + 1]."""
        return np.column_stack([self.distance, self.item, self.greatest])


def unpacked(packed: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return distances [m, K], items [m, K] and the greatest distance [m], all float64."""
    most = packed.shape[1] // 2
    return packed[:, :most], packed[:, most : 2 * most], packed[:, -1]


def merge_nearest(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the nearest of two parts of the gallery, as `NearestItems.packed` does.

    What is in both counts once.
    """
    merged = np.empty_like(one)
    _merge(*unpacked(one), *unpacked(other), *unpacked(merged))
    return merged


def nearest(most: int, job: Job, task: Task, watch: Watch) -> tuple[FloatArray, FloatArray]:
    """Return the nearest of a task's queries among its items, and of its items among its queries.

    They are numbered as in the job's view. Each is as of `NearestItems.packed`; the second is empty
    where queries and items are the same.
    """
    own = job.only.own(task)
    size, first, (left, right) = job.only.pairs.queries, own.queries[0], own.gallery
    reach = job.cache.once("reach", (most, size), partial(Reach.unknown, size))
    by_query = NearestItems(most, reach.of(own.queries))
    by_item = NearestItems(most, reach.of((left, right if task.queries != task.gallery else left)))

    def look(tile: Tile) -> None:
        crowded = by_query.add(tile)
        if len(by_item.greatest) and tile.values.size:
            rows = np.delete(np.arange(len(tile.query)), crowded)
            by_item.add(turned(tile, rows, first, left))
        for finer in tile.finer(crowded) if crowded.size else ():
            look(finer)

    for _, tile in masked_tiles(job, task, watch):
        look(tile)
    return by_query.packed(), by_item.packed()


def find_nearest(most: int) -> Pass[Task, tuple[FloatArray, FloatArray]]:
    """Return the pass that finds the nearest K items of all queries."""
    return Pass("neighbors", partial(nearest, most))


@dataclass(frozen=True, eq=False, kw_only=True)
class TurnedTile(Tile):
    """A tile with items as rows and queries as columns; its values are distances.

    Attributes
    ----------
    of : Tile
    queries, items : [n], [m] int64
        The query of that tile that each column is, and the column that each row is.
    error : float
        The guard band of all rows.
    """

    of: Tile
    queries: IntArray
    items: IntArray
    error: float

    @property
    def band(self) -> FloatArray:
        """The guard band of each row."""
        return np.full(len(self.query), self.error)

    def resolve(self, query: Indices, column: Indices) -> FloatArray:
        """Return the canonical distances of pairs, [p] float64."""
        place = np.zeros(int(self.query.max(initial=0)) + 1, np.int64)
        place[self.query] = self.items
        return self.of.resolve(self.queries[column], place[query])


def turned(tile: Tile, rows: IntArray, first: int, left: int) -> TurnedTile:
    """Return some rows of a tile, turned.

    Parameters
    ----------
    tile : Tile
    rows : [r] int64
    first, left : int
        The first query and the first item of the task.
    """
    query, columns, band = tile.query[rows], tile.columns, tile.band[rows]
    low = tile.row_levels(np.zeros(len(tile.query))).tied[rows]
    far = tile.row_levels(np.full(len(tile.query), FAR)).tied[rows]
    slope, exact = (far - low) / FAR, not tile.band.any()
    ordinary = len(rows) > 0 and slope.min() > 1e-6 and slope.max() < 1e6
    kind = np.float32 if tile.values.dtype == np.float32 and ordinary else np.float64
    values = np.empty((len(columns.item), len(rows)), kind)
    given = tile.values, columns.weight, columns.offset, tile.offset_row
    most = _turn(given, rows, low, slope, values)
    error = 0.0
    if not exact:
        error = float(((band + ROUNDED * np.abs(low)) / slope).max(initial=0.0))
        error += float(np.finfo(kind).eps) * most + ROUNDED * most
    items = np.arange(len(columns.item))
    return TurnedTile(
        values,
        columns.item - left,
        np.zeros(len(items), np.int64),
        Columns(first + query, None, np.zeros((1, len(rows)), kind)),
        of=tile,
        queries=query,
        items=items,
        error=error,
    )


@compiled
def _first_limits(rows, new, most, low, high):  # type: ignore[no-untyped-def]
    """Lower the limits of rows of which nothing is known, raise the others.

    The K-th least value is no more than the K-th least of the least values of groups of columns.

    Parameters
    ----------
    rows : Rows
    new : [m] bool
    most : int
        K.
    low, high : [m] float64, written
    """
    tile, columns = rows.values, rows.columns
    n, groups = tile.shape[1], GROUPS * most
    least = np.empty(groups)
    for row in range(tile.shape[0]):
        if not new[row]:
            continue
        offset, least[:], most_of_all = columns.offset[rows.offset[row]], np.inf, -np.inf
        for group in range(groups):
            smallest = np.inf
            for k in range(group * n // groups, (group + 1) * n // groups):
                value = np.float64(product(tile[row], columns.weight, k) + offset[k])
                smallest = min(smallest, value)
                most_of_all = max(most_of_all, value if value < np.inf else -np.inf)
            least[group] = smallest
        low[row] = min(low[row], np.sort(least)[most - 1] + 2 * rows.band[row])
        high[row] = max(high[row], most_of_all - 2 * rows.band[row])


@compiled(inline="always")
def _insert(distance, item, distances, items):  # type: ignore[no-untyped-def]
    """Put an item among the nearest, in order of distance and item, if it is one of them."""
    at = len(distances)
    while at > 0 and (
        distance < distances[at - 1] or (distance == distances[at - 1] and item < items[at - 1])
    ):
        at -= 1
    for place in range(len(distances) - 1, at, -1):
        distances[place], items[place] = distances[place - 1], items[place - 1]
    if at < len(distances):
        distances[at], items[at] = distance, item


@compiled
def _keep(exact, query, item, distances, items, greatest):  # type: ignore[no-untyped-def]
    """Note the canonical distances of listed pairs."""
    for t in range(len(exact)):
        i = query[t]
        greatest[i] = max(greatest[i], exact[t])
        if exact[t] <= distances[i, -1]:
            _insert(exact[t], item[t], distances[i], items[i])


@compiled
def _keep_values(rows, distances, items, greatest):  # type: ignore[no-untyped-def]
    """Note the values of a tile, which are canonical distances."""
    weight, item = rows.columns.weight, rows.columns.item
    for row in range(len(rows.query)):
        i, offset = rows.query[row], rows.columns.offset[rows.offset[row]]
        for k in range(len(item)):
            value = np.float64(product(rows.values[row], weight, k) + offset[k])
            if value < np.inf:
                greatest[i] = max(greatest[i], value)
                if value <= distances[i, -1]:
                    _insert(value, item[k], distances[i], items[i])


@compiled
def _turn(given, rows, low, slope, out):  # type: ignore[no-untyped-def]
    """Write the distances that rows of a tile stand for, turned; return the greatest magnitude."""
    values, weight, offset, offset_row = given
    n, most, infinite = values.shape[1], 0.0, values.dtype.type(np.inf)
    for top in range(0, len(rows), SQUARE):
        bottom = min(top + SQUARE, len(rows))
        for left in range(0, n, SQUARE):
            right = min(left + SQUARE, n)
            for r in range(top, bottom):
                row, add = values[rows[r]], offset[offset_row[rows[r]]]
                for k in range(left, right):
                    value = product(row, weight, k) + add[k]
                    distance = (np.float64(value) - low[r]) / slope[r]
                    finite = value < infinite
                    out[k, r] = distance if finite else np.inf
                    most = max(most, abs(distance) if finite else 0.0)
    return most


@compiled
def _merge(distance, item, greatest, others, other, furthest, out, items, most):  # type: ignore[no-untyped-def]
    """Write the nearest of two ascending lists a row, and the greatest of both."""
    for row in range(out.shape[0]):
        most[row] = max(greatest[row], furthest[row])
        t, u = 0, 0
        for place in range(out.shape[1]):
            mine, theirs = distance[row, t], others[row, u]
            if mine < theirs or (mine == theirs and item[row, t] <= other[row, u]):
                out[row, place], items[row, place] = mine, item[row, t]
                same = mine == theirs and item[row, t] == other[row, u] and mine < np.inf
                t, u = t + 1, u + 1 if same else u
            else:
                out[row, place], items[row, place], u = theirs, other[row, u], u + 1
