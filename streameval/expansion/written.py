"""Features that are made block by block, and written to files that go with the last reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.npy import Header, NpyArray
from streameval.output import TemporaryFolder, refused
from streameval.planning.plan import Limits, Plan
from streameval.planning.problem import Data, Holders, PairSizes, Problem
from streameval.planning.stages import stage_plan
from streameval.run.executor import Pass, ThreadExecutor
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.session import Session
from streameval.source import Source
from streameval.typing import FloatArray, Span

LEAST_BYTES, MOST_BYTES = 2 << 20, 32 << 20  # of the rows that a block in the making is made of
KIND = np.dtype("<f4")


class MadeArray(NpyArray):
    """Rows of float32 in a new file in a folder, to be written.

    Parameters
    ----------
    folder : TemporaryFolder
        Kept as long as this is referred to.
    name : str
        Of the file.
    shape : (int, int)
    uri : str
        How messages name it.
    """

    def __init__(self, folder: TemporaryFolder, name: str, shape: Span, uri: str) -> None:
        path = folder.path / f"{name}.npy"
        with _writing(), path.open("wb") as file:
            given = {"descr": KIND.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, given)
            begin = file.tell()
            file.truncate(begin + shape[0] * shape[1] * KIND.itemsize)
        super().__init__(path, Header(shape, False, KIND), begin, uri)
        self._folder: TemporaryFolder | None = folder

    def __getstate__(self) -> dict[str, Any]:
        """Leave the folder to the process that made it."""
        return vars(self) | {"_folder": None}

    def write(self, start: int, rows: FloatArray) -> None:
        """Write rows, rounded to float32; those of other tasks may be written at the same time."""
        with np.errstate(over="ignore"):  # what is not finite is found where it is read
            block = rows.astype(KIND)
        with _writing(), self._path.open("r+b") as file:
            file.seek(self._offset + start * self.shape[1] * KIND.itemsize)
            file.write(block.data)


def _writing() -> AbstractContextManager[None]:
    return refused("features can't be kept on disk", "make room, or set TMPDIR to where there is")


def new_folder(session: Session, folder: Path | None) -> TemporaryFolder:
    """Return a folder for features: in one that is given, or where the session keeps such."""
    with _writing():
        if folder is None:
            return TemporaryFolder(session.scratch)
        folder.mkdir(parents=True, exist_ok=True)
        return TemporaryFolder(folder / "features")


def block_bytes(limits: Limits) -> int:
    """Return the bytes of the rows that a block in the making is made of, a thread."""
    return min(max(limits.memory // (16 * limits.threads), LEAST_BYTES), MOST_BYTES)


@dataclass(frozen=True)
class Block:
    """Some rows that are made together.

    Attributes
    ----------
    rows : (int, int)
    """

    rows: Span

    @property
    def pairs(self) -> int:
        """What is worked off: a pair a row."""
        return self.rows[1] - self.rows[0]

    def __str__(self) -> str:
        return f"rows {self.rows[0]}:{self.rows[1]}"


def write_rows(
    name: str,
    array: MadeArray,
    rows: Callable[[Span], FloatArray],
    spans: Sequence[Span],
    source: Source,
    session: Session,
) -> None:
    """Write the rows of an array, block by block, in a pass of this process.

    Parameters
    ----------
    name : str
        Of the pass.
    array : MadeArray
    rows : callable
        Returns some of its rows, [m, D] float64.
    spans : sequence of (int, int)
        The blocks.
    source : Source
        Whose inputs are read.
    session : Session
    """
    here = replace(session, executor=ThreadExecutor(session.threads), connection=None)
    plan = Plan("features", (), 0, (0, 0), session.threads, session.memory, {}, 0, 0)
    work = Pass(name, partial(_write, array, rows))
    for _ in here.run(work, Job(source, plan), [Block(span) for span in spans]):
        pass


def _write(
    array: MadeArray, rows: Callable[[Span], FloatArray], job: Job, block: Block, watch: Watch
) -> None:
    array.write(block.rows[0], rows(block.rows))
    watch.advance(block.pairs)


def writing_plan(shape: Span, held: Holders, taken: Data, rows: int, limits: Limits) -> Plan:
    """Return the plan of a pass that writes rows.

    Parameters
    ----------
    shape : (int, int)
        Q and G, for messages.
    held : dict of str to int
        Bytes that are held beside blocks, by what holds them.
    taken : Data
        Sizes of the array whose rows are taken.
    rows : int
        Rows that are taken in all.
    limits : Limits

    Raises
    ------
    BudgetError
        If it does not fit the limits.
    """
    row = taken.width * max(taken.stored_itemsize + taken.itemsize, 8)
    chunk = taken.chunks[0] * row + taken.scratch(taken.chunks[0], taken.width)
    blocks = limits.threads * (2 * max(block_bytes(limits), 2 * row) + chunk)
    problem = Problem(*shape, PairSizes(0, 0), taken)
    plan = stage_plan(
        problem, {**held, "rows in the making": blocks}, limits, of="new features of "
    )
    return replace(plan, bytes_read=rows * taken.width * taken.stored_itemsize)
