"""The guard of an evaluation's inputs: all that is counted is of one version of them.

Before each pass over the data and after the last, files must be what they were before they were
opened. Whatever two tasks or passes read of the same rows must be alike, by digests. What was read
of an array in memory is read again when a pass ends; and of files that have changed since an
earlier run, when that is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from streameval.arrays import digest
from streameval.arrays.array import Array
from streameval.arrays.identity import Files, check_same, identify, state
from streameval.arrays.witness import (
    Block,
    Readings,
    check_rows,
    read_otherwise,
    witnessed,
)
from streameval.errors import ChangedError, StreamevalError
from streameval.planning.plan import pieces
from streameval.run.executor import Item, Part, Pass
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.record import Stage
from streameval.source import Input, Source
from streameval.threads import spread
from streameval.typing import JsonObject, Span

ROWS = 1024  # by themselves, read again at a time

Result = TypeVar("Result")


class Guard:
    """What is known of the inputs of a source, and has been read of them.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self._inputs, self._arrays = source.inputs(), _arrays_of(source)
        paths = (item.data for item in self._inputs if isinstance(item.data, Path))
        self._paths = [identify(path) for path in paths]
        self.readings = Readings()

    def files(self) -> tuple[Files, ...]:
        """Return what the files of all inputs were known by before they were opened."""
        own = (one.files for array in self._arrays.values() for one in array.opened())
        return (*self._paths, *(files for files in own if files is not None))

    def check(self, failed: StreamevalError | None = None) -> None:
        """Check the files of all inputs.

        Parameters
        ----------
        failed : StreamevalError, optional
            What a pass has ended with: data that change show in many ways.

        Raises
        ------
        ChangedError
            If one is not what it was before it was opened.
        """
        if not isinstance(failed, ChangedError):
            check_same(self.files())

    def resume(self, stage: Stage) -> None:
        """Take over what the finished tasks of a stage have read, of the files as they are.

        Where files have changed since, what was read is read again.

        Raises
        ------
        ChangedError
            If it is not what it was.
        """
        self.readings.add(stage.readings)
        files = " ".join(map(state, self._arrays.values()))
        if stage.files not in ("", files):
            for name, array in self._arrays.items():
                self._read_again(name, array)
        stage.files = files

    def check_read_again(self, threads: int) -> None:
        """Check arrays that only reading tells of, those in memory, by so many threads."""
        for name, array in self._arrays.items():
            if array.is_read_again:
                self._read_again(name, array, threads)

    def _read_again(self, name: str, array: Array, threads: int = 1) -> None:
        """Read all again that was read of an input; raise ChangedError if it is not the same."""
        blocks = [block for block in self.readings.blocks.items() if block[0][0] == name]
        nothing = np.empty(0, np.int64), np.empty(0, np.uint64)
        own = self.readings.rows.get(name, nothing)

        def check_block(block: tuple[Block, int]) -> None:
            (_, rows, columns), known = block
            if digest.of_block(array, rows, columns) != known:
                raise read_otherwise(name, f"rows {rows[0]}:{rows[1]}")

        def check_some(span: Span) -> None:
            numbers = own[0][slice(*span)]
            check_rows(name, own, numbers, digest.of_rows(array.take(numbers)))

        spread(check_block, blocks, threads)
        spread(check_some, pieces((0, len(own[0])), ROWS), threads)

    def digests(self) -> JsonObject:
        """Return what was read of each input, of those that were read whole, as JSON values."""
        found: JsonObject = {}
        for item in self._inputs:
            if isinstance(item.data, Array):
                whole = self.readings.whole(_name(item), item.data.shape)
                if whole is not None:
                    found[item.key] = {
                        "uri": item.uri,
                        "shape": list(item.data.shape),
                        "dtype": item.data.dtype.str,
                        "digest": f"{whole:016x}",
                    }
        return found

    def witnessed(self, work: Pass[Item, Part]) -> Pass[Item, Seen[Part]]:
        """Return a pass whose parts come with what was read for them."""
        merge = None if work.merge is None else _Merge(work.merge)
        return Pass(work.name, _Compute(work.compute), merge, work.group)


@dataclass(frozen=True, eq=False)
class Seen(Generic[Result]):
    """A part of a result, and what was read for it."""

    part: Result
    readings: Readings


@dataclass(frozen=True)
class _Compute(Generic[Item, Part]):
    """A task that notes what it reads."""

    compute: Callable[[Job, Item, Watch], Part]

    def __call__(self, job: Job, item: Item, watch: Watch) -> Seen[Part]:
        with witnessed(_arrays_of(job.source), job.known) as readings:
            part = self.compute(job, item, watch)
        return Seen(part, readings.joined())


@dataclass(frozen=True)
class _Merge(Generic[Part]):
    """The merging of parts that come with what was read for them."""

    merge: Callable[[Part, Part], Part]

    def __call__(self, one: Seen[Part], other: Seen[Part]) -> Seen[Part]:
        readings = replace(one.readings, blocks=dict(one.readings.blocks))
        readings.add(other.readings)
        return Seen(self.merge(one.part, other.part), readings)


def _arrays_of(source: Source) -> Mapping[str, Array]:
    """Return the arrays that a source reads, by what messages call them."""
    return {_name(item): item.data for item in source.inputs() if isinstance(item.data, Array)}


def _name(item: Input) -> str:
    return f"{item.name} {item.uri}"
