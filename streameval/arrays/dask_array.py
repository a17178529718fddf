"""Dask arrays: a block is read by computing the chunks that it lies in, in the reading thread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, product
from threading import local
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from streameval.arrays.array import Shape, Spans, chunks_of_block, native_dtype, slices, stretches
from streameval.arrays.objects import ObjectArray
from streameval.errors import InputError
from streameval.protocols.labels import as_numpy
from streameval.typing import AnyArray, IntArray, Span

_COPIES = 3  # of a chunk that is computed: with what it is computed from
_BATCH_BYTES = 4 << 20  # of chunks that are computed together: a computation takes 20 ms to begin


class DaskArray(ObjectArray):
    """A Dask array; chunks that a block covers in part are kept for the block below it.

    Plans cut tasks along `edges`, so that each chunk is computed once a pass.
    """

    kind = "Dask array"
    edges: tuple[IntArray, ...]

    def __init__(self, held: Any, name: str | None = None) -> None:
        super().__init__(held, name)
        if any(math.isnan(size) for size in held.shape):
            raise InputError(
                f"{self.uri} has shape {held.shape}, and the number of rows is needed: call "
                "compute_chunk_sizes() on it"
            )
        self.shape = tuple(held.shape)
        self.dtype = native_dtype(self.uri, self.shape, held.dtype)
        self.chunks = tuple(max(1, *sizes) for sizes in held.chunks)
        self.edges = tuple(np.cumsum(sizes, dtype=np.int64) for sizes in held.chunks)
        self._known: WeakValueDictionary[Shape, AnyArray] = WeakValueDictionary()
        self._kept = local()  # each thread's own: another may be slow to read the rest of a chunk

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return an upper estimate of the chunks that are held while a block is read."""
        block = (rows, columns)[: len(self.shape)]
        touched, whole = chunks_of_block(block, self.shape, self.chunks)
        even = all(len(set(sizes[:-1])) < 2 for sizes in self._held.chunks)
        kept = touched - whole if even else touched
        held = min(touched, self._batch) + kept + _COPIES
        return held * math.prod(self.chunks) * self.dtype.itemsize

    @property
    def _batch(self) -> int:
        """Chunks that are computed together."""
        return max(_BATCH_BYTES // (math.prod(self.chunks) * self.dtype.itemsize), 1)

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        kept: dict[Shape, AnyArray] = {}
        for at, values in self._computed(product(*map(_touched, self.edges, spans))):
            source, target = [], []
            for (start, stop), (begin, end) in zip(spans, self._spans_of(at), strict=True):
                low, high = max(start, begin), min(stop, end)
                source.append(slice(low - begin, high - begin))
                target.append(slice(low - start, high - start))
            out[tuple(target)] = values[tuple(source)]
            if self.edges[0][at[0]] > spans[0][1]:
                kept[at] = values
        self._kept.chunks = kept

    def _take(self, out: AnyArray, rows: IntArray) -> None:
        row_of_chunks = np.searchsorted(self.edges[0], rows, side="right")
        wanted = {int(row_of_chunks[own.start]): own for own in stretches(row_of_chunks)}
        others = (_touched(edges, (0, int(edges[-1]))) for edges in self.edges[1:])
        for at, values in self._computed(product(wanted, *others)):
            (begin, _), *columns = self._spans_of(at)
            own = wanted[at[0]]
            out[own, *slices(tuple(columns))] = values[rows[own] - begin]

    def _spans_of(self, at: Shape) -> Spans:
        """Return the spans of a chunk."""
        ends = zip(self.edges, at, strict=False)
        return tuple((int(edges[k - 1]) if k else 0, int(edges[k])) for edges, k in ends)

    def _computed(self, cells: Iterable[Shape]) -> Iterator[tuple[Shape, AnyArray]]:
        """Yield some chunks; those that no thread keeps are computed, a batch at a time."""
        from dask.base import compute

        cells = iter(cells)
        while batch := list(islice(cells, self._batch)):
            found = {at: values for at in batch if (values := self._known.get(at)) is not None}
            missing = [at for at in batch if at not in found]
            parts = [self._held.blocks[at] for at in missing]
            # Here, whatever scheduler or cluster is the default: its threads are ours.
            made = compute(*parts, scheduler="synchronous") if parts else ()
            for at, values in zip(missing, made, strict=True):
                found[at] = self._known[at] = self._checked(at, values)
            yield from found.items()

    def _checked(self, at: Shape, computed: Any) -> AnyArray:
        """Return a computed chunk as what the graph declares it to be."""
        values = as_numpy(computed, f"{self.uri} chunk {at}")
        shape = tuple(stop - start for start, stop in self._spans_of(at))
        # NumPy takes float64 for safe for int64, of which it holds values up to 2^53 alone.
        rounded = values.dtype.kind in "iu" and values.itemsize == 8 and self.dtype.kind == "f"
        if values.shape != shape or rounded or not np.can_cast(values.dtype, self.dtype, "safe"):
            raise InputError(
                f"{self.uri} chunk {at} is computed as {type(computed).__name__} of {values.dtype} "
                f"{values.shape}, and the array declares {self.dtype} {shape}: declare dtype and "
                "chunks as they are, in map_blocks, say"
            )
        return np.asarray(values, self.dtype)

    @contextmanager
    def _reading(self, spans: Spans) -> Iterator[None]:
        try:
            with super()._reading(spans):
                yield
        except InputError as error:  # its cause may be in a function of the caller
            error.shows_cause = error.__cause__ is not None
            raise

    def _remedy(self, error: Exception) -> str:
        return (
            "its chunks there can't be computed in this process: mend what computes them; of an "
            "array that was persisted on a cluster, store it as Zarr, and give the path"
        )


def _touched(edges: IntArray, span: Span) -> list[int]:
    """Return the chunks that a span, which is not empty, lies in; of chunks that are not empty."""
    first, last = np.searchsorted(edges, span[0], side="right"), np.searchsorted(edges, span[1])
    sizes = np.diff(edges, prepend=0)[first : last + 1]
    return [int(first + k) for k in np.flatnonzero(sizes)]
