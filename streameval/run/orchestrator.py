"""run(): the passes of what is prepared, and the metrics of what they count."""

from __future__ import annotations

import time
import warnings
from datetime import UTC, datetime
from typing import Any

import numpy as np

from streameval.errors import InputError, StreamevalWarning
from streameval.metrics import MetricOptions
from streameval.metrics.camera_pairs import PositiveCameras
from streameval.metrics.extremes import ListReading
from streameval.metrics.selection import required_fields
from streameval.neighbors.count import evaluate_lists
from streameval.neighbors.search import Collect
from streameval.neighbors.source import Neighbors
from streameval.result import Evaluation
from streameval.run.executor import Executor
from streameval.run.job import Job, NotUnitError, Range, Shots
from streameval.run.passes import count_all, find_extremes, find_positives
from streameval.run.preparation import Prepared, resolve_options
from streameval.run.progress import Progress, Watch
from streameval.run.provenance import describe_run
from streameval.run.record import NO_RECORD, Record
from streameval.run.refining import refine
from streameval.run.threads import ThreadExecutor
from streameval.sources.sources import BadRowError
from streameval.statistics import RankStatistics


def run(
    prepared: Prepared,
    options: MetricOptions,
    progress: Progress | None = None,
    *,
    executor: Executor | None = None,
    record: Record = NO_RECORD,
    collect: Collect | None = None,
) -> Evaluation:
    """Run what `prepare` has prepared; the gallery's labels are not needed any more.

    Parameters
    ----------
    prepared : Prepared
    options : MetricOptions
    progress : Progress, optional
    executor : Executor, optional
        What runs the tasks; the plan's threads by default.
    record : Record
        Keeps finished work, and knows of work finished before.
    collect : callable, optional
        Is given the lists of each block of queries, in order, where lists of neighbours of a
        fixed length are evaluated.

    Raises
    ------
    InputError
        If the inputs hold what can't be evaluated.
    """
    started, begin = datetime.now(UTC), time.perf_counter()
    options = resolve_options(options, prepared.protocol, prepared.refine)
    progress = progress or Progress()
    executor = executor or ThreadExecutor(prepared.plan.threads)
    try:
        try:
            statistics, used, reading, told = _counted(
                prepared, options, executor, Watch(progress), record, collect
            )
        except NotUnitError:  # the range must come from the data after all
            prepared = prepared.with_range_from_data()
            record.begin("range from data")
            statistics, used, reading, told = _counted(
                prepared, options, executor, Watch(progress), record, collect
            )
    except BadRowError as error:  # a pass may meet a later one first
        features = prepared.features
        if features is not None:
            features.first_bad_row(error.row)
        raise
    return Evaluation.compute(
        statistics,
        options,
        range=prepared.range_summary(used),
        columns=prepared.query_columns,
        provenance=describe_run(prepared, started, time.perf_counter() - begin) | told,
        positive_cams=_positive_cams(prepared, statistics),
        lists=reading,
    )


def _counted(
    prepared: Prepared,
    options: MetricOptions,
    executor: Executor,
    watch: Watch,
    record: Record,
    collect: Collect | None,
) -> tuple[RankStatistics, Range, ListReading | None, dict[str, Any]]:
    """Run all passes: the statistics, the range of the distances, and what lists tell."""
    if isinstance(prepared.source, Neighbors):
        return evaluate_lists(prepared, prepared.source, options, executor, watch, collect)
    shots = _shots(prepared, options)
    return *_count(prepared, shots, executor, watch, record), None, {}


def _positive_cams(prepared: Prepared, statistics: RankStatistics) -> PositiveCameras | None:
    """Return the cameras of the positives in the order of the statistics."""
    cams = prepared.positive_cams
    if cams is None or statistics.positive_item is None:
        return None
    query = np.repeat(np.arange(statistics.queries), statistics.positives)
    listed = np.lexsort((statistics.positive_item, query))  # the order of `Pairs.positives`
    place = np.empty(len(listed), np.int64)
    place[listed] = np.arange(len(listed))
    return cams.take(place)


def _shots(prepared: Prepared, options: MetricOptions) -> Shots | None:
    """Return what single gallery shot draws from, where the metrics need it."""
    sizes = prepared.problem.shots
    if prepared.identities is None or sizes is None:
        return None
    protocol, sampled = prepared.protocol, "sampled_shots" in required_fields(options)
    draws = protocol.shot_draws if sampled else 0
    return Shots(prepared.identities, draws, protocol.shot_seed, sizes.entries)


def _count(
    prepared: Prepared, shots: Shots | None, executor: Executor, watch: Watch, record: Record
) -> tuple[RankStatistics, Range]:
    """Run all passes: the statistics, and the range of the distances that was used."""
    problem, plan = prepared.problem, prepared.plan
    listed = {"features": problem.positives, "strips": 0, "rectangles": plan.pairs}[plan.layout]
    watch.begin(plan.pairs * problem.passes + listed, plan.bytes_read)
    used = prepared.range
    if used is None:
        job = Job(prepared.source, prepared.pairs, prepared.plan, Range(0, 1), np.empty(0))
        low, high = find_extremes(job, executor, watch, record)
        if low > high:
            warnings.warn(
                "every pair is ignored: there is no distance to take a range from",
                StreamevalWarning,
                stacklevel=3,
            )
            low, high = 0.0, 1.0
        if not np.isfinite(high - low):
            raise InputError(
                f"distances from {low!r} to {high!r} have no finite range: scale them down"
            )
        used = Range(low, high)
    thresholds, edges = used.limits(problem.thresholds, problem.edges)
    job = Job(
        prepared.source,
        prepared.pairs,
        prepared.plan,
        used,
        thresholds,
        edges,
        shots=shots,
        groups=prepared.groups,
    )
    job = find_positives(job, executor, watch, record)
    counted = count_all(job, executor, watch, record)
    if prepared.refine:
        counted = refine(job, counted, prepared.refine, executor, watch, record)
    return counted, used
