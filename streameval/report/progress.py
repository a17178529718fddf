"""Progress: a bar on a terminal, a line now and then elsewhere; on stderr."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from streameval.execution.progress import Progress
from streameval.report.style import amount, duration, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

SHOWN_AFTER = 1.0  # seconds: what is done sooner needs no bar
LOG_EVERY = 30.0  # seconds


class ShownProgress(Progress):
    """Progress that holds something to be given back: a context manager."""

    def close(self) -> None:
        """Give the terminal back; more than once does no harm."""

    def __enter__(self) -> ShownProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def show_progress(*, quiet: bool) -> ShownProgress:
    """Return what shows progress on this stderr: a bar, lines, or nothing."""
    if quiet:
        return ShownProgress()
    if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
        return BarProgress()
    return LogProgress()


class LogProgress(ShownProgress):
    """A line on stderr every half minute.

    Parameters
    ----------
    every : float
        Seconds between lines.
    """

    def __init__(self, every: float = LOG_EVERY) -> None:
        self._every = every
        self._label = ""
        self._pairs = self._done = 0
        self._begin = self._logged = time.monotonic()

    def start(self, label: str, pairs: int) -> None:
        """Begin a pass."""
        self._label, self._pairs, self._done = label, pairs, 0
        self._begin = time.monotonic()

    def advance(self, pairs: int) -> None:
        """Note pairs done; write a line where one is due."""
        self._done += pairs
        now = time.monotonic()
        if now - self._logged >= self._every:
            self._logged = now
            sys.stderr.write(self.line(now - self._begin) + "\n")
            sys.stderr.flush()

    def line(self, seconds: float) -> str:
        """Return what is to be said after so many seconds of the pass."""
        rate = self._done / max(seconds, 1e-3)
        left = (self._pairs - self._done) / max(rate, 1e-3)
        return (
            f"{self._label}: {self._done / max(self._pairs, 1):.0%} of {amount(self._pairs)} "
            f"pairs, {amount(rate)} pairs/s, {duration(round(left))} left"
        )


class BarProgress(ShownProgress):
    """A bar on a terminal, for what takes longer than a second; gone when it is done.

    Parameters
    ----------
    after : float
        Seconds from the first pass until a bar is shown.
    """

    def __init__(self, after: float = SHOWN_AFTER) -> None:
        self._after = after
        self._begin: float | None = None
        self._timer: threading.Timer | None = None
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def start(self, label: str, pairs: int) -> None:
        """Begin a pass; its bar appears when it is due, also while nothing is done yet."""
        self.close()
        now = time.monotonic()
        self._begin = now if self._begin is None else self._begin
        self._bar = make_bar()
        self._task = self._bar.add_task(label, total=pairs, of=amount(pairs))
        self._timer = threading.Timer(max(self._begin + self._after - now, 0), self._bar.start)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, pairs: int) -> None:
        """Note pairs done."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, pairs)

    def finish(self) -> None:
        """End the pass."""
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._timer is not None:
            self._timer.cancel()
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._timer = self._task = None


def make_bar() -> RichProgress:
    """Return a bar of one line, at most 80 columns wide."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress
    from rich.table import Column
    from rich.text import Text

    class Rate(ProgressColumn):
        """Pairs in all, and pairs per second."""

        def render(self, task: Task) -> Text:
            pairs = f"{task.fields['of']} pairs"
            return Text(f"{pairs} · {amount(task.speed)} pairs/s" if task.speed else pairs)

    return RichProgress(
        TextColumn("{task.description:<9}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12),
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        Rate(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        console=Console(stderr=True),
        transient=True,
    )
