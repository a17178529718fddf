"""Work that is spread over threads, beside the passes: what takes the lock of Python little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Part = TypeVar("Part")


def spread(work: Callable[[Item], Part], items: Sequence[Item], threads: int) -> list[Part]:
    """Return what is made of each item, in their order, by so many threads.

    Raises the error of the first item that failed.
    """
    threads = min(threads, len(items))
    if threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="streameval") as pool:
        return list(pool.map(work, items))
