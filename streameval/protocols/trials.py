"""Trials: galleries that a benchmark draws at random, several times, or that are given.

``times="all"`` is the mean over all possible draws, without drawing: an expectation.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streameval.errors import OptionError, entry_point, is_whole, refuse
from streameval.protocols.rules import SIDES, Side

GIVEN: Literal["given"] = "given"  # in place of draws: the rows of each trial are given
ALL: Literal["all"] = "all"  # in place of a number of trials: every draw, in expectation


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
    times : int or "all"
        Number of trials. With ``"all"``, metrics are exact expectations over all draws, which are
        equally likely: see `MetricOptions.over_draws`. Of queries that are the rest, each counts by
        how likely it is not drawn.
    seed : int
    side : {"gallery", "query"}
        Which side is drawn.
    """

    draw: int | Literal["given"] = 1
    per: tuple[str, ...] = ("id",)
    times: int | Literal["all"] = 10
    seed: int = 0
    side: Side = "gallery"

    def __str__(self) -> str:
        """Say what is drawn."""
        whose = "queries" if self.side == "query" else "items"
        if self.draw == GIVEN:
            return f"{self.times} trials of {whose} that are given"
        what = f"{self.draw} of the {whose} of each {' and '.join(self.per)}"
        return f"all draws of {what}" if self.times == ALL else f"{self.times} trials of {what}"

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
                not (is_whole(value := getattr(self, name), least) or (value and value == word))
                and f"{name} is {value!r}; a whole number of at least {least} is needed"
                for name, least, word in (("draw", 1, GIVEN), ("times", 1, ALL), ("seed", 0, ""))
            ),
            self.times == ALL
            and self.draw == GIVEN
            and "times is 'all', and the rows are given: give draw, a number of images",
            self.times == ALL
            and self.side == "query"
            and "times is 'all', and queries are drawn: an expectation over draws is of galleries; "
            "the mean over all draws of one query is a mean over groups (average)",
            self.times == ALL
            and isinstance(self.per, tuple)
            and "id" not in self.per
            and f"times is 'all', and items are drawn per {', '.join(self.per)}: an expectation "
            "needs groups of one identity; add id",
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
