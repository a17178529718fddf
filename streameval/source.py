"""Source: where the distances of an evaluation come from.

The orchestrator asks nothing about the kind of a source. Fingerprints, the manifest for resuming,
the provenance and what is sent to workers are derived from `inputs` and `options`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streameval.arrays.array import Array
from streameval.arrays.fingerprint import fingerprint, of_file
from streameval.errors import InputError
from streameval.metrics.bounds import ListReading
from streameval.planning.plan import Limits, Plan
from streameval.planning.problem import Data, PairSizes, Problem
from streameval.planning.range import Range
from streameval.statistics import RankStatistics
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from streameval.protocols.counts import PairCounts
    from streameval.protocols.labels import Labels
    from streameval.protocols.views import View
    from streameval.request import Request
    from streameval.run.preparation import Planned, Prepared
    from streameval.run.session import Session


@dataclass(frozen=True)
class PlanText:
    """A plan in words.

    Attributes
    ----------
    layout : str
        How the data are gone through.
    tile : str
        What is read at a time.
    multiplier : str
        What computes products.
    sieve : str
        What marks pairs where ranks alone are counted; "" where nothing does.
    """

    layout: str
    tile: str
    multiplier: str = ""
    sieve: str = ""


@dataclass(frozen=True, eq=False)
class Input:
    """An array or a file that a source reads.

    Attributes
    ----------
    key : str
        Its name in the provenance of a result: ``query``.
    name : str
        Its name for people: ``query features``.
    data : Array or Path
    by_workers : bool
        Whether the workers of a cluster read it.
    """

    key: str
    name: str
    data: Array | Path
    by_workers: bool = True

    @property
    def uri(self) -> str:
        """Where it lies."""
        return self.data.uri if isinstance(self.data, Array) else str(self.data)

    def fingerprint(self) -> str:
        """Return a digest of the content."""
        return fingerprint(self.data) if isinstance(self.data, Array) else of_file(self.data)

    @property
    def sent_bytes(self) -> int:
        """Bytes that are sent to each worker: of an array in memory, which has no path."""
        if not self.by_workers or isinstance(self.data, Path):
            return 0
        return self.data.sent_bytes


@dataclass(frozen=True, eq=False)
class Counted:
    """What a source has counted.

    Attributes
    ----------
    statistics : RankStatistics
    range : Range
        The range of the distances that was used; NaN where it is not known.
    reading : ListReading or None
        How far lists of neighbours tell.
    facts : dict of str to JSON value
        For the provenance of the result.
    """

    statistics: RankStatistics
    range: Range
    reading: ListReading | None = None
    facts: JsonObject = field(default_factory=dict)


class Source(ABC):
    """Where the distances of Q queries to G gallery items come from."""

    depends_on_reading: bool = False
    """Whether what is counted depends on how the counts are read."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""

    @abstractmethod
    def inputs(self) -> tuple[Input, ...]:
        """Return the arrays and files that are read."""

    @abstractmethod
    def options(self) -> Mapping[str, Any]:
        """Return what distances depend on beside the inputs, as JSON values: the metric."""

    @abstractmethod
    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""

    def check(self, request: Request) -> Source:
        """Return the source as it is evaluated, checked against the request.

        Raises
        ------
        InputError
            If labels don't fit, or the inputs can't be evaluated.
        OptionError
            If the source can't give what is asked for.
        """
        self.check_rows(request.query, request.gallery)
        return self

    def check_rows(self, query: Labels | None, gallery: Labels | None) -> None:
        """Check that there is a label for each query and each gallery item.

        Raises
        ------
        InputError
        """
        if query is None or gallery is None:
            return
        labels = query, gallery
        per = "one id a query is needed", "one id a gallery item is needed"
        for side, size, label, needed in zip(self.sides(), self.shape, labels, per, strict=True):
            if len(label) != size:
                raise InputError(f"{side}, and {label.source} {len(label)} ids: {needed}")
        if self.shape[0] == 0:
            raise InputError(f"{self.sides()[0]}: at least one query is needed")

    def check_views(self, views: Sequence[View]) -> None:  # noqa: B027 - most sources take any
        """Raise OptionError for views that the source can't give."""

    def bounds(self) -> Range | None:
        """Return the range that distances are known to lie in; None where it is not known."""
        return None

    @abstractmethod
    def data(self) -> Data:
        """Return the sizes of what distances are read or computed from."""

    def problem(self, counts: PairCounts) -> Problem:
        """Return the sizes of an evaluation without thresholds or a histogram."""
        return Problem(
            *self.shape,
            PairSizes(int(counts.positive.sum()), int(counts.listed.sum()), counts.classes),
            self.data(),
        )

    def with_range_pass(self, problem: Problem) -> Problem:
        """Return the sizes of the same evaluation, its range found in a pass over the data."""
        return replace(problem, extra_passes=problem.extra_passes + 1)

    @abstractmethod
    def plan(self, problem: Problem, limits: Limits) -> Plan:
        """Return how the work is cut.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """

    @abstractmethod
    def passes(self, planned: Planned) -> list[str]:
        """Return the names of the passes over the data, in order."""

    @abstractmethod
    def describe_plan(self, plan: Plan) -> PlanText:
        """Return in words what is read, and multiplied, at a time."""

    def ready(self, session: Session, limits: Limits) -> Source:
        """Return the source as it is counted, once what that needs is made.

        Parameters
        ----------
        session : Session
        limits : Limits
            What the work may take.
        """
        return self

    @abstractmethod
    def count(self, prepared: Sequence[Prepared], session: Session) -> list[Counted]:
        """Return the statistics of all pairs, of each of several evaluations with one plan.

        Raises
        ------
        NotUnitError
            If the range relies on vectors of length 1, and there are others.
        """

    def first_bad_row(self, stop: int) -> None:  # noqa: B027 - most sources have none
        """Raise InputError for the first row below `stop` that can't be evaluated, if any.

        A pass may meet a later row first.
        """
