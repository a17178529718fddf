"""Neighbors: lists of neighbours as a source, stored by another system or made by an index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.fingerprint import fingerprint
from streameval.choices import Missing
from streameval.errors import InputError, OptionError, entry_point, refuse
from streameval.neighbors.index_search import IndexSearch
from streameval.neighbors.list_files import METRIC, PRINT, ROWS, open_lists
from streameval.neighbors.lists import Lists, Repairs
from streameval.neighbors.source import Depth, ListSource
from streameval.planning.plan import Plan
from streameval.planning.problem import Data
from streameval.request import Request
from streameval.run.session import Session
from streameval.source import Input
from streameval.sources.features import Features
from streameval.sources.tiled import ArrayLike
from streameval.typing import AnyArray, Span


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
        """Check that the arrays, the options and the features fit."""
        super().__post_init__()
        lists, distances, uri, features = self.lists, self.distances, self.lists.uri, self.features
        metric, printed = self.described.get(METRIC), self.described.get(PRINT)
        refuse(
            InputError,
            (len(lists.shape) != 2 or lists.dtype.kind not in "iu")
            and f"neighbours {uri} are {lists.dtype} {lists.shape}; a 2-d array of integers, a row "
            "a query, is needed",
            distances is not None
            and distances.shape != lists.shape
            and f"neighbours {uri} are {lists.shape}, their distances {distances.uri} "
            f"{distances.shape}: one distance an entry is needed",
            distances is not None
            and distances.dtype.kind not in "fiu"
            and f"distances {distances.uri} are of dtype {distances.dtype}",
            features is not None
            and metric not in (None, features.metric)
            and f"{self.name} are of metric {metric}, and {features.metric} is asked for",
        )
        refuse(
            OptionError,
            self.k == "auto" and "k is auto, and the lists are stored: give an index, or a number",
            distances is None
            and features is None
            and f"neighbours {uri} come without distances: give them (--neighbor-distances), or "
            "the features (--query and --gallery)",
        )
        if features is not None or self.gallery is not None:
            self._check_depth()
        refuse(
            InputError,
            features is not None
            and printed is not None
            and printed != fingerprint(features.gallery)  # read only now
            and f"{self.name} are of another gallery than {features.gallery.uri} (fingerprint "
            f"{printed[:8]}…): search again",
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

    def _check_depth(self) -> None:
        if self.depth > self.lists.shape[1]:
            raise OptionError(
                f"k is {self.k}, and the lists of {self.lists.uri} have {self.lists.shape[1]} "
                "items: choose fewer, or search again"
            )

    @property
    def usual_depth(self) -> int:
        """Items of a list that are stored."""
        return self.lists.shape[1]

    @property
    def by_distance(self) -> bool:
        """Whether listed items are ranked by their canonical distances."""
        return super().by_distance or self.distances is None

    @property
    def precision(self) -> float:
        """The relative rounding of the stored distances."""
        if self.distances is None:
            return super().precision
        dtype: np.dtype[Any] = self.distances.dtype
        return float(np.finfo(dtype).eps) if dtype.kind == "f" else 1.0

    def inputs(self) -> tuple[Input, ...]:
        """Return the features, the lists and their distances, which workers don't read."""
        lists = Input("neighbors", "neighbours, lists", self.lists, by_workers=False)
        if self.distances is None:
            return *super().inputs(), lists
        name = "neighbours, distances"
        distances = Input("neighbor_distances", name, self.distances, by_workers=False)
        return *super().inputs(), lists, distances

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return (
            f"{self.name} have {self.shape[0]} rows",
            f"{self.name} are of {self.shape[1]} gallery items",
        )

    def check(self, request: Request) -> StoredLists:
        """Return the lists of the gallery of the labels."""
        features, gallery, source = self.features, request.gallery, self
        rows = self.described.get(ROWS) if self.gallery is None else self.gallery
        refuse(
            InputError,
            gallery is not None
            and rows not in (None, len(gallery))
            and f"{self.name} are of a gallery of {rows} items, and there are {len(gallery)} "
            "gallery ids: they are of another gallery",
            features is not None
            and features.shape[0] != self.shape[0]
            and f"{self.sides()[0]}, and the query features {features.query.uri} "
            f"{features.shape[0]}: a list a query is needed",
        )
        if gallery is not None and features is None:
            source = replace(self, gallery=len(gallery))
        source._check_depth()
        return super(StoredLists, source).check(request)

    def data(self) -> Data:
        """Return the sizes of the features, or of the lists."""
        if self.features is not None:
            return self.features.data()
        return Data(
            width=0,
            itemsize=8,
            stored_itemsize=8,
            scratch=self.lists.read_scratch_bytes,
            chunks=(1, 1),
        )

    @property
    def searched(self) -> int:
        """Items that are read: all that are stored."""
        return self.lists.shape[1]

    def read(
        self, queries: Span, plan: Plan, session: Session, repairs: Repairs
    ) -> tuple[Lists, float]:
        """Return the lists of a block of queries, repaired."""
        indices: AnyArray = np.asarray(self.lists.read(queries))
        if indices.dtype == np.uint64:  # beyond int64: of no gallery, and not −1
            indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
        distances = None
        if self.distances is not None:
            distances = np.asarray(self.distances.read(queries), np.float64)
        return repairs.clean(indices.astype(np.int64), distances, queries[0]), math.nan


@entry_point
def Neighbors(  # noqa: N802 - it stands for the two classes
    lists: ArrayLike | None = None,
    distances: ArrayLike | None = None,
    *,
    features: Features | None = None,
    index: str | Path | None = None,
    k: Depth | None = None,
    search: str = "",
    train_rows: int | None = None,
    save_index: str | Path | None = None,
    missing: Missing | None = None,
    tighten: bool = False,
    canonical: bool = False,
    width: float = 0.0,
    gallery: int | None = None,
    name: str | None = None,
    fill_missing: bool = False,
) -> StoredLists | IndexSearch:
    """Return a source of neighbour lists: the nearest gallery items of each query.

    Parameters
    ----------
    lists : str, Path or [Q, k] array of integers, optional
        Gallery indices, filled up with −1; or a file that contains indices and distances under
        their usual names: `.npz`, a Zarr group, or HDF5 as in ann-benchmarks.
    distances : str, Path or [Q, k] array, optional
        Distances of the lists; smaller is closer. Not needed with features.
    features : Features, optional
        Features of queries and gallery, to search with `index`, or to compute canonical
        distances of the listed items.
    index : str or Path, optional
        A FAISS factory string (``Flat``, ``IVF1024,PQ16``), or a file with an index.
    k : int or "auto", optional
        Items per list, at most the gallery's; by default all stored items. ``auto`` makes the
        lists longer until every metric is known to within `width`.
    search : str
        Search parameters: ``nprobe=16,efSearch=64``.
    train_rows : int, optional
        Number of gallery rows to train an index on.
    save_index : str or Path, optional
        File to save a new index to.
    missing : {None, "bounds", "never"}
        How to treat items missing from a list. ``bounds``: they are at least as far as its last
        item, and metrics are intervals. ``never``: they are never found, as in a deployed
        system. The default is ``never`` for an approximate index, and ``bounds`` otherwise.
    tighten : bool
        Whether to compute the distances of positives missing from a list.
    canonical : bool
        With ``never``: whether to rank by canonical distances instead of those of the index or
        file.
    width : float
        Widest interval that ``k="auto"`` accepts.
    gallery : int, optional
        Number of gallery items if there are no features; by default the number of labels.
    name : str, optional
        Name of lists and distances without a path, as in `Features`.
    fill_missing : bool
        As of `Features`, for lists and distances.

    Returns
    -------
    StoredLists or IndexSearch

    Raises
    ------
    InputError
        If arrays don't fit together.
    OptionError
        If options don't fit together.
    """
    given: dict[str, Any] = locals()
    shared = {name: given[name] for name in ("features", "k", "missing", "tighten", "canonical")}
    searching = {name: given[name] for name in ("search", "train_rows", "save_index", "width")}
    if lists is None and index is not None:
        return IndexSearch(index=str(index), **searching, **shared)
    if lists is None or index is not None:
        raise OptionError("give lists of neighbours, or an index that makes them from features")
    for option, value in searching.items():
        if value:
            raise OptionError(f"{option} is for an index, and lists are given: leave it out")
    stored, values, described = open_lists(lists, distances, name, fill_missing=fill_missing)
    return StoredLists(
        lists=stored, distances=values, described=described, gallery=gallery, **shared
    )
