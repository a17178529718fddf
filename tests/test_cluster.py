"""On a cluster: the same bits as on threads, whatever the workers, the cut, and the passes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import clusters
import dask
import numpy as np
import pytest
from click.testing import CliRunner
from clusters import GALLERY, HERE, QUERIES, cluster, labels, write_inputs
from distributed import Client
from support import runs
from support.cli import main
from support.package import Memory
from support.planning import Limits, Workers, make_plan
from support.protocols import find_pairs
from support.run import (
    ClusterExecutor,
    Connection,
    Job,
    Share,
    cluster_module,
    connection_module,
    local_cluster,
    open_cluster,
    worker_module,
)
from waiting import wait_until

import streameval as se
from streameval import (
    PROTOCOLS,
    BudgetError,
    InputError,
    MetricOptions,
    OptionError,
    StreamevalWarning,
    TaskError,
)

ALL = MetricOptions(metrics=("all",))
PASSES: dict[str, dict[str, Any]] = {
    "positives, count": {},
    "range, positives, count": {"range": "minmax", "protocol": "separate-camera"},
    "range of all, positives, count": {"range": "minmax-all", "protocol": "separate-camera"},
    "positives, count, refine": {"options": ALL, "refine": ("EER", "TAR|FAR=0.01")},
    "not of unit length, range": {"metric": "euclidean", "options": ALL},
}
SLOW = pytest.mark.slow
prepared = partial(clusters.prepared, items=120)
EACH_ONCE = {
    "rectangles": ["range, positives, count"],
    "strips": ["range of all, positives, count"],
    "features": ["positives, count, refine", "not of unit length, range"],
}
"""The passes that sources go through every day."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(
    scope="module",
    params=[pytest.param((2, HERE), id="2-threads")]
    + [pytest.param((2, {}), id="2", marks=SLOW)]
    + [pytest.param((count, {}), id=str(count), marks=pytest.mark.nightly) for count in (1, 4)],
)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    workers, options = request.param
    with cluster(workers, **options) as (_, one):
        yield one


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        pytest.param(kind, passes, marks=() if passes in EACH_ONCE[kind] else SLOW)
        for passes in PASSES
        for kind in ("features", "strips", "rectangles")
    ],
)
def test_statistics_equal_those_of_threads(
    folder: Path, client: Client, kind: str, passes: str
) -> None:
    options = dict(PASSES[passes])
    if kind != "features":
        options.pop("metric", None)
    work = prepared(folder, kind, **options)
    chosen = options.get("options", MetricOptions())
    expected = runs.run(work, chosen)
    found = runs.run(work, chosen, executor=ClusterExecutor(Connection(client)))
    assert found.statistics.equals(expected.statistics)
    assert found.metrics.scalars == pytest.approx(expected.metrics.scalars, abs=0, nan_ok=True)
    assert found.range == expected.range


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["features", "rectangles"])
def test_rounds_leave_the_statistics_of_one(folder: Path, client: Client, kind: str) -> None:
    work = prepared(folder, kind)
    rounds = replace(work, plan=replace(work.plan, round=QUERIES // 3))
    assert len(rounds.plan.rounds) > 1
    found = runs.run(rounds, ALL, executor=ClusterExecutor(Connection(client)))
    expected = runs.run(work, ALL)
    assert found.statistics.equals(expected.statistics)
    assert found.metrics.scalars == pytest.approx(expected.metrics.scalars, abs=0, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["features", "strips"])
def test_single_gallery_shot_and_its_draws(folder: Path, client: Client, kind: str) -> None:
    options = MetricOptions(metrics=("CMC@1", "mAP", "CMC_sampled@1"))
    work = prepared(folder, kind, protocol="cuhk03", shot_draws=10, options=options)
    expected = runs.run(work, options)
    found = runs.run(work, options, executor=ClusterExecutor(Connection(client)))
    assert expected.statistics.single_shot is not None
    assert found.statistics.equals(expected.statistics)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["features", "strips"])
def test_distinct_identities(folder: Path, client: Client, kind: str) -> None:
    protocol = se.Protocol("distinct", ("same(id, cam)",), cmc="distinct-identities")
    work = prepared(folder, kind, protocol=protocol)
    expected = runs.run(work, MetricOptions())
    found = runs.run(work, MetricOptions(), executor=ClusterExecutor(Connection(client)))
    assert expected.statistics.identities_ahead is not None
    assert found.statistics.equals(expected.statistics)


@pytest.mark.slow
def test_many_roots_come_to_the_client_and_the_bits_stay(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "FLUSH_SECONDS", 0.0)
    work = prepared(folder, "features")
    found = runs.run(work, ALL, executor=ClusterExecutor(Connection(client)))
    assert found.statistics.equals(runs.run(work, ALL).statistics)


def test_evaluate_with_a_client(folder: Path, client: Client) -> None:
    source = se.Features(folder / "q.npy", folder / "g.npy")
    found = se.evaluate(source, **labels(folder), client=client)
    assert found.statistics.equals(se.evaluate(source, **labels(folder)).statistics)
    assert found.provenance["plan"]["workers"] == len(client.nthreads())


def test_histograms_of_groups(folder: Path, client: Client) -> None:
    source = se.Features(folder / "q.npy", folder / "g.npy")
    how = {**labels(folder), "metrics": "EER", "group_by": "cam"}
    found = se.evaluate(source, **how, client=client)
    assert found.statistics.group_histogram is not None
    assert found.statistics.equals(se.evaluate(source, **how).statistics)


def test_arrays_in_memory_are_sent_if_they_are_small(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = np.load(folder / "q.npy"), np.load(folder / "g.npy")
    source = se.Features(*arrays)
    found = se.evaluate(source, **labels(folder), client=client)
    assert found.statistics.equals(se.evaluate(source, **labels(folder)).statistics)
    monkeypatch.setattr(worker_module, "SENT_BYTES", 1000)
    with pytest.raises(InputError, match=r"299.5 kB.* 1.0 kB are sent.*save them"):
        se.evaluate(source, **labels(folder), client=client)


def test_the_first_error_is_that_of_threads(folder: Path, client: Client, tmp_path: Path) -> None:
    for side in "qg":
        for file in folder.glob(f"{side}*.npy"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    gallery = np.load(tmp_path / "g.npy")
    gallery[[700, 2500], 3] = np.nan
    np.save(tmp_path / "g.npy", gallery)
    work = prepared(tmp_path, "features")
    messages = set()
    for executor in (None, ClusterExecutor(Connection(client))):
        with pytest.raises(InputError, match="row 700 holds nan in column 3") as caught:
            runs.run(work, ALL, executor=executor)
        messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.slow
def test_vectors_that_are_not_of_unit_length_after_all(
    folder: Path, client: Client, tmp_path: Path
) -> None:
    """The range comes from the data then, in a further pass: as a worker finds out."""
    for side in "qg":
        for file in folder.glob(f"{side}*.npy"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        features = np.load(tmp_path / f"{side}.npy")
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        features[2000:] *= 2
        np.save(tmp_path / f"{side}.npy", features)
    work = prepared(tmp_path, "features", metric="euclidean")
    assert work.range is not None
    found = runs.run(work, ALL, executor=ClusterExecutor(Connection(client)))
    assert found.range["mode"] == "minmax"
    assert found.statistics.equals(runs.run(work, ALL).statistics)


@SLOW
def test_inputs_that_workers_cannot_open_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(1) as (_, client):
        monkeypatch.chdir(folder)
        work = prepared(Path("/proc/self/cwd"), "features")  # another folder for a worker
        executor = ClusterExecutor(Connection(client))
        with pytest.raises(InputError, match=r"q\.npy.*on worker tcp://.*same path"):
            runs.run(work, ALL, executor=executor)


def test_nothing_stays_on_the_cluster(folder: Path, client: Client) -> None:
    work = prepared(folder, "features")
    runs.run(work, ALL, executor=ClusterExecutor(Connection(client)))

    def nothing_held() -> bool:
        gc.collect()  # errors of the tests before may hold theirs
        return not client.run_on_scheduler(_tasks_held)

    wait_until(nothing_held)


def _tasks_held(dask_scheduler: Any) -> dict[str, tuple[str, int, int]]:
    return {
        key: (task.state, len(task.who_wants or ()), len(task.dependents))
        for key, task in dask_scheduler.tasks.items()
    }


def test_another_version_on_a_worker_is_refused(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "VERSION", "0.0.1")
    with pytest.raises(TaskError, match=r"worker tcp://.* has streameval .*, the client 0\.0\.1"):
        runs.run(prepared(folder, "features"), ALL, executor=ClusterExecutor(Connection(client)))


def test_tasks_in_flight_are_bounded_and_have_names_to_read(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    names: list[str] = []
    start = cluster_module._Run._start

    def noted(run: Any, node: Any) -> None:
        start(run, node)
        seen.append(sum(not other.is_sum for other in run._running.values()))
        names.append(node.future.key)

    monkeypatch.setattr(cluster_module._Run, "_start", noted)
    work = prepared(folder, "features")
    runs.run(work, ALL, executor=ClusterExecutor(Connection(client)))
    assert max(seen) <= cluster_module.PER_THREAD * len(client.nthreads())
    assert any(name.startswith("counting-queries 0:50 × gallery 120:240-") for name in names)
    assert any(name.startswith("merge-counting of 8 tasks-") for name in names)


# What needs no workers of its own.


def test_a_job_travels_small(folder: Path) -> None:
    work = prepared(folder, "features", protocol="separate-camera")
    pairs = work.pairs.block(0, QUERIES)
    job = Job(work.source, work.plan, (Share(pairs),))
    blob = pickle.dumps(job)
    listed = 8 * len(pairs.item)
    assert len(blob) < listed + 2 * GALLERY + 8 * QUERIES + 4000
    again = pickle.loads(blob)
    assert again.plan == replace(work.plan, tasks=())
    for name in ("indptr", "item", "positive", "same_identity", "junk"):
        found, expected = getattr(again.shares[0].pairs, name), getattr(pairs, name)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)
    for name, codes in vars(pairs.classes).items():
        assert np.all(getattr(again.shares[0].pairs.classes, name) == codes)


@pytest.mark.parametrize("cameras", [1, 127, 128, 129, 300, 40_000])
def test_any_number_of_cameras_travels(cameras: int) -> None:
    one = se.Labels(id=np.arange(cameras), cam=np.arange(cameras))
    pairs = find_pairs(one, one, PROTOCOLS["separate-camera"])
    again = pickle.loads(pickle.dumps(pairs))
    for name, codes in vars(pairs.classes).items():
        assert np.all(getattr(again.classes, name) == codes)


def test_one_cluster_at_most() -> None:
    with (
        pytest.raises(OptionError, match="got workers and scheduler: choose one"),
        open_cluster({"workers": 2, "scheduler": "tcp://127.0.0.1:1"}, 1),
    ):
        pass
    with (
        pytest.raises(OptionError, match="got scheduler and threads 2"),
        open_cluster({"scheduler": "tcp://127.0.0.1:1", "threads": 2}, 1),
    ):
        pass


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CONNECT", 0.5)
    monkeypatch.setattr(connection_module, "TOLD", 0.2)
    with (
        pytest.warns(StreamevalWarning, match=r"waiting for a scheduler at tcp://127\.0\.0\.1:9,"),
        pytest.raises(TaskError, match=r"no scheduler answers at tcp://127\.0\.0\.1:9 .*start one"),
        open_cluster({"scheduler": "tcp://127.0.0.1:9"}, 1),
    ):
        pass


@pytest.mark.parametrize("address", ["nonsense", "carrier-pigeon://127.0.0.1:9", "tcp://host"])
def test_an_address_that_is_none(address: str) -> None:
    with (
        pytest.raises(TaskError, match=f"no scheduler answers at {address} .*HOST:PORT"),
        open_cluster({"scheduler": address}, 1),
    ):
        pass


def test_a_plan_that_no_worker_can_hold_is_refused_with_the_figures(folder: Path) -> None:
    workers = Workers(count=4, threads=2, memory=10**8, libraries=3 * 10**8)
    with pytest.raises(BudgetError, match=r"100\.0 MB for each worker is too small.*300\.0 MB"):
        prepared(folder, "features", workers=workers)


def test_more_workers_make_more_and_smaller_tasks(folder: Path) -> None:
    problem = prepared(folder, "features").problem
    sizes = {}
    for count in (1, 10, 100):
        workers = Workers(count=count, threads=2, memory=2 * 10**9, libraries=3 * 10**8)
        data = replace(problem.data, width=512)
        large = replace(problem, gallery=10_000_000, queries=5000, data=data)
        plan = make_plan(large, Limits(10**9, 1, 0, workers))
        assert plan.peak <= workers.memory
        assert len(plan.tasks) >= 2 * 2 * count
        sizes[count] = len(plan.tasks)
    assert sizes[1] <= sizes[10] <= sizes[100]


def test_clients_of_no_use_are_refused(folder: Path) -> None:
    source = se.Features(folder / "q.npy", folder / "g.npy")

    def refused(client: Any, message: str) -> None:
        with pytest.raises(OptionError, match=message):
            se.evaluate(source, **labels(folder), client=client)

    async def asynchronous(address: str) -> None:
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            refused(client, "is asynchronous; one that waits for answers is needed")

    with cluster(1) as (running, client):
        client.close()
        refused(client, r"is closed; connect another: client=Client\(ADDRESS\)")
        asyncio.run(asynchronous(running.scheduler_address))
    refused("tcp://127.0.0.1:9", "client is of type str; a distributed.Client is needed")


class TellsOfFive:
    """A client as of distributed 2025.4, which tells of five workers where no number is given."""

    status = "running"
    free = 20 * 10**9

    def __init__(self, answers: Mapping[tuple[str, str], str | Exception | None] = {}) -> None:
        """Take what workers say that differ, by address and by what is asked; None never comes."""
        self.answers = answers
        self.runner = asyncio.Runner()

    def close(self) -> None:
        self.runner.close()

    def scheduler_info(self, n_workers: int = 5) -> dict[str, Any]:
        limits = [4 * 10**9] * 7 + [10**9]
        told = limits if n_workers < 0 else limits[:n_workers]
        return {
            "workers": {
                str(number): {"memory_limit": limit, "nthreads": 2, "host": f"host {number % 4}"}
                for number, limit in enumerate(told)
            }
        }

    def sync(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return self.runner.run(function())

    async def run(
        self, function: Callable[..., Any], *asked: str, workers: list[str], on_error: str
    ) -> dict[str, Any]:
        """Return what a worker says of its packages or its memory; two are on each machine."""
        (number,) = workers
        memory = Memory(self.free, 10**8, 3 * 10**8 + int(number))
        usual = function(*asked) if asked else memory
        answer = self.answers.get((number, *(asked or ("memory",))), usual)
        if answer is None:
            await asyncio.Event().wait()
        return {number: answer}


def workers_of(
    answers: Mapping[tuple[str, str], str | Exception | None], memory: int | None = None
) -> Workers:
    with closing(TellsOfFive(answers)) as client:
        return Connection(cast(Any, client)).workers(memory)


def test_all_workers_are_planned_with() -> None:
    workers = workers_of({})
    assert (workers.count, workers.threads) == (8, 2)
    assert workers.memory == 7 * 10**8 - 10**8  # beyond what the worker of the least limit holds
    assert workers.libraries == 3 * 10**8 + 7
    assert workers_of({}, 5 * 10**8).memory == 5 * 10**8


def test_workers_share_what_is_free_on_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TellsOfFive, "free", 2 * 10**9)
    assert workers_of({}).memory == 5 * 10**8
    monkeypatch.setattr(TellsOfFive, "free", 6 * 10**8)
    with pytest.raises(BudgetError, match="shared by 2 processes: 150 MB, and at least 200 MB"):
        workers_of({})


def test_workers_have_the_packages_of_the_client() -> None:
    for package in ("streameval", "numpy"):
        client = f"the client {version(package)}: install the same on both"
        with pytest.raises(TaskError, match=f"worker 3 has no {package}, {client}"):
            workers_of({("3", package): PackageNotFoundError(package)})
    with pytest.raises(
        TaskError, match=f"worker 3 has streameval 1, the client {version('streameval')}"
    ):
        workers_of({("3", "streameval"): "1"})
    with pytest.warns(StreamevalWarning, match=f"worker 3 has numpy 1, {client}"):
        assert workers_of({("3", "numpy"): "1"}).count == 8
    error = ModuleNotFoundError("No module named 'streameval'")
    with pytest.raises(TaskError, match=r"worker 3 can't load streameval \(Module.*install"):
        workers_of({("3", "memory"): error})


def test_workers_that_do_not_answer_in_time_are_not_planned_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "TOLD", 0.01)
    monkeypatch.setattr(connection_module, "ANSWER", 0.02)
    with pytest.warns(StreamevalWarning) as told:
        workers = workers_of({("6", "streameval"): None, ("7", "streameval"): None})
    waiting, left_out = (str(one.message) for one in told)
    assert waiting == "waiting for an answer of 6, 7, at most 0 s"
    assert re.match(r"no answer .* from 2 workers: 6, 7\. .*resume or", left_out)
    assert workers.count == 6
    assert workers.memory == 28 * 10**8 - 10**8  # of those that answer
    with (
        pytest.warns(StreamevalWarning, match="waiting for an answer of 0, 1, 2, 3, 4, 5, 6, 7"),
        pytest.raises(TaskError, match=r"no worker .* says what memory it has within 0 s: start"),
    ):
        workers_of({(str(number), "streameval"): None for number in range(8)})


def test_waits_are_told_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "TOLD", 0.1)
    monkeypatch.setattr(connection_module, "PATIENCE", 0.5)
    monkeypatch.setattr(TellsOfFive, "scheduler_info", lambda *_, **__: {"workers": {}})
    with (
        pytest.warns(StreamevalWarning, match=r"waiting for workers: the scheduler .* has none"),
        pytest.raises(TaskError, match=r"has had no worker for .*: start workers"),
    ):
        workers_of({})
    monkeypatch.setattr(TellsOfFive, "status", "connecting")
    with (
        pytest.warns(StreamevalWarning, match=r"waiting for the scheduler .*, which is gone, at"),
        pytest.raises(TaskError, match="is gone, and has not come back"),
    ):
        workers_of({})


@SLOW
def test_a_stopped_worker_is_left_out_until_it_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "ANSWER", 1.0)
    with dask.config.set({"distributed.scheduler.worker-ttl": None}), cluster(2) as (_, client):
        connection = Connection(client)
        (stopped, process), (other, _) = client.run(os.getpid).items()
        os.kill(process, signal.SIGSTOP)
        try:
            wait_until(lambda: [*connection.ask(os.getpid, (stopped, other))] == [other])
            wait_until(lambda: planned(connection) == (1, [stopped]))
        finally:
            os.kill(process, signal.SIGCONT)
        wait_until(lambda: planned(connection) == (2, []))


def planned(connection: Connection) -> tuple[int, list[str]]:
    """Return the number of workers that answer in time, and the addresses that a warning names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StreamevalWarning)
        try:
            count = connection.workers(10**9).count
        except TaskError:  # none, on a busy machine
            count = 0
    return count, re.findall(r"tcp://[^,\s]*\d", " ".join(str(one.message) for one in caught))


@pytest.mark.slow
def test_the_local_cluster_ends_with_its_context_and_keeps_to_loopback() -> None:
    with local_cluster(2, 1, 10**9) as connection:
        workers = connection.workers(10**9)
        assert (workers.count, workers.threads) == (2, 1)
        assert workers.memory == 10**9  # the limit of the process leaves room for it
        assert connection.workers(10**8).memory == 10**8
        processes = list(connection.client.run(_process_of_worker).items())
        assert all(address.startswith("tcp://127.0.0.1:") for address, _ in processes)
    for _, process in processes:
        assert not Path(f"/proc/{process}").exists()


def _process_of_worker() -> int:
    return os.getpid()


COMMAND = ["evaluate", "--json", "--query", "q.npy", "--gallery", "g.npy"]
COMMAND += ["--query-ids", "qid.npy", "--gallery-ids", "gid.npy", "--protocol", "no-camera"]


@SLOW
def test_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = str(Path(sys.executable).parent / "streameval")
    monkeypatch.chdir(folder)
    process = subprocess.run([program, *COMMAND, "--workers", "2"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    done = CliRunner().invoke(main, COMMAND)
    assert done.exit_code == 0
    workers, threads = (json.loads(one.stdout) for one in (process, done))
    assert workers["metrics"] == threads["metrics"]
    assert workers["provenance"]["plan"]["workers"] == 2


def test_workers_of_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    none, dry = (
        CliRunner().invoke(main, [*COMMAND, "--workers", *more])
        for more in (("0",), ("2", "--dry-run"))
    )
    assert [none.exit_code, dry.exit_code] == [2, 0]
    assert "--workers is 0" in none.stderr
    assert json.loads(dry.stdout)["workers"] == 2
