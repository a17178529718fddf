"""Parts of tiles: the queries and items of one evaluation, of tiles that several count.

A part holds a copy of the values, as each evaluation overwrites those of its own listed pairs. Its
queries and items are numbered as in the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.settling import Closer
from streameval.kernels.tiles import Columns, Levels, Tile, as_matrix
from streameval.typing import ByteArray, Float32Array, FloatArray, FloatingArray, Indices, IntArray

RuleOut = Callable[[FloatingArray, IntArray], FloatingArray]
"""The offsets [n] of items, and these items [n], to the offsets [b, n] that rule some out."""


class Cutter:
    """Cuts tiles to the queries and items of one evaluation.

    Parameters
    ----------
    queries : [q] int64
        Its queries, numbered as the rows of tiles are, ascending.
    items : [n] int64, optional
        Its items, numbered as the columns of tiles are, ascending; all by default.
    offset_row : [q] int64
        The row of offsets that serves each query.
    rule_out : callable
        Rules out items for the queries of each such row.
    """

    def __init__(
        self, queries: IntArray, items: IntArray | None, offset_row: IntArray, rule_out: RuleOut
    ) -> None:
        self.queries, self._items = queries, items
        self._offset_row, self._rule_out = offset_row, rule_out
        self._of: Columns | None = None  # the columns that were cut last
        self._column: IntArray = np.empty(0, np.int64)
        self._columns: Columns | None = None

    def cut(self, tile: Tile, memory: ByteArray | None = None) -> PartTile:
        """Return the part of a tile; its values are overwritten by the next in the same memory."""
        columns, column = self._cut_columns(tile.columns)
        own = _found(self.queries, tile.query)
        row = np.flatnonzero(own >= 0)
        shape, kind = (len(row), len(column)), tile.values.dtype
        values = np.empty(shape, kind) if memory is None else as_matrix(memory, kind, *shape)
        if shape == tile.values.shape:
            np.copyto(values, tile.values)
        else:
            _gather(tile.values, row, column, values)
        query = own[row]
        offset_row = self._offset_row[query]
        return PartTile(
            values,
            query,
            offset_row,
            columns,
            tile.last,
            tile.locate,
            of=tile,
            by=self,
            row=row,
            column=column,
        )

    def _cut_columns(self, columns: Columns) -> tuple[Columns, IntArray]:
        """Return the columns of its items, and which they are."""
        if self._columns is None or self._of is not columns:
            item, weight, offset = columns
            column = np.arange(len(item))
            if self._items is not None:
                own = _found(self._items, item)
                column = np.flatnonzero(own >= 0)
                item = own[column]
            base = offset[0, column]
            weight = None if weight is None else weight[column]
            self._columns = Columns(item, weight, self._rule_out(base, item))
            self._column, self._of = column, columns
        return self._columns, self._column


@dataclass(frozen=True, eq=False, kw_only=True)
class PartTile(Tile):
    """The values of some queries of a tile with some of its items.

    Attributes
    ----------
    of : Tile
    by : Cutter
    row, column : [m], [n] int64
        Rows and columns of that tile.
    """

    of: Tile
    by: Cutter
    row: IntArray
    column: IntArray

    @property
    def unit(self) -> object:
        """That of the tile."""
        return self.of.unit

    @property
    def refinable(self) -> bool:
        """Whether the tile is."""
        return self.of.refinable

    @property
    def band(self) -> FloatArray:
        """How far values of each row may be from their levels, [m]."""
        return self.of.band[self.row]

    @property
    def closer(self) -> Closer | None:
        """What tells pairs of the tile closer."""
        return None if self.of.closer is None else _PartCloser(self, self.of.closer)

    def levels(self, query: IntArray, indptr: IntArray, distances: FloatArray) -> Levels:
        """Return what distances are in the unit of the values: see `Tile.levels`."""
        return self.of.levels(self.by.queries[query], indptr, distances)

    def resolve(self, query: Indices, column: Indices) -> FloatArray:
        """Return the canonical distances of pairs, [p] float64."""
        return self.of.resolve(self.by.queries[query], self.column[column])

    def finer(self, rows: IntArray) -> Iterator[Tile]:
        """Yield tiles with a narrower band that hold these rows."""
        values = np.full((len(rows), len(self.of.columns.item)), np.inf, self.of.values.dtype)
        values[:, self.column] = self.values[rows]
        values[:, self.column] += np.where(np.isinf(self.columns.offset), np.inf, 0)[
            self.offset_row[rows]
        ]
        query, offset_row = self.by.queries[self.query[rows]], self.of.offset_row[self.row[rows]]
        whole = replace(self.of, values=values, query=query, offset_row=offset_row)
        for tile in whole.finer(np.arange(len(rows))):
            yield self.by.cut(tile)


class _PartCloser:
    """What tells pairs of a part closer."""

    def __init__(self, part: PartTile, of: Closer) -> None:
        self._part, self._of, self.band = part, of, of.band[part.by.queries]

    def estimates(self, query: Indices, column: Indices) -> Float32Array:
        return self._of.estimates(self._part.by.queries[query], self._part.column[column])


def _found(known: IntArray, wanted: IntArray) -> IntArray:
    """Return where values are among known ones, ascending; −1 of others."""
    if not len(known):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, at, -1)


@compiled
def _gather(values, row, column, out):  # type: ignore[no-untyped-def]
    for r in range(len(row)):
        for k in range(len(column)):
            out[r, k] = values[row[r], column[k]]
