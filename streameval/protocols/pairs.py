"""Pairs: what the protocol makes of every (query, gallery) pair, without listing them all.

Only pairs of the same identity (and a query's own image) are listed, query by query: they are
few. Junk items and, under some protocols, items of the query's camera are ignored by rule. All
other pairs are negatives.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.protocols.listed import ListedPairs, PairList
from streameval.protocols.protocol import AnyArray, Labels, Protocol

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_BLOCK = 1 << 16  # gallery labels looked up at a time: temporaries stay small
_TABLE = 1 << 20  # labels that a table may have, 4 bytes each
_FAR = 1 << 62  # labels that may be counted from one another


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
        Whether the listed item is of the query's identity, or on a list for it; otherwise it is
        its own image.
    junk : [G] bool
        Gallery items that take part for no query.
    query_camera, gallery_camera : [Q], [G] int32, or None
        Camera codes where every pair of the same camera is ignored; a gallery camera that no
        query has is −1.
    """

    indptr: IntArray
    item: IntArray
    positive: BoolArray
    same_identity: BoolArray
    junk: BoolArray
    query_camera: npt.NDArray[np.int32] | None
    gallery_camera: npt.NDArray[np.int32] | None

    def __reduce__(self) -> tuple[Callable[..., Pairs], tuple[Any, ...]]:
        """Travel small: a bit an item, and cameras in a byte where one holds them."""
        bits = [np.packbits(one) for one in (self.positive, self.same_identity, self.junk)]
        cameras = [
            None if one is None else one.astype(np.min_scalar_type(-self.cameras - 1))
            for one in (self.query_camera, self.gallery_camera)
        ]
        return _unpack, (self.indptr, self.item, self.gallery, *bits, *cameras)

    @classmethod
    def assumed(cls, queries: int, gallery: int, positives: int) -> Pairs:
        """Return pairs to plan with, before there are labels: so many positives a query.

        What they are of is not told: they take no memory, and can't be evaluated.
        """
        listed = (queries * positives,)
        yes = np.broadcast_to(np.True_, listed)
        return cls(
            np.arange(queries + 1, dtype=np.int64) * positives,
            np.broadcast_to(np.int64(0), listed),
            yes,
            yes,
            np.broadcast_to(np.False_, (gallery,)),
            None,
            None,
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
    def cameras(self) -> int:
        """Number of cameras told apart by rule; 0 where none are."""
        return 0 if self.query_camera is None else int(self.query_camera.max(initial=-1)) + 1

    def positives(self) -> tuple[IntArray, IntArray]:
        """Return (indptr [Q + 1], item [P]) of the positive pairs alone."""
        total = np.concatenate([[0], np.cumsum(self.positive, dtype=np.int64)])
        return total[self.indptr], self.item[self.positive]

    def listed_in(self, start: int, stop: int) -> tuple[IntArray, IntArray]:
        """Return the listed pairs with ``start <= item < stop``.

        Returns
        -------
        query, listed : [l] int64
            The query of each such pair, and its index among the listed pairs.
        """
        listed = np.flatnonzero((self.item >= start) & (self.item < stop))
        return np.searchsorted(self.indptr, listed, side="right") - 1, listed

    def counts_in(self, start: int, stop: int) -> tuple[IntArray, IntArray, IntArray]:
        """Count the items of a gallery range that are positive, ignored and of same identity.

        Returns
        -------
        positive, ignored, same_identity : [Q] int64
        """
        query, listed = self.listed_in(start, stop)
        item, positive = self.item[listed], self.positive[listed]

        def per_query(chosen: BoolArray) -> IntArray:
            return np.bincount(query[chosen], minlength=self.queries).astype(np.int64)

        junk = self.junk[start:stop]
        by_rule = self.junk[item]
        ignored = np.full(self.queries, np.count_nonzero(junk), np.int64)
        if self.query_camera is not None and self.gallery_camera is not None:
            cameras = self.gallery_camera[start:stop][~junk]
            ignored += np.bincount(cameras[cameras >= 0], minlength=self.cameras)[self.query_camera]
            by_rule = by_rule | (self.gallery_camera[item] == self.query_camera[query])
        ignored += per_query(~positive & ~by_rule)
        return per_query(positive), ignored, per_query(self.same_identity[listed])

    def block(self, start: int, stop: int) -> Pairs:
        """Return the pairs of some of the queries."""
        begin, end = int(self.indptr[start]), int(self.indptr[stop])
        return Pairs(
            self.indptr[start : stop + 1] - begin,
            self.item[begin:end],
            self.positive[begin:end],
            self.same_identity[begin:end],
            self.junk,
            None if self.query_camera is None else self.query_camera[start:stop],
            self.gallery_camera,
        )


def _unpack(
    indptr: IntArray,
    item: IntArray,
    gallery: int,
    positive: npt.NDArray[np.uint8],
    same_identity: npt.NDArray[np.uint8],
    junk: npt.NDArray[np.uint8],
    query_camera: npt.NDArray[Any] | None,
    gallery_camera: npt.NDArray[Any] | None,
) -> Pairs:
    """Undo `Pairs.__reduce__`."""
    bits = ((positive, len(item)), (same_identity, len(item)), (junk, gallery))
    masks: list[BoolArray] = [
        np.unpackbits(packed, count=count).view(np.bool_) for packed, count in bits
    ]
    own, others = (
        None if one is None else one.astype(np.int32) for one in (query_camera, gallery_camera)
    )
    return Pairs(indptr, item, masks[0], masks[1], masks[2], own, others)


def expand(begin: IntArray, end: IntArray) -> IntArray:
    """Return the indices of all ranges ``begin[i]:end[i]`` one after the other."""
    length = end - begin
    offset = np.repeat(begin - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
    expanded: IntArray = np.arange(int(length.sum()), dtype=np.int64) + offset
    return expanded


def find_pairs(
    query: Labels, gallery: Labels, protocol: Protocol, listed: ListedPairs | None = None
) -> Pairs:
    """Apply a protocol to the labels; or to the listed pairs, where it takes these.

    Parameters
    ----------
    query, gallery : Labels
        Of Q queries and G gallery items.
    protocol : Protocol
    listed : ListedPairs, optional
        A query of which nothing is listed is in Q−.

    Raises
    ------
    InputError
        If the two sides' labels are of different kinds, or lists don't fit the gallery.
    OptionError
        If the protocol needs cameras, keys or lists that are not there, or takes no lists.
    """
    if protocol.listed != (listed is not None):
        raise OptionError(
            f"protocol {protocol.name} takes its pairs from lists: give good, and junk"
            if listed is None
            else f"got lists of good and junk pairs, and protocol {protocol.name} finds its pairs "
            "by identity and camera: choose protocol listed"
        )
    if listed is not None:
        indptr, item, good = listed.merged(len(query), len(gallery))
        _warn_of_other_identities(query, gallery, listed.good)
        no_junk = np.zeros(len(gallery), np.bool_)
        return Pairs(indptr, item, good, np.ones(len(item), np.bool_), no_junk, None, None)
    junk = _is_junk(gallery, protocol)
    indptr, item = _matches(query.id, gallery.id, f"ids of {query.source}, {gallery.source}")
    listed_query = np.repeat(np.arange(len(query)), np.diff(indptr))
    same_identity = np.ones(len(item), np.bool_)
    ignored = junk[item]
    query_camera = gallery_camera = None
    if protocol.needs_cameras:
        if query.cam is None or gallery.cam is None:
            missing = query.source if query.cam is None else gallery.source
            raise OptionError(
                f"protocol {protocol.name} ignores pairs by camera, and {missing} has no cameras: "
                "give cameras of both sides, or choose protocol no-camera"
            )
        _check_kinds(query.cam, gallery.cam, f"cameras of {query.source}, {gallery.source}")
        ignored |= query.cam[listed_query] == gallery.cam[item]
        if protocol.same_camera:
            known, query_camera = _number(query.cam)
            gallery_camera = np.full(len(gallery), -1, np.int32)
            for start, found, code in _look_up(known, gallery.cam):
                gallery_camera[start + found] = code
    if protocol.self_match is not None:
        own_query, own_item = _own_images(query, gallery, protocol)
        pair = listed_query * len(junk) + item
        own = own_query * len(junk) + own_item
        ignored |= np.isin(pair, own)
        more = ~np.isin(own, pair)
        order = np.argsort(np.concatenate([pair, own[more]]))
        item = np.concatenate([item, own_item[more]])[order]
        same_identity = np.concatenate([same_identity, np.zeros(more.sum(), np.bool_)])[order]
        ignored = np.concatenate([ignored, np.ones(more.sum(), np.bool_)])[order]
        listed_query = np.concatenate([listed_query, own_query[more]])[order]
        indptr = np.searchsorted(listed_query, np.arange(len(query) + 1)).astype(np.int64)
    return Pairs(
        indptr,
        item,
        ~ignored,
        same_identity,
        junk,
        query_camera,
        gallery_camera,
    )


def _warn_of_other_identities(query: Labels, gallery: Labels, good: PairList) -> None:
    """Warn of positives of another identity: of a list that counts from elsewhere, most likely."""
    _check_kinds(query.id, gallery.id, f"ids of {query.source}, {gallery.source}")
    other = np.flatnonzero(query.id[good.query] != gallery.id[good.item])
    if len(other):
        at = int(other[0])
        warnings.warn(
            f"{len(other)} of {len(good.item)} good pairs are of different identities, first item "
            f"{good.item[at] + good.base} in {good.place(at)}: the list counts, if it counts "
            "items, from elsewhere, or the ids are not those of its data set",
            StreamevalWarning,
            stacklevel=4,
        )


def _is_junk(gallery: Labels, protocol: Protocol) -> BoolArray:
    junk = np.zeros(len(gallery), np.bool_)
    wanted: list[int | str]
    if gallery.id.dtype.kind == "U":
        wanted = [str(one) for one in protocol.junk_ids]
    else:
        strings = [one for one in protocol.junk_ids if isinstance(one, str)]
        if strings:
            raise OptionError(
                f"junk id {strings[0]!r} is a string, and the ids of {gallery.source} are integers"
            )
        wanted = [one for one in protocol.junk_ids if _fits(int(one), gallery.id.dtype)]
    for one in wanted:
        junk |= gallery.id == one
    return junk


def _fits(label: int, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= label <= limits.max)


def _check_kinds(query: AnyArray, gallery: AnyArray, what: str) -> None:
    """Refuse to compare integers with strings."""
    strings = [labels.dtype.kind == "U" for labels in (query, gallery)]
    if len(query) and len(gallery) and strings[0] != strings[1]:
        kinds = " and ".join("strings" if one else "integers" for one in strings)
        side = "gallery" if strings[0] else "query"
        raise InputError(
            f"{what} are {kinds}, and none would match: store those of the {side} as strings, too "
            "(NumPy: labels.astype(str); a table: a column of text), or both as integers"
        )


def _number(labels: AnyArray) -> tuple[AnyArray, npt.NDArray[np.int32]]:
    """Return the distinct labels, ascending, and the number of each label among them."""
    known, code = np.unique(labels, return_inverse=True)
    return known, code.astype(np.int32)


def _look_up(
    known: AnyArray, labels: AnyArray
) -> Iterator[tuple[int, IntArray, npt.NDArray[np.int32]]]:
    """Yield, block by block, its start, which labels are among `known`, and their numbers."""
    number_of = _finder(known)
    for start in range(0, len(labels) if len(known) else 0, _BLOCK):
        number = number_of(labels[start : start + _BLOCK])
        found = np.flatnonzero(number >= 0)
        yield start, found, number[found]


def _finder(known: AnyArray) -> Callable[[AnyArray], npt.NDArray[np.int32]]:
    """Return what gives the number of each label among `known`; −1 of those that are not.

    Integers that lie close together, as they mostly do, are looked up in a table, by the label.
    """
    if known.dtype.kind == "U":
        return partial(_search, known)
    known = known.astype(np.int64)
    low, high = (int(known[0]), int(known[-1])) if len(known) else (0, 0)
    if not -_FAR < low <= high < _FAR or high - low >= _TABLE:
        return lambda labels: _search(known, labels.astype(np.int64))
    table = np.full(high - low + 3, -1, np.int32)  # beyond either end, one that is not known
    table[known - (low - 1)] = np.arange(len(known))
    return lambda labels: table[np.clip(labels.astype(np.int64), low - 1, high + 1) - (low - 1)]


def _search(known: AnyArray, labels: AnyArray) -> npt.NDArray[np.int32]:
    at = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[at] == labels, at, -1).astype(np.int32)


def _matches(query: AnyArray, gallery: AnyArray, what: str) -> tuple[IntArray, IntArray]:
    """List the gallery items with the label of each query, in gallery order: (indptr, item)."""
    _check_kinds(query, gallery, what)
    known, code = _number(query)
    items, codes = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for start, found, numbers in _look_up(known, gallery):
        items.append(start + found)
        codes.append(numbers)
    number = np.concatenate(codes)
    by_number = np.concatenate(items)[np.argsort(number, kind="stable")]
    begin = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=len(known)))])
    indptr = np.concatenate([[0], np.cumsum(np.diff(begin)[code])]).astype(np.int64)
    return indptr, by_number[expand(begin[code], begin[1:][code])]


def _own_images(query: Labels, gallery: Labels, protocol: Protocol) -> tuple[IntArray, IntArray]:
    """Return (query, item) of the pairs of a query with its own image."""
    if protocol.self_match == "index":
        if len(query) != len(gallery):
            raise OptionError(
                f"self_match by index needs query i to be gallery item i: {query.source} has "
                f"{len(query)} rows, {gallery.source} {len(gallery)}; match by key instead"
            )
        same = np.arange(len(query), dtype=np.int64)
        return same, same
    if query.key is None or gallery.key is None:
        missing = query.source if query.key is None else gallery.source
        raise OptionError(f"self_match by key needs keys of both sides; {missing} has none")
    indptr, item = _matches(query.key, gallery.key, f"keys of {query.source}, {gallery.source}")
    return np.repeat(np.arange(len(query)), np.diff(indptr)), item
