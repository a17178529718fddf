"""Listed pairs of features, cut into parts that are read together."""

from __future__ import annotations

from itertools import chain

import numpy as np

from streameval.arrays.array import Array
from streameval.kernels.edges import by_item
from streameval.planning.plan import Plan, pieces, ranges
from streameval.protocols.listed import PAIRS
from streameval.run.job import PairPart
from streameval.sources.tiled import Chosen
from streameval.threads import spread
from streameval.typing import AnyArray, IntArray, Span

PART_BYTES = 4 << 20  # gallery rows that are read at a time
QUERY_BYTES = 2 << 20  # query rows that stay in a cache: one is fetched for every pair
ROW_PAIRS = 8  # for fewer a gallery row is not read again


def parts_of(
    plan: Plan,
    query: IntArray,
    item: IntArray,
    gallery: Array,
    row_bytes: int,
) -> list[Chosen]:
    """Cut listed pairs into parts: see `TiledSource.pair_parts`.

    Gallery rows of a part take little memory, and query rows of parts that follow each other stay
    in a cache.

    Parameters
    ----------
    plan : Plan
    query, item : [p] int64
        The pairs, in ascending order of query.
    gallery : Array
        Its features.
    row_bytes : int
        Of a row of features in memory.
    """
    blocks, items = sorted({task.queries for task in plan.tasks}), gallery.shape[0]
    near = queries = max(sum(stop - start for start, stop in blocks), 1)
    edges = None if gallery.edges is None else gallery.edges[0]
    if edges is None:  # else chunks are read whole, each once
        near = max(QUERY_BYTES // row_bytes, ROW_PAIRS * queries * items // max(len(item), 1), 1)
    rows = max(min(PART_BYTES // row_bytes, plan.block), 1)

    def cut(spans: tuple[Span, Span]) -> list[Chosen]:
        """Cut the pairs of some of the queries of a block."""
        block, some = spans
        begin, end = np.searchsorted(query, some).tolist()
        order, own, ascending = _by_item(query[begin:end] - block[0], item[begin:end], items)
        parts = []
        for start, stop in _part_spans(ascending, rows, edges):
            part, span = slice(start, stop), (int(ascending[start]), int(ascending[stop - 1]) + 1)
            name = f"queries {some[0]}:{some[1]}, positives in gallery {span[0]}:{span[1]}"
            where = own[part].astype(np.int64), ascending[part]
            chosen = begin + order[part].astype(np.int64)
            parts.append((chosen, PairPart(block, span, *where, stop - start, name)))
        return parts

    some = [(block, span) for block in blocks for span in pieces(block, near)]
    return list(chain.from_iterable(spread(cut, some, plan.threads)))


def _by_item(query: IntArray, item: IntArray, gallery: int) -> tuple[AnyArray, AnyArray, IntArray]:
    """Return the order of pairs by gallery item, and their queries and items in that order."""
    if gallery <= len(item) < 1 << 31:
        return by_item(query, item, gallery)
    order = np.argsort(item, kind="stable")  # counting them would take longer
    return order, query[order], item[order]


def _part_spans(item: IntArray, rows: int, edges: IntArray | None) -> list[Span]:
    """Cut ascending items of pairs, such that a part has so many rows and `PAIRS` at most."""
    if edges is not None:  # chunks are read whole
        cuts = np.unique(np.searchsorted(item, edges))
        return ranges(len(item), rows, cuts) if len(item) else []
    first = np.flatnonzero(np.diff(item, prepend=-1))  # pair of each row
    spans, start = [], 0
    while start < len(item):
        row = int(np.searchsorted(first, start, side="right")) - 1 + rows
        stop = min(int(first[row]) if row < len(first) else len(item), start + PAIRS)
        spans.append((start, stop))
        start = stop
    return spans
