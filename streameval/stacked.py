"""Statistics of consecutive blocks of queries, as those of all of them.

Those of a block are read where they are. A field is joined when all of it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from streameval.statistics import FIELDS, ROW_FIELDS, RankStatistics, check_same
from streameval.stretches import cumulated, joined
from streameval.threads import lazy
from streameval.typing import AnyArray, IntArray, Span


def stack(parts: Sequence[RankStatistics]) -> RankStatistics:
    """Stack the statistics of consecutive blocks of queries against one gallery.

    Raises ValueError if there are none, or they differ in thresholds, edges, fields or widths.
    """
    if not parts:
        raise ValueError("there are no statistics to stack")
    return parts[0] if len(parts) == 1 else StackedStatistics.of(parts)


class StackedStatistics(RankStatistics):
    """Statistics of several blocks of queries.

    What `take`, `merge` and the like make of them joins every field.
    """

    _parts: dict[str, list[AnyArray]]  # of fields that are not attributes yet, if any
    _begins: Mapping[str, IntArray]  # of the parts, by axis

    @classmethod
    def of(cls, parts: Sequence[RankStatistics]) -> StackedStatistics:
        """Return the statistics of all parts."""
        every = {name: [getattr(part, name) for part in parts] for name in FIELDS}
        held = [name for name in every if all(one is not None for one in every[name])]
        rows = {name: every.pop(name) for name in held if name in ROW_FIELDS}
        counts = np.concatenate([part.positives for part in parts])
        shared: dict[str, Any] = {"indptr": cumulated(counts)}
        queries = cumulated([part.queries for part in parts])
        begins = {"query": queries, "positive": shared["indptr"][queries]}
        for name, values in every.items():
            if name in held and FIELDS[name].merge == "sum":
                shared[name] = np.sum(values, axis=0)
            elif name not in shared:
                for value in values[1:]:
                    check_same(name, values[0], value)
                shared[name] = values[0]
        for name, values in rows.items():
            if len({value.shape[1:] for value in values}) > 1:
                raise ValueError(f"statistics to be combined differ in the shape of {name}")
        stacked = cls.__new__(cls)
        vars(stacked).update(_parts=rows, _begins=begins, **shared)
        return stacked

    @property
    def held(self) -> Sequence[str]:
        """Names of the fields that are not None."""
        own = vars(self)
        parts = own.get("_parts", ())
        return [name for name in FIELDS if own.get(name) is not None or name in parts]

    def block(self, start: int, stop: int) -> RankStatistics:
        """Return the statistics of consecutive queries; a field is joined when it is asked for."""
        if (start, stop) == (0, self.queries) or "_parts" not in vars(self):
            return super().block(start, stop)
        spans = {"query": (start, stop), "positive": tuple(self.indptr[[start, stop]].tolist())}
        rows = {
            name: self._within(name, *spans[FIELDS[name].axes[0]])
            for name in self.held
            if name in ROW_FIELDS and name != "group"
        }
        shared: dict[str, Any] = dict.fromkeys(FIELDS.keys() - rows.keys())
        shared["indptr"] = self.indptr[start : stop + 1] - spans["positive"][0]
        begins = {}
        for axis, span in spans.items():
            first, last = self._parts_of(axis, *span)
            begins[axis] = np.clip(self._begins[axis][first : last + 2], *span) - span[0]
        shared |= {"thresholds": self.thresholds, "_parts": rows, "_begins": begins}
        block = type(self).__new__(type(self))
        vars(block).update(shared)
        return block

    def stretch(self, name: str, start: int, stop: int) -> AnyArray:
        """Return consecutive rows of a field, without a copy where they are of one block."""
        return joined(self._within(name, start, stop))

    def _within(self, name: str, start: int, stop: int) -> list[AnyArray]:
        """Return consecutive rows of a field, in parts."""
        if name in vars(self):
            return [vars(self)[name][start:stop]]
        parts, begins = self._parts[name], self._begins[FIELDS[name].axes[0]]
        if len(parts) == 1:  # joined by another thread, or for a copy
            return [parts[0][start:stop]]
        first, last = self._parts_of(FIELDS[name].axes[0], start, stop)
        return [
            part[max(start - begin, 0) : stop - begin]
            for part, begin in zip(parts[first : last + 1], begins[first:].tolist(), strict=False)
        ]

    def _parts_of(self, axis: str, start: int, stop: int) -> Span:
        """Return the first and the last part that consecutive rows are in."""
        inside = self._begins[axis][1:-1]
        first = int(np.searchsorted(inside, start, side="right"))
        return first, max(int(np.searchsorted(inside, stop)), first)


def _whole(stacked: StackedStatistics, name: str) -> AnyArray:
    """Return a field of all queries, joined; the parts are let go of."""
    whole = joined(stacked._parts[name])
    stacked._parts[name] = [whole]  # in one step: another thread may be reading
    return whole


for _name in ROW_FIELDS:
    _field = lazy(partial(_whole, name=_name))
    _field.__set_name__(StackedStatistics, _name)
    setattr(StackedStatistics, _name, _field)
