"""Lists of pairs: gallery items by query, which rules name as ``pair.NAME``.

Some data sets come with lists of good (positive) and junk (ignored) items, and not only with
identities and cameras: VeRi-776 with ``gt_index.txt`` and ``jk_index.txt``, a line a query. What is
in neither list is a negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, entry_point, refuse
from streameval.stretches import cumulated, rows_of
from streameval.typing import FloatArray, IntArray, Span

PAIRS = 1 << 17  # that are found, merged or counted at a time


@dataclass(frozen=True, eq=False)
class PairList:
    """The gallery items that a list has for each query.

    Attributes
    ----------
    indptr : [Q + 1] int64
        Where each query's items begin.
    item : [L] int64
        Gallery indices, counted from 0.
    source : str
        What messages call the list.
    base : int
        What the list itself counts from, for messages.
    value : [L] float64, optional
        A number of each pair; NaN of one that has none.
    lines : bool
        Whether it has a line a query, for messages.
    """

    indptr: IntArray
    item: IntArray
    source: str
    base: int = 0
    value: FloatArray | None = None
    lines: bool = True

    @classmethod
    @entry_point
    def of(cls, rows: Iterable[npt.ArrayLike], source: str, base: int = 0) -> PairList:
        """Return the list of some rows of indices, one row a query.

        Raises
        ------
        InputError
        """
        items = [np.asarray(row) for row in rows]
        for query, row in enumerate(items):
            if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
                raise InputError(
                    f"{source}, line {query + 1} (query {query}) is {row.dtype} {row.shape}; "
                    "gallery indices, a 1-d list of integers, are needed"
                )
        indptr = np.cumsum([0, *map(len, items)], dtype=np.int64)
        every = [np.empty(0, np.int64), *(row.astype(np.int64) for row in items)]
        return cls(indptr, np.concatenate(every) - base, source, base)

    @property
    def query(self) -> IntArray:
        """The query of each listed item, [L] int64."""
        return rows_of(self.indptr)

    def place(self, listed: int) -> str:
        """Say where a listed item stands."""
        query = int(np.searchsorted(self.indptr, listed, side="right")) - 1
        line = f"line {query + 1} (query {query})" if self.lines else f"query {query}"
        return f"{self.source}, {line}"

    def among(self, queries: IntArray, items: IntArray) -> PairList:
        """Return the pairs of some queries and items, ascending rows, numbered anew from 0."""
        own = self.query
        places = [np.searchsorted(rows, of) for rows, of in ((queries, own), (items, self.item))]
        kept = np.flatnonzero(
            (np.append(queries, -1)[places[0]] == own)
            & (np.append(items, -1)[places[1]] == self.item)
        )
        counts = np.bincount(places[0][kept], minlength=len(queries))
        value = None if self.value is None else self.value[kept]
        return PairList(cumulated(counts), places[1][kept], self.source, 0, value, lines=False)

    def check(self, queries: int, gallery: int) -> None:
        """Check the number of lines, and that every item is in the gallery."""
        lines, base = len(self.indptr) - 1, self.base
        outside = np.flatnonzero((self.item < 0) | (self.item >= gallery))
        refuse(
            InputError,
            lines != queries
            and f"{self.source} has {lines} lines, and there are {queries} queries: one line a "
            "query is needed, an empty one where nothing is listed",
            len(outside)
            and f"{self.place(outside[0])} lists item {self.item[outside[0]] + base}; the "
            f"{gallery} gallery items are numbered {base} to {gallery - 1 + base}: does the list "
            f"count from {1 - base}?",
        )


@dataclass(frozen=True, eq=False)
class ListedPairs:
    """Lists of pairs by name.

    Attributes
    ----------
    lists : mapping of str to PairList
        ``good`` and ``junk``, the listed positive and ignored pairs, which replace identities and
        cameras; or those that the rules of a protocol name.
    """

    lists: Mapping[str, PairList]

    @classmethod
    @entry_point
    def of(
        cls, good: Iterable[npt.ArrayLike], junk: Iterable[npt.ArrayLike] | None = None
    ) -> ListedPairs:
        """Return the pairs of lists in memory: for each query, gallery indices from 0.

        Parameters
        ----------
        good : Q rows of integers
        junk : Q rows of integers, optional
            Without it, nothing is ignored.

        Raises
        ------
        InputError
        """
        listed = PairList.of(good, "the good list")
        rows = [()] * (len(listed.indptr) - 1) if junk is None else junk
        return cls({"good": listed, "junk": PairList.of(rows, "the junk list")})

    @property
    def good(self) -> PairList:
        """The list ``good``."""
        return self.lists["good"]

    @property
    def junk(self) -> PairList:
        """The list ``junk``."""
        return self.lists["junk"]

    def check(self, queries: int, gallery: int) -> None:
        """Check that the lists are of so many queries, and their items in the gallery.

        Raises
        ------
        InputError
        """
        for one in self.lists.values():
            one.check(queries, gallery)

    def check_apart(self, gallery: int) -> None:
        """Check that no pair is good and junk.

        Raises
        ------
        InputError
        """
        good, junk = self.good, self.junk
        pairs, others = (one.query * gallery + one.item for one in (good, junk))
        both = np.flatnonzero(np.isin(others, pairs))
        if len(both):
            at = int(both[0])
            first = int(np.flatnonzero(pairs == others[at])[0])
            raise InputError(
                f"{good.place(first)} and {junk.place(at)} both list item "
                f"{junk.item[at] + junk.base}: a pair is good or junk, not both"
            )


def spans(counts: IntArray, most: int = PAIRS) -> list[Span]:
    """Cut queries into spans that have so many pairs at most; or one query, which has more."""
    ends, found, start = np.cumsum(counts), [], 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        found.append((start, stop))
        start = stop
    return found
