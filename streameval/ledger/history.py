"""What each change has added, by segment: the counts to subtract when a segment is removed.

Counts of positives are sparse: a *cell* holds the counts that a segment adds to a positive, unless
both are 0. Cells are [4, c] int64: the serial of the positive, the segment, closer, tied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.ledger.head import Head
from streameval.ledger.state import Positives, arrays_of, no_statistics, statistics_from
from streameval.ledger.store import Contents
from streameval.statistics import FloatArray, IntArray, RankStatistics
from streameval.store import Arrays


def cells_of(
    serial: IntArray, segment: int | IntArray, closer: IntArray, tied: IntArray
) -> IntArray:
    """Return the cells of positives whose counts are not all 0, [4, c] int64."""
    owner = np.broadcast_to(np.asarray(segment, np.int64), serial.shape)
    every = np.stack([serial, owner, closer, tied]).astype(np.int64)
    return every[:, (closer != 0) | (tied != 0)]


def join_cells(cells: Sequence[IntArray]) -> IntArray:
    """Return cells one after the other."""
    return np.concatenate([np.empty((4, 0), np.int64), *cells], axis=1)


def sum_cells(cells: IntArray, positives: Positives) -> tuple[IntArray, IntArray]:
    """Return the sums of closer and of tied over the cells of each positive, [P] int64."""
    closer, tied = np.zeros(len(positives), np.int64), np.zeros(len(positives), np.int64)
    if len(positives):
        order = np.argsort(positives.serial)
        serial = positives.serial[order]
        at = np.minimum(np.searchsorted(serial, cells[0]), len(serial) - 1)
        known = serial[at] == cells[0]
        np.add.at(closer, order[at[known]], cells[2, known])
        np.add.at(tied, order[at[known]], cells[3, known])
    return closer, tied


def record_of(
    cells: Sequence[IntArray], rows: Sequence[RankStatistics | Arrays]
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a record: its cells, and a row for each of its segments.

    A row is what the segment adds: statistics, or the arrays that `arrays_of` makes of them.
    """
    arrays = [arrays_of(row) if isinstance(row, RankStatistics) else row for row in rows]
    stacked = {name: np.stack([row[name] for row in arrays]) for name in arrays[0]}
    return {"cells": join_cells(cells), **stacked}


def read_shares(
    contents: Contents, head: Head, positives: Positives, numbers: Collection[int] = ()
) -> tuple[dict[int, FloatArray], dict[int, RankStatistics]]:
    """Return the nearest negative of each query by segment, and what some segments have added.

    Parameters
    ----------
    contents : Contents
    head : Head
    positives : Positives
        Of the shares.
    numbers : collection of int
        The segments whose shares are wanted.

    Returns
    -------
    dict of int to [Q] float64
    dict of int to RankStatistics
    """
    queries, settings = head.queries, head.settings
    nearest = {segment.number: np.full(queries, np.inf) for segment in head.segments}
    sums = {number: arrays_of(no_statistics(queries, settings)) for number in numbers}
    cells: dict[int, list[IntArray]] = {number: [] for number in numbers}
    for record in head.records:
        arrays = contents.outline(record.number)
        if not sums.keys().isdisjoint(record.segments):
            arrays |= contents.within(record.number)
        for number in numbers:
            cells[number].append(arrays["cells"][:, arrays["cells"][1] == number])
        queries_of = slice(record.start, record.stop)
        for row, number in enumerate(record.segments):
            if number in sums:
                sums[number]["per_query"][queries_of] += arrays["per_query"][row]
                sums[number]["within"][queries_of] += arrays["within"][row]
                sums[number]["histogram"] += arrays["histogram"][row]
            if number in nearest:
                newer, known = arrays["nearest"][row], nearest[number][queries_of]
                known[...] = np.where(np.isnan(newer), known, newer)
    shares: dict[int, RankStatistics] = {}
    for number in numbers:
        closer, tied = sum_cells(join_cells(cells[number]), positives)
        before = np.where(positives.segment > number, tied, 0)
        counts: Mapping[str, Any] = {"closer": closer, "tied": tied, "tied_before": before}
        arrays = sums[number] | {"nearest": nearest[number]}
        shares[number] = statistics_from(arrays, settings, positives, **counts)
    return nearest, shares


def least(nearest: Collection[FloatArray], queries: int) -> FloatArray:
    """Return the nearest negative of each query over segments, [Q] float64."""
    values: FloatArray = np.min([np.full(queries, np.inf), *nearest], axis=0)
    return values
