"""The stages before counting: the nearest images of all, and their encodings, which go to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from streameval.distances.sums import Vectors
from streameval.output import TemporaryFolder, refused
from streameval.planning.plan import Cut, Limits, Plan, pieces
from streameval.planning.problem import PairSizes, Problem
from streameval.planning.stages import stage_plan
from streameval.reranking.copies import Search, find_copies
from streameval.reranking.encoding import (
    Parameters,
    Ranking,
    SparseRows,
    mean_rows,
    members,
    weigh,
)
from streameval.reranking.everyone import Everyone
from streameval.reranking.kept import MAPPED_BYTES, KeptRows, RowWriter
from streameval.reranking.lists import merge_nearest, room_for
from streameval.reranking.nearest import find_nearest
from streameval.run.checkpoint import Checkpoint
from streameval.run.executor import Parts, Pass, ThreadExecutor
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.record import NO_RECORD, PLACES, Manifest, Record, Stage
from streameval.run.session import Session
from streameval.sources.features import Features
from streameval.typing import FloatArray, Int32Array, IntArray, Span

NEIGHBORS = "neighbors"  # the stage, and the folder of its record
BLOCK_ROWS = 1024  # encoded at a time, at most
BLOCK_ENTRIES = 1 << 21  # that means are of, at most
TAKEN_BYTES = 16 << 20  # of rows that are read for missing distances at a time
READ_BYTES = 80  # of an image, where its row is known by its digest


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
        parts = session.run(find_nearest(search.most), job, plan.tasks, stage)
        found = _gathered(parts, plan, stage, search)
        record.release()
    del job, parts
    ranking = search.spread(found, copies, most)
    if wanted == most:
        return ranking
    item, distance, greatest = ranking
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
    parts: Parts[tuple[FloatArray, FloatArray]], plan: Plan, stage: Stage, search: Search
) -> FloatArray:
    """Return the nearest of the images that are searched, merged of what tasks have found.

    The stage keeps parts of the same array: views.
    """
    found = room_for(search.searched, search.most)
    places = {
        _name(rows): found[slice(*search.number(rows))]
        for rows in {task.queries for task in plan.tasks}
    }
    for name, kept in stage.state.items():
        places[name][:] = kept
        stage.state[name] = places[name]
    for indices, both in parts:
        task = plan.tasks[indices[0]]
        # What is kept of a task that is not marked yet is found again, and counts once.
        for rows, own, done in ((task.gallery, both[1], ()), (task.queries, both[0], indices)):
            if len(own):  # some of its images are searched
                name = _name(rows)
                place = places[name]
                place[:] = merge_nearest(place, own) if name in stage.state else own
                stage.keep(done, name, place)
        if not len(both[0]):  # nor is any of its queries
            stage.done[list(indices)] = True
        del both, own  # before others are waited for
    return found


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
    step = block_rows(parameters)
    single = written("encoding", first, everyone, session, folder.path / "single", step)
    count = min(parameters.k2, ranking.item.shape[0])
    if count < 2:
        return single
    of = np.sort(ranking.item[:, :count], axis=1)
    mean = partial(_mean, single, of)
    return written("averaging", mean, everyone, session, folder.path / "mean", step)


def block_rows(parameters: Parameters) -> int:
    """Return how many images are encoded at a time."""
    return max(min(BLOCK_ROWS, BLOCK_ENTRIES // (parameters.k2 * parameters.most_entries)), 1)


def encoding_plan(everyone: Everyone, parameters: Parameters, limits: Limits) -> Plan:
    """Return the plan of encoding and averaging.

    Raises
    ------
    BudgetError
        If they do not fit the limits.
    """
    size, width = everyone.shape[0], everyone.width
    rows = min(block_rows(parameters), size)
    entries = rows * parameters.most_entries
    encoding = 64 * entries + 16 * rows * width + 2 * TAKEN_BYTES
    averaging = 24 * parameters.k2 * entries + MAPPED_BYTES
    waiting = 12 * parameters.k2 * entries  # for blocks before it
    parts = {
        "ranking": size * (12 * (parameters.neighbors + 1) + 8),
        "encodings": size * (16 + 4 * parameters.k2),
        "rows that were read": size * READ_BYTES,
        "images in the making": limits.threads * (max(encoding, averaging) + waiting),
    }
    problem = Problem(size, size, PairSizes(0, 0), everyone.data())
    return stage_plan(problem, parts, limits, of="encodings of ")


def written(
    name: str,
    compute: Callable[[Job, Block, Watch], SparseRows],
    everyone: Everyone,
    session: Session,
    folder: Path,
    step: int,
) -> KeptRows:
    """Write what is computed of blocks of so many images, in their order."""
    size = everyone.shape[0]
    blocks = [Block(rows) for rows in pieces((0, size), step)]

    def together(job: Job, block: Block, watch: Watch) -> tuple[SparseRows]:
        return (compute(job, block, watch),)

    return write_blocks(Pass(name, together), everyone, session, blocks, [folder])[0]


def write_blocks(
    work: Pass[Block, tuple[SparseRows, ...]],
    features: Features,
    session: Session,
    blocks: Sequence[Block],
    folders: Sequence[Path],
) -> list[KeptRows]:
    """Write what is computed of blocks, in their order: sparse rows to each of some folders."""
    here = replace(session, executor=ThreadExecutor(session.threads), connection=None)
    plan = Plan("features", (), 0, (0, 0), session.threads, session.memory, {}, 0, 0)
    waiting: dict[int, tuple[SparseRows, ...]] = {}
    following = 0
    with encodings_kept(), ExitStack() as stack:
        writers = [stack.enter_context(RowWriter(one, blocks[-1].rows[1])) for one in folders]
        for (index,), computed in here.run(work, Job(features, plan), blocks):
            waiting[index] = computed
            while following in waiting:
                for writer, rows in zip(writers, waiting.pop(following), strict=True):
                    writer.add(rows)
                following += 1
        return [writer.kept() for writer in writers]


def encodings_kept() -> AbstractContextManager[None]:
    """Return a context that raises OutputError where encodings can't be written."""
    return refused("encodings can't be kept on disk", "make room, or set TMPDIR to where there is")


def _encode(
    ranking: Ranking, parameters: Parameters, job: Job, block: Block, watch: Watch
) -> SparseRows:
    """Return V of some images, before the mean."""
    rows = find_distances(ranking, parameters, job, block, watch)
    # Of a sample of images, the greatest distance may be less than those of a neighbourhood.
    furthest = np.maximum.reduceat(rows.value, rows.begin[:-1])
    greatest = np.maximum(ranking.greatest[slice(*block.rows)], furthest)
    weigh(rows, greatest, parameters.power)
    return rows


def find_distances(
    ranking: Ranking, parameters: Parameters, job: Job, block: Block, watch: Watch
) -> SparseRows:
    """Return the canonical distances of some images from their R*."""
    rows = members(ranking, np.arange(*block.rows), parameters)
    missing = np.flatnonzero(np.isnan(rows.value))
    if missing.size:
        everyone, pairs = cast("Everyone", job.source), (rows.of_entry, rows.item)
        image, item = (one[missing].astype(np.int64) for one in pairs)
        own = everyone.read_query(*block.rows)
        rows.value[missing] = pair_distances(everyone, own, image, item)
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
    taken, place = np.unique(of[slice(*block.rows)], return_inverse=True)
    return mean_rows(single.take(taken.astype(np.int64)), place.reshape(-1, of.shape[1]))
