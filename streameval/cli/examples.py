"""Examples at the end of a command's --help; the documentation shows them, and a test runs them."""

from __future__ import annotations

HEADING = "Examples:"


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
