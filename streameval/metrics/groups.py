"""Metrics of groups of queries: by camera, by identity, by any label; and by pairs of cameras.

The cell of query camera a and gallery camera b is over the queries of camera a that have a
positive of camera b. Only positives of camera b are relevant; positives of other cameras take no
part, as if they were ignored: they are neither found nor in the way. All negatives stay in the
list, whatever their camera. CMC@k of the cell tells how often the nearest positive of camera b
is among the first k, and mAP how well all positives of camera b are ranked. Statistics count
negatives alone, so a cell is made by leaving positives out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from streameval.errors import InputError
from streameval.metrics.blocks import Blocks
from streameval.metrics.bounds import ListReading, compute_list_metrics
from streameval.metrics.compute import Detail, Gathering, Metrics, metrics_of
from streameval.metrics.confidence import Confidence, Identities, Resampling, confidence_of
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.selection import available_fields, find_name, measures_of
from streameval.statistics import RankStatistics
from streameval.stretches import rows_of
from streameval.typing import AnyArray, FloatArray, IntArray

NOT_BY_QUERY = (
    "counted over all queries together, not by group: evaluate with --group-by, of 100 groups at "
    "most"
)

GROUP_BLOCKS = 4  # blocks of statistics whose bytes small groups that are read together take


def metrics_by_group(
    stats: RankStatistics,
    labels: AnyArray,
    options: MetricOptions = DEFAULT_OPTIONS,
    lists: ListReading | None = None,
) -> dict[Any, Metrics]:
    """Compute the metrics of the queries of each label, as if there were no others.

    Parameters
    ----------
    stats : RankStatistics
    labels : [Q] array of integers or strings
    options : MetricOptions, optional
    lists : ListReading, optional
        Of lists of neighbours: how they are read.

    Returns
    -------
    dict of label to Metrics
        In the order of the labels. A metric from fields that are not kept by query is NaN.
    """
    if labels.shape != (stats.queries,):
        raise InputError(
            f"the column of groups has shape {labels.shape}, and there are {stats.queries} "
            "queries: one label a query is needed"
        )
    groups: dict[Any, Metrics] = {}
    if lists:
        for label in np.unique(labels).tolist():
            queries = labels == label
            own = stats.take(queries), lists.take(queries)
            groups[label] = compute_list_metrics(*own, options)
        return groups
    measures = measures_of(options, stats)
    for label, statistics in statistics_by_group(stats, labels):
        blocks = (statistics.block(*span) for span in statistics.spans)
        first = next(blocks)
        held = available_fields(first)
        split = [one for one in measures if held.issuperset(one.metric.needs)]
        metrics = groups[label] = metrics_of(chain([first], blocks), options, split)
        for measure in measures:
            if measure not in split:
                metrics.scalars[measure.name] = math.nan
                metrics.details[measure.name] = Detail(measure.metric.part, NOT_BY_QUERY)
    return groups


def statistics_by_group(stats: RankStatistics, labels: AnyArray) -> Iterator[tuple[Any, Blocks]]:
    """Give the statistics of the queries of each label.

    Of statistics that are read in blocks, small groups are read together.
    """
    names, code = np.unique(labels, return_inverse=True)
    known = names.tolist()
    read = stats.block(*stats.spans[0]) if len(stats.spans) == 1 else None
    weights = np.bincount(code, stats.positives + len(stats.thresholds), len(known))
    most = GROUP_BLOCKS * weights.sum() / len(stats.spans)
    begin, ends = 0, np.cumsum(weights)
    while begin < len(known):
        before = ends[begin - 1] if begin else 0.0
        end = len(known) if read is not None else int(np.searchsorted(ends, before + most))
        end = max(end, begin + 1)
        some = (code >= begin) & (code < end)
        if read is None and end == begin + 1:
            yield known[begin], SomeQueries(stats, np.flatnonzero(some))
        else:
            held = stats.take(some) if read is None else read
            inside = code[some]
            for number in range(begin, end):
                own = held.take(inside == number)
                if read is None:
                    own = replace(own, **stats.histogram_of_some(np.flatnonzero(code == number)))
                yield known[number], own
        begin = end


class SomeQueries:
    """Statistics of some queries, ascending, that are read where they are: see `Blocks`."""

    def __init__(self, stats: RankStatistics, queries: IntArray) -> None:
        self._stats, self._queries = stats, queries
        ends = np.searchsorted(queries, [stop for _, stop in stats.spans]).tolist()
        self.spans = [span for span in pairwise([0, *ends]) if span[0] < span[1]]
        unknown: dict[str, Any] = {"impostor_histogram": None, "histogram_edges": None}
        self._histogram = unknown | stats.histogram_of_some(queries)

    def block(self, start: int, stop: int) -> RankStatistics:
        """Read the statistics of consecutive ones; all of the histogram is in the first block."""
        own, histogram = self._queries[start:stop], self._histogram
        if start and histogram["impostor_histogram"] is not None:
            none = np.zeros_like(histogram["impostor_histogram"])
            histogram = histogram | {"impostor_histogram": none}
        first, last = own[[0, -1]].tolist()
        return replace(self._stats.block(first, last + 1).take(own - first), **histogram)


def confidence_by_group(
    stats: RankStatistics,
    groups: Mapping[Any, Metrics],
    labels: AnyArray,
    identity: AnyArray,
    options: MetricOptions,
    how: Resampling,
) -> dict[Any, Confidence]:
    """Return the intervals of `metrics_by_group`: of the identities of its own queries alone."""
    measures = measures_of(options, stats)
    found: dict[Any, Confidence] = {}
    for label, own in statistics_by_group(stats, labels):
        scalars, identities = groups[label].scalars, Identities(identity[labels == label])
        valued = [one for one in measures if not math.isnan(scalars[one.name])]
        found[label] = confidence_of(own, options, valued, identities, how)
    return found


@dataclass(frozen=True, eq=False)
class PositiveCameras:
    """The camera of each gallery item that is a positive.

    Attributes
    ----------
    known : [C] array of integers or strings
        The cameras, ascending.
    code : [N] integers
        Which of these: of gallery items.
    item : [N] int64, optional
        Their gallery indices, ascending. None of a gallery of N items.
    """

    known: AnyArray
    code: AnyArray
    item: IntArray | None = None

    @classmethod
    def of(cls, cameras: AnyArray, item: IntArray | None = None) -> PositiveCameras:
        """Return them from a label of each gallery item, or of those that are given, ascending."""
        known, code = np.unique(cameras, return_inverse=True)
        return cls(known, code.astype(np.min_scalar_type(len(known))), item)

    def codes(self, stats: RankStatistics) -> AnyArray:
        """Return the codes of the positives of statistics, [P].

        Raises
        ------
        InputError
            If the statistics do not say which items these are, or one of them has no camera.
        """
        items = stats.positive_item
        if items is None:
            raise InputError("the statistics hold no positive_item, whose cameras are asked for")
        place = items if self.item is None else np.searchsorted(self.item, items)
        there = place < len(self.code)
        if self.item is not None:
            there[there] = self.item[place[there]] == items[there]
        if not there.all():
            odd = items[~there][0]
            raise InputError(f"positive_cam has no camera of gallery item {odd}, a positive")
        codes: AnyArray = self.code[place]
        return codes


def metrics_by_camera_pair(
    stats: RankStatistics,
    query_cam: AnyArray,
    positive_cam: PositiveCameras,
    options: MetricOptions = DEFAULT_OPTIONS,
) -> dict[tuple[Any, Any], Metrics]:
    """Compute the metrics of each pair of a query's camera and a positive's.

    Parameters
    ----------
    stats : RankStatistics
    query_cam : [Q] array of integers or strings
    positive_cam : PositiveCameras
        Of the positives.
    options : MetricOptions, optional

    Returns
    -------
    dict of (query camera, gallery camera) to Metrics
        In the order of the labels; pairs without a positive are left out. Of the metrics, those
        that are over Q+ alone; not CMC by gallery identity, which is not kept by positive.
    """
    if len(query_cam) != stats.queries:
        raise InputError(f"query_cam has {len(query_cam)} cameras, and {stats.queries} are needed")
    measures = [one for one in measures_of(options, stats) if one.metric.over == ("Q+",)]
    cells: dict[tuple[Any, Any], Gathering] = {}
    for start, stop in stats.spans:
        block, cams = stats.block(start, stop), query_cam[start:stop]
        own_codes = positive_cam.codes(block)
        of_query = rows_of(block.indptr)
        for camera in np.unique(cams).tolist():
            own = cams == camera
            row, codes = block.take(own), own_codes[own[of_query]]
            for code in np.unique(codes).tolist():
                cell = row.with_positives(codes == code)
                cell = cell.take(cell.has_positive)
                if (camera, code) not in cells:
                    held = available_fields(cell)
                    possible = [one for one in measures if one.metric.needs_under(options) <= held]
                    cells[camera, code] = Gathering(options, possible)
                cells[camera, code].add(cell)
    known = positive_cam.known.tolist()
    return {(camera, known[code]): cells[camera, code].metrics() for camera, code in sorted(cells)}


@dataclass(frozen=True, eq=False)
class CameraMatrix:
    """One number for each pair of cameras.

    Attributes
    ----------
    query_cams : [A] array of integers or strings
        Ascending: cameras of queries with a positive.
    gallery_cams : [B] array of integers or strings
        Ascending: cameras of positives.
    values : [A, B] float64
        NaN if queries of one camera have no positive of the other.
    """

    query_cams: AnyArray
    gallery_cams: AnyArray
    values: FloatArray


def camera_matrix(cells: Mapping[tuple[Any, Any], Metrics], name: str) -> CameraMatrix:
    """Return a metric, or a number of ``counts``, of `metrics_by_camera_pair` as a matrix."""
    query_cams, gallery_cams = (np.unique([pair[side] for pair in cells]) for side in (0, 1))
    values = np.full((len(query_cams), len(gallery_cams)), np.nan)
    for (query, gallery), metrics in cells.items():
        own = metrics.scalars | metrics.counts
        found = find_name(name, own)
        if found is None:
            raise KeyError(f"no metric {name!r} of camera pairs; there are {', '.join(own)}")
        at = np.searchsorted(query_cams, query), np.searchsorted(gallery_cams, gallery)
        values[at] = own[found]
    return CameraMatrix(query_cams, gallery_cams, values)
