"""Progress: small events of a running evaluation, for whoever shows them."""

from __future__ import annotations

import threading

from streameval.interruption import is_interrupted


class Progress:
    """Receiver of progress events. Subclass it to show them; the base class does nothing.

    The methods are called from worker threads, one at a time.
    """

    def begin(self, pairs: int, size: int) -> None:
        """Begin a job with this number of pairs in all passes, as far as is known.

        Parameters
        ----------
        pairs : int
        size : int
            Bytes to read.
        """

    def start(self, label: str, pairs: int) -> None:
        """Begin a pass over this number of (query, gallery) pairs."""

    def advance(self, pairs: int) -> None:
        """Add finished pairs; the number is negative if work is lost with a worker."""

    def finish(self) -> None:
        """End the pass."""

    def pause(self, reason: str) -> None:
        """Wait for something that takes seconds: ``compiling``, once after an installation."""

    def resume(self) -> None:
        """Go on with the pass."""


class Cancelled(Exception):  # noqa: N818 - an event, not an error
    """Ends a task whose result nobody waits for."""


class Watch:
    """Where a running task reports its progress, and learns that its result is not wanted."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._lock = threading.Lock()
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Let every running task end at its next report."""
        self._cancelled.set()

    def pause(self, reason: str) -> None:
        """Report that the pass waits."""
        with self._lock:
            self.progress.pause(reason)

    def resume(self) -> None:
        """Report that the pass goes on."""
        with self._lock:
            self.progress.resume()

    def advance(self, pairs: int) -> None:
        """Report so many pairs done."""
        if self._cancelled.is_set() or is_interrupted():
            raise Cancelled
        if pairs:
            with self._lock:
                self.progress.advance(pairs)
