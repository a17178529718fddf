"""Exit statuses: what the command line tells the program that has called it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import IntEnum
from textwrap import wrap

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
