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
    data, gallery = problem.data, max(problem.gallery, 1)
    chunk_rows = max(min(data.chunks[0], problem.queries), 1)
    chunk_items = max(min(data.chunks[1], problem.gallery), 1)

    def fits(rows: int, items: int) -> bool:
        return sum(_parts(problem, process, rows, items).values()) <= process.memory

    rows, items = chunk_rows, chunk_items
    if fits(chunk_rows, gallery):
        even = -(-problem.queries // process.shares)
        while (
            rows * gallery * data.itemsize < STRIP_BYTES
            and rows < even
            and fits(rows + chunk_rows, gallery)
        ):
            rows += chunk_rows
        return _plan(problem, process, "strips", rows, gallery)
    while (
        rows * items * data.itemsize < STRIP_BYTES
        and items < gallery
        and fits(rows, items + chunk_items)
    ):
        items += chunk_items
    if not fits(rows, items):
        raise refusal(
            problem,
            process,
            _parts(problem, process, rows, items),
            f"raise --memory, lower --threads, or store the matrix in smaller chunks than "
            f"{data.chunks[0]} × {data.chunks[1]}",
        )
    return _plan(problem, process, "rectangles", rows, items)


def _parts(problem: Problem, process: Process, rows: int, items: int) -> dict[str, int]:
    """Return the bytes that a process holds, by what holds them."""
    data, threads = problem.data, process.threads
    cells = rows * items * (data.itemsize + data.converted * data.stored_itemsize)
    columns = items * (16 + data.itemsize * (2 + problem.classes))
    shared = items >= max(problem.gallery, 1)  # by all strips
    return {
        **process.kept,
        **process.merging(part_bytes(problem, rows)),
        "distances": threads * (cells + data.scratch(rows, items)),
        "items": (1 if shared else threads) * columns,
        "counts": threads * task_statistics_bytes(problem, rows),
        **shot_parts(problem, threads, rows, items),
    }


def _plan(problem: Problem, process: Process, layout: Layout, rows: int, items: int) -> Plan:
    """Return the plan of blocks of so many rows and items; strips are read once less."""
    across = items if problem.shots is None else max(problem.gallery, 1)
    matrix = problem.queries * problem.gallery * problem.data.stored_itemsize
    return Plan(
        layout,
        tuple(
            Task(q, g)
            for q in ranges(problem.queries, rows)
            for g in ranges(problem.gallery, across)
        ),
        items,
        (rows, items),
        process.threads,
        process.memory,
        _parts(problem, process, rows, items),
        matrix * (problem.passes + (layout == "rectangles")),
        0,
        process.workers,
    )
