"""Lists of neighbours: gallery items of each query, and what the protocol makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streameval.protocols.pairs import Pairs
from streameval.statistics import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]


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
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @classmethod
    def stack(cls, parts: Sequence[Lists]) -> Lists:
        """Return the lists of consecutive queries."""
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        return cls(
            np.append(0, np.cumsum(sizes)),
            np.concatenate([part.item for part in parts]),
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.horizon for part in parts]),
        )

    def nearest(self, k: int) -> Lists:
        """Return the nearest k items of each list, certain up to the next item.

        Where the next item is closer than the horizon, these are the nearest of all, and nothing
        depends on the order in which float32 ranks. Otherwise more items are about as far as
        float32 can tell apart, and the list ends at its last distance within the horizon. A list
        of no more than k items stays as it is.
        """
        query = self.query
        order = np.lexsort((self.item, self.distance, query))
        item, distance = self.item[order], self.distance[order]
        place = np.arange(len(order)) - self.indptr[query]
        following = np.full(len(self.horizon), np.inf)
        following[query[place == k]] = distance[place == k]
        within = distance <= self.horizon[query]
        last = np.full(len(self.horizon), -np.inf)
        np.maximum.at(last, query[within], distance[within])
        whole = np.isinf(following) | np.isinf(self.horizon)
        certain = whole | (following < self.horizon)
        horizon = np.where(certain, np.minimum(following, self.horizon), last)
        kept = (place < k) & (certain[query] | (distance <= last[query]))
        indptr = np.searchsorted(query[kept], np.arange(len(horizon) + 1)).astype(np.int64)
        return Lists(indptr, item[kept], distance[kept], horizon)


@dataclass(frozen=True, eq=False)
class Places:
    """What the protocol makes of the entries of lists.

    Attributes
    ----------
    positive, negative : [L] bool
        Neither where the entry is ignored.
    listed : [P] int64
        The entry of each positive pair, in the order of `Pairs.positives`; −1 where it is
        missing.
    """

    positive: BoolArray
    negative: BoolArray
    listed: IntArray

    @classmethod
    def of(cls, pairs: Pairs, lists: Lists) -> Places:
        """Find the entries of the positives, and those that are ignored."""
        gallery, query, item = max(pairs.gallery, 1), lists.query, lists.item
        pair = np.repeat(np.arange(pairs.queries), np.diff(pairs.indptr)) * gallery + pairs.item
        entry = query * gallery + item
        known, at = _look_up(pair, entry)
        positive, ignored = np.zeros(len(item), np.bool_), pairs.junk[item]
        positive[known] = pairs.positive[at[known]]
        ignored = ignored | (known & ~positive)
        ignored |= pairs.classes.ignores(query, item)
        order = np.argsort(entry, kind="stable")
        there, place = _look_up(entry[order], pair[pairs.positive])
        listed = np.full(len(there), -1, np.int64)
        listed[there] = order[place[there]]
        return cls(positive, ~positive & ~ignored, listed)

    @property
    def valid(self) -> BoolArray:
        """Entries that are not ignored, [L] bool."""
        return self.positive | self.negative

    def missing_positives(self, pairs: Pairs) -> tuple[IntArray, IntArray]:
        """Return (query, item), both [m] int64, of the positives that are missing from lists."""
        indptr, item = pairs.positives()
        query = np.repeat(np.arange(pairs.queries), np.diff(indptr))
        missing = self.listed < 0
        return query[missing], item[missing]


def _look_up(known: IntArray, wanted: IntArray) -> tuple[BoolArray, IntArray]:
    """Return which values are among the ascending known ones, and where."""
    if not len(known):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return known[at] == wanted, at
