"""What segments have added, by their records, as one number each: see `sum_of`."""

from __future__ import annotations

import numpy as np

from streameval.arrays import digest
from streameval.arrays.witness import MODULUS
from streameval.ledger.head import Head
from streameval.ledger.state import Positives, arrays_of
from streameval.ledger.store import RECORD, WITHIN, Contents
from streameval.statistics import RankStatistics
from streameval.typing import FloatArray, IntArray

_PLACES = {"per_query": 1 << 60, "within": 2 << 60, "histogram": 3 << 60}  # cells are from 0 on


def sum_of(serial: IntArray, statistics: RankStatistics) -> int:
    """Return a sum over the counts of statistics, each times its own multiplier, modulo 2⁶⁴.

    It is the sum of those of the parts that they are the sum of; see `digest`. Without the nearest
    negatives, which are no sums.
    """
    arrays = arrays_of(statistics)
    found = sum(_weighted(name, arrays[name]) for name in ("per_query", "within", "histogram"))
    return (found + _weighted_cells(serial, statistics.closer, statistics.tied)) % MODULUS


def _weighted(name: str, counts: IntArray, start: int = 0) -> int:
    """Return the sum over the counts of queries from the first on, or of a histogram."""
    if not counts.size:
        return 0
    begin = _PLACES[name] + start * (counts.size // len(counts))
    return digest.total(_words(counts), np.arange(begin, begin + counts.size))


def _weighted_cells(serial: IntArray, closer: IntArray, tied: IntArray) -> int:
    return digest.total(_words(closer), 2 * serial) + digest.total(_words(tied), 2 * serial + 1)


def _words(counts: IntArray) -> digest.DigestArray:
    return np.ascontiguousarray(counts, np.int64).reshape(-1).view(np.uint64)


def recorded(
    contents: Contents, head: Head, positives: Positives
) -> tuple[dict[int, FloatArray], dict[int, int]]:
    """Return the nearest negative of each query [Q] by segment, and `sum_of` of what it added.

    The records are read one after the other, and not kept.
    """
    nearest = {segment.number: np.full(head.queries, np.inf) for segment in head.segments}
    sums = dict.fromkeys(nearest, 0)
    for record in head.records:
        arrays = contents.read(RECORD.format(record.number))
        arrays |= contents.read(WITHIN.format(record.number))
        for row, number in enumerate(record.segments):
            if number in sums:
                for name in ("per_query", "within"):
                    sums[number] += _weighted(name, arrays[name][row], record.start)
                sums[number] += _weighted("histogram", arrays["histogram"][row])
                newer = arrays["nearest"][row]
                chosen = nearest[number][record.start : record.stop]
                np.copyto(chosen, newer, where=~np.isnan(newer))
        cells = arrays["cells"][:, np.isin(arrays["cells"][0], positives.serial)]
        for number in np.unique(cells[1]).tolist():
            if number in sums:
                own = cells[:, cells[1] == number]
                sums[number] += _weighted_cells(own[0], own[2], own[3])
    return nearest, {number: value % MODULUS for number, value in sums.items()}
