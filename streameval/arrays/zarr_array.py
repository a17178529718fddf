"""Zarr arrays, v2 and v3, in a local folder or in an object store.

Local arrays are read by chunk files, where their values are stored as they are or by Blosc; else
through the `zarrs` codec pipeline, where that knows the codecs.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
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
    slices,
)
from streameval.arrays.chunk_files import ChunkFiles, NotReadError, chunk_files
from streameval.arrays.complete import (
    absent_in_shard,
    check_complete,
    check_shards,
    complete,
    remedy,
)
from streameval.arrays.objects import ObjectArray
from streameval.arrays.remote import METADATA, explain, remote_store
from streameval.arrays.witness import witness
from streameval.errors import InputError
from streameval.typing import AnyArray, IntArray

# zarr's configuration and Python's filters of warnings belong to the whole process: both are
# changed only while an array is opened, by one thread at a time.
_OPENING = threading.Lock()

_FAST = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
_DEFAULT = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
_COPIES = 3  # of a chunk that is being decoded: encoded, decoded and, say, transposed
_DEFAULT_CONCURRENCY = 10  # chunks in flight in the default pipeline; zarrs has a thread a core


def open_zarr(path: Path | str, key: str | None, uri: str) -> Array:
    """Open a Zarr array; a str is a URL. A local group needs no key if it holds one array only."""
    key = (key or "").strip("/")
    if isinstance(path, str):
        return ZarrArray(path.rstrip("/"), key, uri)
    if not path.is_dir():
        raise InputError(f"{uri}: {path} is a file; a Zarr array or group is a folder")
    with _opening(uri):
        names = _arrays_in_group(path, key)
    if names is not None:
        key, uri = choose_key(path, None, [f"{key}/{name}".lstrip("/") for name in names], "array")
    return ZarrArray(path, key, uri)


class ZarrArray(Array):
    """A Zarr array, whose chunks must be there unless fill values are meant."""

    in_files = True
    _chunk_files: ChunkFiles | None = None

    def __init__(self, path: Path | str, key: str, uri: str) -> None:
        from zarrs.pipeline import UnsupportedMetadataError

        with _opening(uri):
            self.zarr: Any = _open(complete(_store(path)), key, _DEFAULT, uri, path)
            self.uri = uri
            self._declare()
            # zarrs reads no strings, and opens object stores again, in its own way.
            self._fast = self.dtype.kind in "iuf" and isinstance(path, Path)
            if self._fast:
                try:
                    self.zarr = _open(_store(path), key, _FAST, uri, path)
                except UnsupportedMetadataError:  # a codec or filter that zarrs doesn't know
                    self._fast = False
        self._checked: set[Shape] = set()  # shards of an object store
        if self._fast and isinstance(path, Path):
            self._chunk_files = chunk_files(self.zarr, self.dtype, path.absolute() / key)
        self._origin = path.absolute() if isinstance(path, Path) else path, key, uri

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._origin, {"fill_missing": self.fill_missing}

    @property
    def _folder(self) -> Path | None:
        """Where its metadata lie, if that is a folder."""
        path, key, _ = self._origin
        return path / key if isinstance(path, Path) else None

    def check_complete(self) -> None:
        """Check that every chunk is there; of an object store, once it is read."""
        if self._folder is not None:
            check_complete(self.zarr, self._folder, self.uri, filled=self.fill_missing)
        elif not self.fill_missing:
            check_shards(self.zarr, self.uri)

    def _declare(self) -> None:
        """Take shape, dtype and chunks of the array."""
        self.shape = tuple(self.zarr.shape)
        self.dtype = native_dtype(self.uri, self.shape, self.zarr.dtype)
        self.chunks = tuple(self.zarr.chunks)
        _refuse_pickle(self.zarr.metadata, self.uri)

    @property
    def _direct(self) -> ChunkFiles | None:
        """Its chunk files, where all of them must be there and these can be read."""
        return None if self.fill_missing else self._chunk_files

    @property
    def grain(self) -> Shape | None:
        """What is read at least to know an entry: nothing else, or its chunk."""
        return None if self._direct is None else self._direct.grain

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return an upper estimate of the chunks held, encoded and decoded, during a read.

        Each thread holds the chunk that it decodes. Chunks that the block covers in part are
        all held decoded until the read ends, unless they can be read by byte range.
        """
        if self._direct is not None:
            return self._direct.scratch
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
        if self._direct is not None:
            seen_by = witness()
            digests = np.zeros(0, np.uint64) if seen_by is None else seen_by.room(self, spans)
            with suppress(NotReadError):
                self._direct.fill(out, spans, digests)
                if seen_by is not None:
                    seen_by.digested(self, spans, digests)
                return
        from zarr.core.buffer import default_buffer_prototype

        if not self._fast:
            self.zarr.store.fill_missing = self.fill_missing
        if self.dtype.kind in "iuf":
            # Into our own buffer: whatever the order and byte order of the array, zarrs decodes
            # into C order and native byte order only.
            prototype = default_buffer_prototype()
            buffer = prototype.nd_buffer.from_numpy_array(out)
            self.zarr.get_basic_selection(slices(spans), out=buffer, prototype=prototype)
        else:
            out[...] = self.zarr[slices(spans)]
        if not self.fill_missing:
            self._check_read(spans)

    def _pick(self, out: AnyArray, rows: IntArray, columns: IntArray) -> None:
        if self._direct is not None:
            with suppress(NotReadError):
                self._direct.pick(out, rows, columns)
                return
        super()._pick(out, rows, columns)

    def _check_read(self, spans: Spans) -> None:
        """Check that the chunks of a block that was read are there, as far as no store tells."""
        for at in self._stored_in(spans):
            if self._folder is None:
                self._check_shard(at)
            elif self._fast and not (self._folder / self._key_of(at)).is_file():
                raise FileNotFoundError(f"chunk {self._key_of(at)} is absent")

    def _stored_in(self, spans: Spans) -> Iterator[Shape]:
        """Yield the indices of the chunks, or shards, that a block lies in."""
        edges = zip(spans, self.zarr.shards or self.chunks, strict=True)
        return product(*(range(start // edge, -(-stop // edge)) for (start, stop), edge in edges))

    def _key_of(self, at: Shape) -> str:
        return str(self.zarr.metadata.encode_chunk_key(at))

    def _check_shard(self, at: Shape) -> None:
        """Check that a shard holds all its chunks, by a small request."""
        if self.zarr.shards and at not in self._checked:
            for absent in absent_in_shard(self.zarr, at):
                raise FileNotFoundError(f"{absent} is absent")
            self._checked.add(at)

    def _remedy(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return remedy(self.zarr)
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
        with _opening(self.uri):
            self.zarr = _open(complete(held.store), held.path, _DEFAULT, self.uri, held.store)
        _check_as_held(self.zarr, held, self.uri)
        self._fast, self._origin = False, ("", held.path, self.uri)
        self._declare()

    def check_complete(self) -> None:
        """Check that every chunk is there."""
        if not self.fill_missing:
            check_complete(self.zarr, None, self.uri)

    def _check_shard(self, at: Shape) -> None:
        """Check that a shard holds all its chunks, each time: the caller may write it again."""
        self._checked = set()
        super()._check_shard(at)


def open_zarr_array(held: Any, name: str | None) -> Array:
    """Open an array of zarr: by its path if it is in a local folder.

    Raises
    ------
    InputError
        If it is not what it was when it was opened.
    """
    from zarr.storage import LocalStore

    if not isinstance(held.store, LocalStore):
        return OpenZarrArray(held, name)
    root, key = Path(held.store.root), held.path
    array = ZarrArray(root, key, f"{root}::{key}" if key else str(root))
    _check_as_held(array.zarr, held, array.uri)
    return array


def _check_as_held(array: Any, held: Any, uri: str) -> None:
    for what in ("shape", "dtype", "chunks", "shards"):
        if getattr(array, what) != getattr(held, what):
            raise InputError(
                f"{uri} has been written anew since it was opened: its {what} is "
                f"{getattr(array, what)}, and was {getattr(held, what)}; open it again"
            )


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


def _open(store: Any, key: str, settings: dict[str, Any], uri: str, path: Any) -> Any:
    """Open the array in the store at a path under these settings, which it keeps."""
    import zarr
    from zarr.errors import ArrayNotFoundError

    try:
        with zarr.config.set(settings):
            return zarr.open_array(store, path=key, mode="r")
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


def _store(place: Any) -> Any:
    """Return the store at a path or URL; a store as it is."""
    from zarr.storage import LocalStore

    if isinstance(place, Path):
        return LocalStore(place, read_only=True)
    return remote_store(place) if isinstance(place, str) else place


def _arrays_in_group(path: Any, key: str) -> list[str] | None:
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
