"""Lists of pairs in files and in memory: a line a query, or a table with a row a pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from streameval.arrays.identity import unchanging
from streameval.choices import ListedAs
from streameval.errors import InputError, OptionError, check_path, check_type, entry_point, refuse
from streameval.labels.columns import LabelsLike, labels_of
from streameval.labels.tables import TABLES, checked, reading_table, table_in_memory
from streameval.labels.texts import Texts
from streameval.protocols.labels import Labels, label_column, missing, whole_numbers
from streameval.protocols.listed import ListedPairs, PairList
from streameval.stretches import cumulated
from streameval.typing import AnyArray, IntArray

COLUMNS = ("query", "item", "value")
"""Of a table of pairs; pairs need no value."""


@entry_point
def read_listed_pairs(
    good: str | Path,
    junk: str | Path | None = None,
    *,
    queries: int,
    gallery: LabelsLike,
    listed_as: ListedAs = "1-based",
) -> ListedPairs:
    """Read lists of good and junk gallery items, as in VeRi-776.

    A file has one line per query, in the order of the queries. Items are separated by blanks or
    commas. The line of a query without items is empty.

    Parameters
    ----------
    good, junk : str or Path
        Paths of the lists. Without `junk`, nothing is ignored.
    queries : int
        Number of queries Q.
    gallery : Labels, mapping or table
        Labels of the gallery; they need keys if the lists contain keys.
    listed_as : {"1-based", "0-based", "key"}
        Format of an item: its gallery index from 1 (as in MATLAB and VeRi-776) or from 0, or its
        key, such as an image name.

    Returns
    -------
    ListedPairs
        For ``listed=`` of `evaluate`.

    Raises
    ------
    InputError
        If a file can't be read or does not have one line per query, or if an item is not in the
        gallery or in both files. The message names file and line.
    OptionError
        If `listed_as` is unknown, or the gallery has no keys.
    """
    gallery = labels_of(gallery, "gallery")
    _check_listed_as(listed_as, good, [gallery])
    none = PairList.of([()] * queries, "no junk list")
    pairs = ListedPairs(
        {
            "good": _read_list(good, queries, gallery, listed_as),
            "junk": none if junk is None else _read_list(junk, queries, gallery, listed_as),
        }
    )
    pairs.check(queries, len(gallery))
    pairs.check_apart(len(gallery))
    return pairs


@entry_point
def read_pairs(
    path: str | Path,
    *,
    query: LabelsLike,
    gallery: LabelsLike,
    listed_as: ListedAs = "1-based",
) -> PairList:
    """Read a list of pairs, which a protocol names as ``pair.NAME``.

    A CSV or Parquet table has a row per pair: columns ``query`` and ``item`` of row numbers,
    counted from 0, or of keys, and optionally ``value``, a number. Any other file is a list as of
    `read_listed_pairs`, with one line per query.

    Parameters
    ----------
    path : str or Path
    query, gallery : Labels, mapping or table
        Labels of both sides; they need keys if the file contains keys.
    listed_as : {"1-based", "0-based", "key"}
        Format of an item of a list, as of `read_listed_pairs`. A table has keys if it is ``key``,
        and otherwise row numbers from 0.

    Returns
    -------
    PairList
        For ``pairs=`` of `evaluate`.

    Raises
    ------
    InputError
        If the file can't be read, or has a query or an item that is not there.
    OptionError
        If `listed_as` is unknown, or a side has no keys.
    """
    check_path(path)
    sides = [labels_of(query, "query"), labels_of(gallery, "gallery")]
    is_table = Path(path).suffix.lower() in TABLES
    _check_listed_as(listed_as, path, sides if is_table else sides[1:])
    if is_table:
        places = [_rows_of_keys(one) for one in sides] if listed_as == "key" else None
        columns = _read_table(Path(path), texts=places is not None)
        pairs = _of_columns(columns, str(path), len(sides[0]), places)
    else:
        pairs = _read_list(path, len(sides[0]), sides[1], listed_as)
    pairs.check(len(sides[0]), len(sides[1]))
    return pairs


def lists_of(given: object, queries: int) -> ListedPairs:
    """Return what ``pairs=`` of `evaluate` is given: lists of pairs by name.

    Each is a `PairList`, a table or mapping with columns ``query``, ``item`` and, optionally,
    ``value``, or a row of gallery indices a query. All count from 0.

    Raises
    ------
    InputError
        If one is none of these.
    """
    check_type("pairs", given, Mapping, "lists of pairs by name are needed: {'good': ...}")
    lists = {}
    for name, one in dict(given).items():  # type: ignore[call-overload]
        what = f"pairs {name!r}"
        if isinstance(one, PairList):
            lists[name] = one
        elif isinstance(one, Mapping) or hasattr(one, "__arrow_c_stream__"):
            columns = one if isinstance(one, Mapping) else _columns_in_memory(one, what)
            lists[name] = _of_columns(columns, what, queries)
        elif isinstance(one, str | Path) or not isinstance(one, Iterable):
            raise InputError(
                f"{what} is of type {type(one).__name__}; a table with columns query and item, or "
                "a row of gallery indices a query, is needed (those of a file: read_pairs)"
            )
        else:
            lists[name] = PairList.of(one, what)
    return ListedPairs(lists)


def _check_listed_as(listed_as: str, path: str | Path, sides: Iterable[Labels]) -> None:
    known = get_args(ListedAs)
    without = [side.source for side in sides if side.key is None]
    refuse(
        OptionError,
        listed_as not in known
        and f"listed_as is {listed_as!r}; expected one of {', '.join(known)}",
        listed_as == "key"
        and without
        and f"{path} lists keys, and {without[0]} has none: give its keys",
    )


def _rows_of_keys(labels: Labels) -> dict[str, int]:
    """Return the row of each key, as a text; −1 of one that is there twice."""
    place: dict[str, int] = {}
    if labels.key is not None:
        rows = np.flatnonzero(~missing(labels.key))
        keys = whole_numbers(labels.key[rows]).astype(np.str_)
        for row, key in zip(rows.tolist(), keys.tolist(), strict=True):
            place[key] = -1 if key in place else row
    return place


def _read_table(path: Path, *, texts: bool) -> dict[str, AnyArray]:
    """Return the columns of a table of pairs; queries and items as texts, or as numbers."""

    def places(names: Sequence[str]) -> dict[str, int]:
        twice = [name for name in COLUMNS if names.count(name) > 1]
        refuse(InputError, twice and f"{path} has {names.count(twice[0])} columns {twice[0]}")
        return {name: names.index(name) for name in COLUMNS if name in names}

    with reading_table(path), unchanging(path):
        read = TABLES[path.suffix.lower()](path, places)
        columns = {
            name: checked(path, name, cells, optional=name == "value")
            for name, cells in read.items()
        }
    return {
        name: own.to_numpy("U" if texts and name != "value" else own.kind)
        if isinstance(own, Texts)
        else own
        for name, own in columns.items()
    }


def _columns_in_memory(table: Any, what: str) -> dict[str, Any]:
    """Return the columns of a table of pairs in memory."""
    read = table_in_memory(table, what)
    return {
        name: checked(what, name, read[name], optional=name == "value")
        for name in COLUMNS
        if name in read.column_names
    }


def _of_columns(
    columns: Mapping[str, Any], what: str, queries: int, places: list[dict[str, int]] | None = None
) -> PairList:
    """Return the pairs of a table; `places` are the rows of the keys that it holds."""
    query, item = (
        _rows(columns, name, what, place)
        for name, place in zip(("query", "item"), places or (None, None), strict=True)
    )
    outside = np.flatnonzero((query < 0) | (query >= queries))
    refuse(
        InputError,
        len(query) != len(item)
        and f"{what} has {len(query)} entries of query, and {len(item)} of item",
        len(outside)
        and f"{what} row {outside[0]} has query {query[outside[0]]}; the {queries} queries are "
        f"numbered 0 to {queries - 1}",
    )
    order = np.argsort(query, kind="stable")
    value = None
    if "value" in columns:
        value = label_column(columns["value"], f"{what} value", optional=True)
        if value.dtype.kind == "U" or len(value) != len(query):
            raise InputError(
                f"{what} value is {value.dtype} {value.shape}; a number a pair is needed"
            )
        value = value.astype(np.float64)[order]
    indptr = cumulated(np.bincount(query, minlength=queries))
    return PairList(indptr, item[order], what, 0, value, lines=False)


def _rows(
    columns: Mapping[str, Any], name: str, what: str, place: dict[str, int] | None
) -> IntArray:
    """Return the rows of queries or of items that a column of a table holds."""
    if name not in columns:
        raise InputError(
            f"{what} has no column {name}: pairs need columns query and item, and may have value"
        )
    labels: AnyArray = label_column(columns[name], f"{what} {name}")
    if place is not None:
        keys = np.asarray(labels, np.str_).tolist()
        found = np.array([place.get(key, -2) for key in keys], np.int64)
        for row in np.flatnonzero(found < 0)[:1].tolist():
            has = "not" if found[row] == -2 else "twice"
            raise InputError(
                f"{what} row {row} (the first is 0) has {name} {keys[row][:100]!r}, a key that its "
                f"side has {has}: the key of one is needed"
            )
        return found
    if labels.dtype.kind == "U":
        raise InputError(
            f"{what} {name} holds texts; row numbers, counted from 0, are needed; list names as "
            "keys (listed_as, --listed-as key)"
        )
    return labels.astype(np.int64)


def _read_list(path: str | Path, queries: int, gallery: Labels, listed_as: ListedAs) -> PairList:
    """Read a list with a line a query."""
    check_path(path)
    try:
        with unchanging(Path(path)):
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"list of pairs {path} can't be read: {error}") from error
    while len(lines) > queries and not lines[-1].strip():
        lines.pop()
    base, keyed = int(listed_as == "1-based"), listed_as == "key"
    place = _rows_of_keys(gallery) if keyed else {}

    def index(text: str, query: int) -> int:
        whole = text.isdecimal() and len(text) <= 18
        found = place.get(text) if keyed else int(text) if whole else None
        if found is not None and found >= 0:
            return found
        why = f"; the index of a gallery item, counted from {base}, is needed; list names as keys"
        if keyed:
            has = "not" if found is None else "twice"
            why = f", a key that the gallery has {has}: the key of one item is needed"
        raise InputError(f"{path}, line {query + 1} (query {query}) has {text[:100]!r}{why}")

    rows = (
        [index(text, query) for text in line.replace(",", " ").split()]
        for query, line in enumerate(lines)
    )
    return PairList.of(rows, str(path), base)
