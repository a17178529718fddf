"""Arrays made of others: some of the rows and columns of one, or several put together.

Nothing is copied: a block is read from the arrays that it lies in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import AnyArray, Array, Span

_DENSE = 4  # read with what lies between where at least one row in so many is wanted


class SelectedArray(Array):
    """Some rows of an array, and of a 2-d one some of its columns.

    Parameters
    ----------
    array : Array
    rows, columns : [n] int64, optional
        Indices, ascending, each once; all by default.
    """

    def __init__(
        self,
        array: Array,
        rows: npt.NDArray[np.int64] | None = None,
        columns: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.uri = array.uri
        self.dtype = array.dtype
        self._array = array
        self._chosen = (rows, columns)[: len(array.shape)]
        self.shape = tuple(
            size if chosen is None else len(chosen)
            for size, chosen in zip(array.shape, self._chosen, strict=True)
        )
        self.chunks = tuple(
            max(min(chunk, size), 1) for chunk, size in zip(array.chunks, self.shape, strict=True)
        )

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what reading the array itself takes, and what lies between what is wanted."""
        sizes = (rows, columns)[: len(self.shape)]
        spread = [
            min(size * (1 if chosen is None else _DENSE), whole)
            for size, chosen, whole in zip(sizes, self._chosen, self._array.shape, strict=True)
        ]
        between = int(np.prod(spread)) * self.dtype.itemsize
        wide = (*spread, 0)[:2]
        return between + self._array.read_scratch_bytes(wide[0], wide[1])

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        columns, picked = self._columns(spans)
        rows = self._chosen[0]
        if rows is None:
            self._copy(out, self._array.read(spans[0], columns), picked)
            return
        wanted = rows[slice(*spans[0])]
        done = 0
        while done < len(wanted):  # by stretches in which what is wanted lies close together
            reach = np.arange(done, len(wanted))
            sparse = wanted[done:] - wanted[done] >= _DENSE * (reach - done + 1)
            stop = done + max(int(np.argmax(sparse)) if sparse.any() else len(reach), 1)
            first, last = int(wanted[done]), int(wanted[stop - 1])
            block = self._array.read((first, last + 1), columns)
            self._copy(out[done:stop], block[wanted[done:stop] - first], picked)
            done = stop

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        chosen = self._chosen[0]
        block = self._array.take(rows if chosen is None else chosen[rows])
        columns = self._chosen[1] if len(self._chosen) > 1 else None
        out[...] = block if columns is None else block[:, columns]

    def _columns(self, spans: tuple[Span, ...]) -> tuple[Span | None, npt.NDArray[np.int64] | None]:
        """Return the columns to be read, and which of these are wanted (None: all)."""
        if len(spans) == 1:
            return None, None
        chosen = self._chosen[1]
        if chosen is None:
            return spans[1], None
        wanted = chosen[slice(*spans[1])]
        return (int(wanted[0]), int(wanted[-1]) + 1), wanted - wanted[0]

    @staticmethod
    def _copy(out: AnyArray, block: AnyArray, columns: npt.NDArray[np.int64] | None) -> None:
        out[...] = block if columns is None else block[:, columns]


class JoinedArray(Array):
    """Arrays one after the other, along rows or along columns.

    Parameters
    ----------
    arrays : sequence of Array
        At least one; of a dtype that holds the values of all.
    axis : {0, 1}
    uri : str
        How messages name it.
    """

    def __init__(self, arrays: Sequence[Array], axis: int, uri: str) -> None:
        self.uri = uri
        self._arrays = tuple(arrays)
        self._axis = axis
        sizes = [array.shape[axis] for array in arrays]
        self._begin = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        shape = list(arrays[0].shape)
        shape[axis] = int(self._begin[-1])
        self.shape = tuple(shape)
        self.dtype = np.result_type(*(array.dtype for array in arrays))
        largest = max(arrays, key=lambda array: array.shape[axis])
        self.chunks = largest.chunks

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return what reading takes of the array that takes most, and its block."""
        own = rows * max(columns, 1) * self.dtype.itemsize
        return own + max(array.read_scratch_bytes(rows, columns) for array in self._arrays)

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        start, stop = spans[self._axis]
        for number in self._touched(start, stop):
            begin, end = (int(edge) for edge in self._begin[number : number + 2])
            left, right = max(start, begin), min(stop, end)
            if left == right:
                continue
            own = list(spans)
            own[self._axis] = left - begin, right - begin
            array = self._arrays[number]
            target: AnyArray = (
                out[left - start : right - start]
                if self._axis == 0
                else out[:, left - start : right - start]
            )
            columns = own[1] if len(own) > 1 else None
            if target.flags.c_contiguous and array.dtype == self.dtype:
                block = array.read(own[0], columns, out=target)
                if not np.may_share_memory(block, target):  # one in memory gives a view of its own
                    target[...] = block
            else:
                target[...] = array.read(own[0], columns)

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        if self._axis == 1:
            for number in self._touched(0, self.shape[1]):
                begin, end = (int(edge) for edge in self._begin[number : number + 2])
                out[:, begin:end] = self._arrays[number].take(rows)
            return
        edges = np.searchsorted(rows, self._begin)
        for number in np.flatnonzero(np.diff(edges)).tolist():
            own = slice(int(edges[number]), int(edges[number + 1]))
            out[own] = self._arrays[number].take(rows[own] - self._begin[number])

    def _touched(self, start: int, stop: int) -> range:
        """Return which of the arrays a range lies in."""
        first = int(np.searchsorted(self._begin, start, side="right")) - 1
        return range(max(first, 0), int(np.searchsorted(self._begin, stop)))
