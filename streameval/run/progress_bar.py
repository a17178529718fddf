"""Progress that is shown: a bar on a terminal or in a notebook, else a line now and then."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from streameval.display.table import amount, duration
from streameval.display.text import is_terminal
from streameval.errors import check_type
from streameval.planning.plan import format_bytes
from streameval.run.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

SHOWN_AFTER = 1.0  # seconds: what is done sooner needs no bar
LOG_EVERY = 30.0  # seconds
DRAW_EVERY = 0.2  # seconds: a notebook keeps up with so many


class ShownProgress(Progress):
    """Progress of a whole job: a context manager, which shows nothing itself."""

    def __init__(self) -> None:
        self._label = ""
        self.begin(0, 0)

    def begin(self, pairs: int, size: int) -> None:
        """Begin a job: its pairs, and the bytes that it reads."""
        self._pairs, self._size, self._done = pairs, size, 0
        self._begun = self._paused = time.monotonic()

    def start(self, label: str, pairs: int) -> None:
        """Begin a pass; an unplanned one makes the job longer."""
        self._label = label
        self._pairs = max(self._pairs, self._done + pairs)
        self._show()

    def advance(self, pairs: int) -> None:
        """Note pairs done."""
        self._done += pairs
        self._show()

    def pause(self, reason: str) -> None:
        """Show what the pass waits for."""
        self._paused, label, self._label = time.monotonic(), self._label, reason
        self._show()
        self._label = label

    def resume(self) -> None:
        """Show the pass again; the time that it waited is in no rate."""
        self._begun += time.monotonic() - self._paused
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

    def line(self) -> str:
        """Return in words how far the job is."""
        seconds = time.monotonic() - self._begun
        left = (self._pairs - self._done) * seconds / max(self._done, 1)
        return (
            f"{self._label}: {self._done / max(self._pairs, 1):.0%} of {amount(self._pairs)} "
            f"pairs, {self.rates(seconds)}, {duration(round(left))} left"
        )

    def close(self) -> None:
        """Give the terminal back; it may be called again."""

    def __enter__(self) -> ShownProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def show_progress(*, quiet: bool) -> ShownProgress:
    """Return a progress that suits where it is shown: a bar, lines, or nothing."""
    if quiet:
        return ShownProgress()
    if in_notebook():
        return NotebookProgress()
    if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
        return BarProgress()
    return LogProgress()


@contextmanager
def opened_progress(given: Progress | bool | None) -> Iterator[Progress]:
    """Give the progress that an argument stands for: True is what `show_progress` returns.

    Raises OptionError if it is neither a progress, a bool nor None.
    """
    if given is True:
        with show_progress(quiet=False) as shown:
            yield shown
        return
    needed = "an object of a subclass of Progress is needed, True, or None"
    check_type("progress", given or Progress(), Progress, needed)
    yield given or Progress()


def in_notebook() -> bool:
    """Return whether a notebook shows what this process displays."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookProgress(ShownProgress):
    """A bar below the cell of a notebook that runs; of HTML, which needs no widgets.

    It is drawn at most every so many seconds, and at the end.
    """

    def __init__(self, every: float = DRAW_EVERY) -> None:
        super().__init__()
        self._every, self._due = every, -math.inf
        self._handle: Any = None

    def pause(self, reason: str) -> None:
        """Show at once what the pass waits for: nothing else happens meanwhile."""
        self._due = -math.inf
        super().pause(reason)

    def _show(self) -> None:
        now = time.monotonic()
        if now >= self._due or self._done >= self._pairs:
            self._due = now + self._every
            self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        text = self.line()
        bar = f'<progress max="{max(self._pairs, 1)}" value="{self._done}"></progress>'
        shown = {"text/plain": text, "text/html": f"<label>{bar} {escape(text)}</label>"}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


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
            sys.stderr.write(f"{self.line()}\n")
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
