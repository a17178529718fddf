"""Base: what several galleries are drawn from, whose pairs are among its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streameval.protocols.labels import Labels
from streameval.protocols.listed import ListedPairs
from streameval.protocols.pairs import PairSource
from streameval.protocols.protocol import Protocol
from streameval.protocols.views import View


@dataclass(frozen=True, eq=False)
class Base:
    """A view that galleries are drawn from.

    Attributes
    ----------
    view : View
    query, gallery : Labels
        Of the view.
    protocol : Protocol
        Of its pairs.
    listed : ListedPairs, optional
        Of the view.
    """

    view: View
    query: Labels
    gallery: Labels
    protocol: Protocol
    listed: ListedPairs | None = None

    @cached_property
    def pairs(self) -> PairSource:
        """Its pairs, which are found when they are asked for."""
        return PairSource(self.query, self.gallery, self.protocol, self.listed)
