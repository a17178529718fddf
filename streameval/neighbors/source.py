"""Sources of lists: what stored lists and index searches share, and how their work is cut.

The lists of a block of queries are made, or read, and counted before those of the next; a block
is as large as the budget allows. Without an index the gallery is cut into shards, whose lists
merge; an index is searched as a whole, by some queries at a time.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from streameval.choices import IDENTITY_READINGS, Missing
from streameval.errors import OptionError, check_type, refuse
from streameval.metrics.options import is_count
from streameval.metrics.selection import wanted_measures
from streameval.neighbors.count import count_lists
from streameval.neighbors.faiss_index import Recipe, faiss_metric
from streameval.neighbors.lists import Lists, Repairs
from streameval.planning.plan import (
    Limits,
    Plan,
    Process,
    Task,
    pieces,
    plural,
    ranges,
    refusal,
)
from streameval.planning.planner import TARGET_BLOCK_BYTES
from streameval.planning.problem import Holders, Problem
from streameval.planning.range import Range
from streameval.protocols.views import View
from streameval.request import Request
from streameval.run.preparation import Planned, Prepared
from streameval.run.session import Session
from streameval.source import Counted, Input, PlanText, Source
from streameval.sources.features import Features
from streameval.typing import JsonObject, Span

Depth = int | Literal["auto"]

ENTRY_BYTES = 220  # of an entry of a list, while it is looked up and counted
SEARCH_BYTES = 40 << 20  # of a search in progress, of each thread
MOST_QUERIES = 4096  # of a block: more make nothing faster
LEAST_QUERIES = 32  # of a task: each reads the gallery rows again
LEAST_BLOCK = 256  # gallery rows: fewer are not tried before fewer queries
FLAT_BLOCK_BYTES = 64 << 20  # of the gallery: each block gives lists that have to be merged
FAISS_BYTES = 90 << 20  # of FAISS and its BLAS, once loaded


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
    canonical : bool
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
    canonical: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        features, k, missing = self.features, self.k, self.missing
        refuse(
            OptionError,
            missing not in (None, "bounds", "never")
            and f"missing is {missing!r}; expected bounds or never",
            not (k in (None, "auto") or is_count(k))
            and f"k is {k!r}; expected a positive integer, or auto",
            features is None
            and (self.tighten or self.canonical)
            and f"{'tighten' if self.tighten else 'canonical'} computes distances, and there are "
            "no features: give --query and --gallery",
            self.tighten
            and missing == "never"
            and "tighten narrows bounds, and missing is never: leave one out",
        )
        if k not in (None, "auto"):
            object.__setattr__(self, "k", int(k))
        check_type("features", features, Features | None, "Features(query, gallery) is needed")
        if features is not None and (self.searches or missing != "never"):
            faiss_metric(features)

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call the lists."""

    @property
    @abstractmethod
    def usual_depth(self) -> int:
        """Items of a list where k is no number; of ``k="auto"`` at first."""

    @property
    def depth(self) -> int:
        """Items of a list: k, or as many as the gallery has, where it is known."""
        depth = self.k if isinstance(self.k, int) else self.usual_depth
        return min(depth, self.shape[1] or depth)

    @property
    def is_flat(self) -> bool:
        """Whether all features are searched, with no index."""
        return False

    @property
    def reading(self) -> Missing:
        """How missing items are read; that of an index other than Flat is settled by `check`."""
        return self.missing or ("never" if self.searches and not self.is_flat else "bounds")

    @property
    def by_distance(self) -> bool:
        """Whether listed items are ranked by their canonical distances."""
        return self.features is not None and (self.reading == "bounds" or self.canonical)

    @property
    def needs_lengths(self) -> bool:
        """Whether bounds rely on the lengths of all gallery vectors, which no search tells."""
        return self.features is not None and self.reading == "bounds" and not self.is_flat

    @property
    def precision(self) -> float:
        """The relative rounding of the distances of lists before they are ranked."""
        return float(np.finfo(np.float32).eps)

    @property
    @abstractmethod
    def searched(self) -> int:
        """Items that are searched or read for each query: those of a list, or some more."""

    @property
    def recipe(self) -> Recipe | None:
        """How an index is built; None where none is."""
        return None

    @property
    def index_bytes(self) -> int:
        """Bytes of the index; 0 where there is none."""
        return 0

    @abstractmethod
    def read(
        self, queries: Span, plan: Plan, session: Session, repairs: Repairs
    ) -> tuple[Lists, float]:
        """Return the lists of a block of queries, repaired, before they are ranked.

        With them, the length of the longest gallery vector that a search has looked at; NaN where
        that isn't known.
        """

    @contextmanager
    def built(self, plan: Plan, session: Session) -> Iterator[tuple[Self, JsonObject]]:
        """Yield the source as it is read, and facts of what was built for that."""
        yield self, {}

    def inputs(self) -> tuple[Input, ...]:
        """Return the arrays and files that are read."""
        return () if self.features is None else self.features.inputs()

    def options(self) -> JsonObject:
        """Return how lists are made and read."""
        read = {name: getattr(self, name) for name in ("missing", "tighten", "canonical")}
        read = {"k": self.depth if isinstance(self.k, int) else self.k} | read
        return read if self.features is None else read | self.features.options()

    def check(self, request: Request) -> Self:
        """Return the source as it is evaluated, checked against the request."""
        self.check_rows(request.query, request.gallery)
        options, refine = request.options, request.refine
        named, _ = wanted_measures(options)
        drawn = [measure.name for measure in named if "sampled_shots" in measure.metric.needs]
        by_identity = [
            one for one in (options.cmc, request.protocol.cmc) if one in IDENTITY_READINGS
        ]
        refuse(
            OptionError,
            refine
            and f"{refine[0].name} is refined by further passes over all pairs, and lists hold "
            "some of them: leave --refine out, or evaluate the features",
            by_identity
            and f"CMC under {by_identity[0].replace('-', ' ')} counts the items of every gallery "
            "identity, and lists leave items out: choose another protocol (separate-camera ignores "
            "the same pairs as cuhk03), or evaluate the features",
            request.protocol.over_draws
            and f"protocol {request.protocol.name} takes the mean over all draws of the gallery, "
            "and lists leave items out: choose a number of trials, or evaluate the features",
            drawn and f"{drawn[0]} can't be read off lists: leave it out",
            request.range == "minmax-all"
            and request.needs_range
            and "range is minmax-all, the least and greatest distance of all pairs, and lists hold "
            "some of them: give --range LO,HI, or evaluate the features",
            self.reading == "never"
            and options.ties == "expected"
            and "ties expected has no meaning for what is never found: choose pessimistic, "
            "optimistic or stable",
        )
        return self

    def bounds(self) -> Range | None:
        """Return the range of the features' metric; None without features."""
        return None if self.features is None else self.features.bounds()

    def with_range_pass(self, problem: Problem) -> Problem:
        """Return the same sizes: all distances are listed, or there is no range."""
        return problem

    def plan(self, problem: Problem, limits: Limits) -> Plan:
        """Return blocks of queries and of the gallery within the limits.

        The workers of a cluster search and compute distances; this process counts the lists that
        they return.

        Returns
        -------
        Plan
            Its tile is queries of a block, and k.
        """
        whole = _counted_bytes(problem, problem.queries)
        in_rounds = (
            problem.queries > problem.least_round and sum(whole.values()) > limits.memory / 2
        )
        here = limits.here(problem) | whole
        process = limits.process(problem, here)
        recipe, is_flat = self.recipe, self.is_flat
        process.kept.update(FAISS=FAISS_BYTES * self.searches, index=self.index_bytes)
        read = 16 * problem.queries * self.searched * (not self.searches)
        train_rows = 0 if recipe is None else recipe.train_rows
        in_round = in_rounds and not process.workers
        if in_round:
            process.kept.update(dict.fromkeys(whole, 0))
        queries, block, parts = _fit(problem, self, train_rows, process, in_round=in_round)
        if in_rounds:
            here |= _counted_bytes(problem, queries)
        blocks = ranges(problem.queries, queries)
        row_bytes = problem.data.width * problem.data.stored_itemsize
        gallery_bytes = problem.gallery * row_bytes
        if self.by_distance:
            read += min(problem.queries * self.searched * row_bytes, len(blocks) * gallery_bytes)
        shards = [(0, problem.gallery)]
        if is_flat:
            rows = math.ceil(problem.gallery / (process.shares * block)) * block
            by_item, *_ = problem.data.edges or (None,)
            shards = ranges(problem.gallery, rows, by_item)
        if self.searches:
            # With fewer shards than threads, queries are cut, too; each cut reads the shards.
            lanes = process.threads * max(process.workers, 1) if is_flat else process.shares
            cuts = -(-lanes // max(len(shards), 1))
            step = max(-(-queries // cuts), LEAST_QUERIES)
            blocks = [part for some in blocks for part in pieces(some, step)]
        read += gallery_bytes * (len(blocks) * is_flat + (recipe is not None))
        return Plan(
            "lists",
            tuple(Task(some, shard) for some in blocks for shard in shards),
            block,
            (queries, self.searched),
            process.threads,
            process.memory,
            parts,
            read,
            2 * problem.queries * problem.gallery * problem.data.width * is_flat,
            process.workers,
            {} if limits.workers is None else here | {"lists": parts.get("lists", 0)},
            queries if in_rounds else 0,
        )

    def passes(self, planned: Planned) -> list[str]:
        """Return the names of the passes over the data, in order."""
        builds = self.recipe is not None
        wanted = {
            "training": builds,
            "index": builds,
            "lengths": self.needs_lengths,
            "search": self.searches,
            "distances": self.by_distance,
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

    def check_views(self, views: Sequence[View]) -> None:
        """Raise OptionError unless all queries rank all items: lists lack most of them."""
        if not all(view.whole for view in views):
            raise OptionError(
                "the protocol selects queries or gallery items, and lists of neighbours are of the "
                "whole gallery: evaluate features or distances, or make lists of the selection"
            )

    def count(self, prepared: Sequence[Prepared], session: Session) -> list[Counted]:
        """Return the statistics that the lists leave possible."""
        return [count_lists(self, one, session) for one in prepared]

    def first_bad_row(self, stop: int) -> None:
        """Raise InputError for the first bad row of the features below `stop`, if any."""
        if self.features is not None:
            self.features.first_bad_row(stop)


def _counted_bytes(problem: Problem, queries: int) -> Holders:
    """Return the bytes of the pairs of so many queries, and of their worst and best statistics."""
    held = problem.round_bytes(queries)
    held["statistics"] += held["statistics"] + problem.job_bytes(queries)
    return held


def _fit(
    problem: Problem, source: ListSource, train_rows: int, process: Process, *, in_round: bool
) -> tuple[int, int, dict[str, int]]:
    """Return the most queries and gallery rows of a block that fit, and the bytes they take.

    `in_round` tells whether a block of queries is a round, whose statistics this process holds.
    """
    data, width = problem.data, problem.data.width
    row_bytes = width * (data.stored_itemsize + data.itemsize + 8) + 64
    queries = max(min(problem.queries, MOST_QUERIES), 1)
    block_bytes = FLAT_BLOCK_BYTES if source.is_flat else TARGET_BLOCK_BYTES
    block = max(min(block_bytes // row_bytes, problem.gallery), 1)
    training = {"training": train_rows * width * (data.itemsize + 4 * 4)}
    while True:
        of_block = (block * row_bytes + data.scratch(block, width)) * bool(width)
        held = {
            "lists": queries * source.searched * ENTRY_BYTES,
            "queries": 2 * queries * width * (data.itemsize + 8),
            "gallery blocks": process.threads * of_block,
            "searching": process.threads * SEARCH_BYTES * source.searches,
        }
        if in_round:
            held |= _counted_bytes(problem, queries)
        parts = process.kept | max(held, training, key=lambda one: sum(one.values()))
        parts = {name: size for name, size in parts.items() if size}
        if sum(parts.values()) <= process.memory:
            return queries, block, parts
        if block * row_bytes > TARGET_BLOCK_BYTES or (queries == 1 and block > LEAST_BLOCK):
            block = -(-block // 2)
        elif queries > 1:
            queries = -(-queries // 2)
        else:
            remedy = "raise --memory or lower --threads"
            if process.kept["index"]:
                remedy = f"choose an index with smaller codes (IVF1024,PQ16), or {remedy}"
            raise refusal(problem, process, parts, remedy, of="lists of ")
