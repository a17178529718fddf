"""The trajectory of a ledger: an entry for each snapshot; and the forecast of a change."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from streameval.errors import StreamevalWarning
from streameval.ledger.head import Settings, as_line
from streameval.ledger.state import State
from streameval.metrics.groups import PositiveCameras
from streameval.planning.range import UNUSED
from streameval.planning.shards import ROW_PAIRS
from streameval.protocols.labels import Labels
from streameval.result import Evaluation
from streameval.result.saved import plain
from streameval.run.preparation import label_columns
from streameval.statistics import RankStatistics
from streameval.typing import AnyArray, JsonObject

RANK = 0.75  # what a pair takes that is counted for ranks alone
NEAR = 1.7  # and where the nearest negatives are looked for from nothing


@dataclass(frozen=True)
class Forecast:
    """Work of a change, computed in advance from the distances of the new positives.

    Attributes
    ----------
    segment : int
        Pairs of all queries with the new segment.
    rescanned : int
        Pairs of old segments that are counted again.
    queries : int
        The queries for which they are.
    full : int
        Pairs of a full evaluation of the gallery after the change.
    items, old : int
        Items of the segment, and of old segments that are read again.
    searched : int
        Pairs of old segments among which nearest negatives are looked for again.
    features : bool
        Whether distances are computed.
    """

    segment: int = 0
    rescanned: int = 0
    queries: int = 0
    full: int = 0
    items: int = 0
    old: int = 0
    searched: int = 0
    features: bool = False

    @property
    def pairs(self) -> int:
        """Total number of pairs."""
        return self.segment + self.rescanned

    @property
    def share(self) -> float:
        """Fraction of the work of a full evaluation, in pairs and rows of features read."""
        row = ROW_PAIRS if self.features else 0
        gallery = self.items * self.full / self.segment if self.segment else 0.0
        whole = self.full + row * gallery
        again = RANK * (self.rescanned - self.searched) + NEAR * self.searched
        work = self.segment + again + row * (self.items + self.old)
        return work / whole if whole else 0.0


Change = tuple[State, str, Forecast]
"""The state after a change, the name of what was changed, and what was counted for it."""


@dataclass(frozen=True)
class Snapshot:
    """An entry of the trajectory.

    Attributes
    ----------
    number : int
        0 for the ledger without a gallery; what ``at`` and ``--at`` take.
    time : str
        UTC, ISO 8601.
    change : str
        ``create``, ``append``, ``remove``, ``forget``, ``add-queries``, ``move``.
    name : str
        Of the segment, or what was changed.
    segments, gallery : int
        Number of segments and of items after the change.
    metrics : dict of str to float or None
        All scalar metrics; None where undefined.
    counts : dict of str to int
        As in ``summary.json``.
    sides : dict of str to int
        Number of queries that changed class, such as ``"negative>positive"``.
    pairs, rescanned : int
        Pairs that were counted for the change, and how many of these were of old segments.
    seconds : float
        Duration of the change.
    """

    number: int
    time: str
    change: str
    name: str
    segments: int
    gallery: int
    metrics: Mapping[str, float | None]
    counts: Mapping[str, int]
    sides: Mapping[str, int]
    pairs: int
    rescanned: int
    seconds: float

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot of an entry as it is written."""
        return cls(**{name: value for name, value in entry.items() if name != "queries"})

    @property
    def queries(self) -> int:
        """Number of queries after the change."""
        return self.counts["queries"]

    def entry(self) -> JsonObject:
        """Return the entry as it is written: JSON values."""
        return plain(asdict(self)) | {"queries": self.queries}


def _sides(statistics: RankStatistics) -> AnyArray:
    """Return the side of each query: positive (Q+), negative (Q−) or excluded."""
    sides = [statistics.has_positive, statistics.identity_absent]
    return np.select(sides, ["positive", "negative"], "excluded")


def with_snapshot(
    before: State, change: Change, kind: str, queries: Labels, seconds: float = 0.0
) -> tuple[State, Snapshot]:
    """Return the state after a change of some kind, its snapshot in the trajectory; and that."""
    after, name, work = change
    metrics, counts = scalars_of(after, queries)
    moves = zip(_sides(before.statistics), _sides(after.statistics), strict=False)  # queries grow
    head = after.head
    snapshot = Snapshot(
        number=len(head.happened),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        change=kind,
        name=name,
        segments=len(head.segments),
        gallery=head.gallery,
        metrics=metrics,
        counts=counts,
        sides=dict(Counter(f"{old}>{new}" for old, new in moves if old != new)),
        pairs=work.pairs,
        rescanned=work.rescanned,
        seconds=round(seconds, 3),
    )
    happened = *head.happened, as_line(snapshot.entry())
    return replace(after, head=replace(head, happened=happened)), snapshot


def scalars_of(
    state: State, queries: Labels
) -> tuple[Mapping[str, float | None], Mapping[str, int]]:
    """Return the metrics and counts of a state, as the trajectory has them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)  # said where the result is asked for
        result = result_of(state.statistics, state.head.settings, queries, {})
    return plain(result.metrics.scalars), result.counts


def result_of(
    statistics: RankStatistics,
    settings: Settings,
    queries: Labels,
    provenance: JsonObject,
    cams: PositiveCameras | None = None,
) -> Evaluation:
    """Return the result of a ledger's statistics."""
    return Evaluation.compute(
        statistics,
        settings.options,
        range={**UNUSED} if settings.range is None else settings.range.summary,
        columns=label_columns(queries),
        provenance=provenance,
        positive_cams=cams,
    )
