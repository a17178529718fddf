"""Cells: a metric of each group of queries in each of several galleries, as in gait recognition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streameval.errors import InputError
from streameval.metrics.compute import Metrics
from streameval.metrics.selection import find_name
from streameval.result.evaluation import Results
from streameval.typing import BoolArray, FloatArray, JsonObject


@dataclass(frozen=True, eq=False)
class Cells:
    """A metric by the label of the queries, and by that of the gallery.

    Attributes
    ----------
    metric : str
    by : str
        The column of both labels.
    queries, galleries : tuple of str
        Labels of the rows and columns.
    values : [queries, galleries] float64
        NaN where the queries have no value.
    """

    metric: str
    by: str
    queries: tuple[str, ...]
    galleries: tuple[str, ...]
    values: FloatArray

    @property
    def same(self) -> BoolArray:
        """Which cells have the same label on both sides, [queries, galleries] bool."""
        same: BoolArray = np.array(self.queries)[:, None] == np.array(self.galleries)[None]
        return same

    @property
    def mean(self) -> float:
        """The mean over the galleries, then over the rows."""
        return float(np.mean(np.mean(self.values, axis=1)))

    @property
    def mean_of_others(self) -> float:
        """The same without cells of equal labels, as OpenGait means; NaN if a row has no other."""
        others = ~self.same
        count = np.count_nonzero(others, axis=1)
        if not count.all():
            return float("nan")
        sums = np.sum(np.where(others, self.values, 0.0), axis=1)
        return float(np.mean(sums / count))

    def summary(self) -> JsonObject:
        """Return the values and both means."""
        return {
            "values": self.values.tolist(),
            "mean": self.mean,
            "mean_of_others": self.mean_of_others,
        }


def galleries_of(runs: Results) -> str:
    """Return the column that tells the galleries of runs apart; "" where none does."""
    protocols: list[Mapping[str, Any]] = [
        one.provenance.get("protocol") or {} for one in runs.values()
    ]
    by = {str(one.get("galleries", "")) for one in protocols if not one.get("trials")}
    column = by.pop() if len(by) == 1 else ""
    known = all(column in one.columns for one in runs.values())
    return column if known else ""


Groups = Mapping[str, Mapping[Any, Metrics]]
"""Metrics of each group of queries, of each run."""


def groups_of(runs: Results) -> Groups:
    """Return the metrics of queries of each label, against each gallery.

    Raises
    ------
    InputError
        If the runs are not of several galleries, or queries lack the column.
    """
    by = galleries_of(runs)
    if not by:
        raise InputError(
            "cells need runs of one protocol with galleries by a label column, not by their rows, "
            'and queries with that column: give galleries = "view", and a column view of the '
            "queries"
        )
    return {run.removeprefix(f"{by} "): one.grouped(by).groups for run, one in runs.items()}


def cells_of(groups: Groups, by: str, name: str) -> Cells:
    """Return a metric of groups of queries in several galleries.

    Raises
    ------
    InputError
        If there is no such metric.
    """
    rows = list(dict.fromkeys(str(label) for own in groups.values() for label in own))
    values = np.full((len(rows), len(groups)), np.nan)
    for column, own in enumerate(groups.values()):
        for label, metrics in own.items():
            found = find_name(name, metrics.scalars)
            if found is None:
                known = ", ".join(metrics.scalars)
                raise InputError(f"there is no metric {name}; the runs have {known}")
            values[rows.index(str(label)), column] = metrics.scalars[found]
    return Cells(name, by, tuple(rows), tuple(groups), values)
