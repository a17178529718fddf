"""Listed pairs of features, cut into parts that are read together."""

from __future__ import annotations

from itertools import chain

import numpy as np

from streameval.arrays.array import Array
from streameval.planning.plan import Plan, pieces, ranges
from streameval.protocols.listed import PAIRS
from streameval.run.job import PairPart
from streameval.sources.tiled import Chosen
from streameval.stretches import entries_of
from streameval.threads import spread
from streameval.typing import IntArray, Span

PART_BYTES = 4 << 20  # gallery rows that are read at a time
QUERY_BYTES = 1 << 20  # query rows that stay in a cache: one is fetched for every pair
PAIRS_OF_ROW = 8  # for fewer a gallery row is not read again


def parts_of(
    plan: Plan,
    query: IntArray,
    item: IntArray,
    gallery: Array,
    row_bytes: int,
) -> list[Chosen]:
    """Cut listed pairs into parts: see `TiledSource.pair_parts`.

    Gallery rows of a part take little memory, as they are all of a stretch of the gallery, or few;
    and query rows of parts that follow each other stay in a cache.

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
    rows = max(min(PART_BYTES // row_bytes, plan.block), 1)
    edges = None if gallery.edges is None else gallery.edges[0]
    if edges is None:  # else chunks are read whole, each once
        near = max(QUERY_BYTES // row_bytes, PAIRS_OF_ROW * queries * items // max(len(item), 1), 1)

    def cut(spans: tuple[Span, Span]) -> list[Chosen]:
        """Cut the pairs of some of the queries of a block."""
        block, some = spans
        begin, end = np.searchsorted(query, some).tolist()
        if edges is None:
            each = max(PAIRS * items // max(end - begin, 1), 1)  # rows, about, that have so many
            stretch, most = item[begin:end] // min(rows, each), PAIRS
        else:
            stretch, most = np.searchsorted(edges, item[begin:end], side="right"), max(len(item), 1)
        order, ends = _by_stretch(query[begin:end], stretch)
        parts = []
        for start, stop in ranges(end - begin, min(rows, most), ends):
            for left, right in pieces((start, stop), most):
                chosen = begin + order[left:right]
                own = item[chosen]
                span = int(own.min()), int(own.max()) + 1
                name = f"queries {some[0]}:{some[1]}, positives in gallery {span[0]}:{span[1]}"
                of = query[chosen] - block[0]
                parts.append((chosen, PairPart(block, span, of, own, right - left, name)))
        return parts

    some = [(block, span) for block in blocks for span in pieces(block, near)]
    return list(chain.from_iterable(spread(cut, some, plan.threads)))


def _by_stretch(query: IntArray, stretch: IntArray) -> tuple[IntArray, IntArray]:
    """Sort pairs by the stretch of the gallery that their items are in, those of one as they are.

    Runs of pairs are sorted: a query with many has many of a stretch, one after the other.

    Returns
    -------
    order : [p] int64
    ends : [s] int64
        Where each stretch with pairs ends in this order.
    """
    first = np.ones(len(query), np.bool_)  # of a run
    first[1:] = (stretch[1:] != stretch[:-1]) | (query[1:] != query[:-1])
    begin = np.flatnonzero(first)
    counts, stretch = np.diff(begin, append=len(query)), stretch[begin]
    by = np.argsort(stretch, kind="stable")
    indptr, order = entries_of(begin[by], counts[by])
    last = np.flatnonzero(np.diff(stretch[by], append=-1))
    return order, indptr[1:][last]
