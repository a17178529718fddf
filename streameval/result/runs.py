"""Runs by name: results as they are, and those of folders loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from streameval.errors import OptionError
from streameval.metrics.selection import names_of
from streameval.result.evaluation import Evaluation, Results

Run = Evaluation | str | Path
"""A result, or the folder of one."""


def named(runs: Sequence[Run], names: Iterable[object] = ()) -> dict[str, Run]:
    """Return runs by their names: by default the folder, or ``run 1``, ``run 2``.

    Raises
    ------
    OptionError
        If names are not distinct, or not one per run.
    """
    called = [str(name) for name in names] or [
        f"run {at}" if isinstance(run, Evaluation) else str(run) for at, run in enumerate(runs, 1)
    ]
    if len(called) != len(runs) or len(set(called)) != len(runs):
        raise OptionError(f"names are {', '.join(called)}: one a run is needed, all different")
    return dict(zip(called, runs, strict=True))


def loaded(runs: Mapping[str, Run]) -> Results:
    """Return the results of runs."""
    return {
        name: run if isinstance(run, Evaluation) else Evaluation.load(run)
        for name, run in runs.items()
    }


def with_metrics(results: Results, metrics: str | Sequence[str] | None) -> Results:
    """Return results with these metrics; with their own for None."""
    if metrics is None:
        return results
    wanted = names_of(metrics, "metrics")
    return {name: one.with_options(metrics=wanted) for name, one in results.items()}
