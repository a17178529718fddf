"""Distances that a function of the user computes, block by block."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OptionError, entry_point
from streameval.metrics.options import is_count
from streameval.planning.problem import Data
from streameval.source import Input
from streameval.sources.distances import MatrixSource
from streameval.sources.tiled import convert
from streameval.typing import FloatingArray, Span


@dataclass(frozen=True, eq=False)
class FunctionInput(Input):
    """A function, identified by the name that the user gives it, if any."""

    named: bool = False

    def fingerprint(self) -> str:
        """Return the name; raise OptionError if there is none."""
        if not self.named:
            raise OptionError(
                f"function {self.uri} has no name, and a checkpoint can't tell it from others: "
                "give Computed(function, shape, name=...)"
            )
        return self.uri


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

    remedy, dtype, chunks = "correct the function", np.dtype(np.float64), (1, 4096)

    @entry_point
    def __init__(
        self,
        function: Callable[[slice, slice], npt.ArrayLike],
        shape: tuple[int, int],
        name: str | None = None,
    ) -> None:
        if not callable(function):
            kind = type(function).__name__  # type: ignore[unreachable]
            raise InputError(f"function is of type {kind}; a callable f(queries, items) is needed")
        if np.shape(shape) != (2,) or not all(size == 0 or is_count(size) for size in shape):
            raise InputError(f"shape is {shape!r}; the numbers of queries and items are needed")
        self.function, self._shape, self._name = function, (int(shape[0]), int(shape[1])), name
        self._label = name or str(getattr(function, "__name__", type(function).__name__))
        self.name = f"function {self._label} {self._shape}"

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
        return (FunctionInput("function", "function", Path(self._label), named=bool(self._name)),)

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return f"{self.name} has {self.shape[0]} queries", f"{self.name} has {self.shape[1]} items"

    def data(self) -> Data:
        """Return the sizes of a block and of what the function returns."""
        return Data(0, 8, 8, lambda rows, columns: 0, self.chunks)

    def write(self, queries: Span, items: Span, out: FloatingArray) -> None:
        """Write what the function returns for a block, as float64."""
        given = np.asarray(self.function(slice(*queries), slice(*items)))
        if given.shape != out.shape or given.dtype.kind not in "fiu":
            raise InputError(
                f"{self.name} returned {given.dtype} {given.shape} for queries {queries[0]}:"
                f"{queries[1]} and items {items[0]}:{items[1]}; numbers {out.shape} are needed"
            )
        convert(given, self.dtype, self.name, np.arange(*queries), items[0], out)
