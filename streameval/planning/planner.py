"""The plan: how an evaluation is cut into tasks and tiles, and what each part holds in memory.

Pure arithmetic on shapes; nothing is read. The plan is made before any work, refuses with the
figures where the budget is too small, and is what ``--dry-run`` prints.

Tasks are rectangles of the (query, gallery) matrix. Features are cut into gallery shards; a
task reads its shard block by block and multiplies each block with all queries of its block of
queries, tile by tile. A stored matrix whose entries can be read by themselves is read by tiles that
stay in the cache, once its positives are known; unless it lies in files of few rows, each of which
would be opened for every tile. Another one is cut into strips of whole query rows where one fits
the budget (read once: a strip holds its own positives); else into rectangles along its chunks,
which are read twice.
"""

from __future__ import annotations

import math
from dataclasses import replace

from streameval.errors import InputError
from streameval.kernels.counting import COLUMNS, MOST_ITEMS
from streameval.kernels.marks import MARKED
from streameval.kernels.multiplier import FEW_ROWS, best_rows
from streameval.kernels.tiles import DOUBTS
from streameval.planning.operands import Sizes, gallery_row_bytes, halved, operand_parts
from streameval.planning.plan import (
    FAN_IN,
    Layout,
    Limits,
    Plan,
    Process,
    Task,
    ranges,
    refusal,
)
from streameval.planning.problem import Holders, Problem
from streameval.planning.shards import SMALL_SHARD, cut_gallery
from streameval.typing import Span

TILE_ITEMS = 8192 + 48  # rows a multiple of 4 KiB apart would share few sets of the caches
MANY_EDGES = 128  # of a query: to lay them out for each row of a tile takes as long as to count it
FEW_WIDER = 2  # times as long are rows of few queries: a tile takes half a millisecond besides
WIDE_BYTES = 64 << 20  # of a block of the gallery: for longer rows of tiles it is not larger
TASK_BYTES = 1000  # of a task in the list of all, and in the client's books
TARGET_BLOCK_BYTES = 4 << 20
SMALL_BLOCK = 1100  # gallery rows; before blocks are any smaller, those of queries are
# The lists of pairs in doubt and of marked ones of a task, and deciding them.
DOUBT_BYTES = 26 * DOUBTS + 28 * MARKED
PLACE_BYTES = 2  # of a pair, in one's part of a tile: between which edges it lies
# Columns of a gallery row that are read and packed while a shard counts for a positive: 30 of those
# in memory, fewer of those to be decoded.
POSITIVE_COLUMNS = 10
FEW_POSITIVES = 1 << 17  # which a shard counts for in some milliseconds
SHOT_QUERIES = 64  # fewer are not put into a task of their own to occupy all threads
TASK_FLOPS = 2 << 40  # of a task: what is lost with a worker, or when cut off, is soon done again
STRIP_BYTES = 64 << 20  # a longer strip of a stored matrix gains nothing
STRIP_ROWS = 16  # at least, of files of fewer rows
TILE_BYTES = 16 << 20  # of a stored matrix: a tile costs a millisecond of Python, with cold caches
TILE_ROWS = 32, 128  # at least and about: fewer cost as much a task, more are narrower tiles


def make_plan(problem: Problem, limits: Limits) -> Plan:
    """Choose tasks, blocks and tiles within the budget.

    Raises
    ------
    InputError
        The gallery has 2³² items or more.
    BudgetError
        Even the smallest of them don't fit.
    """
    if problem.gallery > MOST_ITEMS:
        raise InputError(
            f"a gallery of {problem.gallery:,} items: at most {MOST_ITEMS:,} are counted together; "
            "append it to a ledger in several segments"
        )
    here = limits.here(problem)
    process = limits.process(problem, here)
    if problem.identities is not None:
        identities = problem.identities.kept_bytes(problem.queries, problem.gallery)
        process.kept["identities"] = identities
    if problem.data.width:
        plan = _plan_features(problem, process, limits)
    else:
        plan = _plan_matrix(problem, process, limits)
    if limits.workers is None:
        return plan
    in_round = plan.round or problem.queries
    return replace(plan, client=_client_parts(problem, limits, in_round, len(plan.tasks)))


def _client_parts(problem: Problem, limits: Limits, in_round: int, tasks: int) -> Holders:
    """Return the bytes that the client of a cluster holds, by what holds them."""
    held = limits.here(problem) | problem.round_bytes(in_round)
    if problem.identities is not None:
        held["identities"] = problem.identities.kept_bytes(in_round, problem.gallery)
    sent = problem.job_bytes(in_round)
    return held | {"the job, as it is sent": sent, "tasks": TASK_BYTES * tasks}


def _client_round(problem: Problem, limits: Limits) -> int:
    """Return the most queries of a round whose statistics the client of a cluster can hold."""
    queries, least = max(problem.queries, 1), problem.least_round
    while queries > least and (
        sum(_client_parts(problem, limits, queries, 0).values()) > limits.memory
    ):
        queries = -(-queries // 2)
    return queries


def _parts(problem: Problem, process: Process, own: Holders, cut: Sizes) -> Holders:
    """Return the bytes that a process holds, by what holds them: its own parts, and all others."""
    queries, items = cut.queries, cut.items
    doubts = DOUBT_BYTES if problem.data.width else 0
    counts = {"counts": process.threads * (problem.task_bytes(queries) + doubts)}
    if problem.identities is not None:
        counts["negatives by identity"] = process.threads * problem.identities.task_bytes(
            queries, problem.positives_of(queries), items
        )
    merged = 2 + (FAN_IN if process.workers else process.threads)
    held = process.kept | {"merging": merged * problem.part_bytes(queries)} | own | counts
    if process.workers:
        return held | {"pairs": problem.job_bytes(cut.round)}
    if problem.identities is not None:
        held["identities"] = problem.identities.kept_bytes(cut.round, problem.gallery)
    return held | problem.round_bytes(cut.round)


def _feature_parts(problem: Problem, process: Process, cut: Sizes) -> Holders:
    operands = process.threads + 1 if _takes_all(problem) else 2  # blocks of queries at a time
    own = operand_parts(problem.data, process.threads, operands, cut, problem.pairs.classes[0])
    if problem.shared.asking:  # one's part of a tile
        value = 8 if problem.data.exact else 4
        own["tiles"] += process.threads * cut.rows * cut.items * (value + PLACE_BYTES)
    return _parts(problem, process, own, cut)


def _plan_features(problem: Problem, process: Process, limits: Limits) -> Plan:
    """Cut features as an earlier plan does, where that fits, or anew."""
    kept, cut = limits.cut, None
    if kept is not None and kept.layout == "features":
        in_round = kept.round or problem.queries
        cut, tasks = Sizes(kept.queries, kept.block, *kept.tile, in_round), kept.tasks
    if cut is None or sum(_feature_parts(problem, process, cut).values()) > process.memory:
        cut = _fitting(problem, process, limits)
        tasks = _feature_tasks(problem, process, cut)
    data, chunk, block = problem.data, max(problem.data.chunks[0], 1), cut.block
    row_bytes = data.width * data.stored_itemsize
    gallery_bytes = problem.gallery * row_bytes
    decoded = (block + chunk - math.gcd(block, chunk)) / block if block < problem.gallery else 1
    passes = len({task.queries for task in tasks}) * problem.passes * decoded
    read = int(gallery_bytes * passes) + min(problem.pairs.positives * row_bytes, gallery_bytes)
    return Plan(
        "features",
        tasks,
        block,
        (cut.rows, cut.items),
        process.threads,
        process.memory,
        _feature_parts(problem, process, cut),
        read + problem.queries * row_bytes * max(process.workers, 1),
        2 * problem.queries * problem.gallery * data.width * problem.passes,
        process.workers,
        round=cut.round if cut.round < problem.queries else 0,
    )


def _takes_all(problem: Problem) -> bool:
    """Return whether a task takes the whole gallery.

    It has to where identities are counted. It may where many evaluations share tiles: each has what
    a shard costs beside its items. So it does where positives are many: another shard costs more
    for them than to read and pack the gallery again, unless its chunks are to be computed once.
    """
    data = problem.data
    if problem.identities is not None:
        return True
    if problem.shared.asking and problem.gallery < SMALL_SHARD * problem.times:
        return True
    columns = max(problem.gallery * data.width, POSITIVE_COLUMNS * FEW_POSITIVES)
    return POSITIVE_COLUMNS * problem.pairs.positives > columns and data.edges is None


def _feature_tasks(problem: Problem, process: Process, cut: Sizes) -> tuple[Task, ...]:
    """Return blocks of queries against shards of the gallery."""
    shards = [(0, problem.gallery)]
    if not _takes_all(problem):
        chunk = max(problem.data.chunks[0], 1)
        unit = chunk if cut.block % chunk == 0 else cut.block  # no chunk is decoded twice
        most = max(TASK_FLOPS // (2 * problem.data.width * cut.queries), SMALL_SHARD)
        shards = cut_gallery(problem, process, cut, unit, most)
    return tuple(Task(q, g) for q in ranges(problem.queries, cut.queries) for g in shards)


def _first_round(problem: Problem, process: Process, limits: Limits) -> int:
    """Return the most queries whose statistics take no more than half of the memory."""
    if process.workers:
        return _client_round(problem, limits)
    queries, least = max(problem.queries, 1), problem.least_round
    while queries > least and sum(problem.round_bytes(queries).values()) > process.memory / 2:
        queries = -(-queries // 2)
    return queries


def _usual_tile(problem: Problem) -> Span:
    """Return query rows and gallery items of a tile: longer rows where edges are many, or rows few.

    No longer than is counted at a time: in pieces, a row that is crowded would not be refined.
    """
    each = problem.pairs.positives // max(problem.queries, 1) + problem.thresholds + problem.edges
    most = max(min(COLUMNS, WIDE_BYTES // gallery_row_bytes(problem.data)) // TILE_ITEMS, 1)
    if each <= MANY_EDGES:
        most = min(most, FEW_WIDER) if problem.queries <= FEW_ROWS else 1
    return best_rows(counted=most == 1) // most, most * TILE_ITEMS


def _fitting(problem: Problem, process: Process, limits: Limits) -> Sizes:
    """Return the largest blocks and tiles that fit the memory of a process."""
    tile = limits.tile or _usual_tile(problem)
    chunk, shares = max(problem.data.chunks[0], 1), process.threads * max(process.workers, 1)
    items = min(tile[1], max(problem.gallery, 1))
    # Whole chunks, so that none is decoded twice; but a share of the gallery for every thread.
    block = -(-max(TARGET_BLOCK_BYTES // gallery_row_bytes(problem.data), items) // chunk) * chunk
    block = max(min(block, -(-problem.gallery // shares)), 1)
    queries = in_round = _first_round(problem, process, limits)
    draws = _takes_all(problem)
    if draws:
        most = TASK_FLOPS // (2 * problem.data.width * max(problem.gallery, 1))
        queries = min(queries, max(min(-(-queries // shares), most), SHOT_QUERIES))
    rows = min(tile[0], max(problem.queries, 1))
    cut = Sizes(queries, block, rows, min(items, block), in_round)
    least = (
        ("block", max(chunk, 2 * SMALL_BLOCK if draws else SMALL_BLOCK)),
        ("queries", SHOT_QUERIES if draws else 256),  # more passes over the gallery
        ("block", 256),  # chunks are decoded more than once
        ("queries", 1 if draws else 256),
        ("rows", 16),
        ("queries", 1 if draws else 16),
        ("round", problem.least_round),
    )
    while sum((parts := _feature_parts(problem, process, cut)).values()) > process.memory:
        smaller = halved(cut, least, chunk)
        if smaller is None:
            raise refusal(problem, process, parts, "raise --memory or lower --threads")
        cut = smaller
    return cut


def _matrix_parts(problem: Problem, process: Process, cut: Sizes) -> Holders:
    data, threads, rows, items = problem.data, process.threads, cut.rows, cut.items
    copies = 1 + bool(problem.shared.asking)  # the part that one of several counts
    cells = rows * items * (copies * data.itemsize + data.converted * data.stored_itemsize)
    cells += rows * items * PLACE_BYTES * bool(problem.shared.asking)
    shared = items >= max(problem.gallery, 1)  # by all strips
    columns = items * (16 + data.itemsize * (2 + problem.pairs.classes[0]))
    own = {
        "distances": threads * (cells + data.scratch(rows, items)),
        "items": (1 if shared else threads) * columns,
    }
    return _parts(problem, process, own, cut)


def _plan_matrix(problem: Problem, process: Process, limits: Limits) -> Plan:
    """Cut a stored matrix as an earlier plan does, where that fits, or anew."""
    layout, cut = _fitting_matrix(problem, process, limits)
    rows, items, kept = cut.rows, cut.items, limits.cut
    by_row, by_item = problem.data.edges or (None, None)
    step, again = items, layout == "rectangles"
    if problem.identities is not None:
        step = max(problem.gallery, 1)
    elif problem.data.grain is not None:  # several tiles: as many as leave work for all
        shards = -(-process.shares // max(-(-problem.queries // rows), 1))
        step = items * max(-(-problem.gallery // (items * shards)), 1)
        again = again and problem.data.grain != (1, 1)
    across = ranges(problem.gallery, step, by_item)
    tasks = tuple(Task(q, g) for q in ranges(problem.queries, rows, by_row) for g in across)
    if kept is not None and kept.layout in ("strips", "rectangles"):
        earlier = _rectangle(*kept.tile, kept.round or problem.queries)
        if sum(_matrix_parts(problem, process, earlier).values()) <= process.memory:
            layout, tasks, (rows, items), cut = kept.layout, kept.tasks, kept.tile, earlier
    matrix = problem.queries * problem.gallery * problem.data.stored_itemsize
    return Plan(
        layout,
        tasks,
        items,
        (rows, items),
        process.threads,
        process.memory,
        _matrix_parts(problem, process, cut),
        matrix * (problem.passes + again),
        0,
        process.workers,
        round=cut.round if cut.round < problem.queries else 0,
    )


def _rectangle(rows: int, items: int, in_round: int) -> Sizes:
    """Return what is held of a stored matrix at a time."""
    return Sizes(rows, items, rows, items, in_round)


def _fitting_matrix(problem: Problem, process: Process, limits: Limits) -> tuple[Layout, Sizes]:
    """Return strips of whole rows, or rectangles."""
    in_round = _first_round(problem, process, limits)
    data, gallery = problem.data, max(problem.gallery, 1)
    whole = data.grain != (1, 1)  # whole chunks, or any part of them
    down, across = data.chunks if whole else _part_of_chunk(*data.chunks)
    rows, items = down, across = max(min(down, problem.queries), 1), max(min(across, gallery), 1)
    small, high = STRIP_BYTES if whole else TILE_BYTES, data.chunks[0]

    def fits(rows: int, items: int) -> bool:
        parts = _matrix_parts(problem, process, _rectangle(rows, items, in_round))
        return sum(parts.values()) <= process.memory

    def may_be(rows: int, items: int) -> bool:
        return rows * items * data.itemsize <= small and fits(rows, items)

    if data.in_files and not whole and high < TILE_ROWS[0]:
        strip = min(-(-STRIP_ROWS // high) * high, rows)
        if strip * gallery * data.itemsize <= STRIP_BYTES and fits(strip, gallery):
            rows, down, small = strip, strip, STRIP_BYTES
    layout: Layout = "rectangles"
    if may_be(rows, gallery) or (whole and fits(rows, gallery)):
        layout, items, even = "strips", gallery, -(-problem.queries // process.shares)
        while rows < even and may_be(rows + down, items):
            rows += down
    else:
        decoded = whole and data.grain is not None  # by chunk; wide rows are counted faster
        most, small = (COLUMNS // 2, 2 * small) if decoded else (gallery, small)
        while items < most and may_be(rows, items + across):
            items += across
    while not fits(rows, items) and in_round > max(rows, problem.least_round):
        in_round = max(-(-in_round // 2), rows, problem.least_round)
    while not (whole or fits(rows, items)) and max(rows, items) > 1:
        rows, items = -(-rows // 2), items if rows > 1 else -(-items // 2)
    cut = _rectangle(rows, items, in_round)
    parts = _matrix_parts(problem, process, cut)
    if sum(parts.values()) > process.memory:
        remedy = "raise --memory, lower --threads, or store the matrix in smaller chunks than "
        raise refusal(problem, process, parts, f"{remedy}{data.chunks[0]} × {data.chunks[1]}")
    return layout, cut


def _part_of_chunk(rows: int, items: int) -> tuple[int, int]:
    """Return what is read together, of chunks that can be read in part."""
    least, about = TILE_ROWS
    if rows < least:
        rows *= -(-least // max(rows, 1))
    elif rows >= 2 * about:
        rows = -(-rows // (rows // about))
    return rows, min(items, COLUMNS)
