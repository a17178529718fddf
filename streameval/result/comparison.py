"""Comparison of runs on the same queries, paired: by resample, and query by query.

Every run is read off the same resamples of the identities (see `metrics.confidence`), so a
difference is taken within each resample: what is easy or hard about the queries drawn cancels.

The p-value of a difference is twice the share of resamples on the other side of 0, with one added
to both counts (Davison and Hinkley 1997, §4.4.1); several are corrected together (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from streameval.display.shown import Shown
from streameval.errors import OptionError, entry_point
from streameval.metrics.blocks import totals_of
from streameval.metrics.confidence import Resampling, interval, resampled_values, withheld
from streameval.metrics.metric import FRACTION, Kind
from streameval.metrics.retrieval import average_precisions, first_ranks
from streameval.result import Evaluation, Results
from streameval.result.runs import Run, loaded, named, with_metrics
from streameval.result.same_task import check_comparable, check_despite
from streameval.result.saved import plain
from streameval.typing import AnyArray, FloatArray, JsonObject

if TYPE_CHECKING:
    from streameval.display.table import Blocks

RESAMPLES = 10_000
ROUNDING = 1e-12  # a smaller difference of two runs is none
A_PLACE = "a threshold, not a score: no p-value"


@dataclass(frozen=True)
class Difference:
    """A metric of one run and of the first run.

    Attributes
    ----------
    metric, run : str
    first, value : float
        Value in the first run, and in this one.
    interval : (float, float), optional
        Interval of value − first, or None.
    p, p_holm : float
        Two-sided p-value, and the value corrected for all comparisons; NaN if there is none.
    reason : str
        Why there is no interval or no p-value.
    kind : Kind
        What the values are.
    """

    metric: str
    run: str
    first: float
    value: float
    interval: tuple[float, float] | None = None
    p: float = math.nan
    p_holm: float = math.nan
    reason: str = ""
    kind: Kind = FRACTION

    @property
    def difference(self) -> float:
        """Value − first."""
        return self.value - self.first


@dataclass(frozen=True, eq=False)
class Comparison(Shown):
    """Runs compared with the first.

    Attributes
    ----------
    results : mapping of str to Evaluation
        Results by name; the others are compared with the first.
    how : Resampling
    differences : tuple of Difference
        Run by run, in the order of the metrics.
    remarks : tuple of str
        Differences between the runs that were allowed.
    """

    results: Results
    how: Resampling
    differences: tuple[Difference, ...]
    remarks: tuple[str, ...]

    def _blocks(self, saved: str | None = None) -> Blocks:
        from streameval.display.comparison import comparison_blocks

        return comparison_blocks(self)

    @property
    def first(self) -> str:
        """Name of the run that the others are compared with."""
        return next(iter(self.results))

    @property
    def others(self) -> list[str]:
        """Names of the others."""
        return list(self.results)[1:]

    def queries(self, run: str) -> dict[str, AnyArray]:
        """Return the change of each query of Q+ in a run, the most improved first.

        Returns
        -------
        dict of str to [N] array
            ``query``, labels, ``AP_first``, ``AP``, ``first_rank_first``, ``first_rank``, in the
            order of the difference in AP; equal differences in that of the first rank.
        """
        first = self.results[self.first]
        scores = {"_first": query_scores(first), "": query_scores(self.results[run])}
        ranks = [rank for _, rank in scores.values()]
        queries = np.flatnonzero(~np.isnan(ranks).any(axis=0))
        columns: dict[str, AnyArray] = {"query": queries}
        columns |= {name: np.asarray(labels)[queries] for name, labels in first.columns.items()}
        for suffix, (precision, rank) in scores.items():
            columns |= {f"AP{suffix}": precision[queries], f"first_rank{suffix}": rank[queries]}
        gained, sooner = _gains(columns).values()
        order = np.lexsort((queries, -sooner, -gained))
        return {name: values[order] for name, values in columns.items()}

    def changes(self, run: str) -> dict[str, dict[str, int]]:
        """Return how many queries of Q+ are better, worse and as before: by AP, by first rank."""
        return {
            name: {
                "better": int(np.count_nonzero(gain > ROUNDING)),
                "worse": int(np.count_nonzero(gain < -ROUNDING)),
                "same": int(np.count_nonzero(np.abs(gain) <= ROUNDING)),
            }
            for name, gain in _gains(self.queries(run)).items()
        }

    def extremes(self, run: str, most: int) -> dict[str, list[JsonObject]]:
        """Return the queries that got better, and worse, by AP: the most changed first."""
        columns = self.queries(run)
        gained = _gains(columns)["AP"]
        sides = {
            "better": np.flatnonzero(gained > ROUNDING)[:most],
            "worse": np.flatnonzero(gained < -ROUNDING)[::-1][:most],
        }
        return {
            side: [{name: plain(values[at]) for name, values in columns.items()} for at in places]
            for side, places in sides.items()
        }

    def summary(self, queries: int = 10) -> JsonObject:
        """Return what ``--json`` prints, with so many queries that got better, and worse."""
        return plain(
            {
                "runs": list(self.results),
                "how": asdict(self.how),
                "remarks": self.remarks,
                "differences": [
                    asdict(one) | {"difference": one.difference, "kind": one.kind.name}
                    for one in self.differences
                ],
                "queries": {
                    run: {**self.changes(run), **self.extremes(run, queries)} for run in self.others
                },
            }
        )


def _gains(columns: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return how much better each query of a run is: by AP, and by first rank."""
    return {
        "AP": columns["AP"] - columns["AP_first"],
        "first_rank": columns["first_rank_first"] - columns["first_rank"],
    }


def query_scores(result: Evaluation) -> tuple[FloatArray, FloatArray]:
    """Return AP and first rank of each query, [Q] each; NaN for those that are not in Q+."""
    wanted = average_precisions, first_ranks
    totals = totals_of(result.statistics, result.options, [(column,) for column in wanted])
    scores = (totals.of_all_queries(totals.column(column)) for column in wanted)
    return next(scores), next(scores)


@entry_point
def compare(
    *runs: Run,
    names: Sequence[str] = (),
    metrics: str | Sequence[str] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    despite: Collection[str] = (),
) -> Comparison:
    """Compare runs on the same queries with the first; needs no distances.

    Parameters
    ----------
    *runs : Evaluation, str or Path
        At least two results, or folders of saved results.
    names : sequence of str, optional
        Names of the runs: by default the path of the folder, or ``run 1``, ``run 2``.
    metrics : str or sequence of str, optional
        Names of the metrics to compare; by default those that all runs have.
    level, resamples, seed : as of `Evaluation.confidence`
    despite : collection of {"protocol", "gallery", "options"}
        What the runs may differ in. `remarks` of the result describe the differences.

    Returns
    -------
    Comparison
        One difference per metric and run, with its interval (percentiles of a paired bootstrap
        over identities), its p-value (Davison and Hinkley 1997, §4.4.1), and the p-value
        corrected for all comparisons (Holm 1979).

    Raises
    ------
    InputError
        If the runs differ in their queries, or in anything not named in `despite`.
    OptionError
        If there are fewer than two runs, names are not distinct or not one per run, a metric is
        unknown, or no metric is common to all runs.
    OutputError
        If a folder contains no result.
    """
    if len(runs) < 2:
        raise OptionError(f"got {len(runs)} runs to compare: give at least two")
    despite = check_despite(despite)
    called = named(runs, names)
    how = Resampling(level, resamples, seed)
    results = loaded(called)
    remarks = check_comparable(results, despite)
    results = with_metrics(results, metrics)
    return Comparison(results, how, tuple(_differences(results, how)), tuple(remarks))


def _differences(results: Results, how: Resampling) -> list[Difference]:
    first, *others = results
    common = set.intersection(*(set(one.metrics.scalars) for one in results.values()))
    measures = [one for one in results[first].measures() if one.name in common]
    if not measures:
        raise OptionError(
            f"{', '.join(results)} have no metric in common; name those to compare: --metrics"
        )
    identities = results[first].identities()
    reasons = {one.name: withheld(one, identities) for one in measures}
    possible = [one for one in measures if not reasons[one.name]]
    drawn = {
        name: resampled_values(one.statistics, one.options, possible, identities, how)
        for name, one in results.items()
    }
    found: list[Difference] = []
    for other, measure in product(others, measures):
        name = measure.name
        values = results[first][name], results[other][name]
        one = Difference(name, other, *values, reason=reasons[name], kind=measure.metric.kind)
        if any(map(math.isnan, values)):
            one = replace(one, reason="one of the runs has no value")
        if not one.reason:
            one = _with_interval(one, drawn[other][name] - drawn[first][name], how.level)
        found.append(one)
    holm = holm_adjusted([one.p for one in found])
    return [replace(one, p_holm=p) for one, p in zip(found, holm, strict=True)]


def _with_interval(one: Difference, gained: FloatArray, level: float) -> Difference:
    """Return a difference with its interval and p-value, as far as its resamples have values."""
    between = interval(gained, level)
    if isinstance(between, str):
        return replace(one, reason=between)
    if not one.kind.is_score:
        return replace(one, interval=between, reason=A_PLACE)
    return replace(one, interval=between, p=p_value(gained))


def p_value(gained: FloatArray) -> float:
    """Return the two-sided p-value of differences [R] in resamples; those of NaN are left out."""
    gained = gained[~np.isnan(gained)]
    beyond = min(np.sum(gained <= ROUNDING), np.sum(gained >= -ROUNDING))
    return min(2 * (1 + int(beyond)) / (1 + len(gained)), 1.0)


def holm_adjusted(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down; NaN, which takes no part, stays."""
    p = np.array(values, np.float64)
    tested = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]
    corrected = p[tested] * np.arange(len(tested), 0, -1)
    p[tested] = np.minimum(np.maximum.accumulate(corrected), 1.0)
    adjusted: list[float] = p.tolist()
    return adjusted
