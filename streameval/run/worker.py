"""What runs on the workers of a cluster, and what is sent to them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from importlib.metadata import version
from typing import Any

from streameval.errors import InputError, StreamevalError, TaskError
from streameval.planning.plan import format_bytes
from streameval.run.executor import Item, Part, Pass, run_task
from streameval.run.job import Job
from streameval.run.progress import Progress, Watch
from streameval.source import Source

SENT_BYTES = 100_000_000  # of arrays in memory that are sent to every worker
VERSION = version("streameval")


@contextmanager
def _errors_alone() -> Iterator[None]:
    """Raise errors without what led to them: exceptions of libraries may not be unpickled."""
    try:
        yield
    except StreamevalError as error:
        if not error.shows_cause:
            error.__cause__ = error.__context__ = None
        raise


@_errors_alone()
def load_job(client_version: str, blob: bytes) -> Job:
    """Open the inputs of a job on a worker."""
    _check_version(client_version)
    try:
        job: Job = pickle.loads(blob)
    except (InputError, OSError) as error:
        raise _unreadable(error) from error
    return job


@_errors_alone()
def run_on_worker(client_version: str, work: Pass[Item, Part], job: Job, item: Item) -> Part:
    """Run a task on a worker: `run_task`, with one BLAS thread."""
    _check_version(client_version)
    _limit_blas()
    try:
        return run_task(work, job, item, Watch(Progress()))
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            raise _unreadable(error) from error
        raise
    except MemoryError as error:
        raise MemoryError(f"{error} (on worker {_worker()})") from error


def merge_on_worker(client_version: str, work: Pass[Any, Part], *parts: Part) -> Part:
    """Return the sum of parts of one group."""
    _check_version(client_version)
    if work.merge is None:
        raise TypeError(f"parts of {work.name} do not merge")
    return reduce(work.merge, parts)


def _unreadable(error: Exception) -> InputError:
    return InputError(
        f"{error} (on worker {_worker()}); every worker must be able to read the inputs: put them "
        "where all can, at the same path"
    )


def _check_version(client_version: str) -> None:
    if client_version != VERSION:
        raise TaskError(
            f"worker {_worker()} has streameval {VERSION}, the client {client_version}: install "
            "the same on both"
        )


@cache
def _limit_blas() -> None:
    """Leave one thread to BLAS in this process: tasks run side by side in it."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")


def _worker() -> str:
    from distributed import get_worker

    return str(get_worker().address)


def packed(job: Job) -> bytes:
    """Return the job as it travels."""
    check_sent(job.source)
    return pickle.dumps(job)


def check_sent(source: Source) -> None:
    """Check that little of a source lies in memory: workers open the rest by path."""
    sent = sum(item.sent_bytes for item in source.inputs())
    if sent > SENT_BYTES:
        raise InputError(
            f"arrays in memory of {format_bytes(sent)} are given, and no more than "
            f"{format_bytes(SENT_BYTES)} are sent to every worker: save them, as .npy or .zarr, "
            "where all workers can read them, and give the path"
        )
