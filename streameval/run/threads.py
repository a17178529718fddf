"""The executor of one machine: a pool of threads, whose kernels run outside the GIL."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from threadpoolctl import threadpool_limits

from streameval.run.executor import Item, Part, Pass, run_task
from streameval.run.job import Job
from streameval.run.progress import Cancelled, Watch


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
    ) -> Generator[tuple[tuple[int, ...], Part], None, None]:
        """Yield each result by itself; see `Executor`."""
        with (
            threadpool_limits(1, user_api="blas"),
            ThreadPoolExecutor(self.threads, thread_name_prefix="streameval") as pool,
        ):
            running: dict[Future[Part], int] = {}
            pending = iter(items.items())

            def start() -> None:
                """Start as many as there are threads; what could not start is held back."""
                while len(running) < self.threads and (following := next(pending, None)):
                    index, item = following
                    running[pool.submit(run_task, work, job, item, watch)] = index

            try:
                start()
                while running:
                    done = wait(running, return_when=FIRST_COMPLETED).done
                    failed = next((one for one in done if one.exception() is not None), None)
                    error = None if failed is None else _first_error(failed, running)
                    del done
                    finished = {
                        one: index
                        for one, index in running.items()
                        if one.done() and one.exception() is None
                    }
                    for future in finished:
                        del running[future]
                    if error is None:
                        start()  # threads go on while these are merged
                    while finished:  # not to be lost, whatever else has failed
                        future, index = finished.popitem()
                        yield (index,), future.result()
                        del future
                    if error is not None:
                        raise error
            except BaseException:
                watch.cancel()
                raise


def _first_error(failed: Future[Part], running: dict[Future[Part], int]) -> BaseException:
    """Return the error of the first failing item: all before it have been started."""
    earlier = {future: at for future, at in running.items() if at <= running[failed]}
    wait(earlier)
    failures = {at: future.exception() for future, at in earlier.items()}
    first = min(
        at
        for at, error in failures.items()
        if error is not None and not isinstance(error, Cancelled)
    )
    error = failures[first]
    return error if error is not None else RuntimeError("a task failed without an error")
