"""The job: what all tasks of an evaluation share."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from streameval.arrays.identity import Files
from streameval.arrays.witness import Readings
from streameval.kernels.edges import Positives
from streameval.kernels.identities import GalleryIdentities
from streameval.kernels.matrix_unit import LINE_BYTES
from streameval.planning.plan import Plan
from streameval.planning.range import Range
from streameval.protocols.classes import ItemClasses
from streameval.protocols.pairs import Pairs
from streameval.single_shot.counter import Shots
from streameval.source import Source
from streameval.typing import AnyArray, BoolArray, ByteArray, FloatArray, IntArray, Span

if TYPE_CHECKING:
    from streameval.sources.tiled import TiledSource

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The distances that negatives are counted at, beside the positives.

    Attributes
    ----------
    range : Range
    values : [T] float64
        Ascending; may end in +inf.
    histogram : [E] float64, optional
        The edges of the histogram of impostors.
    """

    range: Range = field(default_factory=lambda: Range(0.0, 1.0))
    values: FloatArray = field(default_factory=lambda: np.empty(0))
    histogram: FloatArray | None = None

    @property
    def edges(self) -> FloatArray:
        """Thresholds and the edges of the histogram, ascending."""
        return self.values if self.histogram is None else np.union1d(self.values, self.histogram)

    def outside(self, distance: FloatArray) -> BoolArray:
        """Mask of distances before τ = 0 or beyond τ = 1."""
        outside: BoolArray = distance < self.range.low
        outside |= distance > self.values[-1]
        return outside


@dataclass(frozen=True, eq=False)
class Near:
    """The search for the nearest negatives of each query.

    Attributes
    ----------
    most : int
        How many of each query.
    reach : [Q] float64
        Only those no further than this are looked for. Tasks in one process lower it as they go:
        no more than `most` distances below it are ever wanted.
    """

    most: int
    reach: FloatArray


@dataclass(frozen=True, eq=False)
class PairPart:
    """Listed pairs whose distances are computed together.

    Attributes
    ----------
    queries : (int, int)
        The block of queries that they belong to.
    gallery : (int, int)
        The gallery range that they are read from.
    query : [p] int64
        Counted from the block's first.
    item : [p] int64
        Gallery index.
    pairs : int
        What is worked off: the pairs, or the rectangle that is read for them.
    name : str
        ``queries 0:1024, positives in gallery 5:731``.
    """

    queries: Span
    gallery: Span
    query: IntArray
    item: IntArray
    pairs: int
    name: str

    def __str__(self) -> str:
        return self.name


class Cache:
    """Memory and values that the tasks of a process share.

    Memory is lent to one task after the other: fresh memory costs as much as reading.
    """

    def __init__(self) -> None:
        self._idle: dict[str, list[ByteArray]] = {}
        self._kept: dict[str, tuple[Hashable, Any]] = {}
        self._lock = Lock()

    @contextmanager
    def lend(
        self, use: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8
    ) -> Iterator[AnyArray]:
        """Lend an uninitialised array that begins a cache line, while the context lasts.

        Parameters
        ----------
        use : str
            Arrays of one use are of about one size.
        shape : tuple of int
        dtype : numpy dtype
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        idle = self._idle.setdefault(use, [])
        try:
            memory = idle.pop()
        except IndexError:
            memory = np.empty(0, np.uint8)
        if memory.size < size + LINE_BYTES:
            memory = np.empty(size + LINE_BYTES, np.uint8)
        start = -memory.ctypes.data % LINE_BYTES
        try:
            yield memory[start : start + size].view(dtype).reshape(shape)
        finally:
            idle.append(memory)

    def __reduce__(self) -> tuple[type[Cache], tuple[()]]:
        """Leave the memory behind."""
        return Cache, ()

    def once(self, use: str, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what `make` has made for a key; of each use, the latest is kept."""
        with self._lock:
            kept = self._kept.get(use)
            if kept is None or kept[0] != key:
                self._kept.pop(use, None)  # its memory is free before more is taken
                kept = self._kept[use] = key, make()
            made: Made = kept[1]
            return made


@dataclass(frozen=True, eq=False)
class Job:
    """What all tasks of an evaluation share.

    Attributes
    ----------
    source : Source
    pairs : Pairs
    plan : Plan
    thresholds : Thresholds
    positives : Positives, optional
        None before they are known; a strip of a stored matrix finds its own.
    found : [P] float64, optional
        Their distances in the order of pairs, where tiles must hold the same.
    identities : GalleryIdentities or Shots, optional
        Where CMC counts gallery identities; tasks see the whole gallery then.
    groups : [Q] int64, optional
        Which group each query is in, where the histogram is kept by group, too.
    near : Near, optional
        Where the nearest negatives of each query are to be found.
    known : Readings
        Rows of the inputs that were read in an earlier pass.
    files : tuple of Files
        Of the inputs, before they were opened.
    cache : Cache
        What the tasks of a process share; left behind where the job is sent to another.
    """

    source: Source
    pairs: Pairs
    plan: Plan
    thresholds: Thresholds = field(default_factory=Thresholds)
    positives: Positives | None = None
    found: FloatArray | None = None
    identities: GalleryIdentities | Shots | None = None
    groups: IntArray | None = None
    near: Near | None = None
    known: Readings = field(default_factory=Readings)
    files: tuple[Files, ...] = ()
    cache: Cache = field(default_factory=Cache)

    @property
    def tiled(self) -> TiledSource:
        """The source, in passes over tiles and listed pairs."""
        return cast("TiledSource", self.source)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what a worker has no use for: the list of all tasks; see `Cache`, too."""
        return vars(self) | {"plan": replace(self.plan, tasks=())}

    @property
    def first(self) -> int:
        """The first query of the pairs and positives, which are of one round."""
        return self.pairs.first

    def offset_rows(self, start: int, stop: int) -> IntArray:
        """Return the row of ``Columns.offset`` that serves each of some queries, [m]."""
        return self.pairs.classes.query[start - self.first : stop - self.first].astype(np.int64)

    def stage(self, name: str) -> str:
        """Return the name of a stage: of a pass, and of a round after the first."""
        return f"{name} {self.first}" if self.first else name

    def pairs_of(self, queries: Span) -> Pairs:
        """Return the pairs of some queries."""
        return self.pairs.block(queries[0] - self.first, queries[1] - self.first)

    def positives_of(self, queries: Span) -> Positives:
        """Return the positives of some queries."""
        known = self.known_positives()
        return known.block(queries[0] - self.first, queries[1] - self.first)

    def with_every_pair(self) -> Job:
        """Return the job of the same queries and items, where no pair is ignored."""
        pairs = self.pairs
        classes = ItemClasses.none(pairs.queries, pairs.gallery)
        positive, junk = np.ones_like(pairs.positive), np.zeros_like(pairs.junk)
        pairs = replace(pairs, positive=positive, junk=junk, classes=classes)
        return replace(self, pairs=pairs, cache=Cache())

    @property
    def ranks_alone(self) -> bool:
        """Whether nothing is counted beside ranks and the nearest negative."""
        return not self.thresholds.edges.size and self.identities is None and self.near is None

    def known_positives(self) -> Positives:
        """Return the positives of all queries."""
        if self.positives is None:
            raise RuntimeError("the positives are not known")
        return self.positives
