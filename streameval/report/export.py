"""Tables for other programs: CSV, Markdown, LaTeX and Parquet; labels in them do no harm.

Numbers are fractions in full in CSV and Parquet, for programs; percent in two digits in Markdown
and LaTeX, for papers. What is undefined is empty, or a dash.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping

from streameval.report.numbers import DASH
from streameval.report.table import Cell, Table
from streameval.result.cells import harmless, one_line


def as_csv(table: Table) -> str:
    """Return CSV: what a spreadsheet would take for a formula is quoted by an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(harmless, table.heads))
    for row in table.rows:
        writer.writerow(map(_plain, row))
    return file.getvalue()


def _plain(cell: Cell) -> str:
    if cell.value is None:
        return harmless(cell.text)
    return "" if math.isnan(cell.value) else repr(float(cell.value))


def as_markdown(table: Table) -> str:
    """Return a Markdown table."""
    lines = [[markdown_text(name) for name in table.heads]]
    lines.append([":--" if side == "l" else "--:" for side in table.sides])
    lines += [[_shown(cell, markdown_text, DASH) for cell in row] for row in table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(table: Table) -> str:
    r"""Return rows of a LaTeX ``tabular``, the headings first: cells with &, lines with \\."""
    lines = [[latex_text(name) for name in table.heads]]
    lines += [[_shown(cell, latex_text, "--") for cell in row] for row in table.rows]
    return "".join(f"{' & '.join(line)} \\\\\n" for line in lines)


def _shown(cell: Cell, escape: Callable[[str], str], dash: str) -> str:
    if cell.value is None:
        return escape(cell.text)
    return dash if math.isnan(cell.value) else cell.text


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


def latex_text(text: str) -> str:
    """Return text that LaTeX sets as it is, in one line."""
    return one_line(text).translate(_LATEX)


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is, in one line; it is no HTML, and no cell's end."""
    return one_line(text).translate(_MARKDOWN)
