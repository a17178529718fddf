"""One task of each pass: what is read, masked, multiplied and counted.

A task sees the whole job and its own rectangle of (query, gallery) pairs, opens nothing that
the job does not name, and returns something small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streameval.counting.canonical import FloatMatrix, pair_distances
from streameval.counting.doubtful import FineColumns
from streameval.counting.edges import Edges
from streameval.counting.features import count_features, feature_extremes, settle
from streameval.counting.filtering import Filter, Operand, group_by_norm, prepare_gallery
from streameval.counting.masks import column_offsets, mask_listed
from streameval.counting.rows import spread_ties
from streameval.counting.stored import count_stored, stored_extremes
from streameval.counting.tiles import Columns, Counts, Doubts
from streameval.errors import InputError
from streameval.execution.job import Job, PositivePart, Positives, Range
from streameval.execution.progress import Watch
from streameval.inputs.sources import Distances, Features
from streameval.pairs import Pairs
from streameval.planning import Task
from streameval.statistics import FloatArray, IntArray, RankStatistics

Float32Array = npt.NDArray[np.float32]

DOUBTS = 1 << 20  # pairs in doubt that are kept, to be decided column by column


@dataclass(frozen=True, eq=False)
class Operands:
    """What the values of a tile of features were made from.

    Attributes
    ----------
    filter : Filter
    queries : Operand
        Of all queries of the task.
    gallery : Operand
        Of the tile's columns.
    """

    filter: Filter
    queries: Operand
    gallery: Operand


@dataclass(frozen=True, eq=False)
class Tile:
    """Values of some queries with some gallery items, ready to be counted.

    Attributes
    ----------
    values : [m, n] float32 or float64
    start : int
        The first query, counted from the task's first.
    columns : Columns
    operands : Operands, optional
        Of a tile of features.
    last : bool
        Whether these columns come with no further queries: what they were made from is
        overwritten then.
    """

    values: FloatMatrix
    start: int
    columns: Columns
    operands: Operands | None = None
    last: bool = True


def feature_tiles(
    job: Job,
    source: Features,
    task: Task,
    watch: Watch,
    memory: npt.NDArray[np.generic],
    buffer: Float32Array,
) -> Iterator[Tile]:
    """Yield the tiles of a task on features; the values are overwritten by the next tile.

    Parameters
    ----------
    job, source, task, watch
    memory : [block, D] array
        To read gallery rows into.
    buffer : [rows * items] float32
        For the values of a tile.
    """
    pairs, (rows, items) = job.pairs, job.plan.tile
    queries = job.query_operand(source, *task.queries)
    size = len(queries.norms)
    for begin in range(*task.gallery, job.plan.block):
        end = min(begin + job.plan.block, task.gallery[1])
        features, norms = source.read_gallery(begin, end, memory)
        job.check_unit(norms)
        item = np.arange(begin, end)
        junk = pairs.junk[begin:end]
        if junk.any():  # junk costs nothing in the GEMM
            features, norms, item = features[~junk], norms[~junk], item[~junk]
        order, cuts = group_by_norm(norms, source.metric)
        if len(cuts) > 2:
            features, norms, item = features[order], norms[order], item[order]
        gallery = prepare_gallery(features, norms)
        for left, right in _ranges_within(cuts, items):
            part = gallery.block(left, right)
            filter_ = Filter.of(source.metric, queries, part)
            operands = Operands(filter_, queries, part)
            columns = _feature_columns(pairs, operands, item[left:right])
            for top in range(0, size, rows):
                block = queries.filter[top : top + rows]
                values = buffer[: len(block) * (right - left)].reshape(len(block), right - left)
                if filter_.usable:
                    np.matmul(block, operands.gallery.filter.T, out=values)
                else:
                    values[:] = 0
                yield Tile(values, top, columns, operands, last=top + rows >= size)
                watch.advance(values.size)
        watch.advance((end - begin - len(item)) * size)


def _ranges_within(cuts: Sequence[int], step: int) -> Iterator[tuple[int, int]]:
    """Cut each of consecutive ranges into ranges of a step."""
    for start, stop in pairwise(cuts):
        for left in range(start, stop, step):
            yield left, min(left + step, stop)


def _feature_columns(pairs: Pairs, operands: Operands, item: IntArray) -> Columns:
    filter_, gallery = operands.filter, operands.gallery
    nothing = np.zeros(len(item), np.bool_)
    camera = None if pairs.gallery_camera is None else pairs.gallery_camera[item]
    offset = column_offsets(filter_.offset(gallery), nothing, camera, pairs.cameras)
    return Columns(item, filter_.weight(gallery), offset)


def matrix_tile(job: Job, source: Distances, task: Task, memory: npt.NDArray[np.generic]) -> Tile:
    """Return the one tile of a task on a stored matrix, read into `memory`."""
    pairs, gallery = job.pairs, slice(*task.gallery)
    values = source.read(task.queries, task.gallery, memory)
    item = np.arange(*task.gallery)
    camera = None if pairs.gallery_camera is None else pairs.gallery_camera[gallery]
    zero = np.zeros(len(item), values.dtype)
    offset = column_offsets(zero, pairs.junk[gallery], camera, pairs.cameras)
    return Tile(values, 0, Columns(item, np.ones(len(item), values.dtype), offset))


def _tiles(job: Job, task: Task, watch: Watch) -> Iterator[Tile]:
    if isinstance(job.source, Features):
        block, dtype = (job.plan.block, job.source.width), job.source.gallery.dtype
        with (
            job.buffers.lend("block", block, dtype) as memory,
            job.buffers.lend("tile", (math.prod(job.plan.tile),), np.float32) as buffer,
        ):
            yield from feature_tiles(job, job.source, task, watch, memory, buffer)
    else:
        shape = tuple(stop - start for start, stop in (task.queries, task.gallery))
        with job.buffers.lend("strip", shape, job.source.matrix.dtype) as memory:
            yield matrix_tile(job, job.source, task, memory)
        watch.advance(task.pairs)


def _offset_rows(pairs: Pairs, start: int, stop: int) -> IntArray:
    if pairs.query_camera is None:
        return np.zeros(stop - start, np.int64)
    return pairs.query_camera[start:stop].astype(np.int64)


def count(job: Job, task: Task, watch: Watch) -> RankStatistics:
    """Count a task: the statistics of its queries against its gallery items.

    Raises
    ------
    InputError
        If an input cannot be read, or a distance lies outside a range that is given.
    """
    first, last = task.queries
    own = job.pairs.block(first, last)
    positives = None if job.positives is None else job.positives.block(first, last)
    offset_row = _offset_rows(job.pairs, first, last)
    every_pair = np.ones(len(own.item), np.bool_)
    counted: _Counted | None = None
    for tile in _tiles(job, task, watch):
        if counted is None:
            if positives is None:
                positives = _gather(own, tile)
                check_range(job, positives, first)
            counted = _Counted(positives, job.thresholds, offset_row)
        _mask(tile, own, every_pair)
        counted.add(tile)
    if counted is None:  # every item is junk
        nothing = positives or Positives.sort(*_no_positives(own))
        counted = _Counted(nothing, job.thresholds, offset_row)
    statistics = counted.statistics(own, task.gallery)
    _check_negatives_in_range(job, task, statistics, watch)
    return statistics


class _Counted:
    """The counts of a task while its tiles come in."""

    def __init__(self, positives: Positives, thresholds: FloatArray, offset_row: IntArray) -> None:
        self.positives = positives
        self.offset_row = offset_row
        self.edges = Edges.build(positives.indptr, positives.distance, positives.item, thresholds)
        self.counts = Counts.zero(
            self.edges.slots, len(positives.distance), len(positives.indptr) - 1
        )
        self._doubts = Doubts.of(0)
        self._filled = 0
        self._fine: FineColumns | None = None

    def add(self, tile: Tile) -> None:
        if not tile.values.size:
            return
        if tile.operands is None:
            count_stored(tile.values, self.offset_row, tile.columns, self.edges, self.counts)
        else:
            self._add_features(tile, tile.operands)

    def _add_features(self, tile: Tile, of: Operands) -> None:
        if len(self._doubts.query) < 2 * tile.values.shape[1]:
            self._doubts = Doubts.of(max(2 * tile.values.shape[1], DOUBTS))
        row = 0
        while row < len(tile.values):
            row, self._filled = count_features(
                tile.values,
                row,
                tile.start,
                self.offset_row,
                tile.columns,
                of.filter,
                of.queries,
                of.gallery,
                self.edges,
                self.counts,
                self._doubts,
                self._filled,
            )
            if row < len(tile.values) or tile.last:
                self._fine = settle(
                    tile.columns,
                    self._fine,
                    of.filter,
                    of.queries,
                    of.gallery,
                    self.edges,
                    self.counts,
                    self._doubts,
                    self._filled,
                )
                self._filled = 0
        if tile.last:
            self._fine = None

    def statistics(self, pairs: Pairs, gallery: tuple[int, int]) -> RankStatistics:
        positive, ignored, same_identity = pairs.counts_in(*gallery)
        valid = gallery[1] - gallery[0] - ignored
        closer, tied, within = self.edges.read_slots(self.counts.slots, valid - positive)
        return RankStatistics(
            indptr=self.positives.indptr,
            positive_distance=self.positives.distance,
            thresholds=self.edges.thresholds,
            closer=closer,
            tied=tied,
            tied_before=spread_ties(
                self.positives.indptr, self.positives.distance, self.counts.ties
            ),
            negatives_within=within,
            nearest_negative=self.counts.nearest,
            valid=valid,
            ignored=ignored,
            same_identity=same_identity,
        )


def _mask(tile: Tile, pairs: Pairs, masked: npt.NDArray[np.bool_]) -> None:
    indptr = pairs.indptr[tile.start : tile.start + len(tile.values) + 1]
    mask_listed(tile.values, tile.columns.item, indptr, pairs.item, masked)


def _no_positives(pairs: Pairs) -> tuple[IntArray, FloatArray, IntArray]:
    return np.zeros(pairs.queries + 1, np.int64), np.empty(0), np.empty(0, np.int64)


def _gather(pairs: Pairs, tile: Tile) -> Positives:
    """Take the positives of a strip from the strip itself."""
    indptr, item = pairs.positives()
    query = np.repeat(np.arange(pairs.queries), np.diff(indptr))
    return Positives.sort(indptr, tile.values[query, item].astype(np.float64), item)


def feature_positives(job: Job, part: PositivePart, watch: Watch) -> FloatArray:
    """Return the canonical distances of positive pairs of features, [p] float64."""
    source = job.features
    rows, row = np.unique(part.item, return_inverse=True)
    features = source.take_gallery(rows)
    queries = job.query_operand(source, *part.queries)
    watch.advance(len(part.query))
    return pair_distances(source.metric, queries.rows, features, part.query, row)


def matrix_positives(job: Job, task: Task, watch: Watch) -> FloatArray:
    """Return the positives in a rectangle of a stored matrix, in the order of `listed_in`."""
    own = job.pairs.block(*task.queries)
    query, listed = own.listed_in(*task.gallery)
    kept = own.positive[listed]
    distances = np.empty(0)
    if kept.any():
        block = job.distances.read(task.queries, task.gallery)
        item = own.item[listed][kept] - task.gallery[0]
        distances = block[query[kept], item].astype(np.float64)
    watch.advance(task.pairs)
    return distances


def extremes(job: Job, task: Task, watch: Watch) -> tuple[float, float]:
    """Return the least and greatest distance over a task's non-ignored pairs."""
    own = job.pairs.block(*task.queries)
    offset_row = _offset_rows(job.pairs, *task.queries)
    least, most = np.inf, -np.inf
    for tile in _tiles(job, task, watch):
        _mask(tile, own, ~own.positive)
        of = tile.operands
        if of is None:
            least, most = stored_extremes(tile.values, offset_row, tile.columns, least, most)
        else:
            least, most = feature_extremes(
                tile.values,
                tile.start,
                offset_row,
                tile.columns,
                of.filter,
                of.queries,
                of.gallery,
                least,
                most,
            )
    return float(least), float(most)


def check_range(job: Job, positives: Positives, first_query: int) -> None:
    """Raise where a positive's distance lies outside a range that is given.

    Raises
    ------
    InputError
    """
    if job.range.strict:
        outside = np.flatnonzero(_outside(job, positives.distance))
        if outside.size:
            at = outside[0]
            query = int(np.searchsorted(positives.indptr, at, side="right")) - 1 + first_query
            raise range_error(job.range, query, int(positives.item[at]), positives.distance[at])


def _outside(job: Job, distance: FloatArray) -> npt.NDArray[np.bool_]:
    """Tell which distances lie before τ = 0 or beyond τ = 1."""
    outside: npt.NDArray[np.bool_] = (distance < job.range.low) | (distance > job.thresholds[-1])
    return outside


def range_error(wanted: Range, query: int, item: int, value: float) -> InputError:
    """Return the error for a distance outside the range that is given."""
    return InputError(
        f"the distance of query {query} to gallery item {item} is {float(value)!r}, outside the "
        f"given range [{wanted.low!r}, {wanted.high!r}]: widen --range, or use --range minmax"
    )


def _check_negatives_in_range(
    job: Job, task: Task, statistics: RankStatistics, watch: Watch
) -> None:
    """Raise where a counted negative lies outside a range that is given."""
    if not job.range.strict:
        return
    positive, ignored, _ = job.pairs.block(*task.queries).counts_in(*task.gallery)
    negatives = task.gallery[1] - task.gallery[0] - ignored - positive
    above = statistics.negatives_within[:, -1] < negatives
    below = statistics.nearest_negative < job.range.low
    offending = np.flatnonzero(above | below)
    if not offending.size:
        return
    row = int(offending[0])
    query = task.queries[0] + row
    own = job.pairs.block(query, query + 1)
    one = Task((query, query + 1), task.gallery)
    for tile in _tiles(job, one, watch):
        _mask(tile, own, np.ones(len(own.item), np.bool_))
        offset = tile.columns.offset[_offset_rows(job.pairs, query, query + 1)[0]]
        candidates = np.flatnonzero(tile.values[0] + offset < np.inf)
        if tile.operands is None:
            values = tile.values[0][candidates].astype(np.float64)
        else:
            one_row, rows = tile.operands.queries.rows, tile.operands.gallery.rows
            zeros = np.zeros(len(candidates), np.int64)
            values = pair_distances(job.features.metric, one_row, rows, zeros, candidates)
        outside = np.flatnonzero(_outside(job, values))
        if outside.size:
            at = outside[0]
            raise range_error(job.range, query, int(tile.columns.item[candidates[at]]), values[at])
