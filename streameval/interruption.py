"""Signals that end the process, and what it must not leave behind.

Of the command line: a signal ends the process, whatever it is doing. No exception is raised, as
code in between may swallow it. In Python: a Ctrl-C that is swallowed is raised again.

What is noted here is of the process, as its signals are.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 2.0  # seconds that a call may take where the process ends

Ending = Callable[[], str | None]

_endings: list[Ending] = []
_whole = threading.Lock()
_holders: set[int] = set()  # the thread that holds it
_received = threading.Event()
_noticed = threading.Event()


@contextmanager
def at_end(ending: Ending) -> Iterator[None]:
    """While entered, a signal of the command line calls this before the process ends.

    Parameters
    ----------
    ending : callable
        Removes what is unfinished, or returns what to say about what is left behind.
    """
    _endings.append(ending)
    try:
        yield
    finally:
        _endings.remove(ending)


@contextmanager
def held() -> Iterator[None]:
    """While entered, signals wait: for what is over at once, and is not to be cut in two."""
    with _whole:
        _holders.add(threading.get_ident())
        try:
            yield
        finally:
            _holders.clear()
    if _received.is_set():
        _stand_still()


class Interruption:
    """While entered, a signal ends the process: 130 after SIGINT, 143 after SIGTERM.

    A thread does it, as the main thread may be in a library that returns late. The processes
    that it has started end, too.
    """

    def __init__(self) -> None:
        self._previous: dict[signal.Signals, Any] = {}
        self._wakeup, self._written = -1, -1

    def __enter__(self) -> Self:
        # Python lets the main thread alone receive signals. A SIGINT that the shell set to be
        # ignored, as it does for jobs in the background, is received too: who sends it means it.
        if threading.current_thread() is threading.main_thread():
            read, self._written = os.pipe()
            os.set_blocking(self._written, False)
            threading.Thread(target=_listen, args=(read,), daemon=True).start()
            self._wakeup = signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
            self._previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous:
            for number, handler in self._previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._written)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Have the thread end the process, also where a library took the descriptor for itself."""
        _received.set()
        with suppress(OSError):
            os.write(self._written, bytes([number]))
        if threading.get_ident() not in _holders:
            _stand_still()


def _stand_still() -> NoReturn:
    """Do nothing more: what is removed now is not to be written, nor missed."""
    while True:
        time.sleep(60)


def _listen(read: int) -> None:
    """Wait for a signal, or for the end of the interruption."""
    while numbers := os.read(read, 1):
        if numbers[0] in SIGNALS:
            with _whole:
                _end(numbers[0])
    os.close(read)


def _end(number: int) -> NoReturn:
    """End the process, whatever fails."""
    children = _children()
    for child in children:  # not to write what is removed, nor to be started again
        with suppress(Exception):
            child.suspend()
    said: list[str] = []
    for ending in reversed(_endings):
        _within_grace(ending, said)
    with suppress(OSError):
        os.write(2, f"{'; '.join(['interrupted', *filter(None, said)])}\n".encode())
    for child in [*children, *_children()]:  # threads have gone on, and may have started some
        with suppress(Exception):
            child.kill()
    _within_grace(_unlink_semaphores, said)
    os._exit(128 + number)


def _within_grace(ending: Ending, said: list[str]) -> None:
    """Call in a thread that is waited for so long: it may need a lock that nobody returns."""

    def quietly() -> None:
        with suppress(Exception):
            said.append(ending() or "")

    with suppress(RuntimeError):  # the interpreter ends and starts no thread
        thread = threading.Thread(target=quietly, daemon=True)
        thread.start()
        thread.join(GRACE)


def _children() -> list[Any]:
    """Return the processes that this one has started; what starts them has loaded psutil.

    Without multiprocessing's tracker of semaphores: it ends once all others have, and removes
    what they have left.
    """
    psutil = sys.modules.get("psutil")
    tracking = sys.modules.get("multiprocessing.resource_tracker")
    with suppress(Exception):
        tracker = None if tracking is None else tracking._resource_tracker._pid
        children = [] if psutil is None else psutil.Process().children(recursive=True)
        return [child for child in children if child.pid != tracker]
    return []


def _unlink_semaphores() -> None:
    """Remove the semaphores of multiprocessing, of which their tracker would warn."""
    util, sync = (sys.modules.get(f"multiprocessing.{name}") for name in ("util", "synchronize"))
    if util is not None and sync is not None:
        for finalizer in list(util._finalizer_registry.values()):
            if finalizer._callback is sync.SemLock._cleanup:
                finalizer()


@contextmanager
def noticing() -> Iterator[None]:
    """While entered, Ctrl-C ends the work also where something swallows its KeyboardInterrupt.

    Nothing changes where it is handled otherwise than Python does, or outside the main thread.
    """
    usual = signal.default_int_handler
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def receive(number: int, frame: FrameType | None) -> NoReturn:
        _noticed.set()
        usual(number, frame)

    signal.signal(signal.SIGINT, receive)
    try:
        yield
        heed()
    except Exception:
        heed()
        raise
    finally:
        signal.signal(signal.SIGINT, usual)
        _noticed.clear()


def is_interrupted() -> bool:
    """Return whether Ctrl-C was noticed."""
    return _noticed.is_set()


def heed() -> None:
    """Raise KeyboardInterrupt where Ctrl-C was noticed; called at each task and wait."""
    if _noticed.is_set():
        raise KeyboardInterrupt
