"""The exceptions that streameval raises on purpose.

Each says what was received, what was expected and what to do. The command line prints
the message alone and exits with status 2.
"""

from __future__ import annotations


class StreamevalError(Exception):
    """Base of all errors that streameval raises on purpose."""


class InputError(StreamevalError, ValueError):
    """An input file, array or label that cannot be evaluated as it is."""


class OptionError(StreamevalError, ValueError):
    """An option with a value that is unknown or does not fit the inputs."""


class BudgetError(StreamevalError, MemoryError):
    """The memory budget is too small for the work; the message says how much is needed."""


class OutputError(StreamevalError, OSError):
    """A result that cannot be written or read back."""


class TaskError(StreamevalError, RuntimeError):
    """Work that can't be done: a task that fails again and again, or a cluster that is gone."""


class StreamevalWarning(UserWarning):
    """A result that is valid but not what may be expected, as a metric that is undefined."""
