"""The executor of one machine: a pool of threads, whose kernels run outside the GIL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from threadpoolctl import threadpool_limits

from streameval.execution.progress import Cancelled, Watch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs tasks, wherever that is."""

    def run(
        self, function: Callable[[Item, Watch], Result], items: Sequence[Item], watch: Watch
    ) -> Generator[tuple[int, Result], None, None]:
        """Yield (index, result) of ``function(item, watch)`` for each item, as they finish.

        Raises the error of the first item, in the order given, that failed.
        """


class ThreadExecutor:
    """A pool of threads, each of which multiplies with one BLAS thread.

    Parameters
    ----------
    threads : int
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def run(
        self, function: Callable[[Item, Watch], Result], items: Sequence[Item], watch: Watch
    ) -> Generator[tuple[int, Result], None, None]:
        """Yield (index, result) for each item; see `Executor`."""
        with (
            threadpool_limits(1, user_api="blas"),
            ThreadPoolExecutor(self.threads, thread_name_prefix="streameval") as pool,
        ):
            running: dict[Future[Result], int] = {}
            following = 0
            try:
                while running or following < len(items):
                    # Hold back what could not start: finished results are merged, not queued.
                    while following < len(items) and len(running) < self.threads:
                        future = pool.submit(function, items[following], watch)
                        running[future] = following
                        following += 1
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        index = running.pop(future)
                        if future.exception() is not None:
                            raise _first_error(future, index, running)
                        yield index, future.result()
            except BaseException:
                watch.cancel()
                raise


def _first_error(
    failed: Future[Result], index: int, running: dict[Future[Result], int]
) -> BaseException:
    """Return the error of the first failing item: all before it have been started."""
    earlier = {future: at for future, at in running.items() if at < index}
    wait(earlier)
    failures = {index: failed.exception()}
    failures |= {at: future.exception() for future, at in earlier.items()}
    first = min(
        at
        for at, error in failures.items()
        if error is not None and not isinstance(error, Cancelled)
    )
    error = failures[first]
    return error if error is not None else RuntimeError("a task failed without an error")
