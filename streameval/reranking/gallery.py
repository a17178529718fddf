"""The stages before counting where each query is re-ranked alone with the gallery."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from pathlib import Path

import numpy as np

from streameval.output import TemporaryFolder
from streameval.planning.plan import Limits, Plan, pieces
from streameval.planning.problem import PairSizes, Problem
from streameval.planning.stages import stage_plan
from streameval.reranking.alone import STEP, EncodedGallery, Encoder, Reversed
from streameval.reranking.copies import find_copies
from streameval.reranking.encoding import Parameters, Ranking, SparseRows, mean_rows, weigh
from streameval.reranking.everyone import Everyone
from streameval.reranking.kept import MAPPED_BYTES, Encodings, KeptRows, RowWriter
from streameval.reranking.stages import (
    BLOCK_ROWS,
    Block,
    block_rows,
    encodings_kept,
    find_distances,
    write_blocks,
    written,
)
from streameval.run.executor import Pass
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.run.session import Session
from streameval.sources.features import Features
from streameval.stretches import cumulated
from streameval.typing import FloatArray, Int32Array

QUERIES = "queries"  # the stage
ROW_BYTES = 64 << 20  # of the distances of a block of queries from all items
PART_BYTES = 8 << 20  # of gallery rows that are read at a time
MOST_QUERIES = 256  # of a block


def queries_together(items: int) -> int:
    """Return how many queries a block has."""
    return min(max(ROW_BYTES // (8 * items), 1), MOST_QUERIES)


def queries_plan(gallery: Everyone, queries: int, parameters: Parameters, limits: Limits) -> Plan:
    """Return the plan of encoding queries, each alone with the gallery.

    Raises
    ------
    BudgetError
        If it does not fit the limits.
    """
    items, k2, lists = gallery.shape[1], parameters.k2, parameters.neighbors + 1
    # A query may change all items: 12 bytes of each, twice where blocks are put together.
    block = (8 + 2 * 12) * queries_together(items) * items
    parts = {
        "ranking": items * (12 * lists + 8),
        "encodings": 16 * items + 24 * queries,
        "lists, reversed": (8 + 24 * k2) * items,
        "lists with a query": limits.threads * (12 * lists + 60) * items,
        "items in the making": limits.threads * 24 * STEP * k2 * parameters.most_entries,
        "blocks of queries": limits.threads * (block + 4 * PART_BYTES + MAPPED_BYTES),
    }
    problem = Problem(queries, items, PairSizes(0, 0), gallery.data())
    return stage_plan(problem, parts, limits, of="encodings of ")


def encode_gallery(
    everyone: Everyone,
    ranking: Ranking,
    parameters: Parameters,
    session: Session,
    folder: TemporaryFolder,
) -> EncodedGallery:
    """Return the encodings of the gallery by itself, in a folder."""
    find = partial(find_distances, ranking, parameters)
    step = block_rows(parameters)
    distances = written("encoding", find, everyone, session, folder.path / "distances", step)
    near = ranking.item[:, : parameters.k2]
    mean = partial(_encode, distances, ranking.greatest, np.sort(near, axis=1), parameters.power)
    rows = written("averaging", mean, everyone, session, folder.path / "gallery", step)
    return EncodedGallery(everyone, ranking, distances, rows, Reversed.of(near), parameters)


def _encode(
    distances: KeptRows,
    greatest: FloatArray,
    of: Int32Array,
    power: int,
    job: Job,
    block: Block,
    watch: Watch,
) -> SparseRows:
    """Return V of some items."""
    own = of[slice(*block.rows)]
    needed, place = np.unique(own, return_inverse=True)
    rows = distances.take(needed.astype(np.int64))
    weigh(rows, greatest[needed], power)
    watch.advance(block.pairs)
    return mean_rows(rows, place.reshape(own.shape))


def encode_queries(
    features: Features, gallery: EncodedGallery, session: Session, folder: TemporaryFolder
) -> Encodings:
    """Return the encodings of queries, each alone with the gallery, and of the gallery.

    Queries whose rows are copies are encoded once.

    Parameters
    ----------
    features : Features
        Under their squared distance.
    gallery : EncodedGallery
    session : Session
    folder : TemporaryFolder
        Where they are.
    """
    alike = copy(features)
    alike.gallery = features.query
    distinct, row = np.unique(find_copies(alike).first, return_inverse=True)
    items, first = features.shape[1], len(distinct)
    blocks = [Block(rows) for rows in pieces((0, first), queries_together(items))]
    greatest, encoders = np.empty(first), list[Encoder]()

    def compute(job: Job, block: Block, watch: Watch) -> tuple[SparseRows, SparseRows]:
        queries = distinct[slice(*block.rows)].tolist()
        distance = np.empty((len(queries), items))
        for left, part in features.distance_blocks(queries, PART_BYTES):
            distance[:, left : left + part.shape[1]] = part
        greatest[slice(*block.rows)] = np.maximum(distance.max(axis=1), 0.0)
        encoder = encoders.pop() if encoders else Encoder(gallery)  # one a thread
        found = []
        for one in distance:
            found.append(encoder.encode(one))
            watch.advance(1)
        encoders.append(encoder)
        rows = _stacked([(own.item + np.int32(first), own.value) for own in found])
        return rows, _stacked([(own.changed, own.shared) for own in found])

    places = [folder.path / name for name in ("queries", "changed")]
    own, changed = write_blocks(Pass(QUERIES, compute), features, session, blocks, places)
    rows = _together(own, gallery.rows, folder.path / "rows")
    return Encodings(rows, greatest[row], row, first, changed, folder)


def _stacked(rows: Sequence[tuple[Int32Array, FloatArray]]) -> SparseRows:
    """Return sparse rows of their items and values."""
    items, values = zip(*rows, strict=True)
    begin = cumulated([len(one) for one in items])
    return SparseRows(begin, np.concatenate(items), np.concatenate(values))


def _together(queries: KeptRows, gallery: KeptRows, folder: Path) -> KeptRows:
    """Write the rows of queries, then those of gallery items, whose numbers follow."""
    first, items = len(queries.begin) - 1, len(gallery.begin) - 1
    with encodings_kept(), RowWriter(folder, first + items) as writer:
        for rows in pieces((0, first), BLOCK_ROWS):
            writer.add(queries.take(np.arange(*rows)))
        for rows in pieces((0, items), BLOCK_ROWS):
            own = gallery.take(np.arange(*rows))
            writer.add(own._replace(item=own.item + np.int32(first)))
        return writer.kept()
