"""What a terminal shows: text in colours and symbols, or plain ASCII; tables in it."""

from __future__ import annotations

import os
import sys
from functools import partial
from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from streameval.display.characters import visible
from streameval.display.table import ROOM, SEPARATOR, Blocks, Table

if TYPE_CHECKING:
    from rich.table import Table as Grid

WIDE = 10_000  # columns: a number is never wrapped or cut; a narrow terminal wraps by itself

_ASCII = str.maketrans(
    {"×": "x", "−": "-", "–": "-", "·": "*", "τ": "tau", "≤": "<=", "…": "...", "█": "#", "●": "*"}
    | {"Σ": "sum", "½": "1/2", "±": "+-", "§": "section ", "ä": "ae", "ć": "c"}
    | {"⌈": "ceil(", "⌉": ")"}
)


def shown(text: str, *, plain: bool = False) -> str:
    """Return a text as a terminal shows it: control characters are replaced.

    Plain is ASCII without colours or boxes: for files, pipes and NO_COLOR.
    """
    text = visible(text)
    return text.replace(SEPARATOR, " | ").translate(_ASCII) if plain else text


def is_plain() -> bool:
    """Return whether stdout shows plain text alone."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return (
        not is_terminal(sys.stdout)
        or bool(os.environ.get("NO_COLOR"))
        or os.environ.get("TERM") == "dumb"
        or not encoding.startswith("utf")
    )


def is_terminal(file: TextIO | None) -> bool:
    """Return whether a stream is a terminal; a closed one is None, and is not."""
    return file is not None and file.isatty()


def render(blocks: Blocks, *, plain: bool) -> str:
    """Return lines and tables as text: between blank lines on a terminal, in a file without."""
    from rich.console import Console

    file = StringIO()
    console = Console(
        file=file,
        width=WIDE,
        force_terminal=not plain,
        force_jupyter=False,  # it would display the lines in place of writing them
        color_system=None if plain else "standard",
        highlight=False,
        markup=False,  # a label such as [red] or :smile: is what it is
        emoji=False,
        legacy_windows=False,
    )
    for block in blocks:
        line = shown(block, plain=plain) if isinstance(block, str) else _grid(block, plain)
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    lines = "\n".join(line.rstrip() for line in file.getvalue().splitlines())
    return f"{lines}\n" if plain else f"\n{lines}\n\n"


def _grid(table: Table, plain: bool) -> Grid:
    """Return a table of rich: in a box where its parts have titles, else without lines."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    text = partial(shown, plain=plain)
    titled = any(row[0].mark == "title" for row in table.rows)
    boxed = titled and not plain
    grid = Grid(
        box=box.ROUNDED if boxed else None,
        show_header=bool(table.heads) and not titled,
        pad_edge=boxed,
        padding=(0, 1) if boxed else (0, 3 if titled else 2, 0, 0),
        border_style="dim",
    )
    styles = {1: "bold"} if titled else {} if table.heads else {0: "cyan"}
    heads = [text(head) for head in table.heads] or [""] * len(table.sides)
    for at, (head, side) in enumerate(zip(heads, table.sides, strict=True)):
        grid.add_column(
            Text(head),
            no_wrap=True,
            justify="right" if side == "r" else "left",
            style=styles.get(at, ""),
        )
    grid.add_column(no_wrap=True, style="dim" if titled else "")
    for row in table.rows:
        first, *texts = (text(cell.text) for cell in row)
        note = text(" · ".join(cell.note for cell in row if cell.note))
        if row[0].mark == "title":
            if plain and grid.row_count:
                grid.add_row()
            grid.add_section()
            grid.add_row(first, *heads[1:], note, style="bold cyan")
            continue
        if row[-1].wraps:
            texts[-1] = "\n".join(wrap(texts[-1], ROOM))
        grid.add_row(*map(Text, ("  " * titled + first, *texts, note)))
    return grid
