"""Waits of tests: for a condition, however long that takes on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 900.0  # seconds after which a wait is in vain; no test asks how fast a machine is


def wait_until(condition: Callable[[], object], message: object = None) -> None:
    """Return as soon as a condition holds; it may raise where it can't hold any more."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)
