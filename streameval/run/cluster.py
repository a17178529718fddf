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
import queue
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic

from streameval.errors import StreamevalError, TaskError
from streameval.interruption import heed
from streameval.planning.plan import FAN_IN
from streameval.run.connection import PATIENCE, TICK, Connection, Wait
from streameval.run.executor import Item, Part, Parts, Pass
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.worker import VERSION, SentJob, keep_job, merge_on_worker, run_on_worker

if TYPE_CHECKING:
    from distributed import Future

FLUSH_SECONDS = 4.0  # after which what is merged comes to the client
PER_THREAD = 3  # tasks in flight: one that runs, and some that wait for their turn
DEATHS = 2  # times that Dask may give up on a task, after several workers each
MERGE_DEATHS = 6  # the same of a sum: more often it dies with a worker that a task has killed
THREADS_SECONDS = 2.0  # between counts of the threads of all workers
FETCH = 30.0  # seconds in which a finished part is to come, else it is computed again
RESCUE = 10.0  # seconds in which a finished part is to come, where the run ends in an error


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
    ) -> Parts[Part]:
        """Yield what has been merged on the workers, every few seconds; see `Executor`."""
        with closing(_Run(self.connection, work, job, items, watch)) as run:
            yield from run.parts()


@dataclass
class _Node:
    """A future: of one task, or of the sum of some.

    Attributes
    ----------
    future : Future
    indices : tuple of int
        Of the items in it.
    group : hashable
        Of its items.
    is_sum : bool
        Whether it merges others.
    root : bool
        Whether it comes to the client.
    """

    future: Future[Any]
    indices: tuple[int, ...]
    group: Hashable
    is_sum: bool
    root: bool


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
        self._work, self._items, self._watch = work, items, watch
        self._sent = SentJob.of(job)
        self._job: Future[SentJob] | None = None
        self._pending = list(items)  # a heap
        self._left = set(items)  # whose result has not come to the client
        self._running: dict[Hashable, _Node] = {}
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._finished: dict[Hashable, list[_Node]] = defaultdict(list)  # and in no sum yet
        self._roots: list[_Node] = []  # finished, too
        self._busy = Counter(map(work.group, items.values()))  # nodes that wait, or run
        self._flushed = time.monotonic()
        self._deaths: Counter[tuple[bool, int]] = Counter()
        self._errors: dict[int, BaseException] = {}
        self._failed = 0.0  # when the first error came
        self._threads = 0
        self._counted = -THREADS_SECONDS  # when the threads were counted
        self._idle: Wait | None = None

    def parts(self) -> Parts[Part]:
        """Yield the parts of the result that come to the client."""
        while self._left and not self._settled():
            heed()
            self._connection.revive()
            self._count_threads()
            self._submit()
            for node in self._completed():
                self._busy[node.group] -= 1
                if node.future.status == "finished":
                    self._finish(node)
                elif (error := _task_error(node.future)) is not None:
                    self._failed = self._failed or time.monotonic()
                    self._errors[min(node.indices)] = error
                    node.future.release()
                else:
                    self._repeat(node, was_done=node.is_sum)
            for node in self._ready():
                try:
                    part = node.future.result(timeout=FETCH)
                except (MemoryError, StreamevalError):
                    raise
                except Exception:  # cancelled, or its worker has died: it is computed again
                    self._repeat(node, was_done=True)
                else:
                    yield node.indices, part
                    self._left.difference_update(node.indices)
        if self._errors:
            yield from self._rescued()
            raise self._errors[min(self._errors)]

    def _rescued(self) -> Parts[Part]:
        """Yield what is finished and has not come to the client, as the run ends in an error."""
        running = [n for n in self._running.values() if n.is_sum or n.future.status == "finished"]
        for node in chain(self._roots, *self._finished.values(), running):
            try:
                part = node.future.result(timeout=RESCUE)
            except Exception:  # it is lost, then
                continue
            yield node.indices, part

    def close(self) -> None:
        """Release all futures that are still on the cluster."""
        left: list[Future[Any]] = [node.future for node in self._running.values()]
        left += [] if self._job is None else [self._job]
        for future in left:  # an error's traceback may hold them
            with suppress(Exception):  # the cluster may be gone
                future.release()
        self._running.clear()
        self._finished.clear()
        self._roots.clear()
        self._job = None

    def _count_threads(self) -> None:
        """Update the number of threads; raise TaskError if there has been none for too long."""
        now = time.monotonic()
        if now - self._counted < THREADS_SECONDS:
            return
        self._counted = now
        with suppress(OSError, TimeoutError):
            self._threads = sum(self._connection.client.nthreads().values())
        if self._threads:
            self._idle = None
        elif self._idle is None:
            self._idle = Wait(f"workers to go on with {self._work.name}", PATIENCE)
        elif self._idle.is_over():
            raise TaskError(
                f"there has been no worker for {PATIENCE:.0f} s, and {len(self._pending)} tasks "
                f"of {self._work.name} have not begun: start workers"
            )

    def _submit(self) -> None:
        """Send tasks, as many as are to be in flight; none once one has failed."""
        tasks = sum(not node.is_sum for node in self._running.values())
        most = 0 if self._errors else max(PER_THREAD * self._threads, 1)
        for _ in range(min(most - tasks, len(self._pending))):
            index = heapq.heappop(self._pending)
            item, work = self._items[index], self._work
            call = self._call(f"{work.name}-{item}", run_on_worker, work, self._send_job(), item)
            self._start(_Node(call, (index,), work.group(item), False, work.merge is None))

    def _send_job(self) -> Future[SentJob]:
        """Return the job on the cluster, sent there where it is not."""
        import dask

        if self._job is None or self._job.status in ("cancelled", "lost", "error"):
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                self._job = self._call("open inputs", keep_job, self._sent)
        return self._job

    def _call(
        self, name: str, function: Callable[..., Any], *arguments: Any, urgent: bool = False
    ) -> Any:
        # The name goes before the first dash and what follows it is shown, too. It is new each
        # time: Dask remembers of a name that workers died of it.
        return self._connection.client.submit(
            function,
            VERSION,
            *arguments,
            key=f"{name}-{uuid.uuid4().hex}",
            pure=False,
            priority=int(urgent),
        )

    def _start(self, node: _Node) -> None:
        """Wait for a node; a task was busy from the beginning."""
        self._busy[node.group] += node.is_sum
        self._running[node.future.key] = node
        node.future.add_done_callback(self._done.put)

    def _completed(self) -> Iterator[_Node]:
        """Yield the nodes that are done by now, or within a moment."""
        with suppress(queue.Empty):
            future = self._done.get(timeout=TICK)
            while True:
                if (node := self._running.pop(future.key, None)) is not None:
                    yield node
                future = self._done.get_nowait()

    def _finish(self, node: _Node) -> None:
        """Keep a finished node; merge those of its group once there are enough."""
        if not node.is_sum:
            self._watch.advance(self._pairs(node))
        finished = self._roots if node.root else self._finished[node.group]
        finished.append(node)
        if not node.root and len(finished) == FAN_IN:
            self._merge(self._finished.pop(node.group))

    def _merge(self, nodes: Sequence[_Node], *, root: bool = False) -> None:
        """Have nodes of one group merged on a worker."""
        indices = tuple(index for node in nodes for index in node.indices)
        futures = [node.future for node in nodes]
        name = f"merge-{self._work.name} of {len(indices)} tasks"
        call = self._call(name, merge_on_worker, self._work, *futures, urgent=True)
        self._start(_Node(call, indices, nodes[0].group, True, root))

    def _ready(self) -> list[_Node]:
        """Return the roots that are finished; have what is due merged to further ones."""
        due = time.monotonic() - self._flushed >= FLUSH_SECONDS
        if due:
            self._flushed = time.monotonic()
        for group, nodes in list(self._finished.items()):
            if due or not self._busy[group]:
                del self._finished[group]
                if len(nodes) == 1:
                    self._roots += nodes
                else:
                    self._merge(nodes, root=True)
        ready, self._roots = self._roots, []
        return ready

    def _settled(self) -> bool:
        """Whether the first error is known: no earlier task runs, or one has run for too long."""
        if not self._errors:
            return False
        first, late = min(self._errors), time.monotonic() > self._failed + PATIENCE
        return late or all(node.indices[0] >= first for node in self._running.values())

    def _repeat(self, node: _Node, *, was_done: bool) -> None:
        """Have the items of a node done again: it was cancelled or lost, or workers died of it."""
        error = node.future.exception() if node.future.status == "error" else None
        if was_done:  # which progress has been told
            self._watch.advance(-self._pairs(node))
        self._busy[node.group] += len(node.indices)
        most = MERGE_DEATHS if node.is_sum else DEATHS
        for index in node.indices:
            if error is not None:
                self._deaths[node.is_sum, index] += 1
                if self._deaths[node.is_sum, index] >= most:
                    raise self._killed(node, error) from error
            heapq.heappush(self._pending, index)

    def _killed(self, node: _Node, error: BaseException) -> TaskError:
        what = f"{self._work.name} of {self._items[node.indices[0]]}"
        if node.is_sum:
            what = f"merging of {len(node.indices)} results, the first of {what}"
        return TaskError(
            f"{what}: the workers that ran it died, again and again ({error}); most likely they "
            "were killed for memory: give each more, or lower their threads"
        )

    def _pairs(self, node: _Node) -> int:
        return sum(self._items[index].pairs for index in node.indices)


def _task_error(future: Future[Any]) -> BaseException | None:
    """Return the error that a task raised; None where its workers died, or it was cancelled."""
    from distributed import KilledWorker

    error = future.exception() if future.status == "error" else None
    return None if isinstance(error, KilledWorker) else error
