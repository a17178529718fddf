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
        chosen, of, own = ordered = np.empty((3, end - begin), np.int64)
        count = np.bincount(stretch)
        ends = np.cumsum(count) - count
        _by_stretch(query, item, begin, block[0], stretch, ends, ordered)
        parts = []
        for start, stop in ranges(end - begin, min(rows, most), ends[count > 0]):
            for pairs in starmap(slice, pieces((start, stop), most)):
                span = int(own[pairs].min()), int(own[pairs].max()) + 1
                name = f"queries {some[0]}:{some[1]}, positives in gallery {span[0]}:{span[1]}"
                part = PairPart(block, span, of[pairs], own[pairs], pairs.stop - pairs.start, name)
                parts.append((chosen[pairs], part))
        return parts

    some = [(block, span) for block in blocks for span in pieces(block, near)]
    return list(chain.from_iterable(spread(cut, some, plan.threads)))


@compiled
def _by_stretch(query, item, begin, first, stretch, ends, out):  # type: ignore[no-untyped-def]
    """Sort pairs by the stretch of the gallery that their items are in, those of one as they are.

    Parameters
    ----------
    query, item : [p] int64
        All pairs.
    begin : int
        The first of those to sort.
    first : int
        The query to count from.
    stretch : [n] int64
        Of each of these.
    ends : [s] int64
        Where each stretch begins in the order; written: where it ends.
    out : [3, n] int64
        Written: which pairs, in order, and their queries and items.
    """
    for k in range(len(stretch)):
        at = ends[stretch[k]]
        ends[stretch[k]] = at + 1
        pair = begin + k
        out[0, at], out[1, at], out[2, at] = pair, query[pair] - first, item[pair]
