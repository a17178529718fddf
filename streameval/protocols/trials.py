"""Trials: galleries that a benchmark draws at random, several times."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streameval.errors import OptionError, is_whole, refuse
from streameval.protocols.labels import Labels
from streameval.protocols.rules import SIDES, Side
from streameval.typing import IntArray


@dataclass(frozen=True)
class Trials:
    """Draws of some images of each group, each of which is an evaluation by itself.

    Trial t draws with ``random.Random(seed + t)``: of each group in ascending order of its labels,
    by ``choice`` of its rows, in ascending order; ``sample`` draws several. The official codes of
    SYSU-MM01 and LLCM draw so, with seed 0.

    Attributes
    ----------
    draw : int
        Images of each group; all of a group that has fewer.
    per : tuple of str
        Columns: images with the same labels in all of them are a group.
    times : int
        Number of trials.
    seed : int
    side : {"gallery", "query"}
        Which side is drawn.
    """

    draw: int = 1
    per: tuple[str, ...] = ("id",)
    times: int = 10
    seed: int = 0
    side: Side = "gallery"

    def __str__(self) -> str:
        """Say what is drawn."""
        whose = "queries" if self.side == "query" else "items"
        each = " and ".join(self.per)
        return f"{self.times} trials of {self.draw} of the {whose} of each {each}"

    @classmethod
    def of(cls, values: Mapping[str, Any], name: str) -> Trials:
        """Return the trials of the keys of a protocol's table ``trials``."""
        known = list(inspect.signature(cls).parameters)
        unknown = [key for key in values if key not in known]
        if unknown:
            raise OptionError(
                f"trials of protocol {name} have an unknown key {unknown[0]!r}: known: "
                f"{', '.join(known)}"
            )
        per = values.get("per", ("id",))
        several = isinstance(per, Iterable) and not isinstance(per, str)
        trials = cls(**{**values, "per": tuple(per) if several else per})
        where = f"trials of protocol {name} have"
        refuse(
            OptionError,
            not (several and trials.per and all(isinstance(one, str) for one in trials.per))
            and f"{where} per {per!r}; a list of label columns, such as ['id', 'cam'], is needed",
            trials.side not in SIDES
            and f"{where} side {trials.side!r}; 'gallery' or 'query' is needed",
            *(
                not is_whole(getattr(trials, key), least)
                and f"{where} {key} {getattr(trials, key)!r}; a whole number of at least {least} "
                "is needed"
                for key, least in (("draw", 1), ("times", 1), ("seed", 0))
            ),
        )
        return trials

    def rows(self, labels: Labels, among: IntArray) -> list[IntArray]:
        """Return the rows that each trial draws, ascending, of those that there are to draw from.

        Parameters
        ----------
        labels : Labels
            Of all images of the side.
        among : [n] int64
            Rows, ascending.
        """
        code = np.zeros(len(among), np.int64)
        for column in self.per:
            _, own = np.unique(labels.columns[column][among], return_inverse=True)
            code = np.unique(code * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
        order = np.argsort(code, kind="stable")
        groups = np.split(among[order], np.flatnonzero(np.diff(code[order])) + 1)
        return [self._draw([one.tolist() for one in groups], t) for t in range(self.times)]

    def _draw(self, groups: Iterable[list[int]], trial: int) -> IntArray:
        generator, drawn = random.Random(self.seed + trial), []
        for rows in groups:
            if self.draw == 1:
                drawn.append(generator.choice(rows))
            else:
                drawn += generator.sample(rows, min(self.draw, len(rows)))
        return np.sort(np.array(drawn, np.int64))
