"""Tables as data, which every renderer takes: for terminals, pages and other programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from streameval.metrics.metric import FRACTION, Kind
from streameval.report.numbers import number_text

ROOM = 64  # characters of a line: what a terminal of 80 columns leaves beside the names of `facts`
MOST_COLUMNS = 6  # side by side that a page is wide enough for


@dataclass(frozen=True)
class Span:
    """An interval to be drawn, on a scale from −1 to 1."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : str
        What people read.
    note : str
        A remark: in small letters below, or in a column of remarks.
    mark : {"", "best", "differs", "warning"}
    span : Span, optional
        Drawn in place of the text.
    wraps : bool
        Whether the text may be long.
    value : float, optional
        The number that the text shows, for programs; NaN where undefined.
    """

    text: str = ""
    note: str = ""
    mark: Literal["", "best", "differs", "warning"] = ""
    span: Span | None = None
    wraps: bool = False
    value: float | None = None


Row = tuple[Cell, ...]
Facts = list[tuple[str, Sequence[str]]]
"""Names, and a text or parts of one beside each."""


@dataclass(frozen=True)
class Part:
    """Rows, under a title and a note if it has any."""

    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    heads : tuple of str
        Of the columns; empty of `facts`.
    parts : tuple of Part
    title : str
    align : str
        ``l`` or ``r`` for each column: of texts or numbers. By default all but the first are
        numbers.
    """

    heads: tuple[str, ...]
    parts: tuple[Part, ...]
    title: str = ""
    align: str = ""

    @classmethod
    def of(
        cls,
        heads: Iterable[str],
        rows: Iterable[Iterable[object]],
        title: str = "",
        *,
        align: str = "",
    ) -> Table:
        """Return a table of one part: rows of cells, and of whatever else as text."""
        return cls(tuple(heads), (Part(tuple(map(row, rows))),), title, align)

    @property
    def rows(self) -> Iterator[Row]:
        """The rows of all parts."""
        return (row for part in self.parts for row in part.rows)

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self.heads) or max((len(row) for row in self.rows), default=0)

    @property
    def sides(self) -> str:
        """``l`` or ``r`` for each column."""
        return self.align or "l".ljust(self.columns, "r")

    def cut(self, most: int = MOST_COLUMNS) -> Iterator[Table]:
        """Yield the table in parts of so many columns beside the first."""
        for start in range(1, max(self.columns, 2), most):
            kept = slice(start, start + most)
            yield replace(
                self,
                heads=(*self.heads[:1], *self.heads[kept]),
                parts=tuple(
                    replace(part, rows=tuple((*each[:1], *each[kept]) for each in part.rows))
                    for part in self.parts
                ),
                align=self.align and self.sides[0] + self.sides[kept],
            )


def row(cells: Iterable[object]) -> Row:
    """Return a row of cells, and of whatever else as text."""
    return tuple(cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in cells)


def facts(
    rows: Iterable[tuple[str, Sequence[str]]], title: str = "", *, wraps: bool = False
) -> Table:
    """Return a table without heads: names, and a text or parts of one beside each.

    Parts are put into as few lines as they fit in.
    """
    cells: list[tuple[str, Cell]] = []
    for name, text in rows:
        lines = [text] if isinstance(text, str) else _packed(text)
        cells += [("" if at else name, Cell(line, wraps=wraps)) for at, line in enumerate(lines)]
    return Table.of((), cells, title, align="ll")


def _packed(parts: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= ROOM:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def number(value: float | None, kind: Kind = FRACTION, *, signed: bool = False) -> Cell:
    """Return a cell of a number without its unit; a dash where it is undefined."""
    known = math.nan if value is None else value
    return Cell(number_text(known, kind, signed=signed), value=known)
