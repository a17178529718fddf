"""Workers that die, come late, fail or are killed for memory; schedulers that go: the same bits."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import faults
import pytest
from clusters import cluster, prepared, write_inputs
from distributed import LocalCluster
from servers import free_port
from support import runs
from support.run import (
    ClusterExecutor,
    Connection,
    cluster_module,
    connect,
    connection_module,
    local_cluster,
)
from support.run import passes_module as passes
from waiting import PATIENCE, wait_until

from streameval import Evaluation, MetricOptions, Progress, TaskError

OPTIONS = MetricOptions()
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.filterwarnings("ignore:waiting for:streameval.StreamevalWarning")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_inputs(tmp_path)


class Counted(Progress):
    """What a person would be shown."""

    def __init__(self) -> None:
        self.done = self.pairs = 0

    def start(self, label: str, pairs: int) -> None:
        self.done, self.pairs = 0, pairs

    def advance(self, pairs: int) -> None:
        self.done += pairs


def evaluate(
    folder: Path, connection: Connection | None, compute: Callable[..., Any]
) -> Evaluation:
    """Evaluate with another function in place of counting; check what progress comes to."""
    progress = Counted()
    executor = None if connection is None else ClusterExecutor(connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "COUNT", replace(passes.COUNT, compute=compute))
        found = runs.run(prepared(folder, "features"), OPTIONS, progress, executor=executor)
    assert progress.done == progress.pairs > 0
    return found


def check(folder: Path, found: Evaluation) -> None:
    expected = runs.run(prepared(folder, "features"), OPTIONS)
    assert found.statistics.equals(expected.statistics)


@contextmanager
def beside(act: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run something beside the block, until it ends."""
    over, errors = threading.Event(), []

    def run() -> None:
        try:
            act(over)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert errors == []


def kill(running: LocalCluster, number: int) -> bool:
    """Kill the process of a worker that has started; its nanny starts another.

    A nanny whose worker dies while it starts gives up, and in the end no worker would be left.
    """
    nanny = list(running.workers.values())[number % len(running.workers)]
    started = nanny.worker_address in running.scheduler.workers
    if started:
        os.kill(nanny.pid, signal.SIGKILL)
    return started


@pytest.mark.slow
def test_a_worker_killed_in_its_task(folder: Path) -> None:
    with cluster(2) as (_, client):
        check(folder, evaluate(folder, Connection(client), faults.dies_once))
    assert (folder / "attempts-50-600").stat().st_size >= 2


@pytest.mark.slow
def test_workers_lost_with_all_that_they_have_merged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "FLUSH_SECONDS", 3600.0)
    merged: list[str] = []
    finish = cluster_module._Run._finish

    def noted(run: Any, node: Any) -> None:
        finish(run, node)
        if node.is_sum:
            merged.append(node.future.key)

    monkeypatch.setattr(cluster_module._Run, "_finish", noted)
    killed: list[int] = []
    with cluster(2) as (running, client):

        def lose_both(over: threading.Event) -> None:
            for number, enough in enumerate((2, 6)):
                while len(merged) < enough and not over.wait(0.02):
                    pass
                killed.append(len(merged))
                assert kill(running, number)
            faults.open_gate(folder)

        with beside(lose_both):
            found = evaluate(folder, Connection(client), faults.gated)
    assert killed[0] >= 2
    assert killed[1] >= 6
    check(folder, found)


@pytest.mark.slow
def test_workers_that_come_late(folder: Path) -> None:
    with cluster(0) as (running, client):

        def come(over: threading.Event) -> None:
            for workers in (1, 3):
                over.wait(1.0)
                running.scale(workers)
            wait_until(lambda: len(running.scheduler.workers) == 3)
            faults.open_gate(folder)

        with beside(come):
            found = evaluate(folder, Connection(client), faults.gated)
        used = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.workers))
    assert used == 3
    check(folder, found)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_task_that_fails_twice_and_then_works(folder: Path, workers: int) -> None:
    if workers:
        with cluster(workers) as (_, client):
            found = evaluate(folder, Connection(client), faults.fails_twice)
    else:
        found = evaluate(folder, None, faults.fails_twice)
    assert (folder / "attempts-50-600").stat().st_size == 3
    check(folder, found)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_task_that_fails_always_is_named_with_its_cause(folder: Path, workers: int) -> None:
    message = re.escape(
        "counting of queries 50:100 × gallery 600:660 failed 3 times "
        "(RuntimeError: the cable is cut)"
    )
    with ExitStack() as stack:
        client = stack.enter_context(cluster(workers))[1] if workers else None
        connection = None if client is None else Connection(client)
        with pytest.raises(TaskError, match=message):
            evaluate(folder, connection, faults.fails_always)
    assert (folder / "attempts-50-600").stat().st_size == 3


@pytest.mark.slow
def test_a_worker_killed_for_memory_once(folder: Path) -> None:
    with cluster(2, memory_limit="700MB") as (_, client):
        check(folder, evaluate(folder, Connection(client), faults.eats_memory_once))


@pytest.mark.slow
def test_workers_killed_for_memory_always(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "DEATHS", 1)
    with (
        cluster(2, memory_limit="700MB") as (_, client),
        pytest.raises(
            TaskError,
            match=r"counting of queries 50:100 × gallery 600:660: .*died.*for memory: give",
        ),
    ):
        evaluate(folder, Connection(client), faults.eats_memory)
    assert (folder / "attempts-50-600").stat().st_size == 4  # allowed-failures of Dask, 3, and one


@pytest.mark.slow
def test_a_sum_that_workers_die_of_is_not_blamed_on_its_tasks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "FLUSH_SECONDS", 3600.0)  # or this process merges, and dies
    monkeypatch.setattr(cluster_module, "MERGE_DEATHS", 1)
    monkeypatch.setattr(passes, "COUNT", replace(passes.COUNT, merge=faults.dies_merging))
    with (
        cluster(2) as (_, client),
        pytest.raises(TaskError, match=r"^merging of \d+ results, the first of counting of .*died"),
    ):
        runs.run(
            prepared(folder, "features"), OPTIONS, executor=ClusterExecutor(Connection(client))
        )


@pytest.mark.slow
def test_workers_killed_at_random_all_the_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "FLUSH_SECONDS", 1.0)
    random.seed(0)
    killed: list[float] = []
    with cluster(3) as (running, client):

        def kill_some(over: threading.Event) -> None:
            while not over.wait(random.uniform(0.5, 1.5)):
                # On a slow machine they would be killed faster than they start.
                least = 2 if len(killed) < 3 else 3
                if len(running.scheduler.workers) >= least and kill(running, random.randrange(3)):
                    killed.append(time.monotonic())
                if len(killed) == 3:
                    faults.open_gate(folder)

        with beside(kill_some):
            found = evaluate(folder, Connection(client), faults.gated)
    assert len(killed) >= 3
    check(folder, found)


@pytest.mark.slow
def test_a_worker_that_is_slow_to_come_back_is_waited_for() -> None:
    """Dask would close it for good."""
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 ms"}),
        local_cluster(1, 1, 1 << 30) as connection,
    ):
        before = connection.client.run(os.getpid)
        (pid,) = before.values()
        os.kill(pid, signal.SIGKILL)
        after = before
        while pid in after.values() or not after:
            after = connection.client.run(os.getpid, on_error="ignore")


# A scheduler of its own.


@contextmanager
def processes(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Yield what starts processes of Dask; all of them are ended with their groups."""
    started: list[subprocess.Popen[bytes]] = []
    paths = filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with (folder / f"log{len(started)}").open("wb") as log:
            process = subprocess.Popen(
                [str(BIN / "dask"), *arguments],
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def scheduler_options(port: int) -> list[str]:
    return [
        "scheduler",
        *("--host", "127.0.0.1", "--port", str(port), "--dashboard-address", "127.0.0.1:0"),
    ]


def worker_options(port: int) -> list[str]:
    return [
        *("worker", f"tcp://127.0.0.1:{port}", "--host", "127.0.0.1", "--nthreads", "1"),
        *("--nworkers", "2", "--memory-limit", "1GB", "--dashboard-address", "127.0.0.1:0"),
    ]


def connected(address: str) -> Connection:
    """Connect as soon as the scheduler answers."""
    while True:
        with suppress(TaskError):
            return connect(address)


@pytest.mark.slow
def test_the_scheduler_is_killed_and_started_again(folder: Path) -> None:
    port = free_port()
    with processes(folder) as start:
        scheduler, workers = start(*scheduler_options(port)), start(*worker_options(port))
        connection = connected(f"tcp://127.0.0.1:{port}")
        connection.client.wait_for_workers(2, timeout=PATIENCE)

        def restart(over: threading.Event) -> None:
            while len(list(folder.glob("attempts-*"))) < 40 and not over.wait(0.02):
                pass
            assert not over.is_set()
            end(scheduler)
            end(workers)
            time.sleep(1)
            start(*scheduler_options(port))
            start(*worker_options(port))
            faults.open_gate(folder)

        with beside(restart):
            found = evaluate(folder, connection, faults.gated)
        connection.client.close()
    check(folder, found)


@pytest.mark.slow
def test_a_scheduler_that_does_not_come_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "PATIENCE", 3.0)
    port = free_port()
    with processes(folder) as start:
        scheduler, workers = start(*scheduler_options(port)), start(*worker_options(port))
        connection = connected(f"tcp://127.0.0.1:{port}")
        connection.client.wait_for_workers(2, timeout=PATIENCE)

        def stop(over: threading.Event) -> None:
            while len(list(folder.glob("attempts-*"))) < 20 and not over.wait(0.02):
                pass
            end(workers)
            end(scheduler)

        with (
            beside(stop),
            pytest.raises(TaskError, match=rf"the scheduler tcp://127\.0\.0\.1:{port} is gone"),
        ):
            evaluate(folder, connection, faults.gated)
        connection.client.close()


IMPATIENT = """
from streameval.run import cluster, connection
connection.TOLD, connection.PATIENCE, cluster.PATIENCE = 0.5, 3.0, 3.0
from streameval.cli import main
main()
"""
BARE_WORKER = """
import sys
sys.meta_path.insert(0, type("Absent", (), {"find_spec": staticmethod(absent)}))
from distributed.cli.dask_worker import main
main()
"""
ABSENT = """
def absent(name, *_):
    if name.partition(".")[0] == "streameval":
        raise ModuleNotFoundError(f"No module named {name!r}")
"""


def command(folder: Path, port: int) -> subprocess.Popen[str]:
    """Start an evaluation of the command line, which gives up soon."""
    arguments = ["--query", "q.npy", "--gallery", "g.npy", "--query-ids", "qid.npy"]
    arguments += ["--gallery-ids", "gid.npy", "--protocol", "no-camera", "--quiet"]
    arguments += ["--scheduler", f"tcp://127.0.0.1:{port}"]
    return subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, "evaluate", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def message(process: subprocess.Popen[str]) -> str:
    """Return what a command says that is refused."""
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout) == (2, ""), stderr
    assert "Traceback" not in stderr
    assert stderr.count("error: ") == 1
    return stderr


@pytest.mark.slow
def test_the_command_says_what_it_waits_for(folder: Path) -> None:
    port = free_port()
    with processes(folder) as start:
        scheduler = start(*scheduler_options(port))
        connected(f"tcp://127.0.0.1:{port}").client.close()
        told = message(command(folder, port))
        assert f"waiting for workers: the scheduler tcp://127.0.0.1:{port} has none" in told
        assert "has had no worker for 3 s: start workers" in told
        end(scheduler)
    told = message(command(folder, port))
    assert f"waiting for a scheduler at tcp://127.0.0.1:{port}, at most 20 s" in told
    assert f"no scheduler answers at tcp://127.0.0.1:{port}" in told


@pytest.mark.slow
def test_a_worker_without_the_package_is_named(folder: Path) -> None:
    port = free_port()
    with processes(folder) as start:
        start(*scheduler_options(port))
        connection = connected(f"tcp://127.0.0.1:{port}")
        bare = [sys.executable, "-c", ABSENT + BARE_WORKER, *worker_options(port)[1:]]
        worker = subprocess.Popen(
            [*bare, "--no-nanny", "--nworkers", "1"], stderr=subprocess.DEVNULL
        )
        try:
            connection.client.wait_for_workers(1, timeout=PATIENCE)
            (address,) = connection.client.scheduler_info()["workers"]
            told = message(command(folder, port))
        finally:
            worker.kill()
            worker.wait()
            connection.client.close()
    assert f"error: worker {address} can't load streameval" in told
