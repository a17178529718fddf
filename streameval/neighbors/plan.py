"""The plan of an evaluation of lists of neighbours: blocks of queries, and what they hold.

The lists of a block of queries are made, or read, and counted before those of the next; a block
is as large as the budget allows. Without an index the gallery is cut into shards, whose lists
merge; an index is searched as a whole, by some queries at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from streameval.planning.features import TARGET_BLOCK_BYTES
from streameval.planning.plan import (
    RESERVED,
    SHARDS_PER_THREAD,
    Limits,
    Plan,
    Process,
    Task,
    ranges,
    refusal,
)
from streameval.planning.problem import Problem, pairs_bytes, statistics_bytes

ENTRY_BYTES = 220  # of an entry of a list, while it is looked up and counted
SEARCH_BYTES = 40 << 20  # of a search in progress, of each thread
MOST_QUERIES = 4096  # of a block: more make nothing faster
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

    @property
    def searches(self) -> bool:
        """Whether FAISS is used."""
        return not self.stored


def plan_lists(problem: Problem, sizes: ListSizes, limits: Limits) -> Plan:
    """Choose blocks of queries and of the gallery within the budget.

    Parameters
    ----------
    problem : Problem
    sizes : ListSizes
    limits : Limits
        The workers of a cluster search and compute distances, and this process
        counts the lists that they return.

    Returns
    -------
    Plan
        Its tile is queries of a block, and k.

    Raises
    ------
    BudgetError
        If no plan fits; says how much is needed, and for what.
    """
    count, workers = 0, limits.workers
    memory, threads = limits.memory, limits.threads
    here = {
        RESERVED: limits.reserved,
        "statistics": 2 * statistics_bytes(problem) + pairs_bytes(problem),
    }
    kept = here
    if workers is not None:
        count, threads, memory = workers.count, workers.threads, workers.memory
        kept = {RESERVED: workers.reserved, "pairs": pairs_bytes(problem)}
    row_bytes = problem.width * (problem.stored_itemsize + problem.itemsize + 8) + 64
    if sizes.searches:
        kept = kept | {"FAISS": FAISS_BYTES}
    if sizes.index_bytes:
        kept = kept | {"index": sizes.index_bytes}
    depth = min(sizes.depth, max(problem.gallery, 1))

    def parts(queries: int, block: int) -> dict[str, int]:
        held = {**kept, "lists": queries * depth * ENTRY_BYTES}
        if problem.width:
            held["queries"] = 2 * queries * problem.width * (problem.itemsize + 8)
            scratch = problem.scratch(block, problem.width)
            held["gallery blocks"] = threads * (block * row_bytes + scratch)
        if sizes.searches:
            held["searching"] = threads * SEARCH_BYTES
        training = sizes.train_rows * problem.width * (problem.itemsize + 4 * 4)
        rest = sum(held.values()) - sum(kept.values())
        return {**kept, "training": training} if training > rest else held

    queries = max(min(problem.queries, MOST_QUERIES), 1)
    block_bytes = FLAT_BLOCK_BYTES if sizes.flat else TARGET_BLOCK_BYTES
    block = max(min(block_bytes // row_bytes, problem.gallery), 1)
    while sum(parts(queries, block).values()) > memory:
        if block * row_bytes > TARGET_BLOCK_BYTES:
            block = -(-block // 2)
        elif queries > 1:
            queries = -(-queries // 2)
        elif block > 256:
            block = -(-block // 2)
        else:
            codes = "choose an index with smaller codes (IVF1024,PQ16), or "
            remedy = f"{codes if 'index' in kept else ''}raise --memory or lower --threads"
            process = Process(memory, threads, count, kept)
            raise refusal(problem, process, parts(queries, block), remedy, of="lists of ")
    tasks: list[Task] = []
    shares = threads * max(count, 1) * SHARDS_PER_THREAD
    shard = math.ceil(problem.gallery / (shares * block)) * block
    some = max(-(-queries // shares), 16)
    for first, last in ranges(problem.queries, queries):
        if sizes.flat:
            tasks += [Task((first, last), one) for one in ranges(problem.gallery, max(shard, 1))]
        elif sizes.stored:
            tasks.append(Task((first, last), (0, problem.gallery)))
        else:
            tasks += [
                Task((first + start, first + stop), (0, problem.gallery))
                for start, stop in ranges(last - first, some)
            ]
    blocks = len(ranges(problem.queries, queries))
    held = parts(queries, block)
    gallery_bytes = problem.gallery * problem.width * problem.stored_itemsize
    listed = problem.queries * depth * problem.width * problem.stored_itemsize
    read = problem.queries * sizes.depth * 16 if sizes.stored else 0
    read += gallery_bytes * (blocks * sizes.flat + sizes.builds)
    read += min(listed, blocks * gallery_bytes) if sizes.ranked_again else 0
    return Plan(
        "lists",
        tuple(tasks),
        block,
        (queries, depth),
        threads,
        memory,
        held,
        read,
        2 * problem.queries * problem.gallery * problem.width if sizes.flat else 0,
        count,
        {} if workers is None else here | {"lists": held.get("lists", 0)},
    )
