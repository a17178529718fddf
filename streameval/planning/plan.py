"""The limits, and the plan that fits a problem into them."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from streameval.errors import BudgetError
from streameval.planning.problem import Holders, Problem
from streameval.typing import IntArray, Span

LIBRARIES = "libraries"
SHARDS_PER_THREAD = 4  # enough to even out threads, few enough to merge
FAN_IN = 8  # parts that a worker of a cluster merges at a time

Layout = Literal["features", "strips", "rectangles", "lists"]


@dataclass(frozen=True)
class Task:
    """One piece of work: some queries against some gallery items.

    Attributes
    ----------
    queries, gallery : (int, int)
        Start and stop of the query rows and gallery items.
    """

    queries: Span
    gallery: Span

    @property
    def pairs(self) -> int:
        """Number of (query, gallery) pairs."""
        return (self.queries[1] - self.queries[0]) * (self.gallery[1] - self.gallery[0])

    def __str__(self) -> str:
        """Name it as people do: ``queries 0:1024 × gallery 0:65536``."""
        (first, last), (left, right) = self.queries, self.gallery
        return f"queries {first}:{last} × gallery {left}:{right}"


@dataclass(frozen=True)
class Workers:
    """The processes of a cluster that the tasks run in.

    Attributes
    ----------
    count : int
    threads : int
        Of each; the most of any.
    memory : int
        Bytes that each may take beyond what it holds; the least of any.
    libraries : int
        Bytes that the libraries of each take yet; the most of any.
    """

    count: int
    threads: int
    memory: int
    libraries: int


class Cut(NamedTuple):
    """How a plan cuts the work: see `Plan`."""

    layout: Layout
    tasks: tuple[Task, ...]
    block: int
    tile: Span
    round: int = 0

    @property
    def queries(self) -> int:
        """The most queries of a task."""
        return max(task.queries[1] - task.queries[0] for task in self.tasks)


@dataclass(frozen=True)
class Limits:
    """What a plan may take.

    Attributes
    ----------
    memory : int
        Budget in bytes: what may be taken beyond what the process holds already.
    threads : int
    libraries : int
        Bytes that the libraries of the process take yet.
    workers : Workers, optional
        Of the cluster that the tasks run on: memory, threads and libraries are theirs then, and
        this process holds pairs and statistics alone.
    tile : (int, int), optional
        Tile shape in place of the usual one: query rows, gallery items.
    cut : Cut, optional
        Of an earlier plan, to be kept where it fits.
    """

    memory: int
    threads: int
    libraries: int
    workers: Workers | None = None
    tile: tuple[int, int] | None = None
    cut: Cut | None = None

    def here(self, problem: Problem) -> Holders:
        """Return the bytes that this process holds whatever the cut, by what holds them."""
        return {LIBRARIES: self.libraries, **problem.held_bytes}

    def process(self, problem: Problem, here: Holders) -> Process:
        """Return the process that tasks run in: this one, which holds what is `here`, or others."""
        on = self.workers
        if on is None:
            return Process(self.memory, self.threads, 0, dict(here))
        kept = {LIBRARIES: on.libraries, "pairs": problem.job_bytes(problem.queries)}
        kept |= problem.beside
        return Process(on.memory, on.threads, on.count, kept)


@dataclass(frozen=True)
class Plan:
    """How the work is cut, and what it will take.

    Attributes
    ----------
    layout : {"features", "strips", "rectangles", "lists"}
    tasks : tuple of Task
        Of the counting pass.
    block : int
        Gallery rows of features, or columns of a stored matrix, read at a time.
    tile : (int, int)
        Query rows and gallery items of a GEMM tile, or of what is read of a stored matrix at a
        time; of lists, queries of a block, and k.
    threads : int
    memory : int
        The budget in bytes, beyond what the process holds when it is called.
    parts : dict of str to int
        Bytes held at the worst moment, by what holds them.
    bytes_read : int
        Bytes of distances or features read in all passes, before decompression.
    flops : int
        Floating-point operations of the matrix products.
    workers : int
        Processes of a cluster, that `threads`, `memory` and `parts` are of each; 0 where the
        evaluation runs in this process.
    client : dict of str to int
        Bytes held by the process that hands out the tasks of a cluster, by what holds them.
    round : int
        The most queries whose statistics are in memory; 0 for all.
    """

    layout: Layout
    tasks: tuple[Task, ...]
    block: int
    tile: tuple[int, int]
    threads: int
    memory: int
    parts: Holders
    bytes_read: int
    flops: int
    workers: int = 0
    client: Holders = field(default_factory=dict)
    round: int = 0

    @property
    def peak(self) -> int:
        """Projected peak of what is taken beyond what the process holds, bytes."""
        return sum(self.parts.values())

    @property
    def client_peak(self) -> int:
        """Projected peak of what the client takes, bytes; 0 where there is no cluster."""
        return sum(self.client.values())

    @property
    def cut(self) -> Cut:
        """How the work is cut."""
        return Cut(self.layout, self.tasks, self.block, self.tile, self.round)

    @property
    def queries(self) -> Span:
        """The queries of all tasks, of the source: from the first to the last."""
        return _queries_of(self.tasks)

    @property
    def rounds(self) -> list[tuple[Task, ...]]:
        """The tasks of each round: those of some queries are finished before others begin."""
        if not self.round:
            return [self.tasks]
        begins: list[int] = []
        for first, last in sorted({task.queries for task in self.tasks}):
            if not begins or last - begins[-1] > self.round:
                begins.append(first)
        rounds: list[list[Task]] = [[] for _ in begins]
        for task in self.tasks:
            rounds[bisect_right(begins, task.queries[0]) - 1].append(task)
        return list(map(tuple, rounds))

    @property
    def round_queries(self) -> list[Span]:
        """The queries of each round."""
        return [_queries_of(tasks) for tasks in self.rounds]

    @property
    def pairs(self) -> int:
        """Pairs of the counting pass."""
        return sum(task.pairs for task in self.tasks)


def _queries_of(tasks: tuple[Task, ...]) -> Span:
    begins, ends = zip(*(task.queries for task in tasks), strict=True)
    return min(begins), max(ends)


@dataclass(frozen=True)
class Process:
    """A process that tasks run in.

    Attributes
    ----------
    memory : int
        Budget in bytes.
    threads : int
    workers : int
        How many there are like it; 0 where it is the only one, which merges everything too.
    kept : dict of str to int
        Bytes that it holds all the time, by what holds them.
    """

    memory: int
    threads: int
    workers: int
    kept: Holders

    @property
    def shares(self) -> int:
        """Tasks that even out the work over all threads there are."""
        return max(self.workers, 1) * self.threads * SHARDS_PER_THREAD


def format_bytes(count: float) -> str:
    """Return a byte count as people read it: ``1.2 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def ranges(stop: int, step: int, edges: IntArray | None = None) -> list[Span]:
    """Cut 0:stop into ranges of a step; an empty one stays, as there is a result of it too.

    Along edges where there are any, [c] int64, ascending, the last one at stop: as many as fit
    into a step, at least one.
    """
    if edges is None or not stop:
        return pieces((0, stop), max(step, 1)) or [(0, stop)]
    cuts = [0]
    while cuts[-1] < stop:
        last = int(np.searchsorted(edges, cuts[-1] + step, side="right")) - 1
        following = int(np.searchsorted(edges, cuts[-1], side="right"))
        cuts.append(int(edges[max(last, following)]))
    return list(pairwise(cuts))


def pieces(span: Span, step: int) -> list[Span]:
    """Cut a range into ranges of a step; none of an empty one."""
    start, stop = span
    return [(left, min(left + step, stop)) for left in range(start, stop, step)]


def refusal(
    problem: Problem, process: Process, parts: Holders, remedy: str, *, of: str = ""
) -> BudgetError:
    """Return the error where even the smallest parts, in bytes by what holds them, don't fit.

    `of` is what is evaluated of the queries, where that is not all pairs.
    """
    budget = format_bytes(process.memory) + (" for each worker" if process.workers else "")
    figures = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    needed = math.ceil(sum(parts.values()) / 1e6)
    return BudgetError(
        f"a memory budget of {budget} is too small for {of}{problem.queries} queries × "
        f"{problem.gallery} gallery items: at least {needed} MB is needed beyond what the process "
        f"holds ({figures}); {remedy}"
    )


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: ``1 query``, ``1,280 items``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
