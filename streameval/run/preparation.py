"""Preparation: a request checked against its inputs and planned, before anything large is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from streameval.arrays.fingerprint import of_labels
from streameval.errors import OptionError
from streameval.kernels.identities import GalleryIdentities
from streameval.metrics.compute import check_matched
from streameval.metrics.groups import PositiveCameras
from streameval.planning.plan import Cut, Limits, Plan
from streameval.planning.problem import (
    IdentitySizes,
    JointSizes,
    PairSizes,
    Problem,
    SharedSizes,
    ShotSizes,
)
from streameval.planning.range import UNUSED, Range
from streameval.protocols.agreement import coded, distinct, multiplicities
from streameval.protocols.base import Base
from streameval.protocols.counts import PairCounts
from streameval.protocols.finder import junk_column
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import PairSource, warn_of_other_identities
from streameval.protocols.protocol import REST, SINGLE_GALLERY_SHOT, Protocol
from streameval.protocols.views import Sides, View, views_of
from streameval.request import Request
from streameval.result.groups import (
    check_group_column,
    check_mean_column,
    group_labels,
    histogram_groups,
)
from streameval.run.drawn import drawn_counts
from streameval.run.session import Session
from streameval.single_shot.counter import Shots, entries_of_query
from streameval.single_shot.draws import Draws, entries_of_draws, group_sizes
from streameval.source import Source
from streameval.statistics import WHOLE_FIELDS
from streameval.typing import AnyArray, IntArray, JsonObject, Span

ROW = "row"  # the column that tells selected queries apart: their rows of the source
THRESHOLDS = 101
ASSUMED_POSITIVES = 50  # a query, where the work is planned before there are labels
BINS = 1000  # of the histogram of impostors


@dataclass(frozen=True, eq=False)
class Planned:
    """A request that is checked and planned, from the numbers of its pairs alone.

    Attributes
    ----------
    request : Request
        Its source is checked; its labels are those of the view.
    view : View
        Which queries rank which items.
    problem : Problem
        Of all evaluations that are counted together.
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
    base : Base, optional
        What its gallery is drawn from, as others are.
    """

    request: Request
    view: View
    problem: Problem
    limits: Limits
    plan: Plan
    range: Range | None
    counts: PairCounts
    columns: Mapping[str, AnyArray]
    groups: IntArray | None
    base: Base | None

    @property
    def source(self) -> Source:
        """The source of the request."""
        return self.request.source

    @property
    def place(self) -> tuple[Protocol, str]:
        """What it is called by among several: its protocol, and the name of its view."""
        return self.request.protocol, self.view.name

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
    identities : GalleryIdentities, Shots or Draws, optional
        Where CMC counts gallery identities.
    cams : PositiveCameras, optional
        Of the gallery's items, where both sides have cameras.
    label_fingerprints : mapping of str to str
        Of the gallery's labels, which a result does not hold.
    """

    pairs: PairSource
    identities: GalleryIdentities | Shots | Draws | None = None
    cams: PositiveCameras | None = None
    label_fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def round_queries(self) -> list[Span]:
        """The queries of each round, as the view numbers them."""
        if not self.plan.round:
            return [(0, self.pairs.queries)]
        return [self.view.spans(queries, (0, 0))[0] for queries in self.plan.round_queries]

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
    """Check and plan a request of one view, and find its pairs."""
    protocol = request.protocol
    if protocol.several:
        raise OptionError(
            f"protocol {protocol.name} makes several evaluations, of trials or of galleries: "
            "evaluate_all returns all of them, and their mean"
        )
    (planned,) = plan_requests([request], session)
    return with_pairs(planned)


class _Counts(NamedTuple):
    """What is known of one evaluation before it is planned."""

    request: Request
    view: View
    counts: PairCounts
    columns: Mapping[str, AnyArray]
    groups: IntArray | None
    base: Base | None
    identities: IdentitySizes | None
    range: Range | None

    @property
    def drawn(self) -> int:
        """Number of its items, if they are drawn from a base."""
        return 0 if self.base is None or self.view.items is None else len(self.view.items)


def plan_requests(requests: Sequence[Request], session: Session) -> list[Planned]:
    """Check the inputs of requests of one source, count their pairs, and plan the work.

    They are planned together, each view of each protocol. No pair is listed; see `PairCounts`.
    Without labels it is planned for some positives a query, and can't be run. No more is counted
    than the metrics need.
    """
    source, *_ = [request.source.check(request) for request in requests]
    known = [one for request in requests for one in _count_views(request.with_source(source))]
    source.check_views([one.view for one in known])
    problem = _problem(source, known)
    unread = not problem.thresholds and not problem.edges
    ranges = [Range(0.0, 1.0) if unread else one.range for one in known]
    if None in ranges:
        problem = source.with_range_pass(problem)
    limits = replace(session.limits(source), tile=requests[0].tile)
    plan = source.plan(problem, limits)
    return [
        Planned(one.request, one.view, problem, limits, plan, used, *one[2:6])
        for one, used in zip(known, ranges, strict=True)
    ]


def _count_views(request: Request) -> list[_Counts]:
    """Check the labels of each view of a request, and count its pairs."""
    used = request.range if isinstance(request.range, Range) else None
    if request.range == "auto":
        used = request.source.bounds()
    query, gallery, protocol = request.query, request.gallery, request.protocol
    if query is None or gallery is None:
        counts = PairCounts.assumed(request.source.shape[0], ASSUMED_POSITIVES)
        return [_Counts(request, View(), counts, {}, None, None, None, used)]
    views = views_of(protocol, query, gallery, request.drawn)
    sides, shape = Sides(query, gallery, protocol), request.source.shape
    known: dict[View, tuple[Base, PairCounts]] = {}
    for base in dict.fromkeys(view.base for view in views):
        if base is not None:
            listed, own = base.listed(request.listed, *shape), [v for v in views if v.base is base]
            made = Base.of(base, sides.of(base), protocol, listed, own)
            known |= {view: (made, counts) for view, counts in drawn_counts(made).items()}
    return [_count(request, view, sides.of(view), used, known.get(view)) for view in views]


def _count(
    request: Request,
    view: View,
    sides: tuple[Labels, Labels],
    used: Range | None,
    drawn: tuple[Base, PairCounts] | None,
) -> _Counts:
    """Check the labels of a view, and count its pairs; where it is drawn, they are counted."""
    groups = identities = None
    query, gallery = sides
    needs, columns = request.fields_needed, label_columns(query)
    if view.queries is not None:
        columns.setdefault(ROW, view.queries)
    listed = view.listed(request.listed, *request.source.shape)
    group_by = _groups_of(request, view)
    request = replace(request, query=query, gallery=gallery, group_by=group_by, listed=listed)
    if drawn is None:
        base, counts = None, PairCounts.of(query, gallery, view.protocol(request.protocol), listed)
    else:
        base, counts = drawn
    check_matched(counts.positive, request.options)
    _check_groups(request, columns, gallery.cam if gallery.has_every("cam") else None)
    if "impostor_histogram" in needs and request.group_by is not None:
        groups = histogram_groups(request.group_by, columns)
    if _counts_identities(request):
        identities = identity_sizes(gallery, request.protocol, counts, needs)
    kept = {name: values for name, values in columns.items() if values.dtype.kind != "f"}
    return _Counts(request, view, counts, kept, groups, base, identities, used)


def _problem(source: Source, known: Sequence[_Counts]) -> Problem:
    """Return the sizes of evaluations that are counted together."""
    first, needs = known[0], frozenset().union(*(one.request.fields_needed for one in known))
    problem = source.problem(first.counts)
    groups = [int(one.groups.max()) + 1 for one in known if one.groups is not None]
    identities = [one.identities for one in known if one.identities is not None]
    given = any(isinstance(one.request.range, Range) for one in known)
    alone = len(known) == 1 and first.view.whole
    asking = 0 if alone else sum(len(one.counts.positive) for one in known)
    return replace(
        problem,
        pairs=_pair_sizes([one.counts for one in known], alone),
        shared=SharedSizes(asking, sum(one.drawn for one in known)),
        groups=max(groups, default=0),
        thresholds=THRESHOLDS if "negatives_within" in needs or given else 0,
        edges=BINS + 1 if "impostor_histogram" in needs else 0,
        extra_passes=int(any(one.request.refine for one in known)),
        identities=JointSizes(tuple(identities)) if identities else None,
    )


def _pair_sizes(counts: Sequence[PairCounts], alone: bool) -> PairSizes:
    """Return the numbers of pairs of evaluations that are counted together, or of one alone."""
    most = [own.most() for own in counts]

    def of_some(queries: int) -> tuple[int, int]:
        each = [
            own(min(queries, len(count.positive))) for own, count in zip(most, counts, strict=True)
        ]
        return sum(positive for positive, _ in each), sum(listed for _, listed in each)

    positives, listed = (
        sum(int(getattr(own, name).sum()) for own in counts) for name in ("positive", "listed")
    )
    classes, facts = zip(*(own.classes for own in counts), strict=True)
    taking_part = counts[0].taking_part if alone else None
    return PairSizes(positives, listed, (max(classes), sum(facts)), of_some, taking_part)


def with_pairs(planned: Planned) -> Prepared:
    """Find the pairs of what is planned, and what goes with them."""
    request = planned.request
    query, gallery, protocol = request.query, request.gallery, request.protocol
    if query is None or gallery is None:
        raise RuntimeError("without labels there are no pairs to find")
    own = {one.name: getattr(planned, one.name) for one in fields(planned)}
    own["request"] = request.without_labels()
    own_rules = planned.view.protocol(protocol)
    pairs = PairSource(query, gallery, own_rules, request.listed, planned.counts)
    if request.listed is not None and protocol.listed:
        warn_of_other_identities(query, gallery, request.listed.good)
    if not planned.plan.round and planned.base is None:  # labels may be large
        pairs.block(0, pairs.queries, planned.plan.threads)
    cams = None
    identities = gallery_identities(planned, gallery, pairs)
    if gallery.cam is not None and query.has_every("cam") and gallery.has_every("cam"):
        items = planned.view.everywhere(gallery.cam, planned.source.shape[1])
        cams = PositiveCameras.of(items)
    listed = None if request.listed is None else pairs.listed_items()
    fingerprints = gallery_fingerprints(gallery, listed)
    if planned.view.items is not None:  # others may have the same labels
        fingerprints["gallery rows"] = of_labels(planned.view.items)
    return Prepared(
        **own, pairs=pairs, identities=identities, cams=cams, label_fingerprints=fingerprints
    )


def _counts_identities(request: Request) -> bool:
    """Return whether gallery identities are counted."""
    return request.protocol.by_identity is not None and bool(request.fields_needed & WHOLE_FIELDS)


def gallery_identities(
    planned: Planned, gallery: Labels, pairs: PairSource
) -> GalleryIdentities | Shots | Draws | None:
    """Return the identities of a gallery, where they are counted."""
    request, protocol = planned.request, planned.request.protocol
    if not _counts_identities(request):
        return None
    most = int(planned.counts.positive.max(initial=0))
    if protocol.over_draws:
        own = planned.view.own_items if protocol.queries == REST else None
        return Draws.of(gallery, protocol, most, own, "drawn_inverse" in request.fields_needed)
    if protocol.cmc != SINGLE_GALLERY_SHOT:
        known = distinct(gallery.id)
        return GalleryIdentities(coded(known, gallery.id), len(known))
    draws = protocol.shot_draws if "sampled_shots" in request.fields_needed else 0
    return Shots.of(gallery, pairs.junk, most, draws, protocol.shot_seed)


def _check_groups(request: Request, columns: Mapping[str, AnyArray], cams: AnyArray | None) -> None:
    """Check, before any work, that each query has a label of each group."""
    check_mean_column(request.options.average, columns)
    group_by = request.group_by
    if group_by is None:
        return
    if isinstance(group_by, str):
        check_group_column(group_by, columns, cams)


def _groups_of(request: Request, view: View) -> Any:
    """Return what the queries of a view are grouped by: a column's name, or their labels."""
    if request.group_by is None or isinstance(request.group_by, str):
        return request.group_by
    labels = group_labels(request.group_by, request.source.shape[0])
    return labels if view.queries is None else labels[view.queries]


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


def identity_sizes(
    gallery: Labels, protocol: Protocol, counts: PairCounts, needs: frozenset[str]
) -> IdentitySizes:
    """Return the sizes of what is counted by gallery identity."""
    most = int(counts.positive.max(initial=0))
    if protocol.over_draws:
        items, number = group_sizes(gallery, protocol)
        return ShotSizes(int(number.sum()), entries_of_draws(items, number, most))
    items, number = multiplicities(gallery.id, without=junk_column(gallery, protocol))
    if protocol.cmc != SINGLE_GALLERY_SHOT:
        return IdentitySizes(int(number.sum()))
    entries = entries_of_query(items, number, most)
    return ShotSizes(int(number.sum()), entries, len(needs & WHOLE_FIELDS))
