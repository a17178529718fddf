"""What all commands do to print on stdout."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import click

from streameval.errors import OutputError


def print_out(text: str) -> None:
    """Print on stdout.

    Raises
    ------
    OutputError
        If stdout doesn't take it; a reader that has gone is no error.
    """
    try:
        click.echo(text, nl=False)
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
        See `print_out` and `write_out`.
    """
    if out is not None:
        write_out(out, content, overwrite=overwrite)
    else:
        print_out(content if isinstance(content, str) else content.decode())


def write_out(path: str, content: str | bytes, *, overwrite: bool) -> None:
    """Write a file, whole or not at all.

    Raises
    ------
    OutputError
        If it is there and is not to be replaced, or can't be written.
    """
    target = Path(path)
    if not overwrite and (target.exists() or target.is_symlink()):
        raise OutputError(f"{path} exists already; choose another, or replace it: --overwrite")
    partial = target.parent / f".{secrets.token_hex(8)}.partial"
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "Is a directory")
        partial.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.replace(partial, target)  # noqa: PTH105 - a link is replaced, not followed
    except OSError as error:
        raise OutputError(
            f"{path} can't be written: {error.strerror or error}; give a file that can be made"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
