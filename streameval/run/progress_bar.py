"""Progress that is shown: a bar on a terminal or in a notebook, else a line now and then."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from streameval.display.table import amount, duration
from streameval.display.text import is_terminal
from streameval.planning.plan import format_bytes
from streameval.run.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

SHOWN_AFTER = 1.0  # seconds: what is done sooner needs no bar
LOG_EVERY = 30.0  # seconds


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
