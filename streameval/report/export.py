"""Tables for other programs: CSV, Markdown, LaTeX and Parquet; labels in them do no harm.

Numbers are fractions in full in CSV and Parquet, for programs; percent in two digits in Markdown
and LaTeX, for papers. What is undefined is empty, or a dash.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.metrics.kind import FRACTION, Kind
from streameval.report.style import number_text
from streameval.result.cells import harmless, one_line

if TYPE_CHECKING:
    from streameval.result import Evaluation
    from streameval.result.paired import Comparison

PROBABILITY = Kind("probability", digits=4)
TABLE, JSON, PARQUET = "table", "json", "parquet"


@dataclass(frozen=True)
class Number:
    """A number of a table.

    Attributes
    ----------
    value : float
        NaN where undefined.
    kind : Kind
        How people read it.
    """

    value: float
    kind: Kind = FRACTION

    def text(self, dash: str) -> str:
        """Return what people read."""
        return dash if math.isnan(self.value) else number_text(self.value, self.kind)


Cell = str | Number
Row = Mapping[str, Cell]


def result_rows(results: Mapping[str, Evaluation]) -> list[Row]:
    """Return a row a result, a column a metric of any of them; and its interval, if it has one."""
    names = {name: None for one in results.values() for name in one.metrics.scalars}
    intervals = any(one.chosen_confidence is not None for one in results.values())
    rows: list[Row] = []
    for run, result in results.items():
        row: dict[str, Cell] = {"run": run}
        found = result.chosen_confidence
        for name in names:
            detail = result.metrics.details.get(name)
            kind = FRACTION if detail is None else detail.kind
            row[name] = Number(result.metrics.scalars.get(name, math.nan), kind)
            if intervals:
                bounds = math.nan, math.nan
                if found is not None:
                    bounds = found.intervals.get(name, bounds)
                row[f"{name} low"], row[f"{name} high"] = (Number(one, kind) for one in bounds)
        rows.append(row)
    return rows


def comparison_rows(comparison: Comparison) -> list[Row]:
    """Return a row a metric of each run that is compared with the first."""
    rows: list[Row] = []
    for one in comparison.differences:
        low, high = one.interval or (math.nan, math.nan)
        values = {
            "first": one.first,
            "value": one.value,
            "difference": one.difference,
            "low": low,
            "high": high,
        }
        rows.append(
            {"metric": one.metric, "compared with": comparison.first, "run": one.run}
            | {name: Number(value, one.kind) for name, value in values.items()}
            | {name: Number(p, PROBABILITY) for name, p in (("p", one.p), ("p (Holm)", one.p_holm))}
        )
    return rows


def as_csv(rows: Sequence[Row]) -> str:
    """Return CSV: what a spreadsheet would take for a formula is quoted by an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([harmless(name) for name in rows[0]])
    for row in rows:
        writer.writerow([_plain(cell) for cell in row.values()])
    return file.getvalue()


def _plain(cell: Cell) -> str:
    if isinstance(cell, str):
        return harmless(cell)
    return "" if math.isnan(cell.value) else repr(float(cell.value))


def as_markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table."""
    lines = [[markdown_text(name) for name in rows[0]]]
    lines.append([":--" if isinstance(one, str) else "--:" for one in rows[0].values()])
    lines += [
        [markdown_text(one) if isinstance(one, str) else one.text("–") for one in row.values()]
        for row in rows
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(rows: Sequence[Row]) -> str:
    r"""Return rows of a LaTeX ``tabular``, the headings first: cells with &, lines with \\."""
    lines = [[latex_text(name) for name in rows[0]]]
    lines += [
        [latex_text(one) if isinstance(one, str) else one.text("--") for one in row.values()]
        for row in rows
    ]
    return "".join(f"{' & '.join(line)} \\\\\n" for line in lines)


def as_parquet(rows: Sequence[Row]) -> bytes:
    """Return a Parquet file: texts as they are, numbers as float64."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        name: [one if isinstance(one, str) else one.value for one in (row[name] for row in rows)]
        for name in rows[0]
    }
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


FORMATS: Mapping[str, Callable[[Sequence[Row]], str | bytes]] = {
    "csv": as_csv,
    "markdown": as_markdown,
    "latex": as_latex,
    PARQUET: as_parquet,
}
"""Functions of rows, by the name of the format."""


def chosen_format(name: str, *, wants_json: bool, to_file: bool) -> str:
    """Return the format of ``--format`` and ``--json``; what is no text has to go to a file.

    Raises
    ------
    OptionError
        If there is no such format, or two are asked for.
    """
    if name not in (TABLE, JSON, *FORMATS):
        raise OptionError(f"--format is {name!r}; known: {', '.join((TABLE, JSON, *FORMATS))}")
    if name == PARQUET and not to_file:
        raise OptionError(
            "--format parquet is no text to be printed: give a file, as streameval show DIR "
            "--format parquet --out rows.parquet"
        )
    if wants_json and name not in (TABLE, JSON):
        raise OptionError(f"got --json and --format {name}: choose one of them")
    return JSON if wants_json else name


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
