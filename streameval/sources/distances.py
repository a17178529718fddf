"""Distances that are given block by block, as of a stored matrix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streameval.errors import BadRowError, InputError, entry_point
from streameval.kernels.limits import Wanted
from streameval.kernels.tiles import Columns, Tile, all_finite, column_offsets
from streameval.planning.plan import Plan, Task, pieces, plural
from streameval.planning.problem import Data
from streameval.protocols.labels import Labels
from streameval.run.job import Job, PairPart
from streameval.run.progress import Watch
from streameval.source import Input, PlanText
from streameval.sources.tiled import (
    MOST_ITEMS,
    ArrayLike,
    Chosen,
    TiledSource,
    convert,
    data_of,
    open_matrix,
    working_dtype,
)
from streameval.stretches import rows_of
from streameval.typing import FloatArray, FloatingArray, IntArray, Span

LAYOUTS = {
    "strips": "strips: whole rows of the matrix, each read once",
    "rectangles": "rectangles along the chunks of the matrix, once their positives are known",
}


class MatrixSource(TiledSource):
    """Distances of queries and gallery items, given block by block.

    Attributes
    ----------
    dtype : numpy dtype
        Of the blocks, float32 or float64.
    chunks : (int, int)
        Queries and items that are read together.
    name : str
        What errors call the source.
    remedy : str
        What to do about a distance that is not finite.
    """

    dtype: np.dtype[Any]
    chunks: tuple[int, int]
    name: str
    remedy: ClassVar[str]

    def options(self) -> Mapping[str, Any]:
        """Return nothing: distances are what they are."""
        return {}

    def describe_plan(self, plan: Plan) -> PlanText:
        """Return in words what is read at a time."""
        tile = f"{plan.tile[0]:,} rows × {plural(plan.tile[1], 'column')}"
        return PlanText(LAYOUTS[plan.layout], tile)

    @abstractmethod
    def write(self, queries: Span, items: Span, out: FloatingArray) -> None:
        """Write a block of distances.

        Parameters
        ----------
        queries, items : (int, int)
            Start and stop.
        out : [m, n] array, written
            Of `dtype`.
        """

    def read(self, queries: Span, items: Span) -> FloatingArray:
        """Return a block, once it is known to be finite.

        Raises
        ------
        BadRowError
            If a distance is not finite; names the first.
        """
        block: FloatingArray = np.empty((queries[1] - queries[0], items[1] - items[0]), self.dtype)
        self.write(queries, items, block)
        if not all_finite(block):
            bad = np.argwhere(~np.isfinite(block))
            row, column = queries[0] + bad[0, 0], items[0] + bad[0, 1]
            raise BadRowError(
                f"{self.name} holds {block[tuple(bad[0])]} in row {row}, column {column}: "
                f"distances must be finite; {self.remedy}",
                row,
            )
        return block

    def first_bad_row(self, stop: int) -> None:
        """Raise for the first row below `stop` that can't be evaluated, if there is one.

        Raises
        ------
        BadRowError
        """
        for queries in pieces((0, stop), self.chunks[0]):
            self.first_bad_entry(queries, (0, self.shape[1]))

    def first_bad_entry(self, queries: Span, items: Span) -> None:
        """Raise for the first entry of a block that is not finite, if there is one.

        The block is read by columns of chunks: it may be as large as memory allows to hold once.

        Raises
        ------
        BadRowError
        """
        errors = []
        for part in pieces(items, self.chunks[1]):
            try:
                self.read(queries, part)
            except BadRowError as error:
                errors.append(error)
        if errors:
            raise min(errors, key=lambda error: error.row)

    def tiles(
        self,
        job: Job,
        task: Task,
        watch: Watch,
        *,
        check: bool = True,
        wanted: Wanted | None = None,
    ) -> Iterator[Tile]:
        """Yield the tiles of a task; the values are overwritten by the next tile."""
        row = job.offset_rows(*task.queries)
        for items in pieces(task.gallery, max(job.plan.block, 1)) or [task.gallery]:
            locate: Callable[[], None] = partial(self.first_bad_entry, task.queries, items)
            key = (items, self.dtype)
            columns = job.cache.once("columns", key, partial(self._columns, job, items))
            with self._block(job, task.queries, items) as block:
                if check and not all_finite(block):
                    locate()
                yield Tile(block, np.arange(len(block)), row, columns, locate=locate)
                watch.advance(block.size)

    def distance_blocks(
        self, queries: Sequence[int], block_bytes: int
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield the distances of a few queries, by whole columns of chunks."""
        most = min(block_bytes // (max(len(queries), 1) * self.dtype.itemsize), MOST_ITEMS)
        step = max(most // self.chunks[1], 1) * self.chunks[1]
        for items in pieces((0, self.shape[1]), step):
            rows = [self.read((query, query + 1), items) for query in queries]
            yield items[0], np.concatenate(rows).astype(np.float64)

    @contextmanager
    def _block(self, job: Job, queries: Span, items: Span) -> Iterator[FloatingArray]:
        """Lend a block of distances."""
        shape = queries[1] - queries[0], items[1] - items[0]
        with job.cache.lend("strip", shape, self.dtype) as block:
            self.write(queries, items, block)
            yield block

    def _columns(self, job: Job, items: Span) -> Columns:
        span, classes = slice(*items), job.classes
        zero = np.zeros(items[1] - items[0], self.dtype)
        offset = column_offsets(zero, job.junk[span], classes.count, classes.ignored_rows(span))
        return Columns(np.arange(*items), None, offset)

    def pair_parts(self, plan: Plan, indptr: IntArray, item: IntArray) -> list[Chosen]:
        """Cut listed pairs by the rectangles of a plan: which of the pairs, and the part."""
        parts, first = [], plan.queries[0]
        for task in plan.tasks:
            begins = indptr[task.queries[0] - first : task.queries[1] - first + 1]
            listed, (left, right) = slice(begins[0], begins[-1]), task.gallery
            inside = (item[listed] >= left) & (item[listed] < right)
            own = listed.start + np.flatnonzero(inside)
            where = rows_of(begins - listed.start)[inside], item[own]
            parts.append((own, PairPart(task.queries, task.gallery, *where, task.pairs, str(task))))
        return parts

    def pair_distances(self, job: Job, part: PairPart) -> FloatArray:
        """Return the canonical distances of the listed pairs in a rectangle, [p] float64."""
        distances = np.empty(len(part.item))
        for items in pieces(part.gallery, max(job.plan.block, 1)):
            inside = np.flatnonzero((part.item >= items[0]) & (part.item < items[1]))
            if not inside.size:
                continue
            with self._block(job, part.queries, items) as block:
                # Whether all are finite is seen when they are counted.
                distances[inside] = block[part.query[inside], part.item[inside] - items[0]]
            if not np.isfinite(distances[inside]).all():
                self.first_bad_entry(part.queries, items)
        return distances


class Distances(MatrixSource):
    """A stored distance matrix, queries by gallery.

    Parameters
    ----------
    matrix : str, Path or [Q, G] array
        float16, float32, float64 or integers, as of `Features`.
    name, fill_missing : optional
        As of `Features`.

    Raises
    ------
    InputError
        If the array is not 2-d or not numeric.
    """

    remedy = "compute that row again"

    @entry_point
    def __init__(
        self, matrix: ArrayLike, name: str | None = None, *, fill_missing: bool = False
    ) -> None:
        meaning = "a row a query, a column a gallery item"
        self.matrix = open_matrix(matrix, "distances", meaning, name, fill_missing=fill_missing)
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

    def pair_parts(self, plan: Plan, indptr: IntArray, item: IntArray) -> list[Chosen]:
        """Cut listed pairs into as many parts as there are tasks.

        Where entries are read by themselves, chunk by chunk: each is opened about once.
        """
        if self.matrix.grain is None:
            return super().pair_parts(plan, indptr, item)
        query, (high, wide) = plan.queries[0] + rows_of(indptr), self.chunks
        order = np.argsort(query // high * self.shape[1] + item // wide, kind="stable")
        parts: list[Chosen] = []
        for own in np.array_split(order, min(len(plan.tasks), max(len(order), 1))):
            queries, gallery = _span_of(query[own]), _span_of(item[own])
            name = f"queries {queries[0]}:{queries[1]}, positives in gallery "
            name += f"{gallery[0]}:{gallery[1]}"
            where = query[own] - queries[0], item[own]
            parts.append((own, PairPart(queries, gallery, *where, len(own), name)))
        return parts

    def pair_distances(self, job: Job, part: PairPart) -> FloatArray:
        """Return the canonical distances of the listed pairs of a part, [p] float64."""
        if self.matrix.grain is None:
            return super().pair_distances(job, part)
        rows, distances = part.query + part.queries[0], np.empty(len(part.item))
        given = self.matrix.entries(rows, part.item)
        convert(given[:, None], np.float64, self.name, rows, out=distances[:, None])
        for pair in np.flatnonzero(~np.isfinite(distances))[:1].tolist():
            row, column = int(rows[pair]), int(part.item[pair])
            self.first_bad_entry((row, row + 1), (column, column + 1))
        return distances

    def write(self, queries: Span, items: Span, out: FloatingArray) -> None:
        """Write a block of the matrix; without a copy, where its dtype is that of the block."""
        same = out if self.matrix.dtype == self.dtype else None
        stored = self.matrix.read(queries, items, out=same)
        if not np.may_share_memory(stored, out):
            convert(stored, self.dtype, self.name, np.arange(*queries), items[0], out)


def _span_of(values: IntArray) -> Span:
    """Return the least of some values, and the end behind the greatest; (0, 0) of none."""
    return (int(values.min()), int(values.max()) + 1) if len(values) else (0, 0)
