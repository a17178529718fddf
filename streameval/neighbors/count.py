"""Lists of neighbours evaluated: an index built where one is, k grown where that is asked for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.metrics.extremes import ListMetrics, compute_list_metrics
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import PARTS
from streameval.neighbors.faiss_build import build_index, index_file, write_index
from streameval.neighbors.search import Collect, CountedLists, check_unit, count_lists
from streameval.neighbors.source import DEEPER, Neighbors
from streameval.planning.range import Range
from streameval.run.executor import Executor
from streameval.run.preparation import Prepared
from streameval.run.progress import Watch
from streameval.run.session import Session
from streameval.source import Counted


def evaluate_lists(prepared: Prepared, source: Neighbors, session: Session) -> Counted:
    """Build the index, where there is one to be built; make or read the lists, and count them.

    Raises
    ------
    NotUnitError
        If the range relies on vectors of length 1, and some are not.
    """
    executor, watch = session.executor, session.watch
    begin_work(prepared, source, watch)
    used, features = prepared.range, source.features
    if used is not None and used.unit and features is not None:
        check_unit(features, prepared.plan, executor, watch)
    with index_of(prepared, source, watch) as (built, facts):
        counted = count_outcome(prepared, built, executor, watch, session.collect)
    if facts:
        counted.facts["lists"]["index"] = facts
    return counted


@contextmanager
def index_of(
    prepared: Prepared, source: Neighbors, watch: Watch
) -> Iterator[tuple[Neighbors, dict[str, Any]]]:
    """Give a source whose index is in a file, built where it is to be; and what is told of it."""
    features = source.features
    if source.index is None or source.path is not None or source.is_flat or features is None:
        yield source, {}
        return
    with index_file(source.save_index) as place:
        index, described = build_index(
            features,
            str(source.index),
            block=prepared.plan.block,
            threads=prepared.plan.threads,
            train_rows=source.train_rows,
            start=watch.start,
            advance=watch.advance,
        )
        write_index(index, described, place)
        del index
        watch.finish()
        told = {
            "spec": described.spec,
            "train_rows": described.train_rows,
            "build_seconds": described.build_seconds,
            "bytes": place.stat().st_size,
        }
        yield source.with_index(place), told


def begin_work(prepared: Prepared, source: Neighbors, watch: Watch) -> None:
    """Tell the progress how much there is to do, as far as that is known."""
    queries, gallery = source.shape
    pairs = 0 if source.lists is not None else queries * gallery
    if source.canonical:
        pairs += queries * min(source.depth, gallery)
    watch.begin(max(pairs, 1), prepared.plan.bytes_read)


def count_outcome(
    prepared: Prepared,
    source: Neighbors,
    executor: Executor,
    watch: Watch,
    collect: Collect | None = None,
) -> Counted:
    """Count lists of k items; where k is auto, ever longer ones until they do.

    Parameters
    ----------
    prepared : Prepared
    source : Neighbors
        Its index, where it has one, in a file.
    executor, watch
    collect : callable, optional
        Is given the lists of each block of queries, in order; not of k auto.
    """
    if source.k != "auto":
        counted, used = _in_range(prepared, source, executor, watch, collect)
        return _outcome(source, counted, used)
    gallery = source.shape[1]
    depth, plan = source.depth, prepared.plan
    if source.reading == "never":
        raise OptionError("k auto closes bounds, and missing is never: give a number")
    while True:
        deep = source.at_depth(min(depth, gallery))
        counted, used = _in_range(replace(prepared, plan=plan), deep, executor, watch)
        widest = _widest(counted, prepared.request.options)
        if widest <= source.width or depth >= gallery:
            return _outcome(deep, counted, used)
        depth *= DEEPER
        plan = source.at_depth(min(depth, gallery)).plan(prepared.problem, prepared.limits)


def _widest(counted: CountedLists, options: MetricOptions) -> float:
    """Return the width of the widest interval; infinite where a metric has no bounds yet.

    Where no metrics are named, those of GOM and of verification are not waited for: they have
    thresholds up to the greatest distance, and ask for the whole gallery.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        metrics = compute_list_metrics(counted.statistics, counted.reading, options)
    parts = ("retrieval", "open-set") if not options.metrics else PARTS
    waited = [name for name, one in metrics.details.items() if one.part in parts]
    return max((_width(metrics, name) for name in waited), default=0.0)


def _width(metrics: ListMetrics, name: str) -> float:
    if name in metrics.bounds:
        low, high = metrics.bounds[name]
        return high - low
    detail = metrics.details[name]
    return math.inf if detail.open else 0.0


def _in_range(
    prepared: Prepared,
    source: Neighbors,
    executor: Executor,
    watch: Watch,
    collect: Collect | None = None,
) -> tuple[CountedLists, Range]:
    """Count lists at the thresholds of the range; one from the data needs every distance."""
    problem, used = prepared.problem, prepared.range
    if used is None:
        counted = count_lists(
            source, prepared.pairs, prepared.plan, np.empty(0), None, executor, watch, collect
        )
        collect = None  # the lists are the same at the thresholds
        if not counted.complete or not counted.least <= counted.most:
            return counted, Range(math.nan, math.nan)
        used = Range(counted.least, counted.most)
    thresholds, edges = used.limits(problem.thresholds, problem.edges)
    limit = thresholds[-1] if problem.thresholds else math.inf
    counted = count_lists(
        source, prepared.pairs, prepared.plan, thresholds, edges, executor, watch, collect
    )
    if used.strict and (counted.least < used.low or counted.most > limit):
        raise InputError(
            f"lists hold distances from {counted.least!r} to {counted.most!r}, outside the given "
            f"range [{used.low!r}, {used.high!r}]: widen --range"
        )
    return counted, used


def _outcome(source: Neighbors, counted: CountedLists, used: Range) -> Counted:
    where = "the lists" if source.lists is None else f"neighbours {source.stored.uri}"
    counted.repairs.warn(where, source.reading)
    effective, reading = counted.reading.effective, counted.reading
    told = {
        "missing": reading.missing,
        "k": reading.depth,
        "distances": "canonical" if source.canonical else "as returned",
        "tightened": source.tighten,
        "complete": counted.complete,
        "effective_k": {
            "least": int(effective.min()),
            "median": float(np.median(effective)),
            "most": int(effective.max()),
        },
        "missing_positives": int(reading.missing_positives.sum()),
        "queries_missing_positives": int((reading.missing_positives > 0).sum()),
        "repaired": counted.repairs.summary(),
        "search_seconds": round(counted.search_seconds, 3),
    }
    return Counted(counted.statistics, used, reading, {"lists": told})
