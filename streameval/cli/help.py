"""What --help says beside the options: exit statuses, and examples.

The documentation shows the examples, and a test runs them.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import IntEnum
from textwrap import wrap

HEADING = "Examples:"
ROOM = 70  # characters of a line, beside the status


class ExitStatus(IntEnum):
    """How a command has ended; `MEANINGS` says it in words."""

    DONE = 0
    FAULT = 1
    REFUSED = 2
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


MEANINGS: Mapping[ExitStatus, str] = {
    ExitStatus.DONE: "done",
    ExitStatus.FAULT: "a fault of streameval (a traceback is printed), or stdout's reader is gone",
    ExitStatus.REFUSED: "an input, an option, a file or a memory budget that can't be used, or a "
    "difference that ledger verify has found: one message on stderr says what was received, what "
    "was expected and what to do",
    ExitStatus.INTERRUPTED: "interrupted by Ctrl-C (SIGINT): no result is written",
    ExitStatus.TERMINATED: "ended by SIGTERM: no result is written",
}


def statuses_text() -> str:
    """Return the list of statuses for ``--help``."""
    lines = ["Exit statuses:"]
    for status, meaning in MEANINGS.items():
        first, *more = wrap(meaning, ROOM)
        lines += [f"{status.value:>5}  {first}", *(f"{'':>7}{one}" for one in more)]
    return "\n".join(lines)


def examples(*commands: str) -> str:
    r"""Return an epilog that shows commands as they are written, a line or several each.

    Parameters
    ----------
    *commands : str
        Without the program's name; a line that ends in ``\`` goes on in the next.
    """
    lines = [f"  {line}" for one in commands for line in f"streameval {one}".splitlines()]
    return "\n".join(["\b", HEADING, *lines])  # \b: click keeps the lines as they are


def commands_of(epilog: str | None) -> str:
    """Return the commands of an epilog as a shell script; empty where there are none."""
    _, _, text = (epilog or "").partition(f"{HEADING}\n")
    return "".join(f"{line[2:]}\n" for line in text.splitlines())
