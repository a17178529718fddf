"""Metric: the declaration of one metric, and the values that it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

from streameval.metrics.ranked import RankedQueries
from streameval.statistics import FIELDS, FloatArray

QuerySet = Literal["Q+", "Q−"]


@dataclass(frozen=True)
class Values:
    """What a metric gives; any part may be empty.

    Attributes
    ----------
    scalars : mapping of str to float
        Fractions in [0, 1] or thresholds, NaN where undefined.
    curves : mapping of str to [n] float64
    per_query : mapping of str to [Q] float64
        NaN for the queries that the metric is not a mean over.
    """

    scalars: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, FloatArray] = field(default_factory=dict)
    per_query: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """One metric, or one family of values that are read off the same curve.

    Attributes
    ----------
    name : str
        What a user calls it.
    needs : tuple of str
        Fields of `RankStatistics` that it reads, and no others.
    over : tuple of {"Q+", "Q−"}
        The queries that it is a mean over. Where one of these sets is empty its values are
        NaN.
    formula : str
        With the names of the definitions: c_j, r_j, G, N, M, tp, fp, fn.
    source : str
        Paper and equation.
    compute : callable
        `RankedQueries` to `Values`, without side effects.
    """

    name: str
    needs: tuple[str, ...]
    over: tuple[QuerySet, ...]
    formula: str
    source: str
    compute: Callable[[RankedQueries], Values]

    def __post_init__(self) -> None:
        """Check that the needed fields exist."""
        unknown = set(self.needs) - set(FIELDS)
        if unknown:
            raise TypeError(f"metric {self.name} needs unknown fields {sorted(unknown)}")

    @property
    def needs_thresholds(self) -> bool:
        """Whether it can be computed only where thresholds were counted."""
        return any("threshold" in FIELDS[name].axes for name in self.needs)

    @property
    def depends_on_ties(self) -> bool:
        """Whether the tie rule can change it."""
        return "tied" in self.needs
