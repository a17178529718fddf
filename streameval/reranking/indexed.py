"""The images of re-ranking with a FAISS index of them: what it is told, checked, and takes."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import SelectedArray
from streameval.distances.sums import Vectors
from streameval.errors import InputError, OptionError, check_type, refuse
from streameval.neighbors import faiss_index
from streameval.neighbors.source import FAISS_BYTES, SEARCH_BYTES
from streameval.planning.plan import LIBRARIES, Limits, Plan, Process, Task, pieces, refusal
from streameval.planning.planner import TARGET_BLOCK_BYTES
from streameval.planning.problem import Holders, PairSizes, Problem
from streameval.protocols.views import View
from streameval.reranking.everyone import Everyone
from streameval.reranking.greatest import Side, sample_of, spans
from streameval.reranking.stages import TAKEN_BYTES
from streameval.sources.features import Features
from streameval.typing import AnyArray, IntArray, JsonObject

SPARE = 16  # candidates beyond those that are needed
MOST_CANDIDATES = 1024
BLOCK_ROWS, LEAST_ROWS = 256, 16  # that are searched together
CANDIDATE_BYTES = 100  # of a candidate, while it is ranked
LEAST_NORM, MOST_NORM = 1e-12, 1e12  # lengths that float32 can square, and add up


class FactoryIndex(NamedTuple):
    """The index that neighbours are found by.

    Attributes
    ----------
    spec : str
        Factory string of FAISS.
    search : str
        Parameters of the search: ``nprobe=16``.
    """

    spec: str
    search: str

    @classmethod
    def of(cls, spec: str | None, search: str) -> FactoryIndex | None:
        """Return the index of these options; None where there is none."""
        check_type("index", spec, str | None, "a factory string of FAISS is needed")
        check_type("search", search, str, "parameters such as nprobe=16 are needed")
        refuse(
            OptionError,
            spec is None
            and search
            and f"search is {search!r}, and there is no index: leave it out, or give an index",
            spec is not None
            and faiss_index.is_file(spec)
            and f"index is {spec!r}, a file; re-ranking builds an index of queries and gallery: "
            "give a factory string such as IVF1024,Flat",
        )
        return None if spec is None else cls(spec, search)

    def step(self, images: int) -> JsonObject:
        """Return what a result says of it: with the size of the sample of greatest distances."""
        search = {"search": self.search} if self.search else {}
        return {"index": self.spec, **search, "sample": len(sample_of(images))}


class IndexedImages(Everyone):
    """The rows of queries and gallery as one set, of which there is an index.

    Parameters
    ----------
    features : Features
    index : FactoryIndex

    Attributes
    ----------
    path : Path or None
        The file of the index, once there is one.
    longest : float
        Length of the longest row of the sample, once that is read.
    """

    path: Path | None = None
    longest = 0.0

    def __init__(self, features: Features, index: FactoryIndex) -> None:
        super().__init__(features)
        self.index, self._both = index, (features.query, features.gallery)
        self._images = np.arange(0)  # those of a part, where it is one

    def options(self) -> JsonObject:
        """Return the metric, and how neighbours are found."""
        return {**super().options(), **self.index.step(self.shape[0])}

    @property
    def recipe(self) -> faiss_index.Recipe:
        """How the index is built."""
        return faiss_index.Recipe(self, self.index.spec, None, "rows of queries and gallery")

    def check_index(self) -> None:
        """Check that the index can be built, and searched so.

        Raises
        ------
        OptionError, InputError
        """
        self.check_size()
        self.recipe.check(self.index.search)

    def check_size(self) -> None:
        """Raise InputError if there are fewer images than the index has centroids."""
        centroids, images = self.recipe.centroids, self.shape[0]
        if images < centroids:
            copies = ", without copies," if len(self._images) else ""
            raise InputError(
                f"index {self.index.spec} has {centroids} centroids, and there are {images} "
                f"images{copies} to train it on: choose a smaller index"
            )

    def part(self, view: View) -> IndexedImages:
        """Return the images of a view."""
        if view.items is None:
            return self
        made = copy(self)
        made.query = made.gallery = SelectedArray(self.gallery, view.items)
        made._images = view.items
        return made

    def _checked(self, array: Array, rows: AnyArray, index: IntArray) -> Vectors:
        vectors = super()._checked(array, rows, index)
        self.check_length(float(vectors.norms.max(initial=0.0)), 0.0)
        return vectors

    def check_length(self, longest: float, least: float) -> None:
        """Raise InputError if float32 can't square the length of the longest of some rows."""
        if self.metric != "cosine" and (longest > MOST_NORM or 0 < longest < least):
            raise InputError(
                f"the longest of some rows has length {longest:g}, which float32 can't square "
                f"without loss; lengths from {LEAST_NORM:g} to {MOST_NORM:g} are needed for FAISS: "
                "scale the features, or leave the index out"
            )

    def halves(self) -> list[Side]:
        """Return both sides, each against the images that its greatest distances are to."""
        queries, images = self._both[0].shape[0], self.shape[0]
        samples = (None, sample_of(images))
        return [
            Side(self, self._both[first > 0], first, samples[first > 0])
            for first, _ in spans(queries, images)
        ]

    def work(self) -> int:
        """Return how many rows and pairs are worked off, for the progress."""
        pairs = sum(one.shape[0] * one.shape[1] for one in self.halves())
        return 2 * self.shape[0] + self.recipe.train_rows + pairs

    def held(self, most: int = 0) -> Holders:
        """Return the bytes that an open index and the nearest K take, by what holds them."""
        size = self.shape[0]
        lists = {"neighbors": 3 * 8 * size * (2 * most + 3)} if most else {}
        return {"FAISS": FAISS_BYTES, "index": size * self.recipe.code_bytes, **lists}

    def plans(self, most: int, limits: Limits) -> list[Plan]:
        """Return the plans of all passes.

        Raises
        ------
        BudgetError
            If one does not fit the limits.
        """
        search, held = self.neighbor_plan(most, limits), self.held(most)
        return [search, *(one.greatest_plan(held, limits) for one in self.halves())]

    def neighbor_plan(self, most: int, limits: Limits) -> Plan:
        """Return how the search of the index is cut: blocks of images.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """
        (size, _), width, data, recipe = self.shape, self.width, self.data(), self.recipe
        candidates = min(MOST_CANDIDATES, size) + 1
        row = width * (data.stored_itemsize + data.itemsize + 12)
        block = max(min(TARGET_BLOCK_BYTES // row, size), 1)
        on, here = limits.workers, {LIBRARIES: limits.libraries, **self.held(most)}
        building = max(
            recipe.train_rows * width * (data.itemsize + 16),
            block * row + data.scratch(block, width),
        )
        kept = here if on is None else {LIBRARIES: on.libraries, **self.held()}
        held = limits if on is None else on
        rows, process = BLOCK_ROWS, Process(held.memory, held.threads, on.count if on else 0, kept)
        while True:
            taken = rows * (2 * row + candidates * CANDIDATE_BYTES) + 2 * TAKEN_BYTES
            searching = held.threads * (SEARCH_BYTES + taken + data.scratch(rows, width))
            most_of = max(searching, building) if on is None else searching
            parts = kept | {"building, searching": most_of}
            if sum(parts.values()) <= held.memory:
                break
            if rows <= LEAST_ROWS:
                problem = Problem(*self.features_shape, PairSizes(0, 0), data)
                remedy = "choose an index with smaller codes (IVF1024,PQ16), or raise --memory"
                raise refusal(problem, process, parts, remedy, of="the index of ")
            rows //= 2
        cut = limits.cut
        rows = rows if cut is None or cut.queries > rows else cut.queries
        tasks = tuple(Task(one, (0, size)) for one in pieces((0, size), rows))
        read = size * width * data.stored_itemsize * (2 + bool(recipe.train_rows))
        client = {} if on is None else here | {"building": building}
        tile = rows, min(most + 1 + SPARE, size)
        made = Plan("lists", tasks, block, tile, held.threads, held.memory, parts, read, 0)
        return replace(made, workers=process.workers, client=client)

    @property
    def features_shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self._both[0].shape[0], self._both[1].shape[0]

    def short(self, image: int, found: int, needed: int) -> OptionError:
        """Return the error where the index returns too few of an image."""
        image = int(self._images[image]) if len(self._images) else int(image)
        queries, _ = self.features_shape
        row = f"query row {image}" if image < queries else f"gallery row {image - queries}"
        search = f" with {self.index.search}" if self.index.search else ""
        return OptionError(
            f"index {self.index.spec}{search} finds {found} of the {needed} nearest images of "
            f"{row} that re-ranking needs: search more of it (--search nprobe=16 of IVF, "
            "efSearch=64 of HNSW), or choose another index"
        )
