"""Tables of labels as they are stored: CSV or Parquet with columns ``id[,cam][,key]``."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.identity import unchanging
from streameval.errors import InputError, check_path, refuse
from streameval.labels.names import columns_of_pattern, labels_by_pattern, read_names
from streameval.labels.texts import Texts, exact, first_row, to_array
from streameval.protocols.labels import KNOWN_COLUMNS, RESERVED_COLUMNS
from streameval.typing import AnyArray

EMPTY = ("", "nan", "NaN", "NA", "N/A", "<NA>", "null", "NULL", "None")
"""What a text without a label is: what the tools that write tables put there."""

_SHOWN = 200  # characters of what a message quotes
_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls a column of its index


def columns_of(
    table: Any, what: str, needed: Sequence[str] = ()
) -> tuple[Mapping[str, Any], Sequence[str]]:
    """Return the label columns of a table in memory, and the names of all that it has.

    They are ``id`` and, where they are, all others.

    Further columns that are not needed, and can't be labels of groups, are left out: of floats or
    lists, with empty entries, or of a reserved name.

    Parameters
    ----------
    table : object with ``__arrow_c_stream__``
        The Arrow C interface, as of pandas, polars and PyArrow.
    what : str
        What messages call it.
    needed : sequence of str
        Further columns that a protocol compares: of floats, too, and with empty entries.
    """
    read = table_in_memory(table, what)
    names = [name for name in read.column_names if not _INDEX.fullmatch(name)]
    further = [one for one in read.schema if one.name in names and one.name not in RESERVED_COLUMNS]
    more = [one.name for one in further if one.name in needed or _are_labels(one.type)]
    known, columns = {*KNOWN_COLUMNS, *needed}, {}
    for name in _places(what, (), more, names):
        try:
            optional = name in known and name != "id"
            columns[name] = checked(what, name, read[name], optional=optional)
        except InputError:
            if name in known:
                raise
    return columns, names


def table_in_memory(table: Any, what: str) -> Any:
    """Return a table with the Arrow C interface as one of pyarrow."""
    import pyarrow as pa

    try:
        return pa.RecordBatchReader.from_stream(table).read_all()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{what} can't be read as a table ({_shown(str(error))}): leave columns of objects "
            f'out, as by table[["id", "cam"]], or give {what}=Labels(id=..., cam=...)'
        ) from error


def _are_labels(kind: Any) -> bool:
    """Whether a column of a type of Arrow can be one of labels."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(texts or types.is_integer(kind))


def read_table(
    path: str | Path,
    more: Sequence[str] = (),
    shared: Sequence[str] = (),
    pattern: str | None = None,
) -> tuple[Mapping[str, Texts | AnyArray], Sequence[str]]:
    """Read label columns of a table, or of file names; return the names of all that it has, too.

    Parameters
    ----------
    path : str or Path
    more : sequence of str
        Further columns that the table must have.
    shared : sequence of str
        Further columns that are read if the table has them.
    pattern : str, optional
        Of the names, or of the keys of a table: see `labels_by_pattern`.
    """
    told = () if pattern is None else columns_of_pattern(pattern)
    more = [name for name in more if name not in told]
    head: list[str] = []

    def places(names: Sequence[str]) -> dict[str, int]:
        head[:] = names
        return _places(path, more, shared, names, told)

    check_path(path)
    path = Path(path)
    with reading_table(path):
        suffix, folder = path.suffix.lower(), path.is_dir()
        named = folder or suffix == ".txt"
        refuse(
            InputError,
            not named
            and suffix not in TABLES
            and f"{path}: a label table is one of {', '.join(TABLES)}, .txt, a folder of images; "
            "for an array give its URI as the ids",
            not (folder or path.is_file()) and f"{path} does not exist, or is not a file",
            named and more and f"{path} holds file names, which have no column {more[0]}",
        )
        with unchanging(path):
            if named:
                return read_names(path, pattern), ()
            read = TABLES[suffix](path, places)
            whole = ("id",) if pattern is None else ("id", "key")
            columns = {
                name: checked(path, name, cells, optional=name not in whole)
                for name, cells in read.items()
            }
            if pattern is not None:
                keys = columns["key"]
                names = map(str, keys.to_numpy("U") if isinstance(keys, Texts) else keys)
                columns |= labels_by_pattern(list(names), pattern, f"{path} key")
            return columns, head


@contextmanager
def reading_table(path: Path) -> Iterator[None]:
    """Raise what goes wrong with a table in this context as an InputError, with the row."""
    import pyarrow as pa

    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(
            f"label table {path} is no text in UTF-8 (byte {error.object[error.start]:#x} at "
            f"{error.start}): save it as UTF-8"
        ) from error
    except (pa.ArrowException, OSError, csv.Error) as error:
        says = _shown(str(error))
        found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", says)
        if found is not None:
            row, expected, got = (int(number) for number in found.groups())
            says = (
                f"row {row - 2} (the first row after the header is 0) has {got} of {expected} "
                "cells; mend that row, or a quotation mark left open in it"
            )
        raise InputError(f"label table {path} can't be read: {says}") from error


def _read_csv(path: Path, places: Callable[[Sequence[str]], dict[str, int]]) -> dict[str, Any]:
    """Return the label columns of a CSV table, as text."""
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file), [])
    heads = {name: header[at] for name, at in places([one.strip() for one in header]).items()}

    def read(*, threads: bool) -> Any:
        return pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(use_threads=threads),
            # With one column, an empty line is an empty label: skipping it would shift the rest.
            parse_options=pa_csv.ParseOptions(ignore_empty_lines=len(header) > 1),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(heads.values()),
                column_types=dict.fromkeys(heads.values(), pa.string()),
                strings_can_be_null=False,
            ),
        )

    # In the main thread, Arrow takes signals for itself, and loses some that come as it ends.
    with ThreadPoolExecutor(1) as thread:
        try:
            table = thread.submit(read, threads=True).result()
        except pa.ArrowInvalid:  # without threads, the message tells the row
            table = thread.submit(read, threads=False).result()
    return {name: table[head] for name, head in heads.items()}


def _read_parquet(path: Path, places: Callable[[Sequence[str]], dict[str, int]]) -> dict[str, Any]:
    """Return the label columns of a Parquet table."""
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    names = list(places(file.schema_arrow.names))
    table = file.read(columns=names)
    return {name: table[name] for name in names}


TABLES = {".csv": _read_csv, ".parquet": _read_parquet}
"""What reads a table of labels, by the suffix of its file."""


def checked(path: str | Path, name: str, cells: Any, *, optional: bool) -> Texts | AnyArray:
    """Return a column of a table, of CSV as texts, with null where an optional label is missing.

    An empty cell is missing. A text that tools write for that is refused, as it may be meant.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(cells.type):
        kind = _plain(pa.array([], cells.type.value_type)).type
        parts = [_plain(chunk.dictionary).take(chunk.indices) for chunk in cells.chunks]
        cells = pa.chunked_array(parts, kind)
    cells = _plain(cells)
    absent = refused = pc.is_null(cells)
    trimmed = cells
    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        trimmed = pc.utf8_trim_whitespace(cells)
        empty = _constants(EMPTY, cells.type)
        absent = pc.or_kleene(absent, pc.equal(trimmed, empty[0]))
        refused = pc.is_in(trimmed, empty)
        cells, trimmed = (pc.if_else(absent, pa.NA, texts) for texts in (cells, trimmed))
    refused = pc.and_not(refused, absent) if optional else pc.or_(refused, absent)
    row = first_row(refused)
    if row is not None:
        text, count = trimmed[row].as_py(), pc.sum(refused).as_py()
        where = f"in {count} rows, first in row {row} (the first row is 0)"
        raise InputError(
            f"{path} column {name} holds {text} {where}: leave a cell empty if its label is "
            "missing; if it is not, write another text"
            if optional
            else f"{path} column {name} is empty {where}{f', which holds {text}' if text else ''}: "
            "every item needs a label"
        )
    path = Path(path)
    if path.suffix.lower() != ".csv":
        return to_array(exact(cells, f"{path} column {name}"))
    row = first_row(pc.match_substring(trimmed, "\n"))
    if row is not None:
        raise InputError(
            f"{path} column {name} holds several lines in row {row} (the first row is 0): mend "
            "the quotation mark left open in it"
        )
    return Texts(path, name, trimmed)


def _constants(texts: Sequence[str], kind: Any) -> Any:
    """Return texts as an array; to convert any value of Python, pyarrow imports pandas first."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    return pa.StringArray.from_buffers(len(texts), *buffers).cast(kind)


def _plain(cells: Any) -> Any:
    """Return views of strings, which few functions of pyarrow take, as strings."""
    import pyarrow as pa

    return cells.cast(pa.large_string()) if pa.types.is_string_view(cells.type) else cells


def _places(
    path: str | Path,
    more: Sequence[str],
    shared: Sequence[str],
    names: Sequence[str],
    told: Sequence[str] = (),
) -> dict[str, int]:
    """Return where the columns that are to be read are in the header of a table.

    Those that a pattern tells are not among them.
    """
    both = [column for column in told if column in names]
    refuse(
        InputError,
        both and f"{path} has a column {both[0]}, and so has the pattern: leave either out",
        told
        and "key" not in names
        and f"{path} has no column key, whose names a pattern is of: it has {', '.join(names)}",
    )
    has = f"it has {_shown(', '.join(names)) or 'none'}"
    wanted = dict.fromkeys((*KNOWN_COLUMNS, *more, *shared))
    absent = [column for column in more if column not in names]
    twice = [column for column in wanted if names.count(column) > 1]
    refuse(
        InputError,
        "id" not in (*names, *told)
        and f"{path} has no column id; {has}: label tables need a header row with id, and may have "
        "cam and key",
        absent and f"{path} has no column {absent[0]}; {has}: give one of these",
        twice and f"{path} has {names.count(twice[0])} columns {twice[0]}; keep one",
    )
    return {column: names.index(column) for column in wanted if column in names}


def _shown(text: str) -> str:
    """Return the beginning of a text that may be long, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} ..."
