"""Work that is spread over threads, beside the passes: what takes the lock of Python little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Self, TypeVar, overload

Item = TypeVar("Item")
Part = TypeVar("Part")
Value = TypeVar("Value")


class lazy(cached_property[Value]):  # noqa: N801 - as the one of functools
    """A cached property without a lock: threads that share an instance may compute it twice.

    Python 3.11 computes the cached properties of one name one after the other, of all instances.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Value: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | Value:
        """Return the value, computed when it is first asked for."""
        if instance is None:
            return self
        value: Value = self.func(instance)
        vars(instance)[str(self.attrname)] = value
        return value


def spread(work: Callable[[Item], Part], items: Sequence[Item], threads: int) -> list[Part]:
    """Return what is made of each item, in their order, by so many threads.

    Raises the error of the first item that failed.
    """
    threads = min(threads, len(items))
    if threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="streameval") as pool:
        return list(pool.map(work, items))
