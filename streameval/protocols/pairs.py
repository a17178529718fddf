"""Pairs: what a protocol makes of every (query, gallery) pair, without listing them all.

*Listed pairs* are kept one by one, query by query: pairs of the same identity, a query's own image
and pairs of lists. They are few. *Item classes* are rules over many items: under
some protocols a query ignores every item of its camera. Junk items are ignored by every query. All
other pairs are negatives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from streameval.errors import warn
from streameval.protocols.classes import ItemClasses
from streameval.protocols.counts import PairCounts
from streameval.protocols.finder import PairFinder
from streameval.protocols.labels import Labels, check_kinds
from streameval.protocols.listed import PAIRS, ListedPairs, PairList, spans
from streameval.protocols.protocol import Protocol
from streameval.stretches import cumulated, left_of, rows_of, sums_of
from streameval.threads import spread
from streameval.typing import BoolArray, IntArray, Span

MASKS = ("positive", "same_identity", "junk")


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of Q queries with G gallery items that are not plain negatives.

    Attributes
    ----------
    indptr : [Q + 1] int64
        Where each query's listed pairs begin.
    item : [L] int64
        Gallery index of each listed pair, ascending within a query.
    positive : [L] bool
        Whether the listed pair is a positive; otherwise it is ignored.
    same_identity : [L] bool
        Whether the rule of positives holds, or the item is on a list for the query; otherwise it
        is ignored for another reason, as the query's own image is.
    junk : [G] bool
        Gallery items that take part for no query.
    classes : ItemClasses
        Items that the queries of a class ignore.
    first : int
        The first query, of a block of all queries.
    """

    indptr: IntArray
    item: IntArray
    positive: BoolArray
    same_identity: BoolArray
    junk: BoolArray
    classes: ItemClasses
    first: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return masks as bits, and their lengths."""
        masks = {name: getattr(self, name) for name in MASKS}
        return vars(self) | {name: (np.packbits(own), len(own)) for name, own in masks.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in MASKS:
            packed, count = state[name]
            vars(self)[name] = np.unpackbits(packed, count=count).view(np.bool_)

    @classmethod
    def assumed(cls, queries: int, gallery: int, positives: int) -> Pairs:
        """Return pairs of no labels: so many positives a query.

        They take no memory, and can't be evaluated.
        """
        listed = (queries * positives,)
        yes = np.broadcast_to(np.True_, listed)
        return cls(
            np.arange(queries + 1, dtype=np.int64) * positives,
            np.broadcast_to(np.int64(0), listed),
            yes,
            yes,
            np.broadcast_to(np.False_, (gallery,)),
            ItemClasses.none(queries, gallery),
        )

    @property
    def queries(self) -> int:
        """Number of queries Q."""
        return len(self.indptr) - 1

    @property
    def gallery(self) -> int:
        """Number of gallery items G."""
        return len(self.junk)

    @property
    def query(self) -> IntArray:
        """The query of each listed pair, [L] int64."""
        return rows_of(self.indptr)

    def positives(self, threads: int = 1) -> tuple[IntArray, IntArray]:
        """Return (indptr [Q + 1], item [P]) of the positive pairs alone."""
        indptr = left_of(self.positive, self.indptr)
        item = np.empty(indptr[-1], np.int64)

        def take(span: Span) -> None:
            queries = list(span)
            listed, kept = (slice(*begins[queries].tolist()) for begins in (self.indptr, indptr))
            item[kept] = self.item[listed][self.positive[listed]]

        spread(take, spans(np.diff(self.indptr)), threads)
        return indptr, item

    def listed_in(self, start: int, stop: int, chosen: BoolArray) -> tuple[IntArray, IntArray]:
        """Return (indptr [Q + 1], item) of those of some listed pairs that are in a gallery range.

        They are chosen by a mask [L].
        """
        kept = chosen & (self.item >= start) & (self.item < stop)
        return left_of(kept, self.indptr), self.item[kept]

    def among(self, items: BoolArray) -> Pairs:
        """Return the pairs where the other items, by a mask [G], are junk and not listed."""
        kept = items[self.item]
        return replace(
            self,
            indptr=left_of(kept, self.indptr),
            item=self.item[kept],
            positive=self.positive[kept],
            same_identity=self.same_identity[kept],
            junk=self.junk | ~items,
        )

    @property
    def counts(self) -> PairCounts:
        """The numbers of these pairs."""
        return PairCounts(
            sums_of(self.positive, self.indptr),
            np.diff(self.indptr),
            self.classes.sizes,
        )

    def counts_in(self, start: int, stop: int) -> tuple[IntArray, IntArray, IntArray]:
        """Count the items of a gallery range that are positive, ignored and of same identity.

        Returns
        -------
        positive, ignored, same_identity : [Q] int64
        """
        taking_part, classes = ~self.junk[start:stop], self.classes
        by_class = classes.ignored_counts(slice(start, stop), taking_part)
        counts = np.zeros((3, self.queries), np.int64)
        counts[1] = np.count_nonzero(~taking_part) + by_class[classes.query]
        for queries in spans(np.diff(self.indptr)):  # what is held beside the pairs stays small
            begins = self.indptr[queries[0] : queries[1] + 1]
            listed, begins = slice(begins[0], begins[-1]), begins - begins[0]
            item, positive = self.item[listed], self.positive[listed]
            by_rule = self.junk[item]
            if classes.count:
                by_rule |= classes.ignored(classes.query[slice(*queries)][rows_of(begins)], item)
            chosen = [positive, ~positive & ~by_rule, self.same_identity[listed]]
            if (start, stop) != (0, self.gallery):
                inside = (item >= start) & (item < stop)
                chosen = [some & inside for some in chosen]
            for count, some in zip(counts, chosen, strict=True):
                count[slice(*queries)] += sums_of(some, begins)
        return counts[0], counts[1], counts[2]

    def block(self, start: int, stop: int) -> Pairs:
        """Return the pairs of some of the queries."""
        listed = slice(*self.indptr[[start, stop]].tolist())
        indptr, classes = self.indptr[start : stop + 1], self.classes
        return replace(
            self,
            indptr=indptr - listed.start,
            item=self.item[listed],
            positive=self.positive[listed],
            same_identity=self.same_identity[listed],
            classes=replace(classes, query=classes.query[start:stop]),
            first=self.first + start,
        )


def find_pairs(
    query: Labels,
    gallery: Labels,
    protocol: Protocol,
    listed: ListedPairs | None = None,
    counts: PairCounts | None = None,
) -> Pairs:
    """Apply a protocol to the labels, and to the lists of pairs that it names.

    Parameters
    ----------
    query, gallery : Labels
        Of Q queries and G gallery items.
    protocol : Protocol
    listed : ListedPairs, optional
        A query of which nothing is listed is in Q−.
    counts : PairCounts, optional
        The numbers of the pairs, where they are known.
    """
    if listed is not None and protocol.listed:
        warn_of_other_identities(query, gallery, listed.good)
    return PairSource(query, gallery, protocol, listed, counts).block(0, len(query))


class PairSource:
    """The pairs of Q queries with G gallery items, found for a block of queries at a time.

    Parameters
    ----------
    query, gallery, protocol, listed, counts
        As of `find_pairs`.

    Attributes
    ----------
    queries, gallery : int
        Q and G.
    counts : PairCounts
        The numbers of the pairs.
    """

    def __init__(
        self,
        query: Labels,
        gallery: Labels,
        protocol: Protocol,
        listed: ListedPairs | None = None,
        counts: PairCounts | None = None,
    ) -> None:
        if counts is None:
            counts = PairCounts.of(query, gallery, protocol, listed)
        self.queries, self.gallery, self.counts = len(query), len(gallery), counts
        self._given: tuple[Labels, Labels, Protocol, ListedPairs | None] | None
        self._given = query, gallery, protocol, listed
        self._span = (0, 0)
        self._found: Pairs | None = None

    @cached_property
    def _finder(self) -> PairFinder:
        if self._given is None:
            raise RuntimeError("labels are not kept once all pairs are found")
        return PairFinder(*self._given)

    @cached_property
    def junk(self) -> BoolArray:
        """Gallery items that take part for no query, [G]."""
        return self._finder.junk

    @cached_property
    def classes(self) -> ItemClasses:
        """The classes of queries that ignore items."""
        if self._given is None:
            raise RuntimeError("labels are not kept once all pairs are found")
        return ItemClasses.of(*self._given[:3])

    def block(self, start: int, stop: int, threads: int = 1) -> Pairs:
        """Return the pairs of some queries; those that were found last are kept."""
        first, last = self._span
        if self._found is None or start < first or stop > last:
            self._found = None  # its memory is free before more is taken
            self._found, self._span = self._find(start, stop, threads), (start, stop)
            if stop - start == self.queries:  # labels may be large
                self._given = None
                del self._finder
            return self._found
        return self._found.block(start - first, stop - first)

    def listed_items(self) -> IntArray:
        """Return the gallery index of each listed pair, [L] int64."""
        if self._span == (0, self.queries):
            return self.block(0, self.queries).item
        blocks = [self._find(*span).item for span in spans(self.counts.listed)]
        return np.concatenate([np.empty(0, np.int64), *blocks])

    def _find(self, start: int, stop: int, threads: int = 1) -> Pairs:
        listed, finder = self.counts.listed[start:stop], self._finder
        indptr = cumulated(listed)
        count = int(indptr[-1])
        item, positive = np.empty(count, np.int64), np.empty(count, np.bool_)
        same_identity = np.ones(count, np.bool_)

        def find(span: Span) -> None:
            own = slice(*indptr[list(span)].tolist())
            found = finder.find(start + span[0], start + span[1])
            _, item[own], positive[own], same_identity[own] = found

        spread(find, spans(listed, max(PAIRS // threads, 1)), threads)  # they hold no more together
        classes = replace(self.classes, query=self.classes.query[start:stop])
        return Pairs(indptr, item, positive, same_identity, self.junk, classes, start)


def warn_of_other_identities(query: Labels, gallery: Labels, good: PairList) -> None:
    """Warn of positives of another identity: most likely the list counts from another number."""
    check_kinds(query, gallery, "id")
    other = np.flatnonzero(query.id[good.query] != gallery.id[good.item])
    if len(other):
        at = int(other[0])
        warn(
            f"{len(other)} of {len(good.item)} good pairs are of different identities, first item "
            f"{good.item[at] + good.base} in {good.place(at)}: the list counts, if it counts "
            "items, from elsewhere, or the ids are not those of its data set"
        )
