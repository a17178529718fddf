"""All draws of a gallery: a task's negatives ahead, by group, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streameval.kernels.edges import Positives
from streameval.protocols.agreement import coded, distinct
from streameval.protocols.draws import group_codes
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import Pairs
from streameval.protocols.protocol import Protocol
from streameval.single_shot.ahead import ROWS, SHOT_RANKS, most_entries
from streameval.single_shot.hypergeometric import draws_of_query, nodes_for
from streameval.single_shot.listing import Groups, Listing
from streameval.statistics import SHOT_RULES
from streameval.typing import FloatArray, IntArray

NEVER_HOPELESS = 1 << 30  # groups ahead: more than there are


@dataclass(frozen=True, eq=False)
class Draws(Groups):
    """What all draws of a gallery are of: items with the same labels, junk among them.

    Attributes
    ----------
    draw : int
        Items of each group; all of a group that has fewer.
    unit : [H] int64
        The identity of each group, where CMC counts identities; else empty.
    own : [Q] int64, optional
        The item that each query is, where only what is not drawn asks.
    inverse : bool
        Whether E[1/r] is wanted.
    """

    draw: int
    unit: IntArray
    own: IntArray | None
    inverse: bool

    @classmethod
    def of(
        cls,
        gallery: Labels,
        protocol: Protocol,
        positives: int,
        own: IntArray | None,
        inverse: bool,
    ) -> Draws:
        """Return what is drawn from, for queries of so many positives at most."""
        code, items, draw = _groups(gallery, protocol)
        unit = np.empty(0, np.int64)
        if protocol.cmc == "distinct-identities":
            unit = np.empty(len(items), np.int64)
            unit[code] = coded(distinct(gallery.id), gallery.id)
        entries = entries_of_draws(*np.unique(items, return_counts=True), positives)
        return cls(code.astype(np.int32), items, entries, NEVER_HOPELESS, draw, unit, own, inverse)

    def counter(self, positives: Positives) -> DrawCounter:
        """Return the counter of a block of queries, by their positives."""
        return DrawCounter(self, positives)


def group_sizes(gallery: Labels, protocol: Protocol) -> tuple[IntArray, IntArray]:
    """Return numbers of items of a group, ascending, and how many groups have so many."""
    return np.unique(_groups(gallery, protocol)[1], return_counts=True)


def entries_of_draws(items: IntArray, number: IntArray, positives: int) -> int:
    """Return the most entries of a query of so many positives; see `most_entries`."""
    return most_entries(items, number, ROWS * positives, NEVER_HOPELESS)


def _groups(gallery: Labels, protocol: Protocol) -> tuple[IntArray, IntArray, int]:
    """Return the group of each item, the items of each group, and how many of them are drawn."""
    trials = protocol.trials
    if trials is None:
        raise RuntimeError(f"protocol {protocol.name} draws nothing")
    code = group_codes(protocol.name, trials, gallery, np.arange(len(gallery)))
    return code, np.bincount(code), int(trials.draw)


class DrawCounter(Listing):
    """The negatives ahead of the positives of a block of queries, by group: see `Listing`."""

    def __init__(self, draws: Draws, positives: Positives) -> None:
        super().__init__(draws, positives)
        self._draws = draws

    def finish(
        self, pairs: Pairs, tied: IntArray, first_query: int
    ) -> dict[str, FloatArray | None]:
        """Return `single_shot`, `drawn_inverse` and `asking`, once the whole gallery is counted.

        Parameters
        ----------
        pairs : Pairs
            Of the queries of the block.
        tied : [P] int64
            Negatives as far as each positive.
        first_query : int
            Index of the block's first query.
        """
        draws, positives = self._draws, self._positives
        entries, starts = self.by_query()
        rules, units = len(SHOT_RULES), int(draws.unit.max(initial=-1)) + 1
        within = np.zeros((pairs.queries, rules, SHOT_RANKS))
        inverse = np.zeros((pairs.queries, rules if draws.inverse else 0))
        ahead, active = np.zeros((2, len(draws.items)), np.int64)
        memory = ahead, active, np.ones(units), np.empty(units, np.int64)
        groups = draws.items, draws.unit, draws.draw
        own_group, asking = np.full(pairs.queries, -1), None
        if draws.own is not None:  # the query itself is not drawn
            own_group = draws.code[draws.own[first_query : first_query + pairs.queries]]
            asking = 1 - draws.draw / draws.items[own_group]
        nodes = nodes_for(int(np.minimum(draws.items, draws.draw).sum()) if draws.inverse else 1)
        for i in np.flatnonzero(np.diff(positives.indptr)).tolist():
            begin, end = positives.indptr[i : i + 2].tolist()
            known, group = np.unique(draws.code[positives.item[begin:end]], return_inverse=True)
            draws_of_query(
                entries[starts[i] : starts[i + 1]],
                self.ahead.packing,
                begin,
                positives.distance[begin:end],
                tied[begin:end],
                (group, draws.items[known] - (known == own_group[i])),
                groups,
                memory,
                nodes,
                within[i],
                inverse[i],
            )
        wanted = inverse if draws.inverse else None
        return {"single_shot": within, "drawn_inverse": wanted, "asking": asking}
