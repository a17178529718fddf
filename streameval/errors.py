"""The exceptions that streameval raises on purpose.

Each says what was received, what was expected and what to do. The command line prints
the message alone and exits with status 2; a caller in Python sees the error as raised by the call
that it made: see `entry_point`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from functools import cached_property
from numbers import Integral
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

T = TypeVar("T")


class StreamevalError(Exception):
    """Base class of all errors that streameval raises deliberately."""

    shows_cause = False  # in the traceback of a public call


class InputError(StreamevalError, ValueError):
    """An input file, array or label is invalid."""


class ChangedError(InputError):
    """An input is not what it was when it was first looked at."""


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
    """The value of an option is unknown, or does not fit the inputs."""


class BudgetError(StreamevalError, MemoryError):
    """The memory budget is too small; the message says how much is needed."""


class OutputError(StreamevalError, OSError):
    """A result cannot be written or read."""


class TaskError(StreamevalError, RuntimeError):
    """A task fails repeatedly, or the cluster is lost."""

    shows_cause = True  # which may be in a function of the user


class EntryPoint(ContextDecorator):
    """Decorates a public function: the traceback of an error ends at the call of it.

    What led to the error stays in its ``__context__``; with all frames, it goes to the logger
    ``streameval`` at level DEBUG.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, frames: object) -> None:
        if isinstance(error, StreamevalError):
            import logging

            logging.getLogger("streameval").debug("an error is raised", exc_info=error)
            led_to = error.__cause__ or error.__context__
            error.__cause__ = led_to if error.shows_cause else None  # the context is not shown
            error.__context__ = led_to
            error.__traceback__ = None


entry_point = EntryPoint()


def entry_points(kind: type[T]) -> type[T]:
    """Decorate a class: its constructor, public methods and properties are entry points."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in ("__init__", "__getitem__"):
            continue
        match member:
            case FunctionType():
                setattr(kind, name, entry_point(member))
            case classmethod():
                setattr(kind, name, classmethod(entry_point(member.__func__)))
            case property(fget=FunctionType() as get):
                setattr(kind, name, member.getter(entry_point(get)))
            case cached_property():
                member.func = entry_point(member.func)
    return kind


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
        if lacks_memory(error):
            raise
        raise OptionError(
            f"{what} needs {name}, which is not installed: pip install 'streameval[{extra}]'"
        ) from error


LACKING = (
    "bad_alloc",
    "can't start new thread",
    "cannot allocate memory",
    "failed to map segment",
)
"""What libraries say in errors of other types where there is no memory for them."""


def lacks_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory could not be had."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(words in said for words in LACKING)


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
    """A result is valid but may be unexpected, such as an undefined metric."""


_INNER = (f"{Path(__file__).parent}{os.sep}", contextlib.__file__, functools.__file__)


def warn(message: str) -> None:
    """Issue a StreamevalWarning, at the line of the user that called the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INNER):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, StreamevalWarning, stacklevel=level)
