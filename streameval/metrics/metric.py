"""Metric: the declaration of one metric; Measure: one with its parameters; Value: what it gives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import signature
from itertools import product, starmap
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

from streameval.errors import OptionError
from streameval.metrics.blocks import Column, Demand, T, Terms, Totals, partial_sums
from streameval.metrics.options import MetricOptions
from streameval.metrics.parameters import Parameter, Values, write
from streameval.metrics.sums import mean
from streameval.statistics import FIELDS
from streameval.typing import AnyArray, FloatArray

if TYPE_CHECKING:
    from streameval.metrics.confidence import Resamples

Part = Literal["retrieval", "open-set", "gom", "verification"]
Population = Literal["Q+", "Q−", "negatives"]
Tail = Literal["monotone", "own", "cutoff", "withheld"]
Better = Literal["higher", "lower", "neither"]
Bounds = tuple[float, float]

RANK_FIELDS = ("indptr", "positive_distance", "closer", "tied", "tied_before")
"""Fields that the ranks of positives are read from."""

EMPTY: Mapping[Population, str] = {
    "Q+": "no query has a positive in the gallery",
    "Q−": "no open-set queries: every identity is there",
    "negatives": "there is no negative pair",
}
"""Why a metric over a population has no value where that is empty."""


@dataclass(frozen=True)
class Kind:
    """What the values of a metric are, and how they are written for people.

    Attributes
    ----------
    name : str
    scale : float
        Factor from the value to the number that is written: 100 for percent.
    unit : str
        What stands behind that number.
    digits : int
        Decimal places.
    is_score : bool
        Whether one value can be better than another by some amount. False for a place on an axis:
        a difference of two places has no p-value.
    """

    name: str
    scale: float = 1.0
    unit: str = ""
    digits: int = 2
    is_score: bool = True


FRACTION = Kind("fraction", 100.0, " %")
RANK = Kind("rank", digits=1)
COUNT = Kind("count", digits=0)
DISTANCE = Kind("distance", digits=4, is_score=False)
TAU = Kind("tau", is_score=False)


@dataclass(frozen=True)
class Value:
    """What a metric gives.

    Attributes
    ----------
    value : float
        Of the metric's kind, fractions in [0, 1]; NaN where undefined.
    threshold : float, optional
        The distance at which it is reached, a pair being accepted where d <= threshold; +inf
        where every distance is.
    error : float
        Bound on the distance of `value` from what all pairs, sorted, would give.
    threshold_error : float
        The same of `threshold`.
    between : (float, float), optional
        Distances that the threshold lies between, both excluded, as far as a histogram tells.
    reason : str
        Why there is no value, where it is not that a population is empty.
    curves : mapping of str to [n] float64
        Curves that it is read off.
    per_query : mapping of str to [Q] float64
        NaN for the queries that the metric is not a mean over.
    """

    value: float
    threshold: float | None = None
    error: float = 0.0
    threshold_error: float = 0.0
    between: Bounds | None = None
    reason: str = ""
    curves: Mapping[str, AnyArray] = field(default_factory=dict)
    per_query: Mapping[str, FloatArray] = field(default_factory=dict)


UNDEFINED = Value(math.nan)


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric, declared.

    Its functions take `RankedQueries`, `Totals` or `Resamples`, and then those of its parameters
    that they name; ``name`` is the metric's own, ``measure`` the metric with its parameters. None
    of them has side effects.

    Attributes
    ----------
    name : str
        What a user calls it, its parameters in braces: ``DIR@{x}|FAR={f}``.
    formula : str
        With the names of the definitions: c_j, r_j, G, N, M, tp, fp, fn.
    source : str
        Paper and equation.
    values : callable, optional
        `RankedQueries` to what the metric is the mean of over Q+, [N] float64. A metric that is
        such a mean needs nothing else.
    column : str
        Name of these values in the per-query table, parameters in braces; by default the metric's.
    adds : tuple of callable
        `RankedQueries` to terms, arrays [k, n] one below another, of which `finish` gets the
        exact sums over all queries: `Totals.sums`.
    keeps : tuple of callable
        `RankedQueries` to numbers by query, of which `finish` gets those of all queries:
        `Totals.column`.
    finish : callable, optional
        `Totals` to `Value`, of a metric that is not just the mean of `values`.
    parameters : mapping of str to Parameter
        By the names in braces; others, of metrics that are declared alike, are left out.
    part : {"retrieval", "open-set", "gom", "verification"}
        Where it belongs in reports.
    needs : tuple of str
        Fields of `RankStatistics` that it reads, and no others.
    over : tuple of {"Q+", "Q−", "negatives"}
        What it is a rate or a mean of. Where one of these is empty its value is NaN.
    kind : Kind
        What its values are: a fraction, a rank, a distance, a count or a normalised threshold.
    better : {"higher", "lower", "neither"}
        Which of two values is of the better run.
    also : tuple of str
        What other tools call it: names that are understood. Parameters that they don't have take
        their defaults; where these are several, a user who gives one is told ours.
    default : bool
        Whether it is computed where no metrics are asked for.
    reads : callable, optional
        Options to the fields that it reads under these, beside those it needs.
    resampled : callable, optional
        `Resamples` to its value in each resample of the queries, [R]; by default that of the mean
        of `values`. A metric without either has no confidence interval.
    no_interval : str
        Why not.
    refined : bool
        Whether counting at the genuine distances `Value.between` makes its value exact.
    tail : {"monotone", "own", "cutoff", "withheld"} or callable
        What can be said of it where lists of neighbours leave items out. ``monotone``: it lies
        between its values of the two extremes, never improving where a positive goes further or
        a negative comes closer. ``own``: it has bounds of its own, `between`. ``cutoff``: it is
        known where all places up to its first parameter are. ``withheld``: nothing. A callable
        takes the parameters.
    between : callable, optional
        `RankedQueries` of the two extremes, worst and best, to bounds; None where it has none.
    deployed : bool
        Whether it can be read where what lists leave out is never found: it asks of no positive
        that is not returned where it stands.
    """

    name: str
    formula: str
    source: str
    values: Callable[..., FloatArray] | None = None
    column: str = ""
    adds: tuple[Terms, ...] = ()
    keeps: tuple[Column, ...] = ()
    finish: Callable[..., Value] | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    part: Part = "retrieval"
    needs: tuple[str, ...] = RANK_FIELDS
    over: tuple[Population, ...] = ("Q+",)
    kind: Kind = FRACTION
    better: Better = "higher"
    also: tuple[str, ...] = ()
    default: bool = False
    reads: Callable[[MetricOptions], tuple[str, ...]] | None = None
    resampled: Callable[..., FloatArray] | None = None
    no_interval: str = "read off a histogram of all queries together, which can't be resampled"
    refined: bool = False
    tail: Tail | Callable[..., Tail] = "withheld"
    between: Callable[..., Bounds | None] | None = None
    deployed: bool = False

    def __post_init__(self) -> None:
        """Check that the needed fields exist, and that the name has all parameters."""
        unknown = set(self.needs) - set(FIELDS)
        if unknown:
            raise TypeError(f"metric {self.name} needs unknown fields {sorted(unknown)}")
        named = [name for _, name, _, _ in Formatter().parse(self.name) if name is not None]
        if not set(named) <= set(self.parameters):
            raise TypeError(f"metric {self.name} has parameters {list(self.parameters)}")
        object.__setattr__(self, "parameters", {name: self.parameters[name] for name in named})
        if self.values is None and self.finish is None:
            raise TypeError(f"metric {self.name} has neither values nor a finish")

    @property
    def resamples(self) -> bool:
        """Whether it can be read off resamples of the queries."""
        return self.resampled is not None or self.values is not None

    def needs_under(self, options: MetricOptions) -> frozenset[str]:
        """Return the fields that it reads under these options."""
        return frozenset((*self.needs, *(() if self.reads is None else self.reads(options))))

    def measure(self, *values: Any) -> Measure:
        """Return the metric with its parameters, in the order of the name."""
        return Measure(self, values)

    def measures(self, options: MetricOptions) -> Iterator[Measure]:
        """Give the metric with each combination of its parameters' defaults."""
        defaults = (parameter.values(options) for parameter in self.parameters.values())
        return starmap(self.measure, product(*defaults))

    def called(self, name: str) -> list[Measure]:
        """Return what a name stands for, the metric's own or another tool's, in any letters.

        Nothing where it is neither; OptionError where the metric's own has a parameter that can't
        be.
        """
        for template in (self.name, *self.also):
            found = _pattern(template).fullmatch(name)
            if found is None:
                continue
            values: list[Values] = []
            for parameter, declared in self.parameters.items():
                text = found.groupdict().get(parameter)
                try:
                    values.append(declared.values(MetricOptions(), text))
                except ValueError:
                    if template != self.name:
                        break
                    raise OptionError(
                        f"metric {name!r}: {parameter} of {self.name} is {text!r}; expected "
                        f"{declared.expects}"
                    ) from None
            else:
                return list(starmap(self.measure, product(*values)))
        return []


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of a metric's name, with a group for each parameter.

    Letters are large or small, hyphens are blanks or nothing, and @ and | are one.
    """
    parts = (
        re.sub("[@|]", "[@|]", re.sub("-", "[-_ ]?", text))
        + ("" if parameter is None else f"(?P<{parameter}>[^@|/=%]*)")
        for text, parameter, _, _ in Formatter().parse(template)
    )
    return re.compile("".join(parts), re.IGNORECASE)


@dataclass(frozen=True)
class Measure:
    """A metric with its parameters: what has one value, and one name.

    Attributes
    ----------
    metric : Metric
    values : tuple
        Of the parameters, in the order of the metric's name.
    """

    metric: Metric
    values: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """The metric's name with its parameters: ``DIR@1|FAR=0.01``."""
        return self._written(self.metric.name)

    @property
    def tail(self) -> Tail:
        """What can be said of it where lists of neighbours leave items out."""
        tail = self.metric.tail
        return tail if isinstance(tail, str) else self.call(tail)

    def call(self, function: Callable[..., T] | None, *arguments: Any) -> T:
        """Return what a function of the metric makes of arguments and the parameters it names."""
        if function is None:
            raise TypeError(f"{self.name} does not declare this function")
        _, *parameters = self._demand(function)
        return function(*arguments, *parameters)

    def demands(self) -> list[Demand]:
        """Return what a block of queries is asked for, to finish the metric of all blocks."""
        columns = filter(None, (self.metric.values, *self.metric.keeps))
        return [
            *map(self._demand, columns),
            *((partial_sums, *self._demand(terms)) for terms in self.metric.adds),
        ]

    def lacks(self, totals: Totals) -> list[Population]:
        """Return what it is over and there is nothing of: it is NaN."""
        return [population for population in self.metric.over if not totals.sizes[population]]

    def finish(self, totals: Totals) -> Value:
        """Return its value over all queries."""
        metric = self.metric
        if metric.values is None or metric.finish is not None:
            value = self.call(metric.finish, totals)
        else:
            values = totals.column(*self._demand(metric.values))
            column = self._written(metric.column or metric.name)
            value = Value(mean(values), per_query={column: totals.of_all_queries(values)})
        empty = self.lacks(totals)
        return replace(value, value=math.nan, reason=EMPTY[empty[-1]]) if empty else value

    def resampled(self, resamples: Resamples) -> FloatArray:
        """Return its value in each resample of the queries, [R] float64."""
        metric = self.metric
        if metric.values is None or metric.resampled is not None:
            return self.call(metric.resampled, resamples)
        return resamples.mean(resamples.totals.column(*self._demand(metric.values)))

    def _demand(self, function: Callable[..., Any]) -> Demand:
        """Return a function and the parameters that it names: a `Metric` says which there are."""
        named: dict[str, Any] = {"measure": self, "name": self.metric.name}
        named |= zip(self.metric.parameters, self.values, strict=True)
        return function, *(named[name] for name in _names(function) if name in named)

    def _written(self, template: str) -> str:
        texts = map(write, self.values)
        return template.format_map(dict(zip(self.metric.parameters, texts, strict=True)))


@cache
def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(signature(function).parameters)
