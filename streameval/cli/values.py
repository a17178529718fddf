"""What the values of options are: texts, numbers, lists, places; and what a Tab completes.

An option says in its metavar how it is written: ``URI``, ``SIZE``, ``step|trapezoid``, ``LO,HI``.
That is what a person reads, and it is read here, too: for config files, in which a path is
relative to the file's folder, and for the completion of the shell.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click
from click.types import StringParamType

from streameval.cli.options import is_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.shell_completion import CompletionItem

FILES = frozenset({"URI", "TABLE", "FILE", "FILE.toml", "FILE.faiss", "FILE.svg", "OUT"})
FOLDERS = frozenset({"DIR", "L"})
NUMBERS = frozenset({"N", "K", "SIZE", "LEVEL", "SECONDS", "W"})
LISTS = frozenset({"NAMES", "LO,HI"})  # written with commas
TEXTS = frozenset(
    {
        "ADDRESS",
        "COLUMN",
        "INDEX",
        "METRIC",
        "NAME",
        "NAME=N,..",
        "SNAPSHOT",
        "SPEC",
        "TEMPLATE",
        "TEXT",
    }
)
PLACEHOLDERS = FILES | FOLDERS | NUMBERS | LISTS | TEXTS
"""What stands for something in a metavar; any other word of it is a value as it is."""

ELSEWHERE = re.compile(r"[A-Za-z][\w+.-]*://|shape:")  # of no folder on this disk


class Value(StringParamType):
    """The type of an option that is a text on the command line.

    Parameters
    ----------
    metavar : str
        How it is written: words, and of these the `PLACEHOLDERS` stand for something.

    Attributes
    ----------
    parts : tuple of str
        The words.
    choices : tuple of str
        Those that are values.
    """

    def __init__(self, metavar: str) -> None:
        self.parts = tuple(metavar.split("|"))
        self.choices = tuple(one for one in self.parts if one not in PLACEHOLDERS)

    def is_place(self, text: str) -> bool:
        """Return whether a value is a path on this disk."""
        named = [one for one in self.parts if one in FILES | FOLDERS]
        if not named or text in self.choices or ELSEWHERE.match(text):
            return False
        if "COLUMN" in self.parts:
            return not is_column(text)
        endings = tuple(PurePath(one).suffix for one in named)  # that names beside it don't have
        if "SPEC" in self.parts:
            endings += (".index",)
        return len(self.parts) == 1 or text.lower().endswith(endings) or os.sep in text

    def within(self, folder: str, text: str) -> str:
        """Return a value of a file in a folder: a relative path is relative to that folder."""
        return os.path.join(folder, text) if self.is_place(text) else text  # noqa: PTH118

    @property
    def expected(self) -> str:
        """What a value is in a config file, in words."""
        if self.choices and not PLACEHOLDERS.intersection(self.parts):
            return f"a text: {', '.join(self.choices)}"
        if "LO,HI" in self.parts:
            return f"a text ({', '.join(self.choices)}), or a list of two numbers"
        if "NAMES" in self.parts:
            return "a text, or a list of texts"
        return "a text or a number" if NUMBERS.intersection(self.parts) else "a text"

    def text_of(self, value: Any) -> str | None:
        """Return a value of a config file as on the command line; None of one that can't be."""
        if isinstance(value, str):
            return value
        kinds: tuple[type, ...] = ()
        if "LO,HI" in self.parts:
            kinds = (int, float)
        if "NAMES" in self.parts:
            kinds = (str,)
        if isinstance(value, list):
            allowed = bool(kinds) and all(type(one) in kinds for one in value)
            return ",".join(map(str, value)) if allowed else None
        if type(value) in (int, float) and NUMBERS.intersection(self.parts):
            return str(value)
        return None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return what a Tab completes a value to: choices and metrics; else the shell's files."""
        from click.shell_completion import CompletionItem

        head, text = "", incomplete
        if "NAMES" in self.parts:
            before, comma, text = incomplete.rpartition(",")
            head = before + comma
        known = [*self.choices, *self._metrics()]
        found = [head + one for one in known if one.startswith(text)]
        if found:
            return [CompletionItem(one) for one in found]
        if FILES.intersection(self.parts):
            return [CompletionItem(incomplete, type="file")]
        if FOLDERS.intersection(self.parts):
            return [CompletionItem(incomplete, type="dir")]
        return []

    def _metrics(self) -> Iterator[str]:
        """Give names of metrics, the parts of their list among them, where a value is any."""
        if not {"NAMES", "METRIC"}.intersection(self.parts):
            return
        from streameval.metrics import METRICS, MetricOptions
        from streameval.metrics.selection import ALL, PARTS

        if "NAMES" in self.parts:
            yield from (ALL, *PARTS)
        for metric in METRICS:
            for measure in metric.measures(MetricOptions()):
                yield measure.name


def describe_values(command: click.Command) -> None:
    """Give every text among the options and arguments of a command its `Value`."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            describe_values(one)
    for param in command.params:
        if param.type is click.STRING and param.metavar is not None:
            param.type = Value(_written(param))


def _written(param: click.Parameter) -> str:
    """Return how one value is written: of ``DIR [DIR...]``, that is ``DIR``."""
    metavar = param.metavar or ""
    if isinstance(param, click.Argument):
        return re.split(r"[\s@\[\]]+", metavar.lstrip("["))[0]
    return metavar
