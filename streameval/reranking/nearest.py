"""The nearest images of every image, and its greatest distance: the first stage of re-ranking.

All images are ranked against all by tiles, as for counting: of products, and once something is
known of both sides, of marks. What a tile leaves open is decided by canonical distances: the
nearest K, ties by index, and the greatest distance are those of float64. Distances are symmetric,
to the bit: each tile is looked at for its rows and for its columns, so that half of all pairs are
multiplied.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.both_ways import choose, list_both
from streameval.kernels.limits import Limits, Reach, Sides, limits_of, line_of
from streameval.kernels.multiplier import in_sequence
from streameval.kernels.tiles import Doubts, Rows, Tile, product
from streameval.planning.plan import Task
from streameval.planning.search import LOOKED
from streameval.reranking.lists import NOTHING, Lists, room_for, unpacked
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.task import masked_tiles
from streameval.typing import BoolArray, FloatArray, IntArray

GROUPS = 4  # of columns, for each neighbour: the least of each bounds the K-th least of all
ROUNDED = 2.0**-49  # relative error of a level


class NearestItems:
    """The nearest K items of each query of a block, and its greatest distance.

    Parameters
    ----------
    most : int
        K.
    reach : Reach
        Of its queries.
    first : int
        The number of the first query.

    Attributes
    ----------
    lists : Lists
    packed : [queries, W] float64
        The same; see `room_for`.
    """

    def __init__(self, most: int, reach: Reach, first: int) -> None:
        self.packed = room_for(len(reach.nearest), most)
        self.lists = Lists(*unpacked(self.packed))
        distance, item, greatest = self.lists
        distance[:], item[:], greatest[:] = np.inf, NOTHING, -np.inf
        self.most, self.reach, self.first = most, reach, first

    @property
    def some(self) -> bool:
        """Whether there are any queries."""
        return bool(len(self.reach.nearest))

    def note(self, number: IntArray) -> None:
        """Note in the reach what is known now of some queries, ascending."""
        own, (distance, _, greatest) = in_sequence(number), self.lists
        self.reach.nearest[own] = np.minimum(self.reach.nearest[own], distance[own, -1])
        self.reach.greatest[own] = np.maximum(self.reach.greatest[own], greatest[own])


class Looker:
    """Looks at tiles of queries and items, for either side.

    Parameters
    ----------
    by_query, by_item : NearestItems
        The latter of no items where queries and items are the same.
    """

    def __init__(self, by_query: NearestItems, by_item: NearestItems) -> None:
        self._sides = by_query, by_item
        self._doubts = Doubts.of(0)

    def look(self, tile: Tile) -> None:
        """Note what is nearest in a tile, and what is furthest; pairs left out are +inf."""
        if not tile.values.size:
            return
        crowded = np.empty(0, np.int64)
        if not tile.band.any():
            _keep_values(Rows.of(tile), *self._lists(), self._firsts())
        elif tile.sparse:
            self._list(tile)
        else:
            crowded = self._decide(tile)
        by_query, by_item = self._sides
        by_query.note(tile.query)
        if by_item.some:
            by_item.note(tile.columns.item - by_item.first)
        for finer in tile.finer(crowded) if crowded.size else ():
            self.look(finer)

    def _lists(self) -> tuple[Lists, Lists]:
        by_query, by_item = self._sides
        return by_query.lists, by_item.lists

    def _firsts(self) -> tuple[int, int]:
        by_query, by_item = self._sides
        return by_query.first, by_item.first

    def wanted(self, item: IntArray) -> Sides:
        """Return which pairs with some items may change what is known."""
        by_query, by_item = self._sides
        return by_query.reach, by_item.reach.of(item - by_item.first if by_item.some else item[:0])

    def _list(self, tile: Tile) -> None:
        """Note the distances of marked pairs that are near either end."""
        limits = self._limits(tile).outwards(np.dtype(np.float32))
        row = np.full(int(tile.query[-1]) + 1, -1)
        row[tile.query] = np.arange(len(tile.query))
        for listed, values in tile.listed():
            filled = choose(values, listed, row, *limits)
            self._note(tile, listed, filled)

    def _decide(self, tile: Tile) -> IntArray:
        """Note the distances of values near either end; return the rows with too many."""
        (m, n), row, rows = tile.values.shape, 0, Rows.of(tile)
        limits = self._limits_seen(tile, rows).outwards(tile.values.dtype)
        crowd = n // 2 if tile.refinable else n
        crowded: BoolArray = np.zeros(m, np.bool_)
        self._doubts = self._doubts.enlarged(n, LOOKED)
        marks = np.zeros(n // 32 + 1, np.uint32)
        while row < m:
            row, filled = list_both(rows, row, *limits, marks, self._doubts, crowd, crowded)
            self._note(tile, self._doubts, filled)
        return np.flatnonzero(crowded)

    def _note(self, tile: Tile, listed: Doubts, filled: int) -> None:
        """Note the canonical distances of the first listed pairs."""
        exact = listed.resolve(tile, filled)
        pairs = listed.query[:filled], tile.columns.item[listed.column[:filled]]
        _keep(exact, *pairs, *self._lists(), self._firsts())

    def _limits(self, tile: Tile) -> Limits:
        """Return limits as far as they are known."""
        by_query, by_item = self.wanted(tile.columns.item)
        own, kind = by_query.of(tile.query), tile.values.dtype
        kind = kind if kind.kind == "f" else np.dtype(np.float32)
        return limits_of(tile, (own, by_item), kind, np.zeros((2, len(tile.query))))

    def _limits_seen(self, tile: Tile, rows: Rows) -> Limits:
        """Return limits as far as they are known, or as the values of the tile tell them."""
        by_query, by_item = self._sides
        if by_item.some:
            self._first_columns(tile, rows, tile.columns.item - by_item.first)
        limits = self._limits(tile)
        slope, _, _, low, high, _ = limits.lines.T
        new = ~(np.isfinite(low) & np.isfinite(high))
        if by_item.some:
            new &= slope > 0  # else all values are looked at
        _first_limits(rows, new, by_query.most, low, high)
        return limits

    def _first_columns(self, tile: Tile, rows: Rows, item: IntArray) -> None:
        """Note in the reach of items of which nothing is known what a tile says of them."""
        by_item = self._sides[1]
        nearest, greatest = by_item.reach
        new = np.flatnonzero(by_item.reach.of(item).open)
        if not new.size:
            return
        start, slope = line_of(tile)
        told = np.isfinite(rows.band) & np.isfinite(start) & (slope > 0) & np.isfinite(slope)
        if not told.all():
            return
        least = np.full((GROUPS * by_item.most, len(item)), np.inf)
        most = np.full(len(item), -np.inf)
        _extremes_of_columns(rows, start, slope, least, most)
        largest = np.abs(np.where(np.isfinite(most), most, 0.0)).max(initial=0.0)
        error = float(((rows.band + ROUNDED * np.abs(start)) / slope).max())
        error += 4 * float(np.finfo(tile.values.dtype).eps) * largest
        least = least[:, new]
        least.partition(by_item.most - 1, axis=0)
        nearest[item[new]] = np.minimum(nearest[item[new]], least[by_item.most - 1] + error)
        greatest[item[new]] = np.maximum(greatest[item[new]], most[new] - error)


def nearest(most: int, job: Job, task: Task, watch: Watch) -> tuple[FloatArray, FloatArray]:
    """Return the nearest of a task's queries among its items, and of its items among its queries.

    They are numbered as in the job's view. Each is as of `NearestItems.packed`; the second is empty
    where queries and items are the same.
    """
    own = job.only.own(task)
    size, (left, right) = job.only.pairs.queries, own.gallery
    reach = job.cache.once("reach", (most, size), partial(Reach.unknown, size))
    by_query = NearestItems(most, reach.of(own.queries), own.queries[0])
    items = left, right if task.queries != task.gallery else left
    by_item = NearestItems(most, reach.of(items), left)
    looker = Looker(by_query, by_item)
    for _, tile in masked_tiles(job, task, watch, wanted=looker.wanted):
        looker.look(tile)
    return by_query.packed, by_item.packed


def find_nearest(most: int) -> Pass[Task, tuple[FloatArray, FloatArray]]:
    """Return the pass that finds the nearest K items of all queries."""
    return Pass("neighbors", partial(nearest, most))


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


@compiled(inline="always")
def _offer(distance, item, i, lists):  # type: ignore[no-untyped-def]
    """Note a canonical distance in the list of a query."""
    distances, items, greatest = lists
    greatest[i] = max(greatest[i], distance)
    if distance <= distances[i, -1]:
        _insert(distance, item, distances[i], items[i])


@compiled
def _keep(exact, query, item, by_query, by_item, firsts):  # type: ignore[no-untyped-def]
    """Note the canonical distances of pairs, listed by query of the block and item."""
    first, left = firsts
    both = len(by_item.greatest) > 0
    for t in range(len(exact)):
        _offer(exact[t], item[t], query[t], by_query)
        if both:
            _offer(exact[t], first + query[t], item[t] - left, by_item)


@compiled
def _keep_values(rows, by_query, by_item, firsts):  # type: ignore[no-untyped-def]
    """Note the values of a tile, which are canonical distances."""
    weight, item, (first, left) = rows.columns.weight, rows.columns.item, firsts
    both = len(by_item.greatest) > 0
    for row in range(len(rows.query)):
        i, offset = rows.query[row], rows.columns.offset[rows.offset[row]]
        for k in range(len(item)):
            value = np.float64(product(rows.values[row], weight, k) + offset[k])
            if value < np.inf:
                _offer(value, item[k], i, by_query)
                if both:
                    _offer(value, first + i, item[k] - left, by_item)


@compiled
def _extremes_of_columns(rows, start, slope, least, most):  # type: ignore[no-untyped-def]
    """Write the least distance of each column in each of some groups of rows, and the greatest.

    They are as far as the values of a tile tell them.

    Parameters
    ----------
    rows : Rows
    start, slope : [m] float64
        The line of each row.
    least : [groups, n] float64, lowered
    most : [n] float64, raised
    """
    tile, columns, groups = rows.values, rows.columns, least.shape[0]
    for row in range(tile.shape[0]):
        offset, own = columns.offset[rows.offset[row]], least[row % groups]
        for k in range(tile.shape[1]):
            value = np.float64(product(tile[row], columns.weight, k) + offset[k])
            if value < np.inf:
                distance = (value - start[row]) / slope[row]
                own[k] = min(own[k], distance)
                most[k] = max(most[k], distance)
