"""Average of runs under the same rules: mean and standard deviation of each metric.

The runs may be of other queries, galleries and features: the splits of a data set, or trials that
draw other galleries. The standard deviation is that of a sample, with n − 1 in the denominator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Literal

import numpy as np

from streameval.display.shown import Shown
from streameval.display.table import plural
from streameval.errors import (
    InputError,
    OptionError,
    OutputError,
    check_path,
    check_type,
    entry_point,
    entry_points,
)
from streameval.metrics.compute import Detail, Metrics, scalars_text
from streameval.result import Evaluation, Results
from streameval.result.cells import Cells, Groups, cells_of, galleries_of, groups_of
from streameval.result.frames import to_pandas
from streameval.result.groups import Columns
from streameval.result.runs import Run, loaded, named, with_metrics
from streameval.result.same_task import check_same_rules
from streameval.result.saved import (
    Saves,
    details_of,
    plain,
    run_folders,
    saved_runs,
    write_together,
)
from streameval.result.stored import FORMAT
from streameval.typing import FloatArray, JsonObject

if TYPE_CHECKING:
    from pandas import DataFrame

    from streameval.display.table import Blocks, Table

ROWS = MEAN, STD = "mean", "std"
"""Rows of the table of runs that are of no run."""

ONE_RUN = "one run: there is no standard deviation"


@entry_points
@dataclass(frozen=True, eq=False, repr=False)
class Average(Shown, Saves):
    """Runs under the same rules, with the mean and standard deviation of each metric.

    `save` writes ``summary.json``, and each run in a folder of its name. What a name of a folder
    can't hold, such as a slash, becomes ``-``.

    Attributes
    ----------
    runs : mapping of str to Evaluation
        Results by name; all have the same metrics.
    """

    runs: Results

    def __repr__(self) -> str:
        return f"<Average of {len(self.runs)} runs: {scalars_text(self.mean.scalars)}>"

    def _blocks(self, saved: str | None = None) -> Blocks:
        from streameval.display.average import average_blocks

        return average_blocks(self, saved)

    def _table(self, name: str) -> Table:
        from streameval.display.average import average_table

        return average_table(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(self.first.metrics)

    @property
    def first(self) -> Evaluation:
        """The first run: the protocol, the distance and the options of its metrics are of all."""
        return next(iter(self.runs.values()))

    @cached_property
    def values(self) -> Mapping[str, FloatArray]:
        """Values of each metric, [runs] float64 each, in the order of the runs."""
        every = [one.metrics.scalars for one in self.runs.values()]
        return {name: np.array([one[name] for one in every], np.float64) for name in self.names}

    @cached_property
    def mean(self) -> Metrics:
        """Mean of each metric over the runs: a mapping from names to floats.

        NaN if a run has no value; ``mean.details[name].reason`` then says which run, and why.
        ``intervals`` and ``bounds`` contain the means of the two ends over the runs, and
        ``details[name].error`` the mean of the error bounds. ``curves["CMC"]`` is the mean at each
        rank of the shortest curve. There are no ``counts`` and no per-query columns.
        """
        every = [one.metrics for one in self.runs.values()]
        averaged = Metrics({}, {}, {}, {}, {}, {})
        for name, values in self.values.items():
            detail = self._detail(name)
            averaged.details[name] = detail
            averaged.scalars[name] = math.nan if detail.reason else mean(values.tolist())
            own = [(value, value) for value in values.tolist()]
            if any(name in one.intervals for one in every) and not detail.reason:
                pairs = zip(every, own, strict=True)
                averaged.intervals[name] = _mean_ends(
                    one.intervals.get(name, pair) for one, pair in pairs
                )
            if all(name in one.bounds for one in every):
                averaged.bounds[name] = _mean_ends(one.bounds[name] for one in every)
        curves = [one.curves["CMC"].tolist() for one in every if "CMC" in one.curves]
        if len(curves) == len(every):
            averaged.curves["CMC"] = np.array([mean(at) for at in zip(*curves, strict=False)])
        return averaged

    @cached_property
    def std(self) -> Mapping[str, float]:
        """Standard deviation of each metric over the runs, with n − 1 in the denominator.

        NaN if the mean is, and for one run.
        """
        return {
            name: math.nan
            if len(values) == 1 or self.mean.details[name].reason
            else stdev(values.tolist())
            for name, values in self.values.items()
        }

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why there is no standard deviation, if that is so of all metrics."""
        return (ONE_RUN,) if len(self.runs) == 1 else ()

    def _detail(self, name: str) -> Detail:
        """Return what there is to say of a mean."""
        details = {run: one.metrics.details[name] for run, one in self.runs.items()}
        lacking = {
            run: detail.reason or "no finite value"
            for (run, detail), value in zip(details.items(), self.values[name], strict=True)
            if not math.isfinite(value)
        }
        one = next(iter(details.values()))
        return Detail(
            one.part,
            _reason(lacking, len(details)),
            error=mean(detail.error for detail in details.values()),
            kind=one.kind,
            open=bool(lacking) and all(details[run].open for run in lacking),
        )

    def to_pandas(self, table: Literal["metrics", "runs"] = "metrics") -> DataFrame:
        """Return a table of the average as a DataFrame.

        Parameters
        ----------
        table : {"metrics", "runs"}
            ``metrics`` has one row per metric: its ``mean``, its ``std``, and the ``reason`` if
            the mean is NaN. ``runs`` has one row per run, with one column per metric.

        Raises
        ------
        OptionError
            If there is no such table, or pandas is not installed.
        """
        return to_pandas(self, table, {"metrics": _metrics, "runs": _runs})

    def cells(self, metric: str) -> Cells:
        """Return a metric by the label of queries and gallery, where each label is a gallery.

        Parameters
        ----------
        metric : str

        Returns
        -------
        Cells
            ``values`` [queries, galleries], ``mean``, and ``mean_of_others`` without equal labels.

        Raises
        ------
        InputError
            If the runs are not of a protocol with ``galleries``, the queries lack that column, or
            there is no such metric.
        """
        return cells_of(self._groups, self.galleries, metric)

    @property
    def galleries(self) -> str:
        """The column whose labels are galleries, where queries have it, too; "" without."""
        return galleries_of(self.runs)

    @cached_property
    def _groups(self) -> Groups:
        return groups_of(self.runs)

    def _cells(self) -> JsonObject:
        """Return the cells of all metrics, where there are any."""
        if not self.galleries:
            return {}
        each = {name: self.cells(name) for name in self.names}
        first = next(iter(each.values()))
        labels = {"queries": first.queries, "galleries": first.galleries}
        metrics = {name: one.summary() for name, one in each.items()}
        return {"cells": {"by": self.galleries, **labels, "metrics": metrics}}

    def summary(self) -> JsonObject:
        """Return the content of ``summary.json``; undefined values are None."""
        averaged = self.mean
        return plain(
            {
                "mean": averaged.scalars,
                "std": self.std,
                "details": details_of(averaged),
                "intervals": averaged.intervals,
                **({"bounds": averaged.bounds} if averaged.bounds else {}),
                "remarks": self.remarks,
                "runs": {
                    name: {
                        "metrics": one.metrics.scalars,
                        "counts": one.counts,
                        "range": one.range,
                    }
                    for name, one in self.runs.items()
                },
                **self._cells(),
                "options": asdict(self.first.options),
                "protocol": self.first.provenance.get("protocol"),
                "streameval": version("streameval"),
                "format": FORMAT,
            }
        )

    def write(self, folder: Path) -> None:
        """Write the files of the average into an existing folder."""
        write_together(self.runs, self.summary(), folder)

    @classmethod
    def load(cls, path: str | Path) -> Average:
        """Load a saved average: each of its runs.

        Raises
        ------
        OutputError
            If the folder is not an average, or a run in it is damaged or has a later format.
        """
        check_path(path)
        names = saved_runs(Path(path), "runs")
        if not names:
            raise OutputError(f"{path} is no average of runs; expected what Average.save wrote")
        return average({name: Path(path) / place for name, place in run_folders(names).items()})


def _reason(lacking: Mapping[str, str], runs: int) -> str:
    """Return why there is no mean over so many runs, by the reasons of those without a value."""
    if not lacking or (len(lacking) == runs and len(set(lacking.values())) == 1):
        return next(iter(lacking.values()), "")
    run, reason = next(iter(lacking.items()))
    more = f"; {plural(len(lacking) - 1, 'more run')} without a value" if len(lacking) > 1 else ""
    return f"{run}: {reason}{more}"


def _mean_ends(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    low, high = map(mean, zip(*pairs, strict=True))
    return low, high


def _metrics(averaged: Average) -> Columns:
    details = averaged.mean.details
    return {
        "metric": np.array(averaged.names),
        MEAN: np.array([*averaged.mean.values()]),
        STD: np.array([*averaged.std.values()]),
        "reason": np.array([details[name].reason for name in averaged.names]),
    }


def _runs(averaged: Average) -> Columns:
    return {"run": np.array([*averaged.runs]), **averaged.values}


@entry_point
def average(
    results: Mapping[str, Run] | Sequence[Run], *, metrics: str | Sequence[str] | None = None
) -> Average:
    """Average runs under the same rules: mean and standard deviation of each metric.

    The runs may have other queries, galleries and features, such as the splits of a data set.
    Protocol, distance and options of the metrics must be the same.

    Parameters
    ----------
    results : mapping or sequence of Evaluation, str or Path
        Results, or folders of saved results, by name. Without names, runs are called by the path
        of the folder, or ``run 1``, ``run 2``.
    metrics : str or sequence of str, optional
        Names of the metrics to average; by default those of the runs.

    Returns
    -------
    Average

    Raises
    ------
    InputError
        If runs differ in protocol, distance, options or metrics, or a run comes twice.
    OptionError
        If there are no runs, names are not distinct, or a metric is unknown.
    OutputError
        If a folder contains no result.
    """
    needed = "a mapping of names to results, or a list of results, is needed"
    check_type("results", results, Mapping | list | tuple, needed)
    if isinstance(results, Mapping):
        given = named(list(results.values()), results)
    else:
        given = named(results)
    if not given:
        raise OptionError("got no runs to average: give at least one")
    reserved = [name for name in given if name in ROWS]
    if reserved:
        raise OptionError(
            f"a run is called {reserved[0]}, as a row of the table is: name it otherwise (--label)"
        )
    runs = loaded(given)
    _check_distinct(given)
    check_same_rules(runs)
    runs = with_metrics(runs, metrics)
    _check_metrics(runs)
    return Average(runs)


def _check_distinct(runs: Mapping[str, Run]) -> None:
    """Refuse a run that comes twice: the same object, or the same folder."""
    places: dict[object, str] = {}
    for name, run in runs.items():
        place = id(run) if isinstance(run, Evaluation) else Path(run).resolve()
        if place in places:
            raise InputError(f"{places[place]} and {name} are the same run: give each run once")
        places[place] = name


def _check_metrics(runs: Results) -> None:
    """Refuse runs that have not the same metrics."""
    every = dict.fromkeys(chain.from_iterable(one.metrics for one in runs.values()))
    for run, one in runs.items():
        missing = [name for name in every if name not in one.metrics.scalars]
        if missing:
            raise InputError(
                f"{run} has no {', '.join(missing)}, which other runs have: evaluate all alike, or "
                "name metrics that all have: --metrics"
            )
