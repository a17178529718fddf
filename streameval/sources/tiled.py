"""TiledSource: a source whose distances come in tiles, counted in passes over all pairs.

Its inputs are matrices of numbers: opened, checked, and converted to floats that hold them exactly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.arrays.uri import open_array
from streameval.errors import BadRowError, InputError, warn
from streameval.kernels.limits import Wanted
from streameval.kernels.tiles import Tile
from streameval.planning.plan import Limits, Plan, Task
from streameval.planning.planner import make_plan
from streameval.planning.problem import Data, Problem
from streameval.planning.range import Range
from streameval.run.job import Job, PairPart
from streameval.run.passes import count_all, find_extremes, find_positives, refine, wider
from streameval.run.progress import Watch
from streameval.run.rounds import count_rounds, rounds_of
from streameval.run.share import Several, Thresholds
from streameval.source import Counted, Source
from streameval.typing import AnyArray, FloatArray, FloatingArray, IntArray

if TYPE_CHECKING:
    from streameval.run.preparation import Planned, Prepared
    from streameval.run.session import Session

ArrayLike = str | Path | npt.ArrayLike | Array
Chosen = tuple[IntArray, PairPart]
MOST_ITEMS = 1 << 16  # of a gallery block, so that its distances stay small
_EXACT_INTEGER = 2**53


def open_matrix(
    array: ArrayLike,
    what: str,
    meaning: str,
    name: str | None = None,
    *,
    fill_missing: bool = False,
) -> Array:
    """Return an array that is 2-d and numeric; see `open_array`."""
    opened = open_array(array, name, fill_missing=fill_missing)
    if len(opened.shape) != 2:
        raise InputError(
            f"{what} {opened.uri} have shape {opened.shape}; a 2-d array, {meaning}, is needed"
        )
    if opened.dtype.kind not in "fiu":
        raise InputError(
            f"{what} {opened.uri} are of dtype {opened.dtype}; floats or integers are needed"
        )
    return opened


def working_dtype(array: Array) -> type[np.float32] | type[np.float64]:
    """Return the smaller of float32 and float64 that holds every value of the dtype exactly."""
    return np.float32 if np.can_cast(array.dtype, np.float32, "safe") else np.float64


def convert(
    given: AnyArray,
    dtype: npt.DTypeLike,
    name: str,
    index: IntArray,
    first_column: int = 0,
    out: FloatingArray | None = None,
) -> FloatingArray:
    """Return a block in a dtype that holds every value of it exactly.

    Parameters
    ----------
    given : [m, n] array
    dtype : numpy dtype
    name : str
        What the block is of, for errors.
    index : [m] int64
        Number of each row.
    first_column : int
    out : [m, n] array, optional
        Of that dtype, to write the block to.
    """
    if given.dtype.kind in "iu" and given.dtype.itemsize == 8:
        beyond = np.argwhere((given > _EXACT_INTEGER) | (given < -_EXACT_INTEGER))
        if beyond.size:
            row, column = beyond[0]
            raise BadRowError(
                f"{name} holds {given[row, column]} in row {index[row]}, "
                f"column {first_column + column}: float64 holds integers up to 2^53; scale them",
                index[row],
            )
    if out is None:
        return np.ascontiguousarray(given, dtype=dtype)
    out[...] = given
    return out


def data_of(stored: Array, dtype: np.dtype[Any]) -> Data:
    """Return the sizes of an array that is worked on in a dtype."""
    return Data(
        width=0,
        itemsize=dtype.itemsize,
        stored_itemsize=stored.dtype.itemsize,
        scratch=stored.read_scratch_bytes,
        chunks=(stored.chunks[0], stored.chunks[1]),
        converted=stored.dtype != dtype or stored.in_memory,
        edges=stored.edges,
        grain=None if stored.grain is None else (stored.grain[0], stored.grain[1]),
        in_files=stored.in_files,
    )


class TiledSource(Source):
    """A source whose distances come in tiles."""

    @abstractmethod
    def tiles(
        self,
        job: Job,
        task: Task,
        watch: Watch,
        *,
        check: bool = True,
        wanted: Wanted | None = None,
    ) -> Iterator[Tile]:
        """Yield the tiles of a task; the values are overwritten by the next tile.

        Parameters
        ----------
        job, task, watch
        check : bool
            Whether to check that distances are finite; else a tile can `locate` the first that
            is not.
        wanted : callable, optional
            Returns the reach of the task's queries and of some items; pairs beyond both may be
            left out. It narrows as tiles are counted.
        """

    @abstractmethod
    def pair_parts(self, plan: Plan, indptr: IntArray, item: IntArray) -> list[Chosen]:
        """Cut listed pairs into parts that are computed together.

        Parameters
        ----------
        plan : Plan
        indptr, item : [q + 1], [p] int64
            Where the pairs of each of the plan's queries begin, and their items.

        Returns
        -------
        list of ([r] integers, PairPart)
            Which of the pairs, and the part.
        """

    @abstractmethod
    def pair_distances(self, job: Job, part: PairPart) -> FloatArray:
        """Return the canonical distances of a part of the listed pairs, [p] float64."""

    @abstractmethod
    def distance_blocks(
        self, queries: Sequence[int], block_bytes: int
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield canonical distances of a few queries, gallery block by gallery block.

        Parameters
        ----------
        queries : sequence of int
        block_bytes : int
            Size of what is read at a time.

        Yields
        ------
        (int, [q, n] float64)
            The first item of the block, and the distances to its items.
        """

    def plan(self, problem: Problem, limits: Limits) -> Plan:
        """Return how the work is cut.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """
        return make_plan(problem, limits)

    def passes(self, planned: Planned) -> list[str]:
        """Return the names of the passes over the data, in order."""
        wanted = {
            "range": planned.range is None,
            "positives": planned.plan.layout != "strips",
            "counting": True,
            "refining": bool(planned.request.refine),
        }
        return [name for name, needed in wanted.items() if needed]

    def begin(self, prepared: Prepared, session: Session) -> None:
        """Tell the progress how many pairs there are in all passes, and what will be read."""
        problem, plan = prepared.problem, prepared.plan
        listed = {"features": problem.pairs.positives, "strips": 0, "rectangles": plan.pairs}
        total = plan.pairs * problem.passes + listed[plan.layout]
        session.progress.begin(total, plan.bytes_read)

    def count(self, prepared: Sequence[Prepared], session: Session) -> list[Counted]:
        """Return the statistics of all pairs: passes over positives, then over everything.

        Raises
        ------
        InputError
            If the inputs hold what can't be evaluated.
        NotUnitError
            If the range relies on vectors of length 1, and there are others.
        """
        problem = prepared[0].problem
        self.begin(prepared[0], session)
        used = _ranges(prepared, session)
        thresholds = [
            Thresholds(range_, *range_.limits(problem.thresholds, problem.edges)) for range_ in used
        ]

        def count(job: Job) -> Several:
            return count_all(find_positives(job, session), session)

        rounds = rounds_of(prepared, thresholds)
        counted = count_rounds(prepared, rounds, count, session)
        for number, one in enumerate(prepared):
            if one.request.refine:
                again = partial(_jobs_of, [one])
                counted[number] = refine(
                    again, used[number], counted[number], one.request.refine, session
                )
        return [Counted(own, range_) for own, range_ in zip(counted, used, strict=True)]


def _jobs_of(prepared: Sequence[Prepared]) -> Iterator[Job]:
    """Yield the job of each round."""
    return (job for job, _ in rounds_of(prepared))


def _ranges(prepared: Sequence[Prepared], session: Session) -> list[Range]:
    """Return the range of each evaluation: found in a pass over the data, where it is not given."""
    unknown = [one for one in prepared if one.range is None]
    found: dict[int, Range] = {}
    if unknown:
        ends = [find_extremes(_with_every_pair(job, unknown), session) for job in _jobs_of(unknown)]
        own = reduce(wider, ends).tolist()
        found = {id(one): _range_of(*pair) for one, pair in zip(unknown, own, strict=True)}
    return [found[id(one)] if one.range is None else one.range for one in prepared]


def _with_every_pair(job: Job, prepared: Sequence[Prepared]) -> Job:
    """Return the job where the evaluations that look at every pair ignore none."""
    shares = tuple(
        share.with_every_pair() if one.range_name == "minmax-all" else share
        for share, one in zip(job.shares, prepared, strict=True)
    )
    return replace(job, shares=shares)


def _range_of(low: float, high: float) -> Range:
    """Return the range between the least and the greatest distance."""
    if low > high:
        warn("every pair is ignored: there is no distance to take a range from")
        low, high = 0.0, 1.0
    if not np.isfinite(high - low):
        raise InputError(
            f"distances from {low!r} to {high!r} have no finite range: scale them down"
        )
    return Range(low, high)
