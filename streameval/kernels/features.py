"""Gallery rows against a block of queries: tiles of products, of marks, or of all distances."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streameval.distances.distance import LEAST_FLOAT32, MOST_FLOAT32
from streameval.distances.sums import Vectors
from streameval.kernels.filters import Operands, ProductColumns
from streameval.kernels.limits import Wanted
from streameval.kernels.marks import MarkColumns
from streameval.kernels.multiplier import worth_marking
from streameval.kernels.query_block import QueryBlock, power_of_two, scaled
from streameval.kernels.sieve import MARKED_ROWS
from streameval.kernels.tiles import FINE_QUERIES, Columns, Tile, as_matrix
from streameval.typing import ByteArray, Float32Array, IntArray

LARGE, SAMPLED = 1 << 14, 16  # columns, of which one of so many panels says first what is crowded


class ExactColumns:
    """Gallery rows against a block of queries, of a distance without a filter.

    Parameters
    ----------
    queries, items, item, ruled_out, memory
        As of `FeatureColumns`.
    """

    def __init__(
        self,
        queries: QueryBlock,
        items: Vectors,
        item: IntArray,
        ruled_out: Float32Array,
        memory: ByteArray,
    ) -> None:
        self._queries, self._items = queries, items.take(slice(None))
        self.columns = Columns(item, None, ruled_out.astype(np.float64))

    def tiles(self, rows: int, memory: ByteArray, wanted: Wanted | None) -> Iterator[Tile]:
        """Yield the tiles of all queries: see `FeatureColumns.tiles`."""
        queries = self._queries
        for query, last in _in_pieces(queries.asked, rows):
            values = as_matrix(memory, np.float64, len(query), len(self.columns.item))
            values = queries.exact(query, self._items, values)
            yield Tile(values, query, queries.offset_row[query], self.columns, last)


class FeatureColumns:
    """Gallery rows against a block of queries, as float32 products tell them apart.

    Parameters
    ----------
    queries : QueryBlock
    items : Vectors
        Of the columns; float32 rows of ordinary norms are multiplied as they are, unless a centre
        is taken off.
    item : [n] int64
        Gallery index of each column.
    ruled_out : [b, n] float32
        0, or +inf for items that take no part: see `column_offsets`.
    memory : uint8 array
        For the gallery rows as the multiplier needs them.
    """

    def __init__(
        self,
        queries: QueryBlock,
        items: Vectors,
        item: IntArray,
        ruled_out: Float32Array,
        memory: ByteArray,
    ) -> None:
        rows, norms = items.rows, queries.lengths(items)
        filter_, factor, scale = queries.filter, 1.0, 1.0
        most, least = float(norms.max(initial=0.0)), float(norms.min(initial=np.inf))
        as_they_are = rows.dtype == np.float32 and not queries.centred
        if not as_they_are or least <= LEAST_FLOAT32 or most >= MOST_FLOAT32:
            factor = power_of_two(most)
            rows = scaled(rows, np.full(len(rows), factor), queries.centre)
        rows = rows.astype(np.float32, copy=False)
        if not filter_.normalised:
            scale = queries.scale * factor
        longest = float(queries.norms.max(initial=0.0))
        fits = filter_.fits(longest, norms, factor, scale)
        weight, offset = np.ones(len(norms)), np.zeros(len(norms))
        if fits:
            weight, offset = filter_.weight(norms * factor), filter_.squares(norms) * scale
        single = np.float32
        self.columns = Columns(item, weight.astype(single), ruled_out + offset.astype(single))
        length = float((norms * factor * weight).max(initial=0.0))
        scale = scale if fits else 1.0
        self.operands = Operands(
            queries,
            items,
            rows,
            norms,
            length,
            self.columns,
            ruled_out,
            scale,
            fits,
            memory,
        )

    def tiles(self, rows: int, memory: ByteArray, wanted: Wanted | None) -> Iterator[Tile]:
        """Yield the tiles of all queries; each is overwritten by the next.

        Parameters
        ----------
        rows : int
            Queries of a tile.
        memory : uint8 array
            For the values of a tile.
        wanted : callable, optional
            Returns which pairs are of interest; without one, all are.
        """
        queries, n = self.operands.queries, len(self.columns.item)
        every = queries.asked
        whole = np.ones(len(every), np.bool_)  # whose pairs are all of interest
        if wanted is not None and queries.digits is not None and self.operands.fits and n:
            sides = by_query, by_item = wanted(self.columns.item)
            whole = by_query.open | queries.crowded | by_item.open.any()
            others = int(whole.sum())
            whole |= not worth_marking(len(whole) - others, others, self.operands.width)
        if not whole.all():
            marks = MarkColumns(self.operands)
            most = min(MARKED_ROWS, len(memory) // marks.row_bytes)
            if n >= LARGE and not queries.sampled:
                for query, _ in _in_pieces(every[~whole], most):
                    sample = marks.tile(query, sides, memory, SAMPLED)
                    whole[query] = queries.crowded[query] = sample.crowded(int(whole.sum()))
                queries.sampled = True
            for query, last in _in_pieces(every[~whole], most):
                marked = marks.tile(query, sides, memory)
                whole[query] = queries.crowded[query] = marked.crowded(int(whole.sum()))
                yield marked.without(whole[query], last=last and not whole.any())
        if whole.any():
            yield from self._products(every[whole], rows, memory)

    def _products(self, query: IntArray, rows: int, memory: ByteArray) -> Iterator[Tile]:
        """Yield tiles of products: in float64 at once, where in float32 they have told nothing."""
        operands, n = self.operands, len(self.columns.item)
        finer = _fine_rows(len(memory) // (4 * rows), n)
        most, trials = min(rows, len(memory) // max(8 * n, 1)), operands.queries.trials
        fine = trials.hopeless(query)
        if fine.any():
            fine &= operands.fine.decides(query) & (most > 0)
        single, double = query[~fine], query[fine]
        closely = operands.queries.narrow[single]
        for some, narrow in ((single[~closely], False), (single[closely], True)):
            if not len(some):
                continue
            more = len(double) or (closely.any() and not narrow)
            products = ProductColumns(operands, len(some), finer, narrow=narrow)
            for part, last in _in_pieces(some, rows):
                values = as_matrix(memory, np.float32, len(part), n)
                yield products.tile(part, values, last=last and not more)
        trials.leave_out(double)
        for part, last in _in_pieces(double, max(most, 1)):
            values = as_matrix(memory, np.float64, len(part), n)
            yield operands.fine.tile(part, values, last=last)
        operands.release()


def _fine_rows(most: int, columns: int) -> int:
    """Return the rows of a finer tile: more, where it has fewer columns than a tile may have."""
    return FINE_QUERIES * max(most // max(columns, 1), 1)


def _in_pieces(query: IntArray, rows: int) -> Iterator[tuple[IntArray, bool]]:
    """Yield some queries at a time, and whether they are the last."""
    for start in range(0, len(query), rows):
        yield query[start : start + rows], start + rows >= len(query)
