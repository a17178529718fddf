"""Columns of Parquet files: embeddings, a list a row, or numbers and texts; read by row groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import (
    AnyArray,
    Array,
    Rows,
    Shape,
    Spans,
    check_lengths,
    choose_key,
    native_dtype,
    reading,
    slices,
    stretches,
)
from streameval.errors import InputError

_PIECE_BYTES = 1 << 20  # decoded at a time, at least a row
_BUFFER_BYTES = 1 << 16  # read of the file at a time
_COPIES = 4  # of a piece: a page, decoded, as lists, as an array


class ParquetArray(Array):
    """A column of a Parquet file: [n, m] of lists of m numbers, or [n] of numbers or texts.

    A read decodes the row groups that it touches, piece by piece from their beginning.
    """

    def __init__(self, path: Path, key: str, uri: str) -> None:
        import pyarrow as pa

        self.uri = uri
        self._path, self._key, self._metadata = path.absolute(), key, None
        with reading(uri, "read as Parquet"):
            file = self._open()
            self._metadata = file.metadata
            groups = range(self._metadata.num_row_groups)
            sizes = [self._metadata.row_group(group).num_rows for group in groups]
            self._starts = np.cumsum([0, *sizes])
            kind = file.schema_arrow.field(key).type
            if isinstance(kind, pa.DictionaryType):
                kind = kind.value_type
            width: Shape = ()
            if _is_list(kind):  # of as many as the first; others are checked when they are read
                first = next(file.iter_batches(batch_size=1, columns=[key]), None)
                cells = [] if first is None else first.column(0)[0].as_py() or []
                width = (getattr(kind, "list_size", len(cells)) if sum(sizes) else 0,)
                kind = kind.value_type
            self.shape = sum(sizes), *width
            self.dtype = native_dtype(uri, self.shape, _dtype(uri, kind))
        self.chunks = (max([1, *sizes]), *width)
        self._row_bytes = max(1, *width) * self.dtype.itemsize if width else 16

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the piece that is decoded at a time, in all its forms."""
        return _COPIES * max(_PIECE_BYTES, self._row_bytes)

    def _open(self) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(
            self._path, metadata=self._metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False
        )

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        (start, stop), columns = spans[0], slices(spans[1:])
        done = start
        for first, values in self._pieces(start, stop):
            done = first + len(values)
            out[first - start : done - start] = values[:, *columns]
        if done != stop:
            raise InputError(f"{self.uri} ends after row {done} of {self.shape[0]}: write it again")

    def _take(self, out: AnyArray, rows: Rows) -> None:
        """Decode the row groups of the rows, each once."""
        for own in stretches(np.searchsorted(self._starts, rows, side="right")):
            for first, values in self._pieces(int(rows[own.start]), int(rows[own.stop - 1]) + 1):
                begin, end = np.searchsorted(rows, [first, first + len(values)])
                out[begin:end] = values[rows[begin:end] - first]

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, AnyArray]]:
        """Yield the values of rows, piece by piece, each with its first row."""
        groups = np.searchsorted(self._starts, [start, stop - 1], side="right") - 1
        file, size = self._open(), max(_PIECE_BYTES // self._row_bytes, 1)
        for group in range(int(groups[0]), int(groups[1]) + 1):
            row = int(self._starts[group])
            for batch in file.iter_batches(
                batch_size=size, row_groups=[group], columns=[self._key], use_threads=False
            ):
                begin, end = max(start, row), min(stop, row + len(batch))
                if begin < end:
                    yield (
                        begin,
                        self._values(batch.column(0).slice(begin - row, end - begin), begin),
                    )
                row += len(batch)
                if row >= stop:
                    return

    def _values(self, cells: Any, first: int) -> AnyArray:
        """Return cells as an array [n] or [n, m]; `first` is the row of the first of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def check(values: Any, width: int) -> None:
            if values.null_count:
                row = first + pc.index(pc.is_null(values), True).as_py() // width
                raise InputError(f"{self.uri} holds a null in row {row}: every value is needed")

        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        check(cells, 1)
        if len(self.shape) == 2:
            width = self.shape[1]
            lengths = pc.list_value_length(cells).to_numpy()
            check_lengths(self.uri, lengths, width, first)
            cells = cells.flatten()
            check(cells, max(width, 1))
        values: AnyArray = np.asarray(cells.to_numpy(zero_copy_only=False))
        return values.reshape(-1, *self.shape[1:])


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return any(
        is_one(kind) for is_one in (types.is_list, types.is_large_list, types.is_fixed_size_list)
    )


def _dtype(uri: str, kind: Any) -> np.dtype[Any]:
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return np.dtypes.StringDType()
    if types.is_floating(kind) or types.is_integer(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    raise InputError(f"{uri} is a column of {kind}; numbers, texts, or lists of numbers are needed")


def open_parquet(path: Path, key: str | None, uri: str) -> Array:
    """Open a column of a Parquet file; without a key the only one, or the only one of lists."""
    from pyarrow import parquet

    with reading(uri, "read as Parquet"):
        schema = parquet.read_schema(path)
    lists = [field.name for field in schema if _is_list(field.type)]
    only = lists[0] if len(lists) == 1 else None
    return ParquetArray(path, *choose_key(path, key or only, schema.names, "column"))
