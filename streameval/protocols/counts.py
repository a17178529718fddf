"""Numbers of pairs from labels alone: of what a protocol makes of them, with no pair listed.

Most protocols have a pair of one identity positive unless it agrees in all columns of a rule. The
product of (1 − agreement) over the rules is a sum over sets of columns, and the items that agree in
a set are counted by their labels: no pair is looked at. Many rules on different columns have too
many sets; their pairs, and those of rules that say more, are found and counted, some queries at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from streameval.errors import OptionError, refuse
from streameval.protocols.agreement import Agreement
from streameval.protocols.classes import ItemClasses
from streameval.protocols.finder import (
    PairFinder,
    is_plain,
    junk_column,
    junk_items,
    junk_labels,
    names_looked_up,
)
from streameval.protocols.labels import Labels, check_kinds, first_fraction, same_labels
from streameval.protocols.listed import ListedPairs, PairList
from streameval.protocols.protocol import Protocol
from streameval.protocols.rules import SIDES, Side
from streameval.stretches import cumulated
from streameval.typing import BoolArray, IntArray

INDEX = "#index"  # in a set of columns: a query's own image, by its index; no column's name
MOST_SETS = 32  # of columns; beyond, pairs are counted one by one
LOOKED_AT = 4096  # gallery items that tell where junk lies
_SHOWN = 300  # characters of the names of columns
ColumnSet = frozenset[str]


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Numbers of pairs of Q queries.

    Attributes
    ----------
    positive : [Q] int64
        Positive pairs of each query.
    listed : [Q] int64
        Pairs that are listed one by one: of the query's identity, its own image, or of a list.
    classes : (int, int)
        Classes C of queries that ignore items, and facts F by which; 0 where no rule does.
    taking_part : [n] bool, optional
        Which of n items, spread evenly over the gallery, are no junk; None where all take part.
    """

    positive: IntArray
    listed: IntArray
    classes: tuple[int, int] = (0, 0)
    taking_part: BoolArray | None = None

    @classmethod
    def assumed(cls, queries: int, positives: int) -> PairCounts:
        """Return numbers to plan with before there are labels: so many positives a query."""
        each = np.full(queries, positives, np.int64)
        return cls(each, each)

    def most(self) -> Callable[[int], tuple[int, int]]:
        """Return what tells the most positives, and listed pairs, of consecutive queries."""
        begins = [cumulated(counts) for counts in (self.positive, self.listed)]

        @cache
        def of_some(queries: int) -> tuple[int, int]:
            positive, listed = (
                int((begin[queries:] - begin[: len(begin) - queries]).max(initial=0))
                for begin in begins
            )
            return positive, listed

        return of_some

    @classmethod
    def of(
        cls, query: Labels, gallery: Labels, protocol: Protocol, listed: ListedPairs | None = None
    ) -> PairCounts:
        """Count the pairs that `find_pairs` lists.

        Parameters
        ----------
        query, gallery : Labels
            Of Q queries and G gallery items.
        protocol : Protocol
        listed : ListedPairs, optional

        Raises
        ------
        InputError
            If the labels of both sides can't be compared, or lists don't fit.
        OptionError
            If the protocol asks for what the labels lack.
        """
        check_protocol(query, gallery, protocol, listed)
        own = _own_image(query, gallery, protocol)
        classes, _ = ItemClasses.of_queries(query, gallery, protocol)
        numbers, terms = _Numbers(query, gallery), None
        sought, plain = protocol.positive_by.terms, is_plain(protocol.positive_by.terms)
        ignored = [term for rule in protocol.ignored_by for term in rule.terms]
        every = np.zeros(len(query), np.int64)
        for columns in protocol.positive_by.anchors:
            every += numbers.of(columns)
        for name in names_looked_up((*sought, *ignored)):
            every += 0 if listed is None else np.diff(listed.lists[name].indptr)
        base = sought[0].same
        if own is not None:
            every += numbers.of(own) - (numbers.of(own | base) if plain else 0)
        if plain and all(is_plain((term,)) for term in ignored) and "id" in base:
            rules = [base | term.same for term in ignored]
            terms = _expanded(base, [*rules, *([own | base] if own is not None else [])])
        if terms is None:
            counts = PairFinder(query, gallery, protocol, listed).counts(every)
            return cls(*counts, classes.sizes, _taking_part(gallery, protocol))
        positive = np.zeros(len(query), np.int64)
        for columns, factor in terms.items():
            positive += factor * numbers.of(columns)
        positive[np.isin(query.id, junk_column(gallery, protocol))] = 0
        return cls(positive, every, classes.sizes, _taking_part(gallery, protocol))


def _taking_part(gallery: Labels, protocol: Protocol) -> BoolArray | None:
    """Tell which of some items, spread evenly over a gallery, take part; None where all do."""
    step = max(len(gallery) // LOOKED_AT, 1)
    junk = junk_items(gallery.take(slice(None, None, step)), protocol)
    return ~junk if junk.any() else None


def _expanded(base: ColumnSet, rules: Iterable[ColumnSet]) -> dict[ColumnSet, int] | None:
    """Return agreement in a set of columns times (1 − agreement) of all rules, multiplied out.

    What is returned is the factor of each set of columns.

    None if there are more than `MOST_SETS` sets.
    """
    terms = {base: 1}
    for rule in dict.fromkeys(rules):
        for columns, factor in list(terms.items()):
            joined = columns | rule
            terms[joined] = terms.get(joined, 0) - factor
        terms = {columns: factor for columns, factor in terms.items() if factor}
        if len(terms) > MOST_SETS:
            return None
    return terms


class _Numbers:
    """Numbers of the items that agree with each query in sets of columns; each is counted once."""

    def __init__(self, query: Labels, gallery: Labels) -> None:
        self._sides = query, gallery
        self._known: dict[ColumnSet, IntArray] = {}

    def of(self, columns: ColumnSet) -> IntArray:
        """Return them for a set of columns, [Q]."""
        if columns not in self._known:
            self._known[columns] = self._count(columns)
        return self._known[columns]

    def _count(self, columns: ColumnSet) -> IntArray:
        query, gallery = self._sides
        if INDEX not in columns:
            ordered = sorted(columns, key=lambda name: (name != "id", name))
            return Agreement(query, gallery, ordered).counts()
        same = np.ones(len(query), np.bool_)
        for name in columns - {INDEX}:
            same &= same_labels(query.columns[name], gallery.columns[name])
        return same.astype(np.int64)


def _own_image(query: Labels, gallery: Labels, protocol: Protocol) -> ColumnSet | None:
    """Return the columns in which a query agrees with its own image alone; None: it takes part."""
    if protocol.self_match is None:
        return None
    if protocol.self_match == "key":
        return ColumnSet({"key"})
    check_same_images(query, gallery)
    return ColumnSet({INDEX})


def check_same_images(query: Labels, gallery: Labels) -> None:
    """Raise OptionError unless query i may be gallery item i."""
    if len(query) != len(gallery):
        raise OptionError(
            f"self_match by index needs query i to be gallery item i: {query.source} has "
            f"{len(query)} rows, {gallery.source} {len(gallery)}; match by key instead"
        )


def check_protocol(
    query: Labels, gallery: Labels, protocol: Protocol, listed: ListedPairs | None
) -> None:
    """Check that labels, or lists, are those that the protocol asks for.

    Raises
    ------
    InputError, OptionError
    """
    _check_lists(protocol, {} if listed is None else listed.lists)
    if protocol.selects:
        raise OptionError(
            f"protocol {protocol.name} selects who takes part ({'; '.join(protocol.selections)}), "
            "and here all queries and items do: choose another protocol, or evaluate"
        )
    if listed is not None:
        listed.check(len(query), len(gallery))
        if protocol.listed:
            listed.check_apart(len(gallery))
    junk_labels(gallery, protocol)
    check_kinds(query, gallery, "id")
    sides: dict[Side, Labels] = {"query": query, "gallery": gallery}
    for side, labels in sides.items():
        check_columns(labels, side, protocol)
    by_key = {"key"} if protocol.self_match == "key" else set()
    shared = {name for rule in protocol.rules for term in rule.terms for name in term.columns}
    for column in sorted(shared | by_key):
        check_kinds(query, gallery, column)
        for labels in sides.values():
            _check_whole(column, labels, protocol)


def _check_lists(protocol: Protocol, given: Mapping[str, PairList]) -> None:
    """Raise OptionError for lists that rules name and are not there, or the other way round."""
    unused = [name for name in given if name not in protocol.lists]
    refuse(
        OptionError,
        protocol.listed
        and "good" not in given
        and f"protocol {protocol.name} takes its pairs from lists: give good, and junk",
        unused
        and f"got pairs {unused[0]}, and no rule of protocol {protocol.name} names "
        f"pair.{unused[0]}: choose protocol listed for good and junk, or leave them out",
    )
    named = [(rule.text, *one) for rule in protocol.rules for one in rule.lists.items()]
    for text, name, compares in named:
        where = f"protocol {protocol.name} has the rule {text!r}, and"
        refuse(
            OptionError,
            name not in given
            and f"{where} got {'pairs ' * bool(given)}{', '.join(given) or 'no lists of pairs'}: "
            f"give --pairs {name}=FILE (in Python pairs={{{name!r}: ...}})",
            compares
            and given[name].value is None
            and f"{where} {given[name].source} has no values: give a table with columns query, "
            "item and value",
        )


def _check_whole(column: str, labels: Labels, protocol: Protocol) -> None:
    """Raise OptionError if a rule asks for the same labels in a column of fractions."""
    values = labels.columns[column]
    row = first_fraction(values)
    if row is not None:
        rule = next(
            rule.text for rule in protocol.rules for term in rule.terms if column in term.columns
        )
        raise OptionError(
            f"protocol {protocol.name} has the rule {rule!r}, and column {column} of "
            f"{labels.source} holds numbers that are no integers ({values[row]} in row {row}): "
            f"compare it with a number, as in gallery.{column} >= {values[row]}, or round it"
        )


def check_columns(labels: Labels, side: Side, protocol: Protocol) -> None:
    """Raise OptionError where a side lacks a column that the protocol uses."""
    for column in protocol.columns_of(side):
        if column not in labels.columns:
            raise OptionError(_lacking(column, side, labels, protocol))


def _lacking(column: str, side: Side, labels: Labels, protocol: Protocol) -> str:
    """Return what a protocol asks for, and labels don't have."""
    rule = next((one for one in protocol.rules if column in one.columns(side)), None)
    if rule is None and column == "key" and protocol.self_match == "key":
        return f"self_match by key needs keys of both sides; {labels.source} has none"
    by, whose = f"for {'; '.join(protocol.selections)}", f"the {side}"
    if rule is not None:
        by = f"for the rule {rule.text!r}"
        if all(column in rule.columns(one) for one in SIDES):
            whose = "both sides"
    what, remedy = f"column {column}", f"it (in Python more={{{column!r}: ...}})"
    if column in ("cam", "key"):
        what = remedy = {"cam": "cameras", "key": "keys"}[column]
    has = ", ".join([*labels.columns, *labels.unread])
    has = has if len(has) <= _SHOWN else f"{has[:_SHOWN]} ..."
    return (
        f"protocol {protocol.name} needs {what} of {whose} {by}, and "
        f"{labels.source} has no {what} for the {side} (it has {has}): give "
        f"{remedy}, or choose {'protocol no-camera' if column == 'cam' else 'another protocol'}"
    )
