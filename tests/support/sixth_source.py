"""A source of a kind that the package does not know: distances by a rule of two numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.planning.problem import Data
from streameval.source import Input
from streameval.sources.distances import MatrixSource


class Residues(MatrixSource):
    """Distances ``(37 i + k²) mod 101 / 50`` of query i and gallery item k.

    Parameters
    ----------
    queries, items : int
    """

    remedy = "choose other sizes"
    chunks = 8, 64
    dtype = np.dtype(np.float64)

    def __init__(self, queries: int, items: int) -> None:
        self.sizes = queries, items

    @property
    def shape(self) -> tuple[int, int]:
        return self.sizes

    @property
    def name(self) -> str:
        return f"residues {self.sizes}"

    def inputs(self) -> tuple[Input, ...]:
        return ()

    def options(self) -> dict[str, Any]:
        return {"distances": f"residues {self.sizes}"}

    def sides(self) -> tuple[str, str]:
        return f"residues have {self.sizes[0]} rows", f"residues have {self.sizes[1]} columns"

    def data(self) -> Data:
        return Data(0, 8, 8, lambda rows, columns: 0, self.chunks)

    def write(
        self, queries: tuple[int, int], items: tuple[int, int], out: npt.NDArray[Any]
    ) -> None:
        i, k = np.arange(*queries)[:, None], np.arange(*items)
        out[...] = (37 * i + k * k) % 101 / 50
