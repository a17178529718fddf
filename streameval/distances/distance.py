"""The base class of distances, and what FAISS has in their place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from streameval.distances.filter import Filter
from streameval.distances.sums import FloatArray, Indices, Vectors, block_sums, pair_sums

_PART = 8192  # pairs finished at a time: their temporaries stay in cache


class FaissMetric(ABC):
    """The equivalent of a distance in FAISS.

    Attributes
    ----------
    inner_product : bool
        Whether FAISS searches by inner products, of which the negative is taken; else by
        squared Euclidean distances.
    normalised : bool
        Whether vectors are scaled to length 1 for FAISS.
    least : float
        A bound that no distance is below.
    """

    inner_product: ClassVar[bool]
    normalised: ClassVar[bool] = False
    least: ClassVar[float] = -np.inf

    @abstractmethod
    def value(self, distance: FloatArray) -> FloatArray:
        """Return the values that FAISS has for distances; smaller is closer."""

    @abstractmethod
    def distance(self, value: FloatArray) -> FloatArray:
        """Return the distances that values of FAISS stand for."""

    def error(self, gamma: float, norms: FloatArray, longest: float) -> FloatArray:
        """Return a bound on the error of FAISS's values, [m] float64.

        Parameters
        ----------
        gamma : float
            Relative error of a float32 sum of products.
        norms : [m] float64
            Of the queries.
        longest : float
            Norm of the longest gallery vector.
        """
        if self.normalised:
            return np.full(len(norms), gamma)
        if self.inner_product:
            return gamma * norms * longest
        return gamma * (norms + longest) ** 2


class Distance(ABC):
    """A distance of vectors: smaller is closer.

    Attributes
    ----------
    name : str
    term : int
        What is summed over the elements of two rows: see `sums`.
    bounds : (float, float), optional
        Least and greatest distance of any two vectors.
    unit_bounds : (float, float), optional
        Least and greatest distance of any two vectors of length 1.
    uses_lengths : bool
        Whether scaling single vectors changes the ranking; else zero vectors have no distance.
    filter : Filter, optional
        What float32 products tell of distances; without one every distance is computed.
    faiss : FaissMetric, optional
    """

    name: ClassVar[str]
    term: ClassVar[int]
    bounds: ClassVar[tuple[float, float] | None] = None
    unit_bounds: ClassVar[tuple[float, float] | None] = None
    uses_lengths: ClassVar[bool] = True
    filter: ClassVar[Filter | None] = None
    faiss: ClassVar[FaissMetric | None] = None

    @abstractmethod
    def finish(
        self, sums: FloatArray, query_norm: FloatArray | float, item_norm: FloatArray
    ) -> FloatArray:
        """Return distances from the sums of pairs and the norms of their rows."""

    def pairs(self, queries: Vectors, items: Vectors, query: Indices, item: Indices) -> FloatArray:
        """Return the canonical distances of listed pairs, [p] float64.

        Parameters
        ----------
        queries, items : Vectors
            Of one dtype.
        query, item : [p] integers
            Pair t is row ``query[t]`` of the queries with row ``item[t]`` of the items.
        """
        out = np.empty(len(query))
        pair_sums(self.term, queries.rows, items.rows, query, item, out)
        for start in range(0, len(out), _PART):
            part = slice(start, start + _PART)
            norms = queries.norms[query[part]], items.norms[item[part]]
            out[part] = self.finish(out[part], *norms)
        return out

    def block(
        self, queries: Vectors, items: Vectors, out: npt.NDArray[np.float64] | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the canonical distances of all queries with all items, [m, n] float64."""
        if out is None:
            out = np.empty((len(queries.norms), len(items.norms)))
        block_sums(self.term, queries.rows, items.rows, out)
        for row, norm in zip(out, queries.norms.tolist(), strict=True):
            row[:] = self.finish(row, norm, items.norms)
        return out
