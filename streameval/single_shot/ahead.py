"""Negatives ahead of each positive, by identity: what CMC under single gallery shot is made of.

Only a negative that is not further than its query's furthest positive matters, mostly a small
part of them. It is listed once, for the first positive p that it is ahead of, in one of three
*rows*:

    3 p        closer than p, and further than the positives before
    3 p + 1    as far as p, which is the first of those as far that come later in the gallery
    3 p + 2    as far as p, the last of those as far, which all come earlier in the gallery

so that the negatives ahead of a positive, under any tie rule, are those of all rows of its query
up to one of its own. An entry of the list is a number of 64 bits,

    row | identity | how many

so that a list that is sorted has the rows one after the other, and what is equal side by side.

Where a row has so many identities ahead that the positive is surely not among the first R, it is
*hopeless*, and so are the query's rows after it: nothing is listed for them any more. So a query
lists few negatives, however large the gallery, and however bad the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Entries = npt.NDArray[np.uint64]

ROWS = 3  # of each positive
SHOT_RANKS = 100  # ranks of CMC that are counted
ONE = 1 << 32  # the weight of a whole identity: in whole numbers, sums don't depend on the order


class Packing(NamedTuple):
    """Where the three numbers of an entry begin.

    Attributes
    ----------
    row, identity : uint64
        Their lowest bit; the number of negatives is what lies below `identity`.
    """

    row: np.uint64
    identity: np.uint64

    @classmethod
    def of(cls, positives: int, identities: int) -> Packing:
        """Return the packing for so many positives and identities."""
        row = 64 - max(ROWS * positives, 1).bit_length()
        return cls(np.uint64(row), np.uint64(row - max(identities, 1).bit_length()))


class Ahead(NamedTuple):
    """The list of negatives ahead of the positives of a block of m queries.

    Attributes
    ----------
    entries : [capacity] uint64
        See the module's overview.
    packing : Packing
    cut : [m] int64
        The first row of each query that is hopeless; beyond its last where none is.
    """

    entries: Entries
    packing: Packing
    cut: IntArray

    @classmethod
    def of(cls, indptr: IntArray, identities: int, capacity: int) -> Ahead:
        """Return the list of nothing; memory that isn't filled is not touched.

        Parameters
        ----------
        indptr : [m + 1] int64
            Where each query's positives begin.
        identities, capacity : int
        """
        packing = Packing.of(int(indptr[-1]), identities)
        return cls(np.empty(capacity, np.uint64), packing, ROWS * indptr[1:])


def most_entries(items: IntArray, rows: int, hopeless: int) -> int:
    """Return how many entries of a query are left at most after `fold`.

    Parameters
    ----------
    items : [H] int64
        Of each identity.
    rows : int
        Of the query.
    hopeless : int
        Identities ahead from which on a row is hopeless.
    """
    largest = np.sort(items[items > 0])[::-1]
    own = np.minimum(largest, rows)  # entries of an identity, which has a weight of own / largest
    whole = np.searchsorted(np.cumsum(own / np.maximum(largest, 1)), hopeless, side="right")
    return int(own[: whole + 1].sum())


def shot_entries(kept: int, spare: int) -> int:
    """Return the capacity of a list that has so many entries left after `fold`.

    Parameters
    ----------
    kept : int
    spare : int
        The most that are appended at a time.
    """
    return kept + kept // 4 + 2 * spare


@numba.njit(nogil=True, cache=True)
def fold(ahead, size, indptr, weight, most):  # type: ignore[no-untyped-def]
    """Add up what is equal in a sorted list, and leave out what is hopeless.

    Parameters
    ----------
    ahead : Ahead
        Sorted; written, and `cut` moved forward.
    size : int
        How many entries it has.
    indptr : [m + 1] int64
        Where each query's positives begin.
    weight : [H] int64
        Of an item of each identity, `ONE` over its items: how many drawn negatives are ahead,
        in the mean, is the sum of these at least.
    most : int
        More than that is hopeless.

    Returns
    -------
    how many entries there are
    """
    entries, cut = ahead.entries, ahead.cut
    row_bit, identity_bit = ahead.packing.row, ahead.packing.identity
    below = (np.uint64(1) << identity_bit) - np.uint64(1)
    of_identity = (np.uint64(1) << (row_bit - identity_bit)) - np.uint64(1)
    kept, i, total = 0, 0, 0
    for t in range(size):
        entry = entries[t]
        row, number = np.int64(entry >> row_bit), entry & below
        while row >= ROWS * indptr[i + 1]:
            i, total = i + 1, 0
        if row >= cut[i]:
            continue
        total += weight[entry >> identity_bit & of_identity] * np.int64(number)
        if total > most:
            cut[i] = row
            while kept > 0 and np.int64(entries[kept - 1] >> row_bit) == row:
                kept -= 1
        elif (
            kept > 0
            and entries[kept - 1] >> identity_bit == entry >> identity_bit
            and number <= below - (entries[kept - 1] & below)
        ):
            entries[kept - 1] += number
        else:
            entries[kept] = entry
            kept += 1
    return kept
