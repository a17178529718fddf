"""Columns of Parquet files: embeddings, a list a row, or numbers and texts; read by row groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import (
    Array,
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
from streameval.typing import AnyArray, IntArray

_PIECE_BYTES = 1 << 20  # decoded at a time, at least a row
_BUFFER_BYTES = 1 << 16  # read of the file at a time
_COPIES = 4  # of a piece: a page, decoded, as lists, as an array


class ParquetArray(Array):
    """A column of a Parquet file: [n, m] of lists of m numbers, or [n] of numbers or texts.

    Without a key, it is the only column, or the only one of lists. A read decodes the row groups
    that it touches, piece by piece from their beginning.
    """

    def __init__(self, path: Path, key: str | None, uri: str) -> None:
        import pyarrow as pa

        self._path, self._metadata = path.absolute(), None
        with reading(uri, "read as Parquet"):
            file = self._open()
            schema, self._metadata = file.schema_arrow, file.metadata
            lists = [field.name for field in schema if _is_list(field.type)]
            only = lists[0] if len(lists) == 1 else None
            key, uri = choose_key(path, key or only, schema.names, "column")
            self.uri, self._key = uri, key
            groups = range(self._metadata.num_row_groups)
            sizes = [self._metadata.row_group(group).num_rows for group in groups]
            self._starts = np.cumsum([0, *sizes])
            kind = schema.field(key).type
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
        self._copy(out, np.arange(*spans[0]), slices(spans[1:]))

    def _take(self, out: AnyArray, rows: IntArray) -> None:
        self._copy(out, rows, ())

    def _copy(self, out: AnyArray, rows: IntArray, columns: tuple[slice, ...]) -> None:
        """Decode the row groups of some rows, each once, and piece by piece."""
        file, size, done = self._open(), max(_PIECE_BYTES // self._row_bytes, 1), 0
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        for own in stretches(groups):
            group = int(groups[own.start])
            start = int(self._starts[group])
            for batch in file.iter_batches(
                batch_size=size, row_groups=[group], columns=[self._key], use_threads=False
            ):
                end = int(np.searchsorted(rows, start + len(batch)))
                if done < end:
                    wanted, first = rows[done:end], int(rows[done])
                    cells = batch.column(0).slice(first - start, int(wanted[-1]) + 1 - first)
                    values = self._values(cells, first)[:, *columns]
                    out[done:end] = values if len(values) == end - done else values[wanted - first]
                    done = end
                start += len(batch)
                if done == own.stop:
                    break
            if done < own.stop:
                raise InputError(
                    f"{self.uri} ends before row {rows[done]} of {self.shape[0]}: write it again"
                )

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
    import pyarrow as pa

    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)


def _dtype(uri: str, kind: Any) -> np.dtype[Any]:
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return np.dtypes.StringDType()
    if types.is_floating(kind) or types.is_integer(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    raise InputError(f"{uri} is a column of {kind}; numbers, texts, or lists of numbers are needed")
