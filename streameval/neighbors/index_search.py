"""An index search as a source: lists that FAISS makes of features, and the pass that does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from streameval.errors import OptionError, refuse
from streameval.metrics.options import is_count, is_number
from streameval.neighbors import faiss_index
from streameval.neighbors.flat import Hits, nearest
from streameval.neighbors.lists import NOTHING, Lists, Repairs
from streameval.neighbors.source import ListSource
from streameval.output import scratch_folder
from streameval.planning.plan import Plan, Task, pieces
from streameval.planning.problem import Data
from streameval.request import Request
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import by_queries
from streameval.run.progress import Watch
from streameval.run.session import Session
from streameval.source import Input
from streameval.sources.features import Features
from streameval.typing import JsonObject, Span

FIRST_DEPTH = 64  # of k auto
BUILT = "built.faiss"
SPARE = 16  # items searched beyond k: these tell which k are the nearest, whatever float32 says


@dataclass(frozen=True, eq=False, kw_only=True)
class IndexSearch(ListSource):
    """Lists that FAISS makes of features.

    Attributes
    ----------
    features : Features
    index : str
        A factory string of FAISS, or a file with an index.
    search : str
        Parameters of the search.
    train_rows : int or None
        Gallery rows that the index is trained on.
    save_index : str, Path or None
        Where an index that is built is kept.
    width : float
        Of ``k="auto"``: the widest interval that will do.
    path : Path or None
        The file of the index, once there is one.
    """

    searches = True

    features: Features
    index: str
    search: str = ""
    train_rows: int | None = None
    save_index: str | Path | None = None
    width: float = 0.0
    path: Path | None = None

    def __post_init__(self) -> None:
        """Check that the options fit."""
        super().__post_init__()
        spec, flat, rows, kept = self.index, self.is_flat, self.train_rows, self.save_index
        file = faiss_index.is_file(spec)
        if self.features is None:
            raise OptionError(f"index {spec} needs features: give --query and --gallery")
        refuse(
            OptionError,
            not (is_number(self.width) and 0 <= self.width < 1)
            and f"width is {self.width!r}; expected a fraction from 0 to below 1",
            self.k is None and f"index {spec} needs k: how many items a list has (-k), or auto",
            kept is not None and file and f"index {spec} is a file already: leave save_index out",
            kept is not None
            and (flat or not faiss_index.is_file(str(kept)))
            and f"save_index is {str(kept)!r}, of index {spec}; expected a file NAME.faiss, and an "
            "index other than Flat, which is the features themselves",
            flat and self.search and "index Flat has no search parameters: leave them out",
            rows is not None
            and not is_count(rows)
            and f"train_rows is {rows!r}; a positive number is needed",
            rows is not None
            and (flat or file)
            and f"train_rows is {rows}, and index {spec} is not trained here: leave it out",
        )

    @property
    def name(self) -> str:
        """What messages call the lists."""
        return f"the lists of index {self.index}"

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.features.shape

    @property
    def usual_depth(self) -> int:
        """Items of a list of ``k="auto"`` at first."""
        return FIRST_DEPTH

    @property
    def searched(self) -> int:
        """Items that are searched: some more than k where the nearest k of them are the list."""
        spare = SPARE if self.is_flat or self.reading == "bounds" else 0
        return min(self.depth + spare, max(self.shape[1], 1))

    @property
    def is_flat(self) -> bool:
        """Whether all features are searched, with no index."""
        return self.index == "Flat"

    @property
    def by_distance(self) -> bool:
        """Whether listed items are ranked by their canonical distances."""
        return super().by_distance or self.is_flat

    def data(self) -> Data:
        """Return the sizes of the features."""
        return self.features.data()

    def inputs(self) -> tuple[Input, ...]:
        """Return the features, and the file of the index."""
        file = () if self.path is None else (Input("index", "index", self.path),)
        return super().inputs() + file

    def options(self) -> JsonObject:
        """Return how lists are made and read."""
        made = {} if self.path is not None else {"index": self.index}
        return {
            **super().options(),
            **made,
            "search": self.search,
            "train_rows": self.train_rows,
            "interval_width": self.width,
        }

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return self.features.sides()

    def check(self, request: Request) -> IndexSearch:
        """Return the search, its index checked as far as that is possible before it is built."""
        super().check(request)
        checked = self if self.is_flat else self._with_reading()
        if self.k == "auto" and checked.reading == "never":
            raise OptionError("k auto closes bounds, and missing is never: give a number")
        return checked

    def _with_reading(self) -> IndexSearch:
        """Return the search with the reading that its index allows, and its file."""
        path, recipe = self.path, self.recipe
        if recipe is None:
            path = Path(self.index).absolute()
            index = faiss_index.open_index(path, self.search)
            faiss_index.check_index(index, path, self.features)
        else:
            index = recipe.check(self.search)
        exact = faiss_index.is_exact(index)
        if self.missing == "bounds" and not exact:
            raise OptionError(
                f"index {self.index} is approximate: what it doesn't return may be closer than "
                "what it does, and nothing is bounded; read it as deployed (--missing never), or "
                "search exactly (--index Flat)"
            )
        return replace(self, path=path, missing=self.missing or ("bounds" if exact else "never"))

    @property
    def recipe(self) -> faiss_index.Recipe | None:
        """How the index is built; None where there is one, or none is needed."""
        if self.is_flat or self.path is not None or faiss_index.is_file(self.index):
            return None
        return faiss_index.Recipe(self.features, self.index, self.train_rows)

    @property
    def index_bytes(self) -> int:
        """Bytes of the index; 0 where there is none."""
        if self.path is not None:
            return self.path.stat().st_size
        recipe = self.recipe
        return 0 if recipe is None else self.shape[1] * recipe.code_bytes

    @contextmanager
    def built(self, plan: Plan, session: Session) -> Iterator[tuple[IndexSearch, JsonObject]]:
        """Yield the search with its index in a file, and facts of the index that was built."""
        recipe = self.recipe
        if recipe is None:
            yield self, {}
            return
        path = None if self.save_index else session.record.file(BUILT)
        with scratch_folder() as folder:
            if path is None or not faiss_index.is_whole(path):
                path = Path(self.save_index or f"{folder}/{BUILT}").absolute()
                recipe.build(path, plan, session.watch)
                if not self.save_index:
                    path = session.record.keep(faiss_index.description(path), path)
            del recipe  # the index is read from its file
            yield replace(self, path=path), faiss_index.facts_of(path)

    def read(
        self, queries: Span, plan: Plan, session: Session, repairs: Repairs
    ) -> tuple[Lists, float]:
        """Search the lists of a block of queries."""
        tasks = tuple(t for t in plan.tasks if queries[0] <= t.queries[0] < queries[1])
        parts = session.sums(SEARCH, Job(self, replace(plan, tasks=tasks)))
        items, values, longest = zip(*parts.values(), strict=True)
        metric = faiss_index.faiss_metric(self.features)
        distances = metric.distance(np.concatenate(values).astype(np.float64))
        if self.reading == "never" or self.is_flat:  # short lists are expected
            repairs = Repairs(self.name, self.shape[1])
        return repairs.clean(np.concatenate(items), distances, queries[0]), max(longest)


def search(job: Job, task: Task, watch: Watch) -> Hits:
    """Search the queries of a task in its shard of the gallery, or in the index."""
    import faiss

    source = cast("IndexSearch", job.source)
    features, k = source.features, source.searched
    code = faiss_index.metric_code(features)
    sign = 1 if code == faiss.METRIC_L2 else -1  # the nearest have the greatest products
    queries = faiss_index.faiss_vectors(features, features.read_query(*task.queries))
    if source.path is not None:
        faiss.omp_set_num_threads(1)
        value, item = faiss_index.open_index(source.path, source.search).search(queries, k)
        watch.advance(task.pairs)
        return Hits.of(sign * value, item, 0, math.nan)
    shape = len(queries), k
    hits = Hits(np.full(shape, NOTHING, np.int64), np.full(shape, np.inf, np.float32), 0.0)
    for start, stop in pieces(task.gallery, job.plan.block):
        vectors = features.read_gallery(start, stop)
        rows = faiss_index.faiss_vectors(features, vectors)
        value, item = nearest(queries, rows, min(k, stop - start), code)
        longest = float(vectors.norms.max(initial=0))
        hits = hits.merge(Hits.of(sign * value, item, start, longest))
        watch.advance((stop - start) * len(queries))
    return hits


SEARCH: Pass[Task, Hits] = Pass("search", search, Hits.merge, by_queries)
