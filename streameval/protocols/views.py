"""Views: which of the queries rank which of the gallery items, in one of several evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streameval.errors import OptionError
from streameval.protocols.agreement import distinct, outcome
from streameval.protocols.counts import check_columns, check_same_images
from streameval.protocols.draws import drawn_rows, rows_left, taken_rows
from streameval.protocols.labels import Labels, first_fraction
from streameval.protocols.listed import ListedPairs
from streameval.protocols.protocol import REST, SELECTIONS, Protocol
from streameval.protocols.row_numbers import check_rows
from streameval.protocols.rows import Rows
from streameval.protocols.trials import GIVEN
from streameval.typing import AnyArray, IntArray, Span


@dataclass(frozen=True, eq=False)
class View:
    """Some queries, and the gallery items that they rank. Both are numbered anew, from 0.

    Attributes
    ----------
    name : str
        Among the views of a protocol.
    queries, items : [n] int64, optional
        Rows of the source, ascending; by default all.
    base : View, optional
        Of the same queries: where its items are drawn from those of another view.
    """

    name: str = ""
    queries: IntArray | None = None
    items: IntArray | None = None
    base: View | None = None

    @property
    def whole(self) -> bool:
        """Whether all queries rank all items."""
        return self.queries is None and self.items is None

    def protocol(self, protocol: Protocol) -> Protocol:
        """Return the protocol of its pairs. Own images are told by `Sides`, as by a key."""
        by_row = not self.whole and protocol.own_images == "index"
        return replace(
            protocol,
            queries="",
            gallery="",
            galleries="",
            trials=None,
            self_match="key" if by_row else protocol.own_images,
        )

    def same_rows(self, other: View) -> bool:
        """Return whether the queries and the items are those of another view."""
        pairs = (self.queries, other.queries), (self.items, other.items)
        return all(
            one is two or (one is not None and two is not None and np.array_equal(one, two))
            for one, two in pairs
        )

    def listed(self, given: ListedPairs | None, queries: int, gallery: int) -> ListedPairs | None:
        """Return the pairs of lists that are among its queries and items; the lists are checked.

        Raises
        ------
        InputError
            If a list is not of so many queries, or has an item beyond the gallery.
        """
        if given is None or self.whole:
            return given
        given.check(queries, gallery)
        queried, ranked = (
            np.arange(count) if rows is None else rows
            for rows, count in ((self.queries, queries), (self.items, gallery))
        )
        lists = {name: one.among(queried, ranked) for name, one in given.lists.items()}
        return ListedPairs(lists)

    def everywhere(self, labels: AnyArray, gallery: int) -> AnyArray:
        """Return labels of the items as labels of all items of the source, [G]; others are any."""
        if self.items is None:
            return labels
        filled = np.full(gallery, labels[0] if len(labels) else 0, labels.dtype)
        filled[self.items] = labels
        return filled

    @property
    def own_items(self) -> IntArray:
        """The number of each query among its items, where both sides are the same images, [q]."""
        queries = np.empty(0, np.int64) if self.queries is None else self.queries
        return queries if self.items is None else np.searchsorted(self.items, queries)

    def spans(self, queries: Span, items: Span) -> tuple[Span, Span]:
        """Return which of its queries, and of its items, lie in ranges of the source's rows."""
        return _inside(self.queries, queries), _inside(self.items, items)


class Sides:
    """Labels of the queries and of the items of views.

    Parameters
    ----------
    query, gallery : Labels
        Of the source.
    protocol : Protocol

    Raises
    ------
    OptionError
        If a query is its own image by its index, and the sides differ in length.
    """

    def __init__(self, query: Labels, gallery: Labels, protocol: Protocol) -> None:
        self._given, self._by_row = (query, gallery), protocol.own_images == "index"
        if self._by_row:
            check_same_images(query, gallery)
        self._taken: list[tuple[IntArray | None, Labels] | None] = [None, None]

    def of(self, view: View) -> tuple[Labels, Labels]:
        """Return the labels of a view's queries and items; the same for the same rows as before."""
        if view.whole:
            return self._given
        return self._take(0, view.queries), self._take(1, view.items)

    def _take(self, side: int, rows: IntArray | None) -> Labels:
        kept, labels = self._taken[side], self._given[side]
        if kept is None or kept[0] is not rows:
            own = labels if rows is None else labels.take(rows)
            if self._by_row:  # as keys, which tell own images apart wherever they stand now
                key = np.arange(len(labels)) if rows is None else rows
                own = Labels.of({**own.columns, "key": key}, own.source)
            kept = self._taken[side] = rows, own
        return kept[1]


def _inside(rows: IntArray | None, span: Span) -> Span:
    if rows is None:
        return span
    first, last = np.searchsorted(rows, span).tolist()
    return first, last


def rows_at(rows: IntArray | None, index: IntArray) -> IntArray:
    """Return the source's rows of queries or items of a view, by their numbers in it."""
    return index if rows is None else rows[index]


def views_of(
    protocol: Protocol,
    query: Labels,
    gallery: Labels,
    drawn: Sequence[IntArray] | None = None,
) -> list[View]:
    """Return the views of a protocol: each of its galleries, or trials; else one.

    Parameters
    ----------
    protocol : Protocol
    query, gallery : Labels
    drawn : sequence of [n] int64, optional
        The rows of each trial, where they are given.

    Raises
    ------
    OptionError
        If labels lack what the protocol selects by, or nothing is selected.
    InputError
        If rows that are given are not there, or the protocol leaves them out.
    """
    if not protocol.selects:
        return [View()]
    views = [View("", selected(protocol, "queries", query), selected(protocol, "gallery", gallery))]
    if protocol.galleries:
        views = [own for view in views for own in _galleries(view, protocol, gallery)]
    if protocol.trials is not None:
        views = [own for view in views for own in _drawn(view, protocol, (query, gallery), drawn)]
    return views


def selected(protocol: Protocol, name: str, labels: Labels) -> IntArray | None:
    """Return the rows that ``queries`` or ``gallery`` gives, or of which it holds; None: all.

    Raises
    ------
    InputError
        If rows that are given are not there.
    OptionError
        If labels lack a column that the protocol uses, or the rule holds of none.
    """
    given, rule = getattr(protocol, name), protocol.rule_of(name)
    check_columns(labels, SELECTIONS[name], protocol)
    if isinstance(given, Rows):
        check_rows(given.numbers, labels, f"protocol {protocol.name}, {name},")
        return given.numbers
    if rule is None:
        return None
    holds = np.zeros(len(labels), np.bool_)
    for term in rule.terms:
        holds |= np.logical_and.reduce([outcome(test, labels) for test in term.tests])
    rows = np.flatnonzero(holds)
    if len(labels) and not len(rows):
        raise OptionError(
            f"{name} of protocol {protocol.name}, {given!r}, holds of none of the {len(labels)} "
            f"items of {labels.source}: correct the rule, or give the labels that it is about"
        )
    return rows


def _galleries(view: View, protocol: Protocol, gallery: Labels) -> list[View]:
    """Return a view for each gallery: of a label, or of rows that are given."""
    if isinstance(protocol.galleries, str):
        return _by_label(view, protocol.galleries, gallery)
    given = [rows.numbers for rows in protocol.galleries]
    among = np.arange(len(gallery)) if view.items is None else view.items
    what = f"protocol {protocol.name}, gallery"
    return [
        replace(view, name=_numbered("gallery", number, len(given)), items=rows)
        for number, rows in enumerate(taken_rows(protocol.name, gallery, among, given, what), 1)
    ]


def _numbered(what: str, number: int, of: int | str) -> str:
    return f"{what} {number:0{len(str(of))}}"


def _by_label(view: View, column: str, gallery: Labels) -> list[View]:
    """Return a view for each label that the items have in a column."""
    items = np.arange(len(gallery)) if view.items is None else view.items
    labels = gallery.columns[column][items]
    row = first_fraction(labels)
    if row is not None:
        raise OptionError(
            f"column {column} of {gallery.source}, by which there are galleries, holds numbers "
            f"that are no integers ({labels[row]} in row {items[row]}): give a label an item"
        )
    known = distinct(labels)
    if not len(known):
        raise OptionError(
            f"there is a gallery for each label of column {column}, and none of the {len(items)} "
            f"items of {gallery.source} has one"
        )
    return [
        replace(view, name=f"{column} {label}", items=items[labels == label]) for label in known
    ]


def _drawn(
    view: View,
    protocol: Protocol,
    sides: tuple[Labels, Labels],
    given: Sequence[IntArray] | None,
) -> list[View]:
    """Return a view for each trial."""
    trials, (query, gallery) = protocol.trials, sides
    if trials is None or (protocol.over_draws and protocol.queries != REST):
        return [view]
    labels, rows = (gallery, view.items) if trials.side == "gallery" else (query, view.queries)
    if protocol.queries == REST and len(query) != len(gallery):
        raise OptionError(
            f"queries of protocol {protocol.name} are the rest of the gallery, what a trial does "
            f"not draw, and there are {len(query)} queries and {len(gallery)} items: give the same "
            "images on both sides"
        )
    among = np.arange(len(labels)) if rows is None else rows
    if not len(among):
        raise OptionError(f"the trials of protocol {protocol.name} draw from nothing")
    if protocol.over_draws:
        return [replace(view, queries=rows_left(protocol.name, trials, labels, among))]
    if trials.draw == GIVEN:
        each = taken_rows(protocol.name, labels, among, given)
    else:
        each = drawn_rows(protocol.name, trials, labels, among)
    views = []
    for number, drawn in enumerate(each, 1):
        own = {"queries" if trials.side == "query" else "items": drawn}
        if protocol.queries == REST:
            own["queries"] = np.setdiff1d(among, drawn, assume_unique=True)
            if not len(own["queries"]):
                raise OptionError(
                    f"trial {number} of protocol {protocol.name} draws all {len(among)} images, "
                    "and leaves no query: each group needs more images than are drawn"
                )
        name = " ".join(filter(None, (view.name, _numbered("trial", number, trials.times))))
        base = view if own.keys() == {"items"} else None
        views.append(replace(view, name=name, base=base, **own))
    return views
