"""What runs on the workers of a cluster, and what is sent to them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from importlib.metadata import version
from threading import Lock
from typing import Any

from streameval.arrays.identity import Files, check_copies, check_same
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


class SentJob:
    """A job as it travels: each worker opens it for itself, once.

    Parameters
    ----------
    files : list of Files
        Of its inputs, where the evaluation was started; at absolute places.
    packed : bytes
    """

    def __init__(self, files: list[Files], packed: bytes) -> None:
        self._files, self._packed, self._lock = files, packed, Lock()
        self._opened: tuple[Job, list[Files]] | None = None

    @classmethod
    def of(cls, job: Job) -> SentJob:
        """Return a job that is to be sent."""
        check_sent(job.source)
        files = [one.anywhere() for one in job.files]
        return cls(files, pickle.dumps(job))

    def __reduce__(self) -> tuple[type[SentJob], tuple[list[Files], bytes]]:
        return SentJob, (self._files, self._packed)

    def open(self) -> tuple[Job, list[Files]]:
        """Return the job with its inputs, and the files that are copies on this worker."""
        with self._lock:
            if self._opened is None:
                try:
                    copies = check_copies(self._files)
                    self._opened = pickle.loads(self._packed), copies
                except (InputError, OSError) as error:
                    raise _unreadable(error) from error
            return self._opened


@_errors_alone()
def keep_job(client_version: str, sent: SentJob) -> SentJob:
    """Return a job, for the workers to have it from one another."""
    _check_version(client_version)
    return sent


@_errors_alone()
def run_on_worker(client_version: str, work: Pass[Item, Part], sent: SentJob, item: Item) -> Part:
    """Run a task on a worker: `run_task`, with one BLAS thread."""
    _check_version(client_version)
    _limit_blas()
    job, copies = sent.open()
    try:
        part = run_task(work, job, item, Watch(Progress()))
    except InputError as error:
        check_same(copies)
        if isinstance(error.__cause__, OSError):
            raise _unreadable(error) from error
        raise
    except MemoryError as error:
        raise MemoryError(f"{error} (on worker {_worker()})") from error
    check_same(copies)
    return part


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


def check_sent(source: Source) -> None:
    """Check that little of a source lies in memory: workers open the rest by path."""
    sent = sum(item.sent_bytes for item in source.inputs())
    if sent > SENT_BYTES:
        raise InputError(
            f"arrays in memory of {format_bytes(sent)} are given, and no more than "
            f"{format_bytes(SENT_BYTES)} are sent to every worker: save them, as .npy or .zarr, "
            "where all workers can read them, and give the path"
        )
