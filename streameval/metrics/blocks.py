"""Blocks of queries: what metrics read of each, and what all of them add up to.

A block is read as `RankedQueries`. What metrics declare of it is kept: exact sums over its queries
(`Metric.adds`) and numbers by query (`Metric.keeps`, `Metric.values`). Its statistics are dropped.
`Totals` rounds each sum once, over all blocks, so no value depends on where blocks begin and end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from streameval.metrics.drawn import DrawnRanks
from streameval.metrics.expected import ExpectedRanks
from streameval.metrics.options import MetricOptions
from streameval.metrics.ranks import Ranks
from streameval.metrics.sums import Parts, exact_parts, mean, rounded
from streameval.statistics import RankStatistics
from streameval.stretches import sums_of
from streameval.threads import lazy
from streameval.typing import AnyArray, FloatArray, IntArray, Span

POSITIVES = 1 << 17  # of a block of queries: what is made of them stays in the cache

T = TypeVar("T")

Terms = Callable[..., Iterable[FloatArray]]
"""`RankedQueries` and parameters to arrays [k, n]: terms of k sums, over any n."""

Column = Callable[..., AnyArray]
"""`RankedQueries` and parameters to an array that blocks are concatenated of."""

Demand = tuple[Any, ...]
"""A function of `RankedQueries` and its parameters."""


@dataclass(frozen=True, eq=False)
class Shared:
    """Results that several metrics share, each computed once."""

    results: dict[Demand, Any] = field(default_factory=dict, repr=False, kw_only=True)
    hidden_ties: bool = field(default=False, kw_only=True)
    """Whether there may be ties that the statistics do not show."""

    def once(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(self, *arguments)``, computed at the first call."""
        key = (function, *arguments)
        if key not in self.results:
            self.results[key] = function(self, *arguments)
        result: T = self.results[key]
        return result


@dataclass(frozen=True, eq=False)
class RankedQueries(Shared):
    """A block of queries, or all of them, as metrics read it.

    Attributes
    ----------
    stats : RankStatistics
    options : MetricOptions
    """

    stats: RankStatistics
    options: MetricOptions

    @property
    def ranked(self) -> RankedQueries:
        """The block itself."""
        return self

    @lazy
    def totals(self) -> Totals:
        """What the block alone adds up to."""
        return Totals((self,), self.options)

    @lazy
    def ranks(self) -> Ranks:
        """The ranks of the positives of Q+ under the tie rule."""
        if self.options.over_draws:
            return DrawnRanks(self.stats, self.options.ties)
        if self.options.ties == "expected":
            return ExpectedRanks(self.stats)
        return Ranks(self.stats, self.options.ties)

    @lazy
    def precision_sums(self) -> FloatArray:
        """[P] float64: AP terms of each query's positives 1 .. j, added in that order."""
        return self.ranks.precision_sums(self.options.ap)

    @lazy
    def average_precision(self) -> FloatArray:
        """[N] float64: AP of the queries of Q+."""
        return self.precision_sums[self.ranks.last] / self.ranks.count

    @lazy
    def inverse_penalty(self) -> FloatArray:
        """[N] float64: INP of the queries of Q+."""
        return self.ranks.inverse_rank(last=True)

    def positives_returned(self) -> Iterator[IntArray]:
        """Give tp, the positives of each query of Q+ within τ_t, [N] int64, for t = 0 .. T − 1.

        One threshold at a time: memory stays O(N). Where no more are returned than at the one
        before, it is the same array.
        """
        thresholds, ranks = self.stats.thresholds, self.ranks
        returned_from = np.searchsorted(thresholds, self.stats.positive_distance)
        order = np.argsort(returned_from, kind="stable")
        query = ranks.of_positives(np.arange(len(ranks.queries)))[order]
        ends = np.searchsorted(returned_from[order], np.arange(len(thresholds)), side="right")
        tp = np.zeros(len(ranks.queries), dtype=np.int64)
        begin = 0
        for end in ends.tolist():
            if end > begin:
                tp = tp + np.bincount(query[begin:end], minlength=len(tp))
            begin = end
            yield tp


def query_spans(stats: RankStatistics) -> Iterator[Span]:
    """Yield consecutive blocks of queries: of `POSITIVES`, or of one query.

    All is one block where there is a histogram, whose pairs are of no query.
    """
    if stats.impostor_histogram is not None or not stats.queries:
        yield 0, stats.queries
        return
    start = 0
    while start < stats.queries:
        most = stats.indptr[start] + POSITIVES
        stop = max(int(np.searchsorted(stats.indptr, most, side="right")) - 1, start + 1)
        yield start, stop
        start = stop


def partial_sums(ranked: RankedQueries, terms: Terms, *parameters: Any) -> Parts:
    """Return the exact sums of terms over the queries of a block."""
    return exact_parts(terms(ranked, *parameters))


def query_columns(ranked: RankedQueries) -> dict[str, AnyArray]:
    """Return what is known of each query before any metric, [Q] each.

    ``class`` is "positive" (Q+), "negative" (Q−) or "excluded"; ``ties`` the number of
    positive-negative pairs at the same distance; ``nearest_positive`` and ``nearest_negative``
    distances, and ``first_rank`` r_1 under the tie rule, NaN where there is none.
    """
    stats = ranked.stats
    positive = stats.has_positive
    nearest, first_rank = np.full((2, stats.queries), np.nan)
    nearest[positive] = stats.positive_distance[ranked.ranks.start]
    first_rank[positive] = ranked.ranks.first_rank()
    return {
        "class": np.select([positive, stats.identity_absent], ["positive", "negative"], "excluded"),
        "positives": stats.positives,
        "negatives": stats.negatives,
        "ignored": stats.ignored,
        "ties": sums_of(stats.tied, stats.indptr),
        "nearest_positive": nearest,
        "nearest_negative": np.where(stats.negatives > 0, stats.nearest_negative, np.nan),
        "first_rank": first_rank,
    }


def distance_axes(ranked: RankedQueries) -> tuple[FloatArray, FloatArray | None]:
    """Return the thresholds [T] and the edges of the histogram [E]."""
    return ranked.stats.thresholds, ranked.stats.histogram_edges


def mean_groups(ranked: RankedQueries) -> IntArray:
    """Return the group of each query, where means are over groups, [Q] int64."""
    if ranked.stats.mean_group is None:
        raise ValueError("the statistics hold no mean_group: give them with_mean_group")
    return ranked.stats.mean_group


def asking(ranked: RankedQueries) -> FloatArray:
    """Return how likely each query asks, over all draws, [Q] float64."""
    likely = ranked.stats.asking
    return np.ones(ranked.stats.queries) if likely is None else likely


def in_groups(group: IntArray) -> tuple[IntArray, IntArray]:
    """Return an order of [n] in which groups come one after the other, and where each begins."""
    order = np.argsort(group, kind="stable")
    return order, np.flatnonzero(np.diff(group[order], prepend=-1))


def gathered(ranked: RankedQueries, demands: Iterable[Demand]) -> Shared:
    """Return what a block gives of some demands, without its statistics."""
    groups: list[Demand] = [(mean_groups,)] if ranked.options.average else []
    groups += [(asking,)] if ranked.options.over_draws else []
    wanted = ((query_columns,), (distance_axes,), *groups, *demands)
    return Shared(results={demand: ranked.once(*demand) for demand in wanted})


class Blocks(Protocol):
    """Statistics of queries that may be on disk: blocks of them are read when they are needed."""

    @property
    def spans(self) -> Sequence[Span]:
        """The queries of each block: (first, last + 1)."""

    def block(self, start: int, stop: int) -> RankStatistics:
        """Return the statistics of one of these blocks."""


@dataclass(frozen=True, eq=False)
class StoredQueries(Shared):
    """A block of queries whose statistics are read for what is not kept of it.

    Attributes
    ----------
    stats : Blocks
        Of all queries.
    span : (int, int)
        The block: one of its `spans`.
    options : MetricOptions
    """

    stats: Blocks
    span: Span
    options: MetricOptions

    def once(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(ranked, *arguments)``, computed at the first call."""
        key = (function, *arguments)
        if key not in self.results:
            self.keep([key])
        result: T = self.results[key]
        return result

    def keep(self, demands: Iterable[Demand]) -> None:
        """Read the block, and keep what it gives of some demands."""
        self.results.update(gathered(self.ranked, demands).results)

    @property
    def ranked(self) -> RankedQueries:
        """The block, read."""
        return RankedQueries(self.stats.block(*self.span), self.options)


def totals_of(
    stats: Blocks, options: MetricOptions, demands: Sequence[Demand] = (), *, hidden: bool = False
) -> Totals:
    """Return what statistics add up to, read once for some demands and again for each other."""
    if len(stats.spans) == 1:
        whole = stats.block(*stats.spans[0])
        return RankedQueries(whole, options, hidden_ties=hidden).totals
    blocks = [StoredQueries(stats, span, options, hidden_ties=hidden) for span in stats.spans]
    for block in blocks:
        block.keep(demands)
    return Totals(blocks, options)


@dataclass(frozen=True, eq=False)
class Totals(Shared):
    """What blocks of queries add up to.

    Attributes
    ----------
    blocks : sequence of Shared
        `RankedQueries`, or what is `gathered` of them, in the order of the queries; at least one.
    options : MetricOptions
        How they are read.
    """

    blocks: Sequence[Shared] = field(repr=False)
    options: MetricOptions

    def sums(self, terms: Terms, *parameters: Any) -> FloatArray:
        """Return sums that the metric `adds`, each rounded once, [K] float64."""
        return rounded(block.once(partial_sums, terms, *parameters) for block in self.blocks)

    def ranked(self) -> Iterator[RankedQueries]:
        """Give the blocks themselves, one at a time."""
        for block in self.blocks:
            if not isinstance(block, RankedQueries | StoredQueries):
                raise TypeError("the statistics of these blocks are not kept")
            yield block.ranked

    def means(self, terms: Terms, *parameters: Any, over: str = "Q+") -> FloatArray:
        """Return these means over Q+ or Q−, [K] float64; NaN of none."""
        sums = self.sums(terms, *parameters)
        return sums / self.number(over) if self.sizes[over] else np.full(len(sums), np.nan)

    def mean(self, values: FloatArray) -> float:
        """Return the mean over Q+ of [N] float64, or over groups of their means; NaN of none."""
        if not self.options.average:
            if self.options.over_draws:
                values = values * self.asking[self.queries]
            return math.fsum(values.tolist()) / self.number() if len(values) else math.nan
        queries, values = self.counted(values)
        order, start = in_groups(self.column(mean_groups)[queries])
        return mean(np.array([mean(own) for own in np.split(values[order], start[1:])]))

    def counted(self, values: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the queries that a mean over Q+ counts, and their values, [n]; misses are 0."""
        queries = np.flatnonzero(self.populations[self.base()])
        return queries, self.of_all_queries(values, 0.0)[queries]

    def base(self, over: str = "Q+") -> str:
        """Return what a mean over Q+ or Q− divides by: all queries, if those without are misses."""
        return "queries" if over == "Q+" and self.options.unmatched == "miss" else over

    def number(self, over: str = "Q+") -> float:
        """Return what a mean over Q+ or Q− divides by: queries, each by how likely it asks."""
        base = self.base(over)
        if not self.options.over_draws:
            return self.sizes[base]
        return math.fsum(self.asking[self.populations[base]].tolist())

    def column(self, values: Column, *parameters: Any) -> AnyArray:
        """Return values that the metric `keeps`, of all blocks."""
        return np.concatenate([block.once(values, *parameters) for block in self.blocks])

    @cached_property
    def columns(self) -> dict[str, AnyArray]:
        """`query_columns` of all queries."""
        blocks = [block.once(query_columns) for block in self.blocks]
        return {name: np.concatenate([one[name] for one in blocks]) for name in blocks[0]}

    @cached_property
    def asking(self) -> FloatArray:
        """[Q] float64: how likely each query asks, over all draws."""
        return self.column(asking)

    @cached_property
    def populations(self) -> dict[str, AnyArray]:
        """What metrics are over, [Q] each: whether a query is in Q+, in Q−; its negatives; 1."""
        of, negatives = self.columns["class"], self.columns["negatives"]
        sides = {"Q+": of == "positive", "Q−": of == "negative"}
        return sides | {"negatives": negatives, "queries": np.ones(len(of), np.bool_)}

    @cached_property
    def queries(self) -> IntArray:
        """[N] int64: which queries are in Q+."""
        return np.flatnonzero(self.populations["Q+"])

    @cached_property
    def strangers(self) -> IntArray:
        """[M] int64: which queries are in Q−."""
        return np.flatnonzero(self.populations["Q−"])

    @cached_property
    def counts(self) -> dict[str, int]:
        """Numbers of queries of each class, of pairs, and of ties."""
        queries, known, strangers = len(self.columns["class"]), self.sizes["Q+"], self.sizes["Q−"]
        return {
            "queries": queries,
            "queries_positive": known,
            "queries_negative": strangers,
            "queries_excluded": queries - known - strangers,
            "pairs_positive": int(self.columns["positives"].sum()),
            "pairs_ignored": int(self.columns["ignored"].sum()),
            "ties": int(self.columns["ties"].sum()),
        }

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Numbers of what metrics are over: queries of Q+ and of Q−, negatives, all queries."""
        return {name: int(each.sum()) for name, each in self.populations.items()}

    @property
    def gallery(self) -> int:
        """Number of gallery items."""
        parts = (self.columns[name] for name in ("positives", "negatives", "ignored"))
        return int(np.max(sum(parts), initial=0))

    @property
    def thresholds(self) -> FloatArray:
        """[T] float64: distances that the statistics count within."""
        return self.blocks[0].once(distance_axes)[0]

    @property
    def histogram_edges(self) -> FloatArray | None:
        """[E] float64: edges of the histogram of impostors; None where there is none."""
        return self.blocks[0].once(distance_axes)[1]

    @property
    def tied(self) -> bool:
        """Whether a positive and a negative of any query are, or may be, at one distance."""
        return self.counts["ties"] > 0 or any(block.hidden_ties for block in self.blocks)

    def of_all_queries(self, values: FloatArray, other: float = np.nan) -> FloatArray:
        """Spread [N] float64 of Q+ over all queries, [Q] float64; NaN, or another, elsewhere."""
        spread = np.full(len(self.columns["class"]), other)
        spread[self.queries] = values
        return spread


def normalised_thresholds(count: int) -> FloatArray:
    """Return τ_t = t/(T − 1), [T] float64."""
    return np.arange(count) / max(count - 1, 1)
