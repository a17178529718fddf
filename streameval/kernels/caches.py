"""Compiled kernels that an older source left behind.

numba looks at the file of a kernel alone: a kernel that calls into a file that has changed would
go on as it was, and one whose types have moved to another file could not be loaded.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def forget_older_kernels(package: Path) -> list[Path]:
    """Delete compiled kernels beside the sources that are older than any of these.

    Parameters
    ----------
    package : Path
        A folder of sources; numba keeps kernels in its ``__pycache__``, where it may write there.

    Returns
    -------
    list of Path
        What was deleted.
    """
    forgotten = []
    with suppress(OSError, ValueError):  # no source; read-only; another process is at it
        newest = max(source.stat().st_mtime_ns for source in package.glob("*.py"))
        for index in (package / "__pycache__").glob("*.nbi"):
            if index.stat().st_mtime_ns < newest:
                index.unlink()
                forgotten.append(index)
    return forgotten
