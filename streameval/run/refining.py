"""Refining: further passes that count where a threshold is known to within a bin only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streameval.metrics.blocks import RankedQueries, Totals
from streameval.metrics.metric import Measure
from streameval.metrics.options import MetricOptions
from streameval.metrics.verification import settling_edges
from streameval.run.job import Job, Thresholds
from streameval.run.passes import count_all
from streameval.run.session import Session
from streameval.statistics import FloatArray, RankStatistics

PER_PASS = 1000  # edges that a pass counts: no more than the pass before


def refine(
    job: Job,
    counted: RankStatistics,
    measures: Sequence[Measure],
    session: Session,
) -> RankStatistics:
    """Return the statistics with edges of the histogram that settle the metrics' thresholds.

    One pass does where there are fewer genuine distances in the bin of a threshold than edges
    are counted at a time; otherwise each leaves a part of these, as small as the share of the
    edges in them.

    Parameters
    ----------
    job : Job
    counted : RankStatistics
        With a histogram.
    measures : sequence of Measure
    session : Session
    """
    # The range has been checked, and single shots are counted.
    range_ = replace(job.thresholds.range, strict=False)
    beside = replace(job, shots=None)
    for number in itertools.count(1):
        edges = _edges(counted, measures)
        if not len(edges):
            break
        further = replace(beside, thresholds=Thresholds(range_, np.empty(0), edges))
        finer = count_all(further, session, f"refining {number}")
        counted = counted.merge_edges(finer)
    return counted


def _edges(counted: RankStatistics, measures: Sequence[Measure]) -> FloatArray:
    ranked = RankedQueries(counted, MetricOptions())
    edges: FloatArray = np.empty(0)
    for measure in measures:
        between = measure.unsettled(ranked)
        if between is not None:
            own = settling_edges(Totals.of(ranked), between, PER_PASS // len(measures))
            edges = np.union1d(edges, own)
    return edges
