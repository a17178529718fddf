"""Passes, the contract of what runs their tasks, and the executor of one machine.

Every executor runs `run_task`, wherever that is. `ThreadExecutor` has a pool of threads, whose
kernels run outside the GIL.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from threadpoolctl import ThreadpoolController

from streameval.errors import StreamevalError, TaskError, lacks_memory
from streameval.interruption import heed
from streameval.planning.range import NotUnitError
from streameval.run.job import Job
from streameval.run.progress import Cancelled, Watch


class Work(Protocol):
    """An item of a pass."""

    @property
    def pairs(self) -> int:
        """Number of (query, gallery) pairs, or positive pairs, that it works off."""


Item = TypeVar("Item", bound=Work)
Part = TypeVar("Part")
Parts = Generator[tuple[tuple[int, ...], Part], None, None]
"""Parts of the result of a pass, each with the indices of the items in it."""

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
    """

    name: str
    compute: Callable[[Job, Item, Watch], Part]
    merge: Callable[[Part, Part], Part] | None = None
    group: Callable[[Item], Hashable] = str


class Executor(Protocol):
    """Runs the tasks of a pass, wherever that is."""

    def run(
        self, work: Pass[Item, Part], job: Job, items: Mapping[int, Item], watch: Watch
    ) -> Parts[Part]:
        """Yield parts of the result as they finish: (indices of the items in it, part).

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
    """Run one task; where it fails for a reason that may pass, again."""
    attempt = 0
    while True:
        attempt += 1
        progress = _Attempt(watch)
        try:
            return work.compute(job, item, progress)
        except (Cancelled, NotUnitError):
            raise
        except Exception as error:
            if lacks_memory(error):
                raise MemoryError(f"{work.name} of {item}: {error}") from error
            ours = isinstance(error, StreamevalError)
            if ours and (attempt == ATTEMPTS or not _may_pass(error)):
                raise
            if attempt == ATTEMPTS:
                raise TaskError(
                    f"{work.name} of {item} failed {attempt} times "
                    f"({type(error).__name__}: {error}); mend that, and run it again"
                ) from error
        progress.take_back()
        time.sleep(BACK_OFF * 2 ** (attempt - 1))


def _may_pass(error: BaseException) -> bool:
    """Whether an input could not be read for a moment: a timeout, a network, a disk."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, OSError):
            return not isinstance(cause, FileNotFoundError | PermissionError | NotADirectoryError)
        cause = cause.__cause__
    return False


class _Attempt(Watch):
    """The progress that one attempt at a task reports, and can take back."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._pairs = 0

    def advance(self, pairs: int) -> None:
        self._watch.advance(pairs)
        self._pairs += pairs

    def take_back(self) -> None:
        self._watch.advance(-self._pairs)


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Return the libraries with threads, looked for again once more modules are loaded."""
    return ThreadpoolController()


class ThreadExecutor:
    """A pool of threads, each of which multiplies with one BLAS thread.

    Parameters
    ----------
    threads : int
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def run(
        self, work: Pass[Item, Part], job: Job, items: Mapping[int, Item], watch: Watch
    ) -> Parts[Part]:
        """Yield each result by itself; see `Executor`."""
        with (
            _libraries(len(sys.modules)).limit(limits=1, user_api="blas"),
            ThreadPoolExecutor(self.threads, thread_name_prefix="streameval") as pool,
        ):
            running: dict[int, Future[Part]] = {}
            errors: dict[int, BaseException] = {}
            pending = iter(items.items())
            failed: list[int] = []

            def compute(index: int, item: Item) -> Part:
                """Run a task unless one before it has failed."""
                if any(other < index for other in failed):
                    raise Cancelled
                try:
                    return run_task(work, job, item, watch)
                except BaseException:
                    failed.append(index)
                    raise

            def start() -> None:
                """Start as many as there are threads, and one that the first of them goes on to."""
                while len(running) <= self.threads and (following := next(pending, None)):
                    index, item = following
                    running[index] = pool.submit(compute, index, item)

            try:
                start()
                while running and min(running) < min(errors, default=math.inf):
                    wait(running.values(), return_when=FIRST_COMPLETED)
                    heed()
                    finished = {i: running.pop(i) for i in list(running) if running[i].done()}
                    errors |= {i: e for i, done in finished.items() if (e := done.exception())}
                    if not errors:
                        start()  # threads go on while these are merged
                    while finished:  # not to be lost, whatever else has failed
                        index, future = finished.popitem()
                        if index not in errors:
                            yield (index,), future.result()
                        del future
                if errors:
                    raise errors[min(errors)]
            except BaseException:
                watch.cancel()
                for future in running.values():
                    future.cancel()
                raise
