"""Memory: what a process may take, what it holds, and what it takes for its libraries.

A budget is what an evaluation may take beyond what the process holds when it is called. By
default it is half of what is free, 8 GB at most; the processes of a machine share it.

It loads no NumPy: a worker of a cluster imports it to say what it holds before anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from streameval.errors import BudgetError

MOST, LEAST = 8_000_000_000, 200_000_000  # bytes: of the default budget, and of any
IMPORT_BYTES = 300 << 20  # of a process that has not imported what tasks need
LIBRARY_BYTES = 160 << 20  # kernels, compiled or loaded, codecs, allocators
USED_LIBRARY_BYTES = 48 << 20  # what these may still take where they have been used before
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


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
    """

    free: int
    held: int
    libraries: int


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
    return Memory(free_bytes(), int(psutil.Process().memory_info().rss), library_bytes())


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
            "start fewer workers, or say what may be taken: --memory SIZE"
        )
    return budget


def check_budget(budget: int, of: str = "") -> int:
    """Return a budget in bytes; raise BudgetError where it is below 200 MB."""
    if budget < LEAST:
        raise BudgetError(
            f"a memory budget of {budget / 1e6:.1f} MB{of} is too small: at least "
            f"{LEAST / 1e6:.0f} MB is needed beyond what the process holds; raise --memory"
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
    free = [int(psutil.virtual_memory().available), *_cgroup_bytes(own, root), *_address_space()]
    return max(min(free), 0)


def _address_space() -> Iterator[int]:
    """Yield the bytes of address space that are left to the process, where that is limited."""
    import resource  # not on every system

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        yield limit - int(psutil.Process().memory_info().vms)


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
