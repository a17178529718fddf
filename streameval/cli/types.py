"""Types of options and arguments: how a value is written, read, and completed by the shell.

`click` converts with them what the command line and a config file give. A config file may hold
numbers and lists too, and its paths are relative to its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from streameval.choices import RangeName
from streameval.errors import OptionError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LOCAL = r"(?![A-Za-z][\w+.-]*://|shape:)"
"""How a path of this disk begins, as a regular expression: not as a URI that no folder holds."""


class Value(click.ParamType[Any]):
    """A value that is a text on the command line.

    Parameters
    ----------
    metavar : str
        How help shows it.
    place : {None, "file", "dir"}
        What the shell completes where no name fits; None where no value is a path.
    path : str
        Regular expression of the values that are paths.
    names : callable
        Returns the values that have a name.

    Attributes
    ----------
    scalars, items : tuple of type
        What a config file may hold: such values, and lists of such.
    expected : str
        That in words.
    """

    name = "text"
    scalars: tuple[type, ...] = (str,)
    items: tuple[type, ...] = ()
    expected = "a text"

    def __init__(
        self,
        metavar: str,
        place: str | None = None,
        path: str = LOCAL,
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.metavar, self.place, self.names, self._path = metavar, place, names, path

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return how help shows a value."""
        return self.metavar

    def parse(self, value: Any) -> Any:
        """Return what a command takes; raise ValueError, with what it could be, for others."""
        return value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what a command takes."""
        try:
            return self.parse(value)
        except OptionError:
            raise
        except ValueError as error:
            raise OptionError(f"{flag(param)} is {value!r}; {error}") from None

    def is_path(self, value: Any) -> bool:
        """Return whether a value is a path on this disk."""
        text = isinstance(value, str) and self.place is not None
        return text and re.match(self._path, value) is not None

    def within(self, folder: str, value: Any) -> Any:
        """Return a value of a config file in a folder, which a path is relative to."""
        # Path would make of "" the folder itself.
        return os.path.join(folder, value) if self.is_path(value) else value  # noqa: PTH118

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so; or leave files and folders to the shell."""
        from click.shell_completion import CompletionItem

        begin = incomplete.rfind(",") + 1 if str in self.items else 0
        names = [name for name in self.names() if name.startswith(incomplete[begin:])]
        if not names and self.place is not None:
            return [CompletionItem(incomplete, type=self.place)]
        return [CompletionItem(incomplete[:begin] + name) for name in names]


class Number(Value):
    """A text that may be a number in a config file."""

    scalars = (str, int, float)
    expected = "a text or a number"

    def parse(self, value: Any) -> Any:
        """Return a text."""
        return str(value)


class NamedFile(Value):
    """A name and a path, ``NAME=FILE``."""

    def parse(self, value: Any) -> str:
        """Return the text, if it has both."""
        name, path = self.split(value)
        if not name or not path:
            raise ValueError(f"expected {self.metavar}, such as good=good.csv")
        return str(value)

    @staticmethod
    def split(value: str) -> tuple[str, str]:
        """Return the name and the path."""
        name, _, path = value.partition("=")
        return name, path

    def within(self, folder: str, value: Any) -> Any:
        """Return a value of a config file in a folder, which its path is relative to."""
        name, path = self.split(value)
        return f"{name}={super().within(folder, path)}" if path else value


class Column(Value):
    """The name of a column, or the URI of an array."""

    def is_path(self, value: Any) -> bool:
        """Return whether a value is a path on this disk."""
        return super().is_path(value) and not is_column(value)


class Choice(Value):
    """One of several names, or the path of a file in their place.

    Parameters
    ----------
    names : callable
        Returns the names when they are needed: most registries are heavy to import.
    file : str
        How help shows the file: ``FILE.toml``; "" where there is no such choice.
    shown : callable, optional
        Returns the names that help shows, where a command refuses others with a reason.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        file: str = "",
        shown: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        super().__init__(file, "file" if file else None, r".*(/|(?i:\.toml)\Z)", names)
        self._shown = shown or names

    def _with_file(self, names: Iterable[str]) -> list[str]:
        return [*names, *filter(None, [self.metavar])]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the names."""
        return "|".join(self._with_file(self._shown()))

    def parse(self, value: Any) -> Any:
        """Return a name that is known, or a path."""
        if value not in self.names() and not self.is_path(value):
            raise ValueError(f"known: {', '.join(self._with_file(self.names()))}")
        return value


def metric_names() -> list[str]:
    """Return the names of all metrics."""
    from streameval.metrics.options import MetricOptions
    from streameval.metrics.selection import METRICS

    return [one.name for metric in METRICS for one in metric.measures(MetricOptions())]


class Metrics(Value):
    """Names of metrics, or of parts of their list, separated by commas."""

    items = (str,)
    expected = "a text, or a list of texts"

    def __init__(self) -> None:
        super().__init__("NAMES", names=self._names)

    def parse(self, value: Any) -> Any:
        """Return the names as a tuple."""
        from streameval.metrics.selection import names_of

        return names_of(value if isinstance(value, str) else ",".join(value), "metrics")

    def _names(self) -> list[str]:
        from streameval.metrics.selection import LISTS

        return [*LISTS, *metric_names()]


class Range(Value):
    """A name such as ``auto``, or two numbers: in a text with a comma, or in a list.

    Parameters
    ----------
    *words : str
        The names that it may be.
    """

    items = (int, float)
    expected = "a text, or a list of two numbers"

    def __init__(self, *words: str) -> None:
        super().__init__("|".join([*words, "LO,HI"]), names=lambda: words)

    def parse(self, value: Any) -> Any:
        """Return a name of a range, or a pair of numbers."""
        names = get_args(RangeName)
        if value in names:
            return value
        try:
            low, high = map(float, value.split(",") if isinstance(value, str) else value)
        except ValueError:
            raise ValueError(
                f"expected {', '.join(names)}, or two numbers LO,HI such as 0,2"
            ) from None
        return low, high


class Recipe(Value):
    """A name and numbers that it takes: ``k-reciprocal,k1=20,lambda=0.3``.

    Parameters
    ----------
    takes : mapping of str to tuple of str
        The names, and the numbers that each takes.
    bare : str, optional
        What stands for the option without a value, or true in a config file.
    """

    def __init__(self, takes: Mapping[str, tuple[str, ...]], bare: str | None = None) -> None:
        self.takes, self.bare = takes, bare
        self.scalars = (str,) if bare is None else (str, bool)
        super().__init__(" | ".join(map(self._shape, takes)), names=lambda: takes)

    def _shape(self, name: str) -> str:
        return name + "".join(f"[,{one}=N]" for one in self.takes[name])

    def parse(self, value: Any) -> Any:
        """Return the text, if the name takes all its numbers; or what stands for no value."""
        if isinstance(value, bool) or value == self.bare:
            return self.bare if value else None
        name, given = self.split(value)
        if name not in self.takes or not {*given} <= {*self.takes[name]}:
            raise ValueError(f"expected {self.metavar}")
        return value

    @staticmethod
    def split(value: str) -> tuple[str, dict[str, float]]:
        """Return the name, and the numbers by theirs; raise ValueError for what is no number."""
        name, *numbers = value.split(",")
        given: dict[str, float] = {}
        for number in numbers:
            key, _, figure = number.partition("=")
            if key in given or not re.fullmatch(r"-?\d+(\.\d*)?(e-?\d+)?", figure):
                raise ValueError(f"{number!r} is no number with a name of its own: k1=20")
            given[key] = int(figure) if re.fullmatch(r"-?\d+", figure) else float(figure)
        return name, given


class Depth(Number):
    """The length of a list, or another number; or a name: ``auto``, ``all``."""

    def parse(self, value: Any) -> Any:
        """Return a whole number of at least 1, or a name."""
        text, names = str(value), list(self.names())
        if text in names:
            return text
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"expected a positive integer, or {' or '.join(names)}")
        return int(text)


def registry(module: str, name: str) -> Callable[[], tuple[str, ...]]:
    """Return a function that imports a module of streameval and returns the names it holds.

    They are in a collection, in a mapping by name, or in a Literal.
    """

    def names() -> tuple[str, ...]:
        values = getattr(import_module(f"streameval.{module}"), name)
        return get_args(values) or tuple(values)

    return names


def flag(param: click.Parameter | None) -> str:
    """Return the long name of an option as it is written."""
    return max(param.opts, key=len) if param is not None else "value"


def is_column(text: str) -> bool:
    """Return whether a text is the name of a column, and not the URI of an array.

    A URI has the suffix of a format, or a key, or begins with ``/`` or ``./``.
    """
    from streameval.arrays.uri import FORMATS
    from streameval.labels.stored import split_selector

    has_suffix = Path(split_selector(text)[0]).suffix.lower() in FORMATS
    return text != "" and not has_suffix and re.match(r"\.{0,2}/|.*::|.*://", text) is None
