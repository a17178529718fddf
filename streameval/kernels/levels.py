"""Levels: the edges of queries in the unit of a tile's values."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import overload

from streameval.kernels.tiles import FloatArray, FloatTile, IntArray, Tile

_overload: Any = overload


class Rows(NamedTuple):
    """What kernels are told of the rows of a tile.

    Attributes
    ----------
    query : [m] int64
        Query of the block.
    offset : [m] int64
        The row of ``columns.offset`` that serves it.
    band : [m] float64
    begin : [m] int64
        Where its levels begin.
    """

    query: IntArray
    offset: IntArray
    band: FloatArray
    begin: IntArray


class Levels(NamedTuple):
    """Edges in the unit of a tile's values: see `Tile.levels`."""

    closer: FloatArray
    tied: FloatArray


class LevelTable:
    """The levels of all edges of a block of queries, kept while tiles are of one unit.

    Parameters
    ----------
    indptr : [queries of the block + 1] int64
        Where each query's edges begin.
    distances : [E] float64
    offset_row : [queries of the block] int64
        The row of ``columns.offset`` that serves each query.
    """

    def __init__(self, indptr: IntArray, distances: FloatArray, offset_row: IntArray) -> None:
        self._indptr, self._distances, self._offset_row = indptr, distances, offset_row
        self._unit: Hashable = None
        self._kept = Levels(distances, distances)

    def rows(self, tile: Tile) -> tuple[Rows, Levels]:
        """Return what kernels are told of the rows of a tile, and their levels."""
        query, indptr = tile.query, self._indptr
        offset, band = self._offset_row[query], tile.band
        if tile.unit is not None:
            if tile.unit != self._unit:
                block = np.arange(len(indptr) - 1)
                self._kept = Levels(*tile.levels(block, indptr, self._distances))
                self._unit = tile.unit
            return Rows(query, offset, band, indptr[query]), self._kept
        count = indptr[query + 1] - indptr[query]
        own = np.concatenate([[0], np.cumsum(count)])
        chosen = np.arange(own[-1]) + np.repeat(indptr[query] - own[:-1], count)
        levels = Levels(*tile.levels(query, own, self._distances[chosen]))
        return Rows(query, offset, band, own[:-1]), levels


def row_levels(tile: Tile, distances: FloatArray) -> Levels:
    """Return the levels of one distance a row, [m] float64."""
    return Levels(*tile.levels(tile.query, np.arange(len(tile.query) + 1), distances))


def even_levels(tile: Tile, pitch: float, threshold: float) -> tuple[FloatArray, FloatArray]:
    """Return how far apart evenly spaced thresholds are in a tile's unit, and one of them, by row.

    0 where there are none, or where distances are even and values, their squares, are not.

    Parameters
    ----------
    tile : Tile
    pitch, threshold : float
        How far apart the distances are, and one of them.
    """
    rows = len(tile.query)
    three = np.tile(threshold - pitch * np.array([2.0, 1.0, 0.0]), rows)
    level = tile.levels(tile.query, 3 * np.arange(rows + 1), three)[1].reshape(rows, 3)
    with np.errstate(invalid="ignore"):
        before, step = (level[:, 1] - level[:, 0], level[:, 2] - level[:, 1])
        even = (step > 0) & (np.abs(step - before) <= 1e-6 * step)
    return np.where(even, step, 0.0), np.where(even, level[:, 2], 0.0)


@numba.njit(nogil=True, cache=True)
def weighted(row, weight, offset, out):  # type: ignore[no-untyped-def]
    """Write ``row * weight + offset``; vectorises. Without `weight`, None, ``row + offset``."""
    for k in range(row.shape[0]):
        out[k] = product(row, weight, k) + offset[k]


@numba.njit(nogil=True, cache=True)
def product(row, weight, k):  # type: ignore[no-untyped-def]
    """Return ``row[k] * weight[k]``, or ``row[k]`` without weights."""
    if weight is None:
        return row[k]
    return row[k] * weight[k]


@numba.njit(nogil=True, cache=True)
def weight_at(weight, k):  # type: ignore[no-untyped-def]
    """Return ``weight[k]``, or 1 without weights."""
    if weight is None:
        return 1.0
    return weight[k]


def part_of(row: Any, left: int, right: int) -> Any:
    """Return ``row[left:right]``, or None of None."""
    return None if row is None else row[left:right]


@_overload(part_of)
def _part_of(row, left, right):  # type: ignore[no-untyped-def]
    if isinstance(row, types.NoneType):
        return lambda row, left, right: None
    return lambda row, left, right: row[left:right]


@numba.njit(nogil=True, cache=True)
def round_up(value, like):  # type: ignore[no-untyped-def]
    """Return a float64 as a value of another dtype that is not less."""
    rounded = like.dtype.type(value)
    return rounded if rounded >= value else np.nextafter(rounded, like.dtype.type(np.inf))


def stretches_of(tile: FloatTile, columns: int) -> list[tuple[int, int]]:
    """Return the ranges of columns that are counted at a time."""
    n = tile.shape[1]
    return [(left, min(left + columns, n)) for left in range(0, n, columns)]
