"""Labels of the queries or of the gallery: from one array a column, or from a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.arrays.uri import open_array
from streameval.errors import InputError
from streameval.labels.tables import Texts, check_written_alike, read_table
from streameval.protocols.labels import KNOWN_COLUMNS, AnyArray, Labels

_BLOCK = 1 << 16  # entries read at a time
_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64)

LabelSource = str | Path | npt.NDArray[Any] | Sequence[Any]


def read_labels(
    ids: LabelSource, cams: LabelSource | None = None, keys: LabelSource | None = None
) -> Labels:
    """Read labels, one array a column.

    Parameters
    ----------
    ids, cams, keys : str, Path, [n] array or sequence
        URIs ``path[::key]``, or arrays or lists in memory, of integers or strings.

    Returns
    -------
    Labels
        Of n items; integers of a file in the smallest dtype that holds them.

    Raises
    ------
    InputError
        If an array can't be read, is not a column of labels, or their lengths differ.
    """
    given = {
        column: source
        for column, source in zip(KNOWN_COLUMNS, (ids, cams, keys), strict=True)
        if source is not None
    }
    names = {
        column: str(source) if isinstance(source, str | Path) else "labels"
        for column, source in given.items()
    }
    columns = {column: _column(source) for column, source in given.items()}
    return Labels.of(columns, names["id"], names)


def _column(source: LabelSource) -> npt.ArrayLike:
    if not isinstance(source, str | Path):
        return source
    array = open_array(source)
    if len(array.shape) == 2 and 1 not in array.shape:  # features, say: too large to be read
        raise InputError(
            f"{array.uri} has shape {array.shape}; labels need one column, one entry an item"
        )
    if array.dtype.kind not in "iu" or len(array.shape) != 1:
        return array.read_all()
    return _compact(array)


def _compact(array: Array) -> AnyArray:
    """Read integers into the smallest dtype that holds them: a large gallery has many labels."""
    spans = [
        (start, min(start + _BLOCK, array.shape[0])) for start in range(0, array.shape[0], _BLOCK)
    ]
    bounds = [(int(block.min()), int(block.max())) for block in map(array.read, spans)]
    low, high = min((b[0] for b in bounds), default=0), max((b[1] for b in bounds), default=0)
    smallest = next(
        (
            dtype
            for dtype in _INTEGERS
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max
        ),
        array.dtype,
    )
    values: AnyArray = np.empty(array.shape[0], smallest)
    for start, stop in spans:
        values[start:stop] = array.read((start, stop))
    return values


def read_label_table(
    path: str | Path,
    *,
    text: Collection[str] = (),
    more: Sequence[str] = (),
    shared: Sequence[str] = (),
) -> Labels:
    """Read labels from a CSV or Parquet table with columns ``id[,cam][,key]``; or file names.

    Names are those of a folder of images, or a text with a name a line: see `read_names`.

    Other columns are ignored, but for those asked for. A CSV column is one of integers if every
    cell of it is an integer, else of strings. A Parquet column is what it is stored as.

    Parameters
    ----------
    path : str or Path
    text : collection of str
        Columns of a CSV table that stay strings, even if every cell is an integer.
    more : sequence of str
        Further columns to read, to group results by or for a protocol.
    shared : sequence of str
        Further columns to read if the table has them.

    Returns
    -------
    Labels
        An entry per row.

    Raises
    ------
    InputError
        If the table can't be read, lacks a column, or a label is empty or a fraction;
        or if cells such as 01 and 1 would become one integer.
    """
    columns = read_table(path, more, shared)
    integers = {
        name
        for name, column in columns.items()
        if isinstance(column, Texts) and name not in text and column.are_integers()
    }
    return _labels(path, columns, integers)


def read_label_tables(
    query: str | Path,
    gallery: str | Path,
    *,
    more: Sequence[str] = (),
    shared: Sequence[str] = (),
) -> tuple[Labels, Labels]:
    """Read the tables of both sides, so that their labels can be compared.

    As `read_label_table`, but a CSV column is one of integers only if it is so on both sides:
    0001 is a string where the other side has 0002x.

    Parameters
    ----------
    query, gallery : str or Path
    more : sequence of str
        Further columns of the queries, to group results by.
    shared : sequence of str
        Further columns of both sides, for a protocol; read if a table has them.

    Returns
    -------
    (Labels, Labels)
        Of the queries, and of the gallery.

    Raises
    ------
    InputError
        As `read_label_table`; 01 on one side and 1 on the other are refused too.
    """
    tables = read_table(query, more, shared), read_table(gallery, (), shared)
    integers = {name for name in more if _are_integers(tables[0][name])}
    for name in (*KNOWN_COLUMNS, *shared):
        columns = [table[name] for table in tables if name in table]
        found = [_are_integers(column) for column in columns]  # of all: one may be refused
        if all(found):
            check_written_alike([column for column in columns if isinstance(column, Texts)])
            integers.add(name)
        else:
            integers.discard(name)
    return _labels(query, tables[0], integers), _labels(gallery, tables[1], integers)


def _are_integers(column: Texts | AnyArray) -> bool:
    return column.are_integers() if isinstance(column, Texts) else column.dtype.kind in "iu"


def _labels(
    path: str | Path, columns: Mapping[str, Texts | AnyArray], integers: Collection[str]
) -> Labels:
    values: dict[str, AnyArray] = {}
    for name, column in columns.items():
        if not isinstance(column, Texts):
            values[name] = column
        elif name in integers:
            check_written_alike([column])
            values[name] = column.integers()
        else:
            values[name] = column.texts()
    return Labels.of(values, str(path))


@dataclass(frozen=True)
class LabelUris:
    """Where the labels of a side are: in arrays, or in a table.

    Attributes
    ----------
    ids, cams, keys : str, optional
        URIs of arrays.
    table : str, optional
        In their place.
    """

    ids: str | None = None
    cams: str | None = None
    keys: str | None = None
    table: str | None = None

    def read(self) -> Labels:
        """Read the arrays.

        Raises
        ------
        InputError
        """
        if self.ids is None:
            raise InputError("neither ids nor a table of labels are given")
        return read_labels(self.ids, self.cams, self.keys)


def read_sides(
    query: LabelUris, gallery: LabelUris, *, more: Sequence[str] = (), shared: Sequence[str] = ()
) -> tuple[Labels, Labels]:
    """Read the labels of both sides, of which each is a table or arrays.

    Where one side is a table, its columns are read as what they are on the other side.

    Parameters
    ----------
    query, gallery : LabelUris
    more : sequence of str
        Further columns of the queries' table, to group results by.
    shared : sequence of str
        Further columns of both tables, for a protocol; read if a table has them.

    Raises
    ------
    InputError
        As `read_labels` and `read_label_tables` do.
    """
    if query.table is not None and gallery.table is not None:
        return read_label_tables(query.table, gallery.table, more=more, shared=shared)
    if query.table is not None:
        stored = gallery.read()
        text = _text_columns(stored)
        return read_label_table(query.table, text=text, more=more, shared=shared), stored
    stored = query.read()
    if gallery.table is not None:
        return stored, read_label_table(gallery.table, text=_text_columns(stored), shared=shared)
    return stored, gallery.read()


def _text_columns(labels: Labels) -> list[str]:
    return [name for name, values in labels.columns.items() if values.dtype.kind == "U"]
