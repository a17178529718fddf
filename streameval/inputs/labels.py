"""Labels of the queries or of the gallery: from one array a column, or from a table."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.inputs.array import Array
from streameval.inputs.uri import open_array
from streameval.protocol import AnyArray, Labels

COLUMNS = ("id", "cam", "key")

_BLOCK = 1 << 16  # entries read at a time
_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64)

LabelSource = str | Path | npt.NDArray[Any]


def read_labels(
    ids: LabelSource, cams: LabelSource | None = None, keys: LabelSource | None = None
) -> Labels:
    """Read labels, one array a column.

    Parameters
    ----------
    ids, cams, keys : str, Path or [n] array
        URIs ``path[::key]``, or arrays in memory, of integers or strings.

    Raises
    ------
    InputError
        If an array can't be read, is not a column of labels, or their lengths differ.
    """
    source = "labels" if isinstance(ids, np.ndarray) else str(ids)
    return Labels(
        id=_column(ids),
        cam=None if cams is None else _column(cams),
        key=None if keys is None else _column(keys),
        source=source,
    )


def _column(source: LabelSource) -> AnyArray:
    if isinstance(source, np.ndarray):
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


def read_label_table(path: str | Path) -> Labels:
    """Read labels from a CSV or Parquet table with columns ``id[,cam][,key]``.

    Other columns are ignored. A CSV column is one of integers if every cell of it is an
    integer, else of strings.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    InputError
        If the table can't be read, has no column ``id``, or a label is empty or a fraction.
    """
    path = Path(path)
    if path.suffix.lower() not in TABLES:
        raise InputError(
            f"{path}: a label table is one of {', '.join(TABLES)}; for an array give its URI "
            "as the ids"
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is not a file")
    import pyarrow as pa

    try:
        columns = TABLES[path.suffix.lower()](path)
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"label table {path} can't be read: {error}") from error
    return Labels(**columns, source=str(path))


def _read_csv(path: Path) -> dict[str, AnyArray]:
    import pyarrow as pa
    import pyarrow.csv

    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file), [])
    names = _label_columns(path, [name.strip() for name in header])
    raw = {name: header[index] for name, index in names.items()}
    table = pyarrow.csv.read_csv(
        path,
        # With one column, an empty line is an empty label: skipping it would shift the rest.
        parse_options=pyarrow.csv.ParseOptions(ignore_empty_lines=len(header) > 1),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(raw.values()),
            column_types={column: pa.string() for column in raw.values()},
            strings_can_be_null=False,
        ),
    )
    return {name: _csv_column(path, name, table[column]) for name, column in raw.items()}


def _csv_column(path: Path, name: str, cells: Any) -> AnyArray:
    """Return the cells, [n] strings of pyarrow, as integers if all of them are, else strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells)
    _refuse_empty(path, name, pc.equal(cells, ""))
    whole = pc.match_substring_regex(cells, r"^[+-]?[0-9]+$")
    if not pc.all(whole, min_count=0).as_py():
        try:
            pc.cast(cells, pa.float64())
        except pa.ArrowInvalid:
            return _to_numpy(cells)
        row = pc.index(whole, False).as_py()
        raise InputError(
            f"{path} column {name} holds {cells[row].as_py()} in row {row} (the first row is 0) "
            "and nothing but numbers: labels must be integers or strings"
        )
    try:
        return _to_numpy(pc.cast(pc.utf8_ltrim(cells, characters="+"), pa.int64()))
    except pa.ArrowInvalid:  # beyond 64 bits: a hash, say, which compares as well as a string
        return _to_numpy(cells)


def _read_parquet(path: Path) -> dict[str, AnyArray]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    names = _label_columns(path, file.schema_arrow.names)
    table = file.read(columns=list(names))
    columns = {}
    for name in names:
        cells = table[name]
        if pa.types.is_dictionary(cells.type):
            cells = pc.cast(cells, cells.type.value_type)
        _refuse_empty(path, name, pc.is_null(cells))
        if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
            _refuse_empty(path, name, pc.equal(cells, ""))
        columns[name] = _to_numpy(cells)
    return columns


TABLES: Mapping[str, Callable[[Path], dict[str, AnyArray]]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
"""What reads a table of labels, by the suffix of its file."""


def _label_columns(path: Path, names: Sequence[str]) -> dict[str, int]:
    """Return where the label columns are among the names."""
    if "id" not in names:
        raise InputError(
            f"{path} has no column id; it has {', '.join(names) or 'none'}: label tables need "
            "a header row with id, and may have cam and key"
        )
    for column in COLUMNS:
        if names.count(column) > 1:
            raise InputError(f"{path} has {names.count(column)} columns {column}; keep one")
    return {column: names.index(column) for column in COLUMNS if column in names}


def _refuse_empty(path: Path, name: str, empty: Any) -> None:
    """Refuse a column of which some cells are empty; `empty` is [n] bool of pyarrow."""
    import pyarrow.compute as pc

    row = pc.index(empty, True).as_py()
    if row >= 0:
        count = pc.sum(empty).as_py()
        raise InputError(
            f"{path} column {name} is empty in {count} rows, first in row {row} (the first row "
            "is 0): every item needs a label"
        )


def _to_numpy(cells: Any) -> AnyArray:
    """Return a column of pyarrow as an array: strings come as one of dtype object."""
    array = cells.to_numpy() if len(cells) else cells.cast("int64").to_numpy()
    return np.asarray(array)
