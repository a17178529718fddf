"""Tiles: values of some queries with some gallery items, and what they say of distances.

A tile is passive: counters ask it for levels, the guard band, and the distances of the pairs
that the values leave in doubt. The values of this base class are canonical distances. Pairs that
are not to be counted are overwritten with +inf, which lies beyond every edge, so that the hot
loops have no masks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from streameval.kernels.edges import first_not_below

FloatTile = npt.NDArray[np.floating]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FINE_QUERIES = 64  # rows of a finer tile


class Columns(NamedTuple):
    """The columns of a tile.

    Attributes
    ----------
    item : [n] int64
        Gallery index, ascending.
    weight : [n] float32 or float64, or None
        Multiplied into each row, if given.
    offset : [b, n] of the same dtype
        Added to each row: +inf for items that take no part.
    """

    item: IntArray
    weight: FloatTile | None
    offset: FloatTile

    @classmethod
    def exact(cls, item: IntArray, offset: FloatTile) -> Columns:
        """Return the columns of canonical distances: nothing is added but +inf."""
        return cls(item, None, np.where(np.isinf(offset), offset, 0).astype(offset.dtype))


@dataclass(frozen=True, eq=False)
class Tile:
    """Canonical distances of some queries with some gallery items.

    Attributes
    ----------
    values : [m, n] float32 or float64
    query : [m] int64
        The query of each row, ascending, counted from the first of a block of queries.
    columns : Columns
    last : bool
        Whether these columns come with no further queries: what they are made from is
        overwritten then.
    locate : callable, optional
        Raises InputError for the first value that is not finite; None where all are known to be.
    """

    values: FloatTile
    query: IntArray
    columns: Columns
    last: bool = True
    locate: Callable[[], None] | None = None

    @property
    def unit(self) -> Hashable:
        """Tiles of one unit have the same levels; those of unit None have their own."""
        return "distance"

    @property
    def refinable(self) -> bool:
        """Whether `finer` has tiles with a narrower band."""
        return False

    @property
    def band(self) -> FloatArray:
        """How far the values of each row may be from its levels, [m]; 0 where they are exact."""
        return np.zeros(len(self.query))

    def levels(
        self, query: IntArray, indptr: IntArray, distances: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return what distances are in the unit of the values.

        Parameters
        ----------
        query : [r] int64
            Queries of the block.
        indptr : [r + 1] int64
            Where the distances of each of them begin.
        distances : [E] float64

        Returns
        -------
        closer, tied : [E] float64
            A pair whose value is below `closer`, by more than the band, is closer than the
            distance; one whose value is above `tied`, by more than the band, is further.
        """
        return distances, distances

    def resolve(
        self, query: npt.NDArray[np.integer], column: npt.NDArray[np.integer]
    ) -> FloatArray:
        """Return the canonical distances of pairs, [p] float64.

        Parameters
        ----------
        query, column : [p] integers
            Query of the block, and column of the tile.
        """
        exact: FloatArray = self.values[np.searchsorted(self.query, query), column].astype(float)
        return exact

    def finer(self, rows: IntArray) -> Iterator[Tile]:
        """Yield tiles with a narrower band that hold these rows."""
        raise NotImplementedError

    def mask(self, indptr: IntArray, item: IntArray, masked: BoolArray) -> int:
        """Overwrite listed pairs with +inf; return how many of them were finite.

        Parameters
        ----------
        indptr : [queries of the block + 1] int64
            Where the listed pairs of each query begin.
        item : [L] int64
            Gallery indices, ascending within a query.
        masked : [L] bool
            Which of the listed pairs to overwrite.
        """
        return int(_mask(self.values, self.query, self.columns.item, indptr, item, masked))


@numba.njit(nogil=True, cache=True)
def _mask(tile, query, item, indptr, listed, masked):  # type: ignore[no-untyped-def]
    finite = 0
    if tile.shape[1] == 0:
        return finite
    for r in range(tile.shape[0]):
        i = query[r]
        own = listed[indptr[i] : indptr[i + 1]]
        first = indptr[i] + first_not_below(own, item[0])
        for entry in range(first, indptr[i + 1]):
            if listed[entry] > item[-1]:
                break
            k = first_not_below(item, listed[entry])
            if masked[entry] and item[k] == listed[entry]:
                finite += np.isfinite(tile[r, k])
                tile[r, k] = np.inf
    return finite


@numba.njit(nogil=True, cache=True)
def all_finite(values):  # type: ignore[no-untyped-def]
    """Tell whether all values of a matrix are finite."""
    bad = 0
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            difference = values[i, k] - values[i, k]  # 0, or NaN where not finite
            bad += difference != 0
    return bad == 0


def column_offsets(
    base: FloatTile,
    junk: BoolArray | None,
    code: npt.NDArray[np.int32],
    item: npt.NDArray[np.int32],
) -> FloatTile:
    """Return what is added to each column of a tile: +inf for items ruled out.

    Parameters
    ----------
    base : [n] float32 or float64
        The offset of items that take part.
    junk : [n] bool, optional
        Items that take part for no query.
    code : [C, R] int32
        Codes of each class of queries under R rules, as its camera.
    item : [R, n] int32
        Codes of each item: a class ignores an item that has its code under any rule.

    Returns
    -------
    [max(C, 1), n] of the dtype of `base`
        Row c serves the queries of class c.
    """
    offset: FloatTile = np.repeat(base[None], max(len(code), 1), axis=0)
    if junk is not None:
        offset[:, junk] = np.inf
    for row, codes in zip(offset, code, strict=False):
        for own, ignored in zip(item, codes, strict=True):
            row[own == ignored] = np.inf
    return offset
