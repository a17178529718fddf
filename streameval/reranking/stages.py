"""The stages before counting: the nearest images of all, and their encodings, which go to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from streameval.distances.sums import Vectors
from streameval.output import TemporaryFolder, refused
from streameval.planning.plan import Cut, Limits, Plan, pieces
from streameval.reranking.copies import find_copies
from streameval.reranking.encoding import (
    Parameters,
    Ranking,
    SparseRows,
    mean_rows,
    members,
    weigh,
)
from streameval.reranking.everyone import Everyone
from streameval.reranking.kept import KeptRows, RowWriter
from streameval.reranking.nearest import find_nearest, merge_nearest
from streameval.run.checkpoint import Checkpoint
from streameval.run.executor import Parts, Pass, ThreadExecutor
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.record import NO_RECORD, PLACES, Manifest, Record, Stage
from streameval.run.session import Session
from streameval.typing import FloatArray, Int32Array, IntArray, Span

NEIGHBORS = "neighbors"  # the stage, and the folder of its record
BLOCK_ROWS = 1024  # encoded at a time
TAKEN_BYTES = 16 << 20  # of rows that are read for missing distances at a time
BLOCK_BYTES = 24_000 * BLOCK_ROWS + 2 * TAKEN_BYTES  # of a block in the making


@dataclass(frozen=True)
class Block:
    """Some images that are encoded together.

    Attributes
    ----------
    rows : (int, int)
    """

    rows: Span

    @property
    def pairs(self) -> int:
        """What is worked off: a pair an image."""
        return self.rows[1] - self.rows[0]

    def __str__(self) -> str:
        return f"images {self.rows[0]}:{self.rows[1]}"


def rank_all(
    everyone: Everyone, most: int, limits: Limits, session: Session, folder: Path | None
) -> Ranking:
    """Return the nearest images of each image, and its greatest distance.

    Parameters
    ----------
    everyone : Everyone
    most : int
        How many of each, itself left out; fewer where there are not so many.
    limits : Limits
    session : Session
    folder : Path, optional
        Where what is found is kept, and taken from where it is there.
    """
    size = everyone.shape[0]
    most = min(most, size - 1)
    if not most:
        return Ranking(np.zeros((1, 1), np.int32), np.zeros((1, 1)), np.zeros(1))
    copies = find_copies(everyone)
    search, wanted = copies.search(most), most
    most += max(_kept_places(folder) - search.most, 0)  # the first of more are the nearest of few
    search = copies.search(most)
    plan = everyone.neighbor_plan(search.most, limits)
    with search_record(everyone, search.most, limits, folder) as (record, with_record):
        plan = with_record(plan)
        stage = record.stage(NEIGHBORS, plan.tasks)
        job = Job(everyone, plan, (everyone.share(search.view, search.alone),))
        found = _gathered(
            session.run(find_nearest(search.most), job, plan.tasks, stage), plan, stage
        )
        packed = np.empty((size, 2 * search.most + 1))
        for rows, own in found.items():
            packed[search.rows(rows)] = own
        record.release()
    del found
    item, distance, greatest = search.spread(packed, copies, most)
    first = slice(wanted + 1)
    item, distance = np.ascontiguousarray(item[:, first]), np.ascontiguousarray(distance[:, first])
    return Ranking(item, distance, greatest)


def _kept_places(folder: Path | None) -> int:
    """Return how many places the lists have that a folder holds; 0 where it holds none."""
    if folder is None or not (folder / NEIGHBORS).exists():
        return 0
    with Checkpoint(folder / NEIGHBORS, resume=True) as record:
        return int(record.recorded.get("options", {}).get(NEIGHBORS, 0))


def _gathered(
    parts: Parts[tuple[FloatArray, FloatArray]], plan: Plan, stage: Stage
) -> dict[Span, FloatArray]:
    """Return the nearest images of each block, merged of the tasks that have looked at it."""
    for indices, both in parts:
        task = plan.tasks[indices[0]]
        # What is kept of a task that is not marked yet is found again, and counts once.
        for rows, own, done in ((task.gallery, both[1], ()), (task.queries, both[0], indices)):
            if len(own):  # some of its images are searched
                known = stage.state.get(_name(rows))
                stage.keep(done, _name(rows), own if known is None else merge_nearest(known, own))
        if not len(both[0]):  # nor is any of its queries
            stage.done[list(indices)] = True
    spans = sorted({task.queries for task in plan.tasks})
    return {rows: stage.state[_name(rows)] for rows in spans if _name(rows) in stage.state}


def _name(rows: Span) -> str:
    return f"{rows[0]}-{rows[1]}"


@contextmanager
def search_record(
    everyone: Everyone, most: int, limits: Limits, folder: Path | None
) -> Iterator[tuple[Record, Callable[[Plan], Plan]]]:
    """Yield the record of the search, and what returns the plan to follow."""
    if folder is None:
        yield NO_RECORD, lambda plan: plan
        return

    def describe() -> Manifest:
        sides = everyone.inputs()
        return {
            "options": {**everyone.options(), NEIGHBORS: most},
            "inputs": {one.name: one.fingerprint() for one in sides},
            PLACES: {one.name: one.uri for one in sides},
        }

    def with_cut(cut: Cut) -> Plan:
        return everyone.neighbor_plan(most, replace(limits, cut=cut))

    with Checkpoint(folder / NEIGHBORS, resume=True) as record:
        yield record, lambda plan: record.start(describe, plan, with_cut)


def encode(
    everyone: Everyone,
    ranking: Ranking,
    parameters: Parameters,
    session: Session,
    folder: TemporaryFolder,
) -> KeptRows:
    """Return V of all images, in a folder.

    Parameters
    ----------
    everyone : Everyone
    ranking : Ranking
    parameters : Parameters
    session : Session
    folder : TemporaryFolder
    """
    first = partial(_encode, ranking, parameters)
    single = _written("encoding", first, everyone, session, folder.path / "single")
    count = min(parameters.k2, ranking.item.shape[0])
    if count < 2:
        return single
    of = np.sort(ranking.item[:, :count], axis=1)
    mean = partial(_mean, single, of)
    return _written("averaging", mean, everyone, session, folder.path / "mean")


def _written(
    name: str,
    compute: Callable[[Job, Block, Watch], SparseRows],
    everyone: Everyone,
    session: Session,
    folder: Path,
) -> KeptRows:
    """Write what is computed of blocks of images, in their order."""
    size = everyone.shape[0]
    blocks = [Block(rows) for rows in pieces((0, size), BLOCK_ROWS)]
    here = replace(session, executor=ThreadExecutor(session.threads), connection=None)
    plan = Plan("features", (), 0, (0, 0), session.threads, session.memory, {}, 0, 0)
    waiting: dict[int, SparseRows] = {}
    following = 0
    with (
        refused("encodings can't be kept on disk", "make room, or set TMPDIR to where there is"),
        RowWriter(folder, size) as writer,
    ):
        for (index,), rows in here.run(Pass(name, compute), Job(everyone, plan), blocks):
            waiting[index] = rows
            while following in waiting:
                writer.add(waiting.pop(following))
                following += 1
        return writer.kept()


def _encode(
    ranking: Ranking, parameters: Parameters, job: Job, block: Block, watch: Watch
) -> SparseRows:
    """Return V of some images, before the mean."""
    rows = members(ranking, block.rows, parameters)
    missing = np.flatnonzero(np.isnan(rows.value))
    if missing.size:
        everyone, pairs = cast("Everyone", job.source), (rows.of_entry, rows.item)
        image, item = (one[missing].astype(np.int64) for one in pairs)
        own = everyone.read_query(*block.rows)
        rows.value[missing] = pair_distances(everyone, own, image, item)
    # Of a sample of images, the greatest distance may be less than those of a neighbourhood.
    members_furthest = np.maximum.reduceat(rows.value, rows.begin[:-1])
    greatest = np.maximum(ranking.greatest[slice(*block.rows)], members_furthest)
    weigh(rows, greatest, parameters.power)
    watch.advance(block.pairs)
    return rows


def pair_distances(everyone: Everyone, own: Vectors, image: IntArray, item: IntArray) -> FloatArray:
    """Return the canonical distances of rows to images, [p] float64.

    Parameters
    ----------
    everyone : Everyone
    own : Vectors
    image : [p] int64
        Rows of `own`.
    item : [p] int64
        Images, which are read so many at a time that they take little memory.
    """
    order = np.argsort(item, kind="stable")
    image, item, found = image[order], item[order], np.empty(len(item))
    step = max(TAKEN_BYTES // (everyone.width * 8), 1)
    for start, stop in pieces((0, len(item)), step):
        part = slice(start, stop)
        taken, place = np.unique(item[part], return_inverse=True)
        vectors = everyone.take_gallery(taken)
        found[part] = everyone.distance.pairs(own, vectors, image[part], place)
    distances = np.empty(len(item))
    distances[order] = found
    return distances


def _mean(single: KeptRows, of: Int32Array, job: Job, block: Block, watch: Watch) -> SparseRows:
    """Return the means of V over the first k2 of the ranking of some images."""
    watch.advance(block.pairs)
    return mean_rows(single.mapped(), of[slice(*block.rows)])
