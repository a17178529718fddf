"""The plan of features: shards of the gallery, read block by block, multiplied tile by tile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from streameval.kernels.doubts import DOUBTS
from streameval.kernels.multiplier import item_bytes
from streameval.kernels.tiles import FINE_QUERIES
from streameval.planning.plan import SHARDS_PER_THREAD, Plan, Process, Task, ranges, refusal
from streameval.planning.problem import Problem, part_bytes, shot_parts, task_statistics_bytes

TARGET_BLOCK_BYTES = 4 << 20
SMALL_BLOCK = 1100  # gallery rows; before blocks are any smaller, those of queries are
DOUBT_BYTES = 26 * DOUBTS  # the list of pairs in doubt of a task, and deciding them
SHOT_QUERIES = 64  # fewer are not put into a task of their own to occupy all threads
SMALL_SHARD = 16_384  # gallery rows: of fewer, what a shard costs beside them would show
TASK_FLOPS = 2 << 40  # of a task: what is lost with a worker, or when cut off, is soon done again


def plan_features(problem: Problem, process: Process, tile: tuple[int, int]) -> Plan:
    """Choose blocks and tiles of features within the memory of a process.

    Parameters
    ----------
    problem : Problem
    process : Process
    tile : (int, int)
        Query rows and gallery items of a tile, where memory allows.

    Raises
    ------
    BudgetError
    """
    cut = _fitting(problem, process, tile)
    data, chunk, block = problem.data, max(problem.data.chunks[0], 1), cut.block
    query_ranges = ranges(problem.queries, cut.queries)
    unit = chunk if block % chunk == 0 else block  # no chunk is decoded twice
    most = max(TASK_FLOPS // (2 * data.width * cut.queries), SMALL_SHARD)
    shards = _shards(problem.gallery, unit, most, process)
    if problem.shots is not None:
        shards = [(0, problem.gallery)]
    row_bytes = data.width * data.stored_itemsize
    gallery_bytes = problem.gallery * row_bytes
    decoded = (block + chunk - math.gcd(block, chunk)) / block if block < problem.gallery else 1
    passes = len(query_ranges) * problem.passes * decoded
    read = int(gallery_bytes * passes) + min(problem.positives * row_bytes, gallery_bytes)
    return Plan(
        "features",
        tuple(Task(q, g) for q in query_ranges for g in shards),
        block,
        (cut.rows, cut.items),
        process.threads,
        process.memory,
        cut.parts(problem, process),
        read + problem.queries * row_bytes * max(process.workers, 1),
        2 * problem.queries * problem.gallery * data.width * problem.passes,
        process.workers,
    )


@dataclass(frozen=True)
class _Cut:
    """Rows of features that are held at a time.

    Attributes
    ----------
    queries, block : int
        Rows of a block of queries, and of the gallery.
    rows, items : int
        Rows and columns of a tile.
    """

    queries: int
    block: int
    rows: int
    items: int

    def parts(self, problem: Problem, process: Process) -> dict[str, int]:
        """Return the bytes that a process holds, by what holds them."""
        data, threads = problem.data, process.threads
        operands = 2 if problem.shots is None else threads + 1  # blocks of queries held at a time
        # A column, where a model has collapsed.
        fine = 8 * (data.width + 2 * FINE_QUERIES + max(problem.classes, 1)) + 64
        scratch = data.scratch(self.block, data.width)
        merging = process.merging(part_bytes(problem, self.queries))
        value = 8 if data.exact else 4  # of what is held beside the features, and in a tile
        return {
            **process.kept,
            **merging,
            "queries": operands * self.queries * data.width * (data.itemsize + value)
            + operands * item_bytes(self.queries, data.width),
            "gallery blocks": threads * (self.block * _row_bytes(problem) + scratch),
            "tiles": threads * self.items * (value * (self.rows + problem.classes) + fine)
            + threads * item_bytes(self.items, data.width),
            "counts": threads * (task_statistics_bytes(problem, self.queries) + DOUBT_BYTES),
            **shot_parts(problem, threads, self.queries, self.items),
        }


def _row_bytes(problem: Problem) -> int:
    """Return the bytes of a gallery row: as stored, as worked on, as multiplied."""
    data = problem.data
    return data.width * (data.stored_itemsize + data.itemsize + (8 if data.exact else 4)) + 64


def _fitting(problem: Problem, process: Process, tile: tuple[int, int]) -> _Cut:
    """Return the largest blocks and tiles that fit the memory of a process.

    Raises
    ------
    BudgetError
    """
    chunk, shares = max(problem.data.chunks[0], 1), process.threads * max(process.workers, 1)
    items = min(tile[1], max(problem.gallery, 1))
    # Whole chunks, so that none is decoded twice; but a share of the gallery for every thread.
    block = -(-max(TARGET_BLOCK_BYTES // _row_bytes(problem), items) // chunk) * chunk
    block = max(min(block, -(-problem.gallery // shares)), 1)
    queries, draws = max(problem.queries, 1), problem.shots is not None
    if draws:
        queries = min(queries, max(-(-queries // shares), SHOT_QUERIES))
    cut = _Cut(queries, block, min(tile[0], max(problem.queries, 1)), items)
    while sum(cut.parts(problem, process).values()) > process.memory:
        if cut.block > max(chunk, 2 * SMALL_BLOCK if draws else SMALL_BLOCK):
            cut = replace(cut, block=max(cut.block // 2 // chunk, 1) * chunk)
        elif cut.queries > (SHOT_QUERIES if draws else 256):  # more passes over the gallery
            cut = replace(cut, queries=-(-cut.queries // 2))
        elif cut.block > 256:  # chunks are decoded more than once
            cut = replace(cut, block=-(-cut.block // 2))
        elif draws and cut.queries > 1:
            cut = replace(cut, queries=-(-cut.queries // 2))
        elif cut.rows > 16:
            cut = replace(cut, rows=cut.rows // 2)
        else:
            smallest = cut.parts(problem, process)
            raise refusal(problem, process, smallest, "raise --memory or lower --threads")
        cut = replace(cut, items=min(cut.items, cut.block))
    return cut


def _shards(gallery: int, unit: int, most: int, process: Process) -> list[tuple[int, int]]:
    """Cut the gallery for the threads: each takes a large shard, then small ones even them out.

    A shard costs as much a query as some thousand items: a small gallery has none to spare. On a
    cluster all are small.

    Parameters
    ----------
    gallery : int
    unit : int
        Rows that stay together.
    most : int
        Rows of the largest shard, about.
    process : Process
    """
    threads = process.threads * max(process.workers, 1)
    large = gallery
    if process.workers:  # they come and go
        threads = process.shares
    elif threads > 1 and gallery >= SMALL_SHARD * process.shares:
        large = gallery * (SHARDS_PER_THREAD - 1) // SHARDS_PER_THREAD
    large = min(-(-large // unit) * unit, gallery)
    shards = []
    for begin, end in ((0, large), (large, gallery)):
        count = threads * max(-(-(end - begin) // (threads * max(most, 1))), 1)
        step = max(-(-(end - begin) // (count * unit)), 1) * unit
        shards += [(start, min(start + step, end)) for start in range(begin, end, step)]
    return shards or [(0, 0)]
