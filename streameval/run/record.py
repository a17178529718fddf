"""Interface of a record of finished work, to which passes report; `checkpoint` keeps one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from streameval.arrays.witness import Readings
from streameval.planning.plan import Cut, Plan

Item = TypeVar("Item")  # a task of a pass


class Stage:
    """The tasks of a pass: which are finished, and what they have counted.

    Attributes
    ----------
    done : [n] bool
        Which tasks are finished.
    state : dict of str to array or RankStatistics
        What the finished tasks have counted, by name.
    readings : Readings
        What they have read; nothing where nobody keeps it.
    files : str
        What the inputs' files were known by then.
    """

    def __init__(self, tasks: int, changed: Callable[[Stage, str], None] | None = None) -> None:
        self.done = np.zeros(tasks, np.bool_)
        self.state: dict[str, Any] = {}
        self.readings, self.files = Readings(), ""
        self._changed = changed

    def left(self, items: Sequence[Item]) -> dict[int, Item]:
        """Return the items that are not finished, by index."""
        return {index: items[index] for index in np.flatnonzero(~self.done).tolist()}

    def read(self, readings: Readings) -> None:
        """Add what a task has read, where the stage is kept."""
        if self._changed is not None:
            self.readings.add(readings)

    def counted(self, name: str) -> Any:
        """Return an array that is finished, to be changed: a copy where the stage is kept."""
        return self.state[name] if self._changed is None else self.state[name].copy()

    def keep(self, indices: Sequence[int], name: str, counted: Any) -> None:
        """Mark tasks as finished; `counted` is what all tasks of this name have counted so far."""
        self.done[list(indices)] = True
        self.state[name] = counted
        if self._changed is not None:
            self._changed(self, name)


Manifest = Mapping[str, Mapping[str, Any]]
"""What is counted, as JSON values: ``inputs`` and ``options``; and `PLACES` of the inputs."""

PLACES = "places"


def digest(tasks: Sequence[Any]) -> str:
    """Return a text that differs where tasks do: by their names, and their numbers of pairs."""
    text = "\n".join(f"{task} {task.pairs}" for task in tasks)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Record:
    """A record of finished work, stage by stage; this one keeps nothing."""

    def start(
        self, describe: Callable[[], Manifest], plan: Plan, with_cut: Callable[[Cut], Plan]
    ) -> Plan:
        """Record what is evaluated, and return the plan to follow.

        `with_cut` returns the plan with an earlier cut, if that fits; else its own.
        """
        return plan

    def stage(self, name: str, tasks: Sequence[Item]) -> Stage:
        """Begin a stage of some tasks, or continue it where it was left."""
        return Stage(len(tasks))

    def file(self, name: str) -> Path | None:
        """Return where a file of a stage is kept; None where none is."""
        return None

    def keep(self, *made: Path) -> Path:
        """Keep files that are finished, all or none; return where the last is now."""
        return made[-1]

    def release(self) -> None:
        """Keep the stages that there were, and let go of what they have counted."""

    def begin(self, variant: str) -> None:
        """Keep the stages that follow apart from those of other variants."""


NO_RECORD = Record()
