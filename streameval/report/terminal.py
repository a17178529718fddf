"""Text for terminals and files: colours and symbols, or plain ASCII; and tables in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from streameval.report.table import ROOM, Part, Table

if TYPE_CHECKING:
    from rich.table import Table as Grid

WIDE = 10_000  # columns: a number is never wrapped or cut; a narrow terminal wraps by itself

_FORMULAS = {
    "Σ": "sum",
    "½": "1/2",
    "±": "+-",
    "§": "section ",
    "ä": "ae",
    "ć": "c",
    "⌈": "ceil(",
    "⌉": ")",
}
_HARMFUL = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)
"""Characters that would move the cursor, colour the terminal or turn its text around."""

_ASCII = str.maketrans(
    {"×": "x", "−": "-", "–": "-", "·": "|", "τ": "tau", "≤": "<=", "…": "...", "█": "#", "●": "*"}
    | _FORMULAS
)


@dataclass(frozen=True)
class Style:
    """How text is written.

    Attributes
    ----------
    plain : bool
        ASCII without colours or boxes: for files, pipes and NO_COLOR.
    """

    plain: bool

    def text(self, text: str) -> str:
        """Return the text with the symbols of this style; control characters are replaced."""
        text = text.translate(_HARMFUL)
        return text.translate(_ASCII) if self.plain else text

    def formula(self, text: str) -> str:
        """Return a formula with the symbols of this style: its dots are products."""
        return self.text(text.replace("·", "*")) if self.plain else text

    def colour(self, name: str) -> str:
        """Return a colour, or none where the text is plain."""
        return "" if self.plain else name


def stdout_style() -> Style:
    """Return the style that stdout can show."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return Style(
        plain=not is_terminal(sys.stdout)
        or bool(os.environ.get("NO_COLOR"))
        or os.environ.get("TERM") == "dumb"
        or not encoding.startswith("utf")
    )


def is_terminal(file: TextIO | None) -> bool:
    """Return whether a stream is a terminal; a closed one is None, and is not."""
    return file is not None and file.isatty()


def render(style: Style, blocks: Sequence[str | Table]) -> str:
    """Return lines and tables as text: between blank lines on a terminal, in a file without."""
    from rich.console import Console

    file = StringIO()
    console = Console(
        file=file,
        width=WIDE,
        force_terminal=not style.plain,
        color_system=None if style.plain else "standard",
        no_color=style.plain,
        highlight=False,
        markup=False,  # a label such as [red] or :smile: is what it is
        emoji=False,
        legacy_windows=False,
    )
    for block in blocks:
        shown = style.text(block) if isinstance(block, str) else _grid(block, style)
        console.print(shown, no_wrap=True, overflow="ignore", crop=False)
    lines = "\n".join(line.rstrip() for line in file.getvalue().splitlines())
    return f"{lines}\n" if style.plain else f"\n{lines}\n\n"


def _grid(table: Table, style: Style) -> Grid:
    """Return a table of rich: in a box where its parts have titles, else without lines."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    has_notes = any(cell.note for row in table.rows for cell in row)
    if any(part.title for part in table.parts):
        grid = Grid(
            box=None if style.plain else box.ROUNDED,
            show_header=False,
            pad_edge=not style.plain,
            padding=(0, 3 if style.plain else 1, 0, 0 if style.plain else 1),
            border_style=style.colour("dim"),
        )
        colours = ["", "bold"]
        has_notes = True
    else:
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(table.heads))
        colours = [] if table.heads else ["cyan"]
    heads = table.heads or [""] * table.columns
    for at, (head, side) in enumerate(zip(heads, table.sides, strict=True)):
        grid.add_column(
            Text(style.text(head)),
            no_wrap=True,
            justify="right" if side == "r" else "left",
            style=style.colour(colours[at] if at < len(colours) else ""),
        )
    if has_notes:
        grid.add_column(no_wrap=True, style=style.colour("dim" if colours[1:] else ""))
    for part in table.parts:
        if part.title:
            if style.plain and grid.row_count:
                grid.add_row()
            title = (part.title, *heads[1:], part.note)
            grid.add_row(*map(style.text, title), style=style.colour("bold cyan"))
        for line in _lines(part, style, has_notes=has_notes):
            grid.add_row(*map(Text, line))
        grid.add_section()
    return grid


def _lines(part: Part, style: Style, *, has_notes: bool) -> Iterable[list[str]]:
    """Give the cells of each line: of a text that wraps, in lines of at most `ROOM` characters."""
    indent = "  " if part.title else ""
    for row in part.rows:
        texts = [style.text(cell.text) for cell in row]
        texts[0] = indent + texts[0]
        if has_notes:
            texts.append(" · ".join(style.text(cell.note) for cell in row if cell.note))
        if not row[-1].wraps:
            yield texts
            continue
        first, *others = wrap(texts[-1], ROOM) or [""]
        yield [*texts[:-1], first]
        yield from (["", line] for line in others)
