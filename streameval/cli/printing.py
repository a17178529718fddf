"""What commands print on stdout, or write to a file in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from streameval.cli.options import Values
from streameval.errors import OptionError, OutputError
from streameval.output import ESCAPED, write_new

if TYPE_CHECKING:
    from streameval.report.table import Table
    from streameval.report.terminal import Style

Render = Callable[["Style"], str]
"""Returns what people read, in a style."""


def print_out(text: str) -> None:
    """Print on stdout.

    Raises
    ------
    OutputError
        If stdout doesn't take it; a reader that has gone is no error.
    """
    try:
        click.echo(text.encode(errors=ESCAPED).decode(), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"stdout can't be written to: {error.strerror or error}") from error


def as_json(summary: object) -> str:
    """Return what ``--json`` prints."""
    return json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def print_answer(values: Values, summary: Callable[[], object], render: Render) -> None:
    """Print a summary as JSON where ``--json`` is given, else what people read."""
    from streameval.report.terminal import stdout_style

    print_out(as_json(summary()) if values["json"] else render(stdout_style()))


def chosen_format(values: Values) -> str:
    """Return the format of ``--format`` and ``--json``; what is no text has to go to a file.

    Raises
    ------
    OptionError
        If it has no file to go to, or two formats are asked for.
    """
    name = str(values["format"])
    if name == "parquet" and values["out"] is None:
        raise OptionError(
            "--format parquet is no text to be printed: give a file, as streameval show DIR "
            "--format parquet --out rows.parquet"
        )
    if values["json"] and name not in ("table", "json"):
        raise OptionError(f"got --json and --format {name}: choose one of them")
    return "json" if values["json"] else name


def print_table(
    values: Values,
    summary: Callable[[], object],
    render: Render,
    table: Callable[[], Table],
) -> None:
    """Print or write results as ``--format``, ``--json`` and ``--out`` say."""
    from streameval.report.table import FORMATS
    from streameval.report.terminal import Style, stdout_style

    form = chosen_format(values)
    if form == "json":
        content: str | bytes = as_json(summary())
    elif form in FORMATS:
        content = FORMATS[form](table())
    else:
        content = render(stdout_style() if values["out"] is None else Style(plain=True))
    print_or_write(content, values)


def print_or_write(content: str | bytes, values: Values) -> None:
    """Print on stdout, or write to the file that ``--out`` names."""
    if values["out"] is not None:
        write_new(values["out"], content, overwrite=values["overwrite"])
    else:
        print_out(content if isinstance(content, str) else content.decode())
