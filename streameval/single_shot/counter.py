"""Single gallery shot: a task's negatives ahead, by identity, and what becomes of them.

Such a task is a block of queries with the whole gallery: what is known of a shard of it does
not tell which items of an identity are ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streameval.kernels.edges import Positives
from streameval.kernels.identities import MANY
from streameval.kernels.tiles import Doubts, LevelTable, Tile
from streameval.protocols.agreement import coded, distinct
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import Pairs
from streameval.single_shot.ahead import (
    ONE,
    ROWS,
    SHOT_DOUBTS,
    SHOT_RANKS,
    Ahead,
    Leading,
    collect,
    fold,
    most_entries,
    place,
    shot_entries,
)
from streameval.single_shot.poisson_binomial import hopeless_from, shots_of_query
from streameval.statistics import SHOT_RULES
from streameval.typing import BoolArray, FloatArray, Int32Array, IntArray


@dataclass(frozen=True, eq=False)
class Shots:
    """What single gallery shot draws from: the H identities of a gallery of G items.

    Attributes
    ----------
    code : [G] int32
        Index of each item's identity, 0 .. H − 1.
    items : [H] int64
        Number of items of each identity, without junk.
    draws : int
        How often an item of each is drawn, beside the exact expectation; 0 for that alone.
    seed : int
        Of the draws.
    entries : int
        The most that a query leaves in the list of negatives ahead: see `most_entries`.
    """

    code: Int32Array
    items: IntArray
    draws: int
    seed: int
    entries: int

    @classmethod
    def of(cls, gallery: Labels, junk: BoolArray, positives: int, draws: int, seed: int) -> Shots:
        """Return what is drawn from of a gallery, for queries of so many positives at most."""
        known = distinct(gallery.id)
        code = coded(known, gallery.id)
        items = np.bincount(code[~junk], minlength=len(known))
        entries = entries_of_query(*np.unique(items, return_counts=True), positives)
        return cls(code, items, draws, seed, entries)

    def counter(self, positives: Positives) -> ShotCounter:
        """Return the counter of a block of queries, by their positives."""
        return ShotCounter(self, positives)


def entries_of_query(items: IntArray, number: IntArray, positives: int) -> int:
    """Return the most entries of a query of so many positives; see `most_entries`."""
    return most_entries(items, number, ROWS * positives, hopeless_from(SHOT_RANKS))


class ShotCounter:
    """The negatives ahead of the positives of a block of queries, by identity.

    Parameters
    ----------
    shots : Shots
    positives : Positives
        Of the block.

    Attributes
    ----------
    ahead : Ahead
        Sorted and added up only once `fold` is called.
    size : int
        How many entries it has.
    """

    def __init__(self, shots: Shots, positives: Positives) -> None:
        self._shots, self._positives, self._leading = shots, positives, Leading.of(positives)
        edges = self._leading.edges
        self._table = LevelTable(edges.indptr, edges.distance)
        self._weight = ONE // np.maximum(shots.items, 1)
        self.ahead, self.size = Ahead.of(positives.indptr, len(shots.items), 0), 0
        self._doubts, self._room = Doubts.of(0), 0

    def add(self, tile: Tile) -> None:
        """Count a tile; rows of which many values are in doubt are left to finer tiles."""
        n = tile.values.shape[1]
        if len(self._doubts.query) < n:  # what is not written to is not taken
            spare = max(n, SHOT_DOUBTS)
            self._doubts = Doubts.of(spare)
            self._enlarge(shot_entries(len(self.ahead.cut) * self._shots.entries, spare))
            self._room = max(self._room, 2 * spare)
        doubts, (rows, levels) = self._doubts, self._table.rows(tile)
        item, leading, row = tile.columns.item, self._leading, 0
        identity, crowded = self._shots.code[item], np.zeros(len(tile.values), np.bool_)
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

    def fold(self) -> None:
        """Sort the list, add up what is equal, and leave out what is hopeless."""
        self.ahead.entries[: self.size].sort()
        most = ONE * hopeless_from(SHOT_RANKS)
        indptr = self._positives.indptr
        self.size = fold(self.ahead, self.size, indptr, self._weight, most)

    def finish(
        self, pairs: Pairs, tied: IntArray, first_query: int
    ) -> dict[str, FloatArray | None]:
        """Return `single_shot` and `sampled_shots`, once the whole gallery is counted.

        Parameters
        ----------
        pairs : Pairs
            Of the queries of the block.
        tied : [P] int64
            Negatives as far as each positive.
        first_query : int
            Index of the block's first query: each query has draws of its own.
        """
        shots, positives, classes = self._shots, self._positives, pairs.classes
        identities = len(shots.items)
        self.fold()
        entries, packing, cut = self.ahead.entries[: self.size], self.ahead.packing, self.ahead.cut
        firsts = (ROWS * positives.indptr).astype(np.uint64) << packing.row
        starts = np.searchsorted(entries, firsts)
        ahead, active = np.zeros(identities, np.int64), np.empty(identities, np.int64)
        expected = np.zeros((pairs.queries, len(SHOT_RULES), SHOT_RANKS))
        sampled = np.zeros_like(expected) if shots.draws else None
        unread = np.empty(expected.shape[1:])
        # A query ignores some items alone. Its own identity needs no look-up: its positives are
        # not negatives.
        alone = ~(pairs.positive | pairs.junk[pairs.item])
        alone &= ~classes.ignored(classes.query[pairs.query], pairs.item)
        rng, has_positive = np.random.default_rng(shots.seed), np.diff(positives.indptr) > 0
        for number in np.unique(classes.query[has_positive]).tolist():
            ignored = pairs.junk | classes.ignored([number], slice(None))
            valid = np.bincount(shots.code[~ignored], minlength=identities)
            for i in np.flatnonzero(has_positive & (classes.query == number)).tolist():
                begin, end = positives.indptr[i : i + 2].tolist()
                if shots.draws:  # the kernel takes long to unwrap a new one
                    rng = np.random.default_rng([shots.seed, first_query + i])
                listed = slice(*pairs.indptr[i : i + 2].tolist())
                left_out = shots.code[pairs.item[listed][alone[listed]]]
                np.subtract.at(valid, left_out, 1)
                shots_of_query(
                    entries[starts[i] : starts[i + 1]],
                    packing,
                    begin,
                    cut[i],
                    positives.distance[begin:end],
                    tied[begin:end],
                    valid,
                    ahead,
                    active,
                    rng.integers(end - begin, size=shots.draws),
                    rng,
                    expected[i],
                    unread if sampled is None else sampled[i],
                )
                np.add.at(valid, left_out, 1)
        return {"single_shot": expected, "sampled_shots": sampled}
