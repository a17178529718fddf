"""Bootstrap over identities: the metrics of resamples of the queries, from the statistics alone.

Queries of one identity are not independent, so identities are drawn, with replacement, as many
as there are; the queries of an identity that is drawn k times are there k times. The gallery
stays. What a metric adds over queries is then a product of how often each identity is drawn,
[R, I], with sums by identity, [I]: nothing is counted or sorted again.

    Metric.resampled   how a metric that is no mean over queries is read off the resamples
    Resamples          the draws, and the sums in them
    Resampling         level, number and seed
    confidence         the intervals of all metrics of some statistics

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, §13.3 (percentile intervals);
of clusters: Field and Welsh 2007.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streameval.errors import OptionError
from streameval.metrics.ranked import RankedQueries, Shared
from streameval.metrics.totals import Terms, Totals
from streameval.statistics import FloatArray, IntArray

Side = Literal["Q+", "Q−"]
BLOCK_BYTES = 128 << 20  # of one block of draws, [r, I] float64
CACHED_BYTES = 2 << 20  # of the weights of queries that are looked at together


@dataclass(frozen=True)
class Resampling:
    """How intervals are made.

    Attributes
    ----------
    level : float
        Share of the resamples inside the interval, in (0, 1).
    resamples : int
        How many, R; at least 2.
    seed : int
        Of the draws, not negative.

    Raises
    ------
    OptionError
        If a value can't be.
    """

    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every value."""
        level: Any = self.level
        if not isinstance(level, Real) or not 0 < float(level) < 1:
            raise OptionError(f"level is {level!r}; expected a share between 0 and 1: 0.95")
        for name, least in (("resamples", 2), ("seed", 0)):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
                raise OptionError(f"{name} is {value!r}; expected an integer of at least {least}")


class Identities:
    """The identities of the queries.

    Parameters
    ----------
    labels : [Q] array of integers or strings

    Attributes
    ----------
    code : [Q] int64
        Which identity each query has, 0 .. I − 1, in the order of the labels.
    count : int
        Number of identities, I.
    """

    def __init__(self, labels: npt.NDArray[Any]) -> None:
        known, code = np.unique(labels, return_inverse=True)
        self.code: IntArray = code.reshape(-1).astype(np.int64)
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

    def sums(self, values: FloatArray, queries: IntArray | None = None) -> FloatArray:
        """Return the sums by identity of values of all queries, or of some, [I] float64."""
        code = self.code if queries is None else self.code[queries]
        sums: FloatArray = np.bincount(code, values, self.count).astype(np.float64, copy=False)
        return sums


@dataclass(frozen=True, eq=False)
class Resamples(Shared):
    """The queries in R resamples of their identities.

    Attributes
    ----------
    ranked : RankedQueries
        The queries as they are.
    identities : Identities
    drawn : [R, I] float64
        How often each identity is drawn.
    """

    ranked: RankedQueries
    identities: Identities
    drawn: FloatArray

    @property
    def totals(self) -> Totals:
        """What the queries as they are add up to."""
        return self.ranked.once(Totals.of)

    def sums(self, values: FloatArray, queries: IntArray | None = None) -> FloatArray:
        """Return the sums over the queries of each resample, [R] float64.

        Parameters
        ----------
        values : [Q] float64, or [n]
        queries : [n] int64, optional
            Which queries the values are of.
        """
        sums: FloatArray = self.drawn @ self.identities.sums(values, queries)
        return sums

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the means over Q+ of [N] float64 in each resample, [R] float64."""
        return divided(self.sums(values, self.totals.queries), self.known)

    def curves(self, terms: Terms, over: Side | None, *parameters: Any) -> FloatArray:
        """Return sums that a metric `adds`, in each resample, [R, K] float64.

        Parameters
        ----------
        terms : callable
            Its terms [k, n] are of a query each.
        over : {"Q+", "Q−"}, optional
            Which queries these are; all by default.
        *parameters
            Of the terms.
        """
        sums: FloatArray = self.drawn @ self.ranked.once(
            _identity_sums, self.identities, terms, over, *parameters
        )
        return sums

    def weights(self, *queries: IntArray) -> Iterator[tuple[slice, list[FloatArray]]]:
        """Give how often some queries are there, [r, n] float64 for each [n], by resamples."""
        codes = [self.identities.code[some] for some in queries]
        rows = max(CACHED_BYTES // (8 * max(sum(map(len, codes)), 1)), 1)
        for start in range(0, len(self.drawn), rows):
            block = slice(start, start + rows)
            yield block, [np.take(self.drawn[block], code, axis=1) for code in codes]

    @property
    def known(self) -> FloatArray:
        """Number of queries of Q+ in each resample, [R] float64."""
        return self.once(_number, True)

    @property
    def strangers(self) -> FloatArray:
        """Number of queries of Q− in each resample, [R] float64."""
        return self.once(_number, False)


def _identity_sums(
    ranked: RankedQueries,
    identities: Identities,
    terms: Terms,
    over: Side | None,
    *parameters: Any,
) -> FloatArray:
    """Return the sums of terms by identity, [I, K] float64."""
    queries = {"Q+": ranked.ranks.queries, "Q−": ranked.negative_queries}.get(over or "")
    rows = [identities.sums(row, queries) for each in terms(ranked, *parameters) for row in each]
    return np.array(rows).reshape(-1, identities.count).T


def _number(resamples: Resamples, positive: bool) -> FloatArray:
    stats = resamples.ranked.stats
    of = stats.has_positive if positive else stats.identity_absent
    return resamples.sums(of.astype(np.float64))


Resampled = Callable[..., FloatArray]
"""`Resamples`, and parameters of a metric, to its value in each resample, [R] float64."""


def divided(sums: FloatArray, by: FloatArray) -> FloatArray:
    """Return sums by others of the same shape, or of [R] beside [R, T]; NaN where these are 0."""
    by = by if sums.ndim == by.ndim else by[:, None]
    quotient: FloatArray = np.divide(sums, by, out=np.full(sums.shape, np.nan), where=by > 0)
    return quotient
