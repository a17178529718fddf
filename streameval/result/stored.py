"""Statistics on disk, a Zarr v3 group: written block by block, and read block by block.

An array a field, with checksums. Fields that have no entry by query or positive are of all queries
together.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.complete import check_complete
from streameval.errors import InputError, OutputError
from streameval.stacked import stack
from streameval.statistics import FIELDS, REQUIRED, ROW_FIELDS, RankStatistics
from streameval.store import create_array
from streameval.typing import AnyArray, IntArray, Span

FORMAT = 4  # of results; those of earlier formats are read, too
CHUNK = 1 << 18  # numbers in a chunk
BLOCK_BYTES = 16 << 20  # of statistics that are read together
WHOLE_BYTES = 256 << 20  # of statistics that are read as a whole when they are opened
_METADATA = ("zarr.json", ".zgroup", ".zattrs", ".zmetadata")
_BY_ROW = ("query", "positive", "pointer")


class StatisticsWriter:
    """Writes statistics, one block of queries after the other.

    Parameters
    ----------
    path : Path
        Of the group, in place of what is there.
    queries, positives : int
        Of all blocks.
    """

    def __init__(self, path: Path, queries: int, positives: int) -> None:
        import zarr

        self._group = zarr.open_group(path, mode="w", zarr_format=3)
        self._group.attrs["format"] = FORMAT
        self._sizes = {"query": queries, "positive": positives, "pointer": queries + 1}
        self._begin = dict.fromkeys(self._sizes, 0)
        self._arrays: dict[str, Any] = {}
        self._rows: dict[str, _Rows] = {}
        self._shared: dict[str, AnyArray] = {}

    def add(self, block: RankStatistics) -> None:
        """Write the statistics of the queries that follow."""
        for name, values in block.arrays().items():
            axis = FIELDS[name].axes[0]
            if axis in _BY_ROW:
                rows = values
                if axis == "pointer":
                    rows = values[int(self._begin["pointer"] > 0) :] + self._begin["positive"]
                self._write(name, rows)
            elif FIELDS[name].merge == "sum" and name in self._shared:
                self._shared[name] = self._shared[name] + values
            else:
                self._shared[name] = values
        counts = len(block.indptr) - 1, int(block.indptr[-1])
        self._begin["pointer"] += counts[0] + (self._begin["pointer"] == 0)
        for axis, count in zip(("query", "positive"), counts, strict=True):
            self._begin[axis] += count

    def _write(self, name: str, rows: AnyArray) -> None:
        if name not in self._arrays:
            size = self._sizes[FIELDS[name].axes[0]]
            self._arrays[name] = self._create(name, (size, *rows.shape[1:]), rows.dtype)
            self._rows[name] = _Rows(self._arrays[name])
        self._rows[name].add(rows)

    def _create(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        width = max(int(np.prod(shape[1:])), 1)
        chunks = (max(min(CHUNK // width, shape[0]), 1), *(max(size, 1) for size in shape[1:]))
        return create_array(self._group, name, shape, dtype, chunks)

    def close(self) -> None:
        """Write what all blocks share; raise ValueError if some queries are missing."""
        if self._begin != self._sizes:
            raise ValueError(f"statistics of {self._begin} were written; expected {self._sizes}")
        for rows in self._rows.values():
            rows.flush()
        for name, values in self._shared.items():
            self._create(name, values.shape, values.dtype)[...] = values
        self._group.attrs["fields"] = [*self._arrays, *self._shared]


class _Rows:
    """Writes the rows of an array in order, a whole chunk at a time: each is encoded once."""

    def __init__(self, array: Any) -> None:
        self._array, self._written, self._held = array, 0, 0
        self._chunk: AnyArray = np.empty((array.chunks[0], *array.shape[1:]), array.dtype)

    def add(self, rows: AnyArray) -> None:
        """Write rows that follow, or hold them."""
        while len(rows):
            part = rows[: len(self._chunk) - self._held]
            self._chunk[self._held : self._held + len(part)] = part
            self._held, rows = self._held + len(part), rows[len(part) :]
            if self._held == len(self._chunk):
                self.flush()

    def flush(self) -> None:
        """Write the rows that are held."""
        if self._held:
            end = self._written + self._held
            self._array[self._written : end] = self._chunk[: self._held]
            self._written, self._held = end, 0


def save_statistics(statistics: RankStatistics, path: Path) -> None:
    """Write statistics as a group, block by block; or link to the files that they are in."""
    if isinstance(statistics, StoredStatistics) and statistics.link(path):
        return
    writer = StatisticsWriter(path, statistics.queries, int(statistics.indptr[-1]))
    for block in statistics.blocks():
        writer.add(block)
    writer.close()


def load_statistics(path: Path) -> RankStatistics:
    """Open statistics; raise OutputError if a field is missing, incomplete or damaged.

    Many are read when they are asked for.
    """
    with reading(path.parent, f"{path.name}, "):
        stored = StoredStatistics(path)
        return stored.whole() if stored.nbytes <= WHOLE_BYTES else stored


class StoredStatistics(RankStatistics):
    """Statistics on disk: a field is read whenever it is asked for, a block whenever it is.

    Parameters
    ----------
    path : Path
        Of the group.
    owner : object, optional
        Kept as long as the statistics are: a folder that is removed with it.

    Attributes
    ----------
    nbytes : int
        Of all fields in memory.
    """

    _path: Path
    _owner: object
    _as_written: bool
    _known_by: tuple[int, ...] | None
    _arrays: dict[str, Any]
    _shared: dict[str, AnyArray]

    def __init__(self, path: Path, owner: object = None) -> None:
        import zarr

        vars(self).update(_path=path, _owner=owner, _as_written=True, _known_by=_stamp(path))
        group = zarr.open_group(path, mode="r")
        held: Any = group.attrs.get("fields", sorted(REQUIRED))  # format 1 has no optional ones
        known, there = REQUIRED.union(held), {child.name for child in path.iterdir()}
        stray = sorted(there - known - set(_METADATA))
        if stray:
            raise OutputError(
                f"{path}: zarr.json names the fields {', '.join(sorted(known))}, and there is "
                f"{stray[0]}; evaluate again"
            )
        arrays: dict[str, Any] = {}
        for name in (name for name in FIELDS if name in known):
            array = arrays[name] = group[name]
            if not isinstance(array, zarr.Array):
                raise OutputError(f"{path}: {name} is no array")
            check_complete(array, path / name, f"{path}::{name}")
        vars(self).update(_arrays=arrays, _shared={})
        shared = {name: self._values(name) for name in arrays if name not in ROW_FIELDS}
        vars(self)["_shared"] = shared | {"indptr": self._values("indptr")}
        if not len(self.indptr) or (np.diff(self.indptr, prepend=0) < 0).any():
            raise OutputError(f"{path}: indptr does not ascend from 0")
        rows = {"query": self.queries, "positive": int(self.indptr[-1])}
        for name, array in arrays.items():
            layout = FIELDS[name]
            size = rows.get(layout.axes[0], array.shape[0] if array.shape else 0)
            if array.shape[:1] != (size,) or array.ndim != len(layout.axes):
                raise OutputError(f"{path}: {name} has shape {array.shape}; expected {size} rows")

    def _values(self, name: str, rows: slice = slice(None)) -> AnyArray:
        """Return rows of a field, read."""
        path, array = self._path, self._arrays[name]
        if isinstance(array, np.ndarray):  # not of the group
            return array[rows]
        if _stamp(path) != self._known_by:
            raise OutputError(
                f"{path} has been replaced or removed since it was opened: load the result again"
            )
        with reading(path.parent, f"{path.name}, "):
            check_complete(array, path / name, f"{path}::{name}")
            return np.asarray(array[rows])

    def link(self, path: Path) -> bool:
        """Make a group of links to the files, if nothing else but the owner has them.

        Returns whether it could: not where fields have changed, or on another file system.
        """
        if self._owner is None or not self._as_written:
            return False
        try:
            shutil.copytree(self._path, path, copy_function=os.link)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            return False
        return True

    def whole(self) -> RankStatistics:
        """Return the statistics in memory."""
        return RankStatistics(**self.arrays())

    def __reduce__(self) -> tuple[Any, ...]:
        """Return them in memory: files are of this machine."""
        return _in_memory, (self.arrays(),)

    @property
    def held(self) -> Sequence[str]:
        """Names of the fields that are there."""
        return list(self._arrays)

    @cached_property
    def _row_bytes(self) -> dict[str, int]:
        """Bytes of a query, and of a positive."""
        sizes = {"query": 0, "positive": 0}
        for name in self._arrays:
            if name not in ROW_FIELDS:
                continue
            array = self._arrays[name]
            width = int(np.prod(array.shape[1:])) * array.dtype.itemsize
            sizes[FIELDS[name].axes[0]] += width
        return sizes

    def _bytes_through(self) -> IntArray:
        """Return the bytes of the first 0, 1, .. queries, [Q + 1] int64."""
        sizes = self._row_bytes
        return self.indptr * sizes["positive"] + np.arange(len(self.indptr)) * sizes["query"]

    @property
    def nbytes(self) -> int:  # noqa: D102 - see the class
        return int(self._bytes_through()[-1])

    @cached_property
    def spans(self) -> Sequence[Span]:
        """Blocks of queries of about `BLOCK_BYTES`; see `RankStatistics.spans`."""
        through, cuts = self._bytes_through(), [0]
        while cuts[-1] < self.queries:
            last = np.searchsorted(through, through[cuts[-1]] + BLOCK_BYTES, side="right") - 1
            cuts.append(max(int(last), cuts[-1] + 1))
        return list(pairwise(cuts)) or [(0, 0)]

    def block(self, start: int, stop: int) -> RankStatistics:
        """Read the statistics of a block of queries; all histograms are in the first block."""
        begin, end = self.indptr[[start, stop]].tolist()
        of = {"query": slice(start, stop), "positive": slice(begin, end)}
        fields: dict[str, Any] = {
            name: self._values(name, of[FIELDS[name].axes[0]])
            for name in self.held
            if name in ROW_FIELDS
        }
        for name, values in self._shared.items():
            summed = FIELDS[name].merge == "sum" and start > 0
            fields[name] = np.zeros_like(values) if summed else values
        with reading(self._path.parent, f"{self._path.name}, "):
            return RankStatistics(**fields | {"indptr": self.indptr[start : stop + 1] - begin})

    def stretch(self, name: str, start: int, stop: int) -> AnyArray:
        """Read consecutive rows of a field of queries or positives."""
        return self._values(name, slice(start, stop))

    def take(self, queries: AnyArray) -> RankStatistics:
        """Read the statistics of some of the queries; see `RankStatistics.take`."""
        wanted = np.arange(self.queries)[queries]
        if (np.diff(wanted) <= 0).any():
            return self.whole().take(queries)
        parts = []
        for start, stop in self.spans:
            own = wanted[slice(*np.searchsorted(wanted, (start, stop)))] - start
            if len(own):
                taken = self.block(start, stop).take(own)
                parts.append(vars(taken) | dict.fromkeys(_HISTOGRAM))
        first = [] if parts else [vars(self.block(0, 0)) | dict.fromkeys(_HISTOGRAM)]
        stacked = stack([RankStatistics(**part) for part in parts or first])
        return RankStatistics(**stacked.arrays() | self.histogram_of_some(wanted))

    def select_positives(self, kept: AnyArray) -> RankStatistics:
        """Return the statistics with some of the positives; see `RankStatistics`."""
        return self.whole().select_positives(kept)

    def _changed(self, changes: Mapping[str, Any]) -> RankStatistics:
        """Return the statistics with other values of some fields, which are in memory."""
        arrays, shared = dict(self._arrays), dict(self._shared)
        for name, values in changes.items():
            of_all = {} if name in ROW_FIELDS else shared
            for fields in (arrays, of_all):
                fields.pop(name, None)
                if values is not None:
                    fields[name] = values
        changed = StoredStatistics.__new__(StoredStatistics)
        own = {"_arrays": arrays, "_shared": shared, "_as_written": False}
        vars(changed).update(vars(self) | own)
        return changed


_HISTOGRAM = ("group", "group_histogram", "impostor_histogram", "histogram_edges")


def _field(name: str) -> property:
    """Return a property that reads a field; None where it is not there."""

    def read(self: StoredStatistics) -> AnyArray | None:
        if name not in self._arrays:
            return None
        return self._shared[name] if name in self._shared else self._values(name)

    return property(read)


for _name in FIELDS:
    setattr(StoredStatistics, _name, _field(_name))


def _in_memory(arrays: dict[str, Any]) -> RankStatistics:
    return RankStatistics(**arrays)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what a group is known by; None where it is gone."""
    try:
        found = (path / _METADATA[0]).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def reading(folder: Path, what: str = "") -> Iterator[None]:
    """Refuse a result of which something can't be read: missing, cut, or of another kind."""
    try:
        yield
    except (MemoryError, OutputError):
        raise
    except Exception as error:
        said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise damaged(folder, f"{what}{said}") from error


def damaged(folder: Path, how: str) -> OutputError:
    """Return the error of a result that can't be read."""
    return OutputError(f"{folder} is damaged ({how}); evaluate again, or restore the folder")
