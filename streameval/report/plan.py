"""The plan, for ``--dry-run``: what would be done, and what it would take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streameval.planning import Plan, format_bytes
from streameval.report.numbers import amount, duration, plural
from streameval.report.provenance import describe_inputs
from streameval.report.table import facts
from streameval.report.terminal import Style, render
from streameval.run.provenance import describe_source

if TYPE_CHECKING:
    from streameval.run.preparation import Prepared


def plan_summary(prepared: Prepared, rate: float | None = None) -> dict[str, Any]:
    """Return the plan as numbers, for ``--dry-run --json``.

    Parameters
    ----------
    prepared : Prepared
    rate : float, optional
        Floating-point operations a second of one thread.
    """
    plan = prepared.plan
    return {
        "layout": plan.layout,
        "passes": prepared.source.passes(prepared),
        "thresholds": prepared.problem.thresholds,
        "histogram_edges": prepared.problem.edges,
        "tasks": len(plan.tasks),
        "tile": list(plan.tile),
        "block": plan.block,
        "threads": plan.threads,
        "workers": plan.workers,
        "pairs": plan.pairs,
        "bytes_read": plan.bytes_read,
        "flops": plan.flops,
        "memory": plan.memory,
        "projected_peak": plan.peak,
        "parts": dict(plan.parts),
        **({"client_peak": plan.client_peak, "client": dict(plan.client)} if plan.client else {}),
        **({} if rate is None else {"seconds": seconds_at(rate, plan)}),
    }


def _counted(prepared: Prepared) -> str:
    """Return in words at what distances negatives are counted."""
    problem = prepared.problem
    counted = ["at the positives"]
    if problem.thresholds:
        counted.append(f"at {problem.thresholds} thresholds")
    if problem.edges:
        counted.append(f"at {problem.edges:,} edges of a histogram")
    return ", ".join(counted)


def seconds_at(rate: float, plan: Plan) -> float:
    """Return the seconds that the matrix products take where all threads have such a rate."""
    return plan.flops / (rate * plan.threads * max(plan.workers, 1))


def _threads(plan: Plan) -> str:
    threads = plural(plan.threads, "thread")
    return f"{plural(plan.workers, 'worker')} of {threads}" if plan.workers else threads


def render_plan(prepared: Prepared, style: Style, rate: float | None = None) -> str:
    """Return the plan as text; `rate` as in `plan_summary`."""
    plan, source = prepared.plan, prepared.source
    (queries, items), text = source.shape, source.describe_plan(plan)
    inputs = describe_inputs(describe_source(source))
    assumed = "" if prepared.columns else ", as is assumed"
    work = [
        inputs,
        ("Protocol", prepared.request.protocol.name),
        (
            "Size",
            f"{plural(queries, 'query', 'queries')} × {plural(items, 'gallery item')}: "
            f"{amount(plan.pairs)} pairs, {prepared.problem.positives:,} of them positive{assumed}",
        ),
        ("Layout", text.layout),
        ("Passes", ", ".join(source.passes(prepared))),
        ("Counts", _counted(prepared)),
        ("Tasks", f"{len(plan.tasks):,}, on {_threads(plan)}"),
        ("Tile", text.tile),
        ("Reads", f"{format_bytes(plan.bytes_read)} in all passes, before decompression"),
        (
            "Computes",
            f"{amount(plan.flops)} floating-point operations in matrix products, "
            f"by {text.multiplier}",
        ),
    ]
    if not plan.flops:
        work.pop()
    elif rate is not None:
        time = duration(seconds_at(rate, plan))
        work.append(("Time", f"{time}, at {amount(rate)} operations a second of each thread"))
    each = " for each worker" if plan.workers else ""
    peak = f"{format_bytes(plan.peak)} projected peak, of {format_bytes(plan.memory)}{each}"
    memory = [("Memory", peak), *_sizes(plan.parts)]
    if plan.client:
        peak = f"{format_bytes(plan.client_peak)} projected peak of this process"
        memory += [("Client", peak), *_sizes(plan.client)]
    return render(style, [facts([*work, *memory])])


def _sizes(parts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return a line for each part of the memory."""
    width = max(len(name) for name in parts)
    return [("", f"{name:<{width}}  {format_bytes(size):>9}") for name, size in parts.items()]
