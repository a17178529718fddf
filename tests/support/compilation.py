"""Kernels are compiled by one of the processes that run tests; the others load what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from streameval.compilation import _Cache

PATIENCE = 60.0  # seconds; after that a process compiles for itself


def compile_once(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Have processes that share a folder of locks compile a kernel one after the other."""
    load, save = _Cache.load_overload, _Cache.save_overload
    locks: dict[str, FileLock] = {}

    def load_or_lock(self: Any, *given: Any) -> Any:
        kept = load(self, *given)
        if kept is not None:
            return kept
        name = self._impl.filename_base
        lock = locks.setdefault(name, FileLock(folder / f"{name}.lock", thread_local=False))
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            return None
        kept = load(self, *given)
        if kept is not None:
            lock.release()
        return kept

    def save_and_unlock(self: Any, *given: Any) -> None:
        save(self, *given)
        lock = locks.get(self._impl.filename_base)
        if lock is not None:
            lock.release()

    patch.setattr(_Cache, "load_overload", load_or_lock)
    patch.setattr(_Cache, "save_overload", save_and_unlock)
