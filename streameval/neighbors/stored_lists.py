"""Stored lists as a source: gallery indices and distances in files or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.arrays.fingerprint import fingerprint
from streameval.choices import Missing
from streameval.errors import InputError, OptionError
from streameval.neighbors.list_files import METRIC, PRINT, ROWS
from streameval.neighbors.plan import ListSizes
from streameval.neighbors.repair import RawLists, Repairs
from streameval.neighbors.source import ListSource
from streameval.planning import Data, Plan
from streameval.source import Input
from streameval.statistics import IntArray

if TYPE_CHECKING:
    from streameval.neighbors.lists import Lists
    from streameval.request import Request
    from streameval.run.session import Session


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredLists(ListSource):
    """Lists that another system has made.

    Attributes
    ----------
    lists : [Q, k] Array of integers
    distances : [Q, k] Array or None
    gallery : int or None
        Number of gallery items, where there are no features.
    described : mapping of str to object
        What the file says of the gallery and the metric.
    """

    lists: Array
    distances: Array | None = None
    gallery: int | None = None
    described: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the arrays and the options fit."""
        super().__post_init__()
        lists, distances, uri = self.lists, self.distances, self.lists.uri
        if self.k == "auto":
            raise OptionError("k is auto, and the lists are stored: give an index, or a number")
        if len(lists.shape) != 2 or lists.dtype.kind not in "iu":
            raise InputError(
                f"neighbours {uri} are {lists.dtype} {lists.shape}; a 2-d array of integers, a "
                "row a query, is needed"
            )
        if distances is None and self.features is None:
            raise OptionError(
                f"neighbours {uri} come without distances: give them (--neighbor-distances), or "
                "the features (--query and --gallery)"
            )
        if distances is not None and distances.shape != lists.shape:
            raise InputError(
                f"neighbours {uri} are {lists.shape}, their distances {distances.uri} "
                f"{distances.shape}: one distance an entry is needed"
            )
        if distances is not None and distances.dtype.kind not in "fiu":
            raise InputError(f"distances {distances.uri} are of dtype {distances.dtype}")
        if self.k is not None and self.k > lists.shape[1]:
            raise OptionError(
                f"k is {self.k}, and the lists of {uri} have {lists.shape[1]} items: choose "
                "fewer, or search again"
            )
        self._check_described()

    def _check_described(self) -> None:
        """Check the features against what the file says of them."""
        if self.features is None:
            return
        metric, printed = self.described.get(METRIC), self.described.get(PRINT)
        if metric is not None and metric != self.features.metric:
            raise InputError(
                f"{self.name} are of metric {metric}, and {self.features.metric} is asked for"
            )
        if printed is not None and printed != fingerprint(self.features.gallery):
            raise InputError(
                f"{self.name} are of another gallery than {self.features.gallery.uri} "
                f"(fingerprint {printed[:8]}…): search again"
            )

    @property
    def name(self) -> str:
        """What messages call the lists."""
        return f"neighbours {self.lists.uri}"

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        items = self.gallery or 0 if self.features is None else self.features.shape[1]
        return self.lists.shape[0], items

    @property
    def depth(self) -> int:
        """Items of a list: all that are stored, by default."""
        return self.k if isinstance(self.k, int) else self.lists.shape[1]

    @property
    def reading(self) -> Missing:
        """How missing items are read: as bounds by default."""
        return self.missing or "bounds"

    @property
    def canonical(self) -> bool:
        """Whether listed items are ranked by their canonical distances."""
        if self.features is None:
            return False
        return self.distances is None or self.reading == "bounds" or self.rerank

    @property
    def precision(self) -> float:
        """The relative rounding of the stored distances."""
        if self.distances is None:
            return super().precision
        dtype: np.dtype[Any] = self.distances.dtype
        return float(np.finfo(dtype).eps) if dtype.kind == "f" else 1.0

    def inputs(self) -> tuple[Input, ...]:
        """Return the features, the lists and their distances, which workers don't read."""
        arrays = {"neighbors": ("lists", self.lists)}
        if self.distances is not None:
            arrays["neighbor_distances"] = "distances", self.distances
        return super().inputs() + tuple(
            Input(key, f"neighbours, {name}", array, by_workers=False)
            for key, (name, array) in arrays.items()
        )

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return (
            f"{self.name} have {self.shape[0]} rows",
            f"{self.name} are of {self.shape[1]} gallery items",
        )

    def check(self, request: Request) -> StoredLists:
        """Return the lists of the gallery of the labels."""
        source, features = self, self.features
        if request.gallery is not None:
            source = self._of_gallery(len(request.gallery))
        if features is not None and features.shape[0] != self.shape[0]:
            raise InputError(
                f"{self.sides()[0]}, and the query features {features.query.uri} "
                f"{features.shape[0]}: a list a query is needed"
            )
        return super(StoredLists, source).check(request)

    def _of_gallery(self, items: int) -> StoredLists:
        """Return the lists of so many gallery items.

        Raises
        ------
        InputError
            If they are of another number of items.
        """
        rows = self.described.get(ROWS) if self.gallery is None else self.gallery
        if rows is not None and rows != items:
            raise InputError(
                f"{self.name} are of a gallery of {rows} items, and there are {items} gallery "
                "ids: they are of another gallery"
            )
        return self if self.features is not None else replace(self, gallery=items)

    def data(self) -> Data:
        """Return the sizes of the features, or of the lists."""
        if self.features is not None:
            return super().data()
        scratch = self.lists.read_scratch_bytes
        return Data(width=0, itemsize=8, stored_itemsize=8, scratch=scratch, chunks=(1, 1))

    def sizes(self) -> ListSizes:
        """Return the sizes of lists that a plan depends on."""
        return ListSizes(self.lists.shape[1], True, False, self.canonical)

    def read(
        self, queries: tuple[int, int], plan: Plan, session: Session, repairs: Repairs
    ) -> tuple[Lists, None]:
        """Return the lists of a block of queries, repaired."""
        indices = _signed(np.asarray(self.lists.read(queries)))
        distances = np.full(indices.shape, np.nan)
        if self.distances is not None:
            distances = np.asarray(self.distances.read(queries), np.float64)
        known = self.distances is not None
        raw = RawLists(indices, distances, self.shape[1], queries[0], self.name, known)
        return raw.clean(repairs), None


def _signed(indices: npt.NDArray[Any]) -> IntArray:
    """Return integers as int64; of uint64 beyond it the greatest, which no gallery has."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    return indices.astype(np.int64)
