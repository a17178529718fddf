"""Memory: what a process may take, what it holds, and what it takes for its libraries.

A budget is what an evaluation may take beyond what the process holds when it is called. By
default it is half of what is free, 8 GB at most; the processes of a machine share it.

It loads no NumPy: a worker of a cluster imports it to say what it holds before anything else.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from streameval.errors import BudgetError, warn

MOST, LEAST = 8_000_000_000, 200_000_000  # bytes: of the default budget, and of any
LEAST_SPACE = 1_000_000 << 10  # bytes of address space: of libraries and the least budget
PROCESS_SPACE = 50_000_000  # bytes of address space: of the threads that watch a process
IMPORT_BYTES = 300 << 20  # of a process that has not imported what tasks need
LIBRARY_BYTES = 160 << 20  # kernels, compiled or loaded, codecs, allocators
USED_LIBRARY_BYTES = 48 << 20  # what these may still take where they have been used before
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def give_back() -> None:
    """Give the system the memory that has been freed, where the C library keeps it for later.

    Of arrays of some megabytes that threads take and free, glibc may keep as much again as is held.
    """
    import ctypes

    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class Memory(NamedTuple):
    """Memory of a process, in bytes.

    Attributes
    ----------
    free : int
        Of its machine, or of its control group where that has less.
    held : int
        Resident memory of the process.
    libraries : int
        What libraries take yet.
    most : float
        Half of the address space that is left, where that is limited.
    """

    free: int
    held: int
    libraries: int
    most: float = math.inf


class _Version(NamedTuple):
    """Where a version of control groups keeps what."""

    folder: str
    limits: tuple[str, ...]
    taken: str
    inactive: str


_VERSIONS = {
    "": _Version("", ("memory.max", "memory.high"), "memory.current", "inactive_file"),
    "memory": _Version(
        "memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"
    ),
}
"""Versions 2 and 1, by the controllers that a line of ``/proc/self/cgroup`` names."""


def process_memory() -> Memory:
    """Return the memory of this process."""
    held = int(psutil.Process().memory_info().rss)
    return Memory(free_bytes(), held, library_bytes(), most_bytes())


def default_budget(free: int, processes: int = 1) -> int:
    """Return the budget of each of some processes that share what is free.

    Raises
    ------
    BudgetError
        If that is less than 200 MB.
    """
    budget = min(MOST, free // (2 * processes))
    if budget < LEAST:
        shared = "" if processes == 1 else f", shared by {processes} processes"
        raise BudgetError(
            f"{free / 1e6:,.0f} MB of memory is free, and the budget is half of it{shared}: "
            f"{budget / 1e6:,.0f} MB, and at least {LEAST / 1e6:.0f} MB is needed; free memory, "
            "raise its limit (ulimit -v, control group), start fewer workers, or say what may be "
            "taken: --memory SIZE"
        )
    return budget


def check_budget(budget: int, of: str = "", remedy: str = "raise --memory") -> int:
    """Return a budget in bytes; raise BudgetError where it is below 200 MB."""
    if budget < LEAST:
        raise BudgetError(
            f"a memory budget of {budget / 1e6:.1f} MB{of} is too small: at least "
            f"{LEAST / 1e6:.0f} MB is needed beyond what the process holds; {remedy}"
        )
    return budget


def library_bytes() -> int:
    """Return what the libraries of this process take yet, beside the evaluation."""
    counting = sys.modules.get("streameval.kernels.counting")
    if counting is None:
        return IMPORT_BYTES
    return USED_LIBRARY_BYTES if counting.count_tile.signatures else LIBRARY_BYTES


def free_bytes(own: Path = OWN_CGROUPS, root: Path = CGROUPS) -> int:
    """Return the bytes that are free: of the machine, and of each limit of the process.

    Its limits are those of its control groups, and of its address space (``ulimit -v``).

    Parameters
    ----------
    own : Path
        The file that names the groups of the process.
    root : Path
        The folder of all groups: of version 2, or with a folder ``memory`` of version 1.
    """
    free = [int(psutil.virtual_memory().available), *_cgroup_bytes(own, root), _space_left()]
    return int(max(min(free), 0))


def address_space() -> float:
    """Return the bytes that the address space of the process may have, as ``ulimit -v`` sets."""
    with suppress(ImportError):
        import resource  # not on every system

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        return math.inf if limit == resource.RLIM_INFINITY else limit
    return math.inf


def check_address_space() -> None:
    """Raise BudgetError where the libraries do not fit, before one ends the process as it loads."""
    if (limit := address_space()) < LEAST_SPACE:
        raise BudgetError(
            f"the address space is limited to {limit / 1e9:.2f} GB, and at least "
            f"{LEAST_SPACE / 1e9:.2f} GB is needed: raise the limit (ulimit -v {LEAST_SPACE >> 10}"
            ", in KiB), or limit the memory by --memory or a control group instead"
        )


HALF = ", half of the address space that is left"
RAISE = "raise its limit (ulimit -v)"


def most_bytes(processes: int = 0) -> float:
    """Return half of the address space that is left: the other half is for libraries, threads.

    Parameters
    ----------
    processes : int
        That are to be started.
    """
    return (_space_left() - PROCESS_SPACE * processes) / 2


def within_address_space(budget: int, processes: int = 0) -> int:
    """Return a budget, lowered to half of the address space that is left; warn where it is."""
    most = most_bytes(processes)
    if budget <= most:
        return budget
    lowered = check_budget(int(max(most, 0)), HALF, RAISE)
    warn(
        f"a memory budget of {budget / 1e6:,.0f} MB is more than half of the address space that is "
        f"left (ulimit -v): {lowered / 1e6:,.0f} MB is planned with"
    )
    return lowered


def _space_left() -> float:
    return address_space() - int(psutil.Process().memory_info().vms)


def _cgroup_bytes(own: Path, root: Path) -> Iterator[int]:
    """Yield the bytes left to each control group, from that of the process up to the root."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:  # not on every system
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        version = _VERSIONS.get("memory" if "memory" in controllers.split(",") else controllers)
        if version is None:
            continue
        top = root / version.folder
        group = top / path.strip("/")
        for folder in (group, *group.parents):
            taken = _number(folder / version.taken)
            if taken is not None:
                taken -= _inactive(folder / "memory.stat", version.inactive)
                most = (_number(folder / name) for name in version.limits)
                yield from (limit - taken for limit in most if limit is not None)
            if folder == top:
                break


def _number(file: Path) -> int | None:
    """Return the number that a file holds; None where there is no file, or it says ``max``."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _inactive(file: Path, name: str) -> int:
    """Return the bytes of files that a group has read, and that are given up when needed."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    fields = dict(line.split(" ", 1) for line in lines if " " in line)
    return int(fields.get(name, 0))
