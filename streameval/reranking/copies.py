"""Images whose rows are copies of one another: they are searched once.

Copies are as far from every image. Ties are by index, so that of the K nearest of an image only the
first K copies of a row can be any.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from streameval.planning.plan import pieces
from streameval.protocols.views import View
from streameval.reranking.encoding import Ranking
from streameval.reranking.lists import NOTHING, check_found, unpacked
from streameval.sources.features import Features
from streameval.typing import AnyArray, BoolArray, FloatArray, IntArray, Span

FEW = 1 / 16  # of all images: where no more are copies, these are searched as others are
BLOCK_BYTES = 4 << 20  # of rows, read at a time
DIGEST_BYTES = 16
SPREAD_ROWS = 4096  # of the images, at a time


class Copies(NamedTuple):
    """Which rows are copies.

    Attributes
    ----------
    first : [N] int64
        The first image with the same row.
    number : [N] int64
        How many images before it have the same row.
    """

    first: IntArray
    number: IntArray

    def search(self, most: int) -> Search:
        """Return what is searched for the nearest K images of each."""
        size = len(self.first)
        if np.count_nonzero(self.number) < FEW * size:
            return Search(View(), np.ones(size, np.bool_), most)
        alone = np.bincount(self.first, minlength=size)[self.first] == 1
        kept = np.flatnonzero(self.number <= most + 1)
        return Search(View("", kept, kept), alone, most + 1)


class Search(NamedTuple):
    """Which images are searched, among which.

    Attributes
    ----------
    view : View
        Of all images; or of so many copies of each row as may be nearest.
    alone : [N] bool
        Images that are not compared with themselves. Others take the place of their copies.
    most : int
        How many of the nearest are looked for.
    """

    view: View
    alone: BoolArray
    most: int

    @property
    def searched(self) -> int:
        """How many images are searched."""
        return len(self.alone) if self.view.queries is None else len(self.view.queries)

    def number(self, images: Span) -> Span:
        """Return which of the images that are searched are those of a range."""
        return self.view.spans(images, (0, 0))[0]

    def spread(self, found: FloatArray, copies: Copies, most: int) -> Ranking:
        """Return the K nearest images of each, of what is found of those that are searched.

        Parameters
        ----------
        found : [searched, W] float64
            See `lists.room_for`.
        copies : Copies
        most : int
            K.
        """
        size = len(copies.first)
        item, distance = np.empty((size, most + 1), np.int32), np.zeros((size, most + 1))
        greatest = np.empty(size)
        for rows in pieces((0, size), SPREAD_ROWS):
            part = slice(*rows)
            item[part, 0] = np.arange(*rows)
            item[part, 1:], distance[part, 1:], greatest[part] = self._spread(
                found, copies, rows, most
            )
        return Ranking(item, distance, greatest)

    def _spread(
        self, found: FloatArray, copies: Copies, rows: Span, most: int
    ) -> tuple[AnyArray, FloatArray, FloatArray]:
        """Return items [m, K], distances [m, K] and greatest distances [m] of some images."""
        images, items = np.arange(*rows), self.view.items
        if items is None:
            distance, item, greatest = unpacked(found[slice(*rows)])
        else:
            own = np.searchsorted(items, copies.first[images])
            distance, place, greatest = unpacked(found[own])
            item = np.where(place == NOTHING, NOTHING, items[place])
            left_out = item == images[:, None]
            left_out[~left_out.any(axis=1), -1] = True
            distance, item = (one[~left_out].reshape(-1, most) for one in (distance, item))
        check_found(item)
        return item, distance, np.maximum(greatest, 0.0)


def find_copies(features: Features) -> Copies:
    """Return which gallery items are copies, by digests of their rows."""
    size = features.shape[1]
    digests = np.empty((size, 2), np.uint64)
    step = max(BLOCK_BYTES // (features.width * features.dtype.itemsize), 1)
    for start, stop in pieces((0, size), step):
        rows = features.read_gallery(start, stop).rows
        made = b"".join(hashlib.blake2b(row, digest_size=DIGEST_BYTES).digest() for row in rows)
        digests[start:stop] = np.frombuffer(made, np.uint64).reshape(-1, 2)
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: copies stay in order
    new = np.ones(size, np.bool_)
    new[1:] = np.any(digests[order[1:]] != digests[order[:-1]], axis=1)
    begin = np.flatnonzero(new)[np.cumsum(new) - 1]
    first, number = np.empty((2, size), np.int64)
    first[order], number[order] = order[begin], np.arange(size) - begin
    return Copies(first, number)
