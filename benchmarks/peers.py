"""What streameval is compared with: the arithmetic and the read alone, and other evaluators."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from streameval.arrays import digest

READ_BYTES = 8 << 20
BLAS_ROWS = 1024  # queries of a tile that BLAS is best with
Float32Array = npt.NDArray[np.float32]
Span = tuple[int, int]


def spans(stop: int, step: int) -> list[Span]:
    """Cut 0:stop into ranges."""
    return [(start, min(start + step, stop)) for start in range(0, stop, step)]


def bare_sgemm(
    queries: Float32Array, gallery: Float32Array, items: int, threads: int
) -> Callable[[], None]:
    """Return what multiplies all pairs tile by tile, a BLAS thread a worker, and keeps nothing.

    Parameters
    ----------
    queries, gallery : [Q, D], [G, D] float32
    items : int
        Gallery items of a tile, which has `BLAS_ROWS` queries.
    threads : int
    """
    controller = ThreadpoolController()
    buffers: SimpleQueue[Float32Array] = SimpleQueue()
    for _ in range(threads):
        buffers.put(np.zeros(BLAS_ROWS * items, np.float32))

    def column(span: Span) -> None:
        buffer = buffers.get()
        block = gallery[slice(*span)].T
        for top in range(0, len(queries), BLAS_ROWS):
            own = queries[top : top + BLAS_ROWS]
            out = buffer[: len(own) * block.shape[1]].reshape(len(own), block.shape[1])
            np.matmul(own, block, out=out)
        buffers.put(buffer)

    def run() -> None:
        with controller.limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
            list(pool.map(column, spans(len(gallery), items)))

    return run


def faiss_search(index: Any, queries: Float32Array, k: int, threads: int) -> Callable[[], None]:
    """Return what searches a FAISS index, built already, for the k nearest of every query."""
    import faiss

    def run() -> None:
        faiss.omp_set_num_threads(threads)  # BLAS limits set by others reach OpenMP too
        index.search(queries, k)

    return run


def bare_read(path: Path, threads: int) -> Callable[[], int]:
    """Return what reads a Zarr matrix once through zarrs, by rows of whole chunks, for its digest.

    Some 8 MB are read at a time, or a chunk.

    Parameters
    ----------
    path : Path
    threads : int
    """
    import zarr
    from zarr.core.buffer import default_buffer_prototype

    settings = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
    with zarr.config.set(settings):
        array: Any = zarr.open_array(path, mode="r")
    prototype = default_buffer_prototype()
    shape = array.shape
    block = [min(chunk, size) for chunk, size in zip(array.chunks, shape, strict=True)]
    block[0] *= max(READ_BYTES // (block[0] * block[1] * array.dtype.itemsize), 1)
    buffers: SimpleQueue[npt.NDArray[Any]] = SimpleQueue()
    for _ in range(threads):
        buffers.put(np.zeros(block[0] * block[1], array.dtype))

    def digest_of(rectangle: tuple[Span, Span]) -> int:
        buffer = buffers.get()
        rows, columns = (stop - start for start, stop in rectangle)
        out = buffer[: rows * columns].reshape(rows, columns)
        array.get_basic_selection(
            tuple(slice(*span) for span in rectangle),
            out=prototype.nd_buffer.from_numpy_array(out),
            prototype=prototype,
        )
        found = digest.total(digest.of_rows(out, rectangle[1][0]), np.arange(*rectangle[0]))
        buffers.put(buffer)
        return found

    def run() -> int:
        rectangles = [(r, c) for r in spans(shape[0], block[0]) for c in spans(shape[1], block[1])]
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(digest_of, rectangles))

    return run


def precisions_in_python(
    hits: npt.NDArray[np.int64], found: npt.NDArray[np.int32]
) -> npt.NDArray[np.float64]:
    """Return the precision at every match, else 0, dividing rank by rank as torchreid does."""
    divided = [count / (rank + 1.0) for rank, count in enumerate(hits)]
    return np.asarray(divided) * found


def precisions_in_numpy(
    hits: npt.NDArray[np.int64], found: npt.NDArray[np.int32]
) -> npt.NDArray[np.float64]:
    """Return the same, several times as fast."""
    return hits / np.arange(1, len(hits) + 1) * found


def argsort_evaluator(
    distances: npt.NDArray[np.floating],
    query_id: npt.NDArray[Any],
    gallery_id: npt.NDArray[Any],
    query_cam: npt.NDArray[Any],
    gallery_cam: npt.NDArray[Any],
    max_rank: int = 50,
    precisions: Callable[..., npt.NDArray[np.float64]] = precisions_in_python,
) -> tuple[npt.NDArray[np.float64], float]:
    """Return CMC [max_rank] and mAP the way of torchreid's `eval_market1501`.

    All rows are argsorted at once; then, query by query, images of the same identity and
    camera are removed, matches counted up along the ranks, and precisions averaged.
    """
    max_rank = min(max_rank, distances.shape[1])
    order = np.argsort(distances, axis=1)
    matches = (gallery_id[order] == query_id[:, None]).astype(np.int32)
    curves, average_precisions = [], []
    for i in range(len(query_id)):
        own = order[i]
        removed = (gallery_id[own] == query_id[i]) & (gallery_cam[own] == query_cam[i])
        found = matches[i][~removed]
        if not found.any():
            continue
        hits = found.cumsum()
        curve = np.ones(max_rank)  # what a gallery cut short lacks comes after every match
        curve[: len(hits)] = np.minimum(hits[:max_rank], 1)
        curves.append(curve)
        average_precisions.append(precisions(hits, found).sum() / found.sum())
    if not curves:
        return np.full(max_rank, np.nan), float("nan")
    return np.mean(curves, axis=0), float(np.mean(average_precisions))
