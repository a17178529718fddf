"""Tables as data, which every renderer takes; numbers in them; tables for other programs.

Numbers are fractions in full in CSV and Parquet, for programs; percent in two digits in Markdown
and LaTeX, for papers. What is undefined is empty, or a dash. Labels do no harm in any of these.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streameval.metrics.metric import FRACTION, Kind
from streameval.planning.plan import plural as plural

DASH, SEPARATOR = "–", " · "
ROOM = 64  # characters of a line: what a terminal of 80 columns leaves beside the names of `facts`
MOST_COLUMNS = 6  # side by side that a page is wide enough for


_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what people read, and what programs do."""

    text: str = ""
    note: str = ""  # a remark: in small letters below, or in a column of remarks
    mark: str = ""  # best, differs, warning or title
    span: tuple[float, ...] | None = None  # low, value, high: drawn from −1 to 1
    wraps: bool = False  # the text may be long
    value: float | None = None  # the number that the text shows; NaN where undefined


Facts = list[tuple[str, Sequence[str] | None]]
"""Names, and a text or parts of one beside each, if there are any."""


@dataclass(frozen=True)
class Table:
    """Rows under the same heads; without heads, `facts`.

    A row of one cell that is marked "title" is the title of the rows below it.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    sides: str = ""  # l or r for each column

    @classmethod
    def of(
        cls,
        heads: Iterable[str],
        rows: Iterable[Iterable[object]],
        title: str = "",
        *,
        align: str = "l",
    ) -> Table:
        """Return a table: rows of cells, and of whatever else as text.

        Columns beyond those of `align`, l or r for each, are numbers: aligned on the right.
        """
        heads = tuple(heads)
        cells = ((x if isinstance(x, Cell) else Cell(str(x)) for x in row) for row in rows)
        return cls(heads, tuple(map(tuple, cells)), title, align.ljust(len(heads), "r"))

    def cut(self, most: int = MOST_COLUMNS) -> Iterator[Table]:
        """Yield the table in parts of so many columns beside the first."""
        for start in range(1, max(len(self.heads), 2), most):
            end = start + most
            yield Table(
                self.heads[:1] + self.heads[start:end],
                tuple(row[:1] + row[start:end] for row in self.rows),
                self.title,
                self.sides[:1] + self.sides[start:end],
            )


Blocks = list[str | Table]
"""Lines and tables, one below another."""


def facts(
    rows: Iterable[tuple[str, Sequence[str] | None]], title: str = "", *, wraps: bool = False
) -> Table:
    """Return a table without heads: names, and a text or parts of one beside each.

    Parts are put into as few lines as they fit in, or each into lines of its own where they may be
    long; what is empty is left out.
    """
    cells: list[tuple[str, Cell]] = []
    for name, text in rows:
        lines: list[str] = []
        for part in filter(None, [text] if isinstance(text, str) else text or ()):
            if lines and not wraps and len(lines[-1]) + len(part) + 3 <= ROOM:
                lines[-1] += SEPARATOR + part
            else:
                lines.append(part)
        cells += [("" if at else name, Cell(line, wraps=wraps)) for at, line in enumerate(lines)]
    return Table.of((), cells, title, align="ll")


def number(value: float | None, kind: Kind = FRACTION) -> Cell:
    """Return a cell of a number without its unit; a dash where it is undefined."""
    known = math.nan if value is None else value
    return Cell(number_text(known, kind), value=known)


def number_text(value: float, kind: Kind, *, signed: bool = False) -> str:
    """Return a value, or a signed difference of two, as its kind is written, without its unit."""
    if math.isnan(value):
        return DASH
    text = f"{kind.scale * value:{'+' if signed else ''},.{kind.digits}f}"
    return text.replace("-", "−") if signed else text


def value_text(value: float, kind: Kind) -> str:
    """Return a value with its unit; a small fraction in as many digits as it takes."""
    if math.isnan(value):
        return DASH
    return percent(value) if kind == FRACTION else number_text(value, kind) + kind.unit


def interval_text(low: float, high: float, kind: Kind) -> str:
    """Return an interval with its unit; of fractions, with digits enough to tell them apart."""
    if kind != FRACTION:
        return f"{number_text(low, kind)} – {number_text(high, kind)}{kind.unit}"
    for digits in range(2, 7):
        texts = [f"{100 * value:.{digits}f}" for value in (low, high)]
        if texts[0] != texts[1]:
            break
    return f"{texts[0]} – {texts[1]} %"


def percent(value: float, digits: int = 2) -> str:
    """Return a fraction in percent: 0.6652 is ``66.52 %``; a small one, 0.0000601, ``0.0060 %``."""
    if value > 0:
        digits = max(digits, min(1 - math.floor(math.log10(100 * value)), 12))
    return f"{100 * value:.{digits}f} %"


def amount(value: float) -> str:
    """Return a large number in three digits and words: 12.3 million."""
    for unit, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return a time as people read it: ``0.41 s``, ``2 min 05 s``, ``3 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def as_csv(table: Table) -> str:
    """Return CSV: what a spreadsheet would take for a formula is quoted by an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(harmless, table.heads))
    for row in table.rows:
        writer.writerow(
            harmless(cell.text) if cell.value is None else number_csv(cell.value) for cell in row
        )
    return file.getvalue()


def as_markdown(table: Table) -> str:
    """Return a Markdown table."""
    heads, *rows = _texts(table, _MARKDOWN, DASH)
    sides = [":--" if side == "l" else "--:" for side in table.sides]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, sides, *rows))


def as_latex(table: Table) -> str:
    r"""Return rows of a LaTeX ``tabular``, the headings first: cells with &, lines with \\."""
    return "".join(f"{' & '.join(line)} \\\\\n" for line in _texts(table, _LATEX, "--"))


def _texts(table: Table, escapes: dict[int, str], dash: str) -> list[list[str]]:
    """Return heads and rows as text in one line each that is shown as it is; NaN as a dash."""

    def shown(cell: Cell) -> str:
        if cell.value is None:
            return one_line(cell.text).translate(escapes)
        return dash if math.isnan(cell.value) else cell.text

    return [[shown(cell) for cell in line] for line in (map(Cell, table.heads), *table.rows)]


def as_parquet(table: Table) -> bytes:
    """Return a Parquet file: texts as they are, numbers as float64."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = zip(*table.rows, strict=True)
    values = {
        name: [cell.text if cell.value is None else cell.value for cell in column]
        for name, column in zip(table.heads, columns, strict=True)
    }
    file = io.BytesIO()
    pq.write_table(pa.table(values), file)
    return file.getvalue()


def number_csv(value: float) -> str:
    """Return a number in full, for a table of text; nothing where it is undefined."""
    return "" if math.isnan(value) else repr(float(value))


def harmless(text: str) -> str:
    """Return a text in one line that no spreadsheet takes for a formula.

    One that it might take for one is put after ``'``. Numbers, such as -1, stay. Source: OWASP,
    CSV Injection.
    """
    text = one_line(text)
    with suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def one_line(text: str) -> str:
    """Return a text with a blank for each character that is not to be printed."""
    return "".join(one if one.isprintable() else " " for one in text)


FORMATS: Mapping[str, Callable[[Table], str | bytes]] = {
    "csv": as_csv,
    "markdown": as_markdown,
    "latex": as_latex,
    "parquet": as_parquet,
}
"""Renderers of a table, by the name of the format."""


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{one: f"\\{one}" for one in "&%$#_{}"},
    }
)
_MARKDOWN = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{one: f"\\{one}" for one in "\\`*_{}[]()#+-.!|~$@"}}
)
