"""Distances that a function of the user computes, block by block."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.distances.sums import FloatMatrix
from streameval.errors import InputError, OptionError
from streameval.metrics.options import is_count
from streameval.planning import Problem
from streameval.protocols.pairs import Pairs
from streameval.source import Input
from streameval.sources.matrix import MatrixSource, convert, sizes_of

Function = Callable[[slice, slice], npt.ArrayLike]

ITEMS = 4096  # asked for at a time where a row of the gallery takes too much memory


@dataclass(frozen=True, eq=False)
class FunctionInput(Input):
    """A function, identified by its name alone.

    Attributes
    ----------
    named : bool
        Whether the user has named it.
    """

    named: bool = False

    def fingerprint(self) -> str:
        """Return the name.

        Raises
        ------
        OptionError
            If the function has none.
        """
        if not self.named:
            raise OptionError(
                f"function {self.uri} has no name, and a checkpoint can't tell it from others: "
                "give Computed(function, shape, name=...)"
            )
        return self.uri


class Computed(MatrixSource):
    """Distances that a function computes: evaluated exactly as float64, never held at once.

    Parameters
    ----------
    function : callable
        ``f(queries: slice, items: slice)`` returns the distances [m, n] of these queries to these
        gallery items, floats or integers; smaller is closer. It is called from several threads,
        and must give the same values whenever it is called. On a cluster it must be picklable.
    shape : (int, int)
        (Q, G).
    name : str, optional
        What identifies the function and its data: a checkpoint is resumed only under the same
        name. Needed to keep one.

    Raises
    ------
    InputError
        If `function` is not callable, or `shape` is not two numbers.
    """

    remedy = "correct the function"
    dtype = np.dtype(np.float64)

    def __init__(self, function: Function, shape: tuple[int, int], name: str | None = None) -> None:
        if not callable(function):
            raise InputError(
                f"the function is of type {type(function).__name__}; a callable f(queries, items) "
                "is needed"
            )
        if np.shape(shape) != (2,) or not all(size == 0 or is_count(size) for size in shape):
            raise InputError(f"shape is {shape!r}; the numbers of queries and items are needed")
        self.function, self._shape, self._name = function, (int(shape[0]), int(shape[1])), name
        self.chunks = 1, max(min(ITEMS, self._shape[1]), 1)

    def __repr__(self) -> str:
        return f"Computed({self.function!r}, {self._shape!r}, name={self._name!r})"

    def __reduce__(self) -> tuple[type[Computed], tuple[Any, ...]]:
        try:
            pickle.dumps(self.function)
        except Exception as error:
            raise InputError(
                f"{self.name} can't be sent to workers ({error}): define the function in a module "
                "that workers can import, or evaluate on threads"
            ) from error
        return type(self), (self.function, self._shape, self._name)

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self._shape

    @property
    def name(self) -> str:
        """What errors call the source."""
        return f"function {self._label} {self._shape}"

    @property
    def _label(self) -> str:
        return self._name or getattr(self.function, "__name__", type(self.function).__name__)

    def inputs(self) -> tuple[Input, ...]:
        """Return the function; what it reads is its own."""
        return (FunctionInput("function", "function", Path(self._label), named=bool(self._name)),)

    def options(self) -> Mapping[str, Any]:
        """Return nothing: the name tells functions apart."""
        return {}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        queries, items = self._shape
        return f"{self.name} is of {queries} queries", f"{self.name} is of {items} gallery items"

    def problem(self, pairs: Pairs) -> Problem:
        """Return the sizes of an evaluation without thresholds or a histogram."""
        return sizes_of(self, pairs, self.dtype, self.chunks)

    def block(
        self,
        queries: tuple[int, int],
        items: tuple[int, int],
        out: npt.NDArray[np.generic] | None = None,
    ) -> FloatMatrix:
        """Return what the function returns for a block [m, n], as float64."""
        given = np.asarray(self.function(slice(*queries), slice(*items)))
        shape = queries[1] - queries[0], items[1] - items[0]
        if given.shape != shape or given.dtype.kind not in "fiu":
            raise InputError(
                f"{self.name} returned {given.dtype} {given.shape} for queries "
                f"{queries[0]}:{queries[1]} and items {items[0]}:{items[1]}; numbers {shape} are "
                "needed"
            )
        index = np.arange(*queries)
        values = convert(given, self.dtype, self.name, index, items[0])
        block = np.empty(shape) if out is None else out
        block[...] = values
        return block
