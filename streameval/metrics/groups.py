"""Metrics of groups of queries: by camera, by identity, by any label that queries have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.metrics.compute import Detail, Metrics, metrics_of
from streameval.metrics.metric import Measure
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.selection import available_fields, measures_of
from streameval.statistics import RankStatistics

NOT_BY_QUERY = (
    "counted over all queries together, not by group: evaluate with --group-by, of 100 groups at "
    "most"
)


def metrics_by_group(
    stats: RankStatistics, labels: npt.NDArray[Any], options: MetricOptions = DEFAULT_OPTIONS
) -> dict[Any, Metrics]:
    """Compute the metrics of the queries of each label, as if there were no others.

    Parameters
    ----------
    stats : RankStatistics
    labels : [Q] array of integers or strings
    options : MetricOptions, optional

    Returns
    -------
    dict of label to Metrics
        In the order of the labels. A metric from fields that are not kept by query is NaN.

    Raises
    ------
    InputError
        If there is not one label a query.
    OptionError
        See `compute_metrics`.
    """
    if labels.shape != (stats.queries,):
        raise InputError(
            f"the column of groups has shape {labels.shape}, and there are {stats.queries} "
            "queries: one label a query is needed"
        )
    measures = measures_of(options, available_fields(stats))
    groups: dict[Any, Metrics] = {}
    for label in np.unique(labels).tolist():
        own = stats.take(labels == label)
        split = [one for one in measures if set(one.metric.needs) <= available_fields(own)]
        metrics = metrics_of(own, options, split)
        for measure in measures:
            if measure not in split:
                _leave_out(metrics, measure)
        groups[label] = metrics
    return groups


def _leave_out(metrics: Metrics, measure: Measure) -> None:
    metrics.scalars[measure.name] = math.nan
    metrics.details[measure.name] = Detail(measure.metric.part, NOT_BY_QUERY)
