"""Tables of labels, CSV or Parquet: columns ``id[,cam][,key]``, as they are stored."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streameval.errors import InputError, check_path
from streameval.labels.file_names import read_names
from streameval.protocols.labels import KNOWN_COLUMNS, AnyArray

EMPTY = ("", "nan", "NaN", "NA", "N/A", "<NA>", "null", "NULL", "None")
"""What a text without a label is: what the tools that write tables put there."""

_NOT_CANONICAL = r"^[+-]?0[0-9]|^\+|^-0$"  # integers that can be written in fewer characters
FOLDER = "a folder of images"  # in place of the suffix of a file
_SHOWN = 200  # characters of what a message quotes


@dataclass(frozen=True)
class Texts:
    """A column of a CSV table: every cell a text, trimmed and not empty.

    Attributes
    ----------
    path : Path
    name : str
    cells : pyarrow.ChunkedArray
        [n] strings.
    """

    path: Path
    name: str
    cells: Any

    def are_integers(self) -> bool:
        """Return whether every cell is an integer of 64 bits.

        Raises
        ------
        InputError
            If every cell is a number, and one is no integer.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = pc.match_substring_regex(self.cells, r"^[+-]?[0-9]+$")
        if pc.all(whole, min_count=0).as_py():
            try:
                _integers(self.cells)
            except pa.ArrowInvalid:  # beyond 64 bits: a hash, say, which compares as well as text
                return False
            return True
        try:
            pc.cast(self.cells, pa.float64())
        except pa.ArrowInvalid:
            return False
        row = pc.index(whole, False).as_py()
        raise InputError(
            f"{self.path} column {self.name} holds {self.cells[row].as_py()} in row {row} (the "
            "first row is 0) and nothing but numbers: labels must be integers or strings"
        )

    def texts(self) -> AnyArray:
        """Return the cells as strings."""
        return to_numpy(self.cells)

    def integers(self) -> AnyArray:
        """Return the cells as int64."""
        return to_numpy(_integers(self.cells))


def check_written_alike(columns: Sequence[Texts]) -> None:
    """Check that no two texts among columns of integers stand for one integer: 01 and 1.

    Raises
    ------
    InputError
        If two do; names the row of either.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not any(
        pc.any(pc.match_substring_regex(column.cells, _NOT_CANONICAL), min_count=0).as_py()
        for column in columns
    ):
        return
    cells = pa.chunked_array(
        [part for column in columns for part in column.cells.chunks], pa.string()
    )
    texts = pc.unique(cells)
    values = _integers(texts).to_numpy(zero_copy_only=False)
    order = np.argsort(values, kind="stable")
    same = np.flatnonzero(np.diff(values[order]) == 0)
    if len(same):
        places = []
        for at in order[same[0] : same[0] + 2].tolist():
            found = ((column, pc.index(column.cells, texts[at]).as_py()) for column in columns)
            column, row = next((column, row) for column, row in found if row >= 0)
            places.append(f"{texts[at].as_py()} in row {row} of {column.path}")
        raise InputError(
            f"column {columns[0].name} holds {' and '.join(places)} (the first row is 0): one "
            "integer, two texts. Write both alike if they are the same, or with a letter in "
            "front if they are not"
        )


@dataclass(frozen=True)
class Columns:
    """Columns to read of a table beside the known ones.

    Attributes
    ----------
    more : sequence of str
        The table must have them.
    shared : sequence of str
        Read if the table has them.
    """

    more: Sequence[str]
    shared: Sequence[str]

    def places(self, path: Path, names: Sequence[str]) -> dict[str, int]:
        """Return where the columns are in the header of a table."""
        has = f"it has {_shown(', '.join(names)) or 'none'}"
        if "id" not in names:
            raise InputError(
                f"{path} has no column id; {has}: label tables "
                "need a header row with id, and may have cam and key"
            )
        for column in self.more:
            if column not in names:
                raise InputError(f"{path} has no column {column}; {has}: give one of these")
        wanted = dict.fromkeys((*KNOWN_COLUMNS, *self.more, *self.shared))
        for column in wanted:
            if names.count(column) > 1:
                raise InputError(f"{path} has {names.count(column)} columns {column}; keep one")
        return {column: names.index(column) for column in wanted if column in names}


def read_csv(path: Path, columns: Columns) -> dict[str, Texts]:
    """Read label columns of a CSV table, as text.

    Raises
    ------
    InputError
        If there is no column ``id``, or none of a further name, a row has too many or too few
        cells, or a label is empty.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as pa_csv

    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file), [])
    names = columns.places(path, [name.strip() for name in header])

    def read(*, threads: bool) -> Any:
        return pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(use_threads=threads),
            # With one column, an empty line is an empty label: skipping it would shift the rest.
            parse_options=pa_csv.ParseOptions(ignore_empty_lines=len(header) > 1),
            convert_options=pa_csv.ConvertOptions(
                include_columns=[header[index] for index in names.values()],
                column_types={header[index]: pa.string() for index in names.values()},
                strings_can_be_null=False,
            ),
        )

    try:
        table = read(threads=True)
    except pa.ArrowInvalid:
        try:
            table = read(threads=False)  # only so does the message tell the row
        except pa.ArrowInvalid as error:
            raise _broken_row(path, error) from error
    read_columns = {}
    for name, index in names.items():
        cells = pc.utf8_trim_whitespace(table[header[index]])
        _refuse_empty(path, name, pc.is_in(cells, pa.array(EMPTY)), cells)
        _refuse_broken(path, name, pc.match_substring(cells, "\n"))
        read_columns[name] = Texts(path, name, cells)
    return read_columns


def read_parquet(path: Path, columns: Columns) -> dict[str, AnyArray]:
    """Read label columns of a Parquet table.

    Raises
    ------
    InputError
        If there is no column ``id``, or none of a further name, or a label is empty.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    names = columns.places(path, file.schema_arrow.names)
    table = file.read(columns=list(names))
    read_columns = {}
    for name in names:
        cells = table[name]
        if pa.types.is_dictionary(cells.type):
            cells = pc.cast(cells, cells.type.value_type)
        _refuse_empty(path, name, pc.is_null(cells), cells)
        if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
            trimmed = pc.utf8_trim_whitespace(cells)
            _refuse_empty(path, name, pc.is_in(trimmed, pa.array(EMPTY, cells.type)), cells)
        read_columns[name] = to_numpy(cells)
    return read_columns


TABLES: Mapping[str, Callable[[Path, Columns], Mapping[str, Texts | AnyArray]]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".txt": lambda path, _: read_names(path),
    FOLDER: lambda path, _: read_names(path),
}
"""What reads a table of labels, by the suffix of its file."""


def read_table(
    path: str | Path, more: Sequence[str] = (), shared: Sequence[str] = ()
) -> Mapping[str, Texts | AnyArray]:
    """Read label columns of a table, or of file names.

    Parameters
    ----------
    path : str or Path
    more : sequence of str
        Further columns that the table must have.
    shared : sequence of str
        Further columns that are read if the table has them.

    Raises
    ------
    InputError
        If the table can't be read, lacks a column, or a label is empty.
    """
    import pyarrow as pa

    check_path(path)
    path = Path(path)
    try:
        suffix = FOLDER if path.is_dir() else path.suffix.lower()
        if suffix not in TABLES:
            raise InputError(
                f"{path}: a label table is one of {', '.join(TABLES)}; for an array give its URI "
                "as the ids"
            )
        if suffix != FOLDER and not path.is_file():
            raise InputError(f"{path} does not exist, or is not a file")
        if more and suffix in (".txt", FOLDER):
            raise InputError(f"{path} holds file names, which have no column {more[0]}")
        return TABLES[suffix](path, Columns(more, shared))
    except UnicodeDecodeError as error:
        raise InputError(
            f"label table {path} is no text in UTF-8 (byte {error.object[error.start]:#x} at "
            f"{error.start}): save it as UTF-8"
        ) from error
    except (pa.ArrowException, OSError, csv.Error) as error:
        raise InputError(f"label table {path} can't be read: {_shown(str(error))}") from error


def _broken_row(path: Path, error: Exception) -> InputError:
    found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
    if found is None:
        return InputError(f"label table {path} can't be read: {_shown(str(error))}")
    row, expected, got = (int(number) for number in found.groups())
    return InputError(
        f"label table {path} can't be read: row {row - 2} (the first row after the header is 0) "
        f"has {got} of {expected} cells; mend that row, or a quotation mark left open in it"
    )


def _refuse_empty(path: Path, name: str, empty: Any, cells: Any) -> None:
    """Refuse a column of which some cells are empty; `empty` is [n] bool of pyarrow."""
    import pyarrow.compute as pc

    row = pc.index(empty, True).as_py()
    if row >= 0:
        count, text = pc.sum(empty).as_py(), cells[row].as_py()
        raise InputError(
            f"{path} column {name} is empty in {count} rows, first in row {row} (the first row "
            f"is 0){f', which holds {text}' if text else ''}: every item needs a label"
        )


def _refuse_broken(path: Path, name: str, broken: Any) -> None:
    """Refuse a column with cells of several lines: what follows an open quotation mark."""
    import pyarrow.compute as pc

    row = pc.index(broken, True).as_py()
    if row >= 0:
        raise InputError(
            f"{path} column {name} holds several lines in row {row} (the first row is 0): mend "
            "the quotation mark left open in it"
        )


def _integers(cells: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(pc.utf8_ltrim(cells, characters="+"), pa.int64())


def to_numpy(cells: Any) -> AnyArray:
    """Return a column of pyarrow as an array: strings come as one of dtype object."""
    array = cells.to_numpy() if len(cells) else cells.cast("int64").to_numpy()
    return np.asarray(array)


def _shown(text: str) -> str:
    """Return the beginning of a text that may be long, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} ..."
