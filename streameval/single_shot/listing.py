"""Listing of the negatives ahead of positives, by the groups that items are drawn of.

Such a task is a block of queries with the whole gallery: what is known of a shard of it does
not tell which items of a group are ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streameval.kernels.edges import Positives
from streameval.kernels.identities import MANY
from streameval.kernels.tiles import Doubts, LevelTable, Tile
from streameval.single_shot.ahead import (
    ONE,
    ROWS,
    SHOT_DOUBTS,
    Ahead,
    Leading,
    collect,
    fold,
    place,
    shot_entries,
)
from streameval.typing import HashArray, Int32Array, IntArray


@dataclass(frozen=True, eq=False)
class Groups:
    """What is drawn from: the H groups of a gallery of G items.

    Attributes
    ----------
    code : [G] int32
        Index of each item's group, 0 .. H − 1.
    items : [H] int64
        Number of items of each group.
    entries : int
        The most that a query leaves in the list of negatives ahead: see `most_entries`.
    hopeless : int
        Groups ahead, in the mean, from which on a row is hopeless.
    """

    code: Int32Array
    items: IntArray
    entries: int
    hopeless: int


class Listing:
    """The negatives ahead of the positives of a block of queries, by group.

    Parameters
    ----------
    groups : Groups
    positives : Positives
        Of the block.

    Attributes
    ----------
    ahead : Ahead
        Sorted and added up only once `fold` is called.
    size : int
        How many entries it has.
    """

    def __init__(self, groups: Groups, positives: Positives) -> None:
        self._groups, self._positives, self._leading = groups, positives, Leading.of(positives)
        edges = self._leading.edges
        self._table = LevelTable(edges.indptr, edges.distance)
        self._weight = ONE // np.maximum(groups.items, 1)
        self.ahead, self.size = Ahead.of(positives.indptr, len(groups.items), 0), 0
        self._doubts, self._room = Doubts.of(0), 0

    def add(self, tile: Tile) -> None:
        """Count a tile; rows of which many values are in doubt are left to finer tiles."""
        n = tile.values.shape[1]
        if len(self._doubts.query) < n:  # what is not written to is not taken
            spare = max(n, SHOT_DOUBTS)
            self._doubts = Doubts.of(spare)
            self._enlarge(shot_entries(len(self.ahead.cut) * self._groups.entries, spare))
            self._room = max(self._room, 2 * spare)
        doubts, (rows, levels) = self._doubts, self._table.rows(tile)
        item, leading, row = tile.columns.item, self._leading, 0
        identity, crowded = self._groups.code[item], np.zeros(len(tile.values), np.bool_)
        crowd = n // MANY if tile.refinable else n
        while row < len(tile.values):
            self._make_room(n)
            where = self.ahead, self.size, self._room, doubts, crowd, crowded
            row, self.size, filled = collect(rows, levels, row, identity, leading, *where)
            self._make_room(filled)
            exact = doubts.resolve(tile, filled)
            self.size = place(item, identity, leading, self.ahead, self.size, doubts, exact)
        for finer in tile.finer(np.flatnonzero(crowded)) if crowded.any() else ():
            self.add(finer)

    def _make_room(self, entries: int) -> None:
        """Fold where there is no room for so many entries; more room, where that gives little."""
        if self.size + entries <= self._room:
            return
        self.fold()
        if self.size > self._room // 2:
            self._room = min(2 * self._room, len(self.ahead.entries))
        if self.size + entries > self._room:  # of an identity of more items than entries can say
            self._room = self.size + entries
            self._enlarge(self._room)

    def _enlarge(self, capacity: int) -> None:
        """Have memory for so many entries."""
        if len(self.ahead.entries) < capacity:
            larger = np.empty(capacity, np.uint64)
            larger[: self.size] = self.ahead.entries[: self.size]
            self.ahead = self.ahead._replace(entries=larger)

    def by_query(self) -> tuple[HashArray, IntArray]:
        """Return the entries, folded, and where those of each query and of the next begin."""
        self.fold()
        entries, packing = self.ahead.entries[: self.size], self.ahead.packing
        firsts = (ROWS * self._positives.indptr).astype(np.uint64) << packing.row
        return entries, np.searchsorted(entries, firsts)

    def fold(self) -> None:
        """Sort the list, add up what is equal, and leave out what is hopeless."""
        self.ahead.entries[: self.size].sort()
        indptr, most = self._positives.indptr, ONE * self._groups.hopeless
        self.size = fold(self.ahead, self.size, indptr, self._weight, most)
