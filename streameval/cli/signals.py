"""Ctrl-C (SIGINT) and SIGTERM: the command ends at once, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While entered, a signal ends the process: 130 after SIGINT, 143 after SIGTERM.

    Until a result is written there is nothing on disk to tidy up, and a thread that compiles
    or decodes can't be told to stop: the process just ends. Once it is written it is
    finished: see `hold`.

    Parameters
    ----------
    release : callable
        Gives the terminal back before the process ends.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._held = False
        self._previous: dict[signal.Signals, Any] = {}

    def hold(self) -> None:
        """From here on let signals pass: what is left to do is short, and is to be whole."""
        self._held = True

    def __enter__(self) -> Interruption:
        # Python lets the main thread alone receive signals. A SIGINT that the shell set to be
        # ignored, as it does for jobs in the background, is received too: who sends it means it.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            return
        self._release()
        os.write(2, b"interrupted\n")
        os._exit(128 + number)
