"""Repairs of lists: sorted by distance, each item once, without padding."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np

from streameval.choices import Missing
from streameval.errors import InputError, StreamevalWarning
from streameval.neighbors.faiss_index import NOTHING
from streameval.neighbors.lists import BoolArray, Lists
from streameval.statistics import FloatArray, IntArray

REPAIRS = {
    "unsorted": "lists were not sorted by distance, and have been",
    "repeated": "entries name an item that their list has had before, and were dropped",
    "short": "lists end in −1 before k: an exact search pads where the gallery is shorter than k, "
    "and only there; if an approximate index made them, bounds don't hold: --missing never",
}


@dataclass
class Repairs:
    """Numbers of repairs, and the first query of each kind.

    Attributes
    ----------
    count : dict of str to int
        Lists that were not sorted by distance; entries that were repeated; lists that end in −1,
        and are shorter than the gallery.
    first : dict of str to int
    """

    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REPAIRS, 0))
    first: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, query: IntArray) -> None:
        """Note a repair in each of these queries."""
        if len(query):
            self.count[kind] += len(query)
            self.first.setdefault(kind, int(query[0]))

    def warn(self, where: str, missing: Missing) -> None:
        """Warn of each kind of repair."""
        for kind, message in REPAIRS.items():
            if self.count[kind] and not (kind == "short" and missing == "never"):
                warnings.warn(
                    f"{where}: {self.count[kind]} {message} (first: query {self.first[kind]})",
                    StreamevalWarning,
                    stacklevel=4,
                )


@dataclass(frozen=True, eq=False)
class RawLists:
    """Lists of m queries as they are stored or returned.

    Attributes
    ----------
    indices : [m, k] int64
        −1 where there is nothing more.
    distances : [m, k] float64
        NaN where only the items are stored.
    gallery : int
        Number of gallery items.
    first_query : int
    where : str
        What messages call the lists.
    known : bool
        Whether there are distances; the order of the lists stays, otherwise.
    """

    indices: IntArray
    distances: FloatArray
    gallery: int
    first_query: int
    where: str
    known: bool = True

    def clean(self, repairs: Repairs) -> Lists:
        """Return the lists sorted by distance, each item once, without padding.

        Parameters
        ----------
        repairs : Repairs
            Takes note of what is repaired.

        Raises
        ------
        InputError
            If lists hold what can't be repaired; the first such entry is named.
        """
        held = self.indices != NOTHING
        self._check(held)
        row, _ = np.nonzero(held)
        item, distance = self.indices[held], self.distances[held]
        lengths = held.sum(axis=1)
        if self.known:
            self._check_order(held, repairs)
        kept = self._first_entries(row, item, distance, repairs)
        row, item, distance = row[kept], item[kept], distance[kept]
        if self.known:
            order = np.lexsort((item, distance, row))
            item, distance = item[order], distance[order]
        short = (lengths < self.indices.shape[1]) & (lengths < self.gallery)
        repairs.note("short", np.flatnonzero(short) + self.first_query)
        indptr = np.searchsorted(row, np.arange(len(self.indices) + 1)).astype(np.int64)
        return Lists(indptr, item, distance, np.full(len(lengths), -np.inf))

    def _check(self, held: BoolArray) -> None:
        """Refuse items that the gallery lacks, padding within a list, and wrong distances."""
        indices, last = self.indices, self.gallery - 1
        self._refuse(
            held & ((indices < 0) | (indices > last)),
            f"the {self.gallery} gallery items are numbered 0 to {last}, and −1 is none; are the "
            "lists of another gallery?",
        )
        self._refuse(
            held & ~np.minimum.accumulate(held, axis=1),
            "−1 stands before it, which is only at the end of a list; move it there",
        )
        if self.known:
            self._refuse(
                held & ~np.isfinite(self.distances), "distances must be finite; search again"
            )

    def _refuse(self, bad: BoolArray, reason: str) -> None:
        if bad.any():
            row, column = (int(at) for at in np.argwhere(bad)[0])
            raise InputError(
                f"{self.where}, query {self.first_query + row}, place {column + 1} holds item "
                f"{self.indices[row, column]} at {float(self.distances[row, column])!r}: {reason}"
            )

    def _check_order(self, held: BoolArray, repairs: Repairs) -> None:
        """Note lists whose distances fall somewhere; refuse similarities, which always fall."""
        steps = np.where(held[:, 1:], np.diff(np.where(held, self.distances, 0), axis=1), 0)
        falls, rises = (steps < 0).any(axis=1), (steps > 0).any(axis=1)
        unsorted = np.flatnonzero(falls) + self.first_query
        if len(unsorted) and not rises.any():
            raise InputError(
                f"{self.where}: values fall along every list (first: query {unsorted[0]}), as "
                "similarities do, and distances rise: store 1 − s of cosines, −s of inner products"
            )
        repairs.note("unsorted", unsorted)

    def _first_entries(
        self, row: IntArray, item: IntArray, distance: FloatArray, repairs: Repairs
    ) -> BoolArray:
        """Return which entries name an item that their list has not had before, [L] bool."""
        order = np.lexsort((np.arange(len(item)), item, row))
        again = (item[order][1:] == item[order][:-1]) & (row[order][1:] == row[order][:-1])
        second, before = order[1:][again], order[:-1][again]
        differ = second[distance[second] != distance[before]]
        if self.known and len(differ):
            at = int(differ[0])
            raise InputError(
                f"{self.where}, query {self.first_query + row[at]} lists item {item[at]} twice, at "
                "different distances: search again"
            )
        kept = np.ones(len(item), np.bool_)
        kept[second] = False
        repairs.note("repeated", row[np.sort(second)] + self.first_query)
        return kept
