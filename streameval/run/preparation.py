"""Preparation: a request checked against its inputs and planned, before anything large is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from streameval.arrays.fingerprint import of_labels
from streameval.metrics.groups import PositiveCameras
from streameval.planning.plan import Cut, Limits, Plan
from streameval.planning.problem import Problem, ShotSizes
from streameval.planning.range import UNUSED, Range
from streameval.protocols.agreement import multiplicities
from streameval.protocols.counts import PairCounts
from streameval.protocols.finder import junk_column
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import PairSource
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT, Protocol
from streameval.request import Request
from streameval.result.groups import check_group_column, group_labels, histogram_groups
from streameval.run.session import Session
from streameval.single_shot.counter import Shots, entries_of_query
from streameval.source import Source
from streameval.statistics import SHOT_FIELDS
from streameval.typing import AnyArray, IntArray, JsonObject

THRESHOLDS = 101
ASSUMED_POSITIVES = 50  # a query, where the work is planned before there are labels
BINS = 1000  # of the histogram of impostors


@dataclass(frozen=True, eq=False)
class Planned:
    """A request that is checked and planned, from the numbers of its pairs alone.

    Attributes
    ----------
    request : Request
        Its source is checked.
    problem : Problem
    limits : Limits
        What the plan may take.
    plan : Plan
    range : Range or None
        None: to be found in a pass over the data, see `range_name`.
    counts : PairCounts
        The numbers of the pairs.
    columns : mapping of str to [Q] array
        Labels of the queries, for the per-query table and for groups: ``id``, ``cam`` where
        there is one, and further ones; none of floats.
    groups : [Q] int64, optional
        The group of each query, where the histogram of impostors is kept by group, too.
    """

    request: Request
    problem: Problem
    limits: Limits
    plan: Plan
    range: Range | None
    counts: PairCounts
    columns: Mapping[str, AnyArray]
    groups: IntArray | None

    @property
    def source(self) -> Source:
        """The source of the request."""
        return self.request.source

    @property
    def range_name(self) -> str:
        """Which range the data give: ``minmax-all``, or else ``minmax``."""
        return "minmax-all" if self.request.range == "minmax-all" else "minmax"


@dataclass(frozen=True, eq=False)
class Prepared(Planned):
    """A request that is planned, and whose pairs are found.

    Attributes
    ----------
    request : Request
        Without labels.
    pairs : PairSource
        Of all queries, found; those of one round, where there are several.
    shots : Shots, optional
        Where one item is drawn of each gallery identity.
    cams : PositiveCameras, optional
        Of the gallery's items, where both sides have cameras.
    label_fingerprints : mapping of str to str
        Of the gallery's labels, which a result does not hold.
    """

    pairs: PairSource
    shots: Shots | None = None
    cams: PositiveCameras | None = None
    label_fingerprints: Mapping[str, str] = field(default_factory=dict)

    def with_range_from_data(self) -> Prepared:
        """Return the same evaluation, cut in the same way, with ``range="minmax"``."""
        problem = self.source.with_range_pass(self.problem)
        again = self.source.plan(problem, self.limits)
        plan = replace(self.plan, bytes_read=again.bytes_read, flops=again.flops)
        return replace(self, problem=problem, plan=plan, range=None)

    def with_cut(self, cut: Cut) -> Plan:
        """Return the plan with the cut of an earlier one, if that fits; else its own."""
        return self.source.plan(self.problem, replace(self.limits, cut=cut))

    def range_summary(self, used: Range) -> JsonObject:
        """Return the mode and the bounds of the range that was used, for the summary."""
        if not (self.problem.thresholds or self.problem.edges):
            return {**UNUSED}
        if np.isnan(used.low):  # lists don't tell
            return {**UNUSED, "mode": "unknown"}
        return used.summary | ({} if self.range is not None else {"mode": self.range_name})


def prepare(request: Request, session: Session) -> Prepared:
    """Check and plan a request, and find its pairs."""
    return with_pairs(plan_request(request, session))


def plan_request(request: Request, session: Session) -> Planned:
    """Check the inputs of a request, count its pairs, and plan the work.

    No pair is listed; see `PairCounts`. Without labels it is planned for some positives a query,
    and can't be run. No more is counted than the metrics need.
    """
    source = request.source.check(request)
    request = request.with_source(source)
    used = request.range if isinstance(request.range, Range) else None
    given = used is not None
    if request.range == "auto":
        used = source.bounds()
    needs, query, gallery = request.fields_needed, request.query, request.gallery
    columns: Mapping[str, AnyArray] = {}
    groups = shots = None
    if query is None or gallery is None:
        counts = PairCounts.assumed(source.shape[0], ASSUMED_POSITIVES)
    else:
        counts = PairCounts.of(query, gallery, request.protocol, request.listed)
        columns = label_columns(query)
        _check_groups(request, columns, gallery.cam if gallery.has_every("cam") else None)
        if "impostor_histogram" in needs and request.group_by is not None:
            groups = histogram_groups(request.group_by, columns)
        if _draws(request):
            shots = shot_sizes(gallery, request.protocol, counts, needs)
    problem = source.problem(counts)
    problem = replace(
        problem,
        pairs=replace(problem.pairs, most=counts.most()),
        groups=0 if groups is None else int(groups.max()) + 1,
        thresholds=THRESHOLDS if "negatives_within" in needs or given else 0,
        edges=BINS + 1 if "impostor_histogram" in needs else 0,
        extra_passes=int(bool(request.refine)),
        shots=shots,
    )
    if not problem.thresholds and not problem.edges:
        used = Range(0.0, 1.0)  # nothing is read off it
    if used is None:
        problem = source.with_range_pass(problem)
    limits = replace(session.limits(source), tile=request.tile)
    plan = source.plan(problem, limits)
    kept = {name: values for name, values in columns.items() if values.dtype.kind != "f"}
    return Planned(request, problem, limits, plan, used, counts, kept, groups)


def with_pairs(planned: Planned) -> Prepared:
    """Find the pairs of what is planned, and what goes with them."""
    request = planned.request
    query, gallery, protocol = request.query, request.gallery, request.protocol
    if query is None or gallery is None:
        raise RuntimeError("without labels there are no pairs to find")
    own = {one.name: getattr(planned, one.name) for one in fields(planned)}
    own["request"] = request.without_labels()
    pairs = PairSource(query, gallery, protocol, request.listed, planned.counts)
    if not planned.plan.round:
        pairs.block(0, pairs.queries)
    shots = cams = None
    if _draws(request):
        draws = protocol.shot_draws if "sampled_shots" in request.fields_needed else 0
        most = int(planned.counts.positive.max(initial=0))
        shots = Shots.of(gallery, pairs.junk, most, draws, protocol.shot_seed)
    if gallery.cam is not None and query.has_every("cam") and gallery.has_every("cam"):
        cams = PositiveCameras.of([gallery.cam], by_item=True)
    listed = None if request.listed is None else pairs.listed_items()
    fingerprints = gallery_fingerprints(gallery, listed)
    return Prepared(**own, pairs=pairs, shots=shots, cams=cams, label_fingerprints=fingerprints)


def _draws(request: Request) -> bool:
    """Return whether an item of each gallery identity is drawn."""
    needs = request.fields_needed
    return request.protocol.cmc == SINGLE_GALLERY_SHOT and not needs.isdisjoint(SHOT_FIELDS)


def _check_groups(request: Request, columns: Mapping[str, AnyArray], cams: AnyArray | None) -> None:
    """Check, before any work, that each query has a label of a group."""
    group_by = request.group_by
    if group_by is None:
        return
    if isinstance(group_by, str):
        check_group_column(group_by, columns, cams)
    else:
        group_labels(group_by, request.source.shape[0])


def label_columns(labels: Labels) -> dict[str, AnyArray]:
    """Return the columns by which queries may be grouped, or galleries differ: all but ``key``."""
    return {name: values for name, values in labels.columns.items() if name != "key"}


def gallery_fingerprints(gallery: Labels, listed: IntArray | None) -> dict[str, str]:
    """Return fingerprints of a gallery's labels, and of the pairs that are listed, if any are.

    Of labels only: a second for ten million at most, as `find_pairs`. Features or distances cost
    a read, and differ between the models that are compared, whether or not the images do.
    """
    names = {"id": "ids", "cam": "cams"}
    columns = {f"gallery {names.get(name, name)}": v for name, v in label_columns(gallery).items()}
    columns |= {} if listed is None else {"listed pairs": listed}
    return {name: of_labels(labels) for name, labels in columns.items()}


def shot_sizes(
    gallery: Labels, protocol: Protocol, counts: PairCounts, needs: frozenset[str]
) -> ShotSizes:
    """Return the sizes of what is drawn from under single gallery shot."""
    items, number = multiplicities(gallery.id, without=junk_column(gallery, protocol))
    entries = entries_of_query(items, number, int(counts.positive.max(initial=0)))
    return ShotSizes(int(number.sum()), entries, len(needs & SHOT_FIELDS))
