"""Ctrl-C (SIGINT) and SIGTERM: the command ends at once, and leaves nothing half done."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While entered, a signal ends the process: 130 after SIGINT, 143 after SIGTERM.

    A thread that compiles, decodes or writes can't be told to stop: the process just ends.
    What it would leave behind is discarded first: see `discarding`.

    Parameters
    ----------
    release : callable
        Gives the terminal back before the process ends.

    Attributes
    ----------
    remains : callable
        Returns what there is to say about what is left behind; "" of nothing.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self.remains: Callable[[], str] = str
        self._discards: list[Callable[[], None]] = []
        self._held = False
        self._received: int | None = None
        self._previous: dict[signal.Signals, Any] = {}

    @contextmanager
    def discarding(self, discard: Callable[[], None]) -> Iterator[None]:
        """While entered, a signal calls this before the process ends."""
        self._discards.append(discard)
        try:
            yield
        finally:
            self._discards.remove(discard)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While entered, signals wait: for what is over at once, and is not to be cut in two."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if self._received is not None:
                self._end(self._received)

    def __enter__(self) -> Interruption:
        # Python lets the main thread alone receive signals. A SIGINT that the shell set to be
        # ignored, as it does for jobs in the background, is received too: who sends it means it.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._held:
            self._received = number
        else:
            self._end(number)

    def _end(self, number: int) -> NoReturn:
        with suppress(Exception):  # whatever fails, the process ends
            self._release()
        for discard in reversed(self._discards):
            with suppress(Exception):
                discard()
        word = "interrupted"
        with suppress(Exception):
            word += "".join(f"; {text}" for text in [self.remains()] if text)
        with suppress(OSError):
            os.write(2, f"{word}\n".encode())
        os._exit(128 + number)
