"""Identities of the gallery: of which one item each is drawn for CMC under single gallery shot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streameval.protocols.pairs import IntArray, Pairs
from streameval.protocols.protocol import Labels

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Identities:
    """The H identities of a gallery of G items.

    Attributes
    ----------
    code : [G] int32
        Number of each item's identity, 0 .. H − 1.
    items : [H] int64
        Items of each identity, without junk.
    of_camera : [C + 1] int64
        Where the items of each camera begin in `codes`, where items of the query's camera take
        no part; else [0].
    codes : [of_camera[-1]] int32
        Codes of the items of camera 0, of camera 1, ..; without junk.
    """

    code: Int32Array
    items: IntArray
    of_camera: IntArray
    codes: Int32Array

    @property
    def count(self) -> int:
        """Number of identities H."""
        return len(self.items)

    def seen_by(self, camera: int) -> IntArray:
        """Return how many items of each identity take part for a camera's queries, [H] int64.

        Parameters
        ----------
        camera : int
            Its code; −1 where items of the query's camera take part as others do.
        """
        if camera < 0:
            return self.items
        own = self.codes[self.of_camera[camera] : self.of_camera[camera + 1]]
        seen: IntArray = self.items - np.bincount(own, minlength=self.count)
        return seen

    def left_out(self, pairs: Pairs, query: int) -> IntArray:
        """Return the identities of items that take no part for this one query, an entry an item.

        Beside junk and items of its camera. The query's own identity is not to be looked up: its
        positives are not negatives.
        """
        own = slice(*pairs.indptr[query : query + 2].tolist())
        item = pairs.item[own][~pairs.positive[own]]
        item = item[~pairs.junk[item]]
        if pairs.query_camera is not None and pairs.gallery_camera is not None:
            item = item[pairs.gallery_camera[item] != pairs.query_camera[query]]
        codes: IntArray = self.code[item].astype(np.int64)
        return codes


def find_identities(gallery: Labels, pairs: Pairs) -> Identities:
    """Find the identities of the gallery, and count their items.

    Parameters
    ----------
    gallery : Labels
    pairs : Pairs
        With that gallery.
    """
    known, number = np.unique(gallery.id, return_inverse=True)
    code = number.astype(np.int32)
    items = np.bincount(code[~pairs.junk], minlength=len(known))
    of_camera, codes = np.zeros(1, np.int64), np.empty(0, np.int32)
    if pairs.gallery_camera is not None:
        seen = np.flatnonzero(~pairs.junk & (pairs.gallery_camera >= 0))
        camera = pairs.gallery_camera[seen]
        codes = code[seen[np.argsort(camera, kind="stable")]]
        counts = np.bincount(camera, minlength=pairs.cameras)
        of_camera = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Identities(code, items.astype(np.int64), of_camera, codes)
