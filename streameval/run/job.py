"""The job: what all tasks of an evaluation share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streameval.kernels.filtering import Operand, prepare_queries
from streameval.kernels.masks import column_offsets
from streameval.kernels.matrix_unit import LINE_BYTES
from streameval.kernels.tiles import Columns
from streameval.planning import Plan
from streameval.planning.range import UNIT_TOLERANCE, NotUnitError, Range
from streameval.protocols.pairs import Pairs
from streameval.single_shot.identities import Identities
from streameval.source import Source
from streameval.statistics import FloatArray, IntArray

if TYPE_CHECKING:
    from streameval.neighbors.source import Neighbors
    from streameval.sources.sources import Distances, Features


@dataclass(frozen=True, eq=False)
class Positives:
    """The positives of every query, ascending in distance, then in gallery index.

    Attributes
    ----------
    indptr : [Q + 1] int64
    distance : [P] float64
    item : [P] int64
    """

    indptr: IntArray
    distance: FloatArray
    item: IntArray

    @classmethod
    def sort(cls, indptr: IntArray, distance: FloatArray, item: IntArray) -> Positives:
        """Sort within each query; within a query, `item` is ascending already."""
        query = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((item, distance, query))
        return cls(indptr, distance[order], item[order])

    def block(self, start: int, stop: int) -> Positives:
        """Return the positives of some of the queries."""
        begin, end = self.indptr[start], self.indptr[stop]
        return Positives(
            self.indptr[start : stop + 1] - begin, self.distance[begin:end], self.item[begin:end]
        )


@dataclass(frozen=True, eq=False)
class Shots:
    """What single gallery shot draws from.

    Attributes
    ----------
    identities : Identities
        Of which one item each is drawn.
    draws : int
        How often, beside the exact expectation; 0 for that alone.
    seed : int
        Of the draws.
    entries : int
        The most that a query leaves in the list of negatives ahead: see `most_entries`.
    """

    identities: Identities
    draws: int
    seed: int
    entries: int


@dataclass(frozen=True, eq=False)
class PositivePart:
    """Positive pairs whose distances are computed together.

    Attributes
    ----------
    queries : (int, int)
        The block of queries that they belong to.
    query : [p] int64
        Counted from the block's first.
    item : [p] int64
        Gallery index, ascending.
    """

    queries: tuple[int, int]
    query: IntArray
    item: IntArray

    def __str__(self) -> str:
        """Name it as people do: ``queries 0:1024, positives in gallery 5:731``."""
        first, last = self.queries
        return f"queries {first}:{last}, positives in gallery {self.item[0]}:{self.item[-1] + 1}"


class Buffers:
    """Memory that is lent to one task after the other: fresh memory costs as much as reading."""

    def __init__(self) -> None:
        self._idle: dict[str, list[npt.NDArray[np.uint8]]] = {}
        self._lock = Lock()

    @contextmanager
    def lend(
        self, use: str, shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> Iterator[npt.NDArray[Any]]:
        """Lend an array, uninitialised, for as long as the context lasts; it begins a cache line.

        Parameters
        ----------
        use : str
            Arrays of one use are of about one size.
        shape : tuple of int
        dtype : numpy dtype
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            idle = self._idle.setdefault(use, [])
            memory = idle.pop() if idle else np.empty(0, np.uint8)
        if memory.size < size + LINE_BYTES:
            memory = np.empty(size + LINE_BYTES, np.uint8)
        start = -memory.ctypes.data % LINE_BYTES
        try:
            yield memory[start : start + size].view(dtype).reshape(shape)
        finally:
            with self._lock:
                idle.append(memory)


@dataclass(frozen=True, eq=False)
class Job:
    """What all tasks of an evaluation share.

    Attributes
    ----------
    source : Features, Distances or Neighbors
    pairs : Pairs
    plan : Plan
    range : Range
    thresholds : [T] float64
    histogram_edges : [E] float64, optional
        Where impostors are counted in a histogram.
    positives : Positives, optional
        None before they are known; a strip of a stored matrix finds its own.
    shots : Shots, optional
        Where one item is drawn of each gallery identity; tasks see the whole gallery then.
    groups : [Q] int64, optional
        Which group each query is in, where the histogram is kept by group, too.
    near : int
        How many of the nearest negatives of each query are to be found; 0 for none.
    reach : [Q] float64, optional
        Only those no further than this are looked for. Tasks in one process lower it as they go:
        no more than `near` distances below it are ever wanted.
    buffers : Buffers
        Memory that one task after the other reads into.
    """

    source: Source
    pairs: Pairs
    plan: Plan
    range: Range
    thresholds: FloatArray
    histogram_edges: FloatArray | None = None
    positives: Positives | None = None
    shots: Shots | None = None
    groups: IntArray | None = None
    near: int = 0
    reach: FloatArray | None = None
    buffers: Buffers = field(default_factory=lambda: Buffers())
    _operands: dict[tuple[int, int], Operand] = field(default_factory=dict)
    _columns: dict[tuple[int, int], Columns] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __reduce__(self) -> tuple[type[Job], tuple[Any, ...]]:
        """Leave behind what a worker has no use for: memory, and the list of all tasks."""
        plan = replace(self.plan, tasks=())
        return Job, (
            self.source,
            self.pairs,
            plan,
            self.range,
            self.thresholds,
            self.histogram_edges,
            self.positives,
            self.shots,
            self.groups,
            self.near,
            self.reach,
        )

    @cached_property
    def undecided(self) -> npt.NDArray[np.bool_]:
        """Queries whose pairs a filter in float64 was tried on, and could not decide, [Q].

        Noted by one task for those that follow, none of which has to know.
        """
        return np.zeros(self.pairs.queries, np.bool_)

    @property
    def features(self) -> Features:
        """The source, where it is features."""
        from streameval.sources.sources import Features

        if not isinstance(self.source, Features):
            raise TypeError("the source of this job is no features")
        return self.source

    @property
    def distances(self) -> Distances:
        """The source, where it is a stored matrix."""
        from streameval.sources.sources import Distances

        if not isinstance(self.source, Distances):
            raise TypeError("the source of this job is no stored matrix")
        return self.source

    @property
    def neighbors(self) -> Neighbors:
        """The source, where it is neighbours."""
        from streameval.neighbors.source import Neighbors

        if not isinstance(self.source, Neighbors):
            raise TypeError("the source of this job is no neighbours")
        return self.source

    def query_operand(self, source: Features, start: int, stop: int) -> Operand:
        """Return the queries of a block, prepared; kept for the next task of the same block."""
        with self._lock:
            if (start, stop) not in self._operands:
                self._operands.clear()
                rows, norms = source.read_query(start, stop)
                self.check_unit(norms)
                self._operands[start, stop] = prepare_queries(rows, norms, source.metric)
            return self._operands[start, stop]

    def matrix_columns(self, start: int, stop: int) -> Columns:
        """Return what is known of columns of a stored matrix; kept for the next strip."""
        with self._lock:
            if (start, stop) not in self._columns:
                self._columns.clear()
                pairs, item = self.pairs, np.arange(start, stop)
                zero, camera = np.zeros(len(item), self.distances.dtype), pairs.gallery_camera
                own = None if camera is None else camera[start:stop]
                offset = column_offsets(zero, pairs.junk[start:stop], own, pairs.cameras)
                self._columns[start, stop] = Columns(item, zero + 1, offset)
            return self._columns[start, stop]

    def check_unit(self, norms: FloatArray) -> None:
        """Raise `NotUnitError` where the range relies on unit vectors and these are not."""
        if self.range.unit and np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            raise NotUnitError
