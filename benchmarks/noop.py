"""Tasks that do nothing, as many as a plan has: ``python -m benchmarks.noop ADDRESS TASKS``.

Prints JSON: seconds, the peak of this process's memory in bytes, and how many tasks the
scheduler held at most.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from operator import add
from time import perf_counter
from typing import Any

import numpy as np

import streameval as se
from benchmarks.one_run import peak_bytes
from streameval.planning.plan import Task, Workers
from streameval.request import Request
from streameval.run.cluster import ClusterExecutor
from streameval.run.connection import connect
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.passes import by_queries
from streameval.run.preparation import Planned, plan_requests
from streameval.run.progress import Progress, Watch
from streameval.run.session import open_session

LOOK_EVERY = 0.5  # seconds


def nothing(job: Job, task: Task, watch: Watch) -> int:
    """Return the number of pairs of a task, and do nothing."""
    return task.pairs


NO_OP = Pass("no-op", nothing, add, by_queries)


def planned(source: se.Features, workers: Workers | None = None) -> Planned:
    """Plan an evaluation without labels; on workers that are not there, if given."""
    given = {"source": source, "without_labels": True}
    with open_session(given) as session:
        session = replace(session, planned_workers=workers)
        return plan_requests([Request.of(given)], session)[0]


def small_job() -> Job:
    """Return a job of a few arrays in memory."""
    rng = np.random.default_rng(0)
    small = planned(se.Features(rng.standard_normal((4, 8)), rng.standard_normal((8, 8))))
    return Job(small.source, small.plan)


def drive(address: str, tasks: int) -> dict[str, Any]:
    """Send so many tasks, each of a million pairs, to the workers of a scheduler."""
    items = {index: Task((0, 1000), (1000 * index, 1000 * (index + 1))) for index in range(tasks)}
    connection = connect(address)
    held, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY):
            held.append(connection.client.run_on_scheduler(_tasks_held))

    looking = threading.Thread(target=look)
    looking.start()
    begin = perf_counter()
    found = 0
    for _, part in ClusterExecutor(connection).run(NO_OP, small_job(), items, Watch(Progress())):
        found += part
    seconds = perf_counter() - begin
    over.set()
    looking.join()
    if found != sum(task.pairs for task in items.values()):
        raise RuntimeError(f"{found} pairs came back")
    connection.client.close()
    return {"seconds": seconds, "peak": peak_bytes(), "held": max(held)}


def _tasks_held(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


if __name__ == "__main__":
    # Under its own name, so that workers find the functions.
    from benchmarks import noop

    sys.stdout.write(json.dumps(noop.drive(sys.argv[1], int(sys.argv[2]))))
