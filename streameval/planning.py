"""The plan: how an evaluation is cut into tasks and tiles, and what each part holds in memory.

Pure arithmetic on shapes; nothing is read. The plan is made before any work, refuses with the
figures where the budget is too small, and is what ``--dry-run`` prints.

Tasks are rectangles of the (query, gallery) matrix. Features are cut into gallery shards; a
task reads its shard block by block and multiplies each block with all queries of its block of
queries, tile by tile. A stored matrix is cut into strips of whole query rows where one fits
the budget (read once: a strip holds its own positives); else into rectangles along its chunks,
which are read twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from streameval.counting.products import best_rows, panel_bytes
from streameval.counting.shots import SHOT_DOUBTS, Counters
from streameval.counting.tiles import DOUBTS, FINE_QUERIES
from streameval.errors import BudgetError

TILE_ITEMS = 8192 + 48  # rows a multiple of 4 KiB apart would share few sets of the caches
TARGET_BLOCK_BYTES = 4 << 20
SHARDS_PER_THREAD = 4  # enough to even out threads, few enough to merge
STRIP_BYTES = 64 << 20  # a longer strip of a stored matrix gains nothing
DOUBT_BYTES = 26 * DOUBTS  # the list of pairs in doubt of a task, and deciding them
SHOT_RANKS = 100  # ranks of CMC under single gallery shot
SHOT_QUERIES = 64  # fewer are not put into a task of their own to occupy all threads

RESERVED = "process and libraries"

FAN_IN = 8  # parts that a worker of a cluster merges at a time
TASK_FLOPS = 2 << 40  # of a task on a cluster: what is lost with a worker is soon done again
TASK_CELLS = 1 << 31  # likewise, of the distances that a task reads

Layout = Literal["features", "strips", "rectangles", "lists"]


@dataclass(frozen=True)
class ShotSizes:
    """Sizes for single gallery shot.

    Attributes
    ----------
    identities : int
        Identities H of the gallery.
    itemsize : int
        Bytes of a counter.
    most_positives : callable
        Number of queries of a block to the most positives that a block of that size has.
    """

    identities: int
    itemsize: int
    most_positives: Callable[[int], int]

    def task_bytes(self, queries: int) -> int:
        """Return the bytes of a task of so many queries: counters, doubts, and probabilities."""
        positives = self.most_positives(queries)
        counters = Counters.size(positives, self.identities, self.itemsize)
        return counters + 40 * self.identities + 60 * positives + 26 * SHOT_DOUBTS

    def kept_bytes(self, queries: int, gallery: int) -> int:
        """Return the bytes of the labels of identities, and of the probabilities of all queries."""
        return 8 * gallery + 8 * self.identities + 4 * 8 * 3 * SHOT_RANKS * queries


@dataclass(frozen=True)
class Problem:
    """What there is to evaluate: sizes only.

    Attributes
    ----------
    queries, gallery : int
        Q and G.
    positives : int
        Positive pairs P.
    listed : int
        Listed pairs, positives included.
    thresholds : int
        T.
    edges : int
        E of the histogram of impostors; 0 where there is none.
    width : int
        D of features; 0 for a stored matrix.
    itemsize : int
        Bytes of an element as it is worked on (4 or 8).
    stored_itemsize : int
        Bytes of an element as it is stored.
    scratch : callable
        (rows, columns) of a block of gallery features, or of the matrix, to the bytes that
        reading it takes beside the block itself.
    chunks : (int, int)
        Chunk of the gallery features, or of the matrix: rows, columns.
    cameras : int
        Cameras told apart by rule; 0 where none are.
    passes_for_range : int
        Extra passes over all pairs to find the range of the distances (0 or 1).
    passes_to_refine : int
        Extra passes over all pairs to settle chosen thresholds.
    shots : ShotSizes, optional
        Where CMC is read under single gallery shot: a task sees the whole gallery then.
    """

    queries: int
    gallery: int
    positives: int
    listed: int
    thresholds: int
    width: int
    itemsize: int
    stored_itemsize: int
    scratch: Callable[[int, int], int]
    chunks: tuple[int, int]
    cameras: int = 0
    passes_for_range: int = 0
    passes_to_refine: int = 0
    edges: int = 0
    shots: ShotSizes | None = None

    @property
    def passes(self) -> int:
        """Passes over all pairs, but for finding the positives."""
        return 1 + self.passes_for_range + self.passes_to_refine


@dataclass(frozen=True)
class Task:
    """One piece of work: some queries against some gallery items.

    Attributes
    ----------
    queries, gallery : (int, int)
        Start and stop of the query rows and gallery items.
    """

    queries: tuple[int, int]
    gallery: tuple[int, int]

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
class Plan:
    """How the work is cut, and what it will take.

    Attributes
    ----------
    layout : {"features", "strips", "rectangles", "lists"}
    tasks : tuple of Task
        Of the counting pass.
    block : int
        Gallery rows of features read at a time.
    tile : (int, int)
        Query rows and gallery items of a GEMM tile.
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
    """

    layout: Layout
    tasks: tuple[Task, ...]
    block: int
    tile: tuple[int, int]
    threads: int
    memory: int
    parts: dict[str, int]
    bytes_read: int
    flops: int
    workers: int = 0

    @property
    def peak(self) -> int:
        """Projected peak of the process's resident memory, bytes."""
        return sum(self.parts.values())

    @property
    def pairs(self) -> int:
        """Pairs of the counting pass."""
        return sum(task.pairs for task in self.tasks)


def make_plan(
    problem: Problem,
    *,
    memory: int,
    threads: int,
    reserved: int,
    tile: tuple[int, int] | None = None,
    workers: Workers | None = None,
) -> Plan:
    """Choose tasks, blocks and tiles within the budget.

    Parameters
    ----------
    problem : Problem
    memory : int
        Budget in bytes for the whole process.
    threads : int
    reserved : int
        Bytes that the process holds before and beside the evaluation.
    tile : (int, int), optional
        Tile shape in place of the usual one: query rows, gallery items.
    workers : Workers, optional
        Of the cluster that the tasks are to run on: memory, threads and reserved are theirs
        then, and this process holds the statistics alone.

    Raises
    ------
    BudgetError
        If no plan fits; says how much is needed, and for what.
    """
    if workers is None:
        process = _Process(
            memory, threads, 0, {RESERVED: reserved, "statistics": statistics_bytes(problem)}
        )
    else:
        kept = {RESERVED: workers.reserved, "pairs": pairs_bytes(problem)}
        process = _Process(workers.memory, workers.threads, workers.count, kept)
    if problem.shots is not None:
        process.kept["identities"] = problem.shots.kept_bytes(problem.queries, problem.gallery)
    if problem.width:
        return _plan_features(problem, process, tile or (best_rows(), TILE_ITEMS))
    return _plan_matrix(problem, process)


@dataclass(frozen=True)
class _Process:
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
    kept: dict[str, int]

    @property
    def shares(self) -> int:
        """Tasks that even out the work over all threads there are."""
        return max(self.workers, 1) * self.threads * SHARDS_PER_THREAD

    def merging(self, statistics: int) -> dict[str, int]:
        """Return the bytes of parts of so many bytes that are merged here, by what holds them."""
        return {"merging": (FAN_IN + 2) * statistics} if self.workers else {}


def format_bytes(count: float) -> str:
    """Return a byte count as people read it: ``1.2 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def statistics_bytes(problem: Problem) -> int:
    """Bytes of the statistics, thrice while parts merge, and of the pairs that are listed."""
    per_query = 3 * 8 * (problem.thresholds + 8)
    histogram = 3 * 16 * problem.edges
    return problem.queries * per_query + histogram + 200 * problem.positives + 10 * problem.listed


def pairs_bytes(problem: Problem) -> int:
    """Bytes of the job that every worker holds: listed pairs, junk, cameras, positives."""
    by_item = problem.gallery * (5 if problem.cameras else 1)
    return 2 * (10 * problem.listed + by_item) + 16 * problem.positives


def _part_bytes(problem: Problem, queries: int) -> int:
    """Bytes of the statistics of so many queries."""
    positives = -(-problem.positives * queries // max(problem.queries, 1))
    return 8 * queries * (problem.thresholds + 8) + 16 * problem.edges + 32 * positives


def _task_statistics_bytes(problem: Problem, queries: int) -> int:
    """Bytes of edges, slots and partial statistics of a task of so many queries."""
    positives = -(-problem.positives * queries // max(problem.queries, 1))
    limits = problem.thresholds + problem.edges
    edges = positives + queries * limits
    within = queries * (limits + 8 + (problem.thresholds if problem.edges else 0))
    return 8 * edges + 16 * edges + 8 * within + 40 * positives


def _shot_parts(problem: Problem, threads: int, queries: int) -> dict[str, int]:
    """Bytes of the counters of single gallery shot, where that is asked for."""
    if problem.shots is None:
        return {}
    return {"negatives by identity": threads * problem.shots.task_bytes(queries)}


def cut(stop: int, step: int) -> list[tuple[int, int]]:
    """Cut 0:stop into ranges of a step; an empty one stays, as there is a result of it too."""
    starts = range(0, max(stop, 1), max(step, 1))
    return [(start, min(start + step, stop)) for start in starts]


def _refuse(problem: Problem, process: _Process, parts: dict[str, int], remedy: str) -> BudgetError:
    budget = format_bytes(process.memory) + (" for each worker" if process.workers else "")
    figures = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    needed = math.ceil(sum(parts.values()) * 1.03 / 1e6)  # the process itself varies a little
    return BudgetError(
        f"a memory budget of {budget} is too small for {problem.queries} queries × "
        f"{problem.gallery} gallery items: at least {needed} MB is needed ({figures}); {remedy}"
    )


def _plan_features(problem: Problem, process: _Process, tile: tuple[int, int]) -> Plan:
    memory, threads = process.memory, process.threads
    # As stored, as worked on, as multiplied: often the same, at worst three.
    row_bytes = problem.width * (problem.stored_itemsize + problem.itemsize + 4) + 64
    chunk = max(problem.chunks[0], 1)
    # A column, where a model has collapsed.
    fine = 8 * (problem.width + 2 * FINE_QUERIES + max(problem.cameras, 1)) + 64
    operands = 2 if problem.shots is None else threads + 1  # blocks of queries held at a time

    def parts(query_block: int, block: int, rows: int, items: int) -> dict[str, int]:
        scratch = problem.scratch(block, problem.width)
        merging = process.merging(_part_bytes(problem, query_block))
        return {
            **process.kept,
            **merging,
            "queries": operands * query_block * problem.width * (problem.itemsize + 4)
            + operands * panel_bytes(query_block, problem.width),
            "gallery blocks": threads * (block * row_bytes + scratch),
            "tiles": threads * items * (4 * rows + 4 * problem.cameras + fine)
            + threads * panel_bytes(items, problem.width),
            "counts": threads * (_task_statistics_bytes(problem, query_block) + DOUBT_BYTES),
            **_shot_parts(problem, threads, query_block),
        }

    items = min(tile[1], max(problem.gallery, 1))
    rows = min(tile[0], max(problem.queries, 1))
    # Whole chunks, so that none is decoded twice; but a share of the gallery for every thread.
    block = -(-max(TARGET_BLOCK_BYTES // row_bytes, items) // chunk) * chunk
    block = max(min(block, -(-problem.gallery // (threads * max(process.workers, 1)))), 1)
    query_block = max(problem.queries, 1)
    if problem.shots is not None:
        shares = threads * max(process.workers, 1)
        query_block = min(query_block, max(-(-query_block // shares), SHOT_QUERIES))
    while sum(parts(query_block, block, rows, items).values()) > memory:
        if problem.shots is not None and query_block > 256:
            query_block = -(-query_block // 2)
        elif block > max(chunk, 1024):
            block = max(block // 2 // chunk, 1) * chunk
        elif query_block > (256 if problem.shots is None else 1):  # more passes over the gallery
            query_block = -(-query_block // 2)
        elif block > 256:  # chunks are decoded more than once
            block = -(-block // 2)
        elif rows > 16:
            rows //= 2
        else:
            smallest = parts(query_block, block, rows, items)
            raise _refuse(problem, process, smallest, "raise --memory or lower --threads")
        items = min(items, block)
    query_ranges = cut(problem.queries, query_block)
    shard = -(-problem.gallery // process.shares)
    if process.workers:
        shard = min(shard, TASK_FLOPS // (2 * problem.width * query_block))
    shard = max(-(-shard // block) * block, 1)
    if problem.shots is not None:
        shard = max(problem.gallery, 1)
    tasks = tuple(Task(q, g) for q in query_ranges for g in cut(problem.gallery, shard))
    gallery_bytes = problem.gallery * problem.width * problem.stored_itemsize
    decoded = (block + chunk - math.gcd(block, chunk)) / block if block < problem.gallery else 1
    passes = len(query_ranges) * problem.passes * decoded
    positives_bytes = problem.positives * problem.width * problem.stored_itemsize
    return Plan(
        "features",
        tasks,
        block,
        (rows, items),
        threads,
        memory,
        parts(query_block, block, rows, items),
        int(gallery_bytes * passes)
        + min(positives_bytes, gallery_bytes)
        + problem.queries * problem.width * problem.stored_itemsize * max(process.workers, 1),
        2 * problem.queries * problem.gallery * problem.width * problem.passes,
        process.workers,
    )


def _plan_matrix(problem: Problem, process: _Process) -> Plan:
    memory, threads = process.memory, process.threads
    chunk_rows = max(min(problem.chunks[0], problem.queries), 1)
    chunk_items = max(min(problem.chunks[1], problem.gallery), 1)
    gallery = max(problem.gallery, 1)
    cell_bytes = problem.stored_itemsize + problem.itemsize  # as stored, as worked on

    def parts(rows: int, items: int) -> dict[str, int]:
        distances = rows * items * cell_bytes + problem.scratch(rows, items)
        merging = process.merging(_part_bytes(problem, rows))
        return {
            **process.kept,
            **merging,
            "distances": threads * distances,
            "items": threads * items * (16 + problem.itemsize * (2 + problem.cameras)),
            "counts": threads * _task_statistics_bytes(problem, rows),
            **_shot_parts(problem, threads, rows),
        }

    def plan(layout: Layout, rows: int, items: int, reads: int) -> Plan:
        tasks = tuple(
            Task(q, g)
            for q in cut(problem.queries, rows)
            for g in cut(problem.gallery, items if problem.shots is None else gallery)
        )
        matrix = problem.queries * problem.gallery * problem.stored_itemsize
        return Plan(
            layout,
            tasks,
            items,
            (rows, items),
            threads,
            memory,
            parts(rows, items),
            matrix * (reads + problem.passes - 1),
            0,
            process.workers,
        )

    if sum(parts(chunk_rows, gallery).values()) <= memory:
        rows = chunk_rows
        even = -(-problem.queries // process.shares)
        while (
            rows * gallery * problem.itemsize < STRIP_BYTES
            and rows < even
            and sum(parts(rows + chunk_rows, gallery).values()) <= memory
        ):
            rows += chunk_rows
        return plan("strips", rows, gallery, 1)
    rows, items = chunk_rows, chunk_items
    while (
        rows * items * problem.itemsize < STRIP_BYTES
        and items < gallery
        and sum(parts(rows, items + chunk_items).values()) <= memory
    ):
        items += chunk_items
    if sum(parts(rows, items).values()) > memory:
        raise _refuse(
            problem,
            process,
            parts(rows, items),
            f"raise --memory, lower --threads, or store the matrix in smaller chunks than "
            f"{problem.chunks[0]} × {problem.chunks[1]}",
        )
    return plan("rectangles", rows, items, 2)
