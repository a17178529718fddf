"""Trials: galleries that a benchmark draws at random, several times, or that are given."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streameval.errors import OptionError, entry_point, is_whole, refuse
from streameval.protocols.rules import SIDES, Side

GIVEN: Literal["given"] = "given"  # in place of draws: the rows of each trial are given


@dataclass(frozen=True)
class Trials:
    """Draws of some images of each group, each of which is an evaluation by itself.

    Trial t draws with ``random.Random(seed + t)``: of each group in ascending order of its labels,
    by ``choice`` of its rows, in ascending order; ``sample`` draws several. The official codes of
    SYSU-MM01 and LLCM draw so, with seed 0.

    Attributes
    ----------
    draw : int or "given"
        Images of each group; all of a group that has fewer. With ``"given"``, nothing is drawn: the
        caller gives the rows of each trial, and `per` and `seed` are of no use.
    per : tuple of str
        Columns: images with the same labels in all of them are a group.
    times : int
        Number of trials.
    seed : int
    side : {"gallery", "query"}
        Which side is drawn.
    """

    draw: int | Literal["given"] = 1
    per: tuple[str, ...] = ("id",)
    times: int = 10
    seed: int = 0
    side: Side = "gallery"

    def __str__(self) -> str:
        """Say what is drawn."""
        whose = "queries" if self.side == "query" else "items"
        if self.draw == GIVEN:
            return f"{self.times} trials of {whose} that are given"
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
                not (is_whole(getattr(self, name), least) or (name, self.draw) == ("draw", GIVEN))
                and f"{name} is {getattr(self, name)!r}; a whole number of at least {least} is "
                "needed"
                for name, least in (("draw", 1), ("times", 1), ("seed", 0))
            ),
        )

    def given(self, times: int) -> Trials:
        """Return so many trials of the same side, whose rows are given."""
        return Trials(GIVEN, times=times, side=self.side)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Trials:
        """Return the trials of the keys of a table."""
        known = list(inspect.signature(cls).parameters)
        for key in (key for key in values if key not in known):
            raise OptionError(f"there is an unknown key {key!r}: known: {', '.join(known)}")
        return cls(**values)
