"""Progress: small events of a running evaluation, for whoever shows them."""

from __future__ import annotations

import threading

from streameval.errors import check_type


class Progress:
    """Receives the events of an evaluation; does nothing. Subclass it to show them.

    The methods are called from worker threads, one at a time.
    """

    def begin(self, pairs: int, size: int) -> None:
        """Begin a job that works off so many pairs in all of its passes, as far as is known.

        Parameters
        ----------
        pairs : int
        size : int
            Bytes that it reads.
        """

    def start(self, label: str, pairs: int) -> None:
        """Begin a pass over so many (query, gallery) pairs."""

    def advance(self, pairs: int) -> None:
        """Note that so many more pairs are done; fewer, where work was lost with a worker."""

    def finish(self) -> None:
        """End the pass."""


def check_progress(progress: object) -> None:
    """Refuse what receives no events; None, and False, are nothing to receive them."""
    needed = "an object of a subclass of Progress is needed, or None"
    check_type("progress", progress or None, Progress | None, needed)


class Cancelled(Exception):  # noqa: N818 - an event, not an error
    """Ends a task whose result nobody waits for."""


class Watch:
    """What a running task reports to, and learns from that it is no longer wanted."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._cancelled = threading.Event()

    def begin(self, pairs: int, size: int) -> None:
        """Begin a job of so many pairs, that reads so many bytes."""
        self._progress.begin(pairs, size)

    def start(self, label: str, pairs: int) -> None:
        """Begin a pass over so many pairs."""
        self._progress.start(label, pairs)

    def finish(self) -> None:
        """End the pass."""
        self._progress.finish()

    def cancel(self) -> None:
        """Let every running task end at its next report."""
        self._cancelled.set()

    def advance(self, pairs: int) -> None:
        """Report so many pairs done."""
        if self._cancelled.is_set():
            raise Cancelled
        if pairs:
            with self._lock:
                self._progress.advance(pairs)
