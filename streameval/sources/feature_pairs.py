"""Listed pairs of features, cut into parts that are read together."""

from __future__ import annotations

from itertools import chain, starmap

import numpy as np

from streameval.arrays.array import Array
from streameval.compilation import compiled
from streameval.planning.plan import Plan, pieces, ranges
from streameval.protocols.listed import PAIRS
from streameval.run.job import PairPart
from streameval.sources.tiled import Chosen
from streameval.threads import spread
from streameval.typing import IntArray, Span

PART_BYTES = 4 << 20  # gallery rows that are read at a time
QUERY_BYTES = 1 << 20  # query rows that stay in a cache: one is fetched for every pair
MOST_NARROW = np.iinfo(np.int32).max
PAIRS_OF_ROW = 8  # for fewer a gallery row is not read again


def parts_of(
    plan: Plan,
    indptr: IntArray,
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
    indptr, item : [q + 1], [p] int64
        The pairs: where those of each of the plan's queries begin, and their items.
    gallery : Array
        Its features.
    row_bytes : int
        Of a row of features in memory.
    """
    blocks, items = sorted({task.queries for task in plan.tasks}), gallery.shape[0]
    first = plan.queries[0]
    near = queries = max(sum(stop - start for start, stop in blocks), 1)
    rows = max(min(PART_BYTES // row_bytes, plan.block), 1)
    # Of each pair, until its part is computed: numbers of 4 bytes take half of the memory.
    numbers = np.int32 if max(items, len(item)) <= MOST_NARROW else np.int64
    edges = None if gallery.edges is None else gallery.edges[0]
    if edges is None:  # else chunks are read whole, each once
        near = max(QUERY_BYTES // row_bytes, PAIRS_OF_ROW * queries * items // max(len(item), 1), 1)

    def cut(spans: tuple[Span, Span]) -> list[Chosen]:
        """Cut the pairs of some of the queries of a block."""
        block, some = spans
        begins = indptr[some[0] - first : some[1] - first + 1]
        begin, end = begins[[0, -1]].tolist()
        stretch = np.empty(end - begin, numbers)
        if edges is None:
            # Of so many rows, most stretches have no more pairs than a part may have.
            each = max(15 * PAIRS * items // (16 * max(end - begin, 1)), 1)
            most, step = PAIRS, min(rows, each)
            ends = np.zeros(items // step + 1, np.int64)
            np.floor_divide(item[begin:end], step, out=stretch, casting="same_kind")
        else:
            most, ends = max(len(item), 1), np.zeros(len(edges) + 1, np.int64)
            stretch[:] = np.searchsorted(edges, item[begin:end], side="right")
        chosen, of, own = ordered = np.empty((3, end - begin), numbers)
        _by_stretch(begins, item, some[0] - block[0], stretch, ends, ordered)
        filled, parts = np.diff(ends, prepend=0) > 0, []
        for start, stop in ranges(end - begin, min(rows, most), ends[filled]):
            for pairs in starmap(slice, pieces((start, stop), most)):
                span = int(own[pairs].min()), int(own[pairs].max()) + 1
                name = f"queries {some[0]}:{some[1]}, positives in gallery {span[0]}:{span[1]}"
                part = PairPart(block, span, of[pairs], own[pairs], pairs.stop - pairs.start, name)
                parts.append((chosen[pairs], part))
        return parts

    some = [(block, span) for block in blocks for span in _evenly(block, near, plan.threads)]
    return list(chain.from_iterable(spread(cut, some, plan.threads)))


def _evenly(block: Span, most: int, threads: int) -> list[Span]:
    """Cut a range into even ranges of at most a step, as many for each thread."""
    start, stop = block
    count = -(-(stop - start) // most)
    if count > 1:
        count += -count % threads
    return pieces(block, -(-(stop - start) // max(count, 1)))


@compiled
def _by_stretch(indptr, item, first, stretch, ends, out):  # type: ignore[no-untyped-def]
    """Sort pairs by the stretch of the gallery that their items are in, those of one as they are.

    Parameters
    ----------
    indptr : [q + 1] int64
        Where the pairs of each query begin.
    item : [p] int64
        Of these pairs, and of others before and after them.
    first : int
        The number of the first query.
    stretch : [n] integers
        Of each of these pairs.
    ends : [s] int64
        Zeros; written: where each stretch ends in the order.
    out : [3, n] integers
        Written: which pairs, in order, and their queries and items.
    """
    for own in stretch:
        ends[own] += 1
    begin = 0
    for k in range(len(ends)):
        begin, ends[k] = begin + ends[k], begin
    for query in range(len(indptr) - 1):
        for pair in range(indptr[query], indptr[query + 1]):
            own = stretch[pair - indptr[0]]
            at = ends[own]
            ends[own] = at + 1
            out[0, at], out[1, at], out[2, at] = pair, first + query, item[pair]
