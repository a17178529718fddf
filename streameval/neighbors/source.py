"""Sources of lists: what stored lists and index searches share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from streameval.choices import Missing
from streameval.errors import OptionError, check_type
from streameval.metrics.options import is_count
from streameval.metrics.selection import wanted_measures
from streameval.neighbors.count import count_lists
from streameval.neighbors.faiss_index import faiss_metric
from streameval.neighbors.plan import ListSizes, plan_lists
from streameval.planning import Data, Limits, Plan, Problem
from streameval.planning.plan import plural
from streameval.planning.range import Range
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT
from streameval.source import Counted, Input, PlanText, Source
from streameval.sources.features import Features

if TYPE_CHECKING:
    from streameval.neighbors.lists import Lists
    from streameval.neighbors.repair import Repairs
    from streameval.neighbors.search import Hits
    from streameval.request import Request
    from streameval.run.preparation import Prepared
    from streameval.run.session import Session

Depth = int | Literal["auto"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ListSource(Source):
    """Lists of the nearest gallery items of each query, and how they are read.

    Attributes
    ----------
    features : Features or None
        Of queries and gallery.
    k : int, "auto" or None
        Items of a list.
    missing : {None, "bounds", "never"}
        How missing items are read; None where the index decides.
    tighten : bool
        Whether to compute the distances of missing positives.
    rerank : bool
        With ``never``: whether to rank by canonical distances.
    """

    depends_on_reading = True  # k auto
    searches = False
    """Whether lists are searched for here."""
    width = 0.0
    """Of ``k="auto"``: the widest interval that will do."""

    features: Features | None = None
    k: Depth | None = None
    missing: Missing | None = None
    tighten: bool = False
    rerank: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        if self.missing not in (None, "bounds", "never"):
            raise OptionError(f"missing is {self.missing!r}; expected bounds or never")
        if self.k is not None and self.k != "auto":
            if not is_count(self.k):
                raise OptionError(f"k is {self.k!r}; expected a positive integer, or auto")
            object.__setattr__(self, "k", int(self.k))
        needed = "Features(query, gallery) is needed"
        check_type("features", self.features, Features | None, needed)
        if self.features is not None and (self.searches or self.missing != "never"):
            faiss_metric(self.features)
        for option in ("tighten", "rerank"):
            if getattr(self, option) and self.features is None:
                raise OptionError(
                    f"{option} computes distances, and there are no features: give --query and "
                    "--gallery"
                )
        if self.tighten and self.missing == "never":
            raise OptionError("tighten narrows bounds, and missing is never: leave one out")

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call the lists."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """Items of a list; of ``k="auto"`` at first."""

    @property
    @abstractmethod
    def reading(self) -> Missing:
        """How missing items are read."""

    @property
    @abstractmethod
    def canonical(self) -> bool:
        """Whether listed items are ranked by their canonical distances."""

    @property
    def needs_lengths(self) -> bool:
        """Whether bounds rely on the lengths of all gallery vectors."""
        return self.features is not None and self.reading == "bounds"

    @property
    def precision(self) -> float:
        """The relative rounding of the distances of lists before they are ranked."""
        return float(np.finfo(np.float32).eps)

    @abstractmethod
    def sizes(self) -> ListSizes:
        """Return the sizes of lists that a plan depends on."""

    @abstractmethod
    def read(
        self, queries: tuple[int, int], plan: Plan, session: Session, repairs: Repairs
    ) -> tuple[Lists, Hits | None]:
        """Return the lists of a block of queries, and the hits of the search that made them.

        Raises
        ------
        InputError
            If lists hold what can't be repaired.
        """

    @contextmanager
    def built(self, plan: Plan, session: Session) -> Iterator[tuple[Self, dict[str, Any]]]:
        """Yield the source as it is read, and facts of what was built for that."""
        yield self, {}

    def at_depth(self, k: int) -> Self:
        """Return the source of lists of k items."""
        return replace(self, k=k)

    def inputs(self) -> tuple[Input, ...]:
        """Return the arrays and files that are read."""
        return () if self.features is None else self.features.inputs()

    def options(self) -> dict[str, Any]:
        """Return how lists are made and read."""
        names = "k", "missing", "tighten", "rerank"
        metric = {} if self.features is None else self.features.options()
        return {**{name: getattr(self, name) for name in names}, **metric}

    def check(self, request: Request) -> Self:
        """Return the source as it is evaluated, checked against the request."""
        self.check_rows(request.query, request.gallery)
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
        drawn = [measure.name for measure in named if "sampled_shots" in measure.metric.needs]
        if drawn:
            raise OptionError(f"{drawn[0]} can't be read off lists: leave it out")
        if self.reading == "never" and options.ties == "expected":
            raise OptionError(
                "ties expected has no meaning for what is never found: choose pessimistic, "
                "optimistic or stable"
            )
        return self

    def bounds(self) -> Range | None:
        """Return the range of the features' metric; None without features."""
        return None if self.features is None else self.features.bounds()

    def with_range_pass(self, problem: Problem) -> Problem:
        """Return the same sizes: all distances are listed, or there is no range."""
        return problem

    def data(self) -> Data:
        """Return the sizes of the features."""
        if self.features is None:
            raise TypeError("lists without features know their sizes themselves")
        return self.features.data()

    def plan(self, problem: Problem, limits: Limits) -> Plan:
        """Return blocks of queries and of the gallery within the limits."""
        return plan_lists(problem, self.sizes(), limits)

    def passes(self, prepared: Prepared) -> list[str]:
        """Return the names of the passes over the data, in order."""
        wanted = {
            "training": self.sizes().builds,
            "index": self.sizes().builds,
            "lengths": self.needs_lengths,
            "search": self.searches,
            "distances": self.canonical,
        }
        return [name for name, needed in wanted.items() if needed] or ["reading"]

    def describe_plan(self, plan: Plan) -> PlanText:
        """Return in words what is searched or read at a time."""
        queries, k = plan.tile
        return PlanText(
            "lists of neighbours, of a block of queries at a time",
            f"lists of {plural(queries, 'query', 'queries')} at a time, k = {k:,}",
            "FAISS",
        )

    def count(self, prepared: Prepared, session: Session) -> Counted:
        """Return the statistics that the lists leave possible."""
        return count_lists(self, prepared, session)

    def first_bad_row(self, stop: int) -> None:
        """Raise InputError for the first bad row of the features below `stop`, if any."""
        if self.features is not None:
            self.features.first_bad_row(stop)
