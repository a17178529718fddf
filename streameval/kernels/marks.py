"""Tiles of marks, which list the pairs that may be of interest: see `sieve` and `limits`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from streameval.compilation import compiled
from streameval.distances.llvm import trailing_zeros
from streameval.kernels.edges import first_reached
from streameval.kernels.filters import FilterTile, Operands, PairColumns
from streameval.kernels.limits import Sides, limits_of
from streameval.kernels.multiplier import gallery_row_seconds
from streameval.kernels.sieve import Panels, mark
from streameval.kernels.tiles import Doubts, Tile, as_matrix
from streameval.kernels.vector_unit import ITEMS
from streameval.typing import (
    BoolArray,
    ByteArray,
    Float32Array,
    FloatArray,
    IntArray,
)

MARKED = 1 << 17  # pairs that are listed at a time
_SINGLE = np.dtype(np.float32)


class MarkTile(FilterTile):
    """A tile of marks, [m, n / 32] uint32. The band is that of `listed`."""

    sparse: ClassVar[bool] = True
    of: MarkColumns

    def mask(self, indptr: IntArray, item: IntArray, masked: BoolArray, taken: FloatArray) -> int:
        """Take the marks off listed pairs; marks tell no values that could be taken."""
        _unmark(self.values, self.query, self.columns.item, indptr, item, masked)
        return 0

    def listed(self) -> Iterator[tuple[Doubts, Float32Array]]:
        """Yield the marked pairs, and their filter values; see `Tile`."""
        row, columns = 0, len(self.columns.item)
        room = Doubts.of(max(columns, MARKED))
        room.edge[:] = np.iinfo(np.int32).max  # most are near the furthest
        while row < len(self.query):
            row, count = list_marks(self.values, row, self.query, columns, room)
            listed = Doubts(*(column[:count] for column in room))
            yield listed, self.of.products(listed.query, listed.column)

    def crowded(self, others: int) -> BoolArray:
        """Tell which queries are faster counted as a whole, beside so many others, [m]."""
        width = self.of.items.rows.shape[1]
        columns = min(len(self.columns.item), ITEMS * self.values.shape[1])  # that are marked
        marked = np.bitwise_count(self.values).sum(axis=1, dtype=np.int64)
        order = np.argsort(-marked, kind="stable")
        products = gallery_row_seconds(others + np.arange(len(order) + 1), width)
        listed = np.append(marked[order][::-1].cumsum()[::-1], 0) / columns
        each, of_column = self.of.listed_seconds
        best = np.argmin(products + listed * (each + of_column * width))
        crowded = np.zeros(len(order), np.bool_)
        crowded[order[:best]] = True
        return crowded

    def without(self, rows: BoolArray, *, last: bool) -> Tile:
        """Return the tile without some rows."""
        tile = replace(self, last=last)
        if not rows.any():
            return tile
        kept = self.values[~rows], self.query[~rows], self.offset_row[~rows]
        return replace(tile, values=kept[0], query=kept[1], offset_row=kept[2])


class MarkColumns(PairColumns):
    """Columns of marks: whether pairs may be within reach.

    What a digit leaves out of a gallery row is taken off its offset, what it leaves out of a
    query is added to its limits of nearness. Of those of distance both are taken off, and what is
    off the offset once more.
    """

    def __init__(self, operands: Operands) -> None:
        queries, columns = operands.queries, operands.columns
        weight, digits = columns.weight, queries.digits
        super().__init__(operands)
        if weight is None or digits is None:
            raise ValueError("marks need weighted columns and the digits of queries")
        self._digits, self.listed_seconds = digits, digits.way.listed
        self._panels = Panels.of(operands.rows, weight, operands.memory, digits.way)
        lost = self._panels.error * float(digits.length.max(initial=0.0))
        offset = np.nextafter((columns.offset - lost).astype(np.float32), np.float32(-np.inf))
        np.copyto(offset, np.nan, where=np.isinf(columns.offset))
        beyond = -len(lost) % ITEMS  # of the last panel
        self._offset = np.pad(offset, ((0, 0), (0, beyond)), constant_values=np.nan)
        self._lost = digits.error * operands.length * (1 + 2.0**-20)
        self._lowered = 2 * float(lost.max(initial=0.0)) * (1 + 2.0**-20)

    def tile(self, query: IntArray, sides: Sides, memory: ByteArray, every: int = 1) -> MarkTile:
        """Return the tile of some queries, ascending.

        Parameters
        ----------
        query : [m] int64
        sides : (Reach, Reach)
            Of the queries of the block, and of the columns: pairs that may be within are marked.
        memory : uint8 array
            For the marks.
        every : int
            One of so many panels is marked, which says which queries are crowded.
        """
        rows, panels = self.queries.offset_row[query], self._offset.shape[1] // ITEMS
        marks = as_matrix(memory, np.uint32, len(query), -(-panels // every))
        tile = MarkTile(marks, query, rows, self.columns, of=self)
        by_query, by_item = sides
        lost = np.array([self._lost[query], self._lost[query] + self._lowered])
        limits = limits_of(tile, (by_query.of(query), by_item), _SINGLE, lost).outwards(_SINGLE)
        mark(self._digits, query, self._panels, self._offset, rows, limits, marks, every)
        return tile

    @property
    def row_bytes(self) -> int:
        """Bytes of the marks of a query."""
        return int(self._offset.shape[1]) // 8


@compiled
def _unmark(marks, query, item, indptr, listed, masked):  # type: ignore[no-untyped-def]
    for r in range(marks.shape[0]):
        i = query[r]
        first = first_reached(item[0], listed, 0, indptr[i], indptr[i + 1])
        for entry in range(first, indptr[i + 1]):
            if listed[entry] > item[-1]:
                break
            k = first_reached(listed[entry], item, 0, 0, len(item))
            if masked[entry] and item[k] == listed[entry]:
                marks[r, k // 32] &= ~(np.uint32(1) << np.uint32(k % 32))


@compiled
def list_marks(marks, row, query, columns, listed):  # type: ignore[no-untyped-def]
    """List the marked pairs from a row on, until the list might not hold another row.

    Which edge they are close to is not written.

    Parameters
    ----------
    marks : [m, n / 32] uint32
    row : int
    query : [m] int64
    columns : int
        n.
    listed : Doubts
        Of capacity n at least; written from the first on.

    Returns
    -------
    the row to go on with, m where all are listed; and how many pairs are
    """
    queries, places, _ = listed
    filled = 0
    while row < marks.shape[0] and filled + columns <= len(queries):
        i = query[row]
        for number in range(marks.shape[1]):
            word = marks[row, number]
            while word != 0:
                queries[filled] = i
                places[filled] = 32 * number + trailing_zeros(word)
                filled += 1
                word &= word - np.uint32(1)
        row += 1
    return row, filled
