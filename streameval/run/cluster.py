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
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from streameval.errors import StreamevalError, TaskError
from streameval.planning import FAN_IN
from streameval.run.connection import PATIENCE, TICK, Connection
from streameval.run.executor import Item, Part, Pass, merged
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.worker import VERSION, load_job, packed, run_on_worker

if TYPE_CHECKING:
    from distributed import Future

FLUSH_SECONDS = 4.0  # after which what is merged comes to the client
PER_THREAD = 3  # tasks in flight: one that runs, and some that wait for their turn
DEATHS = 2  # times that Dask may give up on a task, after several workers each
MERGE_DEATHS = 6  # the same of a sum: more often it dies with a worker that a task has killed
LOOK_EVERY = 2.0  # seconds between looks at how many workers there are
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
        self._blob = packed(job)
        self._job: Future[Job] | None = None
        self._pending = list(items)  # a heap
        self._deaths: Counter[int] = Counter()
        self._merge_deaths: Counter[int] = Counter()
        self._running: dict[Hashable, _Node[Part]] = {}
        self._groups: dict[Hashable, _Group] = defaultdict(_Group)
        for item in items.values():
            group = self._groups[work.group(item)]
            group.away += 1
            group.unfinished += 1
        self._done: queue.SimpleQueue[Future[Part]] = queue.SimpleQueue()
        self._threads = 0
        self._looked = -LOOK_EVERY
        self._none_since: float | None = None

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
                    error = self._first_error(node, roots)
                    yield from self._rescued(roots)
                    raise error
                else:
                    self._repeat(node)
            roots += self._flush()
            for node in roots:
                try:
                    part = node.future.result(timeout=FETCH)
                except (MemoryError, StreamevalError):
                    raise
                except Exception:  # cancelled, or its worker has died: it is computed again
                    self._repeat(node)
                else:
                    yield node.indices, part
                    self._account(node)

    def _rescued(self, roots: Sequence[_Node[Part]]) -> Iterator[tuple[tuple[int, ...], Part]]:
        """Yield what is finished and has not come to the client, as the run ends in an error."""
        nodes = [*roots, *(node for group in self._groups.values() for node in group.finished)]
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
        left += [] if self._job is None else [self._job]
        for future in left:  # an error's traceback may hold them
            with suppress(Exception):  # the cluster may be gone
                future.release()
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
            self._none_since = None
        elif self._none_since is None:
            self._none_since = now
        elif now - self._none_since > PATIENCE:
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
        deaths, most = (self._merge_deaths, MERGE_DEATHS) if node.level else (self._deaths, DEATHS)
        for index in node.indices:
            if error is not None:
                deaths[index] += 1
                if deaths[index] >= most:
                    raise self._killed(node, error) from error
            heapq.heappush(self._pending, index)

    def _killed(self, node: _Node[Part], error: BaseException) -> TaskError:
        what = f"{self._work.name} of {self._items[node.indices[0]]}"
        if node.level:
            what = f"merging of {len(node.indices)} results, the first of {what}"
        return TaskError(
            f"{what}: the workers that ran it died, again and again ({error}); most likely they "
            "were killed for memory: give each more, or lower their threads"
        )

    def _first_error(self, failed: _Node[Part], roots: list[_Node[Part]]) -> BaseException:
        """Return the error of the first item that fails: all before it have been sent.

        Roots that are finished meanwhile are added to `roots`.
        """
        errors: dict[int, BaseException] = {}
        node: _Node[Part] | None = failed
        deadline = time.monotonic() + PATIENCE
        while True:
            error = node.future.exception() if node and node.future.status == "error" else None
            if node is not None and error is not None and not _workers_died(error):
                errors[min(node.indices)] = error
                node.future.release()
            first = min(errors)
            earlier = any(node.indices[0] < first for node in self._running.values())
            if not earlier or time.monotonic() > deadline:
                return errors[first]
            with suppress(queue.Empty):
                node = self._running.pop(self._done.get(timeout=TICK).key, None)
                if node is not None and node.future.status == "finished":
                    self._note(node)  # it is not to be lost
                    roots += [node] if node.root else []

    def _key(self, node: _Node[Part]) -> Hashable:
        return self._work.group(self._items[node.indices[0]])

    def _pairs(self, node: _Node[Part]) -> int:
        return sum(self._work.pairs(self._items[index]) for index in node.indices)


def _workers_died(error: BaseException | None) -> bool:
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)
