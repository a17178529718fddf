"""The exceptions that streameval raises on purpose.

Each says what was received, what was expected and what to do. The command line prints
the message alone and exits with status 2.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any


class StreamevalError(Exception):
    """Base of all errors that streameval raises on purpose."""


class InputError(StreamevalError, ValueError):
    """An input file, array or label that cannot be evaluated as it is."""


class BadRowError(InputError):
    """A row of features or distances that can't be evaluated.

    Attributes
    ----------
    row : int
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = int(row)

    def __reduce__(self) -> tuple[type[BadRowError], tuple[str, int]]:
        return type(self), (str(self), self.row)


class OptionError(StreamevalError, ValueError):
    """An option with a value that is unknown or does not fit the inputs."""


class BudgetError(StreamevalError, MemoryError):
    """The memory budget is too small for the work; the message says how much is needed."""


class OutputError(StreamevalError, OSError):
    """A result that cannot be written or read back."""


class TaskError(StreamevalError, RuntimeError):
    """Work that can't be done: a task that fails again and again, or a cluster that is gone."""


def refuse(kind: type[StreamevalError], *faults: object) -> None:
    """Raise an error that says the first fault, if there is one: ``bad and "what is bad"``."""
    for fault in filter(None, faults):
        raise kind(fault)


@contextmanager
def optional_package(name: str, extra: str, what: str) -> Iterator[None]:
    """Import a package of an extra in this context; raise OptionError where it is missing.

    Parameters
    ----------
    name, extra : str
        The package, and the extra of streameval that brings it.
    what : str
        What needs it, for the message: ``a report``.
    """
    try:
        yield
    except ImportError as error:
        raise OptionError(
            f"{what} needs {name}, which is not installed: pip install 'streameval[{extra}]'"
        ) from error


def is_whole(value: Any, least: float = -math.inf) -> bool:
    """Tell whether it is a whole number, Python's or NumPy's, of at least so much."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def check_type(what: str, given: object, kinds: Any, needed: str) -> None:
    """Refuse an argument of another type than is needed.

    Parameters
    ----------
    what : str
        What the caller calls it.
    given : object
    kinds : type or union of types
        As `isinstance` takes them.
    needed : str
        What the message says of them: ``a whole number is needed``.
    """
    if not isinstance(given, kinds):
        raise OptionError(f"{what} is of type {type(given).__name__}; {needed}")


def check_path(given: object, what: str = "path") -> None:
    """Refuse what is no path."""
    check_type(what, given, str | os.PathLike, "a path, str or Path, is needed")


class StreamevalWarning(UserWarning):
    """A result that is valid but not what may be expected, as a metric that is undefined."""
