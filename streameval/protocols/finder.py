"""The pairs that a protocol lists one by one, found or counted for some queries at a time."""

from __future__ import annotations

import numpy as np

from streameval.errors import OptionError
from streameval.protocols.agreement import Agreement, Matches
from streameval.protocols.labels import Labels
from streameval.protocols.listed import spans
from streameval.protocols.protocol import Protocol
from streameval.stretches import cumulated, rows_of
from streameval.typing import AnyArray, BoolArray, IntArray


class PairFinder:
    """Finds the listed pairs of some queries at a time.

    Parameters
    ----------
    query, gallery : Labels
        Of Q queries and G gallery items.
    protocol : Protocol

    Attributes
    ----------
    junk : [G] bool
        Gallery items that take part for no query.
    """

    def __init__(self, query: Labels, gallery: Labels, protocol: Protocol) -> None:
        self._query, self._gallery, self._protocol = query, gallery, protocol
        self.junk: BoolArray = np.zeros(len(gallery), np.bool_)
        for label in junk_labels(gallery, protocol):
            self.junk |= gallery.id == label
        self._same = Matches(Agreement(query, gallery, ("id",)), len(gallery))
        by_key = protocol.self_match == "key"
        self._keys = Matches(Agreement(query, gallery, ("key",)), len(gallery)) if by_key else None

    def find(self, start: int, stop: int) -> tuple[IntArray, BoolArray, BoolArray]:
        """Return item, positive and same_identity of the pairs of some queries, as `Pairs` has."""
        query, gallery = self._query, self._gallery
        indptr, item = self._same.of(start, stop)
        of_query = rows_of(indptr)
        agree = {"id": np.ones(len(item), np.bool_)}
        ignored = self.junk[item]
        if self._protocol.self_match is not None:
            # Both lists ascend by query, then by item; own images are few.
            same, own = of_query * len(gallery) + item, self._own_images(start, stop)
            at = np.searchsorted(same, own)
            other = np.append(same, -1)[at] != own  # of another identity
            query_of_own, item_of_own = np.divmod(own, max(len(gallery), 1))
            of_query = np.insert(of_query, at[other], query_of_own[other])
            item = np.insert(item, at[other], item_of_own[other])
            at += np.cumsum(other) - other  # the place of each among all
            agree["id"] = np.ones(len(item), np.bool_)
            agree["id"][at[other]] = False
            ignored = self.junk[item]
            ignored[at] = True
        for rule in self._protocol.ignore:
            for column in rule:
                if column not in agree:
                    labels = query.columns[column][start:stop][of_query]
                    agree[column] = labels == gallery.columns[column][item]
            ignored |= np.logical_and.reduce([agree[column] for column in rule])
        return item, agree["id"] & ~ignored, agree["id"]

    def positives(self, listed: IntArray) -> IntArray:
        """Count the positive pairs of each query, [Q], from the numbers of its listed pairs."""
        count = np.empty(len(listed), np.int64)
        for start, stop in spans(listed):
            query = rows_of(cumulated(listed[start:stop]))
            _, positive, _ = self.find(start, stop)
            count[start:stop] = np.bincount(query[positive], minlength=stop - start)
        return count

    def _own_images(self, start: int, stop: int) -> IntArray:
        """Return query * G + item of the pairs of some queries with their own images."""
        gallery = len(self._gallery)
        if self._keys is not None:
            indptr, item = self._keys.of(start, stop)
            return rows_of(indptr) * gallery + item
        return np.arange(stop - start) * (gallery + 1) + start


def junk_labels(gallery: Labels, protocol: Protocol) -> list[str | int]:
    """Return the junk identities in the type of the gallery's; raise OptionError of others."""
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
