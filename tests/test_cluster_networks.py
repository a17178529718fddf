"""Two hosts, as far as one machine gives them: network namespaces, one cut off and back."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import faults
import pytest
from clusters import prepared, write_inputs
from support import runs
from support.result import load_statistics
from waiting import PATIENCE, wait_until

from streameval import MetricOptions

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
NEAR, FAR = f"se{os.getpid()}n", f"se{os.getpid()}f"
ADDRESSES = {NEAR: "10.203.7.1", FAR: "10.203.7.2"}
SCHEDULER = f"tcp://{ADDRESSES[NEAR]}:8786"

CLIENT = """
import sys
from dataclasses import replace
from pathlib import Path
import faults
from clusters import prepared
from support import runs
from streameval.run import passes
from streameval.run.cluster import ClusterExecutor
from streameval.run.connection import connect
from streameval.metrics.options import MetricOptions
from streameval.result.saved import save_statistics

folder = Path(sys.argv[1])
passes.COUNT = replace(passes.COUNT, compute=faults.placed)
connection = connect(sys.argv[2])
connection.client.wait_for_workers(2, timeout=900)
work = prepared(folder, "features")
found = runs.run(work, MetricOptions(), executor=ClusterExecutor(connection))
save_statistics(found.statistics, folder / "found.zarr")
connection.client.close()
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def networks() -> Iterator[None]:
    """Make two namespaces that a pair of veth devices joins, and nothing else."""
    if shutil.which("ip") is None:
        pytest.skip("there is no command ip: network namespaces can't be made")
    try:
        for name in (NEAR, FAR):
            ip("netns", "add", name)
        ip("-n", NEAR, "link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", FAR)
        for name, address in ADDRESSES.items():
            ip("-n", name, "address", "add", f"{address}/24", "dev", "veth")
            for device in ("lo", "veth"):
                ip("-n", name, "link", "set", device, "up")
    except subprocess.CalledProcessError as error:
        remove_networks()
        pytest.skip(f"network namespaces can't be made here: {error.stderr.decode().strip()}")
    yield
    remove_networks()


def remove_networks() -> None:
    for name in (NEAR, FAR):
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


# Seconds; a connection is given up after 11. There is work for one worker for more than that.
@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize(
    ("cut_for", "a_task"),
    [
        pytest.param(16.0, 0.4, marks=pytest.mark.slow),
        pytest.param(60.0, 0.8, marks=pytest.mark.nightly),
    ],
)
def test_a_worker_that_is_cut_off_and_comes_back(
    tmp_path: Path, cut_for: float, a_task: float
) -> None:
    folder = write_inputs(tmp_path)
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "SECONDS_A_TASK": str(a_task),
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(network: str, *command: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"log{len(started)}").open("wb") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", network, *command],
                env=environment,
                cwd=tmp_path,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    def worker(network: str) -> None:
        """Start a worker, again and again as a supervisor does: Dask ends one that is cut off."""
        own = f"--host {ADDRESSES[network]} --nthreads 1 --memory-limit 1GB --no-dashboard"
        start(network, "sh", "-c", f"while :; do {BIN / 'dask'} worker {SCHEDULER} {own}; done")

    try:
        start(
            NEAR,
            *(str(BIN / "dask"), "scheduler", "--host", ADDRESSES[NEAR], "--no-dashboard"),
        )
        worker(NEAR)
        worker(FAR)
        client = start(NEAR, sys.executable, "-c", CLIENT, str(folder), SCHEDULER)

        def both_count() -> bool:
            assert client.poll() is None, (tmp_path / "log3").read_text()
            return len(done(folder)) == 2 and sum(map(len, done(folder).values())) >= 30

        wait_until(both_count)
        before = done(folder)
        ip("-n", FAR, "link", "set", "veth", "down")
        cut = time.time()
        time.sleep(cut_for)
        assert client.poll() is None, "the run was over before the network was back"
        ip("-n", FAR, "link", "set", "veth", "up")
        back = time.time()
        (folder / "back").touch()

        def both_count_again() -> bool:
            assert client.poll() is None, (tmp_path / "log3").read_text()
            return all(times[-1] > back for times in done(folder).values())

        wait_until(both_count_again)
        (folder / faults.GATE).touch()
        assert client.wait(timeout=PATIENCE) == 0, (tmp_path / "log3").read_text()
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    after = done(folder)
    assert len(before) == len(after) == 2  # both hosts have counted
    waiting = [[time for time in times if cut + 2 < time < back] for times in after.values()]
    assert min(map(len, waiting)) == 0 < max(map(len, waiting))  # one went on alone
    expected = runs.run(prepared(folder, "features"), MetricOptions())
    assert load_statistics(folder / "found.zarr").equals(expected.statistics)


def done(folder: Path) -> dict[str, list[float]]:
    """Return when tasks were done, by network."""
    return {
        re.sub(r"\D", "", file.name): [float(line) for line in file.read_text().split()]
        for file in folder.glob("network-*")
    }
