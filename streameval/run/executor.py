"""What all modes of execution share: a pass, its tasks, and the contract of what runs them.

Every executor runs `run_task`, wherever that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from streameval.errors import StreamevalError, TaskError
from streameval.planning.range import NotUnitError
from streameval.run.job import Job
from streameval.run.progress import Cancelled, Watch

Item = TypeVar("Item")
Part = TypeVar("Part")

ATTEMPTS = 3  # at a task, where the error may pass
BACK_OFF = 0.2  # seconds before the second attempt; doubled for each further one


@dataclass(frozen=True)
class Pass(Generic[Item, Part]):
    """One pass over the data: what a task of it computes, and how results combine.

    Attributes
    ----------
    name : str
        What a person reads: ``count``.
    compute : callable
        (job, item, watch) to a part of the result. A function of a module, so that a worker
        can import it.
    merge : callable, optional
        Two parts of one group to their sum: associative and commutative. None: parts stay apart.
    group : callable
        An item to its group: parts of one group merge.
    pairs : callable
        An item to the number of (query, gallery) pairs, or positive pairs, that it works off.
    """

    name: str
    compute: Callable[[Job, Item, Watch], Part]
    merge: Callable[[Part, Part], Part] | None
    group: Callable[[Item], Hashable]
    pairs: Callable[[Item], int]


class Executor(Protocol):
    """Runs the tasks of a pass, wherever that is."""

    def run(
        self, work: Pass[Item, Part], job: Job, items: Mapping[int, Item], watch: Watch
    ) -> Generator[tuple[tuple[int, ...], Part], None, None]:
        """Yield parts of the result as they are there: (indices of the items in it, part).

        Each index comes once. Raises the error of the first item, by index, that failed.

        Parameters
        ----------
        work : Pass
        job : Job
        items : mapping of int to item
            In ascending order of index.
        watch : Watch
        """


def run_task(work: Pass[Item, Part], job: Job, item: Item, watch: Watch) -> Part:
    """Run one task; where it fails for a reason that may pass, again.

    Raises
    ------
    StreamevalError, NotUnitError, MemoryError
        As the task raises them; nothing is gained by trying again, but where an input could
        not be read for a moment.
    TaskError
        If it fails of anything else, again and again; names the task and the cause.
    """
    attempt = 1
    while True:
        beginning = _Beginning(watch)
        try:
            return work.compute(job, item, beginning)
        except (Cancelled, NotUnitError, MemoryError):
            raise
        except Exception as error:
            if isinstance(error, StreamevalError) and not _may_pass(error):
                raise
            if attempt == ATTEMPTS:
                if isinstance(error, StreamevalError):
                    raise
                raise TaskError(
                    f"{work.name} of {item} failed {attempt} times "
                    f"({type(error).__name__}: {error}); mend that, and run it again"
                ) from error
        beginning.take_back()
        time.sleep(BACK_OFF * 2 ** (attempt - 1))
        attempt += 1


def _may_pass(error: BaseException) -> bool:
    """Tell whether an input could not be read for a moment: a timeout, a network, a disk."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, OSError):
            return not isinstance(cause, FileNotFoundError | PermissionError | NotADirectoryError)
        cause = cause.__cause__
    return False


class _Beginning(Watch):
    """What one attempt reports, and can take back."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._pairs = 0

    def advance(self, pairs: int) -> None:
        self._watch.advance(pairs)
        self._pairs += pairs

    def take_back(self) -> None:
        self._watch.advance(-self._pairs)


def merged(work: Pass[Any, Part], *parts: Part) -> Part:
    """Return the sum of parts of one group."""
    total = parts[0]
    for part in parts[1:]:
        if work.merge is None:
            raise TypeError(f"parts of {work.name} do not merge")
        total = work.merge(total, part)
    return total
