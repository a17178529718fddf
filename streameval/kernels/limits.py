"""Limits: which pairs of a tile are of interest, to their query or to their item.

A value is of interest to its row up to one limit, and from another one on. Limits of columns are
distances, which a row's values are a line of: value = start + slope · distance. So a value is near
enough, or far enough, where

    value <= max(low, slope · near + before)  or  value >= min(high, slope · far + behind)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.tiles import Tile
from streameval.typing import BoolArray, FloatArray, FloatingArray, IntArray, Span

FAR = 2.0 ** np.arange(0, 1001, 100)  # distances: the level of one tells how levels ascend
CLEAR = 2.0**60  # how far that has to be from the level of no distance, relatively
BENT = 2.0**-40  # by how much the level of half of it may differ from the line, relatively


class Reach(NamedTuple):
    """Distances of pairs that are of interest: up to the one, and from the other on.

    Attributes
    ----------
    nearest, greatest : [n] float64
        Of queries, or of items: of none where only the other side asks.
    """

    nearest: FloatArray
    greatest: FloatArray

    @classmethod
    def unknown(cls, count: int) -> Self:
        """Return a reach within which all pairs are."""
        return cls(np.full(count, np.inf), np.full(count, -np.inf))

    def of(self, rows: Span | IntArray) -> Reach:
        """Return that of some, by number; a span of them shares memory."""
        chosen = rows if isinstance(rows, np.ndarray) else slice(*rows)
        return Reach(self.nearest[chosen], self.greatest[chosen])

    @property
    def open(self) -> BoolArray:
        """Whether all pairs are of interest, [n]."""
        return ~(np.isfinite(self.nearest) & (self.greatest > -np.inf))


Sides = tuple[Reach, Reach]
"""Of the queries of a block, and of the items of a tile."""

Wanted = Callable[[IntArray], Sides]
"""Returns the reach of all queries of a block, and of the items of a tile, by their numbers."""


def up_to(distance: FloatArray) -> Sides:
    """Return the reach of queries for which nothing beyond a distance is of interest."""
    return Reach(distance, np.full(len(distance), np.inf)), Reach.unknown(0)


class Limits(NamedTuple):
    """Limits of a tile's rows and columns, as above.

    Attributes
    ----------
    lines : [m, 6] float
        Slope, before, behind, low and high of each row, and its greatest finite value.
    near, far : [n] float
        Distances; of columns that ask for nothing −inf and +inf.
    """

    lines: FloatingArray
    near: FloatingArray
    far: FloatingArray

    def outwards(self, kind: np.dtype[Any]) -> Limits:
        """Return them as another dtype; limits of nearness rounded up, of distance down."""
        lines = np.empty(self.lines.shape, kind)
        for which, towards in enumerate((np.inf, np.inf, -np.inf, np.inf, -np.inf, -np.inf)):
            lines[:, which] = _rounded(self.lines[:, which], kind, towards)
        return Limits(lines, _rounded(self.near, kind, np.inf), _rounded(self.far, kind, -np.inf))


def line_of(tile: Tile) -> tuple[FloatArray, FloatArray]:
    """Return the level of distance 0 of each row, and how levels ascend.

    NaN where that is open, and where levels are no line of distances, as of Euclidean ones.
    """
    rows, each = len(tile.query), 1 + 2 * len(FAR)
    distances = np.tile(np.concatenate([[0.0], FAR, FAR / 2]), rows)
    levels = tile.levels(tile.query, each * np.arange(rows + 1), distances).tied.reshape(rows, each)
    start, (far, half) = levels[:, 0].copy(), np.split(levels[:, 1:], 2, axis=1)
    clear = np.isfinite(far) & (far > CLEAR * np.abs(start)[:, None])
    row, least = np.arange(rows), clear.argmax(axis=1)  # the least distance that is clear
    slope = np.full(rows, np.nan)
    np.divide(far[row, least] - start, FAR[least], out=slope, where=clear[row, least])
    with np.errstate(over="ignore", invalid="ignore"):
        bent = np.abs(2 * (half[row, least] - start) / FAR[least] - slope) > BENT * slope
    slope[bent] = np.nan
    return start, slope


def limits_of(tile: Tile, sides: Sides, kind: np.dtype[Any], lost: FloatArray) -> Limits:
    """Return the limits of a tile's rows and columns, in float64.

    Parameters
    ----------
    tile : Tile
        Its values are not looked at.
    sides : (Reach, Reach)
        Of its rows, and of its columns or of none.
    kind : dtype
        Of the values, and of the arithmetic that compares them.
    lost : [2, m] float64
        How far values may be beyond the band: too great for a limit of nearness, and too small for
        one of distance.
    """
    by_row, by_column = sides
    (more, less), n = lost + tile.band, len(tile.columns.item)
    with np.errstate(invalid="ignore"):  # an infinite level, and a band that is infinite
        low = tile.row_levels(by_row.nearest).tied + more
        high = tile.row_levels(by_row.greatest).closer - less
    low[np.isnan(low)], high[np.isnan(high)] = np.inf, -np.inf
    high[by_row.greatest == np.inf] = np.inf
    near, far, none = np.full(n, -np.inf), np.full(n, np.inf), np.zeros(len(low))
    top = np.full(len(low), np.finfo(kind).max)
    lines = np.column_stack([none, none - np.inf, none + np.inf, low, high, top])
    if not len(by_column.nearest):
        return Limits(lines, near, far)
    near[:], far[:] = by_column
    lines[:, 4] = np.minimum(high, top)  # which says that limits of columns are looked at
    start, slope = line_of(tile)
    finite = np.concatenate([one[np.isfinite(one)] for one in (near, far)])
    error = 4 * float(np.finfo(kind).eps)
    slack = error * (
        slope * np.abs(finite).max(initial=0.0) + np.abs(start) + np.maximum(more, less)
    )
    before, behind = start + more + slack, start - less - slack
    told = (slope >= np.finfo(kind).tiny) & (
        np.maximum(slope, np.abs([before, behind]).max(axis=0)) < top
    )
    lines[told, :3] = np.column_stack([slope, before, behind])[told]
    lines[~told, 3] = np.inf  # all are looked at
    return Limits(lines, near, far)


def _rounded(values: FloatingArray, kind: np.dtype[Any], towards: float) -> FloatingArray:
    """Return values as another dtype, rounded up (towards +inf) or down."""
    with np.errstate(over="ignore"):
        near = values.astype(kind)
    wrong = near < values if towards > 0 else near > values
    return np.where(wrong, np.nextafter(near, kind.type(towards)), near)


@compiled(inline="always")
def is_wanted(value, line, near, far):  # type: ignore[no-untyped-def]
    """Tell whether a finite value is of interest, to its row or to its column.

    Parameters
    ----------
    value, near, far : float
        The latter may be NaN where a row asks alone.
    line : (slope, before, behind, low, high)
        All of one dtype, and `line` of more numbers, too.
    """
    nearer, further = line[0] * near + line[1], line[0] * far + line[2]
    return value <= line[3] or value <= nearer or value >= line[4] or value >= further
