"""Trials: galleries that a benchmark draws at random, several times."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streameval.errors import OptionError, entry_point, is_whole, refuse
from streameval.protocols.rules import SIDES, Side


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

    @entry_point
    def __post_init__(self) -> None:
        """Bring `per` to a tuple; raise OptionError for other values."""
        per: object = self.per
        if isinstance(per, Iterable) and not isinstance(per, str):
            object.__setattr__(self, "per", tuple(per))
        named = isinstance(self.per, tuple) and self.per
        refuse(
            OptionError,
            not (named and all(isinstance(one, str) for one in self.per))
            and f"per is {per!r}; a list of label columns, such as ['id', 'cam'], is needed",
            self.side not in SIDES and f"side is {self.side!r}; 'gallery' or 'query' is needed",
            *(
                not is_whole(getattr(self, name), least)
                and f"{name} is {getattr(self, name)!r}; a whole number of at least {least} is "
                "needed"
                for name, least in (("draw", 1), ("times", 1), ("seed", 0))
            ),
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Trials:
        """Return the trials of the keys of a table."""
        known = list(inspect.signature(cls).parameters)
        for key in (key for key in values if key not in known):
            raise OptionError(f"there is an unknown key {key!r}: known: {', '.join(known)}")
        return cls(**values)
