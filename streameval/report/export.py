"""Tables for other programs: CSV, Markdown, LaTeX and Parquet; labels in them do no harm.

Numbers are fractions in full in CSV and Parquet, for programs; percent in two digits in Markdown
and LaTeX, for papers. What is undefined is empty, or a dash.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping

from streameval.report.table import DASH, Cell, Table
from streameval.result.groups import harmless, number_csv, one_line


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
