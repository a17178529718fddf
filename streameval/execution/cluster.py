"""The executor of a Dask cluster, whose workers come, go and die.

The client sends each worker the job once (an ordinary task, so that a worker that comes late
fetches it, and one that is lost takes nothing away) and keeps a bounded number of tasks in
flight. What tasks return stays on the workers, and is merged there as a tree; every few
seconds, and when a group of tasks is finished, the root of its tree comes to the client. A
worker that is lost takes with it what has not come to the client yet: Dask computes that
again, from the tasks that it remembers.

The sums are of integers, and minima: no order of merging, and no repetition, changes a bit.
"""

from __future__ import annotations

import heapq
import logging
import math
import pickle
import queue
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic

import psutil

from streameval.errors import InputError, OptionError, StreamevalError, TaskError
from streameval.execution.executor import Item, Part, Pass, merged, run_task
from streameval.execution.job import Job
from streameval.execution.progress import Progress, Watch
from streameval.inputs.memory import LoadedArray, MemoryArray
from streameval.inputs.sources import Distances, Features
from streameval.planning import FAN_IN, Workers, format_bytes

if TYPE_CHECKING:
    from distributed import Client, Future

FLUSH_SECONDS = 4.0  # after which what is merged comes to the client
PER_THREAD = 3  # tasks in flight: one that runs, and some that wait for their turn
DEATHS = 2  # times that Dask may give up on a task, after several workers each
PATIENCE = 300.0  # seconds without a scheduler, or without a worker
LOOK_EVERY = 2.0  # seconds between looks at how many workers there are
RESCUE = 10.0  # seconds in which a finished part is to come, where the run ends in an error
TICK = 0.25  # seconds
CONNECT = 20.0  # seconds within which a scheduler is to answer
SHARE = 0.7  # of a worker's memory that is planned with: Dask spills, pauses and kills above
WORKER_BYTES = 300 << 20  # of a worker's process and libraries
LEAN = {"distributed.admin.low-level-log-length": 10}  # messages that Dask keeps, for its debugging
SENT_BYTES = 100_000_000  # of arrays in memory that are sent to every worker


class Connection:
    """The client of a scheduler, and how to get another one.

    Parameters
    ----------
    client : distributed.Client
    address : str, optional
        Of the scheduler; given where the connection is ours to make again.
    """

    def __init__(self, client: Client, address: str | None = None) -> None:
        self.client = client
        self.address = address

    def revive(self) -> None:
        """Wait until the client is connected; make a new one where it has given up.

        Raises
        ------
        TaskError
            If there is no scheduler for too long, or the client is the caller's and closed.
        """
        deadline = time.monotonic() + PATIENCE
        while self.client.status != "running":
            if time.monotonic() > deadline or (self.client.status == "closed" and not self.address):
                where = self.address or "of the client that was given"
                raise TaskError(
                    f"the scheduler {where} is gone, and has not come back within "
                    f"{PATIENCE:.0f} s: start it again"
                )
            if self.client.status == "closed" and self.address:
                with suppress(TaskError):
                    self.client = connect(self.address).client
                    continue
            time.sleep(TICK)

    def workers(self, memory: int | None) -> Workers:
        """Return the workers there are, once there is one, as the plan wants them.

        Parameters
        ----------
        memory : int, optional
            Bytes that each may take, where that is less than what the cluster gives it.

        Raises
        ------
        TaskError
            If there is no worker for too long.
        """
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise TaskError(
                f"the scheduler ({self.client}) has had no worker for "
                f"{PATIENCE:.0f} s: start workers"
            ) from error
        found = self.client.scheduler_info()["workers"].values()
        limits = [round(SHARE * one["memory_limit"]) for one in found if one["memory_limit"]]
        limits += [memory] if memory is not None else []
        return Workers(
            count=len(found),
            threads=max(one["nthreads"] for one in found),
            memory=min(limits, default=psutil.virtual_memory().total),
            reserved=WORKER_BYTES,
        )


def connect(address: str) -> Connection:
    """Connect to the scheduler at an address, with the TLS certificates of Dask's configuration.

    Raises
    ------
    TaskError
        If there is none.
    """
    import dask
    from distributed import Client

    try:
        with dask.config.set(LEAN):
            return Connection(Client(address, timeout=CONNECT, set_as_default=False), address)
    except (OSError, ValueError) as error:
        raise TaskError(
            f"no scheduler answers at {address} ({type(error).__name__}: {error}): start one with "
            "dask scheduler, and give its address, tcp://HOST:PORT"
        ) from error


@contextmanager
def open_cluster(
    *,
    count: int | None = None,
    scheduler: str | None = None,
    client: Client | None = None,
    threads: int | None = None,
    memory: int,
) -> Iterator[Connection | None]:
    """Open what is asked for, for as long as the context lasts; None where nothing is.

    Parameters
    ----------
    count : int, optional
        Processes to start on this machine.
    scheduler : str, optional
        Address of a scheduler to join.
    client : distributed.Client, optional
        One that is connected.
    threads, memory : int
        Of each process that is started here; one thread by default.

    Raises
    ------
    OptionError
        If more than one is asked for, or threads of workers that are there already; or if
        `distributed` is not installed.
    TaskError
        If no scheduler answers.
    """
    asked = {"workers": count, "scheduler": scheduler, "client": client}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise OptionError(f"got {' and '.join(given)}: choose one of them")
    if not given:
        yield None
        return
    if count is None and threads is not None:
        raise OptionError(
            f"got {given[0]} and threads {threads}: workers that run already have threads of "
            "their own; leave threads out"
        )
    if find_spec("distributed") is None:
        raise OptionError(
            f"{given[0]} needs the package distributed: pip install 'streameval[cluster]'"
        )
    if count is not None:
        with local_cluster(count, threads or 1, memory) as connection:
            yield connection
    elif scheduler is not None:
        connection = connect(scheduler)
        try:
            yield connection
        finally:
            connection.client.close()
    elif client is not None:
        yield Connection(client)


@contextmanager
def local_cluster(workers: int, threads: int, memory: int) -> Iterator[Connection]:
    """Run a cluster of processes on this machine for as long as the context lasts.

    Parameters
    ----------
    workers : int
        Processes.
    threads : int
        Of each.
    memory : int
        Bytes that each may take; one that takes much more is killed, and started again.
    """
    import dask
    from distributed import Client, LocalCluster

    # Spilling helps nothing where next to nothing is kept; --memory is what a worker plans with.
    spilling = {f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause")}
    with (
        dask.config.set({**spilling, **LEAN}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=True,
            memory_limit=round(memory / SHARE),
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield Connection(client)


class ClusterExecutor:
    """Runs tasks on the workers of a Dask cluster; see `Executor`.

    Parameters
    ----------
    connection : Connection
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(
        self, work: Pass[Item, Part], job: Job, items: Mapping[int, Item], watch: Watch
    ) -> Generator[tuple[tuple[int, ...], Part], None, None]:
        """Yield what has been merged on the workers, every few seconds; see `Executor`.

        Raises
        ------
        TaskError
            If workers die of a task again and again, or there is no scheduler, or no worker,
            for too long.
        """
        run = _Run(self.connection, work, job, items, watch)
        try:
            yield from run.parts()
        finally:
            run.close()


@dataclass
class _Node(Generic[Part]):
    """A future: of one task, or of the sum of some.

    Attributes
    ----------
    future : Future
    indices : tuple of int
        Of the items in it.
    level : int
        0 of a task; of a sum, one more than of what it sums up.
    root : bool
        Whether it comes to the client.
    """

    future: Future[Part]
    indices: tuple[int, ...]
    level: int = 0
    root: bool = False


@dataclass
class _Group:
    """The items whose results merge.

    Attributes
    ----------
    away : int
        Items whose result has not come to the client.
    unfinished : int
        Items that wait, or run: in the result of no task that is done.
    merging : int
        Sums that are on their way, but for roots.
    finished : list of _Node
        Tasks and sums that are done, and in no sum yet.
    flushed : float
        When what was merged was last brought to the client, by the monotonic clock.
    """

    away: int = 0
    unfinished: int = 0
    merging: int = 0
    finished: list[_Node[Any]] = field(default_factory=list)
    flushed: float = field(default_factory=time.monotonic)


class _Run(Generic[Item, Part]):
    """One pass on a cluster."""

    def __init__(
        self,
        connection: Connection,
        work: Pass[Item, Part],
        job: Job,
        items: Mapping[int, Item],
        watch: Watch,
    ) -> None:
        self._connection = connection
        self._work = work
        self._items = items
        self._watch = watch
        self._token = uuid.uuid4().hex[:12]
        self._number = 0
        self._blob = _packed(job)
        self._job: Future[Job] | None = None
        self._pending = list(items)  # a heap
        self._deaths: Counter[int] = Counter()
        self._running: dict[Hashable, _Node[Part]] = {}
        self._groups: dict[Hashable, _Group] = defaultdict(_Group)
        for item in items.values():
            group = self._groups[work.group(item)]
            group.away += 1
            group.unfinished += 1
        self._done: queue.SimpleQueue[Future[Part]] = queue.SimpleQueue()
        self._threads = 0
        self._looked = -LOOK_EVERY
        self._seen = time.monotonic()

    def parts(self) -> Generator[tuple[tuple[int, ...], Part], None, None]:
        """Yield the parts of the result that come to the client."""
        while self._groups:
            self._connection.revive()
            self._look()
            self._submit()
            roots: list[_Node[Part]] = []
            for future in self._wait():
                node = self._running.pop(future.key, None)
                if node is None:
                    continue
                self._groups[self._key(node)].merging -= node.level > 0 and not node.root
                if future.status == "finished":
                    self._note(node)
                    roots += [node] if node.root else []
                elif future.status == "error" and not _workers_died(future.exception()):
                    error = self._first_error(node)
                    yield from self._rescued()
                    raise error
                else:
                    self._repeat(node)
            roots += self._flush()
            for node in roots:
                try:
                    part = node.future.result(timeout=PATIENCE)
                except (MemoryError, StreamevalError):
                    raise
                except Exception:  # cancelled, or its worker has died: it is computed again
                    self._repeat(node)
                else:
                    yield node.indices, part
                    self._account(node)

    def _rescued(self) -> Iterator[tuple[tuple[int, ...], Part]]:
        """Yield what is finished and has not come to the client, as the run ends in an error."""
        nodes = [node for group in self._groups.values() for node in group.finished]
        nodes += [n for n in self._running.values() if n.level or n.future.status == "finished"]
        for node in nodes:
            try:
                part = node.future.result(timeout=RESCUE)
            except Exception:  # it is lost, then
                continue
            yield node.indices, part

    def close(self) -> None:
        """Let go of all that is still on the cluster."""
        left: list[Future[Any]] = [node.future for node in self._running.values()]
        left += [] if self._job is None else [self._job]  # an error's traceback may hold it
        with suppress(Exception):  # the cluster may be gone
            self._connection.client.cancel(left, force=True)
        self._running.clear()
        self._groups.clear()
        self._job = None

    def _look(self) -> None:
        """Look how many threads there are; give up where there have been none for too long."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        with suppress(OSError, TimeoutError):
            self._threads = sum(self._connection.client.nthreads().values())
        if self._threads:
            self._seen = now
        elif now - self._seen > PATIENCE:
            raise TaskError(
                f"there has been no worker for {PATIENCE:.0f} s, and {len(self._pending)} tasks "
                f"of {self._work.name} have not begun: start workers"
            )

    def _submit(self) -> None:
        """Send tasks, as many as are to be in flight."""
        tasks = sum(1 for node in self._running.values() if node.level == 0)
        while self._pending and tasks < max(PER_THREAD * self._threads, 1):
            index = heapq.heappop(self._pending)
            item = self._items[index]
            name = f"{self._work.name}-{item}"
            alone = self._work.merge is None
            self._send(
                _Node(
                    self._call(name, run_on_worker, self._work, self._send_job(), item, VERSION),
                    (index,),
                    root=alone,
                )
            )
            tasks += 1

    def _send_job(self) -> Future[Job]:
        """Return the job on the cluster, sent there where it is not."""
        import dask

        if self._job is None or self._job.status in ("cancelled", "lost", "error"):
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                self._job = self._call("open inputs", load_job, self._blob, VERSION)
        return self._job

    def _call(self, name: str, function: Any, *arguments: Any, urgent: bool = False) -> Any:
        # The name goes before the first dash and what follows it is shown, too. It is new each
        # time: Dask remembers of a name that workers died of it.
        self._number += 1
        return self._connection.client.submit(
            function,
            *arguments,
            key=f"{name}-{self._token}-{self._number}",
            pure=False,
            priority=int(urgent),
        )

    def _send(self, node: _Node[Part]) -> None:
        self._running[node.future.key] = node
        node.future.add_done_callback(self._done.put)

    def _wait(self) -> Iterator[Future[Part]]:
        """Yield the futures that are done by now, or within a moment."""
        with suppress(queue.Empty):
            yield self._done.get(timeout=TICK)
            while True:
                yield self._done.get_nowait()

    def _note(self, node: _Node[Part]) -> None:
        """Note that a node is finished; merge, where there are enough of its level."""
        group = self._groups[self._key(node)]
        if node.level == 0:
            group.unfinished -= 1
            self._watch.advance(self._pairs(node))
        if node.root:
            return
        group.finished.append(node)
        alike = [one for one in group.finished if one.level == node.level]
        if len(alike) >= FAN_IN:
            group.finished = [one for one in group.finished if one.level != node.level]
            group.merging += 1
            self._send(self._merge(alike))

    def _merge(self, nodes: Sequence[_Node[Part]], *, root: bool = False) -> _Node[Part]:
        indices = tuple(index for node in nodes for index in node.indices)
        futures = [node.future for node in nodes]
        name = f"merge-{self._work.name} of {len(indices)} tasks"
        future = self._call(name, merged, self._work, *futures, urgent=True)
        return _Node(future, indices, max(node.level for node in nodes) + 1, root)

    def _flush(self) -> list[_Node[Part]]:
        """Bring to the client what is merged, of groups that are due; return what is there."""
        ready: list[_Node[Part]] = []
        now = time.monotonic()
        for group in self._groups.values():
            over = not group.unfinished and not group.merging
            if group.finished and (over or now - group.flushed >= FLUSH_SECONDS):
                nodes = group.finished
                group.finished, group.flushed = [], now
                if len(nodes) == 1:
                    ready += nodes
                    continue
                while len(nodes) > FAN_IN:
                    starts = range(0, len(nodes), FAN_IN)
                    nodes = [self._merge(nodes[start : start + FAN_IN]) for start in starts]
                self._send(self._merge(nodes, root=True))
        return ready

    def _account(self, node: _Node[Part]) -> None:
        """Note that items have come to the client: a group that is complete is forgotten."""
        key = self._key(node)
        self._groups[key].away -= len(node.indices)
        if not self._groups[key].away:
            del self._groups[key]

    def _repeat(self, node: _Node[Part]) -> None:
        """Have the items of a node done again: it was cancelled, or workers died of it.

        Raises
        ------
        TaskError
            If they died of it too often.
        """
        error = node.future.exception() if node.future.status == "error" else None
        if node.level or node.future.status == "finished":  # they had been done
            self._groups[self._key(node)].unfinished += len(node.indices)
            self._watch.advance(-self._pairs(node))
        for index in node.indices:
            if error is not None:
                self._deaths[index] += 1
                if self._deaths[index] >= DEATHS:
                    raise self._killed(index, error) from error
            heapq.heappush(self._pending, index)

    def _killed(self, index: int, error: BaseException) -> TaskError:
        return TaskError(
            f"{self._work.name} of {self._items[index]}: the workers that ran it died, again and "
            f"again ({error}); most likely they were killed for memory: give each more, or lower "
            "their threads"
        )

    def _first_error(self, failed: _Node[Part]) -> BaseException:
        """Return the error of the first item that fails: all before it have been sent."""
        errors: dict[int, BaseException] = {}
        node: _Node[Part] | None = failed
        deadline = time.monotonic() + PATIENCE
        while True:
            error = node.future.exception() if node and node.future.status == "error" else None
            if node is not None and error is not None and not _workers_died(error):
                errors[min(node.indices)] = error
            first = min(errors)
            earlier = any(node.indices[0] < first for node in self._running.values())
            if not earlier or time.monotonic() > deadline:
                return errors[first]
            with suppress(queue.Empty):
                node = self._running.pop(self._done.get(timeout=TICK).key, None)
                if node is not None and node.future.status == "finished":
                    self._note(node)  # it is not to be lost

    def _key(self, node: _Node[Part]) -> Hashable:
        return self._work.group(self._items[node.indices[0]])

    def _pairs(self, node: _Node[Part]) -> int:
        return sum(self._work.pairs(self._items[index]) for index in node.indices)


def _workers_died(error: BaseException | None) -> bool:
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


VERSION = version("streameval")


def load_job(blob: bytes, client_version: str) -> Job:
    """Open the inputs of a job on a worker.

    Raises
    ------
    InputError
        If one can't be opened there.
    TaskError
        If the worker has another version of streameval.
    """
    _check_version(client_version)
    try:
        job: Job = pickle.loads(blob)
    except InputError as error:
        raise _unreadable(error) from error
    return job


def run_on_worker(work: Pass[Item, Part], job: Job, item: Item, client_version: str) -> Part:
    """Run a task on a worker: `run_task`, with one BLAS thread.

    Raises
    ------
    TaskError
        If the worker has another version of streameval.
    """
    _check_version(client_version)
    _limit_blas()
    try:
        return run_task(work, job, item, Watch(Progress()))
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            raise _unreadable(error) from error
        raise
    except MemoryError as error:
        raise MemoryError(f"{work.name} of {item}, on worker {_worker()}: {error}") from error


def _unreadable(error: InputError) -> InputError:
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


def _packed(job: Job) -> bytes:
    """Return the job as it travels."""
    check_sent(job.source)
    return pickle.dumps(job)


def check_sent(source: Features | Distances) -> None:
    """Check that no more than a little of a source lies in memory: workers open the rest.

    Raises
    ------
    InputError
        If arrays in memory are too large to be sent to every worker.
    """
    arrays = [source.query, source.gallery] if isinstance(source, Features) else [source.matrix]
    sent = sum(
        math.prod(array.shape) * array.dtype.itemsize
        for array in arrays
        if isinstance(array, MemoryArray) and not isinstance(array, LoadedArray)
    )
    if sent > SENT_BYTES:
        raise InputError(
            f"arrays in memory of {format_bytes(sent)} are given, and no more than "
            f"{format_bytes(SENT_BYTES)} are sent to every worker: save them, as .npy or .zarr, "
            "where all workers can read them, and give the path"
        )
