"""The nearest images of every image, and its greatest distance: the first stage of re-ranking.

All images are ranked against all by tiles of products, as for counting. What a tile leaves open is
decided by canonical distances: the nearest K, ties by index, and the greatest distance are those
of float64.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.extremes import list_limits
from streameval.kernels.tiles import Doubts, Rows, Tile, product
from streameval.planning.plan import Task
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import by_queries
from streameval.run.progress import Watch
from streameval.run.task import masked_tiles
from streameval.typing import BoolArray, FloatArray, IntArray

NOTHING = -1  # in place of an item, where there are fewer
GROUPS = 4  # of columns, for each neighbour: the least of each bounds the K-th least of all


class NearestItems:
    """Keeps the nearest K items of each query of a block, and its greatest distance.

    Parameters
    ----------
    most : int
        K.
    queries : int

    Attributes
    ----------
    distance : [queries, K] float64
        Ascending, ties by item; +inf where there are fewer.
    item : [queries, K] int64
    greatest : [queries] float64
        −inf where there is no item.
    """

    def __init__(self, most: int, queries: int) -> None:
        self.distance = np.full((queries, most), np.inf)
        self.item = np.full((queries, most), NOTHING)
        self.greatest = np.full(queries, -np.inf)
        self._doubts = Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Note what is nearest in a tile, and what is furthest; pairs left out are +inf."""
        if not tile.columns.item.size:
            return
        rows, kept = Rows.of(tile), (self.distance, self.item, self.greatest)
        if not rows.band.any():
            _keep_values(rows, *kept)
            return
        crowded = self._decide(tile, rows)
        for finer in tile.finer(crowded) if crowded.size else ():
            self.add(finer)

    def _decide(self, tile: Tile, rows: Rows) -> IntArray:
        """Note the distances of values near either end; return the rows with too many."""
        (m, n), query, row = tile.values.shape, tile.query, 0
        low = tile.row_levels(self.distance[query, -1]).tied + rows.band
        high = tile.row_levels(self.greatest[query]).closer - rows.band
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
        return np.flatnonzero(crowded)

    def packed(self) -> FloatArray:
        """Return distances, items and the greatest distance side by side, [queries, 2K + 1]."""
        return np.column_stack([self.distance, self.item, self.greatest])


def unpacked(packed: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return distances [m, K], items [m, K] and the greatest distance [m], all float64."""
    most = packed.shape[1] // 2
    return packed[:, :most], packed[:, most : 2 * most], packed[:, -1]


def merge_nearest(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the nearest of two shards of the gallery, as `NearestItems.packed` does."""
    sides = unpacked(one), unpacked(other)
    distance, item = (np.hstack([side[which] for side in sides]) for which in range(2))
    order = np.lexsort((item, distance), axis=1)[:, : sides[0][0].shape[1]]
    least = (np.take_along_axis(values, order, axis=1) for values in (distance, item))
    return np.column_stack([*least, np.maximum(sides[0][2], sides[1][2])])


def nearest(most: int, job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the nearest items of a task's queries in its shard: `NearestItems.packed`.

    They are numbered as in the job's view.
    """
    own = job.only.own(task).queries
    counter = NearestItems(most, own[1] - own[0])
    for _, tile in masked_tiles(job, task, watch):
        counter.add(tile)
    return counter.packed()


def find_nearest(most: int) -> Pass[Task, FloatArray]:
    """Return the pass that finds the nearest K items of all queries."""
    return Pass("neighbors", partial(nearest, most), merge_nearest, by_queries)


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
