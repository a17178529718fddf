"""The plan of a search for the nearest images of each, among all: an exact one, of features.

Images are cut into blocks, and pairs of blocks are tasks, each of which finds the nearest for both
sides. What has been found of all images is held throughout; what a task has found is merged into
it. In the end it becomes a ranking, while both are held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from streameval.kernels.marks import MARKED
from streameval.kernels.multiplier import best_rows
from streameval.planning.operands import Sizes, fine_bytes, gallery_row_bytes, halved, operand_parts
from streameval.planning.plan import LIBRARIES, Limits, Plan, Process, Task, pieces, refusal
from streameval.planning.planner import (
    SMALL_BLOCK,
    TARGET_BLOCK_BYTES,
    TASK_BYTES,
    TASK_FLOPS,
    TILE_ITEMS,
)
from streameval.planning.problem import Data, Holders, PairSizes, Problem

BLOCKS = 8  # of images, at least
LEAST_BLOCK, MOST_BLOCK = 1024, 32_768  # images; of larger ones tasks hold more, and are no faster
LIMIT_BYTES = 64  # of a column and a neighbour, while nothing is known of the column
LOOKED = 1 << 18  # pairs that are decided together
LOOKED_BYTES = 32 * LOOKED + 32 * MARKED
IMAGE_BYTES = 72  # which are copies, pairs with themselves, and how near and far others are
SENT_BYTES = 44  # the same, of a job that is sent


def width_of(most: int) -> int:
    """Return W: how many numbers of 8 bytes hold K distances, K items and a greatest distance."""
    return most + -(-most // 2) + 1


@dataclass(frozen=True)
class _Search:
    """The nearest K of so many images."""

    images: int
    most: int
    data: Data

    @property
    def row(self) -> int:
        """Bytes of what has been found of an image: distances, items of 4 bytes, the greatest."""
        return 8 * width_of(self.most)

    @property
    def found(self) -> Holders:
        """What the process holds that hands out the tasks."""
        return {"images": IMAGE_BYTES * self.images, "neighbors": self.row * self.images}

    def passed(self, threads: int, queries: int) -> int:
        """Return the bytes of what tasks have found and that waits, and of a sum."""
        return 2 * (threads + 1) * self.row * queries

    def searching(self, process: Process, cut: Sizes) -> Holders:
        """Return what a process holds while tasks run."""
        threads = process.threads
        fewest = math.ceil((math.sqrt(8 * threads + 1) - 1) / 2)  # blocks with so many tasks
        own = operand_parts(self.data, threads, fewest + (threads > 2), cut)
        finer = threads * fine_bytes(self.data) * cut.items
        own["tiles"] -= finer
        found = {"images": SENT_BYTES * self.images} if process.workers else self.found
        waiting = self.passed(threads, cut.queries)
        return {
            **process.kept,
            **found,
            "lists": threads * 2 * self.row * cut.queries,
            "merging": waiting,
            **own,
            "finer tiles": finer,
            "limits": threads * LIMIT_BYTES * self.most * cut.items,
            "doubts": threads * LOOKED_BYTES,
        }

    def ranking(self, kept: Holders) -> Holders:
        """Return what is held while what has been found becomes a ranking."""
        return {**kept, **self.found, "ranking": self.images * (12 * (self.most + 1) + 8)}


def search_plan(images: int, most: int, data: Data, limits: Limits) -> Plan:
    """Return how the search is cut.

    Parameters
    ----------
    images : int
    most : int
        How many of the nearest are looked for.
    data : Data
    limits : Limits

    Raises
    ------
    BudgetError
        If no plan fits the limits.
    """
    search, on, kept = _Search(images, most, data), limits.workers, limits.cut
    here = Process(limits.memory, limits.threads, 0, {LIBRARIES: limits.libraries})
    process = here
    if on is not None:
        process = Process(on.memory, on.threads, on.count, {LIBRARIES: on.libraries})
    problem, cut = Problem(images, images, PairSizes(0, images), data), None
    if kept is not None and kept.layout == "features":
        cut, tasks = Sizes(kept.queries, kept.block, *kept.tile, images), kept.tasks
    if cut is None or sum(search.searching(process, cut).values()) > process.memory:
        cut = _fitting(search, problem, process, limits)
        spans = pieces((0, images), cut.queries)
        tasks = tuple(Task(q, g) for at, q in enumerate(spans) for g in spans[at:])
    tile, width, row = (cut.rows, cut.items), data.width, data.width * data.stored_itemsize
    read = row * sum(task.gallery[1] - task.gallery[0] for task in tasks)
    flops = 2 * width * sum(task.pairs for task in tasks)
    threads, memory, parts = process.threads, process.memory, search.searching(process, cut)
    plan = Plan("features", tasks, cut.block, tile, threads, memory, parts, read, flops)
    gathering = parts
    if on is not None:
        sent = {"the job, as it is sent": SENT_BYTES * images, "tasks": TASK_BYTES * len(tasks)}
        passed = {"merging": search.passed(1, cut.queries)}
        gathering = {**here.kept, **search.found, **passed, **sent}
    most_held = max(gathering, search.ranking(here.kept), key=lambda held: sum(held.values()))
    if sum(most_held.values()) > here.memory:
        raise refusal(problem, here, most_held, "raise --memory", of="the nearest of ")
    if on is None:
        return replace(plan, parts=most_held)
    return replace(plan, workers=on.count, client=most_held)


def _fitting(search: _Search, problem: Problem, process: Process, limits: Limits) -> Sizes:
    """Return the largest blocks and tiles that fit the memory of a process, and no larger ones."""
    images, data = search.images, search.data
    rows, items = limits.tile or (best_rows(), TILE_ITEMS)
    chunk = max(data.chunks[0], 1)
    step = -(-images // min(BLOCKS, -(-images // LEAST_BLOCK)))
    step = min(step, max(math.isqrt(TASK_FLOPS // (2 * data.width)), LEAST_BLOCK), MOST_BLOCK)
    block = -(-max(TARGET_BLOCK_BYTES // gallery_row_bytes(data), items) // chunk) * chunk
    block = max(min(block, step), 1)
    cut = Sizes(step, block, min(rows, step), min(items, block), images)
    least = (
        ("block", max(chunk, SMALL_BLOCK)),
        ("queries", LEAST_BLOCK),  # more tasks
        ("block", 256),  # chunks are decoded more than once
        ("queries", 256),
        ("rows", 16),
        ("queries", 16),
    )
    while sum((parts := search.searching(process, cut)).values()) > process.memory:
        smaller = halved(cut, least, chunk)
        if smaller is None:
            raise refusal(problem, process, parts, "raise --memory or lower --threads")
        cut = smaller
    return cut
