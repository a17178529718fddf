"""Compiled kernels that an older source left behind.

numba looks at the file of a kernel alone: a kernel that calls into a file that has changed would
go on as it was, and one whose types have moved to another file could not be loaded.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

FOLDERS = ("distances", "kernels", "neighbors", "single_shot")


@cache
def forget_stale_kernels() -> None:
    """Delete compiled kernels that are older than a source they may call; once a process.

    Called where work starts, before a kernel is first run.
    """
    root = Path(__file__).parent.parent
    forget_older_kernels([root / folder for folder in FOLDERS])


def forget_older_kernels(folders: list[Path]) -> list[Path]:
    """Delete compiled kernels in folders that are older than any source in them; return them.

    numba keeps kernels in the ``__pycache__`` of their sources, where it may write there.
    """
    forgotten = []
    with suppress(OSError, ValueError):  # no source; read-only; another process is at it
        sources = [source for folder in folders for source in folder.glob("*.py")]
        newest = max(source.stat().st_mtime_ns for source in sources)
        for folder in folders:
            for index in (folder / "__pycache__").glob("*.nbi"):
                if index.stat().st_mtime_ns < newest:
                    index.unlink()
                    forgotten.append(index)
    return forgotten
