"""Encodings on disk: written block by block, and mapped where they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from streameval.output import TemporaryFolder
from streameval.planning.plan import pieces
from streameval.reranking.encoding import SparseRows
from streameval.stretches import entries_of
from streameval.typing import AnyArray, FloatArray, IntArray

ITEM, VALUE = np.dtype("<i4"), np.dtype("<f8")
MAPPED_ROWS = 256  # that lie anywhere, in one mapping
MAPPED_BYTES = 2 * MAPPED_ROWS << 16  # of the two files: systems map 64 KiB around what is read


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Sparse rows in two files, mapped anew whenever they are read.

    What has been read is let go of with the mapping.

    Attributes
    ----------
    folder : Path
    begin : [n + 1] int64
    """

    folder: Path
    begin: IntArray

    def mapped(self) -> SparseRows:
        """Return the rows, mapped."""
        names = (("items", ITEM), ("values", VALUE))
        return SparseRows(self.begin, *(_mapped(self.folder / name, kind) for name, kind in names))

    def take(self, rows: IntArray) -> SparseRows:
        """Return copies of some rows, ascending: of large files, a few are mapped at a time."""
        first = self.begin[rows]
        begin, entry = entries_of(first, self.begin[rows + 1] - first)
        item, value = np.empty(begin[-1], ITEM), np.empty(begin[-1], VALUE)
        whole = self.begin[-1] * (ITEM.itemsize + VALUE.itemsize) <= MAPPED_BYTES
        for start, stop in pieces((0, len(rows)), max(len(rows), 1) if whole else MAPPED_ROWS):
            own, mapped = slice(begin[start], begin[stop]), self.mapped()
            item[own], value[own] = mapped.item[entry[own]], mapped.value[entry[own]]
        return SparseRows(begin, item, value)


def _mapped(path: Path, kind: np.dtype[Any]) -> AnyArray:
    if not path.stat().st_size:  # no map is of an empty file
        return np.empty(0, kind)
    return np.memmap(path, kind, "r").view(np.ndarray)


class RowWriter:
    """Writes sparse rows to two files in a folder: a context.

    Parameters
    ----------
    folder : Path
        It is made.
    rows : int
        How many there will be.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._begin, self._rows = folder, np.zeros(rows + 1, np.int64), 0
        self._files: tuple[BinaryIO, BinaryIO] = (
            (folder / "items").open("wb"),
            (folder / "values").open("wb"),
        )

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for file in self._files:
            file.close()

    def add(self, rows: SparseRows) -> None:
        """Write the rows that follow."""
        items, values = self._files
        items.write(np.ascontiguousarray(rows.item, ITEM).data)
        values.write(np.ascontiguousarray(rows.value, VALUE).data)
        start, stop = self._rows, self._rows + len(rows.begin) - 1
        self._begin[start + 1 : stop + 1] = self._begin[start] + rows.begin[1:]
        self._rows = stop

    def kept(self) -> KeptRows:
        """Return the rows, once all are written."""
        for file in self._files:
            file.flush()
        return KeptRows(self._folder, self._begin)


@dataclass(frozen=True, eq=False)
class Encodings:
    """What re-ranked distances are computed from, beside distances of features.

    Attributes
    ----------
    rows : KeptRows
        V of queries, then gallery items.
    greatest : [Q] float64
        The greatest distance of each query.
    row : [Q] int64
        The row of each query; those of gallery items follow all of these.
    first : int
        The row of the first gallery item.
    changed : KeptRows, optional
        By the row of a query, gallery items whose s(q, g) is another than that of V, with that.
    folder : TemporaryFolder
        Where they are, as long as this is referred to.
    """

    rows: KeptRows
    greatest: FloatArray
    row: IntArray
    first: int
    changed: KeptRows | None = None
    folder: TemporaryFolder | None = None

    @classmethod
    def of_all(
        cls, rows: KeptRows, greatest: FloatArray, folder: TemporaryFolder | None = None
    ) -> Encodings:
        """Return encodings in which each query has a row of its own."""
        queries = len(greatest)
        return cls(rows, greatest, np.arange(queries), queries, folder=folder)

    def __reduce__(self) -> tuple[type[Encodings], tuple[object, ...]]:
        """Leave the folder to the process that made it."""
        return Encodings, (self.rows, self.greatest, self.row, self.first, self.changed)
