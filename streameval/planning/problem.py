"""What there is to evaluate, in sizes, and the bytes that its statistics take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streameval.single_shot.ahead import SHOT_RANKS, shot_entries
from streameval.single_shot.collect import SHOT_DOUBTS


@dataclass(frozen=True)
class ShotSizes:
    """Sizes for single gallery shot.

    Attributes
    ----------
    identities : int
        Identities H of the gallery.
    entries : int
        The most that a query leaves in the list of negatives ahead.
    most_positives : callable
        Number of queries of a block to the most positives that a block of that size has.
    fields : int
        Fields of the statistics: 1, and 2 where draws are taken.
    """

    identities: int
    entries: int
    most_positives: Callable[[int], int]
    fields: int = 1

    def task_bytes(self, queries: int, items: int) -> int:
        """Return the bytes of a task of so many queries, with tiles of so many items."""
        spare = max(items, SHOT_DOUBTS)
        entries = 8 * shot_entries(queries * self.entries, spare)
        return entries + 48 * self.identities + 60 * self.most_positives(queries) + 26 * spare

    def kept_bytes(self, queries: int, gallery: int) -> int:
        """Return the bytes of the labels of identities, and of the probabilities of all queries.

        These are held twice where blocks of queries are stacked.
        """
        labels = 8 * gallery + 8 * self.identities
        return labels + 2 * self.fields * 8 * 3 * SHOT_RANKS * queries


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
    """

    width: int
    itemsize: int
    stored_itemsize: int
    scratch: Callable[[int, int], int]
    chunks: tuple[int, int]
    converted: bool = True
    exact: bool = False


@dataclass(frozen=True)
class Problem:
    """Problem dimensions.

    Attributes
    ----------
    queries, gallery : int
        Q and G.
    positives : int
        Positive pairs P.
    listed : int
        Listed pairs, positives included.
    data : Data
    thresholds : int
        T.
    classes : int
        Classes of queries whose items are ignored by rule; 0 where none are.
    extra_passes : int
        Passes over all pairs beside the one that counts: to find the range of the distances, and
        to settle chosen thresholds.
    edges : int
        E of the histogram of impostors; 0 where there is none.
    groups : int
        Groups of queries that have a histogram of their own, too.
    shots : ShotSizes, optional
        Where CMC is read under single gallery shot: a task sees the whole gallery then.
    near : int
        Nearest negatives that are looked for of each query.
    """

    queries: int
    gallery: int
    positives: int
    listed: int
    data: Data
    thresholds: int = 0
    classes: int = 0
    extra_passes: int = 0
    edges: int = 0
    groups: int = 0
    shots: ShotSizes | None = None
    near: int = 0

    @property
    def passes(self) -> int:
        """Passes over all pairs, but for finding the positives."""
        return 1 + self.extra_passes


def statistics_bytes(problem: Problem) -> int:
    """Bytes of the statistics, thrice while parts merge, and of the pairs that are listed."""
    per_query = 3 * 8 * (problem.thresholds + problem.near + 8)
    histogram = 3 * 8 * problem.edges * (2 + problem.groups)
    return problem.queries * per_query + histogram + 200 * problem.positives + 10 * problem.listed


def pairs_bytes(problem: Problem) -> int:
    """Bytes of the job that every worker holds: listed pairs, junk, classes, positives."""
    by_item = problem.gallery * (5 if problem.classes else 1)
    return 2 * (10 * problem.listed + by_item) + 16 * problem.positives


def part_bytes(problem: Problem, queries: int) -> int:
    """Bytes of the statistics of so many queries."""
    positives = -(-problem.positives * queries // max(problem.queries, 1))
    return (
        8 * queries * (problem.thresholds + problem.near + 8)
        + 8 * problem.edges * (2 + problem.groups)
        + 32 * positives
    )


def task_statistics_bytes(problem: Problem, queries: int) -> int:
    """Bytes of edges, their levels, slots and statistics of a task of so many queries."""
    positives = -(-problem.positives * queries // max(problem.queries, 1))
    limits = problem.thresholds + problem.edges
    edges = positives + queries * limits
    within = queries * (limits + 8 + (problem.thresholds if problem.edges else 0))
    within += 2 * queries * problem.near
    by_group = 3 * 8 * limits * problem.groups + (8 * within if problem.groups else 0)
    levels = 8 * edges if problem.data.width else 0
    return 8 * edges + levels + 16 * edges + 8 * within + 40 * positives + by_group


def shot_parts(problem: Problem, threads: int, queries: int, items: int) -> dict[str, int]:
    """Bytes of the lists of single gallery shot, where that is asked for."""
    if problem.shots is None:
        return {}
    return {"negatives ahead": threads * problem.shots.task_bytes(queries, items)}
