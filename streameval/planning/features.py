"""The plan of features: shards of the gallery, read block by block, multiplied tile by tile."""

from __future__ import annotations

import math

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
    memory, threads = process.memory, process.threads
    # As stored, as worked on, as multiplied: often the same, at worst three.
    row_bytes = problem.width * (problem.stored_itemsize + problem.itemsize + 4) + 64
    chunk = max(problem.chunks[0], 1)
    # A column, where a model has collapsed.
    fine = 8 * (problem.width + 2 * FINE_QUERIES + max(problem.classes, 1)) + 64
    operands = 2 if problem.shots is None else threads + 1  # blocks of queries held at a time

    def parts(query_block: int, block: int, rows: int, items: int) -> dict[str, int]:
        scratch = problem.scratch(block, problem.width)
        merging = process.merging(part_bytes(problem, query_block))
        return {
            **process.kept,
            **merging,
            "queries": operands * query_block * problem.width * (problem.itemsize + 4)
            + operands * item_bytes(query_block, problem.width),
            "gallery blocks": threads * (block * row_bytes + scratch),
            "tiles": threads * items * (4 * rows + 4 * problem.classes + fine)
            + threads * item_bytes(items, problem.width),
            "counts": threads * (task_statistics_bytes(problem, query_block) + DOUBT_BYTES),
            **shot_parts(problem, threads, query_block, items),
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
        if block > max(chunk, SMALL_BLOCK if problem.shots is None else 2 * SMALL_BLOCK):
            block = max(block // 2 // chunk, 1) * chunk
        elif query_block > (256 if problem.shots is None else SHOT_QUERIES):
            query_block = -(-query_block // 2)  # more passes over the gallery
        elif block > 256:  # chunks are decoded more than once
            block = -(-block // 2)
        elif problem.shots is not None and query_block > 1:
            query_block = -(-query_block // 2)
        elif rows > 16:
            rows //= 2
        else:
            smallest = parts(query_block, block, rows, items)
            raise refusal(problem, process, smallest, "raise --memory or lower --threads")
        items = min(items, block)
    query_ranges = ranges(problem.queries, query_block)
    unit = chunk if block % chunk == 0 else block  # no chunk is decoded twice
    most = max(TASK_FLOPS // (2 * problem.width * query_block), SMALL_SHARD)
    shards = _shards(problem.gallery, unit, most, process)
    if problem.shots is not None:
        shards = [(0, problem.gallery)]
    tasks = tuple(Task(q, g) for q in query_ranges for g in shards)
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
