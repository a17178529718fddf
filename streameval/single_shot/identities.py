"""Identities of the gallery: single gallery shot draws an item of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streameval.protocols.labels import IntArray, Labels
from streameval.protocols.pairs import Pairs


@dataclass(frozen=True, eq=False)
class GalleryIdentities:
    """The H identities of a gallery of G items.

    Attributes
    ----------
    code : [G] int32
        Index of each item's identity, 0 .. H − 1.
    items : [H] int64
        Number of items of each identity, without junk.
    """

    code: npt.NDArray[np.int32]
    items: IntArray

    @property
    def count(self) -> int:
        """Number of identities H."""
        return len(self.items)

    def valid(self, pairs: Pairs, number: int) -> IntArray:
        """Return how many items of each identity the queries of a class don't ignore, [H] int64."""
        if not pairs.classes.count:
            return self.items
        ignored = pairs.classes.ignored(number, slice(None)) & ~pairs.junk
        valid: IntArray = self.items - np.bincount(self.code[ignored], minlength=self.count)
        return valid

    def left_out(self, pairs: Pairs, query: int) -> IntArray:
        """Return the identity of each item that this query alone ignores.

        These are neither junk nor ignored by the query's class. The query's own identity needs no
        look-up: its positives are not negatives.
        """
        own = slice(*pairs.indptr[query : query + 2].tolist())
        item = pairs.item[own][~pairs.positive[own]]
        item = item[~pairs.junk[item]]
        item = item[~pairs.classes.ignored(int(pairs.classes.query[query]), item)]
        codes: IntArray = self.code[item].astype(np.int64)
        return codes


def find_identities(gallery: Labels, pairs: Pairs) -> GalleryIdentities:
    """Return the identities of the gallery, and how many items each has.

    Parameters
    ----------
    gallery : Labels
    pairs : Pairs
        With that gallery.
    """
    known, code = np.unique(gallery.id, return_inverse=True)
    items = np.bincount(code[~pairs.junk], minlength=len(known))
    return GalleryIdentities(code.astype(np.int32), items.astype(np.int64))
