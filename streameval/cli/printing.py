"""What all commands do to print on stdout."""

from __future__ import annotations

import json

import click

from streameval.errors import OutputError
from streameval.output import ESCAPED, write_new


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


def print_or_write(content: str | bytes, out: str | None, *, overwrite: bool) -> None:
    """Print on stdout, or write to a file where one is given.

    Raises
    ------
    OutputError
        See `print_out` and `streameval.output.write_new`.
    """
    if out is not None:
        write_new(out, content, overwrite=overwrite)
    else:
        print_out(content if isinstance(content, str) else content.decode())
