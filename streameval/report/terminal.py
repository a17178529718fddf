"""What a terminal shows: text in colours and symbols, or plain ASCII; tables in it; progress.

Progress is a bar on a terminal, a line now and then elsewhere; on stderr.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from streameval.planning.plan import format_bytes
from streameval.report.table import ROOM, SEPARATOR, Blocks, Table, amount, duration
from streameval.run.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.table import Table as Grid

SHOWN_AFTER = 1.0  # seconds: what is done sooner needs no bar
LOG_EVERY = 30.0  # seconds
WIDE = 10_000  # columns: a number is never wrapped or cut; a narrow terminal wraps by itself

_HARMFUL = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)
"""Characters that would move the cursor, colour the terminal or turn its text around."""

_ASCII = str.maketrans(
    {"×": "x", "−": "-", "–": "-", "·": "*", "τ": "tau", "≤": "<=", "…": "...", "█": "#", "●": "*"}
    | {"Σ": "sum", "½": "1/2", "±": "+-", "§": "section ", "ä": "ae", "ć": "c"}
    | {"⌈": "ceil(", "⌉": ")"}
)


def shown(text: str, *, plain: bool = False) -> str:
    """Return a text as a terminal shows it: control characters are replaced.

    Plain is ASCII without colours or boxes: for files, pipes and NO_COLOR.
    """
    text = text.translate(_HARMFUL)
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


class ShownProgress(Progress):
    """Progress of a whole job: a context manager, which shows nothing itself."""

    def __init__(self) -> None:
        self._label = ""
        self.begin(0, 0)

    def begin(self, pairs: int, size: int) -> None:
        """Begin a job: its pairs, and the bytes that it reads."""
        self._pairs, self._size, self._done = pairs, size, 0
        self._begun = time.monotonic()

    def start(self, label: str, pairs: int) -> None:
        """Begin a pass; an unplanned one makes the job longer."""
        self._label = label
        self._pairs = max(self._pairs, self._done + pairs)
        self._show()

    def advance(self, pairs: int) -> None:
        """Note pairs done."""
        self._done += pairs
        self._show()

    def _show(self) -> None:
        """Show what has changed."""

    def rates(self, seconds: float) -> str:
        """Return pairs and bytes a second, after a time in seconds."""
        pairs = self._done / max(seconds, 1e-3)
        rates = [f"{amount(pairs)} pairs/s"]
        if self._size:
            rates.append(f"{format_bytes(pairs * self._size / max(self._pairs, 1))}/s")
        return ", ".join(rates)

    def close(self) -> None:
        """Give the terminal back; it may be called again."""

    def __enter__(self) -> ShownProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def show_progress(*, quiet: bool) -> ShownProgress:
    """Return a progress that suits stderr: a bar, lines, or nothing."""
    if quiet:
        return ShownProgress()
    if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
        return BarProgress()
    return LogProgress()


class LogProgress(ShownProgress):
    """A line on stderr every so many seconds."""

    def __init__(self, every: float = LOG_EVERY) -> None:
        super().__init__()
        self._every = every
        self._logged = time.monotonic()

    def advance(self, pairs: int) -> None:
        """Note pairs done; write a line where one is due."""
        super().advance(pairs)
        now = time.monotonic()
        if now - self._logged >= self._every:
            self._logged = now
            seconds = now - self._begun
            left = (self._pairs - self._done) * seconds / max(self._done, 1)
            sys.stderr.write(
                f"{self._label}: {self._done / max(self._pairs, 1):.0%} of {amount(self._pairs)} "
                f"pairs, {self.rates(seconds)}, {duration(round(left))} left\n"
            )
            sys.stderr.flush()


class BarProgress(ShownProgress):
    """One bar for a job on a terminal; gone when it is done.

    It is shown so many seconds `after` the first pass began, also while nothing is done yet.
    """

    def __init__(self, after: float = SHOWN_AFTER) -> None:
        super().__init__()
        self._bar = make_bar()
        self._task = self._bar.add_task("", rates="")
        self._timer = threading.Timer(after, self._bar.start)
        self._timer.daemon = True

    def _show(self) -> None:
        if self._timer.ident is None:
            self._timer.start()
        rates = f", {self.rates(time.monotonic() - self._begun)}" if self._done else ""
        self._bar.update(
            self._task,
            description=self._label,
            completed=self._done,
            total=self._pairs,
            rates=f"{amount(self._pairs)}{rates}".replace(", ", " · "),
        )

    def close(self) -> None:
        """Take the bar away."""
        self._timer.cancel()
        self._bar.stop()


def make_bar() -> RichProgress:
    """Return a bar of one line, at most 80 columns wide."""
    from rich import progress
    from rich.console import Console
    from rich.table import Column

    line = Column(no_wrap=True)
    return progress.Progress(
        progress.TextColumn("{task.description:<9}", table_column=line),
        progress.BarColumn(bar_width=8),
        progress.TaskProgressColumn(table_column=line),
        progress.TextColumn("{task.fields[rates]}", style="", table_column=line),
        progress.TimeRemainingColumn(compact=True, table_column=line),
        console=Console(stderr=True),
        transient=True,
    )
