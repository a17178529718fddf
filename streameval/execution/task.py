"""One task of each pass: what is read, masked, multiplied and counted.

A task sees the whole job and its own rectangle of (query, gallery) pairs, opens nothing that
the job does not name, and returns something small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streameval.counting.canonical import FloatMatrix, pair_distances
from streameval.counting.edges import Edges
from streameval.counting.features import (
    Filter,
    Operand,
    count_features,
    feature_extremes,
    prepare,
)
from streameval.counting.masks import column_offsets, mask_listed
from streameval.counting.stored import count_stored, stored_extremes
from streameval.errors import InputError
from streameval.execution.job import Job, PositivePart, Positives, Range
from streameval.execution.progress import Watch
from streameval.inputs.sources import Distances, Features
from streameval.pairs import Pairs
from streameval.planning import Task
from streameval.statistics import FloatArray, IntArray, RankStatistics


@dataclass(frozen=True, eq=False)
class Tile:
    """Values of some queries with some gallery items, ready to be counted.

    Attributes
    ----------
    values : [m, n] float32 or float64
    offset : [b, n], of the same dtype
        Added to the rows: +inf for items ruled out.
    offset_row : [m] int64
    item : [n] int64
        Gallery index of each column.
    start : int
        The first query, counted from the task's first.
    operands : (Filter, Operand, Operand), optional
        Filter, queries and gallery of a tile of features.
    """

    values: FloatMatrix
    offset: FloatMatrix
    offset_row: IntArray
    item: IntArray
    start: int
    operands: tuple[Filter, Operand, Operand] | None = None

    @property
    def queries(self) -> slice:
        """The tile's queries, counted from the task's first."""
        return slice(self.start, self.start + len(self.values))


def feature_tiles(job: Job, source: Features, task: Task, watch: Watch) -> Iterator[Tile]:
    """Yield the tiles of a task on features; the values are overwritten by the next tile."""
    pairs, (rows, items) = job.pairs, job.plan.tile
    first, last = task.queries
    queries = job.query_operand(source, first, last)
    camera_row = _offset_rows(pairs, first, last)
    buffer = np.empty(rows * items, np.float32)
    for begin in range(*task.gallery, job.plan.block):
        end = min(begin + job.plan.block, task.gallery[1])
        features, norms = source.read_gallery(begin, end)
        job.check_unit(norms)
        item = np.arange(begin, end)
        junk = pairs.junk[begin:end]
        if junk.any():  # junk costs nothing in the GEMM
            features, norms, item = features[~junk], norms[~junk], item[~junk]
        gallery = prepare(features, norms, source.metric, queries=False)
        filter_ = Filter.of(source.metric, queries, gallery)
        for left in range(0, len(item), items):
            right = min(left + items, len(item))
            columns = gallery.block(left, right)
            own = item[left:right]
            camera = None if pairs.gallery_camera is None else pairs.gallery_camera[own]
            offset = column_offsets(
                filter_.offset(columns.norms), np.zeros(len(own), np.bool_), camera, pairs.cameras
            )
            for top in range(0, last - first, rows):
                block = queries.block(top, min(top + rows, last - first))
                values = buffer[: len(block.rows) * len(own)].reshape(len(block.rows), len(own))
                if filter_.usable:
                    np.matmul(block.filter, columns.filter.T, out=values)
                else:
                    values[:] = 0
                yield Tile(
                    values,
                    offset,
                    camera_row[top : top + len(values)],
                    own,
                    top,
                    (filter_, block, columns),
                )
                watch.advance(values.size)
        watch.advance((end - begin - len(item)) * (last - first))


def matrix_tile(job: Job, source: Distances, task: Task) -> Tile:
    """Return the one tile of a task on a stored matrix."""
    pairs = job.pairs
    values = source.read(task.queries, task.gallery)
    item = np.arange(*task.gallery)
    offset = column_offsets(
        np.zeros(len(item), values.dtype),
        pairs.junk[slice(*task.gallery)],
        None if pairs.gallery_camera is None else pairs.gallery_camera[slice(*task.gallery)],
        pairs.cameras,
    )
    return Tile(values, offset, _offset_rows(pairs, *task.queries), item, 0)


def _tiles(job: Job, task: Task, watch: Watch) -> Iterator[Tile]:
    if isinstance(job.source, Features):
        yield from feature_tiles(job, job.source, task, watch)
    else:
        yield matrix_tile(job, job.source, task)
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
    counted: _Counted | None = None
    for tile in _tiles(job, task, watch):
        if counted is None:
            if positives is None:
                positives = _gather(own, tile)
                check_range(job.range, positives, first)
            counted = _Counted(positives, job.thresholds)
        _mask(tile, own, np.ones(len(own.item), np.bool_))
        counted.add(tile)
    if counted is None:  # every item is junk
        counted = _Counted(positives or Positives.sort(*_no_positives(own)), job.thresholds)
    statistics = counted.statistics(own, task.gallery)
    _check_negatives_in_range(job, task, statistics, watch)
    return statistics


class _Counted:
    """The counts of a task while its tiles come in."""

    def __init__(self, positives: Positives, thresholds: FloatArray) -> None:
        self.positives = positives
        self.edges = Edges.build(positives.indptr, positives.distance, positives.item, thresholds)
        self.slots = self.edges.new_slots()
        self.tied_before = np.zeros(len(positives.distance), np.int64)
        self.nearest = np.full(len(positives.indptr) - 1, np.inf)

    def add(self, tile: Tile) -> None:
        edges, slots, tied_before = self.edges.block(tile.queries, self.slots, self.tied_before)
        nearest = self.nearest[tile.queries]
        if tile.operands is None:
            count_stored(
                tile.values,
                tile.offset,
                tile.offset_row,
                int(tile.item[0]) if len(tile.item) else 0,
                edges,
                slots,
                tied_before,
                nearest,
            )
        else:
            count_features(
                tile.values,
                tile.offset,
                tile.offset_row,
                tile.item,
                *tile.operands,
                edges,
                slots,
                tied_before,
                nearest,
            )

    def statistics(self, pairs: Pairs, gallery: tuple[int, int]) -> RankStatistics:
        positive, ignored, same_identity = pairs.counts_in(*gallery)
        valid = gallery[1] - gallery[0] - ignored
        closer, tied, within = self.edges.read_slots(self.slots, valid - positive)
        return RankStatistics(
            indptr=self.positives.indptr,
            positive_distance=self.positives.distance,
            thresholds=self.edges.thresholds,
            closer=closer,
            tied=tied,
            tied_before=self.tied_before,
            negatives_within=within,
            nearest_negative=self.nearest,
            valid=valid,
            ignored=ignored,
            same_identity=same_identity,
        )


def _mask(tile: Tile, pairs: Pairs, masked: npt.NDArray[np.bool_]) -> None:
    start, stop = tile.queries.start, tile.queries.stop
    mask_listed(tile.values, tile.item, pairs.indptr[start : stop + 1], pairs.item, masked)


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
    known = (np.inf, -np.inf)
    for tile in _tiles(job, task, watch):
        _mask(tile, own, ~own.positive)
        if tile.operands is None:
            known = stored_extremes(tile.values, tile.offset, tile.offset_row)
        else:
            known = feature_extremes(
                tile.values, tile.offset, tile.offset_row, *tile.operands, known
            )
    return known


def check_range(wanted: Range, positives: Positives, first_query: int) -> None:
    """Raise where a positive's distance lies outside a range that is given.

    Raises
    ------
    InputError
    """
    if not wanted.strict:
        return
    outside = (positives.distance < wanted.low) | (positives.distance > wanted.high)
    if outside.any():
        worst = int(np.flatnonzero(outside)[0])
        query = int(np.searchsorted(positives.indptr, worst, side="right")) - 1
        raise range_error(
            wanted, first_query + query, int(positives.item[worst]), positives.distance[worst]
        )


def range_error(wanted: Range, query: int, item: int, value: float) -> InputError:
    """Return the error for a distance outside the range that is given."""
    return InputError(
        f"the distance of query {query} to gallery item {item} is {value:.9g}, outside the given "
        f"range [{wanted.low:g}, {wanted.high:g}]: widen --range, or use --range minmax"
    )


def _check_negatives_in_range(
    job: Job, task: Task, statistics: RankStatistics, watch: Watch
) -> None:
    """Raise where a counted negative lies outside a range that is given."""
    if not job.range.strict or not len(job.thresholds):
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
        candidates = np.flatnonzero(tile.values[0] + tile.offset[tile.offset_row[0]] < np.inf)
        if tile.operands is None:
            values = tile.values[0][candidates].astype(np.float64)
        else:
            _, queries, gallery = tile.operands
            zeros = np.zeros(len(candidates), np.int64)
            values = pair_distances(
                job.features.metric, queries.rows, gallery.rows, zeros, candidates
            )
        outside = np.flatnonzero((values < job.range.low) | (values > job.range.high))
        if outside.size:
            at = outside[0]
            raise range_error(job.range, query, int(tile.item[candidates[at]]), values[at])
