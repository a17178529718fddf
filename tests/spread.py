"""Parameters of which a day's work tries some: combinations spread evenly, or chosen ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def spread(*axes: Iterable[Any], of: int = 2) -> list[Any]:
    """Return all combinations as parameters of a test, of which one in so many is not slow.

    Those hold each pair of values of two axes, if there is a third one of at least so many values.
    """
    return [
        pytest.param(
            *(value for _, value in case), marks=() if sum(at for at, _ in case) % of == 0 else SLOW
        )
        for case in product(*map(enumerate, axes))
    ]


def with_daily(values: Iterable[Any], *daily: Any) -> list[Any]:
    """Return all values as parameters of a test, of which those that are not named are slow."""
    return [pytest.param(value, marks=() if value in daily else SLOW) for value in values]


SLOW = pytest.mark.slow
