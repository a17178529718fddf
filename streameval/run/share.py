"""Shares: what one evaluation counts of the tiles of a job, or several that differ in few pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from streameval.kernels.edges import Positives
from streameval.kernels.galleries import Galleries
from streameval.kernels.identities import GalleryIdentities
from streameval.kernels.parts import Cutter
from streameval.kernels.tiles import column_offsets
from streameval.planning.plan import Task
from streameval.planning.range import Range
from streameval.protocols.classes import ItemClasses
from streameval.protocols.pairs import Pairs
from streameval.protocols.views import View, rows_at
from streameval.single_shot.counter import Shots
from streameval.single_shot.draws import Draws
from streameval.statistics import RankStatistics
from streameval.stretches import cumulated, left_of, rows_of
from streameval.typing import AnyArray, BoolArray, FloatArray, FloatingArray, IntArray, Span

Several = tuple[RankStatistics, ...]
"""The statistics of each evaluation that is counted."""

IGNORED, POSITIVE, NEGATIVE = 0, 1, 2  # what a member makes of a listed pair


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The distances that negatives are counted at, beside the positives.

    Attributes
    ----------
    range : Range
    values : [T] float64
        Ascending; may end in +inf.
    histogram : [E] float64, optional
        The edges of the histogram of impostors.
    """

    range: Range = field(default_factory=lambda: Range(0.0, 1.0))
    values: FloatArray = field(default_factory=lambda: np.empty(0))
    histogram: FloatArray | None = None

    @property
    def edges(self) -> FloatArray:
        """Thresholds and the edges of the histogram, ascending."""
        return self.values if self.histogram is None else np.union1d(self.values, self.histogram)

    def outside(self, distance: FloatArray) -> BoolArray:
        """Mask of distances before τ = 0 or beyond τ = 1."""
        outside: BoolArray = distance < self.range.low
        outside |= distance > self.values[-1]
        return outside

    def same(self, other: Thresholds) -> bool:
        """Return whether negatives are counted at the same distances."""
        return self.range == other.range and np.array_equal(self.edges, other.edges)


@dataclass(frozen=True, eq=False)
class Near:
    """The search for the nearest negatives of each query.

    Attributes
    ----------
    most : int
        How many of each query.
    reach : [Q] float64
        Only those no further than this are looked for. Tasks in one process lower it as they go:
        no more than `most` distances below it are ever wanted.
    """

    most: int
    reach: FloatArray


@dataclass(frozen=True, eq=False)
class Member:
    """One of several evaluations that are counted together.

    Attributes
    ----------
    pairs : Pairs
        Its own.
    kind : [L] int8
        Of each listed pair of the share: `IGNORED`, `POSITIVE` or `NEGATIVE`.
    """

    pairs: Pairs
    kind: AnyArray


@dataclass(frozen=True, eq=False)
class Share:
    """What one evaluation counts of the tiles of a job, or several that differ in listed pairs.

    Its queries and items are numbered as in its view.

    Attributes
    ----------
    pairs : Pairs
        Of several evaluations, the listed pairs of any; those that one needs the distance of are
        its positives.
    thresholds : Thresholds
    positives : Positives, optional
        None before they are known; a strip of a stored matrix finds its own.
    found : [P] float64, optional
        Their distances in the order of pairs, where tiles must hold the same.
    identities : GalleryIdentities, Shots or Draws, optional
        Where CMC counts gallery identities; tasks see the whole gallery then.
    groups : [Q] int64, optional
        Which group each query is in, where the histogram is kept by group, too.
    near : Near, optional
        Where the nearest negatives of each query are to be found.
    view : View
    members : tuple of Member
        Where there are several evaluations of its view, each.
    galleries : Galleries, optional
        Where there are several evaluations of its queries, the items of each gallery.
    """

    pairs: Pairs
    thresholds: Thresholds = field(default_factory=Thresholds)
    positives: Positives | None = None
    found: FloatArray | None = None
    identities: GalleryIdentities | Shots | Draws | None = None
    groups: IntArray | None = None
    near: Near | None = None
    view: View = field(default_factory=View)
    members: tuple[Member, ...] = ()
    galleries: Galleries | None = None

    @property
    def first(self) -> int:
        """The first query of the pairs and positives, which are of one round."""
        return self.pairs.first

    @property
    def ranks_alone(self) -> bool:
        """Whether nothing is counted beside ranks and the nearest negative."""
        counted = self.identities, self.near, self.galleries
        return not self.thresholds.edges.size and all(one is None for one in counted)

    def own(self, task: Task) -> Task:
        """Return a task as its queries and items are numbered."""
        return Task(*self.view.spans(task.queries, task.gallery))

    def pairs_of(self, queries: Span) -> Pairs:
        """Return the pairs of some queries."""
        return self.pairs.block(queries[0] - self.first, queries[1] - self.first)

    def members_of(self, queries: Span) -> list[Member]:
        """Return the members, of some queries."""
        first, last = queries[0] - self.first, queries[1] - self.first
        listed = slice(*self.pairs.indptr[[first, last]].tolist())
        return [Member(one.pairs.block(first, last), one.kind[listed]) for one in self.members]

    def positives_of(self, queries: Span) -> Positives:
        """Return the positives of some queries."""
        known = self.known_positives()
        return known.block(queries[0] - self.first, queries[1] - self.first)

    def known_positives(self) -> Positives:
        """Return the positives of all queries."""
        if self.positives is None:
            raise RuntimeError("the positives are not known")
        return self.positives

    def in_source(
        self, indptr: IntArray, item: IntArray, queries: Span
    ) -> tuple[IntArray, IntArray]:
        """Return where the listed pairs of some of the source's queries begin, and their items."""
        counts = np.zeros(queries[1] - queries[0], np.int64)
        own = rows_at(self.view.queries, self.first + np.arange(len(indptr) - 1))
        counts[own - queries[0]] = np.diff(indptr)
        return cumulated(counts), rows_at(self.view.items, item)

    def cutter(self, queries: Span, start: int) -> Cutter:
        """Return what cuts tiles, whose rows are numbered from `start`, to some of the queries."""
        pairs = self.pairs_of(queries)
        classes = pairs.classes
        rows = rows_at(self.view.queries, np.arange(*queries)) - start

        def rule_out(base: FloatingArray, item: IntArray) -> FloatingArray:
            return column_offsets(base, pairs.junk[item], classes.count, classes.ignored_rows(item))

        return Cutter(rows, self.view.items, classes.query.astype(np.int64), rule_out)

    def with_every_pair(self) -> Share:
        """Return the share of the same queries and items, where no pair is ignored."""
        pairs = self.pairs
        classes = ItemClasses.none(pairs.queries, pairs.gallery)
        positive, junk = np.ones_like(pairs.positive), np.zeros_like(pairs.junk)
        pairs = replace(pairs, positive=positive, junk=junk, classes=classes)
        return replace(self, pairs=pairs)


class Ahead(NamedTuple):
    """What a block of queries has ahead of positives and within thresholds, in a gallery range.

    Attributes
    ----------
    positives : Positives
    closer, tied, tied_before : [p] int64
        Negatives closer than each, as far, and as far with a lower index.
    within : [q, E] int64
        Negatives within each edge.
    nearest : [q] float64
    """

    positives: Positives
    closer: IntArray
    tied: IntArray
    tied_before: IntArray
    within: IntArray
    nearest: FloatArray

    def of(self, member: Member, pairs: Pairs, gallery: Span, edges: FloatArray) -> Ahead:
        """Return the counts of one member: its positives, and its negatives of those listed.

        Parameters
        ----------
        member : Member
        pairs : Pairs
            Of all members, of the block.
        gallery : (int, int)
        edges : [E] float64
        """
        (indptr, distance, item), size = self.positives, max(pairs.gallery, 1)
        of_query = rows_of(indptr)
        place = np.searchsorted(pairs.query * size + pairs.item, of_query * size + item)
        kind = member.kind[place]
        own = kind == POSITIVE
        more = (kind == NEGATIVE) & (item >= gallery[0]) & (item < gallery[1])
        closer, tied, tied_before, within, nearest = self[1:]
        if more.any():
            query, far = of_query[more], distance[more]
            new = np.ones(len(item), np.bool_)  # the first of its query at a distance
            new[1:] = (distance[1:] != distance[:-1]) | (of_query[1:] != of_query[:-1])
            starts, run = np.flatnonzero(new), np.cumsum(new) - 1
            begin, end = starts[run], np.append(starts[1:], len(item))[run]
            before = cumulated(more)
            closer = closer + before[begin] - before[indptr[of_query]]
            tied = tied + before[end] - before[begin]
            tied_before = tied_before + before[:-1] - before[begin]
            added = np.zeros((len(nearest), len(edges) + 1), np.int64)
            np.add.at(added, (query, np.searchsorted(edges, far)), 1)
            within = within + np.cumsum(added, axis=1)[:, :-1]
            nearest = nearest.copy()
            np.minimum.at(nearest, query, far)
        if not own.all():
            kept = Positives(left_of(own, indptr), distance[own], item[own])
            return Ahead(kept, closer[own], tied[own], tied_before[own], within, nearest)
        return Ahead(self.positives, closer, tied, tied_before, within, nearest)


def together(shares: Sequence[Share]) -> Share:
    """Return the share that counts for several evaluations of one view.

    They differ in listed pairs alone; junk and classes are the same.
    """
    first = shares[0]
    if len(shares) == 1:
        return first
    gallery = max(first.pairs.gallery, 1)
    keys = [one.pairs.query * gallery + one.pairs.item for one in shares]
    key = np.unique(np.concatenate(keys))
    query, item = np.divmod(key, gallery)
    by_rule = first.pairs.junk[item]
    classes = first.pairs.classes
    if classes.count:
        by_rule = by_rule | classes.ignored(classes.query[query], item)
    members = []
    for one, own in zip(shares, keys, strict=True):
        kind = np.where(by_rule, IGNORED, NEGATIVE).astype(np.int8)
        kind[np.searchsorted(key, own)] = np.where(one.pairs.positive, POSITIVE, IGNORED)
        members.append(Member(one.pairs, kind))
    needed = np.any([member.kind != IGNORED for member in members], axis=0)
    indptr = np.searchsorted(query, np.arange(first.pairs.queries + 1)).astype(np.int64)
    pairs = replace(first.pairs, indptr=indptr, item=item, positive=needed, same_identity=needed)
    return replace(first, pairs=pairs, members=tuple(members))


def drawn_from(share: Share, drawn: Sequence[IntArray], anywhere: BoolArray) -> Share:
    """Return the share that counts for several galleries drawn from that of one.

    They differ in items alone, of which some are in any gallery, by a mask.
    """
    galleries = Galleries.of(drawn, share.pairs.gallery)
    return replace(share, pairs=share.pairs.among(anywhere), galleries=galleries)
