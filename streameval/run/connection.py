"""Connections to Dask clusters: one that is joined, one of this machine, one that is given."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError, TaskError, check_type, warn
from streameval.interruption import heed
from streameval.memory import HALF, RAISE, Memory, check_budget, default_budget, process_memory
from streameval.output import scratch_folder
from streameval.planning.plan import Workers, plural
from streameval.run.worker import VERSION
from streameval.typing import Keywords

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 300.0  # seconds without a scheduler, or without a worker
TICK = 0.25  # seconds
CONNECT = 20.0  # seconds within which a scheduler is to answer
TOLD = 5.0  # seconds that a wait lasts before a warning tells of it
ANSWER = 20.0  # seconds within which a worker is to answer
COMPARED = ("streameval", "numpy")  # packages whose versions are compared with those of workers
SHARE = 0.7  # of a worker's memory that is planned with: Dask spills, pauses and kills above
WORKER_BYTES = 200 << 20  # at least those of a worker's process before it has any work
# A cluster closes a worker that starts again, and has not come back by then, for good.
LASTING = {"distributed.deploy.lost-worker-timeout": "1 day"}
LEAN = {"distributed.admin.low-level-log-length": 10}  # messages that Dask keeps, for its debugging


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

    @property
    def place(self) -> str:
        """Where the scheduler is, as messages tell."""
        return self.address or str(self.client)

    def revive(self) -> None:
        """Wait until the client is connected; make a new one where it has given up."""
        wait = Wait(f"the scheduler {self.place}, which is gone", PATIENCE)
        while self.client.status != "running":
            if wait.is_over() or (self.client.status == "closed" and not self.address):
                raise TaskError(
                    f"the scheduler {self.place} is gone, and has not come back within "
                    f"{PATIENCE:.0f} s: start it again"
                )
            if self.client.status == "closed" and self.address:
                with suppress(OSError):
                    self.client = _join(self.address, min(TOLD, CONNECT))
            time.sleep(TICK)

    def workers(self, memory: int | None) -> Workers:
        """Return the workers of the cluster, once there is one.

        Parameters
        ----------
        memory : int, optional
            Bytes that each may take beyond what it holds; by default half of what is free on its
            machine, shared with the other workers there, 8 GB at most. In either case no more
            than the cluster gives it, and no more than half of the address space that it has left.

        Raises
        ------
        BudgetError
            If that is less than 200 MB.
        TaskError
            If no worker answers, or one lacks streameval or has another version of it.

        Warns
        -----
        StreamevalWarning
            If some workers do not answer in time, and are left out; if one has another NumPy.
        """
        found = self._found()
        states = self._states(found)
        present = {address: found[address] for address in states}
        on_host = Counter(one["host"] for one in present.values())
        budgets = []
        for address, one in present.items():
            state, share = states[address], on_host[one["host"]]
            budgets.append(default_budget(state.free, share) if memory is None else memory)
            if state.most < math.inf:
                most = check_budget(int(state.most), f"{HALF} of the worker {address}", RAISE)
                budgets.append(most)
            if one["memory_limit"]:
                left = round(SHARE * one["memory_limit"]) - state.held
                budgets.append(check_budget(max(left, 0), f" for the worker {address}"))
        return Workers(
            count=len(present),
            threads=max(one["nthreads"] for one in present.values()),
            memory=min(budgets),
            libraries=max(states[address].libraries for address in present),
        )

    def _found(self) -> Mapping[str, Any]:
        """Return what the scheduler tells of its workers, by address; wait for the first."""
        wait = Wait(f"workers: the scheduler {self.place} has none", PATIENCE)
        while not wait.is_over():
            self.revive()
            with suppress(OSError):  # the scheduler has just gone
                # Of all: some versions of distributed tell of five where no number is given.
                found: Mapping[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
                if found:
                    return found
            time.sleep(TICK)
        raise TaskError(
            f"the scheduler ({self.place}) has had no worker for {PATIENCE:.0f} s: start workers"
        )

    def _states(self, found: Mapping[str, Any]) -> Mapping[str, Memory]:
        """Return the memory of the workers that answer, whose versions must be those here."""
        answering: Iterable[str] = found
        for package in COMPARED:
            versions = self.ask(version, answering, package)
            for address, theirs in versions.items():
                _compare(address, package, theirs)
            answering = versions
        states = self.ask(process_memory, answering)
        for address, state in states.items():
            if isinstance(state, Exception):
                raise TaskError(
                    f"worker {address} can't load streameval ({type(state).__name__}: {state}): "
                    f"install version {VERSION} there, or close it"
                )
        if not states:
            raise TaskError(
                f"no worker of the scheduler ({self.place}) says what memory it has within "
                f"{ANSWER:.0f} s: start workers"
            )
        if silent := [address for address in found if address not in states]:
            warn(
                f"no answer within {ANSWER:.0f} s from {plural(len(silent), 'worker')}: "
                f"{', '.join(silent)}. The plan leaves them out, but Dask may send them tasks: "
                "resume or close them"
            )
        return states

    def ask(
        self, function: Callable[..., object], addresses: Iterable[str], *arguments: Any
    ) -> dict[str, Any]:
        """Return what a function returns, or raises, on each worker that answers in time.

        Dask itself waits for minutes for a worker that is stopped.
        """
        tasks: dict[str, asyncio.Future[Any]] = {}

        async def answer(address: str) -> Any:
            run: Any = self.client.run(function, *arguments, workers=[address], on_error="return")
            return (await asyncio.wait_for(run, ANSWER))[address]

        async def begun() -> list[str]:
            """Return the workers that have not answered soon."""
            tasks.update({at: asyncio.ensure_future(answer(at)) for at in addresses})
            if tasks:
                await asyncio.wait(tasks.values(), timeout=TOLD)
            return [at for at, task in tasks.items() if not task.done()]

        async def answers() -> list[Any]:
            return await asyncio.gather(*tasks.values(), return_exceptions=True)

        if late := self.client.sync(begun):
            warn(f"waiting for an answer of {', '.join(late)}, at most {ANSWER:.0f} s")
        told = zip(tasks, self.client.sync(answers), strict=True)
        return {at: one for at, one in told if not isinstance(one, OSError)}  # gone, or too late


class Wait:
    """A wait of limited time, of which a warning tells once it has lasted.

    Parameters
    ----------
    reason : str
        What is waited for.
    limit : float
        Seconds.
    """

    def __init__(self, reason: str, limit: float) -> None:
        self._reason, self._limit = reason, limit
        self._begun, self._told = time.monotonic(), False

    def is_over(self) -> bool:
        """Return whether the time is over; warn where it takes long."""
        heed()
        lasted = time.monotonic() - self._begun
        if lasted >= TOLD and not self._told:
            self._told = True
            warn(f"waiting for {self._reason}, at most {self._limit:.0f} s")
        return lasted >= self._limit


def _compare(address: str, package: str, theirs: str | Exception) -> None:
    """Check that a worker has a package in the version of this process."""
    ours = version(package)
    if theirs == ours:
        return
    lacks = isinstance(theirs, Exception)
    has = f"has no {package}" if lacks else f"has {package} {theirs}"
    told = f"worker {address} {has}, the client {ours}: install the same on both"
    if lacks or package == "streameval":
        raise TaskError(told)
    warn(told)


def connect(address: str) -> Connection:
    """Connect to the scheduler at an address, with the TLS certificates of Dask's configuration."""
    from distributed import Security
    from distributed.comm.addressing import resolve_address

    try:
        resolve_address(address)  # a client that is made in vain is long in going
        if address.startswith("tls://") and not Security().get_connection_args("client").get(
            "ssl_context"
        ):
            raise OptionError(
                f"{address} is encrypted, and Dask's configuration names no certificates: set "
                "distributed.comm.tls.ca-file, .client.cert and .client.key, or in the environment "
                "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, __CLIENT__CERT and __CLIENT__KEY"
            )
        try:
            return Connection(_join(address, min(TOLD, CONNECT)), address)
        except OSError:
            warn(f"waiting for a scheduler at {address}, at most {CONNECT:.0f} s")
        return Connection(_join(address, max(CONNECT - TOLD, 0)), address)
    except (OSError, ValueError) as error:
        raise TaskError(
            f"no scheduler answers at {address} ({type(error).__name__}: {error}): start one with "
            "dask scheduler, and give its address, tcp://HOST:PORT"
        ) from error


def _join(address: str, timeout: float) -> Client:
    """Return a new client of a scheduler that answers within so many seconds."""
    import dask
    from distributed import Client

    with dask.config.set(LEAN):
        return Client(address, timeout=timeout, set_as_default=False)


@contextmanager
def open_cluster(given: Keywords, memory: int) -> Iterator[Connection | None]:
    """Open the cluster that is asked for, as long as the context lasts; None where none is.

    Parameters
    ----------
    given : mapping of str to object
        ``workers``: processes to start on this machine; ``scheduler``: the address of one to join;
        ``client``: a connected `distributed.Client`; ``threads`` of each process that is started,
        one by default.
    memory : int
        Bytes that each process that is started may take beyond what it holds then.
    """
    asked = [name for name in ("workers", "scheduler", "client") if name in given]
    if len(asked) > 1:
        raise OptionError(f"got {' and '.join(asked)}: choose one of them")
    if not asked:
        yield None
        return
    kind, value = asked[0], given[asked[0]]
    if kind != "workers" and "threads" in given:
        raise OptionError(
            f"got {kind} and threads {given['threads']}: workers that run already have threads of "
            "their own; leave threads out"
        )
    if kind == "workers":
        with local_cluster(value, given.get("threads", 1), memory) as connection:
            yield connection
    elif kind == "scheduler":
        from distributed.utils import silence_logging_cmgr

        # What goes wrong with the scheduler is told in an error of ours, once.
        with silence_logging_cmgr(logging.CRITICAL):
            connection = connect(value)
            try:
                yield connection
            finally:
                with suppress(OSError):  # the scheduler may be gone
                    connection.client.close()
    else:
        _check_client(value)
        yield Connection(value)


def _check_client(client: Any) -> None:
    """Check that a client is connected, and waits for answers."""
    from distributed import Client

    needed = "a distributed.Client is needed: client=Client(ADDRESS)"
    check_type("client", client, Client, needed)
    if client.status == "closed":
        raise OptionError(f"client {client} is closed; connect another: client=Client(ADDRESS)")
    if client.asynchronous:
        raise OptionError(
            f"client {client} is asynchronous; one that waits for answers is needed: "
            "client=Client(ADDRESS), and evaluate in a thread of its own"
        )


@contextmanager
def local_cluster(workers: int, threads: int, memory: int) -> Iterator[Connection]:
    """Run a cluster of processes on this machine while the context lasts.

    Parameters
    ----------
    workers : int
        Processes.
    threads : int
        Of each.
    memory : int
        Bytes that each may take beyond what it holds when it is started; one that takes much more
        is killed, and started again.
    """
    import dask
    from distributed import Client, LocalCluster

    # Spilling helps nothing where next to nothing is kept; --memory is what a worker plans with.
    spilling = {f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause")}
    with (
        scratch_folder(dask.config.get("temporary-directory", None)) as scratch,
        dask.config.set({**spilling, **LASTING, **LEAN, "temporary-directory": scratch}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=True,
            memory_limit=round((memory + WORKER_BYTES) / SHARE),
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield Connection(client)
