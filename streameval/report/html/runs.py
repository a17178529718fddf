"""The runs of a report, and whether they can be compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streameval.errors import InputError, OptionError
from streameval.metrics.resampling import Resampling
from streameval.result import Evaluation, paired
from streameval.result.summary import read_summary


@dataclass(frozen=True, eq=False)
class Run:
    """One saved result.

    Attributes
    ----------
    name : str
    result : Evaluation
    provenance : dict
        Of its summary: with the version that wrote it.
    """

    name: str
    result: Evaluation
    provenance: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of a report.

    Attributes
    ----------
    all : tuple of Run
    comparison : Comparison, optional
        With the first; None where there is one run, or they can't be compared.
    reason : str
        Why they can't; empty otherwise.
    """

    all: tuple[Run, ...]
    comparison: paired.Comparison | None = None
    reason: str = ""

    @property
    def results(self) -> dict[str, Evaluation]:
        """The results by name."""
        return {run.name: run.result for run in self.all}

    @property
    def of_same_queries(self) -> list[tuple[Run, ...]]:
        """The runs, those together that can be compared query by query."""
        return [self.all] if self.comparison is not None else [(run,) for run in self.all]


def runs_of(
    folders: Sequence[str | Path],
    names: Sequence[str],
    how: Resampling,
    despite: Collection[str] = (),
) -> Runs:
    """Load saved results, and compare them with the first where that is possible.

    Parameters
    ----------
    folders, names : sequence of str
        Names are all different.
    how : Resampling
        How the intervals of differences are made.
    despite : collection of str
        See `paired.compare`.

    Raises
    ------
    OutputError
        If a folder holds no result.
    OptionError
        If `despite` is unknown.
    """
    unknown = [one for one in despite if one not in paired.KINDS]
    if unknown:
        raise OptionError(f"despite is {unknown[0]!r}; known: {', '.join(paired.KINDS)}")
    runs = tuple(
        Run(name, Evaluation.load(folder), read_summary(Path(folder))["provenance"])
        for name, folder in zip(names, folders, strict=True)
    )
    if len(runs) < 2:
        return Runs(runs)
    try:
        comparison = paired.compare(
            *(run.result for run in runs),
            names=names,
            level=how.level,
            resamples=how.resamples,
            seed=how.seed,
            despite=despite,
        )
    except (InputError, OptionError) as error:
        return Runs(runs, reason=str(error))
    return Runs(runs, comparison)
