"""Metrics of groups of queries: by camera, by identity, by any label that queries have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.metrics.bounds import ListReading, compute_list_metrics
from streameval.metrics.compute import Detail, Metrics, metrics_of
from streameval.metrics.confidence import Confidence, confidence_of
from streameval.metrics.metric import Measure
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.resampling import Identities, Resampling
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
    _check_labels(stats, labels)
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


def confidence_by_group(
    stats: RankStatistics,
    groups: Mapping[Any, Metrics],
    labels: npt.NDArray[Any],
    identity: npt.NDArray[Any],
    options: MetricOptions,
    how: Resampling,
) -> dict[Any, Confidence]:
    """Return the intervals of each group: of the identities of its own queries, drawn alone.

    Parameters
    ----------
    stats : RankStatistics
    groups : mapping of label to Metrics
        As `metrics_by_group` returns.
    labels, identity : [Q] arrays
        Of the queries.
    options : MetricOptions
    how : Resampling
    """
    measures = measures_of(options, available_fields(stats))
    found: dict[Any, Confidence] = {}
    for label, metrics in groups.items():
        own = labels == label
        valued = [one for one in measures if not math.isnan(metrics.scalars[one.name])]
        identities = Identities(identity[own])
        found[label] = confidence_of(stats.take(own), options, valued, identities, how)
    return found


def list_metrics_by_group(
    stats: RankStatistics,
    lists: ListReading,
    labels: npt.NDArray[Any],
    options: MetricOptions = DEFAULT_OPTIONS,
) -> dict[Any, Metrics]:
    """Compute the metrics of the queries of each label, of lists of neighbours.

    Parameters
    ----------
    stats : RankStatistics
    lists : ListReading
        How they are read.
    labels : [Q] array of integers or strings
    options : MetricOptions, optional

    Raises
    ------
    InputError
        If there is not one label a query.
    """
    _check_labels(stats, labels)
    chosen = {label: np.flatnonzero(labels == label) for label in np.unique(labels).tolist()}
    return {
        label: compute_list_metrics(stats.take(own), lists.take(own), options)
        for label, own in chosen.items()
    }


def _check_labels(stats: RankStatistics, labels: npt.NDArray[Any]) -> None:
    if labels.shape != (stats.queries,):
        raise InputError(
            f"the column of groups has shape {labels.shape}, and there are {stats.queries} "
            "queries: one label a query is needed"
        )


def _leave_out(metrics: Metrics, measure: Measure) -> None:
    metrics.scalars[measure.name] = math.nan
    metrics.details[measure.name] = Detail(measure.metric.part, NOT_BY_QUERY)
