"""An index search as a source: lists that FAISS makes of features."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.choices import Missing
from streameval.errors import OptionError
from streameval.metrics.options import is_count, is_number
from streameval.neighbors import faiss_build, faiss_index
from streameval.neighbors.lists import Lists
from streameval.neighbors.plan import ListSizes
from streameval.neighbors.repair import RawLists, Repairs
from streameval.neighbors.search import Hits, search_block
from streameval.neighbors.source import ListSource
from streameval.planning import Plan
from streameval.source import Input
from streameval.sources.features import Features

if TYPE_CHECKING:
    from streameval.request import Request
    from streameval.run.session import Session

FIRST_DEPTH = 64  # of k auto
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
        spec, flat, file = self.index, self.is_flat, faiss_index.is_file(self.index)
        if not is_number(self.width) or not 0 <= self.width < 1:
            raise OptionError(f"width is {self.width!r}; expected a fraction from 0 to below 1")
        if self.features is None:
            raise OptionError(f"index {spec} needs features: give --query and --gallery")
        if self.k is None:
            raise OptionError(f"index {spec} needs k: how many items a list has (-k), or auto")
        if self.save_index is not None and file:
            raise OptionError(f"index {spec} is a file already: leave save_index out")
        if self.save_index is not None and (flat or not faiss_index.is_file(str(self.save_index))):
            raise OptionError(
                f"save_index is {str(self.save_index)!r}, of index {spec}; expected a file "
                "NAME.faiss, and an index other than Flat, which is the features themselves"
            )
        if flat and self.search:
            raise OptionError("index Flat has no search parameters: leave them out")
        if self.train_rows is not None and not is_count(self.train_rows):
            raise OptionError(f"train_rows is {self.train_rows!r}; a positive number is needed")
        if self.train_rows is not None and (flat or file):
            raise OptionError(
                f"train_rows is {self.train_rows}, and index {spec} is not trained here: leave it "
                "out"
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
    def depth(self) -> int:
        """Items of a list; of ``k="auto"`` at first."""
        return self.k if isinstance(self.k, int) else min(FIRST_DEPTH, max(self.shape[1], 1))

    @property
    def searched(self) -> int:
        """Items that are searched: some more than k where the nearest k of them are the list."""
        return self.depth + (SPARE if self.is_flat or self.reading == "bounds" else 0)

    @property
    def is_flat(self) -> bool:
        """Whether all features are searched, with no index."""
        return faiss_index.is_flat(self.index)

    @property
    def reading(self) -> Missing:
        """How missing items are read; that of an index other than Flat is settled by `check`."""
        return self.missing or ("bounds" if self.is_flat else "never")

    @property
    def canonical(self) -> bool:
        """Whether listed items are ranked by their canonical distances."""
        return self.reading == "bounds" or self.rerank or self.is_flat

    @property
    def needs_lengths(self) -> bool:
        """Whether bounds rely on the lengths of all gallery vectors, which no search tells."""
        return super().needs_lengths and not self.is_flat

    def inputs(self) -> tuple[Input, ...]:
        """Return the features, and the file of the index."""
        file = () if self.path is None else (Input("index", "index", self.path),)
        return super().inputs() + file

    def options(self) -> dict[str, Any]:
        """Return how lists are made and read."""
        made = {} if self.path is not None else {"index": self.index}
        names = {"search": self.search, "train_rows": self.train_rows}
        return super().options() | made | names | {"interval_width": self.width}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return self.features.sides()

    def check(self, request: Request) -> IndexSearch:
        """Return the search, its index checked as far as that is possible before it is built.

        Raises
        ------
        InputError
            If an index of a file is of another gallery or metric; or if there are too few rows to
            train one on.
        OptionError
            If FAISS knows no such index, or it has no such search parameter; or if bounds are
            asked for, and the index is approximate.
        """
        super().check(request)
        if self.is_flat:
            return self
        path = self.path
        if faiss_index.is_file(self.index):
            path = Path(self.index).absolute()
            index = faiss_index.open_index(path, self.search)
            faiss_index.check_index(index, path, self.features)
        else:
            index = self.recipe.check(self.search)
        exact = faiss_index.is_exact(index)
        if self.missing == "bounds" and not exact:
            raise OptionError(
                f"index {self.index} is approximate: what it doesn't return may be closer than "
                "what it does, and nothing is bounded; read it as deployed (--missing never), or "
                "search exactly (--index Flat)"
            )
        return replace(self, path=path, missing=self.missing or ("bounds" if exact else "never"))

    @property
    def recipe(self) -> faiss_build.Recipe:
        """How the index is built."""
        return faiss_build.Recipe.of(self.features, self.index, self.train_rows)

    def sizes(self) -> ListSizes:
        """Return the sizes of lists that a plan depends on."""
        sizes = ListSizes(self.searched, False, self.is_flat, self.canonical)
        if self.path is not None:
            return replace(sizes, index_bytes=self.path.stat().st_size)
        if self.is_flat:
            return sizes
        recipe = self.recipe
        index_bytes = self.shape[1] * recipe.code_bytes
        return replace(sizes, index_bytes=index_bytes, train_rows=recipe.train_rows, builds=True)

    @contextmanager
    def built(self, plan: Plan, session: Session) -> Iterator[tuple[IndexSearch, dict[str, Any]]]:
        """Yield the search with its index in a file, and facts of the index that was built."""
        if self.path is not None or self.is_flat:
            yield self, {}
            return
        with faiss_build.index_file(self.save_index) as path:
            index, description = self.recipe.build(plan, session.watch)
            faiss_index.write_index(index, description, path)
            del index
            yield (
                replace(self, path=path.absolute()),
                {
                    "spec": description.spec,
                    "train_rows": description.train_rows,
                    "build_seconds": description.build_seconds,
                    "bytes": path.stat().st_size,
                },
            )

    def read(
        self, queries: tuple[int, int], plan: Plan, session: Session, repairs: Repairs
    ) -> tuple[Lists, Hits]:
        """Search the lists of a block of queries."""
        hits = search_block(self, plan, queries, session)
        distances = faiss_index.faiss_metric(self.features).distance(hits.value.astype(np.float64))
        raw = RawLists(
            hits.item,
            np.where(hits.item < 0, np.inf, distances),
            self.shape[1],
            queries[0],
            self.name,
        )
        expected = self.reading == "never" or self.is_flat  # that lists are short
        return raw.clean(Repairs() if expected else repairs), hits
