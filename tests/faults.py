"""Tasks that go wrong: what workers are given to run in place of counting.

They know where to leave their notes from the job: beside its gallery.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

from support.planning import Task
from support.run import Job, Watch, count, merge_each

from streameval import RankStatistics

GATE = "gate"
WRONG = 600  # the task on gallery items from here on goes wrong


def notes(job: Job) -> Path:
    """Return the folder of notes."""
    source = job.source.gallery.uri
    return Path(source).parent


def attempt(job: Job, task: Task) -> int:
    """Note an attempt at a task; return its number, from 1, over all processes."""
    note = notes(job) / f"attempts-{task.queries[0]}-{task.gallery[0]}"
    with note.open("a") as file:
        file.write(".")
        return file.tell()


def is_wrong(task: Task) -> bool:
    return task == Task((50, 100), (WRONG, WRONG + 60))


def gated(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    """Count slowly; one task, and so the whole, waits for `open_gate`."""
    attempt(job, task)
    time.sleep(0.05)
    while is_wrong(task) and not (notes(job) / GATE).exists():
        time.sleep(0.01)
    return count(job, task, watch)


def open_gate(folder: Path) -> None:
    (folder / GATE).touch()


def noted(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    attempt(job, task)
    return count(job, task, watch)


def noted_slow(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    attempt(job, task)
    time.sleep(0.03)
    return count(job, task, watch)


def fails_twice(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    statistics = count(job, task, watch)
    if is_wrong(task) and attempt(job, task) <= 2:
        raise OSError(errno.EIO, "the disk did not answer")
    return statistics


def fails_always(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    if is_wrong(task):
        attempt(job, task)
        raise RuntimeError("the cable is cut")
    return count(job, task, watch)


def dies_once(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    if is_wrong(task) and attempt(job, task) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return count(job, task, watch)


def dies_merging(
    one: tuple[RankStatistics, ...], other: tuple[RankStatistics, ...]
) -> tuple[RankStatistics, ...]:
    os.kill(os.getpid(), signal.SIGKILL)
    return merge_each(one, other)


def eats_memory_once(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    if is_wrong(task) and attempt(job, task) == 1:
        eat()
    return count(job, task, watch)


def eats_memory(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    if is_wrong(task):
        attempt(job, task)
        eat()
    return count(job, task, watch)


def eat() -> None:
    """Take memory until the process is killed for it: 2 GB at most."""
    held = []
    for _ in range(100):
        held.append(bytearray(os.urandom(1)) * (20 << 20))
        time.sleep(0.03)
    raise MemoryError("nobody minded")


def placed(job: Job, task: Task, watch: Watch) -> tuple[RankStatistics, ...]:
    """Count slowly; note when, by the network that this process is in."""
    time.sleep(float(os.environ["SECONDS_A_TASK"]))
    statistics = count(job, task, watch)
    network = Path("/proc/self/ns/net").readlink().name.strip("net:[]")
    with (notes(job) / f"network-{network}").open("a") as file:
        file.write(f"{time.time()}\n")
    while (notes(job) / "back").exists() and not (notes(job) / GATE).exists():
        time.sleep(0.01)  # what is left is for both networks
    return statistics
