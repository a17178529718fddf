"""The plan of a stored matrix: strips of whole query rows, else rectangles along its chunks."""

from __future__ import annotations

from streameval.planning.plan import Layout, Plan, Process, Task, ranges, refusal
from streameval.planning.problem import Problem, part_bytes, shot_parts, task_statistics_bytes

STRIP_BYTES = 64 << 20  # a longer strip of a stored matrix gains nothing


def plan_matrix(problem: Problem, process: Process) -> Plan:
    """Choose strips or rectangles of a stored matrix within the memory of a process.

    Parameters
    ----------
    problem : Problem
    process : Process

    Raises
    ------
    BudgetError
    """
    memory, threads = process.memory, process.threads
    chunk_rows = max(min(problem.chunks[0], problem.queries), 1)
    chunk_items = max(min(problem.chunks[1], problem.gallery), 1)
    gallery = max(problem.gallery, 1)
    cell_bytes = problem.itemsize + problem.converted * problem.stored_itemsize

    def parts(rows: int, items: int) -> dict[str, int]:
        distances = rows * items * cell_bytes + problem.scratch(rows, items)
        columns = items * (16 + problem.itemsize * (2 + problem.classes))  # shared by strips
        merging = process.merging(part_bytes(problem, rows))
        return {
            **process.kept,
            **merging,
            "distances": threads * distances,
            "items": (1 if items >= gallery else threads) * columns,
            "counts": threads * task_statistics_bytes(problem, rows),
            **shot_parts(problem, threads, rows, items),
        }

    def plan(layout: Layout, rows: int, items: int, reads: int) -> Plan:
        tasks = tuple(
            Task(q, g)
            for q in ranges(problem.queries, rows)
            for g in ranges(problem.gallery, items if problem.shots is None else gallery)
        )
        matrix = problem.queries * problem.gallery * problem.stored_itemsize
        return Plan(
            layout,
            tasks,
            items,
            (rows, items),
            threads,
            memory,
            parts(rows, items),
            matrix * (reads + problem.passes - 1),
            0,
            process.workers,
        )

    if sum(parts(chunk_rows, gallery).values()) <= memory:
        rows = chunk_rows
        even = -(-problem.queries // process.shares)
        while (
            rows * gallery * problem.itemsize < STRIP_BYTES
            and rows < even
            and sum(parts(rows + chunk_rows, gallery).values()) <= memory
        ):
            rows += chunk_rows
        return plan("strips", rows, gallery, 1)
    rows, items = chunk_rows, chunk_items
    while (
        rows * items * problem.itemsize < STRIP_BYTES
        and items < gallery
        and sum(parts(rows, items + chunk_items).values()) <= memory
    ):
        items += chunk_items
    if sum(parts(rows, items).values()) > memory:
        raise refusal(
            problem,
            process,
            parts(rows, items),
            f"raise --memory, lower --threads, or store the matrix in smaller chunks than "
            f"{problem.chunks[0]} × {problem.chunks[1]}",
        )
    return plan("rectangles", rows, items, 2)
