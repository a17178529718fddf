"""Encodings where each query is alone with the gallery: no other query is among the images.

The gallery is ranked and encoded once, without queries. A query that comes changes little of that.
In what follows, lists are the rankings of images, cut after the K nearest:

1. The query enters the lists of the items whose K-th nearest is no closer than it.
2. R(i, k) changes only where the list of i does, or where i falls out of such a list: it is the
   last of one that the query enters.
3. R*(i) changes only where R(i, k1) does, or where R(c, k1 / 2) does of one of its candidates c;
   of which i is among the k1 nearest, as both are reciprocal.
4. V(i) before the mean changes only where R*(i) does, or where the query is further from i than
   any item; the mean only where that of one of the first k2 does, or the query is one of them.

For these items s(q, g) is computed; for all others the V of the gallery serves. Image 0 is the
query here, and image g + 1 is gallery item g, so that ties are by index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streameval.planning.plan import pieces
from streameval.reranking.encoding import (
    Parameters,
    Ranking,
    SparseRows,
    mean_rows,
    members,
    overlap,
    weigh,
)
from streameval.reranking.everyone import Everyone
from streameval.reranking.kept import KeptRows
from streameval.stretches import cumulated, entries_of
from streameval.typing import AnyArray, FloatArray, Int32Array, IntArray

QUERY = 0  # the query, among the images
STEP = 1024  # items whose encodings are computed at a time


class Reversed(NamedTuple):
    """In the lists of which items each item is.

    Attributes
    ----------
    begin : [G + 1] int64
    item : [E] int32
        Ascending for each item.
    """

    begin: IntArray
    item: Int32Array

    @classmethod
    def of(cls, lists: Int32Array) -> Reversed:
        """Return in which of some lists, [G, n] items, each item is."""
        count = np.bincount(lists.ravel(), minlength=len(lists))
        order = np.argsort(lists.ravel(), kind="stable")
        return cls(cumulated(count), (order // lists.shape[1]).astype(np.int32))

    def holders(self, items: IntArray) -> IntArray:
        """Return the items in whose lists some are, ascending."""
        begin = self.begin[items]
        _, entry = entries_of(begin, self.begin[items + 1] - begin)
        return np.unique(self.item[entry]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class EncodedGallery:
    """The gallery, ranked and encoded by itself.

    Attributes
    ----------
    features : Everyone
        The gallery against itself.
    ranking : Ranking
    distances : KeptRows
        D on R*.
    rows : KeptRows
        V.
    first : Reversed
        Of the first k2 of each list.
    parameters : Parameters
    """

    features: Everyone
    ranking: Ranking
    distances: KeptRows
    rows: KeptRows
    first: Reversed
    parameters: Parameters


class OwnEncoding(NamedTuple):
    """What a query is encoded as.

    Attributes
    ----------
    item, value : [e] int32, [e] float64
        V of the query, on the gallery.
    changed, shared : [c] int32, [c] float64
        Gallery items, ascending, whose own V the query changes; and s(q, g) of these.
    """

    item: Int32Array
    value: FloatArray
    changed: Int32Array
    shared: FloatArray


class Encoder:
    """Encodes queries, one after the other.

    Parameters
    ----------
    gallery : EncodedGallery
    """

    def __init__(self, gallery: EncodedGallery) -> None:
        item, distance, _ = gallery.ranking
        (items, known), wanted = item.shape, min(gallery.parameters.neighbors, len(item))
        self._gallery, self._given = gallery, gallery.parameters
        near, far = (
            np.full((items + 1, wanted + 1), -1, np.int32),
            np.full((items + 1, wanted + 1), np.inf),
        )
        near[1:, :known], far[1:, :known] = item + 1, distance
        self._ranking = Ranking(near, far, np.empty(items + 1))
        self._furthest = far[1:, -1].copy()
        self._first = min(self._given.k2, wanted + 1)

    def encode(self, distance: FloatArray) -> OwnEncoding:
        """Return what a query is encoded as, of its distances from all items, [G] float64."""
        greatest = self._gallery.ranking.greatest
        np.maximum(greatest, distance, out=self._ranking.greatest[1:])
        self._ranking.greatest[QUERY] = max(distance.max(), 0.0)
        self._rank_query(distance)
        entered = np.flatnonzero(distance <= self._furthest)
        place = self._enter(entered, distance)
        try:
            one = _OneQuery(self._gallery, self._ranking, distance, self._first)
            rewritten = self._rewritten(entered, place)
            own = one.encoded(np.zeros(1, np.int64), rewritten)
            changed = np.union1d(
                self._gallery.first.holders(rewritten), entered[place < self._first]
            )
            further = self._gallery.first.holders(np.flatnonzero(distance > greatest))
            further = np.setdiff1d(further, changed, assume_unique=True)
            changed = np.union1d(changed, one.sharing(own, further))
            shared = [one.shared(own, part, rewritten) for part in _parts(changed)]
        finally:
            self._leave(entered)
        theirs = own.item != QUERY
        return OwnEncoding(
            own.item[theirs] - np.int32(1),
            own.value[theirs],
            changed.astype(np.int32),
            np.concatenate([np.empty(0), *shared]),
        )

    def _rank_query(self, distance: FloatArray) -> None:
        """Write the list of the query."""
        near, far, _ = self._ranking
        most = near.shape[1] - 1
        within = np.flatnonzero(distance <= np.partition(distance, most - 1)[most - 1])
        chosen = within[np.lexsort((within, distance[within]))[:most]]
        near[QUERY, 0], far[QUERY, 0] = QUERY, 0.0
        near[QUERY, 1:], far[QUERY, 1:] = chosen + 1, distance[chosen]

    def _enter(self, entered: IntArray, distance: FloatArray) -> IntArray:
        """Put the query into the lists of some items; return its place in each."""
        near, far, _ = self._ranking
        place, columns = np.empty(len(entered), np.int64), np.arange(near.shape[1])
        for start, stop in pieces((0, len(entered)), STEP):
            images, own = entered[start:stop] + 1, distance[entered[start:stop], None]
            # The query precedes items as far as it, but not the image itself.
            place[start:stop] = 1 + np.count_nonzero(far[images, 1:] < own, axis=1)
            at = place[start:stop, None]
            moved = columns - (columns > at)
            for lists, new in ((near, np.int32(QUERY)), (far, own)):
                old = np.take_along_axis(lists[images], moved, axis=1)
                lists[images] = np.where(columns == at, new, old)
        return place

    def _leave(self, entered: IntArray) -> None:
        """Take the query out of the lists again."""
        near, far, _ = self._ranking
        item, distance, _ = self._gallery.ranking
        for part in _parts(entered):
            near[part + 1], far[part + 1] = -1, np.inf
            near[part + 1, : item.shape[1]] = item[part] + 1
            far[part + 1, : item.shape[1]] = distance[part]

    def _rewritten(self, entered: IntArray, place: IntArray) -> IntArray:
        """Return the items whose R* may change, ascending: 2 and 3 above."""
        item, k1 = self._gallery.ranking.item, self._given.k1

        def reciprocal(depth: int) -> AnyArray:
            own = entered[place <= depth]
            fallen = item[own, depth] if depth < item.shape[1] else own
            return np.concatenate([own, fallen])

        near = item[reciprocal(self._given.half), : k1 + 1]
        return np.unique(np.concatenate([reciprocal(k1), near.ravel()])).astype(np.int64)


class _OneQuery:
    """Encodes items beside a query, which is in the lists.

    Parameters
    ----------
    gallery : EncodedGallery
    ranking : Ranking
        Of the query and the gallery.
    distance : [G] float64
        Of the query.
    count : int
        Images of a mean.
    """

    def __init__(
        self, gallery: EncodedGallery, ranking: Ranking, distance: FloatArray, count: int
    ) -> None:
        self._gallery, self._ranking, self._distance = gallery, ranking, distance
        self._count = count

    def encoded(self, images: IntArray, rewritten: IntArray) -> SparseRows:
        """Return V of some images.

        Parameters
        ----------
        images : [n] int64
        rewritten : [z] int64
            Items whose R* may not be that of the gallery alone, ascending.
        """
        of = np.sort(self._ranking.item[images, : self._count], axis=1)
        needed, place = np.unique(of.astype(np.int64), return_inverse=True)
        new = np.isin(needed, np.concatenate([[QUERY], rewritten + 1]), assume_unique=True)
        made, kept = self._made(needed[new]), self._gallery.distances.take(needed[~new] - 1)
        rows = _joined(made, kept._replace(item=kept.item + np.int32(1)))
        image = np.concatenate([needed[new], needed[~new]])
        weigh(rows, self._ranking.greatest[image], self._gallery.parameters.power)
        row = np.empty(len(needed), np.int64)
        row[new] = np.arange(len(made.begin) - 1)
        row[~new] = np.arange(len(made.begin) - 1, len(needed))
        return mean_rows(rows, row[place].reshape(of.shape))

    def shared(self, own: SparseRows, items: IntArray, rewritten: IntArray) -> FloatArray:
        """Return s of the query, of which V is given, and some items, [n] float64."""
        rows = _joined(own, self.encoded(items + 1, rewritten))
        query, item = np.zeros(len(items), np.int64), np.arange(1, len(items) + 1)
        return overlap(rows, query, item, len(self._distance) + 1)

    def sharing(self, own: SparseRows, items: IntArray) -> IntArray:
        """Return those of some items of which V in the gallery alone shares an image with V(q)."""
        wanted, found = np.zeros(len(self._distance) + 1, np.bool_), [np.empty(0, np.int64)]
        wanted[own.item] = True
        for part in _parts(items):
            known = self._gallery.rows.take(part)
            hit = np.add.reduceat(wanted[known.item + 1], known.begin[:-1], dtype=np.int64)
            found.append(part[hit > 0])
        return np.concatenate(found)

    def _made(self, images: IntArray) -> SparseRows:
        """Return D on R* of some images, by the lists that the query is in."""
        rows = members(self._ranking, images, self._gallery.parameters)
        missing = np.flatnonzero(np.isnan(rows.value))
        if not missing.size:
            return rows
        image, item = images[rows.of_entry[missing]], rows.item[missing].astype(np.int64)
        found = np.empty(len(missing))
        by_query = (image == QUERY) | (item == QUERY)
        found[by_query] = self._distance[np.maximum(image, item)[by_query] - 1]
        others = ~by_query
        found[others] = self._between(image[others] - 1, item[others] - 1)
        rows.value[missing] = found
        return rows

    def _between(self, one: IntArray, other: IntArray) -> FloatArray:
        """Return D of pairs of items: that of R* in the gallery alone, or computed anew."""
        distinct, row = np.unique(one, return_inverse=True)
        kept, size = self._gallery.distances.take(distinct), len(self._distance)
        keys, wanted = kept.of_entry * size + kept.item, row * size + other
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = kept.value[at]
        new = np.flatnonzero(keys[at] != wanted)
        if new.size:
            features = self._gallery.features
            taken, place = np.unique(np.concatenate([one[new], other[new]]), return_inverse=True)
            vectors, pairs = features.take_gallery(taken), place.reshape(2, -1)
            found[new] = features.distance.pairs(vectors, vectors, pairs[0], pairs[1])
        return found


def _joined(one: SparseRows, other: SparseRows) -> SparseRows:
    """Return the rows of one, then of the other."""
    return SparseRows(
        np.concatenate([one.begin, one.begin[-1] + other.begin[1:]]),
        np.concatenate([one.item, other.item]),
        np.concatenate([one.value, other.value]),
    )


def _parts(items: IntArray) -> list[IntArray]:
    return [items[start:stop] for start, stop in pieces((0, len(items)), STEP)]
