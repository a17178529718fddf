"""Parameters of metrics: how they are read from a metric's name, and written into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streameval.metrics.options import MetricOptions

Values = tuple[Any, ...]
Defaults = Callable[[MetricOptions], Values]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a metric, as the ``x`` of ``CMC@{x}``.

    Attributes
    ----------
    expects : str
        In words, for messages and listings.
    parse : callable
        Text to value; ValueError where the text is none.
    defaults : callable
        `MetricOptions` to the values that are computed where none is asked for.
    """

    expects: str
    parse: Callable[[str], Any]
    defaults: Defaults


def rank(defaults: Defaults) -> Parameter:
    """Return a parameter that is a positive integer: a rank, or a length of the list."""
    expects = "a positive integer"
    return _parameter(expects, int, lambda one: one >= 1, defaults, str.isdecimal)


def rate(*defaults: float) -> Parameter:
    """Return a parameter that is a fraction in [0, 1]."""
    return rate_of_options(lambda _: defaults)


def rate_of_options(defaults: Defaults) -> Parameter:
    """Return a parameter that is a fraction in [0, 1], with defaults from the options."""
    return _parameter("a fraction between 0 and 1", float, lambda one: 0 <= one <= 1, defaults)


def threshold(*defaults: float) -> Parameter:
    """Return a parameter that is one of the 101 thresholds τ."""
    return _parameter(
        "a multiple of 0.01 between 0 and 1",
        float,
        lambda one: 0 <= one <= 1 and one == round(100 * one) / 100,
        lambda _: defaults,
    )


def percentage(*defaults: float) -> Parameter:
    """Return a parameter that is a percentage above 0 and at most 100."""
    expects = "a percentage above 0, at most 100"
    return _parameter(expects, float, lambda one: 0 < one <= 100, lambda _: defaults)


def choice(*known: str) -> Parameter:
    """Return a parameter that is one of some words; all of them are the default."""
    return _parameter(" or ".join(known), str, known.__contains__, lambda _: known)


def write(value: Any) -> str:
    """Return a value as it stands in a metric's name: 0.001, 1e-06, 10, micro."""
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _parameter(
    expects: str,
    read: Callable[[str], Any],
    accepts: Callable[[Any], bool],
    defaults: Defaults,
    is_text: Callable[[str], bool] = bool,
) -> Parameter:
    def parse(text: str) -> Any:
        value = read(text)
        if not (accepts(value) and is_text(text)):
            raise ValueError(text)
        return value

    return Parameter(expects, parse, defaults)
