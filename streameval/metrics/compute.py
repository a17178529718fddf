"""The evaluation of metrics: values, curves and columns of one set of statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np

from streameval.errors import InputError, warn
from streameval.metrics.blocks import RankedQueries, Shared, Totals, gathered, query_spans
from streameval.metrics.metric import EMPTY, FRACTION, Bounds, Kind, Measure, Value
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.selection import find_name, measures_of
from streameval.statistics import RankStatistics
from streameval.threads import spread
from streameval.typing import AnyArray, IntArray, Span

MOST_TOLD = 4  # metrics in a repr: it is a line
MOST_THREADS = 4  # that read blocks: more wait for Python's lock, and each takes 12 MB


@dataclass(frozen=True)
class Detail:
    """Details of a scalar.

    Attributes
    ----------
    part : str
        Its group: "retrieval", "open-set", "gom", "verification".
    reason : str
        Why it is NaN; empty if it has a value.
    threshold : float, optional
        The distance at which it is reached.
    error, threshold_error : float
        Bounds on the errors of the value and of the threshold.
    kind : Kind
        What the value is.
    open : bool
        Whether it is NaN because the lists of neighbours are too short.
    """

    part: str
    reason: str = ""
    threshold: float | None = None
    error: float = 0.0
    threshold_error: float = 0.0
    kind: Kind = FRACTION
    open: bool = False


@dataclass(frozen=True, eq=False)
class Metrics(Mapping[str, float]):
    """Metrics of an evaluation: a mapping from names to floats.

    ``metrics["mAP"]`` is a fraction, or NaN if undefined. Names of other tools, such as
    ``rank1``, work too.

    Attributes
    ----------
    scalars : dict of str to float
        ``CMC@1``, ``mAP``, ...; NaN if undefined.
    details : dict of str to Detail
        For each scalar: why it is NaN, where it is reached, and its error bounds.
    intervals : dict of str to (float, float)
        The scalars that differ between the pessimistic and the optimistic tie rule, with the
        two values in ascending order. Empty where there are no ties.
    curves : dict of str to [n] array
        ``CMC`` [K]; ``tau``, ``mRP``, ``mVP``, ``mReP``, ``mFR`` [T]; ``ROC_tau``, ``FAR``,
        ``DIR@1`` [points of the ROC]; and curves of other metrics.
    per_query : dict of str to [Q] array
        NaN where undefined.
    counts : dict of str to int
    bounds : dict of str to (float, float)
        For lists of neighbours: the lowest and highest possible value of each metric that can be
        bounded; equal if the metric is known.
    places : dict of str to (int, int)
        For metrics of lists that are not known: two values of k. No k below the first determines
        the metric; the second certainly does.
    """

    scalars: dict[str, float]
    details: dict[str, Detail]
    intervals: dict[str, tuple[float, float]]
    curves: dict[str, AnyArray]
    per_query: dict[str, AnyArray]
    counts: dict[str, int]
    bounds: dict[str, Bounds] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        found = find_name(name, self.scalars)
        if found is None:
            raise KeyError(f"no metric {name!r}; there are {', '.join(self.scalars)}")
        return self.scalars[found]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scalars)

    def __len__(self) -> int:
        return len(self.scalars)

    def __repr__(self) -> str:
        return f"<Metrics: {scalars_text(self.scalars)}>"


def scalars_text(scalars: Mapping[str, float]) -> str:
    """Return the first metrics in a line, as a repr has them."""
    told = [f"{name} {value:.6g}" for name, value in scalars.items()]
    return ", ".join([*told[:MOST_TOLD], "..."] if len(told) > MOST_TOLD else told)


def compute_metrics(
    stats: RankStatistics | Iterable[RankStatistics],
    options: MetricOptions = DEFAULT_OPTIONS,
    threads: int = 1,
) -> Metrics:
    """Compute the metrics of the options, by default those that the statistics allow.

    Metrics over an empty set of queries or pairs are NaN.

    Parameters
    ----------
    stats : RankStatistics, or iterable of RankStatistics
        Statistics of all queries, or of consecutive blocks of queries. Each block is released
        before the next is read. Metrics are equal for any blocks.
    options : MetricOptions, optional
    threads : int
        How many read the queries of a block.

    Warns
    -----
    StreamevalWarning
        If Q+ is empty; names the scalars that are NaN. An empty Q− is the ordinary closed-world
        setting and gives no warning.

    Raises
    ------
    InputError
        If a query has no positive, and the options call that an error.
    """
    blocks = stats.blocks() if isinstance(stats, RankStatistics) else iter(stats)
    first = next(blocks, None)
    if first is None:
        raise ValueError("there are no statistics to compute metrics of")
    measures = measures_of(options, first)
    metrics = metrics_of(chain([first], blocks), options, measures, threads)
    check_matched(metrics.per_query["positives"], options)
    counts = metrics.counts
    if not counts["queries_positive"]:
        undefined = ", ".join(one.name for one in measures if "Q+" in one.metric.over)
        message = f"{EMPTY['Q+']} (Q+ is empty), so these are NaN: {undefined}"
        if counts["queries_excluded"]:
            message += (
                f"; of {counts['queries_excluded']} queries every item of the same identity is "
                "ignored"
            )
        warn(message)
    return metrics


def check_matched(positives: IntArray, options: MetricOptions) -> None:
    """Refuse queries without positives, of which there are [Q], where these are an error."""
    lacking = np.flatnonzero(positives == 0)
    if options.unmatched == "error" and len(lacking):
        raise InputError(
            f"query {lacking[0]} has no positive in the gallery, and unmatched is error "
            f"({len(lacking)} of {len(positives)} queries have none, numbered from 0): leave them "
            "out of the queries, or choose exclude or miss"
        )


def metrics_of(
    stats: RankStatistics | Iterable[RankStatistics],
    options: MetricOptions,
    measures: Sequence[Measure],
    threads: int = 1,
) -> Metrics:
    """Compute some metrics, all of which the statistics allow; without a warning."""
    gathering = Gathering(options, measures, threads)
    for block in stats.blocks() if isinstance(stats, RankStatistics) else stats:
        gathering.add(block)
    return gathering.metrics()


class Gathering:
    """Some metrics of queries whose statistics come block by block, and are not kept."""

    def __init__(
        self, options: MetricOptions, measures: Sequence[Measure], threads: int = 1
    ) -> None:
        self._options, self._measures, self._threads = options, measures, threads
        self._on_ties = [one for one in measures if "tied" in one.metric.needs]
        self._demands, self._demands_on_ties = (
            [demand for one in some for demand in one.demands()]
            for some in (measures, self._on_ties)
        )
        extremes = (replace(options, ties=ties) for ties in ("pessimistic", "optimistic"))
        self._rules = options, *extremes
        self._parts: list[list[Shared]] = [[] for _ in self._rules]

    def add(self, block: RankStatistics) -> None:
        """Gather what the metrics declare of the queries that follow."""
        gather = partial(self._of_queries, block)
        for parts in spread(gather, list(query_spans(block)), min(self._threads, MOST_THREADS)):
            for kept, part in zip(self._parts, parts, strict=True):
                kept.append(part)

    def _of_queries(self, block: RankStatistics, span: Span) -> list[Shared]:
        """Return what the metrics declare of some queries of a block, under each rule for ties."""
        part = block.block(*span)
        own, ties = gathered(RankedQueries(part, self._options), self._demands), part.tied.any()
        return [
            own
            if rule == self._options or not ties
            else gathered(RankedQueries(part, rule), self._demands_on_ties)
            for rule in self._rules
        ]

    def metrics(self) -> Metrics:
        """Return the metrics of all queries."""
        totals, worst, best = map(Totals, self._parts, self._rules)
        on_ties = [one for one in self._on_ties if totals.tied or one.metric.pooled]
        intervals = tie_intervals((worst, best), on_ties)
        metrics = Metrics({}, {}, intervals, {}, dict(totals.columns), totals.counts)
        for measure in self._measures:
            value = measure.finish(totals)
            metrics.scalars[measure.name] = value.value
            metrics.details[measure.name] = value_detail(measure, value)
            metrics.curves.update(value.curves)
            metrics.per_query.update(value.per_query)
        return metrics


def value_detail(measure: Measure, value: Value, *, left_open: bool = False) -> Detail:
    """Return what there is to say of a value."""
    metric, reason = measure.metric, value.reason or "undefined"
    return Detail(
        metric.part,
        reason if math.isnan(value.value) else "",
        value.threshold,
        value.error,
        value.threshold_error,
        metric.kind,
        left_open,
    )


def tie_intervals(
    extremes: tuple[Totals, Totals], measures: Iterable[Measure]
) -> dict[str, Bounds]:
    """Return the scalars that differ where ties are worst and where they are best.

    The lower and the upper of the two bound the scalar under every tie rule, but for tau_max,
    which is a place and not a score.
    """
    intervals: dict[str, Bounds] = {}
    for measure in measures:
        low, high = sorted(measure.finish(one).value for one in extremes)
        if low != high and not math.isnan(low + high):
            intervals[measure.name] = low, high
    return intervals
