"""Distances that are stored, as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.memory import MemoryArray
from streameval.distances.sums import FloatMatrix
from streameval.errors import InputError
from streameval.planning import Data
from streameval.protocols.labels import Labels
from streameval.source import Input
from streameval.sources.matrix import (
    ArrayLike,
    MatrixSource,
    convert,
    data_of,
    open_matrix,
    working_dtype,
)


class Distances(MatrixSource):
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

    remedy = "compute that row again"

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = open_matrix(matrix, "distances", "a row a query, a column a gallery item")
        self.dtype = np.dtype(working_dtype(self.matrix))
        self.name = f"{self.matrix.uri} {self.matrix.shape}"
        self.chunks = self.matrix.chunks[0], self.matrix.chunks[1]

    def __repr__(self) -> str:
        return f"Distances({self.matrix!r})"

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def inputs(self) -> tuple[Input, ...]:
        """Return the matrix."""
        return (Input("distances", "distances", self.matrix),)

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

    def data(self) -> Data:
        """Return the sizes of the matrix."""
        return data_of(self.matrix, self.dtype)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype of the matrix."""
        return self.matrix.dtype

    def block(
        self,
        queries: tuple[int, int],
        items: tuple[int, int],
        out: npt.NDArray[np.generic] | None = None,
    ) -> FloatMatrix:
        """Return a block [m, n] of the matrix, the caller's to overwrite."""
        stored = self.matrix.read(queries, items, out)
        block = convert(stored, self.dtype, self.name, np.arange(*queries), items[0])
        if block is stored and isinstance(self.matrix, MemoryArray):
            block = block.copy()  # the caller's own
        return block
