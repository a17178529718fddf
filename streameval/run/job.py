"""The job: what all tasks of an evaluation share."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from streameval.arrays.identity import Files
from streameval.arrays.witness import Readings
from streameval.kernels.matrix_unit import LINE_BYTES
from streameval.planning.plan import Plan
from streameval.protocols.classes import ItemClasses
from streameval.protocols.views import rows_at
from streameval.run.share import Share
from streameval.source import Source
from streameval.typing import AnyArray, BoolArray, ByteArray, FloatArray, IntArray, Span

if TYPE_CHECKING:
    from streameval.sources.tiled import TiledSource

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class PairPart:
    """Listed pairs whose distances are computed together.

    Attributes
    ----------
    queries : (int, int)
        The block of queries that they belong to.
    gallery : (int, int)
        The gallery range that they are read from.
    query : [p] integers
        Counted from the block's first.
    item : [p] integers
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
    """What all tasks of an evaluation share, or of several evaluations of one source.

    Attributes
    ----------
    source : Source
    plan : Plan
    shares : tuple of Share
        What is counted. A single one of all queries and items counts tiles as they are; several
        count a part of each tile.
    first : int
        The first query, of a round.
    known : Readings
        Rows of the inputs that were read in an earlier pass.
    files : tuple of Files
        Of the inputs, before they were opened.
    cache : Cache
        What the tasks of a process share; left behind where the job is sent to another.
    """

    source: Source
    plan: Plan
    shares: tuple[Share, ...] = ()
    first: int = 0
    known: Readings = field(default_factory=Readings)
    files: tuple[Files, ...] = ()
    cache: Cache = field(default_factory=Cache)

    @property
    def tiled(self) -> TiledSource:
        """The source, in passes over tiles and listed pairs."""
        return cast("TiledSource", self.source)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what a worker has no use for: the list of all tasks; see `Cache`, too."""
        state = {name: value for name, value in vars(self).items() if name != "junk"}
        return state | {"plan": replace(self.plan, tasks=())}

    @property
    def sole(self) -> Share | None:
        """The only share, if it counts tiles as they are."""
        return self.shares[0] if len(self.shares) == 1 and self.shares[0].view.whole else None

    @cached_property
    def junk(self) -> BoolArray:
        """Gallery items that no query of any share ranks, [G] bool."""
        if self.sole is not None:
            return self.sole.pairs.junk
        junk: BoolArray = np.ones(self.source.shape[1], np.bool_)
        for share in self.shares:
            items = share.view.items
            junk[slice(None) if items is None else items] &= share.pairs.junk
        return junk

    @property
    def classes(self) -> ItemClasses:
        """The classes whose items tiles rule out."""
        return ItemClasses.none(0, 0) if self.sole is None else self.sole.pairs.classes

    def offset_rows(self, start: int, stop: int) -> IntArray:
        """Return the row of ``Columns.offset`` that serves each of some queries, [m]."""
        if self.sole is None:
            return np.zeros(stop - start, np.int64)
        own = self.classes.query[start - self.first : stop - self.first]
        return own.astype(np.int64)

    def asked(self, queries: Span) -> IntArray:
        """Return which of some queries any share counts, numbered from the first, ascending."""
        asked = np.zeros(queries[1] - queries[0], np.bool_)
        for share in self.shares:
            first, last = share.view.spans(queries, (0, 0))[0]
            asked[rows_at(share.view.queries, np.arange(first, last)) - queries[0]] = True
        return np.flatnonzero(asked)

    def check_unit(self, norms: FloatArray) -> None:
        """Raise NotUnitError for vectors that are not of length 1, where a range relies on it."""
        for share in self.shares:
            share.thresholds.range.check_unit(norms)

    def stage(self, name: str) -> str:
        """Return the name of a stage: of a pass, and of a round after the first."""
        return f"{name} {self.first}" if self.first else name

    @property
    def only(self) -> Share:
        """The share of a job that has one."""
        (share,) = self.shares
        return share

    def counting(self, share: Share) -> Job:
        """Return the job of another share."""
        return replace(self, shares=(share,), cache=Cache())
