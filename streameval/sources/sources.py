"""Sources: where the distances come from. `Features` computes them, `Distances` stores them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.arrays.memory import MemoryArray
from streameval.arrays.uri import open_array
from streameval.errors import BadRowError, InputError, OptionError, StreamevalWarning
from streameval.kernels.products import advice
from streameval.planning import Plan, Problem
from streameval.planning.plan import plural
from streameval.planning.range import UNIT_TOLERANCE, Range
from streameval.protocols.pairs import Pairs
from streameval.source import Input
from streameval.sources.tiled import TiledSource

if TYPE_CHECKING:
    from streameval.protocols.protocol import Labels
    from streameval.request import Request
from streameval.kernels.canonical import METRIC_CODES, FloatMatrix, Metric, row_norms
from streameval.kernels.stored import first_not_finite

ArrayLike = str | Path | npt.ArrayLike | Array

# Lengths of vectors whose squares, and sums of them, are ordinary float64 numbers.
LEAST_NORM, MOST_NORM = 1e-140, 1e150
_EXACT_INTEGER = 2**53
_SCANNED_ROWS = 4096


class Features(TiledSource):
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

    def __repr__(self) -> str:
        return f"Features({self.query!r}, {self.gallery!r}, {self.metric!r})"

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.query.shape[0], self.gallery.shape[0]

    def inputs(self) -> tuple[Input, ...]:
        """Return the features of both sides."""
        return (
            Input("query", "query features", self.query),
            Input("gallery", "gallery features", self.gallery),
        )

    def options(self) -> dict[str, Any]:
        """Return the metric and the number of columns."""
        return {"metric": self.metric, "width": self.width}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return (
            f"query features {self.query.uri} have {self.shape[0]} rows",
            f"gallery features {self.gallery.uri} have {self.shape[1]} rows",
        )

    def check(self, request: Request) -> Features:
        """Check the labels; warn where products are slower than they could be."""
        self.check_rows(request.query, request.gallery)
        if advice():
            warnings.warn(advice(), StreamevalWarning, stacklevel=4)
        return self

    def bounds(self) -> Range | None:
        """Return the metric's own range: on vectors of length 1 under Euclidean metrics.

        Taken from the first queries; all others are checked while they are counted.
        """
        if self.metric == "dot":
            return None
        if self.metric == "cosine":
            return Range(0.0, 2.0)
        _, norms = self.read_query(0, min(self.shape[0], 256))
        if np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            return None
        return Range(0.0, 2.0 if self.metric == "euclidean" else 4.0, unit=True)

    def tile_text(self, plan: Plan) -> str:
        """Return what is read and multiplied at a time, for people."""
        rows, items = plan.tile
        blocks = f"of blocks of {plural(plan.block, 'gallery row')}"
        return f"{rows:,} queries × {plural(items, 'item')}, {blocks}"

    def problem(self, pairs: Pairs) -> Problem:
        """Return the sizes of an evaluation without thresholds or a histogram."""
        return replace(_problem(self, self.gallery, pairs), width=self.width)

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

    def first_bad_row(self, stop: int) -> None:
        """Raise for the first gallery row below `stop` that can't be evaluated, if there is one.

        Raises
        ------
        BadRowError
        """
        for start in range(0, stop, _SCANNED_ROWS):
            self.read_gallery(start, min(start + _SCANNED_ROWS, stop))

    def _checked(
        self, array: Array, rows: npt.NDArray[np.generic], index: npt.NDArray[np.int64]
    ) -> tuple[FloatMatrix, npt.NDArray[np.float64]]:
        working = _convert(rows, self.dtype, array, index, 0)
        norms = row_norms(working)
        least = LEAST_NORM if self.metric == "cosine" else 0.0
        bad = np.flatnonzero(~((norms >= least) & (norms <= MOST_NORM)))
        if bad.size:
            row = int(bad[0])
            reason = _fault(working[row], float(norms[row]))
            raise BadRowError(f"{array.uri} {array.shape} row {index[row]} {reason}", index[row])
        return working, norms


def _fault(row: FloatMatrix, norm: float) -> str:
    """Say what is wrong with a row of features, and what to do."""
    column = np.flatnonzero(~np.isfinite(row))
    if column.size:
        return (
            f"holds {row[column[0]]} in column {column[0]}: features must be finite; mend or "
            "drop that row"
        )
    if not row.any():
        return "is a zero vector: it has no cosine distance; drop it, or use another metric"
    size = "long" if norm > 1 else "short"
    return (
        f"is too {size} a vector: lengths from {LEAST_NORM:g} (under cosine) to {MOST_NORM:g} can "
        "be squared in float64; scale the features"
    )


class Distances(TiledSource):
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

    def __repr__(self) -> str:
        return f"Distances({self.matrix!r})"

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def inputs(self) -> tuple[Input, ...]:
        """Return the matrix."""
        return (Input("distances", "distances", self.matrix),)

    def options(self) -> dict[str, Any]:
        """Return nothing: a matrix holds its distances."""
        return {}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return (
            f"distances {self.matrix.uri} have {self.shape[0]} rows",
            f"distances {self.matrix.uri} have {self.shape[1]} columns",
        )

    def check_rows(self, query: Labels | None, gallery: Labels | None) -> None:
        """Check that there is a label for each row and column.

        Raises
        ------
        InputError
        """
        sizes = tuple(0 if side is None else len(side) for side in (query, gallery))
        queries, items = self.shape
        if sizes == (items, queries) and queries != items:
            raise InputError(
                f"{self.matrix.uri} is {queries} × {items}, and there are {sizes[0]} query ids and "
                f"{sizes[1]} gallery ids: the matrix is transposed; store a row a query"
            )
        super().check_rows(query, gallery)

    def tile_text(self, plan: Plan) -> str:
        """Return what is read at a time, for people."""
        return f"{plan.tile[0]:,} rows × {plural(plan.tile[1], 'column')}"

    def problem(self, pairs: Pairs) -> Problem:
        """Return the sizes of an evaluation without thresholds or a histogram."""
        return _problem(self, self.matrix, pairs)

    def read(
        self,
        queries: tuple[int, int],
        items: tuple[int, int],
        out: npt.NDArray[np.generic] | None = None,
        *,
        check: bool = True,
    ) -> FloatMatrix:
        """Return a block [m, n] in the working dtype, the caller's to overwrite.

        Parameters
        ----------
        queries, items : (int, int)
            Start and stop.
        out : [m, n] array, optional
            Of the matrix's dtype, to read into.
        check : bool
            Whether to check that all distances are finite.

        Raises
        ------
        InputError
            If a distance is not finite; the first such entry is named.
        """
        stored = self.matrix.read(queries, items, out)
        index = np.arange(*queries)
        block = _convert(stored, self.dtype, self.matrix, index, items[0])
        if block is stored and isinstance(self.matrix, MemoryArray):
            block = block.copy()  # the caller's own
        bad = first_not_finite(block) if check else None
        if bad is not None:
            row = queries[0] + bad[0]
            raise BadRowError(
                f"{self.matrix.uri} {self.matrix.shape} holds {block[bad]} in row {row}, column "
                f"{items[0] + bad[1]}: distances must be finite; compute that row again",
                row,
            )
        return block

    def first_bad_row(self, stop: int) -> None:
        """Raise for the first row below `stop` that can't be evaluated, if there is one.

        Raises
        ------
        BadRowError
        """
        rows = self.matrix.chunks[0]
        for start in range(0, stop, rows):
            self.first_bad_entry((start, min(start + rows, stop)), (0, self.shape[1]))

    def first_bad_entry(self, queries: tuple[int, int], items: tuple[int, int]) -> None:
        """Raise for the first entry of a block that is not finite, if there is one.

        The block is read by columns of chunks: it may be as large as memory allows to hold once.

        Raises
        ------
        BadRowError
        """
        columns = self.matrix.chunks[1]
        errors = []
        for left in range(*items, columns):
            try:
                self.read(queries, (left, min(left + columns, items[1])))
            except BadRowError as error:
                errors.append(error)
        if errors:
            raise min(errors, key=lambda error: error.row)


def _problem(source: Features | Distances, stored: Array, pairs: Pairs) -> Problem:
    queries, items = source.shape
    return Problem(
        queries=queries,
        gallery=items,
        positives=int(np.count_nonzero(pairs.positive)),
        listed=len(pairs.item),
        thresholds=0,
        cameras=pairs.cameras,
        width=0,
        itemsize=source.dtype.itemsize,
        stored_itemsize=stored.dtype.itemsize,
        scratch=stored.read_scratch_bytes,
        chunks=(stored.chunks[0], stored.chunks[1]),
        converted=stored.dtype != source.dtype or isinstance(stored, MemoryArray),
    )


def _convert(
    stored: npt.NDArray[Any],
    dtype: np.dtype[Any],
    array: Array,
    index: npt.NDArray[np.int64],
    first_column: int,
) -> FloatMatrix:
    """Return a block in the working dtype, which holds every value of it exactly."""
    if stored.dtype.kind in "iu" and stored.dtype.itemsize == 8:
        beyond = np.argwhere((stored > _EXACT_INTEGER) | (stored < -_EXACT_INTEGER))
        if beyond.size:
            row, column = beyond[0]
            raise BadRowError(
                f"{array.uri} {array.shape} holds {stored[row, column]} in row {index[row]}, "
                f"column {first_column + column}: float64 holds integers up to 2^53; scale them",
                index[row],
            )
    converted: FloatMatrix = np.ascontiguousarray(stored, dtype=dtype)
    return converted


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
