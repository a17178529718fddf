"""Shards: how the gallery of a features source is cut for the threads and workers there are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streameval.planning.operands import Sizes
from streameval.planning.plan import SHARDS_PER_THREAD, Process, pieces
from streameval.planning.problem import Problem
from streameval.stretches import cumulated
from streameval.typing import IntArray, Span

ROW_PAIRS = 220  # pairs that take as long as reading and preparing a row of gallery features
SMALL_SHARD = 16_384  # rows of 128 columns: of fewer, what a shard costs beside them would show
COUNTED = 128  # columns that take as long to multiply as a pair to count


def cut_gallery(problem: Problem, process: Process, cut: Sizes, unit: int, most: int) -> list[Span]:
    """Cut the gallery for the threads: each takes a large shard, then small ones even them out.

    A shard costs as much a query as some thousand items of few columns: a small gallery has none
    to spare. On a cluster all are small. `unit` rows stay together; a shard has about as much work
    as `most` rows at most.
    """
    threads, gallery, edges = process.threads, problem.gallery, problem.data.edges
    taking_part = problem.pairs.taking_part  # of items spread evenly; None where all do
    work = None if taking_part is None else ROW_PAIRS + cut.queries * taking_part
    small = SMALL_SHARD * 2 * COUNTED // (COUNTED + max(problem.data.width, COUNTED))
    large = gallery
    if process.workers:  # they come and go
        threads = process.shares
    elif threads > 1 and gallery >= small * process.shares:
        large = gallery * (SHARDS_PER_THREAD - 1) // SHARDS_PER_THREAD
    large = min(-(-large // unit) * unit, gallery)
    few = max((gallery - large) // process.shares, 4 * small, cut.block)
    shards = []
    for begin, end, size in ((0, large, most), (large, gallery, min(most, few))):
        count = threads * max(-(-(end - begin) // (threads * max(size, 1))), 1)
        shards += _evenly((begin, end), count, unit, gallery, work)
    if edges is not None:  # on to the end of a chunk
        ends = edges[0][np.searchsorted(edges[0], [end for _, end in shards])]
        shards = list(pairwise([0, *np.unique(ends).tolist()]))
    return shards or [(0, 0)]


def _evenly(span: Span, count: int, unit: int, gallery: int, work: IntArray | None) -> list[Span]:
    """Cut a range of the gallery into parts of about as much work: of whole units, but the last."""
    begin, end = span
    if work is None:
        return pieces(span, max(-(-(end - begin) // (count * unit)), 1) * unit)
    before, places = cumulated(work), np.linspace(0, gallery, len(work) + 1)
    first, last = np.interp(span, places, before)
    cuts = np.interp(np.linspace(first, last, count + 1)[1:-1], before, places)
    inside = np.clip(np.rint(cuts / unit).astype(np.int64) * unit, begin, end)
    return list(pairwise(np.unique([begin, *inside, end]).tolist()))
