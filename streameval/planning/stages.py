"""The plan of a stage before counting, of what it holds."""

from __future__ import annotations

from streameval.planning.plan import LIBRARIES, Limits, Plan, Process, refusal
from streameval.planning.problem import Holders, Problem


def stage_plan(problem: Problem, parts: Holders, limits: Limits, *, of: str) -> Plan:
    """Return the plan of a stage that this process runs, whatever the cluster.

    Parameters
    ----------
    problem : Problem
        For messages.
    parts : dict of str to int
        Bytes that it holds beside libraries, by what holds them.
    limits : Limits
    of : str
        What is made of queries and gallery, for messages.

    Raises
    ------
    BudgetError
        If it does not fit the limits.
    """
    held = {LIBRARIES: limits.libraries, **parts}
    if sum(held.values()) > limits.memory:
        process = Process(limits.memory, limits.threads, 0, {})
        raise refusal(problem, process, held, "raise --memory or lower --threads", of=of)
    here, client = (held, {}) if limits.workers is None else ({}, held)
    memory = limits.memory
    return Plan("features", (), 0, (0, 0), limits.threads, memory, here, 0, 0, client=client)
