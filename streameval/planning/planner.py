"""The plan: how an evaluation is cut into tasks and tiles, and what each part holds in memory.

Pure arithmetic on shapes; nothing is read. The plan is made before any work, refuses with the
figures where the budget is too small, and is what ``--dry-run`` prints.

Tasks are rectangles of the (query, gallery) matrix. Features are cut into gallery shards; a
task reads its shard block by block and multiplies each block with all queries of its block of
queries, tile by tile. A stored matrix is cut into strips of whole query rows where one fits
the budget (read once: a strip holds its own positives); else into rectangles along its chunks,
which are read twice. `lists` plans lists of neighbours: blocks of queries.
"""

from __future__ import annotations

from dataclasses import replace

from streameval.kernels.multiplier import best_rows
from streameval.planning.features import plan_features
from streameval.planning.matrix import plan_matrix
from streameval.planning.plan import RESERVED, Limits, Plan, Process
from streameval.planning.problem import Problem, pairs_bytes, statistics_bytes

TILE_ITEMS = 8192 + 48  # rows a multiple of 4 KiB apart would share few sets of the caches
TASK_BYTES = 1000  # of a task in the list of all, and in the client's books


def make_plan(problem: Problem, limits: Limits) -> Plan:
    """Choose tasks, blocks and tiles within the budget.

    Raises
    ------
    BudgetError
        If no plan fits; says how much is needed, and for what.
    """
    here = {RESERVED: limits.reserved, "statistics": statistics_bytes(problem)}
    workers = limits.workers
    if workers is None:
        process = Process(limits.memory, limits.threads, 0, here)
    else:
        kept = {RESERVED: workers.reserved, "pairs": pairs_bytes(problem)}
        process = Process(workers.memory, workers.threads, workers.count, kept)
    if problem.shots is not None:
        identities = problem.shots.kept_bytes(problem.queries, problem.gallery)
        process.kept["identities"] = here["identities"] = identities
    if problem.data.width:
        plan = plan_features(problem, process, limits.tile or (best_rows(), TILE_ITEMS))
    else:
        plan = plan_matrix(problem, process)
    if workers is None:
        return plan
    sent = {"the job, as it is sent": pairs_bytes(problem), "tasks": TASK_BYTES * len(plan.tasks)}
    return replace(plan, client=here | sent)
