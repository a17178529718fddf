"""Tiles of a task: what is read, multiplied and masked before it is counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streameval.kernels.canonical import FloatMatrix
from streameval.kernels.filtering import (
    Filter,
    Operand,
    group_by_norm,
    prepare_gallery,
    write_products,
)
from streameval.kernels.masks import column_offsets, mask_listed
from streameval.kernels.products import Memory, panel_bytes
from streameval.kernels.tiles import Columns
from streameval.planning import Task
from streameval.protocols.pairs import Pairs
from streameval.run.job import Job
from streameval.run.progress import Watch
from streameval.sources.sources import Features
from streameval.statistics import IntArray

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Operands:
    """What the values of a tile of features were made from.

    Attributes
    ----------
    filter : Filter
    queries : Operand
        Of all queries of the task.
    gallery : Operand
        Of the tile's columns.
    """

    filter: Filter
    queries: Operand
    gallery: Operand


@dataclass(frozen=True, eq=False)
class Tile:
    """Values of some queries with some gallery items, ready to be counted.

    Attributes
    ----------
    values : [m, n] float32 or float64
    start : int
        The first query, counted from the task's first.
    columns : Columns
    operands : Operands, optional
        Of a tile of features.
    last : bool
        Whether these columns come with no further queries: what they were made from is
        overwritten then.
    """

    values: FloatMatrix
    start: int
    columns: Columns
    operands: Operands | None = None
    last: bool = True


def feature_tiles(
    job: Job,
    source: Features,
    task: Task,
    watch: Watch,
    memory: npt.NDArray[np.generic],
    panels: Memory,
    buffer: Float32Array,
) -> Iterator[Tile]:
    """Yield the tiles of a task on features; the values are overwritten by the next tile.

    Parameters
    ----------
    job, source, task, watch
    memory : [block, D] array
        To read gallery rows into.
    panels : uint8 array
        For the panels of a tile's gallery rows, where the matrix unit multiplies.
    buffer : [rows * items] float32
        For the values of a tile.
    """
    pairs, (rows, items) = job.pairs, job.plan.tile
    queries = job.query_operand(source, *task.queries)
    size = len(queries.norms)
    for begin in range(*task.gallery, job.plan.block):
        end = min(begin + job.plan.block, task.gallery[1])
        features, norms = source.read_gallery(begin, end, memory)
        job.check_unit(norms)
        item = np.arange(begin, end)
        junk = pairs.junk[begin:end]
        if junk.any():  # junk costs nothing in the GEMM
            features, norms, item = features[~junk], norms[~junk], item[~junk]
        order, cuts = group_by_norm(norms, source.metric)
        if len(cuts) > 2:
            features, norms, item = features[order], norms[order], item[order]
        gallery = prepare_gallery(features, norms)
        for first, last in pairwise(cuts):
            for left in range(first, last, items):
                right = min(left + items, last)
                part = gallery.block(left, right)
                if queries.panels.digits.size:
                    part = part.packed(panels)
                filter_ = Filter.of(source.metric, queries, part)
                operands = Operands(filter_, queries, part)
                columns = _feature_columns(pairs, operands, item[left:right])
                for top in range(0, size, rows):
                    m, n = min(rows, size - top), right - left
                    values = buffer[: m * n].reshape(m, n)
                    if filter_.usable:
                        write_products(queries, top, part, values)
                    else:
                        values[:] = 0
                    yield Tile(values, top, columns, operands, last=top + rows >= size)
                    watch.advance(values.size)
        watch.advance((end - begin - len(item)) * size)


def _feature_columns(pairs: Pairs, operands: Operands, item: IntArray) -> Columns:
    filter_, gallery = operands.filter, operands.gallery
    nothing = np.zeros(len(item), np.bool_)
    camera = None if pairs.gallery_camera is None else pairs.gallery_camera[item]
    offset = column_offsets(filter_.offset(gallery), nothing, camera, pairs.cameras)
    return Columns(item, filter_.weight(gallery), offset)


def matrix_blocks(job: Job, task: Task) -> list[tuple[int, int]]:
    """Return the ranges of gallery items of a stored matrix that are read at a time."""
    start, stop = task.gallery
    step = max(job.plan.block, 1)
    return [(left, min(left + step, stop)) for left in range(start, max(stop, start + 1), step)]


def tiles_of(job: Job, task: Task, watch: Watch, *, check: bool = True) -> Iterator[Tile]:
    """Yield the tiles of a task; the values are overwritten by the next tile.

    Parameters
    ----------
    job, task, watch
    check : bool
        Whether to check that stored distances are finite.
    """
    if isinstance(job.source, Features):
        width, tile = job.source.width, job.plan.tile
        block, dtype = (job.plan.block, width), job.source.gallery.dtype
        with (
            job.buffers.lend("block", block, dtype) as memory,
            job.buffers.lend("panels", (panel_bytes(tile[1], width),), np.uint8) as panels,
            job.buffers.lend("tile", (math.prod(tile),), np.float32) as buffer,
        ):
            yield from feature_tiles(job, job.source, task, watch, memory, panels, buffer)
    else:
        for items in matrix_blocks(job, task):
            part = replace(task, gallery=items)
            shape = tuple(stop - start for start, stop in (part.queries, items))
            with job.buffers.lend("strip", shape, job.distances.matrix.dtype) as memory:
                yield Tile(
                    job.distances.read(part.queries, items, memory, check=check),
                    0,
                    job.matrix_columns(*items),
                )
            watch.advance(part.pairs)


def offset_rows(pairs: Pairs, start: int, stop: int) -> IntArray:
    """Return, for each of some queries, the row of ``Columns.offset`` that serves it, [m]."""
    if pairs.query_camera is None:
        return np.zeros(stop - start, np.int64)
    return pairs.query_camera[start:stop].astype(np.int64)


def mask(tile: Tile, pairs: Pairs, masked: npt.NDArray[np.bool_]) -> int:
    """Overwrite listed pairs of a tile with +inf; return how many of them were finite.

    Parameters
    ----------
    tile : Tile
    pairs : Pairs
        Of the task's queries.
    masked : [L] bool
        Which of the listed pairs.
    """
    indptr = pairs.indptr[tile.start : tile.start + len(tile.values) + 1]
    return int(mask_listed(tile.values, tile.columns.item, indptr, pairs.item, masked))
