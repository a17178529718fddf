"""The nearest images of every image by a FAISS index: the first stage of re-ranking, approximate.

An index of the rows of all images returns some more candidates of each than are needed. Their
canonical distances are computed, and the nearest K are those of float64 among the candidates, ties
by index. As long as the last candidate may be as near as the K-th, twice as many are fetched, up to
1,024. Greatest distances are those of `greatest`, or of what is found where that is further.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from streameval.distances.sums import Vectors
from streameval.neighbors import faiss_index
from streameval.neighbors.index_search import BUILT
from streameval.output import remove, scratch_folder
from streameval.planning.plan import Limits, Plan, pieces
from streameval.reranking.copies import Search, find_copies
from streameval.reranking.encoding import Ranking
from streameval.reranking.greatest import sample_of
from streameval.reranking.indexed import LEAST_NORM, MOST_CANDIDATES, SPARE, IndexedImages
from streameval.reranking.lists import NOTHING, room_for, unpacked
from streameval.reranking.stages import NEIGHBORS, Block, pair_distances, search_record
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.record import Record, Stage
from streameval.run.session import Session
from streameval.typing import BoolArray, FloatArray, IntArray, Span

CLOSE = 64 * 2.0**-24  # relative error of FAISS's values that no candidate is missed by


def rank_by_index(
    images: IndexedImages, most: int, limits: Limits, session: Session, folder: Path | None
) -> Ranking:
    """Return the nearest images of each as the index finds them, and greatest distances.

    As `stages.rank_all`, and kept apart from what that keeps.

    Raises
    ------
    OptionError
        If the index returns too few.
    OutputError
        If the folder holds neighbours that were found otherwise.
    """
    size = images.shape[0]
    most = min(most, size - 1)
    if not most:
        return Ranking(np.zeros((1, 1), np.int32), np.zeros((1, 1)), np.zeros(1))
    plan = images.neighbor_plan(most, limits)
    with search_record(images, most, limits, folder) as (record, with_record):
        plan = with_record(plan)
        images = copy(images)
        sample = images.take_gallery(sample_of(size))
        images.longest = float(sample.norms.max(initial=0.0))
        images.check_length(images.longest, LEAST_NORM)
        copies = find_copies(images)
        search = copies.search(most)
        found = _search_all(images.part(search.view), search, most, plan, (session, record))
        ranking = search.spread(found, copies, most)
        greatest = []
        for side in images.halves():
            side.read(images)
            plan = side.greatest_plan(images.held(most), limits)
            greatest.append(side.greatest(plan, session, record))
        record.release()
    furthest = np.maximum(np.concatenate(greatest), ranking.distance[:, -1])
    return ranking._replace(greatest=np.maximum(furthest, 0.0))


def _search_all(
    images: IndexedImages, search: Search, most: int, plan: Plan, into: tuple[Session, Record]
) -> FloatArray:
    """Return what the index finds of all images that are searched: see `lists.room_for`."""
    session, record = into
    blocks = [Block(rows) for rows in pieces((0, images.shape[0]), plan.cut.queries)]
    stage = record.stage(NEIGHBORS, blocks)
    names = ["-".join(map(str, block.rows)) for block in blocks]
    alone, searched = search.alone, search.view.queries
    itself = ~(alone if searched is None else alone[searched])
    with _built(images, plan, session, record, stage) as built:
        work = Pass(NEIGHBORS, partial(find, (most, search.most), itself))
        for indices, found in session.run(work, Job(built, plan), blocks, stage):
            stage.keep(indices, names[indices[0]], found)
    return np.concatenate([stage.state[name] for name in names])


@contextmanager
def _built(
    images: IndexedImages, plan: Plan, session: Session, record: Record, stage: Stage
) -> Iterator[IndexedImages]:
    """Yield the images with their index in a file, where something is to be searched yet.

    What one index has found is not mixed with what another finds.
    """
    path, kept = record.file(BUILT), copy(images)
    with scratch_folder() as folder:
        if not stage.done.all():
            if path is None or not faiss_index.is_whole(path):
                images.check_size()
                stage.done[:] = False
                stage.state.clear()
                path = Path(folder) / BUILT
                images.recipe.build(path, plan, session.watch)
                path = record.keep(faiss_index.description(path), path)
            kept.path = path
        yield kept
        faiss_index.close_all()
        for file in filter(None, [path, path and faiss_index.description(path)]):
            remove(file)


def find(places: Span, itself: BoolArray, job: Job, block: Block, watch: Watch) -> FloatArray:
    """Return the nearest of some images: see `lists.room_for`. Greatest distances are 0.

    Parameters
    ----------
    places : (int, int)
        K, and the places of a list.
    itself : [N] bool
        Images that are in their own lists, in the place of a copy.
    job, block, watch
    """
    import faiss

    images, (most, room) = cast("IndexedImages", job.source), places
    if images.path is None:
        raise RuntimeError("there is no index yet")
    faiss.omp_set_num_threads(1)
    index = faiss_index.open_index(images.path, images.index.search)
    vectors, size = images.read_query(*block.rows), images.shape[0]
    queries, itself = faiss_index.faiss_vectors(images, vectors), itself[slice(*block.rows)]
    metric = faiss_index.faiss_metric(images)
    close = CLOSE * metric.magnitudes(vectors.norms, images.longest)[1]
    packed = room_for(len(queries), room)
    distances, items, greatest = unpacked(packed)
    distances[:], items[:], greatest[:] = np.inf, NOTHING, 0.0
    left, count = np.arange(len(queries)), min(most + 1 + SPARE, size)
    while left.size:
        found = index.search(queries[left], count)[1]
        distance, item, last = _ranked(images, vectors, block, (left, found), itself[left])
        needed = most + itself[left] - 1
        furthest = distance[np.arange(len(left)), needed]
        for row in np.flatnonzero(np.isinf(furthest))[:1]:
            count = int(np.isfinite(distance[row]).sum())
            raise images.short(block.rows[0] + int(left[row]), count, most)
        more = (found >= 0).all(axis=1) & (furthest >= last - close[left])
        more &= count < min(MOST_CANDIDATES, size)
        width = min(room, distance.shape[1])
        distances[left[~more], :width] = distance[~more, :width]
        items[left[~more], :width] = item[~more, :width]
        left, count = left[more], min(2 * count, MOST_CANDIDATES, size)
    watch.advance(block.pairs)
    return packed


def _ranked(
    images: IndexedImages,
    vectors: Vectors,
    block: Block,
    found: tuple[IntArray, IntArray],
    itself: BoolArray,
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return candidates in order of their canonical distances, ties by index.

    Parameters
    ----------
    images : IndexedImages
    vectors : Vectors
        Of the block.
    block : Block
    found : [n] int64, [n, c] int64
        Rows of the block, and what the index returns of them; −1 is nothing.
    itself : [n] bool
        Which of them are to be candidates of their own; others are none, found or not.

    Returns
    -------
    distance : [n, c + 1] float64
        +inf where there is nothing more.
    item : [n, c + 1] int64
    last : [n] float64
        The greatest of what the index returns.
    """
    rows, item = found
    own = block.rows[0] + rows[:, None]
    valid = np.column_stack([(item >= 0) & (item != own), itself])
    item = np.where(valid, np.column_stack([item, own]), NOTHING)
    distance = np.full(item.shape, np.inf)
    row, column = np.nonzero(valid)
    distance[row, column] = pair_distances(images, vectors, rows[row], item[row, column])
    last = np.where(valid, distance, -np.inf)[:, :-1].max(axis=1)
    order = np.lexsort((item, distance), axis=1)
    return np.take_along_axis(distance, order, 1), np.take_along_axis(item, order, 1), last
