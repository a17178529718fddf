"""Tiles of re-ranked distances, made in place of those of distances of features.

    s(q, g)   Σ_m min(V(q, m), V(g, m)), by ascending m; 1 where it rounds to more
    J(q, g)   1 − s / (2 − s)
    d*(q, g)  (1 − λ) J(q, g) + λ D'(q, g)

s is exact, and d* ascends with D. A tile that knows D to within its guard band knows d* to within
λ times that, in units of D'; where D is canonical, so is d*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.tiles import Columns, Tile, product
from streameval.reranking.encoding import Parameters, SparseRows, overlap, relative_to
from streameval.reranking.kept import Encodings
from streameval.typing import FloatArray, Indices, Int32Array, IntArray, Span

ROUNDED = 2.0**-48  # relative error of a level, and of what is computed in float64
NO_ITEMS, NO_VALUES = np.empty(0, np.int32), np.empty(0)
ENTRIES = 1 << 20  # of encodings of gallery items that are looked up at a time


class Index(NamedTuple):
    """The entries of V of some columns of a tile, by image.

    Attributes
    ----------
    columns : (int, int)
        Start and stop.
    begin : [N + 1] int64
        Where the entries of each image begin.
    column : [E] int32
        Counted from the first.
    value : [E] float64
    """

    columns: Span
    begin: IntArray
    column: Int32Array
    value: FloatArray


class Reranker:
    """Makes tiles of re-ranked distances of a block of queries.

    Parameters
    ----------
    encodings : Encodings
    parameters : Parameters
    first : int
        The first query of the block.
    """

    def __init__(self, encodings: Encodings, parameters: Parameters, first: int) -> None:
        self._encodings, self._first = encodings, first
        self._mix, self._power = parameters.lambda_, parameters.power
        self._of: Columns | None = None  # the columns that were looked up last
        self._columns: Columns | None = None
        self._kept: list[Index] = []
        self._place = NO_ITEMS  # the column of each gallery item, where some are changed

    def reranked(self, tile: Tile) -> Tile:
        """Return the tile of re-ranked distances; the values of the given one are overwritten."""
        greatest = self._encodings.greatest[self._first + tile.query]
        band = tile.band
        exact = self._mix == 0.0 or not band.any()
        low, top, values = np.zeros(len(greatest)), greatest, tile.values
        if self._mix == 0.0:
            top = low
        elif not exact:
            low, most = (tile.row_levels(one).tied for one in (low, greatest))
            top = most - low
            error = band + 2 * ROUNDED * (np.abs(low) + np.abs(most))
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                band = np.where(greatest > 0, error / top, 0.0)
                band *= 1.0 if self._power == 2 else 2.0 + band  # of |r² − r'²|, as r is 1 at most
            band = (
                np.where(top > 0, self._mix * band, np.where(greatest > 0, np.inf, 0.0)) + ROUNDED
            )
            band += np.finfo(values.dtype).eps if values.dtype == np.float32 else 0.0
        if exact:
            values = np.empty(values.shape)
        columns = self._look_up(tile.columns, values.dtype)
        known, rows = self._encodings.rows.mapped(), self._encodings.row[self._first + tile.query]
        changed = self._changed()
        for index in self._indices(tile.columns):
            part = tile.values, tile.columns.weight, tile.columns.offset, tile.offset_row
            line = low, top, self._power, self._mix
            _fill(part, line, rows, known, index, (changed, self._place), values)
        if exact:
            return Tile(values, tile.query, tile.offset_row, columns, tile.last)
        return RerankedTile(
            values, tile.query, tile.offset_row, columns, tile.last, base=tile, by=self, error=band
        )

    def distances(self, query: Indices, item: IntArray, distance: FloatArray) -> FloatArray:
        """Return d* of pairs, [p] float64.

        Parameters
        ----------
        query, item : [p] integers
            Queries of the block, and gallery items.
        distance : [p] float64
            Canonical distances D.
        """
        known, own, out = self._encodings.rows.mapped(), self._first + query, np.empty(len(query))
        row = self._encodings.row[own]
        shared = overlap(known, row, self._encodings.first + item)
        if self._encodings.changed is not None:
            _set_changed(self._changed(), row, item, shared)
        greatest = self._encodings.greatest[own]
        _mix_all(shared, distance, greatest, self._power, self._mix, out)
        return out

    def _changed(self) -> SparseRows:
        """Return s of gallery items that a query changes, by its row; of none, empty rows."""
        if self._encodings.changed is not None:
            return self._encodings.changed.mapped()
        return SparseRows(np.zeros(self._encodings.first + 1, np.int64), NO_ITEMS, NO_VALUES)

    def _look_up(self, columns: Columns, kind: np.dtype[Any]) -> Columns:
        """Return columns without weights, and offsets that rule out what those given do."""
        if self._columns is None or self._of is not columns:
            offset = np.where(np.isinf(columns.offset), np.inf, 0.0).astype(kind)
            self._columns = Columns(columns.item, None, offset)
            self._of, self._kept = columns, []
            if self._encodings.changed is not None:
                items = len(self._encodings.rows.begin) - 1 - self._encodings.first
                self._place = np.full(items, -1, np.int32)
                self._place[columns.item] = np.arange(len(columns.item))
        return self._columns

    def _indices(self, columns: Columns) -> Iterator[Index]:
        """Yield the entries of columns, so many columns at a time that they take little memory."""
        if self._kept:
            yield from self._kept
            return
        images = self._encodings.first + columns.item
        begin = self._encodings.rows.begin
        ends = np.cumsum(begin[images + 1] - begin[images])
        left, count = 0, len(images)
        while left < count:
            most = ENTRIES + (ends[left - 1] if left else 0)
            right = max(int(np.searchsorted(ends, most, side="right")), left + 1)
            index = _indexed(self._encodings.rows.mapped(), images[left:right], (left, right))
            if right - left == count:
                self._kept = [index]
            yield index
            left = right


@dataclass(frozen=True, eq=False, kw_only=True)
class RerankedTile(Tile):
    """Re-ranked distances, as far as a tile of distances tells them.

    Attributes
    ----------
    base : Tile
        Its values are overwritten.
    by : Reranker
    error : [m] float64
        The guard band.
    """

    base: Tile
    by: Reranker
    error: FloatArray

    @property
    def refinable(self) -> bool:
        """Whether the tile of distances is."""
        return self.base.refinable

    @property
    def band(self) -> FloatArray:
        """The guard band of each row."""
        return self.error

    def resolve(self, query: Indices, column: Indices) -> FloatArray:
        """Return the canonical re-ranked distances of pairs, [p] float64."""
        distance = self.base.resolve(query, column)
        return self.by.distances(query, self.columns.item[column], distance)

    def finer(self, rows: IntArray) -> Iterator[Tile]:
        """Yield tiles with a narrower band that hold these rows."""
        mine = {name: getattr(self, name) for name in ("values", "query", "offset_row")}
        for tile in replace(self.base, **mine).finer(rows):
            yield self.by.reranked(tile)


def _indexed(known: SparseRows, images: IntArray, columns: Span) -> Index:
    """Return the entries of the rows of some images, which are columns of a tile."""
    room = int((known.begin[images + 1] - known.begin[images]).sum())
    begin = np.zeros(len(known.begin) + 1, np.int64)
    column, value = np.empty(room, np.int32), np.empty(room)
    _index(*known, images, begin, column, value)
    return Index(columns, begin[:-1], column, value)


@compiled
def _index(begins, items, values, images, begin, column, value):  # type: ignore[no-untyped-def]
    for image in images:
        for t in range(begins[image], begins[image + 1]):
            begin[items[t] + 2] += 1
    for m in range(1, len(begin)):
        begin[m] += begin[m - 1]
    for k in range(len(images)):
        for t in range(begins[images[k]], begins[images[k] + 1]):
            at = begin[items[t] + 1]
            column[at], value[at] = k, values[t]
            begin[items[t] + 1] = at + 1


@compiled(inline="always")
def _mixed(overlap, relative, mix):  # type: ignore[no-untyped-def]
    """Return d* of s, D' and λ."""
    overlap = min(overlap, 1.0)
    return (1.0 - mix) * (1.0 - overlap / (2.0 - overlap)) + mix * relative


@compiled
def _mix_all(overlap, distance, greatest, power, mix, out):  # type: ignore[no-untyped-def]
    """Write d* of pairs, of s, D and the query's greatest D."""
    for t in range(len(overlap)):
        out[t] = _mixed(overlap[t], relative_to(distance[t], greatest[t], power), mix)


@compiled
def _set_changed(changed, row, item, shared):  # type: ignore[no-untyped-def]
    """Write s of pairs whose item the query changes, by its row."""
    begin, items, values = changed
    for t in range(len(row)):
        start, stop = begin[row[t]], begin[row[t] + 1]
        at = start + np.searchsorted(items[start:stop], item[t])
        if at < stop and items[at] == item[t]:
            shared[t] = values[at]


@compiled
def _fill(part, line, rows, known, index, exceptions, out):  # type: ignore[no-untyped-def]
    """Write d* of the columns of an index, from the values of a tile.

    Parameters
    ----------
    part : tuple
        Values, weight, offset and offset row of the tile.
    line : tuple of [m] float64, [m] float64, int, float
        The value of distance 0, and how far from it that of the greatest is; the power, and λ.
    rows : [m] int64
        The row of V of each query.
    known, index : SparseRows, Index
    exceptions : SparseRows, [G] int32
        s of items that a query changes, by its row; and the column of each item, or -1.
    out : [m, n], written
        May be the values.
    """
    (values, weight, offset, offset_row), (low, top, power, mix) = part, line
    begin, item, value = known
    (left, right), starts, column, shares = index
    (first, others, instead), place = exceptions
    shared, infinite = np.empty(right - left), values.dtype.type(np.inf)
    for r in range(len(rows)):
        shared[:] = 0.0
        for t in range(begin[rows[r]], begin[rows[r] + 1]):
            own, image = value[t], item[t]
            for e in range(starts[image], starts[image + 1]):
                shared[column[e]] += min(own, shares[e])
        for t in range(first[rows[r]], first[rows[r] + 1]):
            if left <= place[others[t]] < right:
                shared[place[others[t]] - left] = instead[t]
        bottom, reach, row, add = low[r], top[r], values[r], offset[offset_row[r]]
        for k in range(left, right):
            given = product(row, weight, k) + add[k]
            relative = relative_to(np.float64(given) - bottom, reach, power)
            mixed = _mixed(shared[k - left], relative, mix)
            out[r, k] = mixed if given < infinite else np.inf
