"""Columns of Parquet files: embeddings, a list a row, or numbers and texts; read by row groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import AnyArray, Array, Span, native_dtype, reading_as
from streameval.errors import InputError

_PIECE_BYTES = 1 << 20  # decoded at a time, at least a row
_BUFFER_BYTES = 1 << 16  # read of the file at a time
_COPIES = 4  # of a piece: a page, decoded, as lists, as an array


class ParquetArray(Array):
    """A column of a Parquet file: [n, m] of lists of m numbers, or [n] of numbers or texts.

    A read decodes the row groups that it touches, piece by piece from their beginning.

    Parameters
    ----------
    path : Path
    key : str
        Name of the column.
    uri : str

    Raises
    ------
    InputError
        If the column holds something else.
    """

    def __init__(self, path: Path, key: str, uri: str) -> None:
        import pyarrow as pa

        self.uri = uri
        self._path, self._key = path.absolute(), key
        with reading_as("Parquet", uri):
            file = self._open()
            self._metadata = file.metadata
            kind = file.schema_arrow.field(key).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            sizes = [
                self._metadata.row_group(group).num_rows
                for group in range(self._metadata.num_row_groups)
            ]
            self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            rows = int(self._starts[-1])
            width: tuple[int, ...] = ()
            if _is_list(kind):
                width = (self._width(kind) if rows else 0,)
                kind = kind.value_type
            self.shape = rows, *width
            self.dtype = native_dtype(uri, self.shape, _dtype(uri, kind))
        self.chunks = (max([1, *sizes]), *width)

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Path, str, str]]:
        return open_parquet, (self._path, self._key, self.uri)

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the piece that is decoded at a time, in all its forms."""
        return _COPIES * max(_PIECE_BYTES, self._row_bytes())

    def _row_bytes(self) -> int:
        return max(1, *self.shape[1:]) * self.dtype.itemsize if self.shape[1:] else 16

    def _open(self) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(
            self._path,
            metadata=getattr(self, "_metadata", None),
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
        )

    def _width(self, kind: Any) -> int:
        """Return the length of the first list; all others are checked when they are read."""
        import pyarrow as pa

        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        first = next(self._open().iter_batches(batch_size=1, columns=[self._key])).column(0)
        return len(first[0].as_py() or ())

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        start, stop = spans[0]
        columns = slice(*spans[1]) if len(spans) == 2 else None
        done = start
        with reading_as("Parquet", f"{self.uri} {self.shape}"):
            for first, piece in self._pieces(start, stop):
                begin, end = max(start, first), min(stop, first + len(piece))
                if begin < end:
                    some = piece.slice(begin - first, end - begin)
                    values = self._values(some, begin)
                    out[begin - start : end - start] = (
                        values if columns is None else values[:, columns]
                    )
                    done = end
            if done != stop:
                raise InputError(
                    f"{self.uri} ends after row {done}; its metadata promises {self.shape[0]}: "
                    "write it again"
                )

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        """Decode the row groups of the rows, each once."""
        group = np.searchsorted(self._starts, rows, side="right")
        with reading_as("Parquet", f"{self.uri} {self.shape}"):
            for own in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(group)) + 1):
                first, last = int(rows[own[0]]), int(rows[own[-1]])
                for start, piece in self._pieces(first, last + 1):
                    begin, end = np.searchsorted(rows, [start, start + len(piece)])
                    if begin < end:
                        out[begin:end] = self._values(piece, start)[rows[begin:end] - start]

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """Yield pieces of the column, from the row group of `start` on, and their first rows."""
        first, last = np.searchsorted(self._starts, [start, stop - 1], side="right") - 1
        file = self._open()
        size = max(_PIECE_BYTES // self._row_bytes(), 1)
        for group in range(int(first), int(last) + 1):
            row = int(self._starts[group])
            for batch in file.iter_batches(
                batch_size=size, row_groups=[group], columns=[self._key], use_threads=False
            ):
                yield row, batch.column(0)
                row += len(batch)
                if row >= stop:
                    return

    def _values(self, cells: Any, first: int) -> AnyArray:
        """Return cells as an array [n] or [n, m]; `first` is the row of the first of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        if cells.null_count:
            row = first + pc.index(pc.is_null(cells), True).as_py()
            raise InputError(f"{self.uri} is null in row {row}: every row needs a value")
        if len(self.shape) == 1:
            values: AnyArray = np.asarray(cells.to_numpy(zero_copy_only=False))
            return values
        if not pa.types.is_fixed_size_list(cells.type):
            other = np.flatnonzero(pc.list_value_length(cells).to_numpy() != self.shape[1])
            if len(other):
                length = pc.list_value_length(cells)[int(other[0])].as_py()
                raise InputError(
                    f"{self.uri} row {first + other[0]} is {length} long, row 0 "
                    f"{self.shape[1]}: all rows must be of one length"
                )
        flat = cells.flatten()
        if flat.null_count:
            row = first + pc.index(pc.is_null(flat), True).as_py() // max(self.shape[1], 1)
            raise InputError(f"{self.uri} holds a null in row {row}: every value is needed")
        numbers: npt.NDArray[Any] = flat.to_numpy(zero_copy_only=False)
        return numbers.reshape(len(cells), self.shape[1])


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    is_list: bool = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    return is_list


def _dtype(uri: str, kind: Any) -> np.dtype[Any]:
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.dtypes.StringDType()
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    raise InputError(f"{uri} is a column of {kind}; numbers, texts, or lists of numbers are needed")


def open_parquet(path: Path, key: str | None, uri: str) -> Array:
    """Open a column of a Parquet file.

    Parameters
    ----------
    path : Path
    key : str or None
        Name of the column; may be left out where there is only one, or one of lists.
    uri : str

    Raises
    ------
    InputError
        If there is no such column, or it holds neither numbers, texts, nor lists of numbers.
    """
    from pyarrow import parquet

    with reading_as("Parquet", uri):
        schema = parquet.read_schema(path)
    names = list(schema.names)
    lists = [field.name for field in schema if _is_list(field.type)]
    if key is None and 1 in (len(names), len(lists)):
        key = names[0] if len(names) == 1 else lists[0]
    if key is None or names.count(key) != 1:
        problem = "holds several columns" if key is None else "has no such column, or several"
        raise InputError(
            f"{uri} {problem}; name one as FILE.parquet::COLUMN. Columns in it: "
            f"{', '.join(names) or 'none'}"
        )
    return ParquetArray(path, key, f"{path}::{key}")
