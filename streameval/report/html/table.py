"""Tables as data: what stands in their cells, and what stands out among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

MOST_COLUMNS = 6  # runs side by side that a page is wide enough for


@dataclass(frozen=True)
class Span:
    """An interval to be drawn, on a scale from −1 to 1.

    Attributes
    ----------
    low, value, high : float
    """

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : str
    note : str
        In small letters below.
    mark : {"", "best", "differs", "warning"}
    span : Span, optional
        Drawn in place of the text.
    wraps : bool
        Whether the text is one that may be long, and no number.
    """

    text: str
    note: str = ""
    mark: Literal["", "best", "differs", "warning"] = ""
    span: Span | None = None
    wraps: bool = False


@dataclass(frozen=True)
class Row:
    """A row: what it is of, and its cells."""

    head: str
    cells: tuple[Cell, ...]
    note: str = ""


@dataclass(frozen=True)
class Part:
    """Rows under a heading of their own; one without a title has none."""

    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    heads : tuple of str
        Of the columns; the first is that of the rows' heads.
    parts : tuple of Part
    title : str
    numbers : bool
        Whether cells are numbers, set to the right.
    """

    heads: tuple[str, ...]
    parts: tuple[Part, ...]
    title: str = ""
    numbers: bool = True

    def cut(self, most: int = MOST_COLUMNS) -> Iterator[Table]:
        """Yield the table in parts of so many columns beside the first."""
        for start in range(0, max(len(self.heads) - 1, 1), most):
            own = slice(start, start + most)
            yield replace(
                self,
                heads=(self.heads[0], *self.heads[1:][own]),
                parts=tuple(
                    replace(part, rows=tuple(replace(r, cells=r.cells[own]) for r in part.rows))
                    for part in self.parts
                ),
            )


def facts(rows: Sequence[tuple[str, str]], title: str = "") -> Table:
    """Return a table of names and what is to be said of each, without headings."""
    own = tuple(Row(name, (Cell(said),)) for name, said in rows if said)
    return Table((), (Part(own),), title, numbers=False)
