"""Features, from which distances are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from streameval.arrays.array import Array
from streameval.distances.distance import Distance, find_distance
from streameval.distances.sums import Vectors
from streameval.errors import BadRowError, InputError, entry_point
from streameval.kernels.features import ExactColumns, FeatureColumns
from streameval.kernels.limits import Wanted
from streameval.kernels.multiplier import (
    description,
    item_bytes,
    sieve_description,
    warn_of_slow_kernels,
)
from streameval.kernels.query_block import QueryBlock
from streameval.kernels.tiles import Tile, column_offsets
from streameval.planning.plan import Plan, Task, pieces, plural
from streameval.planning.problem import Data
from streameval.planning.range import UNIT_TOLERANCE, Range
from streameval.run.job import Job, PairPart
from streameval.run.progress import Watch
from streameval.source import Counted, Input, PlanText
from streameval.sources.feature_pairs import parts_of
from streameval.sources.feature_source import FeatureSource
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
from streameval.typing import (
    AnyArray,
    ByteArray,
    FloatArray,
    FloatingArray,
    IntArray,
    JsonObject,
    Span,
)

if TYPE_CHECKING:
    from streameval.run.preparation import Prepared
    from streameval.run.session import Session

# Lengths of vectors whose squares, and sums of them, are ordinary float64 numbers.
LEAST_NORM, MOST_NORM = 1e-140, 1e150
_SCANNED_ROWS = 4096
FIRST_ITEMS = 1024  # from which the first negatives within reach are known


class Features(FeatureSource, TiledSource):
    """Features of queries and gallery, from which distances are computed.

    Parameters
    ----------
    query, gallery : str, Path or [Q, D], [G, D] array
        float16, float32, float64 or integers: a URI ``path[::key]``; an array of NumPy, Zarr,
        h5py, xarray or Dask, read by blocks; a tensor of PyTorch on the CPU; a list of rows.
    metric : {"cosine", "euclidean", "sqeuclidean", "dot", "manhattan"}
        Distance between features; ``dot`` is −q·g.
    name : str, optional
        Name by which a resumed run recognises arrays without a path that are not in memory:
        Dask and xarray arrays, other stores. The caller vouches for their content.
    fill_missing : bool
        Whether what was never written of a Zarr array or an HDF5 dataset is read as its fill
        value. By default it is an error.

    Raises
    ------
    InputError
        If an array is not 2-d, not numeric, or the widths differ.
    OptionError
        If the metric is unknown.
    """

    @entry_point
    def __init__(
        self,
        query: ArrayLike,
        gallery: ArrayLike,
        metric: str = "cosine",
        name: str | None = None,
        *,
        fill_missing: bool = False,
    ) -> None:
        self.metric = find_distance(metric).name
        self.query, self.gallery = (
            open_matrix(
                array, f"{side} features", "one row an image", name, fill_missing=fill_missing
            )
            for side, array in (("query", query), ("gallery", gallery))
        )
        widths = self.query.shape[1], self.gallery.shape[1]
        if widths[0] != widths[1] or widths[0] == 0:
            raise InputError(
                f"query features {self.query.uri} are {self.query.shape}, gallery features "
                f"{self.gallery.uri} {self.gallery.shape}: both need the same number of columns, "
                "at least one"
            )
        # Both sides are worked on in one dtype that holds either exactly.
        self.dtype = np.result_type(working_dtype(self.query), working_dtype(self.gallery))

    def __repr__(self) -> str:
        return f"Features({self.query!r}, {self.gallery!r}, {self.metric!r})"

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.query.shape[0], self.gallery.shape[0]

    def inputs(self) -> tuple[Input, ...]:
        """Return the features of both sides."""
        return (
            Input("query", "query features", self.query),
            Input("gallery", "gallery features", self.gallery),
        )

    def options(self) -> JsonObject:
        """Return the metric and the number of columns."""
        return {"metric": self.metric, "width": self.width}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return (
            f"query features {self.query.uri} have {self.shape[0]} rows",
            f"gallery features {self.gallery.uri} have {self.shape[1]} rows",
        )

    def bounds(self) -> Range | None:
        """Return the bounds of the distance for any vectors, or for vectors of length 1.

        The lengths of the first queries decide; all others are checked during the passes.
        """
        if self.distance.bounds is not None:
            return Range(*self.distance.bounds)
        if self.distance.unit_bounds is None:
            return None
        norms = self.read_query(0, min(self.shape[0], 256)).norms
        if np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            return None
        return Range(*self.distance.unit_bounds, unit=True)

    def describe_plan(self, plan: Plan) -> PlanText:
        """Describe the blocks that are read and multiplied."""
        rows, items = plan.tile
        blocks = f"of blocks of {plural(plan.block, 'gallery row')}"
        return PlanText(
            "features: shards of the gallery, block by block, times blocks of queries",
            f"{rows:,} queries × {plural(items, 'item')}, {blocks}",
            description(),
            "" if self.distance.filter is None else sieve_description(self.width),
        )

    def count(self, prepared: Sequence[Prepared], session: Session) -> list[Counted]:
        """Return the statistics of all pairs; warn where products take longer than they have to."""
        plan = prepared[0].plan
        if not plan.workers:
            warn_of_slow_kernels(plan.flops / plan.threads)
        return super().count(prepared, session)

    def data(self) -> Data:
        """Return the sizes of the gallery's features."""
        exact = self.distance.filter is None
        return replace(data_of(self.gallery, self.dtype), width=self.width, exact=exact)

    @property
    def width(self) -> int:
        """Number of columns D."""
        return self.query.shape[1]

    @property
    def distance(self) -> Distance:
        """The distance of the metric's name."""
        return find_distance(self.metric)

    def read_query(self, start: int, stop: int) -> Vectors:
        """Return query rows and their norms; see `read_gallery`."""
        rows = self.query.read((start, stop))
        return self._checked(self.query, rows, np.arange(start, stop))

    def read_gallery(self, start: int, stop: int, out: AnyArray | None = None) -> Vectors:
        """Return gallery rows [n, D] in the working dtype, and their canonical norms [n].

        Parameters
        ----------
        start, stop : int
        out : [>= n, D] array, optional
            Of the gallery's dtype, to read into.

        Raises
        ------
        InputError
            If a row is not finite or, where lengths do not count, is zero; names the first.
        """
        rows = self.gallery.read((start, stop), out=out)
        return self._checked(self.gallery, rows, np.arange(start, stop))

    def take_gallery(self, rows: IntArray) -> Vectors:
        """Return the gallery rows with these ascending indices, checked as by `read_gallery`."""
        return self._checked(self.gallery, self.gallery.take(rows), rows)

    def first_bad_row(self, stop: int) -> None:
        """Raise for the first gallery row below `stop` that can't be evaluated, if there is one.

        Raises
        ------
        BadRowError
        """
        for rows in pieces((0, stop), _SCANNED_ROWS):
            self.read_gallery(*rows)

    def _checked(self, array: Array, rows: AnyArray, index: IntArray) -> Vectors:
        name = f"{array.uri} {array.shape}"
        vectors = Vectors.of(convert(rows, self.dtype, name, index))
        least = 0.0 if self.distance.uses_lengths else LEAST_NORM
        bad = np.flatnonzero(~((vectors.norms >= least) & (vectors.norms <= MOST_NORM)))
        if bad.size:
            row = int(bad[0])
            reason = _fault(vectors.rows[row], float(vectors.norms[row]))
            raise BadRowError(f"{name} row {index[row]} {reason}", index[row])
        return vectors

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
        queries = self._query_block(job, task.queries)
        (rows, items), size = job.plan.tile, len(queries.vectors.norms)
        itemsize = 8 if self.distance.filter is None else 4
        with (
            job.cache.lend("block", (job.plan.block, self.width), self.gallery.dtype) as memory,
            job.cache.lend("panels", (item_bytes(items, self.width),)) as panels,
            job.cache.lend("tile", (rows * items * itemsize,)) as buffer,
        ):
            for begin, end in pieces(task.gallery, job.plan.block):
                done = 0
                first = FIRST_ITEMS if wanted is not None and begin == task.gallery[0] else 0
                for part in self._columns(job, queries, (begin, end), first, memory, panels):
                    for tile in part.tiles(rows, buffer, wanted):
                        yield tile
                        watch.advance(tile.pairs)
                        done += tile.pairs
                watch.advance((end - begin) * size - done)  # junk, and queries that don't ask

    def _columns(
        self,
        job: Job,
        queries: QueryBlock,
        gallery: Span,
        first: int,
        memory: AnyArray,
        panels: ByteArray,
    ) -> Iterator[FeatureColumns | ExactColumns]:
        """Yield the columns of a block of the gallery, a tile's at a time; `first` ones apart."""
        vectors, item = self.read_gallery(*gallery, memory), np.arange(*gallery)
        job.check_unit(vectors.norms)
        junk = job.junk[slice(*gallery)]
        if junk.any():  # junk costs nothing in the product
            vectors, item = vectors.chosen(~junk), item[~junk]
        filter_, n = self.distance.filter, len(item)
        kind = ExactColumns if filter_ is None else FeatureColumns
        order, cuts = (
            (item, [0, n])
            if filter_ is None or filter_.normalised
            else _by_norm(queries.lengths(vectors))
        )
        if len(cuts) > 2:
            vectors, item = vectors.chosen(order), item[order]
        for span in pairwise(sorted({*cuts, min(first, n)})):
            for left, right in pieces(span, job.plan.tile[1]):
                own = item[left:right]
                zero = np.zeros(len(own), np.float32)
                classes = job.classes
                ruled_out = column_offsets(zero, None, classes.count, classes.ignored_rows(own))
                yield kind(queries, vectors.chosen(slice(left, right)), own, ruled_out, panels)

    def _query_block(self, job: Job, queries: Span) -> QueryBlock:
        """Return a block of queries, prepared; kept for the next task of the same block."""

        def prepare() -> QueryBlock:
            vectors = self.read_query(*queries)
            job.check_unit(vectors.norms)
            return QueryBlock(vectors, self.distance, job.offset_rows(*queries), job.asked(queries))

        return job.cache.once("queries", (queries, self.metric), prepare)

    def pair_parts(self, plan: Plan, indptr: IntArray, item: IntArray) -> list[Chosen]:
        """Cut listed pairs into parts whose rows of features take little memory."""
        return parts_of(plan, indptr, item, self.gallery, self.width * self.dtype.itemsize)

    def pair_distances(self, job: Job, part: PairPart) -> FloatArray:
        """Return the canonical distances of listed pairs, [p] float64."""
        queries, (start, stop) = self._query_block(job, part.queries).vectors, part.gallery
        query, row = part.query.astype(np.int64), np.subtract(part.item, start, dtype=np.int64)
        if stop - start <= len(row):  # looked up, which takes less time than sorting
            listed = np.zeros(stop - start, np.bool_)
            listed[row] = True
            rows = np.flatnonzero(listed)
            if len(rows) < len(listed):
                row = (np.cumsum(listed) - 1)[row]
        else:
            rows, row = np.unique(row, return_inverse=True)
        return self.distance.pairs(queries, self.take_gallery(start + rows), query, row)

    def distance_blocks(
        self, queries: Sequence[int], block_bytes: int
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield the distances of a few queries, gallery block by gallery block."""
        rows = [self.read_query(query, query + 1) for query in queries]
        own = Vectors(*map(np.concatenate, zip(*rows, strict=True)))
        step = min(max(block_bytes // (self.width * self.dtype.itemsize), 1), MOST_ITEMS)
        for items in pieces((0, self.shape[1]), step):
            yield items[0], self.distance.block(own, self.read_gallery(*items))


def _by_norm(norms: FloatArray) -> tuple[IntArray, list[int]]:
    """Group rows of like norms, so that one long row widens the band of few others.

    Returns the order by group, and where the groups begin in it, and the number of rows.
    """
    n = len(norms)
    if not n or norms.max() <= 8 * norms.min():
        return np.arange(n), [0, n]
    group = np.floor(np.log2(np.maximum(norms, norms.max() * 1e-12)) / 3)
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    return order, [0, *cuts.tolist(), n]


def _fault(row: FloatingArray, norm: float) -> str:
    """Say what is wrong with a row of features, and what to do."""
    column = np.flatnonzero(~np.isfinite(row))
    if column.size:
        return (
            f"holds {row[column[0]]} in column {column[0]}: features must be finite; mend or "
            "drop that row"
        )
    if not row.any():
        return "is a zero vector: it has no cosine distance; drop it, or use another metric"
    size = "long" if norm > 1 else "short"
    return (
        f"is too {size} a vector: lengths from {LEAST_NORM:g} (under cosine) to {MOST_NORM:g} can "
        "be squared in float64; scale the features"
    )
