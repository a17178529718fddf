"""Single gallery shot: a task's negatives ahead, by identity, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streameval.kernels.edges import Positives
from streameval.protocols.agreement import coded, distinct
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import Pairs
from streameval.single_shot.ahead import ROWS, SHOT_RANKS, most_entries
from streameval.single_shot.listing import Groups, Listing
from streameval.single_shot.poisson_binomial import hopeless_from, shots_of_query
from streameval.statistics import SHOT_RULES
from streameval.typing import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Shots(Groups):
    """What single gallery shot draws from: the identities of a gallery, their items without junk.

    Attributes
    ----------
    draws : int
        How often an item of each is drawn, beside the exact expectation; 0 for that alone.
    seed : int
        Of the draws.
    """

    draws: int
    seed: int

    @classmethod
    def of(cls, gallery: Labels, junk: BoolArray, positives: int, draws: int, seed: int) -> Shots:
        """Return what is drawn from of a gallery, for queries of so many positives at most."""
        known = distinct(gallery.id)
        code = coded(known, gallery.id)
        items = np.bincount(code[~junk], minlength=len(known))
        entries = entries_of_query(*np.unique(items, return_counts=True), positives)
        return cls(code, items, entries, hopeless_from(SHOT_RANKS), draws, seed)

    def counter(self, positives: Positives) -> ShotCounter:
        """Return the counter of a block of queries, by their positives."""
        return ShotCounter(self, positives)


def entries_of_query(items: IntArray, number: IntArray, positives: int) -> int:
    """Return the most entries of a query of so many positives; see `most_entries`."""
    return most_entries(items, number, ROWS * positives, hopeless_from(SHOT_RANKS))


class ShotCounter(Listing):
    """The negatives ahead of the positives of a block of queries, by identity: see `Listing`."""

    def __init__(self, shots: Shots, positives: Positives) -> None:
        super().__init__(shots, positives)
        self._shots = shots

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
        entries, starts = self.by_query()
        packing, cut = self.ahead.packing, self.ahead.cut
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
