"""Whether all of a Zarr array was written: Zarr reads a chunk that is absent as the fill value.

A gallery half written would be evaluated as rows of zeros without a word. So every chunk must be
there when an array is opened, and whenever it is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Shape, region
from streameval.arrays.remote import METADATA
from streameval.errors import InputError

_ABSENT = np.iinfo(np.uint64).max  # offset and size of an absent chunk in a shard's index
_COUNTED = 1000  # absent chunks: a shape may declare any number of them
_INDEX_CODECS = (["BytesCodec"], ["BytesCodec", "Crc32cCodec"])


def remedy(array: Any) -> str:
    """Return what to do about chunks that are absent."""
    return (
        'write the array again, with config={"write_empty_chunks": True}; or, where its fill value '
        f"({array.fill_value}) is meant, add --fill-missing (in Python fill_missing=True)"
    )


def check_complete(array: Any, folder: Path | None, uri: str, *, filled: bool = False) -> None:
    """Check that every chunk is there, also within shards; no values are read.

    Parameters
    ----------
    array : zarr.Array
    folder : Path or None
        Where its metadata lie; None where the store has to be asked what is there.
    uri : str
    filled : bool
        Whether chunks may be absent. Links to nothing are refused all the same: Zarr leaves
        chunks out, and makes no links.
    """
    if not filled:
        check_shards(array, uri)
    absent = _absent_chunks(array, folder, filled)
    first = next(absent, None)
    if first is not None:
        more = sum(1 for _ in islice(absent, _COUNTED))
        count = f"more than {_COUNTED}" if more == _COUNTED else str(more + 1)
        raise InputError(
            f"{uri} is incomplete: {count} of its chunks are absent, the first is {first}. Zarr "
            f"would read them as {array.fill_value}: "
            + ("put back what the links lead to" if filled else remedy(array))
        )


def check_shards(array: Any, uri: str) -> None:
    """Refuse shards in which absent chunks can't be seen: those that are encoded once more."""
    from zarr.codecs import ShardingCodec

    codecs = getattr(array.metadata, "codecs", ())
    sharding = [codec for codec in codecs if isinstance(codec, ShardingCodec)]
    for codec in sharding:
        inside = [type(inner).__name__ for inner in (*codec.codecs, *codec.index_codecs)]
        index = [type(inner).__name__ for inner in codec.index_codecs]
        if len(codecs) > 1 or "ShardingCodec" in inside or index not in _INDEX_CODECS:
            raise InputError(
                f"{uri} is stored in shards of the codecs "
                f"{', '.join(type(one).__name__ for one in codecs)} (within: {', '.join(inside)}), "
                f"of which it can't be seen whether chunks are absent: {remedy(array)}"
            )


def _absent_chunks(array: Any, folder: Path | None, filled: bool) -> Iterator[str]:
    """Yield what is absent, in words: chunks, shards and chunks of shards; or links to nothing.

    Neighbours in the grid share a folder, which is listed once: a look at every single file
    would take minutes on a network file system.
    """
    stored = array.shards or array.chunks
    grid = tuple(-(-size // edge) for size, edge in zip(array.shape, stored, strict=True))
    keyed = ((at, array.metadata.encode_chunk_key(at)) for at in _coordinates(grid))
    for parent, members in groupby(keyed, key=lambda entry: entry[1].rpartition("/")[0]):
        there = _names_in(array.store_path / parent if folder is None else folder / parent)
        for at, key in members:
            is_file = there.get(key.rpartition("/")[2])
            if is_file is False or not (is_file or filled):
                link = ", a link to nothing" if is_file is False else ""
                yield f"{key} ({cell(at, stored, array.shape)}){link}"
            elif array.shards and not filled:
                yield from absent_in_shard(array, at)


def _names_in(folder: Any) -> dict[str, bool]:
    """Return the names in a folder, or at a place in a store, and whether there is a file."""
    if isinstance(folder, Path):
        if not folder.is_dir():
            return {}
        with os.scandir(folder) as found:
            return {entry.name: entry.is_file() for entry in found}
    from zarr.core.sync import sync

    async def names() -> dict[str, bool]:
        return {name: True async for name in folder.store.list_dir(folder.path)}

    return sync(names())


def _coordinates(grid: Shape) -> Iterator[Shape]:
    """Yield every index of a grid in C order, and hold none: `itertools.product` holds axes."""
    if not grid:
        yield ()
        return
    for index in range(grid[0]):
        for rest in _coordinates(grid[1:]):
            yield (index, *rest)


def _word(setting: Any) -> Any:
    """Return a setting of a codec as a word: zarr before 3.2 has an enumeration of them."""
    return getattr(setting, "value", setting)


def absent_in_shard(array: Any, at: Shape) -> Iterator[str]:
    """Yield the chunks that are absent from a shard that `check_shards` has let pass, in words.

    Its index holds the offset and the size of each chunk (Zarr v3 specification, codec
    `sharding_indexed`).
    """
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest
    from zarr.core.sync import sync

    codec = array.metadata.codecs[0]
    inside = tuple(s // c for s, c in zip(array.shards, array.chunks, strict=True))
    length = 16 * math.prod(inside)
    size = length + 4 * (len(codec.index_codecs) - 1)  # with the checksum
    at_start = _word(codec.index_location) == "start"
    request = RangeByteRequest(0, size) if at_start else SuffixByteRequest(size)
    key = array.metadata.encode_chunk_key(at)
    shard = array.store_path / key
    stored = sync(shard.get(byte_range=request))
    if stored is None:
        yield key
        return
    found = stored.to_bytes()
    if len(found) < size:
        raise InputError(
            f"shard {shard} is {len(found)} bytes long, less than its index of {size} bytes: it "
            "was cut short, write it again"
        )
    dtype = ">u8" if _word(codec.index_codecs[0].endian) == "big" else "<u8"
    index = np.frombuffer(found[:length], dtype).reshape(*inside, 2)
    for inner in np.argwhere((index == _ABSENT).all(axis=-1)):
        chunk = np.array(at) * inside + inner
        if np.all(chunk * array.chunks < array.shape):
            yield f"chunk of {cell(chunk.tolist(), array.chunks, array.shape)} of shard {key}"


def cell(index: Sequence[int], edges: Shape, shape: Shape) -> str:
    """Return what messages call a cell of a grid."""
    axes = zip(index, edges, shape, strict=True)
    return region((i * edge, min((i + 1) * edge, size)) for i, edge, size in axes)


def complete(store: Any) -> Any:
    """Return a store of zarr in which a chunk that is absent is an error once it is read.

    Unless its attribute ``fill_missing`` is set.
    """
    return _complete_store()(store)


@cache
def _complete_store() -> Any:
    from zarr.abc.store import ByteRequest, Store
    from zarr.core.buffer import Buffer, BufferPrototype
    from zarr.storage import WrapperStore

    class CompleteStore(WrapperStore[Any]):
        fill_missing = False
        _supports_sync_io = False  # of zarr from 3.2 on: all is read by `get`
        get_ranges: Any = getattr(Store, "get_ranges", None)

        async def get(
            self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
        ) -> Buffer | None:
            found: Buffer | None = await self._store.get(key, prototype, byte_range)
            if found is None and not self.fill_missing and key.rpartition("/")[2] not in METADATA:
                raise FileNotFoundError(f"chunk {key} is absent")
            return found

    return CompleteStore
