"""Exact search of a shard of the gallery, by FAISS: hits, and the nearest of several shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.neighbors.lists import NOTHING
from streameval.sorting import order_within
from streameval.typing import Float32Array, IntArray

MULTIPLIED, LEAST = 2560, 5  # numbers of the queries, and queries: BLAS is faster from these on


class Hits(NamedTuple):
    """What FAISS returns for m queries, nearest first.

    Attributes
    ----------
    item : [m, k] int64
        Gallery indices; −1 where there is nothing more.
    value : [m, k] float32
        FAISS's own, ascending; +inf where there is nothing more.
    longest : float
        Length of the longest gallery vector that was looked at; NaN where that isn't known.
    """

    item: IntArray
    value: Float32Array
    longest: float

    @classmethod
    def of(cls, value: Any, item: IntArray, start: int, longest: float) -> Hits:
        """Return a result of FAISS on gallery rows from `start` on."""
        nothing = item < 0
        values = np.where(nothing, np.float32(np.inf), value)
        items = np.where(nothing, NOTHING, item + start)
        if not _in_order(items, values):  # those as near as each other come in any order
            rows, k = items.shape
            order = order_within(np.arange(rows + 1) * k, items.ravel(), values.ravel())
            items, values = (own.ravel()[order].reshape(rows, k) for own in (items, values))
        return cls(items, values, longest)

    def merge(self, other: Hits) -> Hits:
        """Return the nearest k of two shards of the gallery; the other may have fewer."""
        item, value = np.empty_like(self.item), np.empty_like(self.value)
        _merge(self.item, self.value, other.item, other.value, item, value)
        return Hits(item, value, max(self.longest, other.longest))


@compiled
def _in_order(items, values):  # type: ignore[no-untyped-def]
    """Tell whether rows ascend in value, and in item where values are equal."""
    for row in range(len(items)):
        item, value = items[row], values[row]
        for k in range(1, len(item)):
            equal = value[k - 1] == value[k] and item[k - 1] <= item[k]
            if not (equal or value[k - 1] < value[k]):
                return False
    return True


@compiled
def _merge(items, values, more_items, more_values, out_items, out_values):  # type: ignore[no-untyped-def]
    """Write the first of two rows that are in order, one row after the other."""
    for row in range(len(items)):
        item, value = items[row], values[row]
        other, its_value = more_items[row], more_values[row]
        i, j = 0, 0
        for k in range(len(item)):
            nearer = j == len(other) or value[i] < its_value[j]
            if nearer or (value[i] == its_value[j] and item[i] <= other[j]):
                out_items[row, k], out_values[row, k] = item[i], value[i]
                i += 1
            else:
                out_items[row, k], out_values[row, k] = other[j], its_value[j]
                j += 1


class _Threshold:
    """FAISS's threshold of a process: with fewer numbers of the queries it doesn't use BLAS.

    (Before 1.15, with fewer queries.) It is meant for many threads. One thread takes 1.4 to 10
    times as long without BLAS; see FAISS's pull requests 5022 and 5109. The threshold is put back
    once no thread searches here: one that the caller sets meanwhile is lost.
    """

    def __init__(self) -> None:
        self._lock, self._searching, self._usual = Lock(), 0, 0

    @contextmanager
    def lowered(self) -> Iterator[None]:
        """Have FAISS multiply by BLAS while the context lasts."""
        from faiss import cvar

        with self._lock:
            if not self._searching:
                self._usual = cvar.distance_compute_blas_threshold
                cvar.distance_compute_blas_threshold = 1
            self._searching += 1
        try:
            yield
        finally:
            with self._lock:
                self._searching -= 1
                if not self._searching:
                    cvar.distance_compute_blas_threshold = self._usual


_threshold = _Threshold()


def nearest(queries: Float32Array, rows: Float32Array, k: int, metric: int) -> tuple[Any, Any]:
    """Return the values of the nearest k rows of each query, and which they are, by one thread."""
    import faiss

    faiss.omp_set_num_threads(1)
    many = len(queries) >= LEAST and queries.size >= MULTIPLIED
    with _threshold.lowered() if many else nullcontext():
        value, item = faiss.knn(queries, rows, k, metric=metric)
    return value, item
