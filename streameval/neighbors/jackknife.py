"""Differences of metrics, with intervals from a jackknife over the queries.

A group of queries is left out at a time (Quenouille; Efron and Tibshirani 1993, §11): that does
for every metric that is smooth in the queries, and not for a threshold or a median.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streameval.errors import StreamevalWarning
from streameval.metrics.bounds import compute_list_metrics
from streameval.metrics.compute import metrics_of
from streameval.metrics.metric import FRACTION, Kind, Measure
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import find_measure
from streameval.result import Evaluation
from streameval.statistics import FloatArray

GROUPS = 20  # of queries, one of which is left out at a time
CONFIDENCE = 0.95
LISTED = "mAP"  # of the exact evaluation, beside which mAP@k/total of the lists is put


@dataclass(frozen=True)
class Difference:
    """A metric of a setting less that of the exact evaluation.

    Attributes
    ----------
    exact, deployed, value : float
        Of the exact evaluation, of the setting, and their difference, fractions in [0, 1] or τ;
        NaN where there is none.
    low, high : float
        Bounds of the 95 % interval of the difference, by a jackknife that leaves out a twentieth
        of the queries at a time; NaN where there is none.
    kind : Kind
        What the values are.
    """

    exact: float
    deployed: float
    value: float
    low: float = math.nan
    high: float = math.nan
    kind: Kind = FRACTION


def differences(
    exact: Evaluation, found: Evaluation, measures: Sequence[Measure], options: MetricOptions
) -> dict[str, Difference]:
    """Return the difference of each metric, with an interval from a jackknife over the queries."""
    reading = found.lists
    if reading is None:
        raise TypeError("the setting is no lists of neighbours")
    names = [one.name for one in measures]
    pairs = [(name, name) for name in names]
    listed = [name for name in names if name.startswith("mAP@") and name.endswith("/total")]
    pairs += [(LISTED, name) for name in listed]
    kinds = {one.name: one.metric.kind for one in measures}
    queries = exact.statistics.queries
    group = np.random.default_rng(0).permutation(queries) % min(GROUPS, queries)
    left: list[list[float]] = []
    for part in range(int(group.max()) + 1 if queries > 1 else 0):
        kept = np.flatnonzero(group != part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StreamevalWarning)
            whole = metrics_of(
                exact.statistics.take(kept), options, [*measures, find_measure(LISTED)]
            ).scalars
            lists = compute_list_metrics(
                found.statistics.take(kept), reading.take(kept), options
            ).scalars
        left.append([lists[other] - whole[name] for name, other in pairs])
    result: dict[str, Difference] = {}
    for at, (name, other) in enumerate(pairs):
        one, two = exact[name], found[other]
        low = high = math.nan
        kind = kinds.get(name, FRACTION)
        if kind is FRACTION and len(left) > 1 and not math.isnan(one + two):
            low, high = interval(two - one, np.array([row[at] for row in left]))
        result[name if name == other else f"{name} ({other})"] = Difference(
            one, two, two - one, low, high, kind
        )
    return result


def interval(value: float, left: FloatArray) -> tuple[float, float]:
    """Return the interval of a value, from its values without each of the groups."""
    from scipy.stats import t

    groups = len(left)
    if np.isnan(left).any():
        return math.nan, math.nan
    error = math.sqrt((groups - 1) / groups * float(((left - left.mean()) ** 2).sum()))
    reach = float(t.ppf((1 + CONFIDENCE) / 2, groups - 1)) * error
    return value - reach, value + reach
