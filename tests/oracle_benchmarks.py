"""The reference for benchmarks that draw galleries: every trial, query and item, one after another.

A benchmark holds distances and labels of all rows. A trial names the rows that ask and the rows
that are ranked. Nothing here goes through `streameval`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, permutations, product
from pathlib import Path

import numpy as np
import scipy.io
from oracle import Array

CUTOFFS = (1, 5, 10, 20)
Trial = tuple[Array, Array]
"""The rows of the queries and the rows of the gallery."""
Figures = dict[str, float]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Distances [Q, G] of all rows, labels per side, and the pairs that are ignored, [Q, G] bool.

    `distinct` removes repeated identities from a ranking before CMC is read.
    """

    distances: Array
    query: dict[str, Array]
    gallery: dict[str, Array]
    ignored: Array
    distinct: bool = False


@dataclass(frozen=True)
class Reading:
    """What one ranked list gives. Ranks count from 1; `distinct` counts identities, not items."""

    first: int
    distinct: int
    precision: float
    inverse: float


def read_list(ids: Iterable[int], own: int) -> Reading:
    """Read a ranked list of identities that contains `own`."""
    rank = hits = first = distinct = last = 0
    precisions, ahead = [], set()
    for rank, identity in enumerate(ids, start=1):
        if identity != own:
            ahead.add(identity)
            continue
        hits += 1
        if hits == 1:
            first, distinct = rank, len(ahead) + 1
        last = rank
        precisions.append(hits / rank)
    return Reading(first, distinct, math.fsum(precisions) / hits, hits / last)


def orders(distance: Array, positive: Array, ties: str) -> Iterator[list[int]]:
    """Give the items in ranked order: once, or in every order of items at one distance."""
    index = np.arange(len(distance))
    second = {"pessimistic": positive, "optimistic": ~positive}.get(ties, index)
    ranked = np.lexsort((index, second, distance)).tolist()
    if ties != "expected":
        yield ranked
        return
    tied = [list(group) for _, group in groupby(ranked, lambda k: distance[k])]
    for order in product(*map(permutations, tied)):
        yield list(chain(*order))


def oracle_trial(
    benchmark: Benchmark,
    trial: Trial,
    ties: str = "stable",
    cutoffs: Sequence[int] = CUTOFFS,
) -> Figures:
    """Return CMC@x, mAP and mINP over the queries with a positive, and the counts of a trial.

    A metric is NaN if no query has a positive.
    """
    rows, items = trial
    counts = dict.fromkeys(
        ("queries_positive", "queries_negative", "queries_excluded", "pairs_ignored"), 0
    )
    readings: list[list[Reading]] = []
    for i in rows:
        ids = benchmark.gallery["id"][items]
        own = benchmark.query["id"][i]
        valid = ~benchmark.ignored[i, items]
        counts["pairs_ignored"] += int(np.count_nonzero(~valid))
        if not (ids == own).any():
            counts["queries_negative"] += 1
        elif not (ids[valid] == own).any():
            counts["queries_excluded"] += 1
        else:
            counts["queries_positive"] += 1
            distance, ids = benchmark.distances[i, items][valid], ids[valid]
            lists = orders(distance, ids == own, ties)
            readings.append([read_list(ids[order].tolist(), own) for order in lists])
    figures: Figures = dict(counts)
    for x in cutoffs:
        figures[f"CMC@{x}"] = mean(
            mean((one.distinct if benchmark.distinct else one.first) <= x for one in query)
            for query in readings
        )
    figures["mAP"] = mean(mean(one.precision for one in query) for query in readings)
    figures["mINP"] = mean(mean(one.inverse for one in query) for query in readings)
    return figures


def oracle_trials(
    benchmark: Benchmark, trials: Iterable[Trial], ties: str = "stable"
) -> tuple[list[Figures], Figures]:
    """Return the figures of each trial, and their plain means: every trial weighs the same."""
    figures = [oracle_trial(benchmark, trial, ties) for trial in trials]
    return figures, {name: mean(one[name] for one in figures) for name in figures[0]}


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else math.nan


Group = tuple[int, ...]
"""The labels that the rows of a group share."""


def rows_by(labels: dict[str, Array], names: Sequence[str]) -> dict[Group, list[int]]:
    """Return the rows of each combination of labels, in the order in which they first come."""
    found: dict[Group, list[int]] = {}
    for row, key in enumerate(zip(*(labels[name].tolist() for name in names), strict=True)):
        found.setdefault(key, []).append(row)
    return found


def choose_one(groups: Iterable[Sequence[int]], generator: random.Random) -> Array:
    """Draw one row of each group, with one call of `random.choice` each."""
    return np.array([generator.choice(rows) for rows in groups])


def first_of_shuffled(ids: Array, generator: random.Random) -> Array:
    """Draw the first row of each identity in one shuffle of all rows, in shuffled order."""
    order = list(range(len(ids)))
    generator.shuffle(order)
    seen: dict[int, int] = {}
    for row in order:
        seen.setdefault(int(ids[row]), row)
    return np.array(list(seen.values()))


def rest_of(count: int, drawn: Array) -> Array:
    """Return the rows that were not drawn, in order."""
    return np.array([row for row in range(count) if row not in set(drawn.tolist())])


def first_of_permuted(
    groups: dict[Group, list[int]],
    stored: dict[Group, Array],
    trial: int,
    count: int,
) -> Array:
    """Draw the rows that a stored permutation of each group names first.

    `stored` holds, per group, [trials, images] numbers from 1: the images of the group in the
    order in which they are drawn.
    """
    return np.array(
        [
            rows[number - 1]
            for key, rows in groups.items()
            for number in stored[key][trial, :count].tolist()
        ]
    )


def write_permutations(path: Path, stored: dict[Group, Array]) -> None:
    """Write `rand_perm_cam.mat` as wuancong/SYSU-MM01 has it, of (camera, person) from 1.

    A column of cameras, each a column of people, each [trials, images] uint8 numbers from 1; a
    person whom the camera did not see has [trials, 0].
    """
    cams, people = (max(numbers) for numbers in zip(*stored, strict=True))
    trials = len(next(iter(stored.values())))
    cells = np.empty((cams, 1), dtype=object)
    for cam in range(cams):
        cells[cam, 0] = np.empty((people, 1), dtype=object)
        for person in range(people):
            unseen = np.zeros((trials, 0), dtype=np.uint8)
            cells[cam, 0][person, 0] = stored.get((cam + 1, person + 1), unseen)
    scipy.io.savemat(path, {"rand_perm_cam": cells})


def oracle_views(benchmark: Benchmark, queries: Array, items: Array) -> Array:
    """Return the share of queries whose nearest item is theirs, [query view, gallery view].

    Every query counts: one whose identity is not among the items of a view is a miss there.
    """
    views = np.unique(benchmark.query["view"])
    cells = np.full((len(views), len(views)), np.nan)
    for row, asking in enumerate(views):
        for column, shown in enumerate(views):
            hits = []
            for i in queries[benchmark.query["view"][queries] == asking]:
                ranked = items[benchmark.gallery["view"][items] == shown]
                nearest = ranked[np.argmin(benchmark.distances[i, ranked])]
                hits.append(benchmark.gallery["id"][nearest] == benchmark.query["id"][i])
            cells[row, column] = mean(hits)
    return cells


def means_by_view(cells: Array, equal_views: bool) -> list[float]:
    """Return, per query view, the plain mean over gallery views, with or without the equal one."""
    return [
        mean(value for column, value in enumerate(line) if equal_views or column != row)
        for row, line in enumerate(cells.tolist())
    ]
