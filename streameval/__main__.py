"""The program: ``streameval``, or ``python -m streameval``."""

from __future__ import annotations

import atexit
import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    # Until that takes over, Ctrl-C just ends the process: no import can swallow an exception.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ended: list[int] = []
    atexit.register(_leave, ended)  # before all others: it is the last that Python calls
    from streameval import cli

    try:
        cli.main()
    except SystemExit as error:
        if isinstance(error.code, int):
            ended.append(error.code)
        raise


def _leave(ended: list[int]) -> None:
    """End the process; the system takes its memory back sooner than Python takes it apart."""
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except Exception:  # Python says what is wrong
        return
    if ended:
        os._exit(ended[-1])


if __name__ == "__main__":
    main()
