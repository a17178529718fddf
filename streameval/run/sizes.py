"""What a plan is made from: the sizes of an evaluation, of this machine, and of texts."""

from __future__ import annotations

import os
import re

import numpy as np
import psutil

from streameval.errors import OptionError
from streameval.kernels.counting import count_tile
from streameval.metrics.options import is_count, is_number
from streameval.planning import SHOT_RANKS, ShotSizes
from streameval.protocols.pairs import Pairs
from streameval.single_shot.ahead import ROWS, most_entries
from streameval.single_shot.identities import GalleryIdentities
from streameval.single_shot.poisson_binomial import hopeless_from
from streameval.statistics import SHOT_FIELDS

LIBRARY_BYTES = 160 << 20  # kernels, compiled or loaded, codecs, allocators
USED_LIBRARY_BYTES = 48 << 20  # what these may still take where they have been used before


def cores() -> int:
    """Return how many cores the process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """Return the threads that are asked for; as many as the process may use where none are.

    Raises
    ------
    OptionError
        If it is no whole number of at least 1.
    """
    if threads is None:
        return cores()
    if not is_count(threads):
        raise OptionError(f"threads is {threads!r}; a whole number of at least 1 is needed")
    return int(threads)


def parse_bytes(size: str | float, what: str = "memory") -> int:
    """Return a number of bytes from a number or a text such as "2GB", "500 MiB".

    Parameters
    ----------
    size : str or float
    what : str
        What messages call it.

    Raises
    ------
    OptionError
        If it is no size, or not positive.
    """
    if is_number(size) and np.isfinite(float(size)):
        count = int(size)
    else:
        text = size if isinstance(size, str) else ""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?\s*", text)
        if match is None:
            raise OptionError(f"{what} is {size!r}; expected a size such as 2GB or 500MiB")
        number, prefix, binary = match.groups()
        base = 1024 if binary else 1000
        count = int(float(number) * base ** " KMGT".index(prefix.upper() or " "))
    if count <= 0:
        raise OptionError(f"{what} is {size!r}; a positive size is needed")
    return count


def shot_sizes(pairs: Pairs, identities: GalleryIdentities, needs: frozenset[str]) -> ShotSizes:
    """Return the sizes of what is drawn from under single gallery shot."""
    indptr = pairs.positives()[0]

    def most_positives(queries: int) -> int:
        starts = np.arange(0, pairs.queries, queries)
        ends = np.minimum(starts + queries, pairs.queries)
        return int((indptr[ends] - indptr[starts]).max())

    rows = ROWS * int(np.diff(indptr).max(initial=0))
    entries = most_entries(identities.items, rows, hopeless_from(SHOT_RANKS))
    return ShotSizes(identities.count, entries, most_positives, len(needs & SHOT_FIELDS))


def reserved_bytes() -> int:
    """Return what the process holds, and will for its libraries, beside the evaluation."""
    used_before = count_tile.signatures
    libraries = USED_LIBRARY_BYTES if used_before else LIBRARY_BYTES
    return int(psutil.Process().memory_info().rss) + libraries
