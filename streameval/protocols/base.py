"""Base: what several galleries are drawn from, whose pairs are among its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streameval.protocols.labels import Labels
from streameval.protocols.listed import ListedPairs
from streameval.protocols.pairs import PairSource
from streameval.protocols.protocol import Protocol
from streameval.protocols.views import View
from streameval.typing import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Base:
    """A view that galleries are drawn from.

    Attributes
    ----------
    view : View
    query, gallery : Labels
        Of the view. Items that are never drawn may have any.
    protocol : Protocol
        Of its pairs.
    listed : ListedPairs, optional
        Of the view.
    drawn : mapping of View to [n] int64
        The items of each gallery, numbered as in the view.
    """

    view: View
    query: Labels
    gallery: Labels
    protocol: Protocol
    listed: ListedPairs | None
    drawn: Mapping[View, IntArray]

    @classmethod
    def of(
        cls,
        view: View,
        sides: tuple[Labels, Labels],
        protocol: Protocol,
        listed: ListedPairs | None,
        galleries: list[View],
    ) -> Base:
        """Return what galleries are drawn from; `sides` are the labels of the view.

        Rules are not to complain of labels of items that are never drawn.
        """
        query, gallery = sides
        drawn = {one: one.items for one in galleries if one.items is not None}
        if view.items is not None:
            drawn = {one: np.searchsorted(view.items, own) for one, own in drawn.items()}
        base = cls(view, query, gallery, view.protocol(protocol), listed, drawn)
        row = np.arange(len(gallery))
        row[~base.anywhere] = np.flatnonzero(base.anywhere)[:1]
        return replace(base, gallery=gallery.take(row))

    @cached_property
    def anywhere(self) -> BoolArray:
        """Which items any gallery has, [G]."""
        anywhere: BoolArray = np.zeros(len(self.gallery), np.bool_)
        for items in self.drawn.values():
            anywhere[items] = True
        return anywhere

    @cached_property
    def pairs(self) -> PairSource:
        """The pairs of the view, which are found when they are asked for."""
        return PairSource(self.query, self.gallery, self.protocol, self.listed)
