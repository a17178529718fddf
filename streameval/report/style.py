"""Colours and symbols, or plain ASCII; and numbers as people read them."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from streameval.planning.plan import plural as plural

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from streameval.metrics.kind import Kind

DASH = "–"
ROOM = 64  # characters of a line: what a terminal of 80 columns leaves beside the names of `facts`
WIDE = 10_000  # columns: a number is never wrapped or cut; a narrow terminal wraps by itself

TITLES: Mapping[str, str] = {
    "retrieval": "Retrieval",
    "open-set": "Open set",
    "gom": "GOM",
    "verification": "Verification",
}
"""The parts of the list of metrics, and their titles in the table."""

_FORMULAS = {"Σ": "sum", "½": "1/2", "±": "+-", "§": "section ", "ä": "ae"}
_HARMFUL = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)
"""Characters that would move the cursor, colour the terminal or turn its text around."""

_ASCII = str.maketrans(
    {"×": "x", "−": "-", "–": "-", "·": "|", "τ": "tau", "≤": "<=", "…": "..."} | _FORMULAS
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
    """Return whether a stream is a terminal; one that is closed is None, and none."""
    return file is not None and file.isatty()


def render(style: Style, blocks: Sequence[RenderableType]) -> str:
    """Return blocks of rich as text: between blank lines on a terminal, in a file without."""
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
        console.print(block, no_wrap=True, overflow="ignore", crop=False)
    lines = "\n".join(line.rstrip() for line in file.getvalue().splitlines())
    return f"{lines}\n" if style.plain else f"\n{lines}\n\n"


def unruled_table() -> Table:
    """Return a table without lines, two blanks behind each column."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def facts(style: Style, rows: Sequence[tuple[str, str]]) -> RenderableType:
    """Return names and what is to be said of each, a line each."""
    from rich.text import Text

    table = unruled_table()
    table.show_header = False
    for name, said in rows:
        table.add_row(
            Text(style.text(name), style="" if style.plain else "cyan"), Text(style.text(said))
        )
    return table


def packed(name: str, parts: Sequence[str]) -> list[tuple[str, str]]:
    """Return rows for `facts`: the parts in as few lines as fit, the name beside the first."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= ROOM:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return [(name if at == 0 else "", line) for at, line in enumerate(lines)]


def wrapped(style: Style, name: str, text: str) -> list[tuple[str, str]]:
    """Return rows for `facts`: the text in lines of at most `ROOM` characters."""
    lines = wrap(style.text(text), ROOM)
    return [(name if at == 0 else "", line) for at, line in enumerate(lines)]


def percent(value: float, digits: int = 2) -> str:
    """Return a fraction in percent: 0.6652 is ``66.52 %``; a small one, 0.0000601, ``0.0060 %``."""
    if value > 0:
        digits = max(digits, min(1 - math.floor(math.log10(100 * value)), 12))
    return f"{100 * value:.{digits}f} %"


def number_text(value: float, kind: Kind, *, signed: bool = False) -> str:
    """Return a value, or a signed difference of two, as its kind is written, without its unit."""
    return f"{kind.scale * value:{'+' if signed else ''},.{kind.digits}f}"


def value_text(value: float, kind: Kind) -> str:
    """Return a value with its unit; a small fraction in as many digits as it takes."""
    return percent(value) if kind.name == "fraction" else number_text(value, kind) + kind.unit


def interval_text(low: float, high: float, kind: Kind) -> str:
    """Return an interval with its unit; of fractions, with digits enough to tell them apart."""
    if kind.name != "fraction":
        return f"{number_text(low, kind)} – {number_text(high, kind)}{kind.unit}"
    for digits in range(2, 7):
        texts = [f"{100 * value:.{digits}f}" for value in (low, high)]
        if texts[0] != texts[1]:
            break
    return f"{texts[0]} – {texts[1]} %"


def aligned(text: str, kind: Kind) -> str:
    """Return a text with blanks behind it, so that numbers without a unit stand below others."""
    return text + " " * (len(" %") - len(kind.unit))


def amount(value: float) -> str:
    """Return a large number in three digits and words: 12.3 million."""
    for unit, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return a time as people read it: ``0.41 s``, ``2 min 05 s``, ``3 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
