"""Distances that a function of the user computes, block by block."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array, Spans
from streameval.errors import InputError, OptionError, entry_point
from streameval.metrics.options import is_count
from streameval.planning.problem import Data
from streameval.source import Input
from streameval.sources.distances import MatrixSource
from streameval.sources.tiled import convert
from streameval.typing import AnyArray, FloatingArray, Span

Function = Callable[[slice, slice], npt.ArrayLike]


class FunctionArray(Array):
    """What a function returns, read by blocks; recognised by the name that the user gives it."""

    dtype, chunks = np.dtype(np.float64), (1, 4096)

    def __init__(self, function: Function, shape: tuple[int, int], name: str | None) -> None:
        self.uri = name or str(getattr(function, "__name__", type(function).__name__))
        self.shape, self._function, self._name = shape, function, name

    @property
    def identity(self) -> str:
        """Its name.

        Raises
        ------
        OptionError
            If it has none.
        """
        if self._name is None:
            raise OptionError(
                f"function {self.uri} has no name, and a checkpoint can't tell it from others: "
                "give Computed(function, shape, name=...)"
            )
        return self._name

    def _reading(self, spans: Spans) -> AbstractContextManager[None]:
        return nullcontext()  # an error of the function is the user's to see

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        queries, items = spans
        given = np.asarray(self._function(slice(*queries), slice(*items)))
        name = f"function {self.uri} {self.shape}"
        if given.shape != out.shape or given.dtype.kind not in "fiu":
            raise InputError(
                f"{name} returned {given.dtype} {given.shape} for queries {queries[0]}:"
                f"{queries[1]} and items {items[0]}:{items[1]}; numbers {out.shape} are needed"
            )
        convert(given, self.dtype, name, np.arange(*queries), items[0], out)


class Computed(MatrixSource):
    """Distances computed by a function, block by block.

    The values are compared exactly, as float64.

    Parameters
    ----------
    function : callable
        ``f(queries: slice, items: slice)`` returns the distances [m, n] of these queries to these
        gallery items, floats or integers; smaller is closer. It is called from several threads
        and must return the same values at each call. On a cluster it must be picklable.
    shape : (int, int)
        (Q, G).
    name : str, optional
        Identifies the function and its data. Required for a checkpoint: only a run with the same
        name resumes it.

    Raises
    ------
    InputError
        If `function` is not callable, or `shape` is not two numbers.
    """

    remedy, dtype, chunks = "correct the function", FunctionArray.dtype, FunctionArray.chunks

    @entry_point
    def __init__(
        self,
        function: Function,
        shape: tuple[int, int],
        name: str | None = None,
    ) -> None:
        if not callable(function):
            kind = type(function).__name__  # type: ignore[unreachable]
            raise InputError(f"function is of type {kind}; a callable f(queries, items) is needed")
        if np.shape(shape) != (2,) or not all(size == 0 or is_count(size) for size in shape):
            raise InputError(f"shape is {shape!r}; the numbers of queries and items are needed")
        self.function, self._shape, self._name = function, (int(shape[0]), int(shape[1])), name
        self._array = FunctionArray(function, self._shape, name)
        self.name = f"function {self._array.uri} {self._shape}"

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

    def inputs(self) -> tuple[Input, ...]:
        """Return the function; what it reads is its own."""
        return (Input("function", "function", self._array),)

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return f"{self.name} has {self.shape[0]} queries", f"{self.name} has {self.shape[1]} items"

    def data(self) -> Data:
        """Return the sizes of a block and of what the function returns."""
        return Data(0, 8, 8, lambda rows, columns: 0, self.chunks)

    def write(self, queries: Span, items: Span, out: FloatingArray) -> None:
        """Write what the function returns for a block, as float64."""
        self._array.read(queries, items, out=out)
