"""Whether every chunk of a Zarr array has been written.

Zarr reads a chunk that is absent as the fill value, so that a gallery half written would be
evaluated as rows of zeros without a word.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from streameval.errors import InputError

_ABSENT = np.iinfo(np.uint64).max  # offset and size of an absent chunk in a shard's index
_CRC32C_BYTES = 4
_COUNTED = 1000  # absent chunks: a shape may declare any number of them

Coordinates = tuple[int, ...]


def check_complete(array: Any, folder: Path, uri: str) -> None:
    """Check that every chunk is there, also within shards; no values are read.

    Parameters
    ----------
    array : zarr.Array
    folder : Path
        Where its metadata lie.
    uri : str

    Raises
    ------
    InputError
        If chunks are absent; the first is named.
    """
    absent = _absent_chunks(array, folder, uri)
    first = next(absent, None)
    if first is not None:
        more = sum(1 for _ in islice(absent, _COUNTED))
        count = f"more than {_COUNTED}" if more == _COUNTED else str(more + 1)
        raise InputError(
            f"{uri} is incomplete: {count} of its chunks are absent, the first is {first}. Zarr "
            f"would read them as {array.fill_value}: write the array again. If chunks of "
            "nothing but that value are meant, write it with "
            'config={"write_empty_chunks": True}'
        )


def _absent_chunks(array: Any, folder: Path, uri: str) -> Iterator[str]:
    """Yield what is absent, in words: chunks, shards and chunks of shards."""
    stored = array.shards or array.chunks
    for at, key, there in _stored_chunks(array, stored, folder):
        if not there:
            start = tuple(i * edge for i, edge in zip(at, stored, strict=True))
            yield f"{key} ({_region(start, stored, array.shape)})"
        elif array.shards:
            for start in _absent_in_shard(array, folder / key, at, uri):
                yield f"in shard {key} ({_region(start, array.chunks, array.shape)})"


def _stored_chunks(
    array: Any, stored: Coordinates, folder: Path
) -> Iterator[tuple[Coordinates, str, bool]]:
    """Yield the grid coordinates of each chunk (or shard), its key, and whether it is there.

    Neighbours in the grid share a folder, which is listed once: a look at every single file
    would take minutes on a network file system.
    """
    grid = tuple(-(-size // edge) for size, edge in zip(array.shape, stored, strict=True))
    keyed = ((at, array.metadata.encode_chunk_key(at)) for at in _coordinates(grid))
    for parent, members in groupby(keyed, key=lambda entry: entry[1].rpartition("/")[0]):
        listed = folder / parent
        there = {entry.name for entry in os.scandir(listed)} if listed.is_dir() else set()
        for at, key in members:
            yield at, key, key.rpartition("/")[2] in there


def _coordinates(grid: Coordinates) -> Iterator[Coordinates]:
    """Yield every index of a grid in C order, and hold none: `itertools.product` holds axes."""
    if not grid:
        yield ()
        return
    for index in range(grid[0]):
        for rest in _coordinates(grid[1:]):
            yield (index, *rest)


def _absent_in_shard(array: Any, file: Path, at: Coordinates, uri: str) -> list[Coordinates]:
    """Return where the chunks begin that are absent from a shard, in array coordinates.

    A shard's index holds the offset and the size of each of its chunks (Zarr v3
    specification, codec `sharding_indexed`). One encoded otherwise than plainly is not read.
    """
    codec = array.metadata.codecs[0]
    names = [type(inner).__name__ for inner in codec.index_codecs]
    if names not in (["BytesCodec"], ["BytesCodec", "Crc32cCodec"]):
        return []
    order = codec.index_codecs[0].to_dict()["configuration"]["endian"]
    inside = tuple(s // c for s, c in zip(array.shards, array.chunks, strict=True))
    length = 16 * math.prod(inside)
    with file.open("rb") as shard:
        size = shard.seek(0, os.SEEK_END)
        tail = length + _CRC32C_BYTES * (len(names) - 1)
        if size < tail:
            raise InputError(
                f"{uri}: shard {file} is {size} bytes long, less than its index of {tail} bytes: "
                "it was cut short, write it again"
            )
        shard.seek(0 if codec.index_location.value == "start" else size - tail)
        encoded = shard.read(length)
    index = np.frombuffer(encoded, ">u8" if order == "big" else "<u8").reshape(*inside, 2)
    absent = []
    for inner in np.argwhere((index == _ABSENT).all(axis=-1)).tolist():
        start = tuple(
            i * shard + j * chunk
            for i, shard, j, chunk in zip(at, array.shards, inner, array.chunks, strict=True)
        )
        if all(s < n for s, n in zip(start, array.shape, strict=True)):
            absent.append(start)
    return absent


def _region(start: Coordinates, size: Coordinates, shape: Coordinates) -> str:
    axes = zip(("rows", "columns"), start, size, shape, strict=False)
    return ", ".join(f"{name} {a}:{min(a + b, n)}" for name, a, b, n in axes)
