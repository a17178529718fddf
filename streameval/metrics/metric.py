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

NO_EXPECTATION = (
    "over all draws it is known of ap step where one positive of each query is drawn, and no tie "
    "is broken at random"
)


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
    """The value of a metric.

    Attributes
    ----------
    value : float
        A number of the metric's kind; fractions are in [0, 1]; NaN if undefined.
    threshold : float, optional
        The distance at which it is reached; a pair is accepted if d <= threshold. +inf if every
        distance is accepted.
    error : float
        Bound on the error of `value`, compared with all pairs sorted.
    threshold_error : float
        Bound on the error of `threshold`.
    between : (float, float), optional
        Open interval of distances that contains the threshold, as far as a histogram determines.
    reason : str
        Why there is no value, unless a population is empty.
    curves : mapping of str to [n] float64
        Curves from which it is computed.
    per_query : mapping of str to [Q] float64
        NaN for queries that the metric does not average over.
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

    Its functions take `RankedQueries`, `Totals` or `Resamples`, then the parameters that they
    name. An argument ``name`` is the name of the metric, and ``measure`` the metric with its
    parameters. The functions have no side effects.

    Attributes
    ----------
    name : str
        Name, with parameters in braces: ``DIR@{x}|FAR={f}``.
    formula : str
        Formula in the symbols of the definitions: c_j, r_j, G, N, M, tp, fp, fn.
    source : str
        Paper and equation.
    values : callable, optional
        Maps `RankedQueries` to the values that the metric averages over Q+, [N] float64. A
        metric that is such a mean needs no other function.
    column : str
        Name of these values in the per-query table, parameters in braces; by default the metric's.
    adds : tuple of callable
        Map `RankedQueries` to terms, arrays [k, n] one below another. `finish` gets their exact
        sums over all queries: `Totals.sums`.
    keeps : tuple of callable
        Map `RankedQueries` to numbers by query. `finish` gets those of all queries:
        `Totals.column`.
    finish : callable, optional
        Maps `Totals` to `Value`, for a metric that is not just the mean of `values`.
    parameters : mapping of str to Parameter
        Parameters by their names in braces; names that do not occur in `name` are ignored.
    part : {"retrieval", "open-set", "gom", "verification"}
        Group of the metric in reports.
    needs : tuple of str
        Fields of `RankStatistics` that it reads, and no others.
    over : tuple of {"Q+", "Q−", "negatives"}
        What it averages over, or is a rate of. If one of these is empty, its value is NaN.
    kind : Kind
        Kind of its values: a fraction, a rank, a distance, a count or a normalised threshold.
    better : {"higher", "lower", "neither"}
        Which of two values is better.
    also : tuple of str
        Names in other tools, which are accepted. Parameters that such a name lacks take their
        defaults; if there are several, an error lists the names here.
    default : bool
        Whether it is computed by default.
    reads : callable, optional
        Maps options to the fields that it reads under them, in addition to `needs`.
    drawn : tuple of str
        Fields that it reads, and no others, where values are expectations over all draws of a
        gallery; a metric without any has no such expectation.
    resampled : callable, optional
        Maps `Resamples` to its value in each resample of the queries, [R]; by default the mean
        of `values`. A metric without either has no confidence interval.
    no_interval : str
        Why it has no confidence interval.
    refined : bool
        Whether counting at the genuine distances in `Value.between` makes its value exact.
    tail : {"monotone", "own", "cutoff", "withheld"} or callable
        What lists of neighbours determine. ``monotone``: it lies between its values of the two
        extremes, and never improves if a positive moves away or a negative comes closer.
        ``own``: it has its own bounds, `between`. ``cutoff``: it is known if all places up to
        its first parameter are. ``withheld``: nothing. A callable takes the parameters.
    between : callable, optional
        Maps `RankedQueries` of the two extremes, worst and best, to bounds, or to None.
    deployed : bool
        Whether it is defined if missing items are never found: it does not depend on the places
        of positives that are not returned.
    pooled : bool
        Whether it ranks items of several queries in one list, so that their order in a tie matters.
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
    drawn: tuple[str, ...] = ()
    resampled: Callable[..., FloatArray] | None = None
    no_interval: str = "read off a histogram of all queries together, which can't be resampled"
    refined: bool = False
    tail: Tail | Callable[..., Tail] = "withheld"
    between: Callable[..., Bounds | None] | None = None
    deployed: bool = False
    pooled: bool = False

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

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over queries, so that it may be one over groups of them."""
        return self.values is not None

    def needs_under(self, options: MetricOptions) -> frozenset[str]:
        """Return the fields that it reads under these options."""
        if options.over_draws:
            return frozenset(self.drawn)
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
            if template[0].lower() != name[:1].lower():  # no pattern need be compiled
                continue
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
    """A metric with values of its parameters; it has one name and one value.

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
        return [
            *self.columns(),
            *((partial_sums, *self._demand(terms)) for terms in self.metric.adds),
        ]

    def columns(self) -> list[Demand]:
        """Return what of that is numbers by query."""
        return [*map(self._demand, filter(None, (self.metric.values, *self.metric.keeps)))]

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
            missed = 0.0 if totals.base() == "queries" else math.nan
            per_query = {column: totals.of_all_queries(values, missed)}
            value = Value(totals.mean(values), per_query=per_query)
        if totals.options.over_draws and math.isnan(value.value):
            value = replace(value, reason=value.reason or NO_EXPECTATION)
        if totals.options.average:
            value = replace(value, curves={})
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
