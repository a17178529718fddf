"""What a pass tells of its finished work, for whoever keeps it: see `checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streameval.planning import Plan

Item = TypeVar("Item")
Arrays = Mapping[str, npt.NDArray[Any]]


class Stage:
    """The tasks of one pass: which are finished, and what came of these.

    Attributes
    ----------
    done : [n] bool
        Which tasks are finished.
    state : dict of str to mapping of str to array
        What came of the finished tasks, by a name each.
    """

    def __init__(self, tasks: int) -> None:
        self.done = np.zeros(tasks, np.bool_)
        self.state: dict[str, Arrays] = {}

    def left(self, items: Sequence[Item]) -> dict[int, Item]:
        """Return the items that are not finished, by index."""
        return {index: items[index] for index in np.flatnonzero(~self.done).tolist()}

    def keep(self, indices: Sequence[int], name: str, arrays: Arrays) -> None:
        """Note that tasks are finished, and what has come of all tasks of this name by now.

        Parameters
        ----------
        indices : sequence of int
        name : str
        arrays : mapping of str to array
            In place of those that were kept under the name before.
        """
        self.done[list(indices)] = True


Manifest = Mapping[str, Mapping[str, Any]]
"""What is counted, as JSON values: ``inputs``, ``options`` and ``plan``."""


class Record:
    """Keeps finished work, stage by stage; this one keeps nothing."""

    def start(self, describe: Callable[[], Manifest], plan: Plan) -> Plan:
        """Note what is evaluated; return the plan to go on with."""
        return plan

    def stage(self, name: str, tasks: int) -> Stage:
        """Begin a stage of so many tasks, or continue it where it was left."""
        return Stage(tasks)

    def begin(self, variant: str) -> None:
        """Note what the stages that follow are of; those of another variant are kept apart."""


NO_RECORD = Record()
