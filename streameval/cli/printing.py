"""What commands print on stdout, or write to a file in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from streameval.cli.options import Values
from streameval.errors import OutputError
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


def print_table(
    values: Values,
    summary: Callable[[], object],
    render: Render,
    table: Callable[[], Table],
) -> None:
    """Print or write results as ``--format``, ``--json`` and ``--out`` say."""
    from streameval.report.export import FORMATS, JSON, chosen_format
    from streameval.report.terminal import Style, stdout_style

    out = values["out"]
    form = chosen_format(values["format"], wants_json=values["json"], to_file=out is not None)
    if form == JSON:
        content: str | bytes = as_json(summary())
    elif form in FORMATS:
        content = FORMATS[form](table())
    else:
        content = render(stdout_style() if out is None else Style(plain=True))
    print_or_write(content, values)


def print_or_write(content: str | bytes, values: Values) -> None:
    """Print on stdout, or write to the file that ``--out`` names."""
    if values["out"] is not None:
        write_new(values["out"], content, overwrite=values["overwrite"])
    else:
        print_out(content if isinstance(content, str) else content.decode())
