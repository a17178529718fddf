"""The names of all distances; each has a module of its name, loaded on first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from streameval.errors import OptionError

if TYPE_CHECKING:
    from streameval.distances.distance import Distance

DISTANCES = ("cosine", "euclidean", "sqeuclidean", "dot", "manhattan")


@cache
def find_distance(name: str) -> Distance:
    """Return the distance of a name.

    Raises
    ------
    OptionError
        If there is none.
    """
    if name not in DISTANCES:
        raise OptionError(f"unknown metric {name!r}; known metrics: {', '.join(DISTANCES)}")
    distance: Distance = import_module(f"streameval.distances.{name}").DISTANCE
    return distance
