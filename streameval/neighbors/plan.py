"""The plan of an evaluation of lists of neighbours: blocks of queries, and what they hold.

The lists of a block of queries are made, or read, and counted before those of the next; a block
is as large as the budget allows. Without an index the gallery is cut into shards, whose lists
merge; an index is searched as a whole, by some queries at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from streameval.planning.plan import (
    RESERVED,
    Limits,
    Plan,
    Problem,
    Process,
    Task,
    ranges,
    refusal,
)
from streameval.planning.planner import TARGET_BLOCK_BYTES

ENTRY_BYTES = 220  # of an entry of a list, while it is looked up and counted
SEARCH_BYTES = 40 << 20  # of a search in progress, of each thread
MOST_QUERIES = 4096  # of a block: more make nothing faster
LEAST_BLOCK = 256  # gallery rows: fewer are not tried before fewer queries
FLAT_BLOCK_BYTES = 64 << 20  # of the gallery: each block gives lists that have to be merged
FAISS_BYTES = 90 << 20  # of FAISS and its BLAS, once loaded


@dataclass(frozen=True)
class ListSizes:
    """Sizes of the lists, and of what makes them.

    Attributes
    ----------
    depth : int
        Items searched for each query: k, or some more.
    stored : bool
        Whether the lists are stored.
    flat : bool
        Whether all features are searched, with no index.
    ranked_again : bool
        Whether canonical distances of listed items are computed.
    index_bytes : int
        Of the index; 0 where there is none.
    train_rows : int
        Gallery rows that an index is trained on; 0 where none is built, or it needs none.
    builds : bool
        Whether an index is built.
    """

    depth: int
    stored: bool
    flat: bool
    ranked_again: bool
    index_bytes: int = 0
    train_rows: int = 0
    builds: bool = False


def plan_lists(problem: Problem, sizes: ListSizes, limits: Limits) -> Plan:
    """Choose blocks of queries and of the gallery within the limits.

    The workers of a cluster search and compute distances; this process counts the lists that they
    return.

    Returns
    -------
    Plan
        Its tile is queries of a block, and k.

    Raises
    ------
    BudgetError
        If no plan fits; says how much is needed, and for what.
    """
    statistics = 2 * problem.statistics_bytes + problem.pairs_bytes
    here = {RESERVED: limits.reserved, "statistics": statistics}
    process = limits.process(problem, here)
    if not sizes.stored:
        process.kept["FAISS"] = FAISS_BYTES
    if sizes.index_bytes:
        process.kept["index"] = sizes.index_bytes
    queries, block = _fit(problem, sizes, process)
    parts = _parts(problem, sizes, process, queries, block)
    return Plan(
        "lists",
        tuple(_tasks(problem, sizes, process, queries, block)),
        block,
        (queries, _depth(problem, sizes)),
        process.threads,
        process.memory,
        parts,
        _bytes_read(problem, sizes, queries),
        2 * problem.queries * problem.gallery * problem.data.width if sizes.flat else 0,
        process.workers,
        {} if limits.workers is None else here | {"lists": parts.get("lists", 0)},
    )


def _depth(problem: Problem, sizes: ListSizes) -> int:
    return min(sizes.depth, max(problem.gallery, 1))


def _row_bytes(problem: Problem) -> int:
    """Return the bytes that a gallery row takes while it is read and searched."""
    return problem.data.width * (problem.data.stored_itemsize + problem.data.itemsize + 8) + 64


def _parts(
    problem: Problem, sizes: ListSizes, process: Process, queries: int, block: int
) -> dict[str, int]:
    """Return the bytes held at the worst moment: of a block, or of the training of an index."""
    held = {"lists": queries * _depth(problem, sizes) * ENTRY_BYTES}
    if problem.data.width:
        held["queries"] = 2 * queries * problem.data.width * (problem.data.itemsize + 8)
        scratch = problem.data.scratch(block, problem.data.width)
        held["gallery blocks"] = process.threads * (block * _row_bytes(problem) + scratch)
    if not sizes.stored:
        held["searching"] = process.threads * SEARCH_BYTES
    training = sizes.train_rows * problem.data.width * (problem.data.itemsize + 4 * 4)
    return process.kept | ({"training": training} if training > sum(held.values()) else held)


def _fit(problem: Problem, sizes: ListSizes, process: Process) -> tuple[int, int]:
    """Return the most queries and gallery rows of a block that fit the budget."""
    queries, row_bytes = max(min(problem.queries, MOST_QUERIES), 1), _row_bytes(problem)
    block_bytes = FLAT_BLOCK_BYTES if sizes.flat else TARGET_BLOCK_BYTES
    block = max(min(block_bytes // row_bytes, problem.gallery), 1)
    while True:
        parts = _parts(problem, sizes, process, queries, block)
        if sum(parts.values()) <= process.memory:
            return queries, block
        if block * row_bytes > TARGET_BLOCK_BYTES:
            block = -(-block // 2)
        elif queries > 1:
            queries = -(-queries // 2)
        elif block > LEAST_BLOCK:
            block = -(-block // 2)
        else:
            codes = "choose an index with smaller codes (IVF1024,PQ16), or "
            remedy = f"{codes if sizes.index_bytes else ''}raise --memory or lower --threads"
            raise refusal(problem, process, parts, remedy, of="lists of ")


def _tasks(
    problem: Problem, sizes: ListSizes, process: Process, queries: int, block: int
) -> list[Task]:
    shard = math.ceil(problem.gallery / (process.shares * block)) * block
    blocks = ranges(problem.queries, queries)
    if sizes.flat:
        shards = ranges(problem.gallery, max(shard, 1))
        return [Task(span, part) for span in blocks for part in shards]
    gallery = 0, problem.gallery
    if sizes.stored:
        return [Task(span, gallery) for span in blocks]
    some = max(-(-queries // process.shares), 16)
    return [
        Task((first + start, first + stop), gallery)
        for first, last in blocks
        for start, stop in ranges(last - first, some)
    ]


def _bytes_read(problem: Problem, sizes: ListSizes, queries: int) -> int:
    blocks = len(ranges(problem.queries, queries))
    row_bytes = problem.data.width * problem.data.stored_itemsize
    gallery = problem.gallery * row_bytes
    read = problem.queries * sizes.depth * 16 if sizes.stored else 0
    read += gallery * (blocks * sizes.flat + sizes.builds)
    if sizes.ranked_again:
        read += min(problem.queries * _depth(problem, sizes) * row_bytes, blocks * gallery)
    return read
