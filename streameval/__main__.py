"""The program: ``streameval``, or ``python -m streameval``."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line."""
    # Until that takes over, Ctrl-C just ends the process: no import can swallow an exception.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from streameval import cli

    cli.main()


if __name__ == "__main__":
    main()
