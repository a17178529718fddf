"""Tables of a result as DataFrames of pandas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from streameval.errors import OptionError
from streameval.result.groups import Columns

if TYPE_CHECKING:
    from pandas import DataFrame

    from streameval.result import Evaluation

T = TypeVar("T")

INDEX = {"metrics": "metric", "runs": "run"}
"""Column of a table that names its rows."""


def to_pandas(result: T, table: str, tables: Mapping[str, Callable[[T], Columns]]) -> DataFrame:
    """Return one of some tables of a result as a DataFrame; metrics and runs are its index."""
    import pyarrow as pa

    if table not in tuple(tables):
        raise OptionError(f"table is {table!r}; known: {', '.join(tables)}")
    try:
        frame: DataFrame = pa.table(dict(tables[table](result))).to_pandas()
    except ImportError as error:
        raise OptionError(
            "to_pandas() needs pandas, which is not installed: pip install pandas"
        ) from error
    return frame.set_index(INDEX[table]) if table in INDEX else frame


def _metrics(result: Evaluation) -> Columns:
    """Return a row a metric, with its confidence interval, and what ties or lists leave open."""
    metrics, chosen = result.metrics, result.chosen_confidence
    nothing = math.nan, math.nan
    rows = []
    for name, value in metrics.items():
        detail = metrics.details[name]
        interval = nothing if chosen is None else chosen.intervals.get(name, nothing)
        known = metrics.bounds.get(name, metrics.intervals.get(name, (value, value)))
        at = math.nan if detail.threshold is None else detail.threshold
        rows.append((name, value, *interval, *known, at, detail.reason))
    heads = ("metric", "value", "low", "high", "least", "greatest", "threshold", "reason")
    return dict(zip(heads, map(np.array, zip(*rows, strict=True)), strict=True))


TABLES: Mapping[str, Callable[[Evaluation], Columns]] = {
    "metrics": _metrics,
    "per_query": lambda result: result.per_query,
    "positives": lambda result: result.positives,
}
