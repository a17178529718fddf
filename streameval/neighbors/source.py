"""Neighbours as a source: lists that are stored, or that a FAISS index makes of features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.fingerprint import fingerprint
from streameval.choices import Missing
from streameval.errors import InputError, OptionError, check_type
from streameval.metrics.options import is_count, is_number
from streameval.metrics.selection import wanted_measures
from streameval.neighbors import faiss_build, faiss_index
from streameval.neighbors.plan import ListSizes, plan_lists
from streameval.neighbors.stored_lists import (
    METRIC,
    PRINT,
    ROWS,
    Clean,
    Repairs,
    clean,
    open_lists,
    signed,
)
from streameval.planning import Limits, Plan, Problem
from streameval.planning.plan import plural
from streameval.planning.range import Range
from streameval.protocols.pairs import Pairs
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT
from streameval.source import Counted, Input, Source
from streameval.sources.sources import ArrayLike, Features

if TYPE_CHECKING:
    from streameval.request import Request
    from streameval.run.preparation import Prepared
    from streameval.run.session import Session

Depth = int | Literal["auto"]

FIRST_DEPTH = 64  # of k auto
SPARE = 16  # items searched beyond k: these tell which k are the nearest, whatever float32 says
DEEPER = 4  # times as deep each time


@dataclass(frozen=True, eq=False)
class Neighbors(Source):
    """Lists of the nearest gallery items of each query.

    Parameters
    ----------
    lists : str, Path or [Q, k] array of integers, optional
        Gallery indices, −1 at the end of a list that is shorter; or a file that holds them and
        their distances under the usual names: `.npz`, a Zarr group, HDF5 as of ann-benchmarks.
    distances : str, Path or [Q, k] array, optional
        Of these; smaller is closer. Not needed with features.
    features : Features, optional
        Of queries and gallery: what lists are made from (`index`), or what the canonical
        distances of listed items are computed from.
    index : str or Path, optional
        A factory string of FAISS (``Flat``, ``IVF1024,PQ16``), or a file with an index.
    k : int or "auto", optional
        Items of a list; all that is stored, by default. ``auto`` makes lists longer until every
        metric is known to within `width`.
    search : str
        Parameters of the search: ``nprobe=16,efSearch=64``.
    train_rows : int, optional
        Gallery rows that an index is trained on.
    save_index : str or Path, optional
        Where an index that is built is kept.
    missing : {None, "bounds", "never"}
        What items that are not returned are taken for: as far as the last one that is, or
        further (``bounds``: metrics are intervals); or never found (``never``: a system as
        deployed). ``never`` is the default of an approximate index, else ``bounds``.
    tighten : bool
        Whether to compute the distances of positives that are not returned.
    rerank : bool
        With ``never``: whether to rank by canonical distances, not by those of the index or file.
    width : float
        Of ``k="auto"``: the widest interval that will do.
    gallery : int, optional
        Number of gallery items, where there are no features; that of the labels.
    described, path : mapping, Path or None
        Found, and not to be given: what a file says of its lists, and the file of the index.

    Raises
    ------
    InputError
        If arrays don't fit together.
    OptionError
        If options don't.
    """

    depends_on_reading = True  # k auto

    lists: ArrayLike | None = None
    distances: ArrayLike | None = None
    features: Features | None = None
    index: str | Path | None = None
    k: Depth | None = None
    search: str = ""
    train_rows: int | None = None
    save_index: str | Path | None = None
    missing: Missing | None = None
    tighten: bool = False
    rerank: bool = False
    width: float = 0.0
    gallery: int | None = None
    described: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    def __post_init__(self) -> None:
        """Open the arrays, and check that the options fit."""
        self._check_options()
        if self.lists is None:
            return
        lists, distances, described = open_lists(self.lists, self.distances)
        object.__setattr__(self, "lists", lists)
        object.__setattr__(self, "distances", distances)
        object.__setattr__(self, "described", {**self.described, **described})
        if len(lists.shape) != 2 or lists.dtype.kind not in "iu":
            raise InputError(
                f"neighbours {lists.uri} are {lists.dtype} {lists.shape}; a 2-d array of integers, "
                "a row a query, is needed"
            )
        if distances is None and self.features is None:
            raise OptionError(
                f"neighbours {lists.uri} come without distances: give them "
                "(--neighbor-distances), or the features (--query and --gallery)"
            )
        if distances is not None and distances.shape != lists.shape:
            raise InputError(
                f"neighbours {lists.uri} are {lists.shape}, their distances {distances.uri} "
                f"{distances.shape}: one distance an entry is needed"
            )
        if distances is not None and distances.dtype.kind not in "fiu":
            raise InputError(f"distances {distances.uri} are of dtype {distances.dtype}")
        if self.k is not None and self.k != "auto" and self.k > lists.shape[1]:
            raise OptionError(
                f"k is {self.k}, and the lists of {lists.uri} have {lists.shape[1]} items: choose "
                "fewer, or search again"
            )
        self._check_described()

    def _check_options(self) -> None:
        if (self.lists is None) == (self.index is None):
            raise OptionError("give lists of neighbours, or an index that makes them from features")
        if self.missing not in (None, "bounds", "never"):
            raise OptionError(f"missing is {self.missing!r}; expected bounds or never")
        if self.k is not None and self.k != "auto":
            if not is_count(self.k):
                raise OptionError(f"k is {self.k!r}; expected a positive integer, or auto")
            object.__setattr__(self, "k", int(self.k))
        wanted = "Features(query, gallery) is needed"
        check_type("features", self.features, Features | None, wanted)
        if self.features is not None and self.missing != "never":
            faiss_index.equivalent(self.features.metric)
        for option in ("tighten", "rerank"):
            if getattr(self, option) and self.features is None:
                raise OptionError(
                    f"{option} computes distances, and there are no features: give --query and "
                    "--gallery"
                )
        if self.tighten and self.missing == "never":
            raise OptionError("tighten narrows bounds, and missing is never: leave one out")
        if not is_number(self.width) or not 0 <= self.width < 1:
            raise OptionError(f"width is {self.width!r}; expected a fraction from 0 to below 1")
        of_index = {"search": self.search, "train_rows": self.train_rows}
        if self.index is None:
            given = [name for name, one in of_index.items() if one]
            given += ["save_index"] if self.save_index is not None else []
            if given:
                raise OptionError(f"{given[0]} is for an index, and lists are given: leave it out")
            if self.k == "auto":
                raise OptionError("k is auto, and the lists are stored: give an index, or a number")
            return
        if self.features is None:
            raise OptionError(f"index {self.index} needs features: give --query and --gallery")
        if self.k is None:
            raise OptionError(
                f"index {self.index} needs k: how many items a list has (-k), or auto"
            )
        spec = str(self.index)
        if self.save_index is not None and faiss_index.is_file(spec):
            raise OptionError(f"index {spec} is a file already: leave save_index out")
        if self.save_index is not None and (
            faiss_index.is_flat(spec) or not faiss_index.is_file(str(self.save_index))
        ):
            raise OptionError(
                f"save_index is {str(self.save_index)!r}, of index {spec}; expected a file "
                "NAME.faiss, and an index other than Flat, which is the features themselves"
            )
        if faiss_index.is_flat(spec) and self.search:
            raise OptionError("index Flat has no search parameters: leave them out")
        if self.train_rows is not None and not is_count(self.train_rows):
            raise OptionError(f"train_rows is {self.train_rows!r}; a positive number is needed")
        if self.train_rows is not None and (faiss_index.is_flat(spec) or faiss_index.is_file(spec)):
            raise OptionError(
                f"train_rows is {self.train_rows}, and index {spec} is not trained here: leave it "
                "out"
            )

    def _check_described(self) -> None:
        """Check what a file says that its lists are of, against the features."""
        if self.features is None:
            return
        metric, printed = self.described.get(METRIC), self.described.get(PRINT)
        if metric is not None and metric != self.features.metric:
            raise InputError(
                f"neighbours {self.stored.uri} are of metric {metric}, and {self.features.metric} "
                "is asked for"
            )
        if printed is not None and printed != fingerprint(self.features.gallery):
            raise InputError(
                f"neighbours {self.stored.uri} are of another gallery than "
                f"{self.features.gallery.uri} (fingerprint {printed[:8]}…): search again"
            )

    @property
    def stored(self) -> Array:
        """The indices, where lists are stored."""
        if not isinstance(self.lists, Array):
            raise TypeError("there are no stored lists")
        return self.lists

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        if self.features is not None:
            queries, gallery = self.features.shape
            return (queries if self.lists is None else self.stored.shape[0]), gallery
        return self.stored.shape[0], self.gallery or 0

    @property
    def depth(self) -> int:
        """Items of a list; of ``k="auto"`` at first."""
        if isinstance(self.k, int):
            return self.k
        return (
            min(FIRST_DEPTH, max(self.shape[1], 1)) if self.lists is None else self.stored.shape[1]
        )

    @property
    def searched(self) -> int:
        """Items that are looked at: all that are stored; of FAISS, some more than k if it is exact.

        The nearest k of them are the list.
        """
        if self.lists is not None:
            return self.stored.shape[1]
        exact = self.is_flat or self.reading == "bounds"
        return self.depth + (SPARE if exact else 0)

    @property
    def is_flat(self) -> bool:
        """Whether all features are searched, with no index."""
        return self.index is not None and faiss_index.is_flat(str(self.index))

    @property
    def reading(self) -> Missing:
        """How what is missing is read."""
        if self.missing is not None:
            return self.missing
        return "bounds" if self.lists is not None or self.is_flat else "never"  # see `checked`

    @property
    def canonical(self) -> bool:
        """Whether listed items are ranked by their canonical distances."""
        if self.features is None:
            return False
        if self.lists is not None and self.distances is None:
            return True
        return self.reading == "bounds" or self.rerank or self.is_flat

    def inputs(self) -> tuple[Input, ...]:
        """Return the features, the stored lists and the file of the index, as far as there are."""
        named = () if self.features is None else self.features.inputs()
        for key, name, array in (
            ("neighbors", "lists", self.lists),
            ("neighbor_distances", "distances", self.distances),
        ):
            if isinstance(array, Array):
                named += (Input(key, f"neighbours, {name}", array, by_workers=False),)
        if self.path is not None:
            named += (Input("index_file", "index", self.path),)
        return named

    def options(self) -> dict[str, Any]:
        """Return how lists are made and read."""
        names = ["k", "search", "train_rows", "missing", "tighten", "rerank"]
        names += [] if self.index is None else ["index"]
        metric = {} if self.features is None else self.features.options()
        told = {name: str(getattr(self, name)) for name in names}
        return {**told, **metric, "interval_width": self.width}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        if self.lists is not None:
            where = self.stored.uri
            return (
                f"neighbours {where} have {self.shape[0]} rows",
                f"neighbours {where} are of {self.shape[1]} gallery items",
            )
        if self.features is None:
            raise OptionError("neighbours without lists need features")
        return self.features.sides()

    def check(self, request: Request) -> Neighbors:
        """Return the neighbours of the gallery of the labels, their index checked."""
        source = self if request.gallery is None else self.of_gallery(len(request.gallery))
        source.check_rows(request.query, request.gallery)
        features = source.features
        if features is not None and features.shape[0] != source.shape[0]:
            raise InputError(
                f"{source.sides()[0]}, and the query features {features.query.uri} "
                f"{features.shape[0]}: a list a query is needed"
            )
        source.check_reading(request)
        return source.checked()

    def check_reading(self, request: Request) -> None:
        """Check that lists can give what is asked for.

        Raises
        ------
        OptionError
        """
        options = request.options
        if request.refine:
            raise OptionError(
                f"{request.refine[0].name} is refined by further passes over all pairs, and lists "
                "hold some of them: leave --refine out, or evaluate the features"
            )
        if SINGLE_GALLERY_SHOT in (options.cmc, request.protocol.cmc):
            raise OptionError(
                "CMC under single gallery shot counts the items of every gallery identity, and "
                "lists leave items out: choose another protocol (separate-camera ignores the same "
                "pairs as cuhk03), or evaluate the features"
            )
        named, _ = wanted_measures(options)
        drawn = [one.name for one in named if "sampled_shots" in one.metric.needs]
        if drawn:
            raise OptionError(f"{drawn[0]} can't be read off lists: leave it out")
        if self.reading == "never" and options.ties == "expected":
            raise OptionError(
                "ties expected has no meaning for what is never found: choose pessimistic, "
                "optimistic or stable"
            )

    def bounds(self) -> Range | None:
        """Return the range of the features' metric; None without features."""
        return None if self.features is None else self.features.bounds()

    def with_range_pass(self, problem: Problem) -> Problem:
        """Return the same sizes: all distances are listed, or there is no range."""
        return problem

    def problem(self, pairs: Pairs) -> Problem:
        """Return the sizes of an evaluation without thresholds or a histogram."""
        if self.features is not None:
            queries, items = self.shape
            return replace(self.features.problem(pairs), queries=queries, gallery=items)
        return Problem(
            queries=self.shape[0],
            gallery=self.shape[1],
            positives=int(np.count_nonzero(pairs.positive)),
            listed=len(pairs.item),
            thresholds=0,
            cameras=pairs.cameras,
            width=0,
            itemsize=8,
            stored_itemsize=8,
            scratch=self.stored.read_scratch_bytes,
            chunks=(1, 1),
        )

    def sizes(self) -> ListSizes:
        """Return the sizes of lists that a plan depends on."""
        features = self.features
        index_bytes, train_rows, builds = 0, 0, False
        if self.path is not None:
            index_bytes = self.path.stat().st_size
        elif self.index is not None and features is not None and not self.is_flat:
            needs = faiss_build.needs_of(str(self.index), features.width, features.metric)
            rows, builds = features.shape[1], True
            train_rows = needs.train_rows(rows, self.train_rows)
            index_bytes = rows * needs.code_bytes
        return ListSizes(
            self.searched,
            self.lists is not None,
            self.is_flat,
            self.canonical,
            index_bytes,
            train_rows,
            builds,
        )

    def plan(self, problem: Problem, limits: Limits) -> Plan:
        """Return blocks of queries and of the gallery within the limits."""
        return plan_lists(problem, self.sizes(), limits)

    def passes(self, prepared: Prepared) -> list[str]:
        """Return the names of the passes over the data, in order."""
        builds = self.index is not None and self.path is None and not self.is_flat
        certain = self.reading == "bounds" and self.features is not None
        wanted = {
            "training": builds,
            "index": builds,
            "lengths": certain and not self.is_flat,
            "search": self.lists is None,
            "distances": self.canonical,
        }
        return [name for name, needed in wanted.items() if needed] or ["reading"]

    def tile_text(self, plan: Plan) -> str:
        """Return what is searched or read at a time, for people."""
        queries, k = plan.tile
        return f"lists of {plural(queries, 'query', 'queries')} at a time, k = {k:,}"

    def count(self, prepared: Prepared, session: Session) -> Counted:
        """Return the statistics that the lists leave possible."""
        from streameval.neighbors.count import evaluate_lists

        return evaluate_lists(prepared, self, session)

    def first_bad_row(self, stop: int) -> None:
        """Raise for the first bad row of the features; see `Source`."""
        if self.features is not None:
            self.features.first_bad_row(stop)

    def checked(self) -> Neighbors:
        """Return the same, its index checked as far as that is possible before it is built.

        Raises
        ------
        InputError
            If an index of a file is of another gallery or metric; or one that is to be built
            has too few rows to be trained on.
        OptionError
            If FAISS knows no such index, or it has no such search parameter; or if bounds are
            asked for, and the index is approximate.
        """
        if self.index is None or self.features is None or self.is_flat:
            return self
        spec, path = str(self.index), self.path
        if faiss_index.is_file(spec):
            path = Path(spec).absolute()
            index = faiss_index.open_index(path, self.search)
            faiss_index.check_index(index, path, self.features)
        else:
            index = faiss_build.planned(self.features, spec, self.search, self.train_rows)
        exact = faiss_index.is_exact(index)
        if self.missing == "bounds" and not exact:
            raise OptionError(
                f"index {spec} is approximate: what it doesn't return may be closer than what it "
                "does, and nothing is bounded; read it as deployed (--missing never), or search "
                "exactly (--index Flat)"
            )
        missing = self.missing or ("bounds" if exact else "never")
        return replace(self, path=path, missing=missing)

    def of_gallery(self, items: int) -> Neighbors:
        """Return the same neighbours, among so many gallery items.

        Raises
        ------
        InputError
            If they are of another number of items.
        """
        rows = self.described.get(ROWS) if self.gallery is None else self.gallery
        if rows is not None and rows != items:
            raise InputError(
                f"neighbours {self.stored.uri} are of a gallery of {rows} items, and there are "
                f"{items} gallery ids: they are of another gallery"
            )
        return self if self.features is not None else replace(self, gallery=items)

    def at_depth(self, k: int) -> Neighbors:
        """Return the same, with lists of k items."""
        return replace(self, k=k)

    def with_index(self, path: Path) -> Neighbors:
        """Return the same, its index in a file."""
        return replace(self, path=path.absolute())

    def read(self, start: int, stop: int, repairs: Repairs) -> Clean:
        """Read the lists of some queries, checked and repaired.

        Raises
        ------
        InputError
            If they hold what can't be repaired; the first such query is named.
        """
        span = (start, stop)
        indices = np.asarray(self.stored.read(span))
        distances = np.full(indices.shape, np.nan)
        if isinstance(self.distances, Array):
            distances = np.asarray(self.distances.read(span), np.float64)
        return clean(
            indices.astype(np.int64) if indices.dtype != np.uint64 else signed(indices),
            distances,
            gallery=self.shape[1],
            first_query=start,
            where=f"neighbours {self.stored.uri}",
            repairs=repairs,
            known=self.distances is not None,
        )
