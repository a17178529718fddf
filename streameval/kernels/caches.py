"""Compilation of kernels: once after an installation, and again where a source has changed.

numba looks at the file of a kernel alone: a kernel that calls into a file that has changed would
go on as it was, and one whose types have moved to another file could not be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from numba.core import event

CALLED = (
    *("arrays/*.py", "distances/*.py", "kernels/*.py", "reranking/*.py", "single_shot/*.py"),
    *("compilation.py", "metrics/ranks.py", "sorting.py", "stretches.py"),
)
"""Sources that kernels of other sources call into, or are kept by."""

KEPT = (
    *(".", "arrays", "distances", "expansion", "kernels", "metrics", "neighbors", "protocols"),
    *("reranking", "single_shot", "sources"),
)
"""Folders of sources with kernels."""


class Pausable(Protocol):
    """Receives when work waits for something, and when it goes on."""

    def pause(self, reason: str) -> None:
        """Work waits, for this."""

    def resume(self) -> None:
        """Work goes on."""


class _Compilation(event.Listener):
    """Pauses work from the beginning of the first compilation to the end of the last."""

    def __init__(self, work: Pausable) -> None:
        self._work, self._depth = work, 0

    def on_start(self, event: Any) -> None:
        """Begin a compilation, within another or not; numba runs one at a time."""
        self._depth += 1
        if self._depth == 1:
            self._work.pause("compiling")

    def on_end(self, event: Any) -> None:
        """End a compilation."""
        self._depth -= 1
        if self._depth == 0:
            self._work.resume()


@contextmanager
def pausing_for_compilation(work: Pausable) -> Iterator[None]:
    """Pause work while kernels are compiled; loading compiled ones is none of it."""
    with event.install_listener("numba:compile", _Compilation(work)):
        yield


@cache
def forget_stale_kernels() -> None:
    """Delete compiled kernels that are older than a source they may call; once a process.

    Called where work starts, before a kernel is first run.
    """
    root = Path(__file__).parent.parent
    sources = [path for pattern in CALLED for path in root.glob(pattern)]
    forget_older_kernels(sources, [root / folder for folder in KEPT])


def forget_older_kernels(sources: list[Path], folders: list[Path]) -> list[Path]:
    """Delete compiled kernels in folders that are older than any of some sources; return them.

    numba keeps kernels in the ``__pycache__`` of their sources, where it may write there.
    """
    forgotten = []
    with suppress(OSError, ValueError):  # no source; read-only; another process is at it
        newest = max(source.stat().st_mtime_ns for source in sources)
        for folder in folders:
            for index in (folder / "__pycache__").glob("*.nbi"):
                if index.stat().st_mtime_ns < newest:
                    index.unlink()
                    forgotten.append(index)
    return forgotten
