"""Conversion of any array to well-chunked Zarr, block by block, going on after a crash.

The array is written to ``OUT.progress`` and renamed to ``OUT`` once it is whole. Each chunk is
a file, written under another name and renamed: one that is there is whole, so that the next
run of the same command goes on with the first one that is not.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array, Shape, Spans, blocks, slices
from streameval.arrays.fingerprint import fingerprint
from streameval.arrays.identity import state, unchanging
from streameval.arrays.zarr_array import open_zarr
from streameval.errors import BudgetError, InputError, OptionError, OutputError
from streameval.interruption import at_end, held
from streameval.output import check_new, claimed, folders_above, put_in_place, refused, remove

CHUNK_BYTES = 4 << 20
CHUNK_COLUMNS = 4096  # at most; of features, all
BLOCK_BYTES = 64 << 20  # read at a time: more gains nothing
RESERVED_BYTES = 64 << 20  # libraries, files, what Python does beside

_ARRAY, _STATE, _METADATA = "array", "state.json", ("zarr.json", ".zarray")


@dataclass(frozen=True)
class Converted:
    """What a conversion has written.

    Of `blocks` blocks of chunks in all, an earlier run had written `kept`.
    """

    path: Path
    shape: Shape
    chunks: Shape
    dtype: str
    blocks: int
    kept: int


def convert(source: Array, out: str | Path, *, memory: int, overwrite: bool = False) -> Converted:
    """Write an array of numbers to Zarr, uncompressed, in chunks of at most 4 MiB.

    Parameters
    ----------
    source : Array
        [n] or [n, m] of finite numbers.
    out : str or Path
        The folder to be made. ``OUT.progress`` beside it is what a killed run has left.
    memory : int
        Budget of the process, in bytes.
    overwrite : bool
        Whether to replace a Zarr array that is there.
    """
    if source.dtype.kind not in "iuf":
        raise InputError(
            f"{source.uri} is of dtype {source.dtype}; numbers are converted, texts stay in tables"
        )
    if 0 in source.shape:
        raise InputError(f"{source.uri} has shape {source.shape}: there is nothing to convert")
    target = _check_target(out, overwrite=overwrite)
    chunks = chunks_for(source.shape, source.dtype.itemsize)
    block = _block_for(source, chunks, memory)
    progress = target.with_name(target.name + ".progress")
    remedy = "make room or choose another output"
    with refused(f"{target} can't be written", remedy), ExitStack() as stack:
        stack.enter_context(folders_above(target))
        stack.enter_context(claimed(target))
        check_new(out, overwrite=overwrite)  # another process may just have made it
        progress.mkdir(exist_ok=True)
        left = f"finished work is kept in {progress}: the same command goes on with it"
        stack.enter_context(at_end(lambda: left))
        with unchanging(source):
            array = _begin(source, progress, chunks)
            count, kept = _write(source, array, progress / _ARRAY, block)
        for stray in progress.rglob("*.partial"):  # what a killed run was writing
            stray.unlink()
        open_zarr(progress / _ARRAY, None, str(target)).check_complete()
        with held():
            replaced = put_in_place(progress / _ARRAY, target)
            if replaced is not None:
                remove(replaced)
            remove(progress)
    return Converted(target, source.shape, chunks, str(source.dtype), count, kept)


def chunks_for(shape: Shape, itemsize: int) -> Shape:
    """Return chunks of at most `CHUNK_BYTES`: rows a power of two, all columns of features."""
    columns = min(shape[1], CHUNK_COLUMNS) if len(shape) == 2 else 1
    rows = 1 << max((CHUNK_BYTES // (columns * itemsize)).bit_length() - 1, 0)
    return (min(rows, shape[0]), *(columns for _ in shape[1:]))


def _block_for(source: Array, chunks: Shape, memory: int) -> Shape:
    """Return the block to read at a time, in whole chunks: of rows, or of a row's columns."""
    chunk_bytes = int(np.prod(chunks)) * source.dtype.itemsize
    most = max(BLOCK_BYTES // chunk_bytes, 1)
    across = int(len(chunks) == 2 and chunks[1] < source.shape[1])
    if not across:
        most = max(most, min(-(-source.chunks[0] // chunks[0]), 64))
    for times in range(most, 0, -1):
        block = list(chunks)
        block[across] *= times
        needed = (2 * times + 3) * chunk_bytes + source.read_scratch_bytes(*(*block, 1)[:2])
        if RESERVED_BYTES + needed <= memory:
            return tuple(block)
    raise BudgetError(
        f"memory is {memory} bytes; to convert {source.uri} {source.shape} chunk by chunk takes "
        f"{RESERVED_BYTES + needed}: raise --memory, or store the source in smaller chunks"
    )


def _check_target(out: str | Path, *, overwrite: bool) -> Path:
    if not str(out) or "::" in str(out) or "://" in str(out):
        raise OptionError(f"the output is {str(out)!r}; the path of a folder to be made is needed")
    target = Path(os.path.abspath(out))  # noqa: PTH100 - resolve() would follow a link
    check_new(out, overwrite=overwrite)
    if target.is_symlink() or (
        target.exists() and not any((target / name).is_file() for name in _METADATA)
    ):
        raise OutputError(f"{out} is no Zarr array; it is not replaced: choose another")
    return target


def _begin(source: Array, progress: Path, chunks: Shape) -> Any:
    """Open what an earlier run of the same source has left, or begin."""
    import zarr

    content = {
        "format": 1,
        "fingerprint": fingerprint(source),
        "files": state(source),
        "shape": source.shape,
        "dtype": source.dtype.str,
        "chunks": chunks,
    }
    begun = json.dumps(content)
    folder, file = progress / _ARRAY, progress / _STATE
    with suppress(OSError, ValueError):  # there is none, or it was not written whole
        if file.read_text() == begun:
            return zarr.open_array(folder, mode="r+")
    file.unlink(missing_ok=True)
    remove(folder)
    array = zarr.create_array(
        folder,
        shape=source.shape,
        chunks=chunks,
        dtype=source.dtype,
        compressors=None,
        config={"write_empty_chunks": True},
    )
    file.write_text(begun)
    return array


def _write(source: Array, array: Any, folder: Path, block: Shape) -> tuple[int, int]:
    """Write the blocks that are not there; return their number, and how many were there."""
    chunk_bytes = int(np.prod(array.chunks)) * source.dtype.itemsize
    buffer = np.empty(block, source.dtype)
    count = kept = 0
    for spans in blocks(tuple((0, size) for size in source.shape), block):
        count += 1
        chunks = blocks(spans, array.chunks)
        if all(_is_written(folder, array, chunk, chunk_bytes) for chunk in chunks):
            kept += 1
            continue
        shape = tuple(stop - start for start, stop in spans)
        values = source.read(*spans, out=buffer if shape == block else None)
        if not (finite := np.isfinite(values)).all():
            at = tuple(np.argwhere(~finite)[0])
            raise InputError(
                f"{source.uri} {source.shape} row {spans[0][0] + at[0]} holds {values[at]}: values "
                "must be finite; mend or drop that row, and run this again"
            )
        array[slices(spans)] = values
    return count, kept


def _is_written(folder: Path, array: Any, chunk: Spans, nbytes: int) -> bool:
    at = tuple(start // size for (start, _), size in zip(chunk, array.chunks, strict=True))
    file = folder / str(array.metadata.encode_chunk_key(at))
    return file.is_file() and file.stat().st_size == nbytes
