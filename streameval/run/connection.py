"""Connections to Dask clusters: one that is joined, one of this machine, one that is given."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError, TaskError, check_type, warn
from streameval.memory import Memory, check_budget, default_budget, process_memory
from streameval.output import scratch_folder
from streameval.planning.plan import Workers, plural
from streameval.typing import Keywords

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 300.0  # seconds without a scheduler, or without a worker
TICK = 0.25  # seconds
CONNECT = 20.0  # seconds within which a scheduler is to answer
ANSWER = 20.0  # seconds within which a worker is to answer
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

    def revive(self) -> None:
        """Wait until the client is connected; make a new one where it has given up."""
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
        """Return the workers of the cluster, once there is one.

        Parameters
        ----------
        memory : int, optional
            Bytes that each may take beyond what it holds; by default half of what is free on its
            machine, shared with the other workers there, 8 GB at most. In either case no more
            than the cluster gives it.

        Raises
        ------
        BudgetError
            If that is less than 200 MB.
        TaskError
            If no worker answers.

        Warns
        -----
        StreamevalWarning
            If some workers do not answer in time; they are left out.
        """
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise TaskError(
                f"the scheduler ({self.client}) has had no worker for "
                f"{PATIENCE:.0f} s: start workers"
            ) from error
        # Of all: some versions of distributed tell of five where no number is given.
        found = self.client.scheduler_info(n_workers=-1)["workers"]
        answers = self.ask(process_memory, found)
        states = {at: one for at, one in answers.items() if isinstance(one, Memory)}
        present = {address: found[address] for address in states}
        if not present:
            reason = "".join(f" ({type(one).__name__}: {one})" for one in [*answers.values()][:1])
            reason = reason or f" within {ANSWER:.0f} s"
            raise TaskError(
                f"no worker of the scheduler ({self.client}) says what memory it has{reason}: "
                "start workers that have this version of streameval"
            )
        if silent := [address for address in found if address not in answers]:
            warn(
                f"no answer within {ANSWER:.0f} s from {plural(len(silent), 'worker')}: "
                f"{', '.join(silent)}. The plan leaves them out, but Dask may send them tasks: "
                "resume or close them"
            )
        on_host = Counter(one["host"] for one in present.values())
        budgets = []
        for address, one in present.items():
            state, share = states[address], on_host[one["host"]]
            budgets.append(default_budget(state.free, share) if memory is None else memory)
            if one["memory_limit"]:
                left = round(SHARE * one["memory_limit"]) - state.held
                budgets.append(check_budget(max(left, 0), f" for the worker {address}"))
        return Workers(
            count=len(present),
            threads=max(one["nthreads"] for one in present.values()),
            memory=min(budgets),
            libraries=max(states[address].libraries for address in present),
        )

    def ask(self, function: Callable[[], object], addresses: Iterable[str]) -> dict[str, Any]:
        """Return what a function returns, or raises, on each worker that answers in time.

        Dask itself waits for minutes for a worker that is stopped.
        """
        asked = [*addresses]

        async def answer(address: str) -> dict[str, Any]:
            run: Any = self.client.run(function, workers=[address], on_error="return")
            told: dict[str, Any] = await asyncio.wait_for(run, ANSWER)
            return told

        async def answers() -> list[dict[str, Any] | BaseException]:
            return await asyncio.gather(*map(answer, asked), return_exceptions=True)

        found: dict[str, Any] = {}
        for address, told in zip(asked, self.client.sync(answers), strict=True):
            if not isinstance(told, TimeoutError):
                found |= told if isinstance(told, dict) else {address: told}
        return found


def connect(address: str) -> Connection:
    """Connect to the scheduler at an address, with the TLS certificates of Dask's configuration."""
    import dask
    from distributed import Client, Security
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
        with dask.config.set(LEAN):
            return Connection(Client(address, timeout=CONNECT, set_as_default=False), address)
    except (OSError, ValueError) as error:
        raise TaskError(
            f"no scheduler answers at {address} ({type(error).__name__}: {error}): start one with "
            "dask scheduler, and give its address, tcp://HOST:PORT"
        ) from error


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
        connection = connect(value)
        try:
            yield connection
        finally:
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
