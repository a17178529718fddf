"""Problem dimensions, and the bytes that they take whatever the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streameval.kernels.identities import IDENTITY_DOUBTS
from streameval.protocols.listed import PAIRS
from streameval.single_shot.ahead import SHOT_DOUBTS, SHOT_RANKS, shot_entries
from streameval.typing import BoolArray, IntArray

Holders = dict[str, int]
"""Bytes by what holds them."""

LEAST_ROUND = 16  # queries whose statistics are in memory together
QUERY_BYTES = 400  # of a query, in the table of all queries
READ_BYTES = 128 << 20  # of a block of statistics that is read, and of what is computed of it


@dataclass(frozen=True)
class IdentitySizes:
    """Sizes where CMC counts gallery identities: distinct ones, unless more is said.

    Attributes
    ----------
    identities : int
        Identities H of the gallery.
    """

    identities: int

    def task_bytes(self, queries: int, positives: int, items: int) -> int:
        """Return the bytes of a task of so many queries, positives and columns of a tile."""
        marks = 2 * queries * self.identities  # and what is told of them
        return marks + 80 * min(queries, positives) + 30 * max(items, IDENTITY_DOUBTS)

    def kept_bytes(self, queries: int, gallery: int) -> int:
        """Return the bytes of the labels of identities, and of what is counted of all queries.

        The latter is held twice where blocks of queries are stacked.
        """
        labels = 8 * gallery + 8 * self.identities
        return labels + 2 * 8 * 3 * self.numbers * queries

    @property
    def numbers(self) -> int:
        """Numbers of a query under each tie rule."""
        return 1


@dataclass(frozen=True)
class ShotSizes(IdentitySizes):
    """Sizes for single gallery shot.

    Attributes
    ----------
    entries : int
        The most that a query leaves in the list of negatives ahead.
    fields : int
        Fields of the statistics: 1, and 2 where draws are taken.
    """

    entries: int
    fields: int = 1

    def task_bytes(self, queries: int, positives: int, items: int) -> int:
        """Return the bytes of a task of so many queries, positives and columns of a tile."""
        spare = max(items, SHOT_DOUBTS)
        entries = 8 * shot_entries(queries * self.entries, spare)
        return entries + 48 * self.identities + 60 * positives + 26 * spare

    @property
    def numbers(self) -> int:
        """Probabilities of a query under each tie rule."""
        return self.fields * SHOT_RANKS


@dataclass(frozen=True)
class JointSizes:
    """Sizes of several evaluations that count gallery identities together.

    Attributes
    ----------
    each : tuple of IdentitySizes
    """

    each: tuple[IdentitySizes, ...]

    def task_bytes(self, queries: int, positives: int, items: int) -> int:
        """Return the bytes of a task: see `IdentitySizes.task_bytes`."""
        return sum(one.task_bytes(queries, positives, items) for one in self.each)

    def kept_bytes(self, queries: int, gallery: int) -> int:
        """Return the bytes that are kept: see `IdentitySizes.kept_bytes`."""
        return sum(one.kept_bytes(queries, gallery) for one in self.each)


@dataclass(frozen=True)
class SharedSizes:
    """Sizes of evaluations that count parts of tiles; 0 where one counts tiles as they are.

    Attributes
    ----------
    asking : int
        Queries of all evaluations.
    drawn : int
        Items of all galleries that are drawn from one.
    """

    asking: int = 0
    drawn: int = 0


@dataclass(frozen=True)
class Data:
    """Sizes of what distances are read or computed from.

    Attributes
    ----------
    width : int
        D of features; 0 for a matrix.
    itemsize : int
        Bytes of an element as it is worked on (4 or 8).
    stored_itemsize : int
        Bytes of an element as it is stored.
    scratch : callable
        (rows, columns) of a block of gallery features, or of the matrix, to the bytes that
        reading it takes beside the block itself.
    chunks : (int, int)
        Chunk of the gallery features, or of the matrix: rows, columns.
    converted : bool
        Whether what is read is held beside what is worked on, as where their dtypes differ.
    exact : bool
        Whether every distance of features is computed, in float64; else most are told by
        products in float32.
    edges : sequence of [c] int64, optional
        Along each axis, where tasks are cut so that no chunk is read by two.
    grain : (int, int), optional
        Of a matrix: the rows and columns that are read at least to know an entry, where positives
        are read by themselves for little.
    in_files : bool
        Whether each chunk is a file of its own, which is opened whenever some of it is read.
    """

    width: int
    itemsize: int
    stored_itemsize: int
    scratch: Callable[[int, int], int]
    chunks: tuple[int, int]
    converted: bool = True
    exact: bool = False
    edges: Sequence[IntArray] | None = None
    grain: tuple[int, int] | None = None
    in_files: bool = False


@dataclass(frozen=True)
class PairSizes:
    """Numbers of pairs that are not plain negatives.

    Attributes
    ----------
    positives : int
        Positive pairs P.
    listed : int
        Listed pairs, positives included.
    classes : (int, int)
        Classes C of queries that ignore items, and facts F by which; 0 where no rule does.
    most : callable, optional
        Number of queries to the most positives, and listed pairs, that so many consecutive queries
        have. Only where it is given are queries finished in rounds.
    taking_part : [n] bool, optional
        Which of n items, spread evenly over the gallery, are no junk; all by default.
    """

    positives: int
    listed: int
    classes: tuple[int, int] = 0, 0
    most: Callable[[int], tuple[int, int]] | None = None
    taking_part: BoolArray | None = None

    def of(self, queries: int, total: int) -> tuple[int, int]:
        """Return the positives and listed pairs of so many of all queries: the most, or a share."""
        if self.most is not None and queries < total:
            return self.most(queries)
        total = max(total, 1)
        return -(-self.positives * queries // total), -(-self.listed * queries // total)


@dataclass(frozen=True)
class Problem:
    """Problem dimensions.

    Attributes
    ----------
    queries, gallery : int
        Q and G.
    pairs : PairSizes
    data : Data
    thresholds : int
        T.
    extra_passes : int
        Passes over all pairs beside the one that counts: to find the range of the distances, and
        to settle chosen thresholds.
    edges : int
        E of the histogram of impostors; 0 where there is none.
    groups : int
        Groups of queries that have a histogram of their own, too.
    identities : JointSizes, optional
        Where CMC counts gallery identities: a task sees the whole gallery then.
    near : int
        Nearest negatives that are looked for of each query.
    shared : SharedSizes
        Where several evaluations count parts of tiles.
    beside : dict of str to int
        Bytes that the source holds beside, whatever the cut, by what holds them.
    """

    queries: int
    gallery: int
    pairs: PairSizes
    data: Data
    thresholds: int = 0
    extra_passes: int = 0
    edges: int = 0
    groups: int = 0
    identities: JointSizes | None = None
    near: int = 0
    shared: SharedSizes = SharedSizes()
    beside: Holders = field(default_factory=dict)

    @property
    def times(self) -> int:
        """In how many evaluations a query takes part, rounded up."""
        return -(-self.shared.asking // max(self.queries, 1)) or 1

    @property
    def ranks_alone(self) -> bool:
        """Whether nothing is counted beside ranks and the nearest negative."""
        counted = self.thresholds or self.edges or self.near or self.shared.asking
        return not counted and self.identities is None

    @property
    def passes(self) -> int:
        """Passes over all pairs, but for finding the positives."""
        return 1 + self.extra_passes

    @property
    def _class_bytes(self) -> int:
        """Bytes of the codes of the gallery items."""
        return 4 * self.gallery * self.pairs.classes[1]

    @property
    def held_bytes(self) -> Holders:
        """Bytes that an evaluation holds in one round, whatever its cut, by what holds them.

        Of labels, what is made of those that are given.
        """
        by_item = self.gallery + self._class_bytes + 48 * self.shared.drawn
        sought = min(self.gallery, self.pairs.listed)  # items whose identity a query has
        labels = by_item + 8 * sought + 32 * self.queries
        return {"labels": labels, **self.beside, **self.round_bytes(self.queries)}

    @property
    def least_round(self) -> int:
        """The fewest queries that are finished before others begin."""
        return self.queries if self.pairs.most is None else LEAST_ROUND

    def round_bytes(self, queries: int) -> Holders:
        """Return the bytes of the pairs and statistics of a round of so many queries.

        Statistics count thrice, as their parts merge. Where there are several rounds, what is known
        of each query in the end, and a block that is read again, count too.
        """
        positives, listed = self.positives_of(queries), self.listed_of(queries)
        pairs = 10 * listed + 4 * positives + 100 * min(listed, PAIRS)
        statistics = 3 * self.part_bytes(queries) + 112 * positives
        if queries < self.queries:
            statistics += QUERY_BYTES * max(self.queries, self.shared.asking) + READ_BYTES
        return {"pairs": pairs, "statistics": statistics}

    def job_bytes(self, queries: int) -> int:
        """Return the bytes of the job that every worker holds, of a round of so many queries.

        Listed pairs, junk, classes, positives.
        """
        by_item = self.gallery + self._class_bytes + 8 * self.shared.drawn
        return 2 * (10 * self.listed_of(queries) + by_item) + 24 * self.positives_of(queries)

    def positives_of(self, queries: int) -> int:
        """Return the most positives of so many queries."""
        return self.pairs.of(queries, self.queries)[0]

    def listed_of(self, queries: int) -> int:
        """Return the most listed pairs of so many queries."""
        return self.pairs.of(queries, self.queries)[1]

    def part_bytes(self, queries: int) -> int:
        """Return the bytes of the statistics of so many queries."""
        by_query = self.times * queries * (self.thresholds + self.near + 8)
        by_edge = self.times * self.edges * (2 + self.groups)
        return 8 * (by_query + by_edge) + 32 * self.positives_of(queries)

    def task_bytes(self, queries: int) -> int:
        """Return the bytes of edges, levels, slots and statistics of a task of so many queries."""
        positives, limits = self.positives_of(queries), self.times * (self.thresholds + self.edges)
        within = limits + 8 + 2 * self.near + (self.thresholds if self.edges else 0)
        in_each = 32 * self.shared.drawn + (64 * queries * self.times if self.shared.drawn else 0)
        return (
            in_each
            + (32 if self.data.width else 24) * (positives + queries * limits)
            + (16 if self.groups else 8) * queries * within
            + 24 * limits * self.groups
            + 40 * positives
            + (0 if self.data.width else 8 * self.listed_of(queries))
        )
