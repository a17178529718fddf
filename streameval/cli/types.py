"""Types of options and arguments: how a value is written, read, and completed by the shell.

`click` converts with them what the command line and a config file give. A config file may hold
numbers and lists too, and its paths are relative to its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

import click
from click.types import FloatParamType, IntParamType

from streameval.errors import OptionError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

REMOTE = re.compile(r"[A-Za-z][\w+.-]*://|shape:")  # URIs that no folder of this disk holds

NUMBERS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "integer range": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
}
"""What a config file may hold for click's own types, and that in words."""


class Value(click.ParamType[Any]):
    """A value that is a text on the command line.

    Parameters
    ----------
    metavar : str
        How help shows it.
    number : bool
        Whether a config file may hold a number in place of a text.

    Attributes
    ----------
    place : {None, "file", "dir"}
        What the shell completes where no name fits.
    """

    name = "text"
    place: str | None = None

    def __init__(self, metavar: str, *, number: bool = False) -> None:
        self.metavar, self.number = metavar, number

    @property
    def expected(self) -> str:
        """What a config file may hold, in words."""
        return "a text or a number" if self.number else "a text"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return how help shows a value."""
        return self.metavar

    def accepts(self, value: Any) -> bool:
        """Return whether a config file may hold a value of this type."""
        return isinstance(value, str) or (self.number and type(value) in (int, float))

    def is_path(self, text: str) -> bool:
        """Return whether a value is a path on this disk."""
        return self.place is not None and REMOTE.match(text) is None

    def within(self, folder: str, value: Any) -> Any:
        """Return a value of a config file in a folder, to which its paths are relative."""
        if isinstance(value, str) and self.is_path(value):
            return os.path.join(folder, value)  # noqa: PTH118 - "" stays ""
        return value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the command works with."""
        return str(value) if self.number else value

    def names(self) -> Iterable[str]:
        """Return the values that have a name."""
        return ()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so; or leave files and folders to the shell."""
        from click.shell_completion import CompletionItem

        head, text = self.last(incomplete)
        items = [CompletionItem(head + name) for name in self.names() if name.startswith(text)]
        if not items and self.place is not None:
            items = [CompletionItem(incomplete, type=self.place)]
        return items

    def last(self, text: str) -> tuple[str, str]:
        """Split off what is to be completed."""
        return "", text


class Integer(IntParamType):
    """A whole number."""

    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return how help shows it."""
        return self.metavar


class Real(FloatParamType):
    """A number."""

    def __init__(self, metavar: str) -> None:
        self.metavar = metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return how help shows it."""
        return self.metavar


class Path(Value):
    """A file, a folder or a URI."""

    def __init__(self, metavar: str, place: str = "file") -> None:
        super().__init__(metavar)
        self.place = place


class Choice(Value):
    """One of several names, or the path of a file in their place.

    Parameters
    ----------
    names : callable
        Returns the names when they are needed: most registries are heavy to import.
    file : str
        How help shows the file: ``FILE.toml``; "" where there is no such choice.
    shown : callable, optional
        Returns the names that help shows, where not all.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        *,
        file: str = "",
        shown: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        self.number = False
        self.names, self.shown, self.file = names, shown or names, file  # type: ignore[method-assign]
        self.place = "file" if file else None

    @property
    def expected(self) -> str:
        """What a config file may hold, in words."""
        return f"a text: {', '.join([*self.names(), *filter(None, [self.file])])}"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the names."""
        return "|".join([*self.shown(), *filter(None, [self.file])])

    def is_path(self, text: str) -> bool:
        """Return whether it is a file, by its ending, or in a folder."""
        ending = self.file.removeprefix("FILE")
        return bool(ending) and (text.lower().endswith(ending) or os.sep in text)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return a name that is known, or a path."""
        if value in self.names() or self.is_path(value):
            return str(value)
        known = ", ".join([*self.names(), *filter(None, [self.file])])
        raise OptionError(f"{flag(param)} is {value!r}; known: {known}")


class Metrics(Value):
    """Names of metrics, separated by commas; or one name."""

    def __init__(self, metavar: str = "NAMES") -> None:
        super().__init__(metavar)
        self.several = metavar == "NAMES"

    @property
    def expected(self) -> str:
        """What a config file may hold, in words."""
        return "a text, or a list of texts" if self.several else "a text"

    def accepts(self, value: Any) -> bool:
        """Return whether it is a text, or a list of texts."""
        names = value if self.several and isinstance(value, list) else [value]
        return all(isinstance(name, str) for name in names)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the names as a tuple; one name as it is."""
        if not self.several:
            return value
        from streameval.metrics.selection import split_names

        return split_names(",".join(value) if isinstance(value, list | tuple) else value)

    def names(self) -> Iterable[str]:
        """Return the metrics, and the parts of their list."""
        from streameval.metrics import METRICS, MetricOptions
        from streameval.metrics.selection import ALL, PARTS

        names = [one.name for metric in METRICS for one in metric.measures(MetricOptions())]
        return [ALL, *PARTS, *names] if self.several else names

    def last(self, text: str) -> tuple[str, str]:
        """Split off the last name of a list."""
        head, comma, name = text.rpartition(",") if self.several else ("", "", text)
        return head + comma, name


class Range(Value):
    """``auto``, ``minmax``, or two numbers: in a text with a comma, or in a list.

    Parameters
    ----------
    *words : str
        The names that it may be.
    """

    def __init__(self, *words: str) -> None:
        super().__init__("|".join([*words, "LO,HI"]))
        self.words = words

    @property
    def expected(self) -> str:
        """What a config file may hold, in words."""
        return f"a text ({', '.join(self.words)}), or a list of two numbers"

    def names(self) -> Iterable[str]:
        """Return the words."""
        return self.words

    def accepts(self, value: Any) -> bool:
        """Return whether it is a text, or a list of numbers."""
        numbers = value if isinstance(value, list) else [None]
        return isinstance(value, str) or all(type(one) in (int, float) for one in numbers)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a word, or a pair of numbers."""
        if value in ("auto", "minmax"):
            return value
        try:
            low, high = value.split(",") if isinstance(value, str) else value
            return float(low), float(high)
        except ValueError:
            raise OptionError(
                f"{flag(param)} is {value!r}; expected auto, minmax, or two numbers LO,HI such as "
                "0,2"
            ) from None


class Column(Path):
    """The name of a column, or the URI of an array."""

    def is_path(self, text: str) -> bool:
        """Return whether it is a URI on this disk."""
        return super().is_path(text) and not is_column(text)


class Index(Path):
    """A factory string of FAISS, or the file of an index."""

    def is_path(self, text: str) -> bool:
        """Return whether it is a file, by its ending, or in a folder."""
        named = text.lower().endswith((".faiss", ".index")) or os.sep in text
        return super().is_path(text) and named


class Depth(Value):
    """The length of a list: a number, or ``auto``."""

    def __init__(self) -> None:
        super().__init__("K|auto", number=True)

    def names(self) -> Iterable[str]:
        """Return the word that it may be."""
        return ("auto",)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a whole number of at least 1, or ``auto``."""
        text = str(value)
        if text == "auto":
            return text
        if not text.isdecimal() or int(text) < 1:
            raise OptionError(f"{flag(param)} is {text!r}; expected a positive integer, or auto")
        return int(text)


def registry(module: str, name: str, *keys: str) -> Callable[[], tuple[str, ...]]:
    """Return a function that imports a module of streameval and returns the names it holds.

    Parameters
    ----------
    module, name : str
        Where the names are: a collection, a mapping by name, or a Literal.
    *keys : str
        What to look up in it first.
    """

    def names() -> tuple[str, ...]:
        values = getattr(import_module(f"streameval.{module}"), name)
        for key in keys:
            values = values[key]
        return get_args(values) or tuple(values)

    return names


def flag(param: click.Parameter | None) -> str:
    """Return the long name of an option as it is written."""
    return max(param.opts, key=len) if param is not None else "value"


def is_column(text: str) -> bool:
    """Return whether a text is the name of a column; a URI has a suffix, or a folder."""
    return re.fullmatch(r"[\w -]+", text) is not None


def accepts(kind: click.ParamType[Any], value: Any) -> bool:
    """Return whether a config file may hold a value for a parameter of a type."""
    return kind.accepts(value) if isinstance(kind, Value) else type(value) in NUMBERS[kind.name][0]


def expected(kind: click.ParamType[Any]) -> str:
    """Return in words what a config file may hold for a parameter of a type."""
    return kind.expected if isinstance(kind, Value) else NUMBERS[kind.name][1]
