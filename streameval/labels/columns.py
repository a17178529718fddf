"""Labels of the queries or of the gallery: from one array a column, or from a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from streameval.arrays.uri import open_array
from streameval.errors import InputError, entry_point
from streameval.labels.stored import read_column
from streameval.labels.tables import columns_of, read_table
from streameval.labels.texts import Texts, check_written_alike
from streameval.protocols.labels import Labels
from streameval.typing import AnyArray

BUNDLE: Mapping[str, str] = {
    "query": "query_f",
    "gallery": "gallery_f",
    "query_ids": "query_label",
    "gallery_ids": "gallery_label",
    "query_cams": "query_cam",
    "gallery_cams": "gallery_cam",
}
"""Arrays of a whole evaluation in one file, ``pytorch_result.mat`` of Person_reID_baseline_pytorch:
their names, by the options that take them."""

LabelSource = str | Path | AnyArray | Sequence[Any]


class Table(Protocol):
    """A table with the Arrow C interface, as of pandas, polars or PyArrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows of the table."""


LabelsLike = Labels | Mapping[str, npt.ArrayLike] | Table
"""What entry points take for labels."""


def labels_of(given: object, what: str, needed: Sequence[str] = ()) -> Labels:
    """Return what an entry point is given for labels as `Labels`.

    Parameters
    ----------
    given : Labels, mapping of str to [n] array_like, or table with ``__arrow_c_stream__``
        Columns ``id`` and, where they are needed, ``cam`` and ``key``; others are further labels.
    what : str
        The caller's name of the argument.
    needed : sequence of str
        Columns that a protocol compares: a table's are read although labels are missing there, or
        floats.

    Raises
    ------
    InputError
        If it is none of these, a column is missing or can't be one of labels, or a row has no
        label.
    """
    if isinstance(given, Labels):
        return given
    if hasattr(given, "__arrow_c_stream__"):
        columns, names = columns_of(given, what, needed)
        return _with_others(Labels.of(columns, what), names)
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InputError(
            f"{what} is of type {type(given).__name__}; Labels are needed: {what}=Labels(id=..., "
            'cam=...), a mapping such as {"id": ..., "cam": ...}, or a table with these columns'
        )
    return Labels.of(given, what)


@entry_point
def read_labels(
    ids: LabelSource,
    cams: LabelSource | None = None,
    keys: LabelSource | None = None,
    *,
    fill_missing: bool = False,
) -> Labels:
    """Read labels from one array per column.

    Parameters
    ----------
    ids, cams, keys : str, Path, [n] array or sequence
        URIs ``path[::key]``, or arrays or lists in memory, of integers or strings. A URI may end
        in the column or row of a matrix, counted from 0: ``tracks.mat::info[:,2]``,
        ``info.npy[0,:]``. Whole numbers of such a matrix, or of a ``.mat`` file, may be floats.
    fill_missing : bool
        As of `Features`.

    Returns
    -------
    Labels
        Of n items; integers of a file in the smallest signed dtype that holds them.

    Raises
    ------
    InputError
        If an array can't be read, is not a column of labels, or their lengths differ.
    """
    given = {"id": ids, "cam": cams, "key": keys}
    names = {
        column: str(source) if isinstance(source, str | Path) else "labels"
        for column, source in given.items()
    }
    id, cam, key = (read_column(source, fill_missing) for source in given.values())
    return Labels(id, cam, key, source=names["id"], sources=names)


@entry_point
def read_label_table(
    path: str | Path,
    *,
    text: Collection[str] = (),
    more: Sequence[str] = (),
    shared: Sequence[str] = (),
    pattern: str | None = None,
) -> Labels:
    """Read labels from a table with columns ``id[,cam][,key]``, or from file names.

    File names come from a folder of images or from a text file with one name per line: see
    `read_names`.

    Other columns are ignored unless they are named. A CSV column contains integers if every cell
    is an integer, and strings otherwise; other columns than ``id``, ``cam`` and ``key`` may contain
    floats. A Parquet column keeps its type. An empty cell of any column but ``id`` is a missing
    label: see `Labels`.

    Parameters
    ----------
    path : str or Path
    text : collection of str
        Columns of a CSV table that stay strings, even if every cell is an integer.
    more : sequence of str
        Other columns to read, for grouping or for a protocol.
    shared : sequence of str
        Other columns to read if the table has them.
    pattern : str, optional
        A regular expression whose named groups are the columns, ``id`` among them. It is looked
        for in each file name, or in each ``key`` of a table.

    Returns
    -------
    Labels
        One entry per row.

    Raises
    ------
    InputError
        If the table can't be read, lacks a column, or an ``id`` is empty or a fraction; or if
        cells such as 01 and 1 would become one integer.
    """
    return read_sides({"table": path}, text=text, more=more, shared=shared, pattern=pattern)[0]


@entry_point
def read_label_tables(
    query: str | Path,
    gallery: str | Path,
    *,
    more: Sequence[str] = (),
    shared: Sequence[str] = (),
    pattern: str | None = None,
) -> tuple[Labels, Labels]:
    """Read the tables of both sides with matching label types.

    As `read_label_table`, but a CSV column contains integers only if it does on both sides: 0001
    is a string if the other side has 0002x.

    Parameters
    ----------
    query, gallery : str or Path
    more : sequence of str
        Other columns of the queries, for grouping.
    shared : sequence of str
        Other columns of both sides, for a protocol; read if a table has them.
    pattern : str, optional
        As of `read_label_table`.

    Returns
    -------
    (Labels, Labels)
        Labels of the queries and of the gallery.

    Raises
    ------
    InputError
        As `read_label_table`; 01 on one side and 1 on the other are refused too.
    """
    tables: list[dict[str, str | Path | None]] = [{"table": query}, {"table": gallery}]
    first, second = read_sides(*tables, more=more, shared=shared, pattern=pattern)
    return first, second


def read_sides(
    *sides: Mapping[str, str | Path | None],
    text: Collection[str] = (),
    more: Sequence[str] = (),
    shared: Sequence[str] = (),
    like: Labels | None = None,
    pattern: str | None = None,
    fill_missing: bool = False,
) -> list[Labels]:
    """Read the labels of sides, of which each is a table or arrays, so that they can be compared.

    Parameters
    ----------
    *sides : mapping of str to str
        The URIs of arrays, ``ids``, ``cams`` and ``keys``; or of a ``table``.
    text : collection of str
        Columns of CSV tables that stay strings, as do those that are strings in arrays.
    more : sequence of str
        Further columns of the first side, if it is a table.
    shared : sequence of str
        Further columns of all tables, for a protocol; read if a table has them.
    like : Labels, optional
        Columns that are strings there stay strings.
    pattern : str, optional
        Of tables: see `read_label_table`.
    fill_missing : bool
        As of `read_labels`.
    """
    known = [] if like is None else [like]
    read: list[tuple[str, Mapping[str, Texts | AnyArray], Sequence[str]]] = []
    for side in sides:
        table = side.get("table")
        if table is not None:
            read.append((str(table), *read_table(table, () if read else more, shared, pattern)))
            continue
        ids, cams, keys = (side.get(name) for name in ("ids", "cams", "keys"))
        if ids is None:
            raise InputError("neither ids nor a table of labels are given")
        known.append(read_labels(ids, cams, keys, fill_missing=fill_missing))
        read.append((known[-1].source, known[-1].columns, ()))
    texts = {name for one in known for name, own in one.columns.items() if own.dtype.kind == "U"}
    texts.update([text] if isinstance(text, str) else text)
    numbers = set()  # columns that hold numbers on all sides
    for name in {name: None for _, columns, _ in read for name in columns if name not in texts}:
        same = [columns[name] for _, columns, _ in read if name in columns]
        kinds = [one.kind if isinstance(one, Texts) else one.dtype.kind for one in same]
        if all(kind in "iuf" for kind in kinds):
            check_written_alike([one for one in same if isinstance(one, Texts) and one.kind == "i"])
            numbers.add(name)
    labels = []
    for source, columns, names in read:
        arrays = {
            name: own.to_numpy(own.kind if name in numbers else "U")
            if isinstance(own, Texts)
            else own
            for name, own in columns.items()
        }
        labels.append(_with_others(Labels.of(arrays, source), names))
    return labels


def _with_others(labels: Labels, names: Sequence[str]) -> Labels:
    """Return labels that know which columns their table has beside."""
    labels.unread = tuple(name for name in names if name and name not in labels.columns)
    return labels


def bundle_uris(path: str | Path, *, fill_missing: bool = False) -> dict[str, str]:
    """Return the URIs of the arrays of `BUNDLE` in a file, by the options that take them.

    Parameters
    ----------
    path : str or Path
        Any file or folder whose arrays have names: .mat, .npz, HDF5, Zarr, .pt.
    fill_missing : bool
        As of `read_labels`.
    """
    uris = {option: f"{path}::{name}" for option, name in BUNDLE.items()}
    for option in BUNDLE:
        try:
            open_array(uris[option], fill_missing=fill_missing)
        except InputError as error:
            if option.endswith("_cams"):
                del uris[option]
            elif not Path(path).exists():
                raise
            else:
                raise InputError(
                    f"{error}. One file alone must hold {', '.join(BUNDLE.values())} (cameras may "
                    "be absent); of others give each array by its option"
                ) from error
    return uris
