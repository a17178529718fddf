"""Figures as data: what is compared with what, and the bound that it has to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

import numpy as np

import streameval as se
from benchmarks.measure import Reading, Samples, Sides, in_turn, off_line, ratio, value

Direction = Literal["at most", "at least"]
Kind = Literal["ratio", "value", "line"]

READERS: Mapping[Kind, Callable[[Samples], Reading]] = {
    "ratio": ratio,
    "value": value,
    "line": off_line,
}
ROUNDS = 5
QUICK_PATIENCE = 2.5  # seconds for the sides of a case, after which three rounds will do
BUDGET = 2_000_000_000  # bytes


class Skip(Exception):  # noqa: N818 - an event, not an error
    """Says why a case can't be measured here."""


@dataclass(frozen=True)
class Figure:
    """One number and its bound.

    Attributes
    ----------
    name : str
        ``group/case/figure``; the same whatever the sizes.
    sides : tuple of str
        Sides of its case. A ratio divides the first by the second, a value is the first, and
        the others are shown beside it; a line takes all sides, whose names are sizes.
    bound : float
    direction : {"at most", "at least"}
    kind : {"ratio", "value", "line"}
    unit : str
        Of the samples: "s", "B" or none.
    aim : float, optional
        What is hoped for beyond the bound.
    """

    name: str
    sides: tuple[str, ...]
    bound: float
    direction: Direction = "at most"
    kind: Kind = "ratio"
    unit: str = "s"
    aim: float | None = None

    def met(self, measured: float) -> bool:
        """Whether a measured value keeps the bound."""
        return measured <= self.bound if self.direction == "at most" else measured >= self.bound


@dataclass
class Bench:
    """Where and how thoroughly to measure.

    Attributes
    ----------
    folder : Path
        Where generated inputs live.
    quick : bool
        Smaller sizes.
    rounds : int
        How often each side is measured.
    shrink : int
        Divides the sizes further, for trying the harness itself.
    """

    folder: Path
    quick: bool = False
    rounds: int = ROUNDS
    shrink: int = 1

    def count(self, full: int, quick: int) -> int:
        """Return one of two sizes."""
        return max((quick if self.quick else full) // self.shrink, 16)

    def evaluate(
        self,
        source: se.Features | se.Distances,
        labels: Mapping[str, se.Labels],
        threads: int,
        range: Literal["auto"] | tuple[float, float] = "auto",
        protocol: str = "market1501",
        memory: int = BUDGET,
        metrics: str | None = None,
    ) -> se.Evaluation:
        """Return the whole evaluation, within a budget beside what is held already."""
        return se.evaluate(
            source,
            query=labels["query"],
            gallery=labels["gallery"],
            memory=memory,
            threads=threads,
            range=range,
            protocol=protocol,
            metrics=metrics,
        )

    def time(self, sides: Sides) -> Samples:
        """Measure the sides in turn."""
        return in_turn(sides, self.rounds, patience=QUICK_PATIENCE if self.quick else np.inf)


@dataclass(frozen=True)
class Measured:
    """The samples of a case, and what else is worth recording (the plan, the sizes)."""

    samples: Samples
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """Sides that are measured together, and the figures that they give.

    Attributes
    ----------
    figures : tuple of Figure
    measure : callable
        Takes the bench and returns samples of every side; raises `Skip` where it can't.
    """

    figures: tuple[Figure, ...]
    measure: Callable[[Bench], Measured]


@dataclass(frozen=True)
class Outcome:
    """A figure with its measurement, or with the reason why there is none."""

    figure: Figure
    samples: Samples = field(default_factory=dict)
    reading: Reading | None = None
    skipped: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None where nothing was measured."""
        return None if self.reading is None else self.figure.met(self.reading.value)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        figure, reading = self.figure, self.reading
        return {
            "name": figure.name,
            "kind": figure.kind,
            "sides": list(self.samples) or list(figure.sides),
            "bound": figure.bound,
            "direction": figure.direction,
            "aim": figure.aim,
            "unit": figure.unit,
            "measured": None if reading is None else reading.value,
            "met": self.met,
            "pairwise_median": None if reading is None else reading.pairwise,
            "spread": None if reading is None else [reading.low, reading.high],
            "medians": None if reading is None else dict(reading.medians),
            "samples": {side: list(own) for side, own in self.samples.items()},
            "skipped": self.skipped,
            "details": dict(self.details),
        }


def chosen(cases: Iterable[Case], only: str | None) -> list[Case]:
    """Return the cases with the figures whose name matches: a glob, or a part of the name."""
    kept = []
    for case in cases:
        figures = tuple(
            figure
            for figure in case.figures
            if only is None or only in figure.name or fnmatch(figure.name, only)
        )
        if figures:
            kept.append(Case(figures, case.measure))
    return kept


def run(case: Case, bench: Bench) -> Sequence[Outcome]:
    """Measure a case; one outcome a figure."""
    try:
        measured = case.measure(bench)
    except Skip as reason:
        return [Outcome(figure, skipped=str(reason)) for figure in case.figures]
    outcomes = []
    for figure in case.figures:
        sides = figure.sides if figure.kind != "line" else tuple(measured.samples)
        samples = {side: measured.samples[side] for side in sides}
        reading = READERS[figure.kind](samples)
        outcomes.append(Outcome(figure, samples, reading, details=measured.details))
    return outcomes
