"""Item classes: rules over many items, by which all queries of a class ignore the same ones.

Under some protocols a query ignores every item of its camera. Such pairs are too many to be listed.
A *fact* is a code of each query and of each item, which are equal where the labels of some columns
are, or where tests of both sides hold. A rule asks for a fact on which both sides agree, and may
ask for others on which they don't.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streameval.protocols.agreement import Agreement, outcome
from streameval.protocols.labels import Labels
from streameval.protocols.protocol import Protocol
from streameval.protocols.rules import Side, Term, Test
from streameval.typing import BoolArray, Int32Array, IntArray

Clause = tuple[int, tuple[int, ...]]
"""The fact on which both sides agree, and those on which they don't, by their numbers."""


@dataclass(frozen=True, eq=False)
class ItemClasses:
    """Which gallery items the queries of a class ignore.

    The class of a query is its combination of codes of F facts.

    Attributes
    ----------
    query : [Q] int32
        Class of each query.
    code : [C, F] int32
        Codes of each class. Without rules there is one class, which ignores nothing.
    item : [F, G] int32
        Codes of each gallery item; −1 for an item that agrees with no query.
    clauses : tuple of Clause
        A query ignores an item of which any of them holds.
    """

    query: Int32Array
    code: Int32Array
    item: Int32Array
    clauses: tuple[Clause, ...] = ()

    @classmethod
    def none(cls, queries: int, gallery: int) -> ItemClasses:
        """Return the classes of no rule."""
        query = np.broadcast_to(np.int32(0), (queries,))
        return cls(query, np.zeros((1, 0), np.int32), np.zeros((0, gallery), np.int32))

    @classmethod
    def of(cls, query: Labels, gallery: Labels, protocol: Protocol) -> ItemClasses:
        """Return the classes of the rules whose pairs are not listed one by one."""
        classes, item = cls.of_queries(query, gallery, protocol)
        return replace(classes, item=np.stack([codes() for codes in item])) if item else classes

    @classmethod
    def of_queries(
        cls, query: Labels, gallery: Labels, protocol: Protocol
    ) -> tuple[ItemClasses, list[Callable[[], Int32Array]]]:
        """Return the classes without the items, and what returns their codes, a fact each."""
        none = cls.none(len(query), len(gallery))
        known, clauses = _facts(_class_terms(protocol))
        if not known:
            return none, []
        facts = [_codes(query, gallery, *fact) for fact in known]
        own = np.stack([of_queries for of_queries, _ in facts], axis=1)
        of_query = np.zeros(len(own), np.int64)
        for column in own.T:  # as np.unique over rows, which is slow
            joined = of_query * (int(column.max(initial=0)) + 3) + column
            _, first, of_query = np.unique(joined, return_index=True, return_inverse=True)
        classes = cls(of_query.astype(np.int32), own[first], none.item, clauses)
        return classes, [of_items for _, of_items in facts]

    @property
    def count(self) -> int:
        """Number of classes C that ignore items; 0 without rules."""
        return self.sizes[0]

    @property
    def sizes(self) -> tuple[int, int]:
        """C and F; 0 without rules."""
        return self.code.shape if self.clauses else (0, 0)

    def ignored(self, classes: Int32Array | list[int], items: slice | IntArray) -> BoolArray:
        """Return which items are ignored by one class, [1], or by the class beside each, [n]."""
        code, item = self.code[classes].T, self.item[:, items]
        ignored = np.zeros(item.shape[1], np.bool_)
        for agreed, others in self.clauses:
            holds = item[agreed] == code[agreed]
            for other in others:
                holds &= item[other] != code[other]
            ignored |= holds
        return ignored

    def ignored_rows(self, items: slice | IntArray) -> Iterator[BoolArray]:
        """Yield which of some items are ignored by each class, [n] each; nothing without rules."""
        for number in range(self.count):
            yield self.ignored([number], items)

    def ignored_counts(self, items: slice, taking_part: BoolArray) -> IntArray:
        """Count the items of a range that take part, and are ignored by each class, [C]."""
        counts = np.zeros(len(self.code), np.int64)
        for number, ignored in enumerate(self.ignored_rows(items)):
            counts[number] = np.count_nonzero(ignored & taking_part)
        return counts

    def __getstate__(self) -> dict[str, Any]:
        """Return arrays of as few bytes as hold the codes."""
        least = np.min_scalar_type(-int(max(len(self.code), self.code.max(initial=0))) - 1)
        arrays = {name: getattr(self, name).astype(least) for name in ("query", "code", "item")}
        return arrays | {"clauses": self.clauses}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        arrays = {name: state[name].astype(np.int32) for name in ("query", "code", "item")}
        vars(self).update(arrays, clauses=state["clauses"])


def _class_terms(protocol: Protocol) -> list[Term]:
    """Return the terms of ignored pairs that are not all listed, and not of the gallery alone."""
    return [
        term
        for rule in protocol.ignored_by
        for term in rule.terms
        if not term.of_items and not term.is_listed(protocol.positive_by.anchors)
    ]


Fact = tuple[frozenset[str], frozenset[Test]]


def _facts(terms: list[Term]) -> tuple[list[Fact], tuple[Clause, ...]]:
    """Return what is known of both sides, each once, and the terms as clauses."""
    numbers: dict[Fact, int] = {}

    def number(columns: frozenset[str], tests: frozenset[Test]) -> int:
        return numbers.setdefault((columns, tests), len(numbers))

    clauses = []
    for term in terms:
        agreed = number(term.same, term.tests)
        others = (number(columns, frozenset()) for columns in sorted(term.different, key=sorted))
        clauses.append((agreed, tuple(others)))
    return list(numbers), tuple(dict.fromkeys(clauses))


def _codes(
    query: Labels, gallery: Labels, columns: frozenset[str], tests: frozenset[Test]
) -> tuple[Int32Array, Callable[[], Int32Array]]:
    """Return codes of queries, [Q], and what returns those of items, [G].

    They are equal where columns are, and tests hold. A query of which a test does not hold is −2,
    an item of which one does not −1.
    """
    agreement = Agreement(query, gallery, sorted(columns)) if columns else None

    def tested(codes: Int32Array, side: Side, labels: Labels, nobody: int) -> Int32Array:
        for test in (test for test in tests if test.side == side):
            codes[~outcome(test, labels)] = nobody
        return codes

    def of_items() -> Int32Array:
        codes = np.zeros(len(gallery), np.int32) if agreement is None else agreement.codes()
        return tested(codes, "gallery", gallery, -1)

    own = np.zeros(len(query), np.int32)
    if agreement is not None:
        own = agreement.query.astype(np.int32)
    return tested(own, "query", query, -2), of_items
