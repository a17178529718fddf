"""Totals: what blocks of queries add up to, of which metrics are finished.

A block of queries is read once: `Gathered` keeps what metrics declare of it, exact sums over its
queries (`Metric.adds`) and numbers by query (`Metric.keeps`, `Metric.values`), and lets go of its
statistics. Sums are rounded once, when all blocks are put together, so nothing depends on where
the blocks begin and end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.metrics.options import MetricOptions
from streameval.metrics.ranked import RankedQueries, Shared, T
from streameval.metrics.sums import Parts, exact_parts, rounded
from streameval.statistics import FloatArray, IntArray, RankStatistics

Terms = Callable[..., Iterable[FloatArray]]
"""`RankedQueries` and parameters to arrays [k, n]: terms of k sums, over any n."""

Column = Callable[..., npt.NDArray[Any]]
"""`RankedQueries` and parameters to an array that blocks are concatenated of."""

Demand = tuple[Any, ...]
"""A function of `RankedQueries` and its parameters."""


def partial_sums(ranked: RankedQueries, terms: Terms, *parameters: Any) -> Parts:
    """Return the exact sums of terms over the queries of a block."""
    return exact_parts(terms(ranked, *parameters))


@dataclass(frozen=True)
class Facts:
    """What is known of the queries of a block before any metric.

    Attributes
    ----------
    queries, gallery : int
        Numbers of queries, and of gallery items.
    known, strangers : [N], [M] int64
        Which queries are in Q+, and in Q−.
    counts : dict of str to int
        Of queries by class, of pairs, and of ties: they add up.
    negatives : int
        Negative pairs.
    columns : dict of str to [queries] array
        Class, counts and nearest distances of each query.
    thresholds : [T] float64
    histogram_edges : [E] float64, optional
    """

    queries: int
    gallery: int
    known: IntArray
    strangers: IntArray
    counts: dict[str, int]
    negatives: int
    columns: dict[str, npt.NDArray[Any]]
    thresholds: FloatArray
    histogram_edges: FloatArray | None


def facts_of(ranked: RankedQueries) -> Facts:
    """Return what is known of the queries of a block before any metric."""
    stats = ranked.stats
    return Facts(
        stats.queries,
        ranked.gallery,
        ranked.ranks.queries,
        ranked.negative_queries,
        query_counts(stats),
        int(stats.negatives.sum()),
        query_columns(stats),
        stats.thresholds,
        stats.histogram_edges,
    )


def query_counts(stats: RankStatistics) -> dict[str, int]:
    """Return the numbers of queries of each class, of pairs, and of ties."""
    return {
        "queries": stats.queries,
        "queries_positive": int(stats.has_positive.sum()),
        "queries_negative": int(stats.identity_absent.sum()),
        "queries_excluded": int(stats.excluded.sum()),
        "pairs_positive": len(stats.positive_distance),
        "pairs_ignored": int(stats.ignored.sum()),
        "ties": int(stats.tied.sum()),
    }


def query_columns(stats: RankStatistics) -> dict[str, npt.NDArray[Any]]:
    """Return what is known of each query before any metric, [Q] each.

    ``class`` is "positive" (Q+), "negative" (Q−) or "excluded"; ``ties`` the number of
    positive-negative pairs at the same distance; ``nearest_positive`` and ``nearest_negative``
    distances, NaN where there is none.
    """
    ties_before = np.append(0, np.cumsum(stats.tied))
    nearest = np.full(stats.queries, np.nan)
    nearest[stats.has_positive] = stats.positive_distance[stats.indptr[:-1][stats.has_positive]]
    return {
        "class": np.select(
            [stats.has_positive, stats.identity_absent], ["positive", "negative"], "excluded"
        ),
        "positives": stats.positives,
        "negatives": stats.negatives,
        "ignored": stats.ignored,
        "ties": np.diff(ties_before[stats.indptr]),
        "nearest_positive": nearest,
        "nearest_negative": np.where(stats.negatives > 0, stats.nearest_negative, np.nan),
    }


@dataclass(frozen=True, eq=False)
class Gathered:
    """What metrics declare of a block of queries, without its statistics.

    Attributes
    ----------
    results : dict of Demand to Any
    """

    results: dict[Demand, Any]

    @classmethod
    def of(cls, ranked: RankedQueries, demands: Iterable[Demand]) -> Gathered:
        """Return what a block gives of some demands."""
        wanted = dict.fromkeys([(facts_of,), *demands])
        return cls({demand: ranked.once(*demand) for demand in wanted})

    def once(self, function: Callable[..., T], *parameters: Any) -> T:
        """Return the result of a function; KeyError where no metric declares it."""
        result: T = self.results[(function, *parameters)]
        return result


@dataclass(frozen=True, eq=False)
class Totals(Shared):
    """What blocks of queries add up to.

    Attributes
    ----------
    blocks : sequence of Gathered or RankedQueries
        In the order of the queries; at least one.
    options : MetricOptions
        How they are read.
    """

    blocks: Sequence[Gathered | RankedQueries] = field(repr=False)
    options: MetricOptions

    @classmethod
    def of(cls, ranked: RankedQueries) -> Totals:
        """Return those of one block, of which anything may be asked."""
        return cls((ranked,), ranked.options)

    def sums(self, terms: Terms, *parameters: Any) -> FloatArray:
        """Return sums that the metric `adds`, each rounded once, [K] float64."""
        return rounded(block.once(partial_sums, terms, *parameters) for block in self.blocks)

    def means(self, terms: Terms, *parameters: Any, over: str = "Q+") -> FloatArray:
        """Return these sums by the number of queries of Q+ or of Q−, [K] float64; NaN of none."""
        count = len(self.queries if over == "Q+" else self.strangers)
        sums = self.sums(terms, *parameters)
        return sums / count if count else np.full(len(sums), np.nan)

    def column(self, values: Column, *parameters: Any) -> npt.NDArray[Any]:
        """Return values that the metric `keeps`, of all blocks."""
        return np.concatenate([block.once(values, *parameters) for block in self.blocks])

    @cached_property
    def facts(self) -> Facts:
        """What is known of all queries before any metric."""
        facts = [block.once(facts_of) for block in self.blocks]
        starts = np.cumsum([0, *(one.queries for one in facts)])[:-1]
        first = facts[0]
        if len(facts) == 1:
            return first
        return Facts(
            sum(one.queries for one in facts),
            max(one.gallery for one in facts),
            np.concatenate([s + one.known for s, one in zip(starts, facts, strict=True)]),
            np.concatenate([s + one.strangers for s, one in zip(starts, facts, strict=True)]),
            {name: sum(one.counts[name] for one in facts) for name in first.counts},
            sum(one.negatives for one in facts),
            {name: np.concatenate([one.columns[name] for one in facts]) for name in first.columns},
            first.thresholds,
            first.histogram_edges,
        )

    @property
    def queries(self) -> IntArray:
        """[N] int64: which queries are in Q+."""
        return self.facts.known

    @property
    def strangers(self) -> IntArray:
        """[M] int64: which queries are in Q−."""
        return self.facts.strangers

    @property
    def thresholds(self) -> FloatArray:
        """[T] float64: distances that the statistics count within."""
        return self.facts.thresholds

    @property
    def tied(self) -> bool:
        """Whether a positive and a negative of any query are at one distance."""
        return self.facts.counts["ties"] > 0

    def of_all_queries(self, values: FloatArray) -> FloatArray:
        """Spread [N] float64 of Q+ over all queries, [Q] float64; NaN elsewhere."""
        spread = np.full(self.facts.queries, np.nan)
        spread[self.queries] = values
        return spread
