"""Arrays of numbers as bytes, and arrays of bytes in a store of Zarr.

These are of version 3 of Zarr's format, and any reader of Zarr reads them. They are written, and
read, by their metadata and chunks: what Zarr does for arrays of any kind takes 2 ms more of each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streameval.typing import AnyArray, ByteArray

Arrays = Mapping[str, AnyArray]

LEVEL = 1  # of compression
_METADATA, _CHUNK = "{}/zarr.json", "{}/c/{}"
_WORD = 8  # bytes that hold the length of the table of contents; packed arrays begin at multiples


def write_bytes(store: Any, path: str, content: ByteArray, size: int) -> None:
    """Write bytes as an array in chunks of a size, with checksums, in place of what is there."""
    from numcodecs.zstd import Zstd
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    zstd, buffer = Zstd(level=LEVEL, checksum=True), default_buffer_prototype().buffer
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [len(content)],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [size]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [
            {"name": "bytes"},
            {"name": "zstd", "configuration": {"level": LEVEL, "checksum": True}},
        ],
        "attributes": {},
    }
    whole = np.zeros(-len(content) % size, np.uint8)  # the last chunk is filled up
    parts = {_METADATA.format(path): json.dumps(metadata).encode()}
    for number, start in enumerate(range(0, len(content), size)):
        chunk = content[start : start + size]
        chunk = chunk if len(chunk) == size else np.append(chunk, whole)
        parts[_CHUNK.format(path, number)] = zstd.encode(chunk)

    async def write() -> None:
        await store.delete_dir(path)
        for key, part in parts.items():
            await store.set(key, buffer.from_bytes(part))

    sync(write())


def read_bytes(store: Any, path: str) -> ByteArray | None:
    """Read an array of bytes; None where there is none."""
    import zarr
    from numcodecs.zstd import Zstd
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    async def read(key: str) -> Any:
        found = await store.get(key, default_buffer_prototype())
        return None if found is None else found.to_bytes()

    text = sync(read(_METADATA.format(path)))
    if text is None:
        return None
    metadata = json.loads(text)
    if [codec["name"] for codec in metadata["codecs"]] != ["bytes", "zstd"]:
        return np.asarray(zarr.open_array(store, path=path, mode="r")[...])
    (length,), (size,) = metadata["shape"], metadata["chunk_grid"]["configuration"]["chunk_shape"]
    content, zstd = np.empty((-(-length // size), size), np.uint8), Zstd()
    for number, out in enumerate(content):
        key = _CHUNK.format(path, number)
        chunk = sync(read(key))
        if chunk is None:
            raise KeyError(key)
        zstd.decode(chunk, out)
    return content.reshape(-1)[:length]


def narrow(values: AnyArray) -> AnyArray:
    """Return integers in the narrowest signed type that holds them; other values as they are."""
    if values.dtype.kind != "i":
        return values
    least = min(int(values.min(initial=0)), -1 - int(values.max(initial=0)))
    return values.astype(np.min_scalar_type(least), copy=False)


def pack(arrays: Arrays) -> ByteArray:
    """Return arrays of numbers as bytes: a table of contents, then the arrays, narrowed."""
    contents: list[Any] = []
    parts: list[Any] = []
    for name, array in arrays.items():
        few = np.ascontiguousarray(narrow(array))
        contents.append([name, array.dtype.str, few.dtype.str, list(array.shape)])
        parts += [few, bytes(-few.nbytes % _WORD)]
    text = json.dumps(contents, separators=(",", ":")).encode()
    head = len(text).to_bytes(_WORD, "little"), text, bytes(-len(text) % _WORD)
    return np.frombuffer(b"".join([*head, *parts]), np.uint8)


def unpack(packed: ByteArray) -> dict[str, AnyArray]:
    """Return the arrays that `pack` was given; views of the bytes, but for narrowed integers."""
    start = _WORD + int.from_bytes(packed[:_WORD].tobytes(), "little")
    arrays: dict[str, AnyArray] = {}
    for name, dtype, stored, shape in json.loads(packed[_WORD:start].tobytes()):
        start += -start % _WORD
        end = start + math.prod(shape) * np.dtype(stored).itemsize
        values = packed[start:end].view(stored).reshape(shape)
        arrays[name] = values.astype(dtype, copy=False)
        start = end
    return arrays
