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
    return Parameter("a positive integer", _positive_integer, defaults)


def rate(*defaults: float) -> Parameter:
    """Return a parameter that is a fraction in [0, 1]."""
    return rate_of_options(lambda _: defaults)


def threshold(*defaults: float) -> Parameter:
    """Return a parameter that is one of the 101 thresholds τ."""
    return Parameter("a multiple of 0.01 between 0 and 1", _hundredth, lambda _: defaults)


def rate_of_options(defaults: Defaults) -> Parameter:
    """Return a parameter that is a fraction in [0, 1], with defaults from the options."""
    return Parameter("a fraction between 0 and 1", _fraction, defaults)


def percentage(*defaults: float) -> Parameter:
    """Return a parameter that is a percentage above 0 and at most 100."""
    return Parameter("a percentage above 0, at most 100", _percentage, lambda _: defaults)


def choice(*known: str) -> Parameter:
    """Return a parameter that is one of some words; all of them are the default."""

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(text)
        return text

    return Parameter(" or ".join(known), parse, lambda _: known)


def write(value: Any) -> str:
    """Return a value as it stands in a metric's name: 0.001, 1e-06, 10, micro."""
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _positive_integer(text: str) -> int:
    value = int(text)
    if value < 1 or not text.isdecimal():
        raise ValueError(text)
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def _percentage(text: str) -> float:
    value = float(text)
    if not 0 < value <= 100:
        raise ValueError(text)
    return value


def _hundredth(text: str) -> float:
    value = _fraction(text)
    if value != round(100 * value) / 100:
        raise ValueError(text)
    return value
