"""The pairs that a protocol lists one by one, found or counted for some queries at a time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streameval.errors import InputError, OptionError
from streameval.protocols.agreement import Agreement, Matches, compare, outcome
from streameval.protocols.labels import Labels, same_labels
from streameval.protocols.listed import ListedPairs, PairList, spans
from streameval.protocols.protocol import Protocol
from streameval.protocols.rules import LISTED, SIDES, Term, Test
from streameval.stretches import rows_of
from streameval.typing import AnyArray, BoolArray, FloatArray, IntArray


class PairFinder:
    """Finds the listed pairs of some queries at a time: those that are positive or ignored.

    Looked at are the pairs that agree in the columns of the rule of positives, those of lists that
    rules name, and own images.

    Parameters
    ----------
    query, gallery : Labels
        Of Q queries and G gallery items.
    protocol : Protocol
    listed : ListedPairs, optional
        The lists that its rules name.

    Attributes
    ----------
    junk : [G] bool
        Gallery items that take part for no query.
    """

    def __init__(
        self, query: Labels, gallery: Labels, protocol: Protocol, listed: ListedPairs | None = None
    ) -> None:
        self._sides = {"query": query, "gallery": gallery}
        self._protocol = protocol
        self._positive = protocol.positive_by.terms
        ignored = [term for rule in protocol.ignored_by for term in rule.terms]
        self._ignored = [term for term in ignored if not term.of_items]  # others make junk
        terms = (*self._positive, *self._ignored)
        self._tests = {
            test: outcome(test, self._sides[test.side])
            for term in terms
            for test in term.tests
            if test.side in self._sides
        }
        lists = {} if listed is None else listed.lists
        self._lists = {name: Listing(lists[name], len(gallery)) for name in protocol.lists}
        self._looked_up = [self._lists[name] for name in names_looked_up(terms)]
        self.junk = junk_items(gallery, protocol)
        self._anchors = protocol.positive_by.anchors
        self._matches = [
            Matches(Agreement(query, gallery, sorted(columns)), len(gallery))
            for columns in self._anchors
        ]
        by_key = protocol.self_match == "key"
        self._keys = Matches(Agreement(query, gallery, ("key",)), len(gallery)) if by_key else None

    def find(self, start: int, stop: int) -> tuple[IntArray, IntArray, BoolArray, BoolArray]:
        """Return the listed pairs of some queries: query from `start`, item, and as of `Pairs`.

        The last two are whether the pair is positive, and whether the rule of positives holds.
        """
        gallery = max(len(self._sides["gallery"]), 1)
        of_query, item = self._looked_at(start, stop)
        own = inserted = np.empty(0, np.int64)
        if self._protocol.self_match is not None:
            # Both lists ascend by query, then by item; own images are few.
            looked_at, images = of_query * gallery + item, self._own_images(start, stop)
            own = np.searchsorted(looked_at, images)
            other = own == len(looked_at)  # is not looked at so far
            other[~other] = looked_at[own[~other]] != images[~other]
            if other.any():
                query_of_own, item_of_own = np.divmod(images[other], gallery)
                of_query = np.insert(of_query, own[other], query_of_own)
                item = np.insert(item, own[other], item_of_own)
            own += np.cumsum(other) - other  # the place of each among all
            inserted = own[other]
        agree: dict[str, BoolArray] = {}
        if not self._looked_up and len(self._anchors) == 1 and len(self._anchors[0]) == 1:
            (column,) = self._anchors[0]
            agree[column] = np.ones(len(item), np.bool_)
            agree[column][inserted] = False
        pairs = _Agreeing(self._sides, start, of_query, item, agree, self._tests, self._lists)
        holds, ignored = pairs.any_of(self._positive), pairs.any_of(self._ignored)
        ignored |= self.junk[item]
        ignored[own] = True
        positive = holds & ~ignored
        if is_plain(self._positive) and not self._looked_up:  # all are listed
            return of_query, item, positive, holds
        kept = np.flatnonzero(holds | ignored)
        return of_query[kept], item[kept], positive[kept], holds[kept]

    def _looked_at(self, start: int, stop: int) -> tuple[IntArray, IntArray]:
        """Return query and item of the pairs that agree in an anchor's columns, or are listed."""
        found = [matches.of(start, stop) for matches in self._matches]
        parts = [(rows_of(indptr), item) for indptr, item in found]
        if len(parts) == 1 and not self._looked_up:
            return parts[0]
        gallery = max(len(self._sides["gallery"]), 1)
        pairs = [query * gallery + item for query, item in parts]
        pairs += [listing.of(start, stop) for listing in self._looked_up]
        query, item = np.divmod(np.unique(np.concatenate(pairs)), gallery)
        return query, item

    def counts(self, upper: IntArray) -> tuple[IntArray, IntArray]:
        """Count the positive and the listed pairs of each query, [Q] each.

        `upper` [Q] is at least the number of pairs that are looked at.
        """
        positives, listed = np.empty((2, len(upper)), np.int64)
        for start, stop in spans(upper):
            query, _, positive, _ = self.find(start, stop)
            listed[start:stop] = np.bincount(query, minlength=stop - start)
            positives[start:stop] = np.bincount(query[positive], minlength=stop - start)
        return positives, listed

    def _own_images(self, start: int, stop: int) -> IntArray:
        """Return query * G + item of the pairs of some queries with their own images."""
        gallery = len(self._sides["gallery"])
        if self._keys is not None:
            indptr, item = self._keys.of(start, stop)
            return rows_of(indptr) * gallery + item
        return np.arange(stop - start) * (gallery + 1) + start


class _Agreeing:
    """Some pairs, and in which columns both sides agree, looked up as rules ask for it."""

    def __init__(
        self,
        sides: dict[str, Labels],
        start: int,
        query: IntArray,
        item: IntArray,
        agree: dict[str, BoolArray],
        tests: dict[Test, BoolArray],
        lists: dict[str, Listing],
    ) -> None:
        self._sides, self._agree, self._tests, self._lists = sides, agree, tests, lists
        self._rows = {"query": query + start, "gallery": item}

    def any_of(self, terms: Iterable[Term]) -> BoolArray:
        """Tell of which pairs any of some terms holds."""
        holds = np.zeros(len(self._rows["gallery"]), np.bool_)
        for term in terms:
            holds |= self._all_of(term)
        return holds

    def _all_of(self, term: Term) -> BoolArray:
        parts = [self._same(name) for name in term.same]
        parts += [self._holds(test) for test in term.tests]
        for columns in term.different:
            parts.append(~np.logical_and.reduce([self._same(name) for name in columns]))
        holds: BoolArray = np.logical_and.reduce(parts)
        return holds

    def _holds(self, test: Test) -> BoolArray:
        if test.side == "pair":
            return self._lists[test.column].holds(test, *self._rows.values())
        holds: BoolArray = self._tests[test][self._rows[test.side]]
        return holds

    def _same(self, column: str) -> BoolArray:
        if column not in self._agree:
            query, gallery = (self._sides[side].columns[column][self._rows[side]] for side in SIDES)
            self._agree[column] = same_labels(query, gallery)
        return self._agree[column]


class Listing:
    """The pairs of a list, each once, and their values: looked up pair by pair.

    Held: 8 bytes a pair, and as much for its value.

    Raises
    ------
    InputError
        If the list has two values of a pair.
    """

    def __init__(self, pairs: PairList, gallery: int) -> None:
        self._gallery, self._value = max(gallery, 1), pairs.value
        self._pair, first, again = np.unique(
            pairs.query * self._gallery + pairs.item, return_index=True, return_inverse=True
        )
        if pairs.value is not None:
            self._value = pairs.value[first]
            other = np.flatnonzero(~_equal(self._value[again], pairs.value))
            if len(other):
                at = int(other[0])
                raise InputError(
                    f"{pairs.place(at)} lists item {pairs.item[at] + pairs.base} with values "
                    f"{self._value[again[at]]} and {pairs.value[at]}: one is needed"
                )

    def of(self, start: int, stop: int) -> IntArray:
        """Return the pairs of some queries, ascending: query from `start` * G + item."""
        begin, end = np.searchsorted(self._pair, [start * self._gallery, stop * self._gallery])
        pairs: IntArray = self._pair[begin:end] - start * self._gallery
        return pairs

    def holds(self, test: Test, query: IntArray, item: IntArray) -> BoolArray:
        """Tell of which pairs a test holds."""
        pair = query * self._gallery + item
        at = np.searchsorted(self._pair, pair)
        holds = np.append(self._pair, -1)[at] == pair
        if test.operator != LISTED and self._value is not None:
            values = test.value if isinstance(test.value, tuple) else (test.value,)
            holds &= compare(np.append(self._value, np.nan)[at], test.operator, values)
        return np.asarray(holds != test.negated)


def _equal(left: FloatArray, right: FloatArray) -> BoolArray:
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))


def names_looked_up(terms: Iterable[Term]) -> list[str]:
    """Return the lists all of whose pairs are looked at."""
    return sorted(frozenset[str]().union(*(term.lists for term in terms)))


def is_plain(terms: tuple[Term, ...]) -> bool:
    """Tell whether a rule asks for nothing but the same labels in some columns."""
    return len(terms) == 1 and not terms[0].different and not terms[0].tests


def junk_items(gallery: Labels, protocol: Protocol) -> BoolArray:
    """Tell which gallery items take part for no query, [G]."""
    junk = np.zeros(len(gallery), np.bool_)
    for label in junk_labels(gallery, protocol):
        junk |= gallery.id == label
    for term in (term for rule in protocol.ignored_by for term in rule.terms if term.of_items):
        junk |= np.logical_and.reduce([outcome(test, gallery) for test in term.tests])
    return junk


def junk_labels(gallery: Labels, protocol: Protocol) -> list[str | int]:
    """Return the junk identities in the type of the gallery's; raise OptionError of others."""
    if protocol.listed:
        return []
    strings = gallery.id.dtype.kind == "U"
    for label in protocol.junk_ids:
        if isinstance(label, str) and not strings:
            raise OptionError(
                f"junk id {label!r} is a string, and the ids of {gallery.source} are integers"
            )
    return [str(label) if strings else int(label) for label in protocol.junk_ids]


def junk_column(gallery: Labels, protocol: Protocol) -> AnyArray:
    """Return the junk identities as an array, but for integers that no label can be."""
    junk, int64 = junk_labels(gallery, protocol), np.iinfo(np.int64)
    if gallery.id.dtype.kind == "U":
        return np.array(junk, np.str_)
    return np.array([one for one in junk if int64.min <= int(one) <= int64.max], np.int64)
