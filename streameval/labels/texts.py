"""Cells of tables as arrays: those of CSV are texts, which may stand for numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from streameval.errors import InputError
from streameval.protocols.labels import KNOWN_COLUMNS
from streameval.typing import AnyArray

_NOT_CANONICAL = r"^[+-]?0[0-9]|^\+|^-0$"  # integers that can be written in fewer characters


@dataclass(frozen=True)
class Texts:
    """A column of a CSV table: every cell a text, trimmed.

    Attributes
    ----------
    path : Path
    name : str
    cells : pyarrow.ChunkedArray
        [n] strings; null where a label is missing.
    """

    path: Path
    name: str
    cells: Any

    @cached_property
    def kind(self) -> str:
        """The kind of dtype of the cells: ``i`` if every one is an integer of 64 bits.

        ``f`` if every one is a number, else ``U``. Numbers that are no integers are refused in
        columns that hold labels only.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = pc.match_substring_regex(self.cells, r"^[+-]?[0-9]+$")
        row = first_row(pc.invert(whole))
        try:
            _numbers(self.cells, "int64" if row is None else "float64")
        except pa.ArrowInvalid:  # a text; or beyond 64 bits: a hash, say, which compares as well
            return "U"
        if row is not None and self.name in KNOWN_COLUMNS:
            raise InputError(
                f"{self.path} column {self.name} holds {self.cells[row].as_py()} in row {row} (the "
                "first row is 0) and nothing but numbers: labels must be integers or strings"
            )
        return "i" if row is None else "f"

    def to_numpy(self, kind: str) -> AnyArray:
        """Return the cells as strings, int64 or float64; integers with missing ones as float64."""
        if kind == "U":
            return to_array(self.cells)
        cells = _numbers(self.cells, "float64" if kind == "f" else "int64")
        return to_array(exact(cells, f"{self.path} column {self.name}"))


def check_written_alike(columns: Sequence[Texts]) -> None:
    """Check that no two texts among columns of integers stand for one integer: 01 and 1."""
    if not columns:
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    odd = (pc.match_substring_regex(column.cells, _NOT_CANONICAL) for column in columns)
    if all(first_row(cells) is None for cells in odd):
        return
    chunks = [part for column in columns for part in column.cells.chunks]
    texts = pc.unique(pa.chunked_array(chunks, pa.string())).drop_null()
    values = _numbers(texts, "int64").to_numpy(zero_copy_only=False)
    order = np.argsort(values, kind="stable")
    same = np.flatnonzero(np.diff(values[order]) == 0)
    if len(same):
        places = []
        for text in texts.take(order[same[0] : same[0] + 2]):
            found = ((column, pc.index(column.cells, text).as_py()) for column in columns)
            column, row = next((column, row) for column, row in found if row >= 0)
            places.append(f"{text.as_py()} in row {row} of {column.path}")
        raise InputError(
            f"column {columns[0].name} holds {' and '.join(places)} (the first row is 0): one "
            "integer, two texts. Write both alike if they are the same, or with a letter in "
            "front if they are not"
        )


def first_row(flags: Any) -> int | None:
    """Return the first row of a column whose flag is set; None of none."""
    import pyarrow.compute as pc

    if not pc.any(flags, min_count=0).as_py():
        return None
    row: int = pc.index(flags, True).as_py()
    return row


def _numbers(cells: Any, kind: str) -> Any:
    """Return texts as numbers; pyarrow.ArrowInvalid says that they are none."""
    import pyarrow.compute as pc

    return pc.utf8_ltrim(cells, characters="+").cast(kind)


def exact(cells: Any, what: str) -> Any:
    """Return integers of which some are missing as floats; others as they are."""
    import pyarrow as pa

    if not cells.null_count or not pa.types.is_integer(cells.type):
        return cells
    try:
        return cells.cast("float64")
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{what} has empty cells, and integers beyond 2**53, which are not exact beside them: "
            "give such labels as texts"
        ) from error


def to_array(cells: Any) -> AnyArray:
    """Return a column of pyarrow as an array: strings come as one of dtype object."""
    from pyarrow import types

    if len(cells) and not cells.null_count and types.is_integer(cells.type):
        return np.concatenate([np.from_dlpack(part) for part in cells.chunks])  # without pandas
    return np.asarray((cells if len(cells) else cells.cast("int64")).to_numpy())
