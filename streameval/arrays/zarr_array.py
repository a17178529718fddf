"""Zarr arrays, v2 and v3, in a local folder or in an object store.

Zarr reads a chunk that is absent as the fill value, so that a gallery half written would be
evaluated as rows of zeros without a word: every chunk must be there. Local arrays are read through
the `zarrs` codec pipeline, where that knows the codecs.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import (
    Array,
    Shape,
    Spans,
    choose_key,
    chunks_of_block,
    native_dtype,
    reading,
    region,
    slices,
)
from streameval.arrays.objects import ObjectArray
from streameval.arrays.remote import METADATA, explain, remote_store
from streameval.errors import InputError
from streameval.typing import AnyArray

# zarr's configuration and Python's filters of warnings belong to the whole process: both are
# changed only while an array is opened, by one thread at a time.
_OPENING = threading.Lock()

_FAST = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
_DEFAULT = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
_COPIES = 3  # of a chunk that is being decoded: encoded, decoded and, say, transposed
_DEFAULT_CONCURRENCY = 10  # chunks in flight in the default pipeline; zarrs has a thread a core
_ABSENT = np.iinfo(np.uint64).max  # offset and size of an absent chunk in a shard's index
_COUNTED = 1000  # absent chunks: a shape may declare any number of them


def open_zarr(path: Path | str, key: str | None, uri: str) -> Array:
    """Open a Zarr array and check that every chunk of it has been written.

    A str is a URL: there an absent chunk is an error once it is read. A local group needs no key
    where it holds one array only.
    """
    key = (key or "").strip("/")
    if isinstance(path, str):
        return ZarrArray(path.rstrip("/"), key, uri)
    if not path.is_dir():
        raise InputError(f"{uri}: {path} is a file; a Zarr array or group is a folder")
    with _opening(uri):
        names = _arrays_in_group(path, key)
    if names is not None:
        key, uri = choose_key(path, None, [f"{key}/{name}".lstrip("/") for name in names], "array")
    array = ZarrArray(path, key, uri)
    check_complete(array.zarr, path / key, uri)
    return array


class ZarrArray(Array):
    """A Zarr array; `open_zarr` also checks that it is complete."""

    def __init__(self, path: Path | str, key: str, uri: str) -> None:
        from zarrs.pipeline import UnsupportedMetadataError

        with _opening(uri):
            self.zarr: Any = _open(path, key, _DEFAULT, uri)
            self.uri = uri
            self._declare()
            # zarrs reads no strings, and opens object stores again, in its own way.
            self._fast = self.dtype.kind in "iuf" and isinstance(path, Path)
            if self._fast:
                try:
                    self.zarr = _open(path, key, _FAST, uri)
                except UnsupportedMetadataError:  # a codec or filter that zarrs doesn't know
                    self._fast = False
        self._checked: set[Shape] = set()  # shards of an object store
        self._origin = path.absolute() if isinstance(path, Path) else path, key, uri

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._origin

    def _declare(self) -> None:
        """Take shape, dtype and chunks of the array."""
        self.shape = tuple(self.zarr.shape)
        self.dtype = native_dtype(self.uri, self.shape, self.zarr.dtype)
        self.chunks = tuple(self.zarr.chunks)
        _refuse_pickle(self.zarr.metadata, self.uri)

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return an upper estimate of the chunks held, encoded and decoded, during a read.

        Each thread holds the chunk that it decodes. Chunks that the block covers in part are
        all held decoded until the read ends, unless they can be read by byte range.
        """
        block = (rows, columns)[: len(self.shape)]
        chunk_bytes = math.prod(self.chunks) * self.dtype.itemsize
        touched, whole = chunks_of_block(block, self.shape, self.chunks)
        threads = (os.cpu_count() or 1) if self._fast else _DEFAULT_CONCURRENCY
        scratch = _COPIES * chunk_bytes * min(touched, threads)
        if self.zarr.shards:  # one that is covered in whole is held encoded
            _, shards = chunks_of_block(block, self.shape, self.zarr.shards)
            shard_bytes = math.prod(self.zarr.shards) * self.dtype.itemsize
            scratch += shard_bytes * min(shards, threads)
        elif self.zarr.compressors or not self._fast:
            scratch += chunk_bytes * (touched - whole)
        return int(scratch)

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        from zarr.core.buffer import default_buffer_prototype

        if self.zarr.shards and isinstance(self._origin[0], str):
            self._check_shards(spans)
        if self.dtype.kind in "iuf":
            # Into our own buffer: whatever the order and byte order of the array, zarrs decodes
            # into C order and native byte order only.
            prototype = default_buffer_prototype()
            buffer = prototype.nd_buffer.from_numpy_array(out)
            self.zarr.get_basic_selection(slices(spans), out=buffer, prototype=prototype)
        else:
            out[...] = self.zarr[slices(spans)]

    def _check_shards(self, spans: Spans) -> None:
        """Check that the shards of a block hold all their chunks, by a small request for each."""
        edges = zip(spans, self.zarr.shards, strict=True)
        for at in product(
            *(range(start // edge, -(-stop // edge)) for (start, stop), edge in edges)
        ):
            if at not in self._checked:
                for absent in _absent_in_shard(self.zarr, at):
                    raise FileNotFoundError(f"{absent} is absent: the array was not written whole")
                self._checked.add(at)

    def _remedy(self, error: Exception) -> str:
        if remote := explain(error):
            return remote
        # The codecs raise RuntimeError, OSError, ValueError; zarrs tells a system's error in words.
        if getattr(error, "errno", None) is not None or "(os error " in str(error):
            return "the file system refuses it; check the permissions of the chunks, and the disk"
        return f"a chunk of {self.chunks} there is truncated or corrupt; write those rows again"


class OpenZarrArray(ObjectArray, ZarrArray):
    """A Zarr array that the caller holds, whose store has no path: in memory, or another's."""

    kind = "Zarr array"

    def __init__(self, held: Any, name: str | None = None) -> None:
        ObjectArray.__init__(self, held, name)
        self.zarr, self._fast, self._checked = held, False, set()
        self._declare()
        self._origin = "", held.path, self.uri  # shards are checked as those of an object store


def open_zarr_array(held: Any, name: str | None) -> Array:
    """Open an array of zarr: by its path if it is in a local folder.

    Raises
    ------
    InputError
        If it is not complete, or not what it was when it was opened.
    """
    from zarr.storage import LocalStore

    if not isinstance(held.store, LocalStore):
        opened = OpenZarrArray(held, name)
        check_complete(held, None, opened.uri)
        return opened
    root, key = Path(held.store.root), held.path
    array = ZarrArray(root, key, f"{root}::{key}" if key else str(root))
    for what in ("shape", "dtype", "chunks", "shards"):
        if getattr(array.zarr, what) != getattr(held, what):
            raise InputError(
                f"{array.uri} has been written anew since it was opened: its {what} is "
                f"{getattr(array.zarr, what)}, and was {getattr(held, what)}; open it again"
            )
    check_complete(array.zarr, root / key, array.uri)
    return array


@contextmanager
def _opening(uri: str) -> Iterator[None]:
    """Open something of zarr's, one thread at a time; say what is wrong in our own words."""

    def remedy(error: Exception) -> str:
        return explain(error) or "write it again, or convert it to .npy"

    with _OPENING, warnings.catch_warnings(), reading(uri, "opened as Zarr", remedy):
        # Data types and codecs outside the v3 specification, and stray files in a group, are
        # no concern of someone who only reads.
        warnings.simplefilter("ignore")
        yield


def _open(path: Path | str, key: str, settings: dict[str, Any], uri: str) -> Any:
    """Open the array under these settings, which it keeps."""
    import zarr
    from zarr.errors import ArrayNotFoundError

    try:
        with zarr.config.set(settings):
            return zarr.open_array(_store(path), path=key, mode="r")
    except ArrayNotFoundError as error:
        names = _arrays_in_group(path, "")
        held = ", ".join(names or ()) or "none"
        if key and not names and isinstance(path, Path) and is_zarr(path):
            problem = f"{path} is a Zarr array itself, or an empty group; give it without a key"
        elif key and names is not None:
            problem = f"no array {key!r} in group {path}. Arrays in it: {held}"
        else:
            problem = (
                f"folder {path} is no Zarr array or group (no zarr.json, .zarray or .zgroup in "
                f"it); give the folder that has one, and name the array in it: {held}"
            )
        raise InputError(f"{uri}: {problem}") from error


def is_zarr(path: Path) -> bool:
    """Tell whether a folder is a Zarr array or group."""
    return any((path / name).is_file() for name in METADATA)


def _store(path: Path | str) -> Any:
    from zarr.storage import LocalStore

    return LocalStore(path, read_only=True) if isinstance(path, Path) else remote_store(path)


def _arrays_in_group(path: Path | str, key: str) -> list[str] | None:
    """Return the names of the arrays in a group, nested ones too; None if it is no group."""
    import zarr

    try:
        group = zarr.open_group(_store(path), path=key, mode="r", use_consolidated=False)
    except (ValueError, FileNotFoundError):
        return None
    if str(path).startswith("http"):  # web servers can't be asked for what is there
        return []
    members = group.members(max_depth=None)
    return sorted(name for name, node in members if isinstance(node, zarr.Array))


def _refuse_pickle(metadata: Any, uri: str) -> None:
    """Refuse v2 codecs that unpickle: that would run whatever code the file holds."""
    codecs = (*(getattr(metadata, "filters", None) or ()), getattr(metadata, "compressor", None))
    if any(getattr(codec, "codec_id", None) == "pickle" for codec in codecs):
        raise InputError(
            f"{uri} is stored with the codec 'pickle', which is never loaded; write it without"
        )


def check_complete(array: Any, folder: Path | None, uri: str) -> None:
    """Check that every chunk is there, also within shards; no values are read.

    Parameters
    ----------
    array : zarr.Array
    folder : Path or None
        Where its metadata lie; None where the store has to be asked what is there.
    uri : str
    """
    absent = _absent_chunks(array, folder)
    first = next(absent, None)
    if first is not None:
        more = sum(1 for _ in islice(absent, _COUNTED))
        count = f"more than {_COUNTED}" if more == _COUNTED else str(more + 1)
        raise InputError(
            f"{uri} is incomplete: {count} of its chunks are absent, the first is {first}. Zarr "
            f"would read them as {array.fill_value}: write the array again; where that value is "
            'meant, with config={"write_empty_chunks": True}'
        )


def _absent_chunks(array: Any, folder: Path | None) -> Iterator[str]:
    """Yield what is absent, in words: chunks, shards and chunks of shards.

    Neighbours in the grid share a folder, which is listed once: a look at every single file
    would take minutes on a network file system.
    """
    stored = array.shards or array.chunks
    grid = tuple(-(-size // edge) for size, edge in zip(array.shape, stored, strict=True))
    keyed = ((at, array.metadata.encode_chunk_key(at)) for at in _coordinates(grid))
    for parent, members in groupby(keyed, key=lambda entry: entry[1].rpartition("/")[0]):
        there = _names_in(array.store_path / parent if folder is None else folder / parent)
        for at, key in members:
            if key.rpartition("/")[2] not in there:
                yield f"{key} ({_cell(at, stored, array.shape)})"
            elif array.shards:
                yield from _absent_in_shard(array, at)


def _names_in(folder: Any) -> set[str]:
    """Return the names in a folder, or at a place in a store; none where there is no such."""
    if isinstance(folder, Path):
        if not folder.is_dir():
            return set()
        return {entry.name for entry in os.scandir(folder) if entry.is_file()}  # no link to nothing
    from zarr.core.sync import sync

    async def names() -> set[str]:
        return {name async for name in folder.store.list_dir(folder.path)}

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


def _absent_in_shard(array: Any, at: Shape) -> Iterator[str]:
    """Yield the chunks that are absent from a shard, in words.

    Its index holds the offset and the size of each chunk (Zarr v3 specification, codec
    `sharding_indexed`); one that is encoded otherwise than plainly is not read.
    """
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest
    from zarr.core.sync import sync

    codec = array.metadata.codecs[0]
    names = [type(inner).__name__ for inner in codec.index_codecs]
    if names not in (["BytesCodec"], ["BytesCodec", "Crc32cCodec"]):
        return
    inside = tuple(s // c for s, c in zip(array.shards, array.chunks, strict=True))
    length = 16 * math.prod(inside)
    size = length + 4 * (len(names) - 1)  # with the checksum
    at_start = _word(codec.index_location) == "start"
    request = RangeByteRequest(0, size) if at_start else SuffixByteRequest(size)
    key = array.metadata.encode_chunk_key(at)
    shard = array.store_path / key
    found = sync(shard.get(byte_range=request)).to_bytes()
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
            yield f"chunk of {_cell(chunk.tolist(), array.chunks, array.shape)} of shard {key}"


def _cell(index: Sequence[int], edges: Shape, shape: Shape) -> str:
    """Return what messages call a cell of a grid."""
    axes = zip(index, edges, shape, strict=True)
    return region((i * edge, min((i + 1) * edge, size)) for i, edge, size in axes)
