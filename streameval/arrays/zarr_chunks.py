"""Whether every chunk of a Zarr array has been written.

Zarr reads a chunk that is absent as the fill value, so that a gallery half written would be
evaluated as rows of zeros without a word.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from itertools import groupby, islice, product
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
    """Return where the chunks begin that are absent from a shard, in array coordinates."""
    where = _index_of_shard(array)
    if where is None:
        return []
    first, length, tail = where
    with file.open("rb") as shard:
        size = shard.seek(0, os.SEEK_END)
        if size < tail:
            raise InputError(
                f"{uri}: shard {file} is {size} bytes long, less than its index of {tail} bytes: "
                "it was cut short, write it again"
            )
        shard.seek(0 if first else size - tail)
        return _absent_by_index(array, shard.read(length), at)


def check_shards(array: Any, spans: tuple[Coordinates, ...], seen: set[Coordinates]) -> None:
    """Check that the shards of a block in an object store hold all their chunks.

    That takes a request of some bytes for each shard that hasn't been seen before.

    Parameters
    ----------
    array : zarr.Array
        Sharded.
    spans : tuple of (int, int)
        Start and stop of the block along each axis.
    seen : set of coordinates
        Shards that have been checked; added to.

    Raises
    ------
    FileNotFoundError
        If a chunk is absent; names it.
    """
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest
    from zarr.core.sync import sync

    where = _index_of_shard(array)
    if where is None:
        return
    first, length, tail = where
    request = RangeByteRequest(0, length) if first else SuffixByteRequest(tail)
    edges = zip(spans, array.shards, strict=True)
    ranges = [range(start // edge, -(-stop // edge)) for (start, stop), edge in edges]
    for at in product(*ranges):
        if at in seen:
            continue
        key = array.metadata.encode_chunk_key(at)
        encoded = sync((array.store_path / key).get(byte_range=request)).to_bytes()
        for start in _absent_by_index(array, encoded[:length], at):
            raise FileNotFoundError(
                f"the chunk of {_region(start, array.chunks, array.shape)} is absent from shard "
                f"{key}: the array was not written whole"
            )
        seen.add(at)


def _index_of_shard(array: Any) -> tuple[bool, int, int] | None:
    """Return whether a shard begins with its index, the bytes of that, and with its checksum.

    The index holds the offset and the size of each of its chunks (Zarr v3 specification, codec
    `sharding_indexed`). None of one that is encoded otherwise than plainly: it is not read.
    """
    codec = array.metadata.codecs[0]
    names = [type(inner).__name__ for inner in codec.index_codecs]
    if names not in (["BytesCodec"], ["BytesCodec", "Crc32cCodec"]):
        return None
    length = 16 * math.prod(_inside(array))
    tail = length + _CRC32C_BYTES * (len(names) - 1)
    return codec.index_location.value == "start", length, tail


def _inside(array: Any) -> Coordinates:
    """Return how many chunks a shard has along each axis."""
    return tuple(s // c for s, c in zip(array.shards, array.chunks, strict=True))


def _absent_by_index(array: Any, encoded: bytes, at: Coordinates) -> list[Coordinates]:
    """Return where the chunks begin that are absent by a shard's index, in array coordinates."""
    order = array.metadata.codecs[0].index_codecs[0].to_dict()["configuration"]["endian"]
    index = np.frombuffer(encoded, ">u8" if order == "big" else "<u8").reshape(*_inside(array), 2)
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
