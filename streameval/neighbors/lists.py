"""Lists of neighbours: repaired, and matched with what the protocol makes of their items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from streameval.errors import InputError, warn
from streameval.protocols.pairs import Pairs
from streameval.sorting import order_within
from streameval.stretches import cumulated, rows_of
from streameval.typing import BoolArray, FloatArray, IntArray

NOTHING = -1  # in a list, where there is no further item
REPAIRS = {
    "unsorted": "lists were not sorted by distance, and have been",
    "repeated": "entries name an item that their list has had before, and were dropped",
    "short": "lists end in −1 before k: an exact search pads where the gallery is shorter than k, "
    "and only there; if an approximate index made them, bounds don't hold: --missing never",
}


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of Q queries, L items in all, each item at most once in a list.

    Attributes
    ----------
    indptr : [Q + 1] int64
        Where each list begins.
    item : [L] int64
        Gallery index.
    distance : [L] float64
        NaN where only the items are stored.
    horizon : [Q] float64
        No item that is missing from the list is closer.
    """

    indptr: IntArray
    item: IntArray
    distance: FloatArray
    horizon: FloatArray

    @property
    def query(self) -> IntArray:
        """The query of each entry, [L] int64."""
        return rows_of(self.indptr)

    @classmethod
    def of(
        cls, query: IntArray, item: IntArray, distance: FloatArray, horizon: FloatArray
    ) -> Lists:
        """Return lists from their entries, which are in the order of the queries."""
        return cls(np.searchsorted(query, np.arange(len(horizon) + 1)), item, distance, horizon)

    @classmethod
    def stack(cls, parts: Sequence[Lists]) -> Lists:
        """Return the lists of consecutive queries."""
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        names = "item", "distance", "horizon"
        joined = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        return cls(cumulated(sizes), *joined)

    def nearest(self, k: int) -> Lists:
        """Return the nearest k items of each list, certain up to the next item.

        Where the next item is closer than the horizon, these are the nearest of all, and nothing
        depends on the order in which float32 ranks. Otherwise more items are about as far as
        float32 can tell apart, and the list ends at its last distance within the horizon. A list
        of no more than k items stays as it is.
        """
        query = self.query
        order = order_within(self.indptr, self.item, self.distance)
        item, distance = self.item[order], self.distance[order]
        place = np.arange(len(order)) - self.indptr[query]
        following = np.full(len(self.horizon), np.inf)
        following[query[place == k]] = distance[place == k]
        within = distance <= self.horizon[query]
        last = np.full(len(self.horizon), -np.inf)
        np.maximum.at(last, query[within], distance[within])
        certain = np.isinf(following) | np.isinf(self.horizon) | (following < self.horizon)
        horizon = np.where(certain, np.minimum(following, self.horizon), last)
        kept = (place < k) & (certain[query] | (distance <= last[query]))
        return Lists.of(query[kept], item[kept], distance[kept], horizon)


class Places:
    """What the protocol makes of the entries of lists of the same queries.

    Attributes
    ----------
    pairs : Pairs
    lists : Lists
    positive, negative : [L] bool
        Neither where the entry is ignored.
    listed : [P] int64
        The entry of each positive pair, in the order of `Pairs.positives`; −1 where it is
        missing.
    """

    def __init__(self, pairs: Pairs, lists: Lists) -> None:
        query, item = lists.query, lists.item
        pair, entry = pairs.query * pairs.gallery + pairs.item, query * pairs.gallery + item
        at = np.searchsorted(pair, entry)
        listed = np.flatnonzero(np.append(pair, -1)[at] == entry)
        at = at[listed]
        self.pairs, self.lists = pairs, lists
        self.positive = np.zeros(len(item), np.bool_)
        self.positive[listed] = pairs.positive[at]
        ignored = pairs.junk[item] | pairs.classes.ignored(pairs.classes.query[query], item)
        ignored[listed] |= ~pairs.positive[at]
        self.negative = ~self.positive & ~ignored
        entries = np.full(len(pair), -1)
        entries[at] = listed
        self.listed = entries[pairs.positive]

    @property
    def valid(self) -> BoolArray:
        """Entries that are not ignored, [L] bool."""
        return self.positive | self.negative

    def missing_positives(self) -> tuple[IntArray, IntArray]:
        """Return (query, item), both [m] int64, of the positives that are missing from lists."""
        missing = np.flatnonzero(self.pairs.positive)[self.listed < 0]
        return self.pairs.query[missing], self.pairs.item[missing]


@dataclass
class Repairs:
    """Lists as they are stored or returned, repaired; what was, by kind, as in `REPAIRS`.

    Attributes
    ----------
    where : str
        What messages call the lists.
    gallery : int
        Number of gallery items.
    count : dict of str to int
    first : dict of str to int
        The first query of each kind.
    """

    where: str
    gallery: int
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REPAIRS, 0))
    first: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, query: IntArray) -> None:
        """Note a repair in each of these queries."""
        if len(query):
            self.count[kind] += len(query)
            self.first.setdefault(kind, int(query[0]))

    def warn(self, *, deployed: bool) -> None:
        """Warn of each kind of repair; short lists are expected of a system as deployed."""
        for kind, message in REPAIRS.items():
            if self.count[kind] and not (deployed and kind == "short"):
                message = f"{self.where}: {self.count[kind]} {message}"
                first = f"(first: query {self.first[kind]})"
                warn(f"{message} {first}")

    def clean(self, indices: IntArray, distances: FloatArray | None, first: int) -> Lists:
        """Return lists sorted by distance, then item, each once, without padding; note repairs.

        Parameters
        ----------
        indices : [m, k] int64
            −1 where there is nothing more.
        distances : [m, k] float64, optional
        first : int
            The first query.
        """
        held = indices != NOTHING
        values = np.full(indices.shape, np.nan) if distances is None else distances
        self._check(indices, values, held, first, known=distances is not None)
        row, _ = np.nonzero(held)
        item, distance, lengths = indices[held], values[held], held.sum(axis=1)
        self._check_order(values, held, first)
        order = order_within(cumulated(lengths), item)
        again = np.flatnonzero((np.diff(item[order]) == 0) & (np.diff(row[order]) == 0))
        before, second = order[again], order[again + 1]
        differ = second[distance[second] != distance[before]]
        if distances is not None and len(differ):
            at = int(differ[0])
            raise InputError(
                f"{self.where}, query {first + row[at]} lists item {item[at]} twice, at "
                "different distances: search again"
            )
        self.note("repeated", row[np.sort(second)] + first)
        row, item, distance = (np.delete(values, second) for values in (row, item, distance))
        short = (lengths < indices.shape[1]) & (lengths < self.gallery)
        self.note("short", np.flatnonzero(short) + first)
        lists = Lists.of(row, item, distance, np.full(len(held), -np.inf))
        order = order_within(lists.indptr, item, distance)
        return replace(lists, item=item[order], distance=distance[order])

    def _check(
        self, indices: IntArray, values: FloatArray, held: BoolArray, first: int, *, known: bool
    ) -> None:
        """Refuse items that the gallery lacks, padding within a list, and wrong distances."""
        last = self.gallery - 1
        for bad, reason in (
            (
                (indices < 0) | (indices > last),
                f"the {self.gallery} gallery items are numbered 0 to {last}, and −1 is none; are "
                "the lists of another gallery?",
            ),
            (
                ~np.minimum.accumulate(held, axis=1),
                "−1 stands before it, which is only at the end of a list; move it there",
            ),
            (known & ~np.isfinite(values), "distances must be finite; search again"),
        ):
            if (held & bad).any():
                row, place = np.argwhere(held & bad)[0].tolist()
                raise InputError(
                    f"{self.where}, query {first + row}, place {place + 1} holds item "
                    f"{indices[row, place]} at {float(values[row, place])!r}: {reason}"
                )

    def _check_order(self, distances: FloatArray, held: BoolArray, first: int) -> None:
        """Note lists whose distances fall somewhere; refuse similarities, which always fall."""
        steps = np.where(held[:, 1:], np.diff(np.where(held, distances, 0), axis=1), 0)
        unsorted = np.flatnonzero((steps < 0).any(axis=1)) + first
        if len(unsorted) and not (steps > 0).any():
            raise InputError(
                f"{self.where}: values fall along every list (first: query {unsorted[0]}), as "
                "similarities do, and distances rise: store 1 − s of cosines, −s of inner products"
            )
        self.note("unsorted", unsorted)
