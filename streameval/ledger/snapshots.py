"""Snapshots: the statistics of a state, and what the trajectory tells of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import StreamevalWarning
from streameval.ledger.forecast import Forecast
from streameval.ledger.head import Settings
from streameval.ledger.sources import Gallery
from streameval.ledger.state import State
from streameval.protocols.protocol import Labels
from streameval.result import Evaluation
from streameval.result.summary import plain
from streameval.run.preparation import UNUSED, query_columns
from streameval.statistics import FloatArray, RankStatistics

POSITIVE, NEGATIVE, EXCLUDED = "positive", "negative", "excluded"


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
    segments, queries, gallery : int
        How many there are after the change.
    metrics : dict of str to float or None
        All scalar metrics; None where undefined.
    counts : dict of str to int
        As in ``summary.json``.
    sides : dict of str to int
        How many queries went from one side to another, as ``"negative>positive"``.
    pairs, rescanned : int
        Pairs that were counted for the change, and how many of these were of old segments.
    seconds : float
        That the change took.
    """

    number: int
    time: str
    change: str
    name: str
    segments: int
    queries: int
    gallery: int
    metrics: Mapping[str, float | None]
    counts: Mapping[str, int]
    sides: Mapping[str, int]
    pairs: int
    rescanned: int
    seconds: float


def range_summary(settings: Settings) -> dict[str, Any]:
    """Describe the range, as `Prepared.range_summary` does."""
    used = settings.range
    if used is None:
        return {"mode": UNUSED, "low": None, "high": None}
    return {"mode": "given" if used.strict else "auto", "low": used.low, "high": used.high}


def statistics_of(state: State, gallery: Gallery | None) -> RankStatistics:
    """Return the statistics of a state, as an evaluation of its gallery has them.

    Without its labels, they don't have the items of the positives.
    """
    head, positives, totals = state.head, state.positives, state.totals
    settings = head.settings
    item, begin = np.empty(len(positives), np.int64), 0
    for segment in head.segments if gallery is not None else ():
        own = positives.segment == segment.number
        index = positives.index[own]
        if segment.forgotten and gallery is not None:
            index = index - np.searchsorted(gallery.forgotten(segment), index)
        item[own] = begin + index
        begin += segment.items
    thresholds: FloatArray = np.empty(0)
    edges = None
    if settings.range is not None:
        thresholds, edges = settings.range.limits(settings.thresholds, settings.edges)
    return RankStatistics(
        indptr=positives.indptr(np.arange(head.queries)),
        positive_distance=positives.distance,
        thresholds=thresholds,
        closer=positives.closer,
        tied=positives.tied,
        tied_before=positives.before,
        negatives_within=totals.within,
        nearest_negative=totals.nearest,
        valid=np.ascontiguousarray(totals.per_query[:, 0]),
        ignored=np.ascontiguousarray(totals.per_query[:, 1]),
        same_identity=np.ascontiguousarray(totals.per_query[:, 2]),
        positive_item=None if gallery is None else item,
        impostor_histogram=None if edges is None else totals.histogram,
        histogram_edges=edges,
    )


def sides_of(state: State) -> npt.NDArray[Any]:
    """Return the side of each query: positive (Q+), negative (Q−) or excluded."""
    has = np.zeros(state.head.queries, np.bool_)
    has[state.positives.query] = True
    absent = state.totals.per_query[:, 2] == 0
    return np.where(has, POSITIVE, np.where(absent, NEGATIVE, EXCLUDED))


def entry_of(
    before: State,
    after: State,
    columns: Mapping[str, Any],
    what: tuple[str, str],
    work: Forecast,
    seconds: float,
) -> dict[str, Any]:
    """Return the entry of the trajectory for a change: its kind and name, its work."""
    head = after.head
    metrics, counts = _scalars(after, columns)
    was, now = sides_of(before), sides_of(after)
    sides: dict[str, int] = {}
    for one, other in zip(was, now[: len(was)], strict=True):
        if one != other:
            sides[f"{one}>{other}"] = sides.get(f"{one}>{other}", 0) + 1
    entry = Snapshot(
        number=len(before.head.happened),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        change=what[0],
        name=what[1],
        segments=len(head.segments),
        queries=head.queries,
        gallery=head.gallery,
        metrics=metrics,
        counts=counts,
        sides=sides,
        pairs=work.pairs,
        rescanned=work.rescanned,
        seconds=round(seconds, 3),
    )
    written: dict[str, Any] = plain(asdict(entry))
    return written


def scalars_of(
    state: State, queries: Labels
) -> tuple[Mapping[str, float | None], Mapping[str, int]]:
    """Return the metrics and counts of a state, as the trajectory has them."""
    metrics, counts = _scalars(state, query_columns(queries))
    return plain(metrics), counts


def _scalars(
    state: State, columns: Mapping[str, Any]
) -> tuple[Mapping[str, float], Mapping[str, int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)  # said where the result is asked for
        result = Evaluation.compute(
            statistics_of(state, None),
            state.head.settings.options,
            range=range_summary(state.head.settings),
            columns=columns,
            provenance={},
        )
    return result.metrics.scalars, result.counts
