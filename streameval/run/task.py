"""One task of each pass: what is read, masked, multiplied and counted.

A task sees the whole job and its own rectangle of (query, gallery) pairs, opens nothing that
the job does not name, and returns something small.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.histograms import histogram_of
from streameval.kernels.canonical import pair_distances
from streameval.kernels.doubtful import FineColumns, count_copies, exact_tile, fine_tile
from streameval.kernels.edges import Edges, spread_ties
from streameval.kernels.features import count_features, feature_extremes, settle
from streameval.kernels.filtering import Filter
from streameval.kernels.grids import codes_for
from streameval.kernels.near import near_features, near_stored
from streameval.kernels.stored import count_stored, stored_extremes
from streameval.kernels.tiles import (
    DOUBTS,
    FINE_QUERIES,
    Columns,
    Counts,
    Doubts,
    FloatTile,
)
from streameval.planning import Task
from streameval.planning.range import Range
from streameval.protocols.pairs import Pairs
from streameval.run.job import Job, PositivePart, Positives
from streameval.run.progress import Watch
from streameval.run.tiles import (
    Operands,
    Tile,
    mask,
    matrix_blocks,
    offset_rows,
    tiles_of,
)
from streameval.single_shot.counter import ShotCounts
from streameval.statistics import FloatArray, IntArray, RankStatistics


def count(job: Job, task: Task, watch: Watch) -> RankStatistics:
    """Count a task: the statistics of its queries against its gallery items.

    Raises
    ------
    InputError
        If an input cannot be read, or a distance lies outside a range that is given.
    """
    first, last = task.queries
    own = job.pairs.block(first, last)
    offset_row = offset_rows(job.pairs, first, last)
    every_pair = np.ones(len(own.item), np.bool_)
    counted: _Counted | None = None
    if job.positives is not None:
        counted = _Counted(job, first, job.positives.block(first, last), offset_row)
    for tile in tiles_of(job, task, watch, check=False):
        if counted is None:  # a strip, the one tile of its task, holds its own
            positives = _gather(own, tile)
            if np.isfinite(positives.distance).all():
                check_range(job, positives, first)
            counted = _Counted(job, first, positives, offset_row)
        finite = mask(tile, own, every_pair)
        not_finite = counted.add(tile)
        if tile.operands is None and not_finite != finite:  # not only what has been masked
            item = tile.columns.item
            job.distances.first_bad_entry(task.queries, (int(item[0]), int(item[-1]) + 1))
    if counted is None:
        raise RuntimeError("a task of a stored matrix without its tile")
    statistics = counted.statistics(own, task)
    _check_negatives_in_range(job, task, statistics, watch)
    return statistics


class _Counted:
    """The counts of a task while its tiles come in."""

    def __init__(self, job: Job, first: int, positives: Positives, offset_row: IntArray) -> None:
        self.first_query = first
        self.thresholds = job.thresholds
        self.histogram_edges = job.histogram_edges
        self.groups = job.groups
        self.positives = positives
        self.offset_row = offset_row
        limits = self.thresholds
        if self.histogram_edges is not None:
            limits = np.union1d(limits, self.histogram_edges)
        self.edges = Edges.build(positives.indptr, positives.distance, positives.item, limits)
        self.shots = None if job.shots is None else ShotCounts(job.shots, positives, offset_row)
        self.counts = Counts.zero(
            self.edges.slots, len(positives.distance), len(positives.indptr) - 1
        )
        self.near: FloatArray | None = None
        if job.near:
            self.near = np.full((len(positives.indptr) - 1, job.near), np.inf)
            self._reach = np.full(job.pairs.queries, np.inf) if job.reach is None else job.reach
        self._code = codes_for(self.edges.indptr)
        self._doubts = Doubts.of(0)
        self._filled = 0
        self._fine: FineColumns | None = None
        self._undecided = job.undecided[first : first + len(positives.indptr) - 1]

    def add(self, tile: Tile) -> int:
        """Count a tile; return how many entries of a stored one are not finite."""
        if not tile.values.size:
            return 0
        not_finite = 0
        if tile.operands is not None:
            self._add_features(tile, tile.operands)
        else:
            not_finite = count_stored(
                tile.values,
                np.arange(len(tile.values)),
                self.offset_row,
                tile.columns,
                self.edges,
                self._code,
                self.counts,
            )
        if self.shots is not None:
            self.shots.add(tile, self._fine_columns)
        if self.near is not None:
            self._add_near(tile, self.near)
        if tile.last:
            self._fine = None
        return int(not_finite)

    def _add_near(self, tile: Tile, heaps: FloatArray) -> None:
        """Note the nearest negatives of a tile."""
        of, first, reach = tile.operands, self.first_query, self._reach
        if of is None:
            near_stored(tile.values, self.offset_row, tile.columns, first, reach, heaps)
            return
        near_features(
            tile.values,
            tile.start,
            self.offset_row,
            tile.columns,
            of.filter,
            of.queries,
            of.gallery,
            first,
            reach,
            heaps,
        )

    def _add_features(self, tile: Tile, of: Operands) -> None:
        query = np.arange(tile.start, tile.start + len(tile.values))
        # float64 says no more than float32 where the filter isn't usable: no row is crowded then.
        crowd = tile.values.shape[1] // 2 if of.filter.usable else sys.maxsize
        crowded = self._count(tile.values, query, tile.columns, of.filter, of, crowd)
        if crowded.any():
            self._count_crowded(tile, of, np.flatnonzero(crowded))
        if tile.last:
            self._settle(tile.columns, of)

    def _count(
        self,
        values: FloatTile,
        query: IntArray,
        columns: Columns,
        filter_: Filter,
        of: Operands,
        crowd: int,
    ) -> npt.NDArray[np.bool_]:
        """Count a tile of filter values but for rows that are crowded; return which these are."""
        if len(self._doubts.query) < 2 * values.shape[1]:
            self._doubts = Doubts.of(max(2 * values.shape[1], DOUBTS))
        row, crowded = 0, np.zeros(len(values), np.bool_)
        while True:
            row, self._filled = count_features(
                values,
                row,
                query,
                self.offset_row,
                columns,
                filter_,
                of.queries,
                self.edges,
                self._code,
                self.counts,
                self._doubts,
                self._filled,
                crowd,
                crowded,
            )
            if row == len(values):
                return crowded
            self._settle(columns, of)

    def _count_crowded(self, tile: Tile, of: Operands, rows: IntArray) -> None:
        """Count rows of a tile that are in doubt as a whole."""
        fine = self._fine_columns(tile, of)
        if not fine.copied:
            for start in range(0, len(rows), FINE_QUERIES):
                self._count_finely(tile, of, fine, rows[start : start + FINE_QUERIES])
            return
        count_copies(
            tile.values,
            rows,
            rows + tile.start,
            self.offset_row,
            tile.columns,
            fine.same_as,
            of.filter.metric,
            of.queries,
            of.gallery,
            self.edges,
            self.counts,
        )

    def _count_finely(self, tile: Tile, of: Operands, fine: FineColumns, rows: IntArray) -> None:
        """Count rows of a tile by a filter in float64, and where that fails, by distances."""
        metric, filter_ = of.filter.metric, of.filter.in_float64()
        decided = rows[~self._undecided[rows + tile.start]]
        if decided.size:
            query, crowd = decided + tile.start, tile.values.shape[1] // 2
            values = fine_tile(tile.values, decided, query, metric, of.queries, fine.rows)
            self._undecided[query] = self._count(values, query, fine.columns, filter_, of, crowd)
        left = rows[self._undecided[rows + tile.start]]
        if left.size:
            query = left + tile.start
            sides = of.queries.rows[query].astype(np.float64), of.queries.norms[query]
            exact = exact_tile(tile.values, left, metric, *sides, fine.rows, of.gallery.norms)
            where = self.offset_row, fine.exact, self.edges, self._code, self.counts
            count_stored(exact, query, *where)

    def _fine_columns(self, tile: Tile, of: Operands) -> FineColumns:
        """Return the columns of a tile in float64, prepared once for all its queries."""
        self._fine = self._fine or FineColumns.of(of.filter, of.gallery, tile.columns)
        return self._fine

    def _settle(self, columns: Columns, of: Operands) -> None:
        """Decide the doubts so far; they are of one set of columns."""
        settle(
            columns,
            of.filter,
            of.queries,
            of.gallery,
            self.edges,
            self.counts,
            self._doubts,
            self._filled,
        )
        self._filled = 0

    def statistics(self, pairs: Pairs, task: Task) -> RankStatistics:
        positive, ignored, same_identity = pairs.counts_in(*task.gallery)
        valid = task.gallery[1] - task.gallery[0] - ignored
        closer, tied, within = self.edges.read_slots(self.counts.slots, valid - positive)
        limits, histogram = self.edges.thresholds, None
        group = by_group = None
        if self.histogram_edges is not None:
            edges, negatives = np.searchsorted(limits, self.histogram_edges), valid - positive
            histogram = histogram_of(within.sum(axis=0)[edges], negatives.sum())
            if self.groups is not None:
                group = self.groups[slice(*task.queries)]
                sums = np.zeros((int(self.groups.max()) + 1, within.shape[1] + 1), np.int64)
                np.add.at(sums, group, np.column_stack([within, negatives]))
                by_group = histogram_of(sums[:, edges], sums[:, -1])
            within = within[:, np.searchsorted(limits, self.thresholds)]
        expected = sampled = None
        if self.shots is not None:
            expected, sampled = self.shots.finish(pairs, tied, task.queries[0])
        return RankStatistics(
            indptr=self.positives.indptr,
            positive_distance=self.positives.distance,
            thresholds=self.thresholds,
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
            positive_item=self.positives.item,
            impostor_histogram=histogram,
            histogram_edges=self.histogram_edges,
            group=group,
            group_histogram=by_group,
            nearest_negatives=None if self.near is None else np.sort(self.near, axis=1),
            single_shot=expected,
            sampled_shots=sampled,
        )


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
    query, item = query[kept], own.item[listed[kept]]
    distances = np.empty(len(item))
    rows, dtype = task.queries[1] - task.queries[0], job.distances.matrix.dtype
    for begin, end in matrix_blocks(job, task):
        inside = np.flatnonzero((item >= begin) & (item < end))
        if inside.size:
            with job.buffers.lend("strip", (rows, end - begin), dtype) as memory:
                # Whether all are finite is seen when they are counted.
                block = job.distances.read(task.queries, (begin, end), memory, check=False)
                distances[inside] = block[query[inside], item[inside] - begin]
            if not np.isfinite(distances[inside]).all():
                job.distances.first_bad_entry(task.queries, (begin, end))
    watch.advance(task.pairs)
    return distances


def extremes(job: Job, task: Task, watch: Watch) -> tuple[float, float]:
    """Return the least and greatest distance over a task's non-ignored pairs."""
    own = job.pairs.block(*task.queries)
    offset_row = offset_rows(job.pairs, *task.queries)
    least, most = np.inf, -np.inf
    for tile in tiles_of(job, task, watch):
        mask(tile, own, ~own.positive)
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


class RangeError(InputError):
    """A distance outside a range that is given.

    Attributes
    ----------
    query, item : int
    value : float
    """

    def __init__(self, message: str, query: int, item: int, value: float) -> None:
        super().__init__(message)
        self.query, self.item, self.value = query, item, value

    def __reduce__(self) -> tuple[type[RangeError], tuple[str, int, int, float]]:
        return type(self), (str(self), self.query, self.item, self.value)


def range_error(wanted: Range, query: int, item: int, value: float) -> RangeError:
    """Return the error for a distance outside the range that is given."""
    message = (
        f"the distance of query {query} to gallery item {item} is {float(value)!r}, outside the "
        f"given range [{wanted.low!r}, {wanted.high!r}]: widen --range, or use --range minmax"
    )
    return RangeError(message, query, item, float(value))


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
    for tile in tiles_of(job, one, watch):
        mask(tile, own, np.ones(len(own.item), np.bool_))
        offset = tile.columns.offset[offset_rows(job.pairs, query, query + 1)[0]]
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
