"""Preparation: inputs checked, protocol applied, work planned, before anything large is read.

checks  whether inputs, options and protocol fit together
sizes   what the plan is made from: of the evaluation, of this machine, and of texts
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streameval.arrays.fingerprint import of_labels
from streameval.errors import OptionError, StreamevalWarning
from streameval.kernels.products import advice
from streameval.metrics.camera_pairs import PositiveCameras
from streameval.metrics.metric import Measure
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions, is_count
from streameval.metrics.selection import refined_measures, required_fields
from streameval.neighbors.plan import plan_lists
from streameval.neighbors.source import Neighbors, Source
from streameval.planning import RESERVED, Plan, Problem, Workers, make_plan
from streameval.protocols.listed import ListedPairs
from streameval.protocols.pairs import Pairs, find_pairs
from streameval.protocols.protocol import (
    SINGLE_GALLERY_SHOT,
    AnyArray,
    Labels,
    Protocol,
    with_options,
)
from streameval.result.columns import histogram_groups
from streameval.run.checks import (
    RangeOption,
    check_labels,
    check_lists,
    check_rows,
    check_shots,
    check_source,
    resolve_options,
    resolve_range,
)
from streameval.run.job import Range
from streameval.run.sizes import (
    cores,
    list_sizes,
    parse_bytes,
    problem_of,
    reserved_bytes,
    shot_sizes,
    thread_count,
)
from streameval.single_shot.identities import Identities, find_identities
from streameval.sources.sources import Distances, Features
from streameval.statistics import SHOT_FIELDS, IntArray

__all__ = [
    "BINS",
    "DEFAULT_MEMORY",
    "THRESHOLDS",
    "UNUSED",
    "Prepared",
    "RangeOption",
    "check_labels",
    "check_rows",
    "check_shots",
    "check_source",
    "cores",
    "list_sizes",
    "parse_bytes",
    "prepare",
    "problem_of",
    "query_columns",
    "reserved_bytes",
    "resolve_options",
    "resolve_range",
    "thread_count",
]

DEFAULT_MEMORY = "2GB"
UNUSED = "unused"  # the range, where nothing is read off it
THRESHOLDS = 101
ASSUMED_POSITIVES = 50  # a query, where the work is planned before there are labels
BINS = 1000  # of the histogram of impostors


@dataclass(frozen=True, eq=False)
class Prepared:
    """An evaluation that is checked and planned, before anything large is read.

    Attributes
    ----------
    source : Features, Distances or Neighbors
    pairs : Pairs
    protocol : Protocol
    problem : Problem
    plan : Plan
    range : Range or None
        None: to be found in a pass over the data.
    refine : tuple of Measure
        Whose thresholds further passes settle.
    workers : Workers, optional
        Of the cluster that the plan is for.
    groups : [Q] int64, optional
        Which group each query is in, where the histogram of impostors is kept by group, too.
    query_columns : mapping of str to [Q] array
        Labels of the queries, for the per-query table and for groups: ``id``, ``cam`` where
        there is one, and further ones.
    identities : Identities, optional
        Of the gallery, where one item each of them is drawn.
    positive_cams : PositiveCameras, optional
        Of the positive pairs as `Pairs.positives` lists them, where both sides have cameras.
    label_fingerprints : dict of str to str
        What galleries are told apart by, which a result does not hold: see
        `gallery_fingerprints`.
    """

    source: Source
    pairs: Pairs
    protocol: Protocol
    problem: Problem
    plan: Plan
    range: Range | None
    query_columns: Mapping[str, AnyArray]
    refine: tuple[Measure, ...] = ()
    identities: Identities | None = None
    positive_cams: PositiveCameras | None = None
    workers: Workers | None = None
    groups: IntArray | None = None
    label_fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> Features | Distances | None:
        """What distances are computed from, or stored in; None of lists alone."""
        return self.source.features if isinstance(self.source, Neighbors) else self.source

    @property
    def uses_range(self) -> bool:
        """Whether anything is counted that a range of the distances is needed for."""
        return bool(self.problem.thresholds or self.problem.edges)

    def with_range_from_data(self) -> Prepared:
        """Return the same evaluation, cut in the same way, with ``range="minmax"``."""
        if isinstance(self.source, Neighbors):  # all distances are listed, or there is no range
            return replace(self, range=None)
        problem = replace(self.problem, passes_for_range=1)
        again = make_plan(
            problem,
            memory=self.plan.memory,
            threads=self.plan.threads,
            reserved=(self.plan.client or self.plan.parts)[RESERVED],
            tile=self.plan.tile,
            workers=self.workers,
        )
        plan = replace(self.plan, bytes_read=again.bytes_read, flops=again.flops)
        return replace(self, problem=problem, plan=plan, range=None)

    def range_summary(self, used: Range) -> dict[str, Any]:
        """Describe the range that was used, for the summary."""
        if not self.uses_range:
            return {"mode": UNUSED, "low": None, "high": None}
        if np.isnan(used.low):  # lists don't tell
            return {"mode": "unknown", "low": None, "high": None}
        mode = "minmax" if self.range is None else "given" if used.strict else "auto"
        return {"mode": mode, "low": used.low, "high": used.high}


def prepare(
    source: Source,
    *,
    query: Labels | None,
    gallery: Labels | None,
    protocol: str | Protocol = "market1501",
    junk_ids: Sequence[int | str] | None = None,
    self_match: Literal["index", "key"] | None = None,
    shot_draws: int | None = None,
    shot_seed: int | None = None,
    listed: ListedPairs | None = None,
    range: RangeOption = "auto",
    options: MetricOptions = DEFAULT_OPTIONS,
    refine: Sequence[str] = (),
    group_by: str | npt.ArrayLike | None = None,
    memory: str | int = DEFAULT_MEMORY,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    workers: Workers | None = None,
) -> Prepared:
    """Check the inputs and plan the work; the parameters are those of `evaluate`.

    `workers` are those of the cluster that the work is planned for, if it is for one. Without
    labels it is planned for some positives a query, and can't be run.

    No more is counted than the metrics of the options need, and those to be refined.

    Raises
    ------
    InputError, OptionError, BudgetError
        As `evaluate` does.
    """
    if query is not None and gallery is not None:
        if isinstance(source, Neighbors):
            source = source.of_gallery(len(gallery))
        check_rows(source, query, gallery)
    if isinstance(source, Neighbors):
        check_lists(source, options, protocol, refine)
        source = source.checked()
    protocol = with_options(
        protocol,
        junk_ids=junk_ids,
        self_match=self_match,
        shot_draws=shot_draws,
        shot_seed=shot_seed,
    )
    threads = thread_count(threads)
    if tile is not None:
        if np.shape(tile) != (2,) or not all(map(is_count, tile)):
            raise OptionError(f"tile is {tile!r}; two sizes of at least 1 are needed")
        tile = int(tile[0]), int(tile[1])
    measures = tuple(refined_measures(refine))
    options = resolve_options(options, protocol, measures)
    features = source.features if isinstance(source, Neighbors) else source
    if isinstance(source, Features) and advice():
        warnings.warn(advice(), StreamevalWarning, stacklevel=3)
    needs = required_fields(options)
    check_shots(options, protocol)
    wanted = resolve_range(range, features)
    given = wanted is not None and wanted.strict
    columns: Mapping[str, AnyArray] = {}
    identities = cams = None
    fingerprints: Mapping[str, str] = {}
    if query is None or gallery is None:
        pairs = Pairs.assumed(*source.shape, ASSUMED_POSITIVES)
    else:
        pairs, columns = find_pairs(query, gallery, protocol, listed), query_columns(query)
        fingerprints = gallery_fingerprints(gallery, None if listed is None else pairs)
        if protocol.cmc == SINGLE_GALLERY_SHOT and not needs.isdisjoint(SHOT_FIELDS):
            identities = find_identities(gallery, pairs)
        if query.cam is not None and gallery.cam is not None:
            cams = PositiveCameras.of(gallery.cam[pairs.positives()[1]])
    groups = None
    if "impostor_histogram" in needs and group_by is not None and columns:
        groups = histogram_groups(group_by, columns)
    problem = replace(
        problem_of(source, pairs),
        groups=0 if groups is None else int(groups.max()) + 1,
        thresholds=THRESHOLDS if "negatives_within" in needs or given else 0,
        edges=BINS + 1 if "impostor_histogram" in needs else 0,
        passes_to_refine=int(bool(measures)),
        shots=None if identities is None else shot_sizes(pairs, identities, needs),
    )
    if not problem.thresholds and not problem.edges:
        wanted = Range(0.0, 1.0)  # what for is not asked
    limits: dict[str, Any] = {
        "memory": parse_bytes(memory),
        "threads": threads,
        "reserved": reserved_bytes(),
        "workers": workers,
    }
    if isinstance(source, Neighbors):
        plan = plan_lists(problem, list_sizes(source), **limits)
    else:
        problem = replace(problem, passes_for_range=int(wanted is None))
        plan = make_plan(problem, tile=tile, **limits)
    return Prepared(
        source,
        pairs,
        protocol,
        problem,
        plan,
        wanted,
        columns,
        measures,
        identities,
        cams,
        workers,
        groups,
        fingerprints,
    )


def query_columns(query: Labels) -> dict[str, AnyArray]:
    """Return the labels of the queries that are kept with a result: ``id``, ``cam``, and more."""
    return {"id": query.id, **({} if query.cam is None else {"cam": query.cam}), **query.more}


def gallery_fingerprints(gallery: Labels, listed: Pairs | None) -> dict[str, str]:
    """Return fingerprints of a gallery's labels, and of the pairs that are listed, if any are.

    Of labels only: a second for ten million at most, as `find_pairs`. Features or distances cost
    a read, and differ between the models that are compared, whether or not the images do.
    """
    columns = {"gallery ids": gallery.id, "gallery cams": gallery.cam}
    columns["listed pairs"] = None if listed is None else listed.item
    return {name: of_labels(column) for name, column in columns.items() if column is not None}
