"""Problem dimensions, the limits, and the plan that fits the one into the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from streameval.errors import BudgetError
from streameval.single_shot.ahead import SHOT_DOUBTS, SHOT_RANKS, shot_entries
from streameval.typing import Span

RESERVED = "process and libraries"
SHARDS_PER_THREAD = 4  # enough to even out threads, few enough to merge
FAN_IN = 8  # parts that a worker of a cluster merges at a time

Layout = Literal["features", "strips", "rectangles", "lists"]
Holders = dict[str, int]
"""Bytes by what holds them."""


@dataclass(frozen=True)
class ShotSizes:
    """Sizes for single gallery shot.

    Attributes
    ----------
    identities : int
        Identities H of the gallery.
    entries : int
        The most that a query leaves in the list of negatives ahead.
    most_positives : callable
        Number of queries of a block to the most positives that a block of that size has.
    fields : int
        Fields of the statistics: 1, and 2 where draws are taken.
    """

    identities: int
    entries: int
    most_positives: Callable[[int], int]
    fields: int = 1

    def task_bytes(self, queries: int, items: int) -> int:
        """Return the bytes of a task of so many queries, with tiles of so many items."""
        spare = max(items, SHOT_DOUBTS)
        entries = 8 * shot_entries(queries * self.entries, spare)
        return entries + 48 * self.identities + 60 * self.most_positives(queries) + 26 * spare

    def kept_bytes(self, queries: int, gallery: int) -> int:
        """Return the bytes of the labels of identities, and of the probabilities of all queries.

        These are held twice where blocks of queries are stacked.
        """
        labels = 8 * gallery + 8 * self.identities
        return labels + 2 * self.fields * 8 * 3 * SHOT_RANKS * queries


@dataclass(frozen=True)
class Data:
    """Sizes of what distances are read or computed from.

    Attributes
    ----------
    width : int
        D of features; 0 for a matrix.
    itemsize : int
        Bytes of an element as it is worked on (4 or 8).
    stored_itemsize : int
        Bytes of an element as it is stored.
    scratch : callable
        (rows, columns) of a block of gallery features, or of the matrix, to the bytes that
        reading it takes beside the block itself.
    chunks : (int, int)
        Chunk of the gallery features, or of the matrix: rows, columns.
    converted : bool
        Whether what is read is held beside what is worked on, as where their dtypes differ.
    exact : bool
        Whether every distance of features is computed, in float64; else most are told by
        products in float32.
    """

    width: int
    itemsize: int
    stored_itemsize: int
    scratch: Callable[[int, int], int]
    chunks: tuple[int, int]
    converted: bool = True
    exact: bool = False


@dataclass(frozen=True)
class Problem:
    """Problem dimensions.

    Attributes
    ----------
    queries, gallery : int
        Q and G.
    positives : int
        Positive pairs P.
    listed : int
        Listed pairs, positives included.
    data : Data
    thresholds : int
        T.
    classes : (int, int)
        Classes C of queries whose items are ignored, and rules R by which; 0 where none are.
    extra_passes : int
        Passes over all pairs beside the one that counts: to find the range of the distances, and
        to settle chosen thresholds.
    edges : int
        E of the histogram of impostors; 0 where there is none.
    groups : int
        Groups of queries that have a histogram of their own, too.
    shots : ShotSizes, optional
        Where CMC is read under single gallery shot: a task sees the whole gallery then.
    near : int
        Nearest negatives that are looked for of each query.
    """

    queries: int
    gallery: int
    positives: int
    listed: int
    data: Data
    thresholds: int = 0
    classes: tuple[int, int] = 0, 0
    extra_passes: int = 0
    edges: int = 0
    groups: int = 0
    shots: ShotSizes | None = None
    near: int = 0

    @property
    def passes(self) -> int:
        """Passes over all pairs, but for finding the positives."""
        return 1 + self.extra_passes

    @property
    def statistics_bytes(self) -> int:
        """Bytes of the statistics, thrice while parts merge, and of the pairs that are listed."""
        return 3 * self.part_bytes(self.queries) + 104 * self.positives + 10 * self.listed

    @property
    def pairs_bytes(self) -> int:
        """Bytes of the job that every worker holds: listed pairs, junk, classes, positives."""
        by_item = self.gallery * (1 + 4 * self.classes[1])
        return 2 * (10 * self.listed + by_item) + 16 * self.positives

    def positives_of(self, queries: int) -> int:
        """Return the positives of so many queries, on average."""
        return -(-self.positives * queries // max(self.queries, 1))

    def part_bytes(self, queries: int) -> int:
        """Return the bytes of the statistics of so many queries."""
        by_query = queries * (self.thresholds + self.near + 8)
        by_edge = self.edges * (2 + self.groups)
        return 8 * (by_query + by_edge) + 32 * self.positives_of(queries)

    def task_bytes(self, queries: int) -> int:
        """Return the bytes of edges, levels, slots and statistics of a task of so many queries."""
        positives, limits = self.positives_of(queries), self.thresholds + self.edges
        within = limits + 8 + 2 * self.near + (self.thresholds if self.edges else 0)
        return (
            (32 if self.data.width else 24) * (positives + queries * limits)
            + (16 if self.groups else 8) * queries * within
            + 24 * limits * self.groups
            + 40 * positives
        )


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
        Bytes that each may take; the least of any.
    reserved : int
        Bytes that each holds before and beside the evaluation.
    """

    count: int
    threads: int
    memory: int
    reserved: int


@dataclass(frozen=True)
class Limits:
    """What a plan may take.

    Attributes
    ----------
    memory : int
        Budget in bytes for the whole process.
    threads : int
    reserved : int
        Bytes that the process holds before and beside the evaluation.
    workers : Workers, optional
        Of the cluster that the tasks run on: memory, threads and reserved are theirs then, and
        this process holds the statistics alone.
    tile : (int, int), optional
        Tile shape in place of the usual one: query rows, gallery items.
    """

    memory: int
    threads: int
    reserved: int
    workers: Workers | None = None
    tile: tuple[int, int] | None = None

    def process(self, problem: Problem, here: Holders) -> Process:
        """Return the process that tasks run in: this one, which holds what is `here`, or others."""
        on = self.workers
        if on is None:
            return Process(self.memory, self.threads, 0, dict(here))
        kept = {RESERVED: on.reserved, "pairs": problem.pairs_bytes}
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
        The budget in bytes.
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

    @property
    def peak(self) -> int:
        """Projected peak of the process's resident memory, bytes."""
        return sum(self.parts.values())

    @property
    def client_peak(self) -> int:
        """Projected peak of the client's resident memory, bytes; 0 where there is no cluster."""
        return sum(self.client.values())

    @property
    def pairs(self) -> int:
        """Pairs of the counting pass."""
        return sum(task.pairs for task in self.tasks)


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


def ranges(stop: int, step: int) -> list[Span]:
    """Cut 0:stop into ranges of a step; an empty one stays, as there is a result of it too."""
    return pieces((0, stop), max(step, 1)) or [(0, stop)]


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
    needed = math.ceil(sum(parts.values()) * 1.03 / 1e6)  # the process itself varies a little
    return BudgetError(
        f"a memory budget of {budget} is too small for {of}{problem.queries} queries × "
        f"{problem.gallery} gallery items: at least {needed} MB is needed ({figures}); {remedy}"
    )


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: ``1 query``, ``1,280 items``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
