"""What all commands do to print on stdout."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import click

from streameval.errors import OutputError

LINES = 10_000  # written at a time
ESCAPED = "backslashreplace"  # what is no UTF-8 of a path, as JSON has it


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
    with NewFile(path, overwrite=overwrite) as file:
        file.write(content if isinstance(content, bytes) else content.encode(errors=ESCAPED))


def check_new(path: str, *, overwrite: bool) -> None:
    """Check that there is no such file, or that it is to be replaced.

    Raises
    ------
    OutputError
    """
    if not overwrite and (Path(path).exists() or Path(path).is_symlink()):
        raise OutputError(f"{path} exists already; choose another, or replace it: --overwrite")


class NewFile:
    """A file being written: a context, which leaves it whole in its place, or not at all.

    Parameters
    ----------
    path : str
    overwrite : bool
        Whether to replace what is there.

    Raises
    ------
    OutputError
        If it is there and is not to be replaced, or can't be written.
    """

    def __init__(self, path: str, *, overwrite: bool) -> None:
        check_new(path, overwrite=overwrite)
        self._target = Path(path)
        self._partial = self._target.parent / f".{secrets.token_hex(8)}.partial"
        self._file: BinaryIO | None = None

    def __enter__(self) -> NewFile:
        try:
            if self._target.is_dir():
                raise IsADirectoryError(0, "Is a directory")
            self._file = self._partial.open("wb")
        except OSError as error:
            raise self._refusal(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._file is not None:
                self._file.close()
            if error is None:
                os.replace(self._partial, self._target)  # noqa: PTH105 - no link is followed
        except OSError as failure:
            raise self._refusal(failure) from failure
        finally:
            self.discard()

    def write(self, content: bytes) -> None:
        """Write some more.

        Raises
        ------
        OutputError
            If it can't be written.
        """
        if self._file is None:
            raise ValueError("the file is not open")
        try:
            self._file.write(content)
        except OSError as error:
            raise self._refusal(error) from error

    def write_all(self, lines: Iterable[str]) -> None:
        """Write lines, many at a time."""
        waiting = iter(lines)
        while some := "".join(islice(waiting, LINES)):
            self.write(some.encode(errors=ESCAPED))

    def discard(self) -> None:
        """Remove what is unfinished."""
        with suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def _refusal(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self._target} can't be written: {error.strerror or error}; give a file that can be "
            "made"
        )
