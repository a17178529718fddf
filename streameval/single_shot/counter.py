"""Single gallery shot: a task's negatives ahead, by identity, and what becomes of them.

Such a task is a block of queries with the whole gallery: what is known of a shard of it does
not tell which items of an identity are ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streameval.kernels.edges import Positives
from streameval.kernels.tiles import FINE_QUERIES, Doubts, LevelTable, Tile
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
    narrow,
    place,
    settle,
    shot_entries,
)
from streameval.single_shot.poisson_binomial import hopeless_from, shots_of_query
from streameval.statistics import SHOT_RULES, FloatArray, IntArray

MANY = 1 / 8  # of the pairs of the queries in doubt: from there on finer tiles pay


@dataclass(frozen=True, eq=False)
class GalleryIdentities:
    """The H identities of a gallery of G items.

    Attributes
    ----------
    code : [G] int32
        Index of each item's identity, 0 .. H − 1.
    items : [H] int64
        Number of items of each identity, without junk.
    """

    code: npt.NDArray[np.int32]
    items: IntArray

    @property
    def count(self) -> int:
        """Number of identities H."""
        return len(self.items)

    def valid(self, pairs: Pairs, number: int) -> IntArray:
        """Return how many items of each identity the queries of a class don't ignore, [H] int64."""
        if not pairs.classes.count:
            return self.items
        ignored = pairs.classes.ignored(number, slice(None)) & ~pairs.junk
        valid: IntArray = self.items - np.bincount(self.code[ignored], minlength=self.count)
        return valid

    def left_out(self, pairs: Pairs, query: int) -> IntArray:
        """Return the identity of each item that this query alone ignores.

        These are neither junk nor ignored by the query's class. The query's own identity needs no
        look-up: its positives are not negatives.
        """
        own = slice(*pairs.indptr[query : query + 2].tolist())
        item = pairs.item[own][~pairs.positive[own]]
        item = item[~pairs.junk[item]]
        item = item[~pairs.classes.ignored(int(pairs.classes.query[query]), item)]
        codes: IntArray = self.code[item].astype(np.int64)
        return codes


def find_identities(gallery: Labels, pairs: Pairs) -> GalleryIdentities:
    """Return the identities of the gallery, and how many items each has.

    Parameters
    ----------
    gallery : Labels
    pairs : Pairs
        With that gallery.
    """
    known, code = np.unique(gallery.id, return_inverse=True)
    items = np.bincount(code[~pairs.junk], minlength=len(known))
    return GalleryIdentities(code.astype(np.int32), items.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Shots:
    """What single gallery shot draws from.

    Attributes
    ----------
    identities : GalleryIdentities
        Of which one item each is drawn.
    draws : int
        How often, beside the exact expectation; 0 for that alone.
    seed : int
        Of the draws.
    entries : int
        The most that a query leaves in the list of negatives ahead: see `most_entries`.
    """

    identities: GalleryIdentities
    draws: int
    seed: int
    entries: int


class ShotCounter:
    """The negatives ahead of the positives of a block of queries, by identity.

    Parameters
    ----------
    shots : Shots
    positives : Positives
        Of the block.
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` that serves each query.

    Attributes
    ----------
    ahead : Ahead
        Sorted and added up only once `fold` is called.
    size : int
        How many entries it has.
    """

    def __init__(self, shots: Shots, positives: Positives, offset_row: IntArray) -> None:
        self._shots, self._positives = shots, positives
        queries, identities = len(positives.indptr) - 1, shots.identities
        self._kept = queries * shots.entries
        self._room = 0
        self.ahead, self.size = Ahead.of(positives.indptr, identities.count, 0), 0
        self._weight = ONE // np.maximum(identities.items, 1)
        self._leading = Leading.of(positives)
        edges = self._leading.edges
        self._table = LevelTable(edges.indptr, edges.distance, offset_row)
        self._doubts = Doubts.of(0)

    def add(self, tile: Tile) -> None:
        """Count a tile."""
        self._prepare(tile.values.shape[1])
        rows, levels = self._table.rows(tile)
        identity, leading = self._shots.identities.code[tile.columns.item], self._leading
        item, row = tile.columns.item, 0
        while row < len(tile.values):
            self._make_room(len(item))
            where = self.ahead, self.size, self._room, self._doubts
            row, self.size, filled = collect(rows, levels, row, identity, leading, *where)
            self._decide(tile, filled)
            self._make_room(filled)
            self.size = place(item, identity, leading, self.ahead, self.size, self._doubts, filled)

    def _prepare(self, items: int) -> None:
        """Have memory for tiles of so many items; what is not written to is not taken."""
        if len(self._doubts.query) < items:
            self._doubts = Doubts.of(max(items, SHOT_DOUBTS))
            spare = len(self._doubts.query)
            self._enlarge(shot_entries(self._kept, spare))
            self._room = max(self._room, 2 * spare)

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

    def _decide(self, tile: Tile, filled: int) -> None:
        """Put the slot of each doubt in place of its edge."""
        doubts = self._doubts
        if not filled:
            return
        asked = int(doubts.query[filled - 1] - doubts.query[0] + 1)
        if not tile.band.any():  # the distance is at the edge
            doubts.edge[:filled] = 2 * doubts.edge[:filled] + 1
        elif tile.refinable and filled > MANY * asked * tile.values.shape[1]:
            self._decide_many(tile, filled)
        else:
            settle(doubts.resolve(tile, filled), np.arange(filled), self._leading, doubts)

    def _decide_many(self, tile: Tile, filled: int) -> None:
        """Decide doubts of a model that has collapsed by finer tiles, some queries at a time."""
        doubts, query = self._doubts, self._doubts.query[:filled]
        indptr, open_doubts = self._leading.edges.indptr, np.empty(filled, np.int64)
        begin = 0
        while begin < filled:
            end = int(np.searchsorted(query, query[begin] + FINE_QUERIES))
            for finer in tile.finer(np.searchsorted(tile.query, np.unique(query[begin:end]))):
                rows, levels = self._table.rows(finer)
                where = doubts, begin, end, open_doubts
                left = narrow(rows, levels, indptr, *where)
                which = open_doubts[:left]
                exact = finer.resolve(doubts.query[which], doubts.column[which])
                settle(exact, which, self._leading, doubts)
            begin = end

    def finish(
        self, pairs: Pairs, tied: IntArray, first_query: int
    ) -> tuple[FloatArray, FloatArray | None]:
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
        shots, positives = self._shots, self._positives
        queries, identities = len(positives.indptr) - 1, shots.identities.count
        self.fold()
        entries, packing, cut = self.ahead.entries[: self.size], self.ahead.packing, self.ahead.cut
        firsts = (ROWS * positives.indptr).astype(np.uint64) << packing.row
        starts = np.searchsorted(entries, firsts)
        ahead, active = np.zeros(identities, np.int64), np.empty(identities, np.int64)
        expected = np.zeros((queries, len(SHOT_RULES), SHOT_RANKS))
        sampled = np.zeros_like(expected) if shots.draws else None
        unread = np.empty(expected.shape[1:])
        no_draw: npt.NDArray[np.int64] = np.empty(0, np.int64)
        rng = np.random.default_rng(shots.seed)
        classes = pairs.classes.query
        order = np.argsort(classes, kind="stable")
        known, seen = None, np.empty(0, np.int64)
        for i in order[np.diff(positives.indptr)[order] > 0].tolist():
            if classes[i] != known:
                known, seen = classes[i], shots.identities.valid(pairs, int(classes[i]))
            begin, end = positives.indptr[i : i + 2].tolist()
            drawn = no_draw
            if shots.draws:
                rng = np.random.default_rng([shots.seed, first_query + i])
                drawn = rng.integers(end - begin, size=shots.draws)
            left_out = shots.identities.left_out(pairs, i)
            valid = seen
            if left_out.size:
                valid = seen.copy()
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
                drawn,
                rng,
                expected[i],
                unread if sampled is None else sampled[i],
            )
        return expected, sampled
