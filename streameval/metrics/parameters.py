"""Parameters of metrics: how they are read from a metric's name, and written into one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from streameval.metrics.options import MetricOptions

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a metric, as the ``x`` of ``CMC@{x}``.

    Attributes
    ----------
    expects : str
        In words, for messages and listings.
    read : callable
        Text to value; ValueError where the text is none.
    accepts : callable
        Whether a value is one of the parameter's.
    defaults : tuple, or callable
        The values that are computed where none is asked for; or `MetricOptions` to these. Without
        any, the metric is computed by name alone.
    """

    expects: str
    read: Callable[[str], Any]
    accepts: Callable[[Any], bool]
    defaults: Values | Callable[[MetricOptions], Values]

    def values(self, options: MetricOptions, text: str | None = None) -> Values:
        """Return the value of a text, or those that are computed where none is asked for.

        ValueError where the text is none.
        """
        if text is None:
            return self.defaults(options) if callable(self.defaults) else self.defaults
        value = self.read(text.lower())
        if not self.accepts(value):
            raise ValueError(text)
        return (value,)


rank = partial(
    Parameter,
    "a positive integer",
    lambda text: int(text) if text.isdecimal() else 0,
    lambda one: one >= 1,
)
rate = partial(Parameter, "a fraction between 0 and 1", float, lambda one: 0 <= one <= 1)
threshold = partial(
    Parameter,
    "a multiple of 0.01 between 0 and 1",
    float,
    lambda one: 0 <= one <= 1 and one == round(100 * one) / 100,
)
percentage = partial(
    Parameter, "a percentage above 0, at most 100", float, lambda one: 0 < one <= 100
)


distance = Parameter("a distance", float, math.isfinite, ())


def choice(*known: str) -> Parameter:
    """Return a parameter that is one of some words; all of them are the default."""
    return Parameter(" or ".join(known), str, known.__contains__, known)


def write(value: Any) -> str:
    """Return a value as it stands in a metric's name: 0.001, 1e-06, 10, micro."""
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
