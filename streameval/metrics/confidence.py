"""Confidence intervals of metrics, by bootstrap over identities, from the statistics alone.

Queries of one identity are not independent, so identities are drawn, with replacement, as many
as there are; the queries of an identity that is drawn k times are there k times. The gallery
stays. What a metric adds over queries is then a product of how often each identity is drawn,
[R, I], with sums by identity, [I]: nothing is counted or sorted again. `Metric.resampled` says how
a metric that is no mean over queries is read off `Resamples`.

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, §13.3 (percentile intervals);
of clusters: Field and Welsh 2007.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError, entry_point, is_whole, refuse
from streameval.metrics.blocks import (
    Blocks,
    Shared,
    Terms,
    Totals,
    in_groups,
    mean_groups,
    totals_of,
)
from streameval.metrics.options import MetricOptions, is_number
from streameval.typing import AnyArray, FloatArray, IntArray

if TYPE_CHECKING:
    from streameval.metrics.metric import Measure

ONE_IDENTITY = "the queries are of one identity: there is nothing to draw from"
UNDEFINED_SHARE = 0.05
"""Share of resamples without a value beyond which there is no interval."""

BLOCK_BYTES = 128 << 20  # of one block of draws, [r, I] float64
CACHED_BYTES = 2 << 20  # of the weights of queries that are looked at together


@dataclass(frozen=True)
class Resampling:
    """Parameters of the bootstrap.

    Attributes
    ----------
    level : float
        Fraction of the resamples inside the interval, in (0, 1).
    resamples : int
        Number of resamples R; at least 2.
    seed : int
        Seed of the draws; not negative.

    Raises
    ------
    OptionError
        If a value is invalid.
    """

    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    @entry_point
    def __post_init__(self) -> None:
        """Check every value."""
        refuse(
            OptionError,
            not (is_number(self.level) and 0 < self.level < 1)
            and f"level is {self.level!r}; expected a share between 0 and 1: 0.95",
            not is_whole(self.resamples, 2)
            and f"resamples is {self.resamples!r}; expected an integer of at least 2",
            not is_whole(self.seed, 0)
            and f"seed is {self.seed!r}; expected an integer of at least 0",
        )


class Identities:
    """The identities of the queries, from their labels [Q].

    Attributes
    ----------
    code : [Q] int64
        Which identity each query has, 0 .. I − 1, in the order of the labels.
    count : int
        Number of identities, I.
    """

    def __init__(self, labels: AnyArray) -> None:
        known, code = np.unique(labels, return_inverse=True)
        self.code: IntArray = code
        self.count = len(known)

    def draws(self, how: Resampling) -> Iterator[FloatArray]:
        """Give how often each identity is drawn, [r, I] float64, in blocks of R resamples.

        The draws do not depend on the blocks.
        """
        rng = np.random.default_rng(how.seed)
        block = max(BLOCK_BYTES // (8 * max(self.count, 1)), 1)
        for start in range(0, how.resamples, block):
            rows = min(block, how.resamples - start)
            drawn = np.empty((rows, self.count))
            for row in drawn:
                picked = rng.integers(0, self.count, self.count)
                row[:] = np.bincount(picked, minlength=self.count)
            yield drawn

    def sums(self, values: AnyArray, queries: IntArray | slice = slice(None)) -> FloatArray:
        """Return the sums by identity of values of all queries, or of some, [I] float64."""
        return np.bincount(self.code[queries], values, self.count).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class Resamples(Shared):
    """The queries in R resamples of their identities.

    Attributes
    ----------
    totals : Totals
        What the queries as they are add up to, in blocks that can be read again.
    identities : Identities
    drawn : [R, I] float64
        How often each identity is drawn.
    """

    totals: Totals
    identities: Identities
    drawn: FloatArray

    @cached_property
    def numbers(self) -> dict[str, FloatArray]:
        """Numbers of what metrics are over in each resample, [R] float64: `Totals.populations`."""
        of, identities = self.totals.populations, self.identities
        return {name: self.drawn @ identities.sums(values) for name, values in of.items()}

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the means over Q+ of [N] float64 in each resample, [R] float64."""
        if self.totals.options.average:
            return self._mean_of_groups(*self.totals.counted(values))
        number, totals = self.numbers[self.totals.base()], self.totals
        if totals.options.over_draws:
            values = values * totals.asking[totals.queries]
            asked = totals.asking * totals.populations[totals.base()]
            number = self.drawn @ self.identities.sums(asked)
        sums = self.identities.sums(values, totals.queries)
        return divided(self.drawn @ sums, number)

    def _mean_of_groups(self, queries: IntArray, values: FloatArray) -> FloatArray:
        """Return the mean of the groups' means of [n] in each resample, [R] float64.

        Groups of one identity each are there as often as it is drawn; others once, if at all.
        """
        order, start = in_groups(self.totals.column(mean_groups)[queries])
        queries, values = queries[order], values[order]
        identity, means = self.identities.code[queries], np.empty(len(self.drawn))
        first, last = (of.reduceat(identity, start) for of in (np.minimum, np.maximum))
        nested = np.array_equal(first, last)
        for block, (weights,) in self.weights(queries):
            number = np.add.reduceat(weights, start, axis=1)
            own = divided(np.add.reduceat(weights * values, start, axis=1), number)
            there = weights[:, start] if nested else (number > 0).astype(np.float64)
            sums = np.sum(there * np.nan_to_num(own), axis=1)
            means[block] = divided(sums, there.sum(axis=1))
        return means

    def sums(self, terms: Terms, *parameters: Any, over: str | None = None) -> FloatArray:
        """Return sums that a metric `adds`, in each resample, [R, K] float64.

        Each term is of one query: of Q+, of Q−, or of all.
        """
        return self.drawn @ self.totals.once(
            _identity_sums, self.identities, terms, over, *parameters
        )

    def means(self, terms: Terms, *parameters: Any, over: str = "Q+") -> FloatArray:
        """Return these means over Q+ or Q−, [R, K] float64."""
        sums = self.sums(terms, *parameters, over=over)
        return divided(sums, self.numbers[self.totals.base(over)])

    def weights(self, *queries: IntArray) -> Iterator[tuple[slice, list[FloatArray]]]:
        """Give how often some queries are there, [r, n] float64 for each [n], by resamples."""
        codes = [self.identities.code[some] for some in queries]
        rows = max(CACHED_BYTES // (8 * max(sum(map(len, codes)), 1)), 1)
        for start in range(0, len(self.drawn), rows):
            block = slice(start, start + rows)
            yield block, [np.take(self.drawn[block], code, axis=1) for code in codes]


def _identity_sums(
    totals: Totals, identities: Identities, terms: Terms, over: str | None, *parameters: Any
) -> FloatArray:
    """Return the sums of terms by identity, [I, K] float64."""
    sums, first = np.empty((0, identities.count)), 0
    for ranked in totals.ranked():
        last = first + ranked.stats.queries
        of = np.arange(first, last)
        if over is not None:
            of = of[totals.populations[over][first:last]]
        rows = [identities.sums(row, of) for each in terms(ranked, *parameters) for row in each]
        found, first = np.array(rows).reshape(-1, identities.count), last
        sums = sums + found if len(sums) else found
    return sums.T


def divided(sums: AnyArray, by: AnyArray) -> FloatArray:
    """Return sums by others of the same shape, or of [R] beside [R, T]; NaN where these are 0."""
    by = by if sums.ndim == by.ndim else by[:, None]
    quotient: FloatArray = np.divide(sums, by, out=np.full(sums.shape, np.nan), where=by > 0)
    return quotient


@dataclass(frozen=True, eq=False)
class Confidence:
    """Percentile intervals of metrics.

    Attributes
    ----------
    how : Resampling
    identities : int
        Number of identities, which is also the number drawn for each resample.
    intervals : dict of str to (float, float)
        Lower and upper bound by metric: percentiles of the resamples (Efron and Tibshirani 1993,
        §13.3).
    reasons : dict of str to str
        Why a metric that has a value has no interval.
    """

    how: Resampling
    identities: int
    intervals: dict[str, tuple[float, float]]
    reasons: dict[str, str]


def confidence_of(
    stats: Blocks,
    options: MetricOptions,
    measures: Sequence[Measure],
    identities: Identities,
    how: Resampling,
) -> Confidence:
    """Return the intervals of metrics whose value is not NaN."""
    reasons = {one.name: reason for one in measures if (reason := withheld(one, identities))}
    possible = [one for one in measures if one.name not in reasons]
    confidence = Confidence(how, identities.count, {}, reasons)
    for name, values in resampled_values(stats, options, possible, identities, how).items():
        found = interval(values, how.level)
        if isinstance(found, str):
            reasons[name] = found
        else:
            confidence.intervals[name] = found
    return confidence


def withheld(measure: Measure, identities: Identities) -> str:
    """Return why a metric can't be resampled; an empty text where it can."""
    if not measure.metric.resamples:
        return measure.metric.no_interval
    return ONE_IDENTITY if identities.count < 2 else ""


def interval(values: FloatArray, level: float) -> tuple[float, float] | str:
    """Return the quantiles that enclose a share of the values [R], or why there are none.

    Values of NaN are left out; there may be few.
    """
    undefined = int(np.isnan(values).sum())
    if undefined > UNDEFINED_SHARE * len(values):
        return f"without a value in {undefined:,} of {len(values):,} resamples"
    tail = (1 - level) / 2
    low, high = np.quantile(values[~np.isnan(values)], (tail, 1 - tail))
    return float(low), float(high)


def resampled_values(
    stats: Blocks,
    options: MetricOptions,
    measures: Sequence[Measure],
    identities: Identities,
    how: Resampling,
) -> dict[str, FloatArray]:
    """Return each metric's value in each resample, [R] float64; NaN where it has none.

    Equal, but for rounding, to the metric of ``stats.take`` of the queries that are drawn. The
    same identities and `how` give the same draws, whatever the statistics: values of two runs on
    the same queries are pairs.
    """
    totals = totals_of(stats, options, [demand for one in measures for demand in one.columns()])
    parts: dict[str, list[FloatArray]] = {one.name: [] for one in measures}
    for drawn in identities.draws(how) if measures else ():
        resamples = Resamples(totals, identities, drawn)
        for one in measures:
            empty = np.any([resamples.numbers[side] == 0 for side in one.metric.over], axis=0)
            values = np.where(empty, math.nan, one.resampled(resamples))
            parts[one.name].append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}
