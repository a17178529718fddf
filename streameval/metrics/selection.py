"""The list of metrics; which are asked for, by name; and which statistics they need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from streameval.errors import OptionError
from streameval.metrics import (
    cutoffs,
    gom,
    matching,
    openset,
    predictions,
    retrieval,
    verification,
)
from streameval.metrics.metric import Measure, Metric, Part
from streameval.metrics.options import OPTION_NAMES, MetricOptions
from streameval.statistics import FIELDS, THRESHOLD_FIELDS, WHOLE_FIELDS, RankStatistics
from streameval.typing import Keywords

METRICS: tuple[Metric, ...] = (
    *retrieval.METRICS,
    *cutoffs.METRICS,
    *gom.METRICS,
    *openset.METRICS,
    *predictions.METRICS,
    *verification.METRICS,
    *matching.METRICS,
)
PARTS: tuple[str, ...] = get_args(Part)
ALL, RANK = "all", "rank"
LISTS: tuple[str, ...] = (ALL, RANK, *PARTS)
"""Names that stand for lists of metrics; `rank` for those that ranks tell, without thresholds."""


def names_of(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Return names of metrics, from one text, ``"CMC@1,mAP"``, or several."""
    if not isinstance(given, Iterable):
        raise OptionError(f"{what} is {given!r}; expected names such as CMC@1,mAP")
    if not isinstance(given, str):
        return tuple(given)
    names = tuple(filter(None, map(str.strip, given.split(","))))
    if not names:
        raise OptionError(f"{what} is {given!r}; expected names such as CMC@1,mAP, or all")
    return names


def with_changes(options: MetricOptions, changes: Keywords) -> MetricOptions:
    """Return options with some changed, metrics as one text or several names; None changes none."""
    for name in changes:
        if name not in OPTION_NAMES:
            raise OptionError(f"unknown option {name!r}; known options: {', '.join(OPTION_NAMES)}")
    given = {name: value for name, value in changes.items() if value is not None}
    if "metrics" in given:
        given["metrics"] = names_of(given["metrics"], "metrics")
    return replace(options, **given)


@cache
def find_measure(name: str) -> Measure:
    """Return the metric of a name with its parameters, as ``DIR@1|FAR=0.01``.

    A name of another tool, or one in other letters, does as well where it stands for one metric:
    ``Rank-1``.
    """
    called = [one for metric in METRICS for one in metric.called(name)]
    if len(called) == 1:
        return called[0]
    if called:
        hint = f"here that is {' or '.join(one.name for one in called)}"
    else:
        known = [one.name for metric in METRICS for one in metric.measures(MetricOptions())]
        folded = {one.lower(): one for one in (*known, *PARTS)}
        near = [folded[one] for one in get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
        hint = f"the nearest are {', '.join(near)}" if near else "none has a name like it"
    raise OptionError(f"unknown metric {name!r}: {hint}; `streameval metrics` lists all")


def find_name(name: Any, known: Collection[str]) -> str | None:
    """Return what a metric is called among some names; None where it is not among them."""
    if name in known:
        return str(name)
    with suppress(OptionError, TypeError):  # FAR=0.000001 is FAR=1e-06; rank1, CMC@1
        written = find_measure(name).name
        if written in known:
            return written
    return None


def wanted_measures(options: MetricOptions) -> tuple[list[Measure], list[Measure]]:
    """Return the metrics named by the options, and those that they stand for as part of a list.

    The first must be computed; the second are left out where the statistics don't allow them.
    """
    named: dict[Measure, None] = {}
    listed: dict[Measure, None] = {}
    drawn = options.over_draws
    for name in options.metrics or (None,):
        if name is None or name in LISTS:
            for metric in (one for one in METRICS if one.drawn or not drawn):
                if metric.default if name is None else name in _lists_of(metric, options):
                    listed |= dict.fromkeys(metric.measures(options))
        else:
            named[find_measure(name)] = None
    unknown = [one.name for one in named if drawn and not one.metric.drawn]
    if unknown:
        known = ", ".join(one.name for one in METRICS if one.drawn)
        raise OptionError(
            f"{', '.join(unknown)}: no exact expectation over all draws of a gallery is known; "
            f"choose among {known}, or a number of trials"
        )
    listed = {one: None for one in listed if one not in named}
    if not options.average:
        return list(named), list(listed)
    means = [one for one in listed if one.metric.is_mean]
    others = [one.name for one in named or listed if not one.metric.is_mean]
    if others and (named or not means):
        raise OptionError(
            f"{', '.join(others)}: no mean over queries, and average is {options.average!r}, which "
            "asks for means over groups of them: leave out these metrics, or average"
        )
    return list(named), means


def _lists_of(metric: Metric, options: MetricOptions) -> tuple[str, ...]:
    """Return the lists that a metric is part of."""
    ranks = metric.needs_under(options).isdisjoint({*THRESHOLD_FIELDS, *WHOLE_FIELDS})
    return (ALL, metric.part, *([RANK] if ranks else []))


def refined_measures(names: Iterable[str]) -> list[Measure]:
    """Return the metrics whose thresholds further passes are to settle."""
    measures = [find_measure(name) for name in names]
    for measure in measures:
        if not measure.metric.refined:
            known = ", ".join(one.name for one in METRICS if one.refined)
            raise OptionError(
                f"{measure.name} has no threshold that is known to within a bin only: nothing to "
                f"be refined; known: {known}"
            )
    return list(dict.fromkeys(measures))


def with_named(options: MetricOptions, names: Sequence[str]) -> MetricOptions:
    """Return options under which the metrics of these names are computed, too."""
    before = options.metrics or tuple(one.name for one in wanted_measures(options)[1])
    return replace(options, metrics=(*before, *names)) if names else options


def required_fields(options: MetricOptions) -> frozenset[str]:
    """Return the fields of `RankStatistics` that the metrics of the options need.

    This is what a plan asks to count no more than that. `all`, and a part of the list, ask for
    the optional fields too.
    """
    named, listed = wanted_measures(options)
    return frozenset[str]().union(*(one.metric.needs_under(options) for one in (*named, *listed)))


def measures_of(options: MetricOptions, stats: RankStatistics) -> list[Measure]:
    """Return the metrics of the options that the statistics allow."""
    named, listed = wanted_measures(options)
    available = available_fields(stats)
    needs = {
        one: one.metric.needs_under(options) if options.over_draws else one.metric.needs
        for one in (*named, *listed)
    }
    for measure in named:
        missing = [field for field in needs[measure] if field not in available]
        if missing:
            protocol = " and --protocol cuhk03" if WHOLE_FIELDS.intersection(missing) else ""
            raise OptionError(
                f"{measure.name} needs {', '.join(missing)}, which these statistics do not hold: "
                "evaluate again, from the distances or features, with --metrics "
                f"'{measure.name}'{protocol}"
            )
    possible = [one for one in listed if available.issuperset(needs[one])]
    return in_order([*named, *possible])


def in_order(measures: Sequence[Measure]) -> list[Measure]:
    """Return the metrics in the order of the list, those of one declaration as they came."""
    return sorted(measures, key=lambda measure: METRICS.index(measure.metric))


def available_fields(stats: RankStatistics) -> frozenset[str]:
    """Return the fields that the statistics hold: optional ones that are there, and thresholds."""
    thresholds = len(stats.thresholds)
    return frozenset(
        name for name in stats.held if thresholds or "threshold" not in FIELDS[name].axes
    )
