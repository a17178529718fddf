"""Sources: where the distances come from. `Features` computes them, `Distances` stores them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from streameval.counting.canonical import METRIC_CODES, FloatMatrix, Metric, row_norms
from streameval.counting.stored import first_not_finite
from streameval.errors import InputError, OptionError
from streameval.inputs.array import Array
from streameval.inputs.uri import open_array

ArrayLike = str | Path | npt.NDArray[np.generic] | Array


class Features:
    """Features of the queries and of the gallery, from which distances are computed.

    Parameters
    ----------
    query, gallery : str, Path or [Q, D], [G, D] array
        float16, float32, float64 or integers; a URI ``path[::key]`` or an array in memory.
    metric : {"cosine", "euclidean", "sqeuclidean", "dot"}
        ``dot`` ranks by −q·g.

    Raises
    ------
    InputError
        If an array is not 2-d, not numeric, or the widths differ.
    OptionError
        If the metric is unknown.
    """

    def __init__(self, query: ArrayLike, gallery: ArrayLike, metric: Metric = "cosine") -> None:
        if metric not in METRIC_CODES:
            raise OptionError(
                f"unknown metric {metric!r}; known metrics: {', '.join(METRIC_CODES)}"
            )
        self.metric: Metric = metric
        self.query = _matrix(query, "query features", "one row an image")
        self.gallery = _matrix(gallery, "gallery features", "one row an image")
        widths = self.query.shape[1], self.gallery.shape[1]
        if widths[0] != widths[1] or widths[0] == 0:
            raise InputError(
                f"query features {self.query.uri} are {self.query.shape}, gallery features "
                f"{self.gallery.uri} {self.gallery.shape}: both need the same number of columns, "
                "at least one"
            )
        # Both sides are worked on in one dtype that holds either exactly.
        self.dtype = np.result_type(_working(self.query), _working(self.gallery))

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.query.shape[0], self.gallery.shape[0]

    @property
    def width(self) -> int:
        """Number of columns D."""
        return self.query.shape[1]

    def read_query(self, start: int, stop: int) -> tuple[FloatMatrix, npt.NDArray[np.float64]]:
        """Return query rows and their norms; see `read_gallery`."""
        rows = self.query.read((start, stop))
        return self._checked(self.query, rows, np.arange(start, stop))

    def read_gallery(
        self, start: int, stop: int, out: npt.NDArray[np.generic] | None = None
    ) -> tuple[FloatMatrix, npt.NDArray[np.float64]]:
        """Return gallery rows [n, D] in the working dtype, and their canonical norms [n].

        Parameters
        ----------
        start, stop : int
        out : [>= n, D] array, optional
            Of the gallery's dtype, to read into.

        Raises
        ------
        InputError
            If a row is not finite or, under cosine, is zero; the first such row is named.
        """
        rows = self.gallery.read((start, stop), out=out)
        return self._checked(self.gallery, rows, np.arange(start, stop))

    def take_gallery(self, rows: npt.NDArray[np.int64]) -> FloatMatrix:
        """Return the gallery rows with these ascending indices, checked as by `read_gallery`."""
        return self._checked(self.gallery, self.gallery.take(rows), rows)[0]

    def _checked(
        self, array: Array, rows: npt.NDArray[np.generic], index: npt.NDArray[np.int64]
    ) -> tuple[FloatMatrix, npt.NDArray[np.float64]]:
        working: FloatMatrix = np.ascontiguousarray(rows, dtype=self.dtype)
        norms = row_norms(working)
        bad = np.flatnonzero(~np.isfinite(norms))
        if bad.size:
            row = bad[0]
            column = np.flatnonzero(~np.isfinite(working[row]))
            if not column.size:
                raise InputError(
                    f"{array.uri} row {index[row]} is too long a vector: its squared norm "
                    "overflows float64; scale the features down"
                )
            raise InputError(
                f"{array.uri} {array.shape} row {index[row]} holds "
                f"{working[row, column[0]]} in column {column[0]}: features must be finite; "
                "mend or drop that row"
            )
        if self.metric == "cosine":
            zero = np.flatnonzero(norms == 0)
            if zero.size:
                raise InputError(
                    f"{array.uri} {array.shape} row {index[zero[0]]} is a zero vector: it has no "
                    "cosine distance; drop it, or use another metric"
                )
        return working, norms


class Distances:
    """A stored distance matrix, queries by gallery.

    Parameters
    ----------
    matrix : str, Path or [Q, G] array
        float16, float32, float64 or integers; a URI ``path[::key]`` or an array in memory.

    Raises
    ------
    InputError
        If the array is not 2-d or not numeric.
    """

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = _matrix(matrix, "distances", "a row a query, a column a gallery item")
        self.dtype = np.dtype(_working(self.matrix))

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def read(self, queries: tuple[int, int], items: tuple[int, int]) -> FloatMatrix:
        """Return a block [m, n] in the working dtype, the caller's to overwrite.

        Raises
        ------
        InputError
            If a distance is not finite; the first such entry is named.
        """
        stored = self.matrix.read(queries, items)
        block: FloatMatrix = np.ascontiguousarray(stored, dtype=self.dtype)
        if not block.flags.owndata or not block.flags.writeable:
            block = block.copy()
        bad = first_not_finite(block)
        if bad is not None:
            raise InputError(
                f"{self.matrix.uri} {self.matrix.shape} holds {block[bad]} in row "
                f"{queries[0] + bad[0]}, column {items[0] + bad[1]}: distances must be finite; "
                "compute that row again"
            )
        return block


def _matrix(array: ArrayLike, what: str, meaning: str) -> Array:
    opened = array if isinstance(array, Array) else open_array(array)
    if len(opened.shape) != 2:
        raise InputError(
            f"{what} {opened.uri} have shape {opened.shape}; a 2-d array, {meaning}, is needed"
        )
    if opened.dtype.kind not in "fiu":
        raise InputError(
            f"{what} {opened.uri} are of dtype {opened.dtype}; floats or integers are needed"
        )
    return opened


def _working(array: Array) -> type[np.float32] | type[np.float64]:
    """Return the smaller of float32 and float64 that holds every value of the dtype exactly."""
    return np.float32 if np.can_cast(array.dtype, np.float32, "safe") else np.float64
