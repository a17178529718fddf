"""Session: where an evaluation runs, and with what."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from streameval.arrays.witness import Readings
from streameval.errors import OptionError, StreamevalError, check_path
from streameval.interruption import noticing
from streameval.kernels.caches import forget_stale_kernels, pausing_for_compilation
from streameval.memory import (
    IMPORT_BYTES,
    check_budget,
    default_budget,
    free_bytes,
    library_bytes,
    within_address_space,
)
from streameval.metrics.options import is_count, is_number
from streameval.planning.plan import Limits, Task, Workers
from streameval.run.checkpoint import Checkpoint
from streameval.run.cluster import ClusterExecutor
from streameval.run.connection import Connection, open_cluster
from streameval.run.executor import Executor, Item, Part, Parts, Pass, ThreadExecutor
from streameval.run.guard import Guard
from streameval.run.job import Job
from streameval.run.progress import Progress, Watch
from streameval.run.progress_bar import opened_progress
from streameval.run.record import NO_RECORD, Record, Stage
from streameval.run.worker import check_sent
from streameval.source import Source
from streameval.typing import Keywords


@dataclass(frozen=True)
class Session:
    """Where an evaluation runs, and with what: budget, threads or cluster, progress, record.

    Attributes
    ----------
    memory : int
        Budget of this process in bytes, beyond what it holds.
    threads : int
    executor : Executor
        Runs the tasks: threads of this process, or a cluster.
    worker_memory : int, optional
        Budget of each worker, beyond what it holds, where one is given.
    connection : Connection, optional
        To the Dask cluster whose workers do the work.
    planned_workers : Workers, optional
        Workers to plan for that have not been started.
    progress : Progress
    record : Record
        Finished work.
    guards : mapping of Source to Guard
        Of the inputs that are evaluated.
    collect : callable, optional
        Receives the lists of each block of queries, in order, where lists of neighbours of a
        fixed length are evaluated.
    scratch : Path, optional
        The output that statistics are kept beside where they don't fit; by default they are where
        the system has temporary files.
    """

    memory: int
    threads: int
    executor: Executor
    worker_memory: int | None = None
    connection: Connection | None = None
    planned_workers: Workers | None = None
    progress: Progress = field(default_factory=Progress)
    record: Record = NO_RECORD
    collect: Callable[[Any], None] | None = None
    scratch: Path | None = None
    guards: MutableMapping[Source, Guard] = field(default_factory=WeakKeyDictionary)

    @cached_property
    def watch(self) -> Watch:
        """What tasks report to; a session that is replaced has a new one."""
        return Watch(self.progress)

    def limits(self, source: Source) -> Limits:
        """Return what a plan for a source may take."""
        workers = self.planned_workers
        if self.connection is not None:
            check_sent(source)
            workers = self.connection.workers(self.worker_memory)
        return Limits(self.memory, self.threads, library_bytes(), workers)

    def run(
        self, work: Pass[Item, Part], job: Job, items: Sequence[Item], stage: Stage | None = None
    ) -> Parts[Part]:
        """Run a pass over the data, and yield parts of its result.

        Parameters
        ----------
        work : Pass
        job : Job
        items : sequence
            The tasks.
        stage : Stage, optional
            Tasks that are finished in it are left out.
        """
        stage = Stage(len(items)) if stage is None else stage
        left, guard = stage.left(items), self.guard(job.source)
        guard.check()
        guard.resume(stage)
        self.progress.start(work.name, sum(item.pairs for item in items))
        self.watch.advance(sum(item.pairs for i, item in enumerate(items) if i not in left))
        job = replace(job, known=Readings(rows=guard.readings.rows), files=guard.files())
        tasks = self.executor.run(guard.witnessed(work), job, left, self.watch)
        try:
            with pausing_for_compilation(self.watch), closing(tasks) as parts:
                for indices, seen in parts:
                    guard.readings.add(seen.readings)
                    stage.read(seen.readings)
                    yield indices, seen.part
        except StreamevalError as error:
            guard.check(failed=error)
            raise
        guard.check()
        guard.check_read_again(self.threads)
        self.progress.finish()

    def guard(self, source: Source) -> Guard:
        """Return the guard of a source's inputs: one and the same as long as it is evaluated."""
        known = self.guards.get(source)
        if known is None:
            known = self.guards[source] = Guard(source)
        return known

    def sums(self, work: Pass[Task, Part], job: Job, stage: Stage | None = None) -> dict[Any, Part]:
        """Run a pass over the tasks of a plan; return the sum of each group, in their order.

        The stage keeps the sums; see `run`.
        """
        if work.merge is None:
            raise TypeError(f"parts of {work.name} do not merge")
        tasks = job.plan.tasks
        stage = Stage(len(tasks)) if stage is None else stage
        for indices, part in self.run(work, job, tasks, stage):
            name = _name(work.group(tasks[indices[0]]))
            known = stage.state.get(name)
            stage.keep(indices, name, part if known is None else work.merge(known, part))
        groups: list[Any] = sorted({cast(Any, work.group(task)) for task in tasks})
        return {group: stage.state[_name(group)] for group in groups}


def _name(group: object) -> str:
    """Return the name of a group in the record: ``0-1024``."""
    return re.sub(r"\W+", "-", str(group)).strip("-")


@contextmanager
def open_session(given: Keywords) -> Iterator[Session]:
    """Open a session while the context lasts.

    Parameters
    ----------
    given : mapping of str to object
        Keywords of `evaluate`: ``memory``, ``threads``, ``client``, ``checkpoint``, ``resume``,
        ``progress``; and of the command line: ``workers``, ``scheduler``, ``dry_run``, which starts
        no workers. None is not given.
    """
    forget_stale_kernels()
    given = {name: value for name, value in given.items() if value is not None}
    folder = given.get("checkpoint")
    threads = given.get("threads", cores())
    if not is_count(threads):
        raise OptionError(f"threads is {threads!r}; a whole number of at least 1 is needed")
    threads = int(threads)
    workers, resume = given.get("workers", 1), bool(given.get("resume"))
    if workers < 1:
        raise OptionError(f"--workers is {workers}; a whole number of at least 1 is needed")
    each = _given_budget(given.get("memory"), workers)
    if given.get("dry_run") and "workers" in given and "scheduler" not in given:
        planned = Workers(workers, given.get("threads", 1), each, IMPORT_BYTES)
        yield Session(each, threads, ThreadExecutor(threads), planned_workers=planned)
        return
    memory = within_address_space(each, given.get("workers", 0))
    if folder is not None:
        check_path(folder, "checkpoint")
    elif resume:
        raise OptionError(
            "resume goes on with the work kept in a checkpoint: give its folder, checkpoint=..."
        )
    with (
        noticing(),
        opened_progress(given.get("progress")) as progress,
        open_cluster(given, each) as connection,
    ):
        session = Session(
            memory,
            threads,
            ThreadExecutor(threads) if connection is None else ClusterExecutor(connection),
            each if "memory" in given else None,
            connection,
            progress=progress,
        )
        if folder is None:
            yield session
            return
        with Checkpoint(Path(folder), resume=resume) as record:
            yield replace(session, record=record)
            record.remove()


def budget(memory: str | float | None) -> int:
    """Return what this process may take beyond what it holds, in bytes.

    Parameters
    ----------
    memory : str or float, optional
        A size as `parse_bytes` reads it; by default half of what is free, 8 GB at most.

    Raises
    ------
    BudgetError
        If that is less than 200 MB.
    OptionError
        If it is no size.
    """
    return within_address_space(_given_budget(memory, 1))


def _given_budget(memory: str | float | None, processes: int) -> int:
    """Return the budget of each of some processes of this machine."""
    if memory is None:
        return default_budget(free_bytes(), processes)
    return check_budget(parse_bytes(memory))


def cores() -> int:
    """Return how many cores the process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_bytes(size: str | float, what: str = "memory") -> int:
    """Return a number of bytes from a number or a text such as "2GB", "500 MiB".

    Parameters
    ----------
    size : str or float
    what : str
        What messages call it.
    """
    if is_number(size) and np.isfinite(float(size)):
        count = int(size)
    else:
        text = size if isinstance(size, str) else ""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?\s*", text)
        if match is None:
            raise OptionError(f"{what} is {size!r}; expected a size such as 2GB or 500MiB")
        number, prefix, binary = match.groups()
        base = 1024 if binary else 1000
        count = int(float(number) * base ** " KMGT".index(prefix.upper() or " "))
    if count <= 0:
        raise OptionError(f"{what} is {size!r}; a positive size is needed")
    return count
