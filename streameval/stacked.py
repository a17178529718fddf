"""Statistics of consecutive blocks of queries, as those of all of them.

Those of a block are read where they are. A field is joined when all of it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streameval.statistics import FIELDS, RankStatistics, check_same
from streameval.stretches import cumulated, joined
from streameval.typing import AnyArray

Lazy = TypeVar("Lazy", bound=RankStatistics)


def stack(parts: Sequence[RankStatistics]) -> RankStatistics:
    """Stack the statistics of consecutive blocks of queries against one gallery.

    Raises ValueError if there are none, or they differ in thresholds, edges or fields.
    """
    if not parts:
        raise ValueError("there are no statistics to stack")
    return parts[0] if len(parts) == 1 else StackedStatistics(parts)


def read_fields(kind: type[Lazy], read: Callable[..., AnyArray | None]) -> None:
    """Have a class of statistics read each field whenever it is asked for."""
    for name in FIELDS:
        setattr(kind, name, property(partial(read, name=name)))


class StackedStatistics(RankStatistics):
    """Statistics of several blocks of queries.

    Parameters
    ----------
    parts : sequence of RankStatistics
        Of each block.
    """

    _parts: dict[str, list[AnyArray]]
    _shared: dict[str, AnyArray]

    def __init__(self, parts: Sequence[RankStatistics]) -> None:
        every = {name: [getattr(part, name) for part in parts] for name in FIELDS}
        held = [name for name in every if all(one is not None for one in every[name])]
        rows = {one: every.pop(one) for one in held if FIELDS[one].axes[0] in ("query", "positive")}
        counts = np.concatenate([part.positives for part in parts])
        shared: dict[str, Any] = {"indptr": cumulated(counts)}
        for name, values in every.items():
            if name in held and FIELDS[name].merge == "sum":
                shared[name] = np.sum(values, axis=0)
            elif name not in shared:
                for value in values[1:]:
                    check_same(name, values[0], value)
                shared[name] = values[0]
        vars(self).update(_parts=rows, _shared=shared)

    def whole_field(self, name: str) -> AnyArray | None:
        """Return a field, joined once; None where it is not held."""
        if name not in self._parts:
            return self._shared.get(name)
        parts = self._parts[name]
        if len(parts) > 1:
            parts = self._parts[name] = [joined(parts)]
        return parts[0]

    @property
    def held(self) -> Sequence[str]:
        """Names of the fields that are not None."""
        return [name for name in FIELDS if name in self._parts or self._shared[name] is not None]

    def stretch(self, name: str, start: int, stop: int) -> AnyArray:
        """Return consecutive rows of a field, without a copy where they are of one block."""
        parts = self._parts[name]
        begins = cumulated([len(part) for part in parts])
        first = int(np.searchsorted(begins[1:-1], start, side="right"))
        last = max(int(np.searchsorted(begins[1:-1], stop)), first)
        own = [
            part[max(start - begin, 0) : stop - begin]
            for part, begin in zip(parts[first : last + 1], begins[first:].tolist(), strict=False)
        ]
        return own[0] if len(own) == 1 else joined(own)


read_fields(StackedStatistics, StackedStatistics.whole_field)
