"""Zarr arrays, v2 and v3, in a local folder or in an object store.

Of a folder they are read through the `zarrs` codec pipeline, where that knows the codecs.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import AnyArray, Array, Span, native_dtype
from streameval.arrays.remote import explain, remote_store
from streameval.arrays.zarr_chunks import check_complete, check_shards
from streameval.errors import InputError

# zarr's configuration and Python's filters of warnings belong to the whole process: both are
# changed only while an array is opened, by one thread at a time.
_OPENING = threading.Lock()

_FAST = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
_DEFAULT = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
_COPIES = 3  # of a chunk that is being decoded: encoded, decoded and, say, transposed
_DEFAULT_CONCURRENCY = 10  # chunks in flight in the default pipeline; zarrs has a thread a core


def open_zarr(path: Path, key: str | None, uri: str) -> Array:
    """Open a Zarr array and check that every chunk of it has been written.

    Parameters
    ----------
    path : Path
        An array, or a group.
    key : str or None
        Name of the array in the group, with slashes where it is nested. A group without one
        will do where it holds one array only.
    uri : str

    Raises
    ------
    InputError
        If there is no such array, it can't be evaluated, or chunks of it are absent: Zarr
        would read them as the fill value.
    """
    key = (key or "").strip("/") or None
    if not path.is_dir():
        raise InputError(f"{uri}: {path} is a file; a Zarr array or group is a folder")
    with _opening(uri):
        names = _arrays_in_group(path, key)
    if names is not None:
        if len(names) != 1:
            raise InputError(
                f"{uri} is a Zarr group of {len(names)} arrays; name one as FOLDER::KEY. "
                f"Arrays in it: {', '.join(names) or 'none'}"
            )
        key = f"{key}/{names[0]}" if key else names[0]
        uri = f"{path}::{key}"
    array = ZarrArray(path, key, uri)
    check_complete(array.zarr, path / key if key else path, uri)
    return array


def open_remote(url: str, key: str | None, uri: str) -> Array:
    """Open a Zarr array in an object store; a chunk that is absent is an error once it is read.

    Parameters
    ----------
    url : str
        Of an array, or a group.
    key : str or None
        Name of the array in the group.
    uri : str

    Raises
    ------
    InputError
        If there is no such array, it can't be evaluated, or the store refuses it.
    """
    return ZarrArray(url.rstrip("/"), (key or "").strip("/") or None, uri)


class ZarrArray(Array):
    """A Zarr array; `open_zarr` also checks that it is complete.

    Parameters
    ----------
    path : Path or str
        The array's folder, or that of the group that `key` is in; a str: its URL.
    key : str or None
    uri : str

    Attributes
    ----------
    zarr : zarr.Array
    """

    def __init__(self, path: Path | str, key: str | None, uri: str) -> None:
        from zarrs.pipeline import UnsupportedMetadataError

        with _opening(uri):
            self.zarr: Any = _open(path, key, _DEFAULT, uri)
            self.uri = uri
            self.shape = tuple(self.zarr.shape)
            self.dtype = native_dtype(uri, self.shape, self.zarr.dtype)
            self.chunks = tuple(self.zarr.chunks)
            _refuse_pickle(self.zarr.metadata, uri)
            # zarrs reads no strings, and opens object stores again, in its own way.
            self._fast = self.dtype.kind in "iuf" and isinstance(path, Path)
            if self._fast:
                try:
                    self.zarr = _open(path, key, _FAST, uri)
                except UnsupportedMetadataError:  # a codec or filter that zarrs doesn't know
                    self._fast = False
        self._seen: set[tuple[int, ...]] = set()
        self._origin = (path.absolute() if isinstance(path, Path) else path, key, uri)

    def __reduce__(self) -> tuple[type[ZarrArray], tuple[Path | str, str | None, str]]:
        return type(self), self._origin

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return an upper estimate of the chunks held, encoded and decoded, during a read.

        Each thread holds the chunk that it decodes. Chunks that the block covers in part are
        all held decoded until the read ends, unless they can be read by byte range.
        """
        block = (rows, columns)[: len(self.shape)]
        chunk_bytes = math.prod(self.chunks) * self.dtype.itemsize
        touched, whole = _chunks_of_block(block, self.shape, self.chunks)
        threads = (os.cpu_count() or 1) if self._fast else _DEFAULT_CONCURRENCY
        scratch = _COPIES * chunk_bytes * min(touched, threads)
        if self.zarr.shards:  # one that is covered in whole is held encoded
            _, shards = _chunks_of_block(block, self.shape, self.zarr.shards)
            shard_bytes = math.prod(self.zarr.shards) * self.dtype.itemsize
            scratch += shard_bytes * min(shards, threads)
        elif self.zarr.compressors or not self._fast:
            scratch += chunk_bytes * (touched - whole)
        return int(scratch)

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        from zarr.core.buffer import default_buffer_prototype

        selection = tuple(slice(*span) for span in spans)
        try:
            if self.zarr.shards and not isinstance(self._origin[0], Path):
                check_shards(self.zarr, spans, self._seen)
            if self.dtype.kind in "iuf":
                # Into our own buffer: whatever the order and byte order of the array,
                # zarrs decodes into C order and native byte order only.
                prototype = default_buffer_prototype()
                buffer = prototype.nd_buffer.from_numpy_array(out)
                self.zarr.get_basic_selection(selection, out=buffer, prototype=prototype)
            else:
                out[...] = self.zarr[selection]
        except MemoryError:
            raise
        except Exception as error:  # the codecs raise RuntimeError, OSError, ValueError, ...
            where = " and ".join(
                f"{axis} {start}:{stop}"
                for axis, (start, stop) in zip(("rows", "columns"), spans, strict=False)
            )
            remote = explain(error)
            problem = remote or (
                "the file system refuses it; check the permissions of the chunks, and the disk"
                if _is_of_file_system(error)
                else f"a chunk of {self.chunks} there is truncated or corrupt; write those rows "
                "again"
            )
            raise InputError(
                f"{self.uri} {self.shape} can't be read at {where} "
                f"({type(error).__name__}: {error}): {problem}"
            ) from error

    def _take(self, out: AnyArray, rows: npt.NDArray[np.int64]) -> None:
        """Read chunk by chunk, and of each chunk the span of its rows only."""
        breaks = np.flatnonzero(np.diff(rows // self.chunks[0])) + 1
        for first, last in pairwise([0, *breaks.tolist(), len(rows)]):
            span = int(rows[first]), int(rows[last - 1]) + 1
            for columns in self._chunk_columns():
                piece = self.read(span, columns)
                target = out[first:last] if columns is None else out[first:last, slice(*columns)]
                target[...] = piece[rows[first:last] - span[0]]

    def _chunk_columns(self) -> list[Span] | list[None]:
        if len(self.shape) == 1:
            return [None]
        width = self.chunks[1]
        return [
            (start, min(start + width, self.shape[1])) for start in range(0, self.shape[1], width)
        ]


@contextmanager
def _opening(uri: str) -> Iterator[None]:
    """Open something of zarr's, one thread at a time; say what is wrong in our own words."""
    with _OPENING, warnings.catch_warnings():
        # Data types and codecs outside the v3 specification, and stray files in a group, are
        # no concern of someone who only reads.
        warnings.simplefilter("ignore")
        try:
            yield
        except (InputError, MemoryError):
            raise
        except Exception as error:  # unreadable JSON, an unknown codec or data type, ...
            remote = explain(error)
            if remote is not None:
                raise InputError(f"{uri} can't be opened: {remote}") from error
            raise InputError(
                f"{uri} can't be opened as a Zarr array ({type(error).__name__}: {error}); "
                "write it again, or convert it to .npy"
            ) from error


def _open(path: Path | str, key: str | None, settings: dict[str, Any], uri: str) -> Any:
    """Open the array under these settings, which it keeps."""
    import zarr
    from zarr.errors import ArrayNotFoundError

    try:
        with zarr.config.set(settings):
            return zarr.open_array(_store(path), path=key or "", mode="r")
    except ArrayNotFoundError as error:
        names = _arrays_in_group(path, None)
        if key and isinstance(path, Path) and not names:
            itself = any((path / name).is_file() for name in (".zarray", "zarr.json"))
            if itself:
                raise InputError(
                    f"{uri}: {path} is a Zarr array itself, or an empty group; give it without a "
                    "key"
                ) from error
        if key is None or names is None:
            raise InputError(
                f"{uri}: folder {path} is no Zarr array or group (no zarr.json, .zarray or "
                ".zgroup in it); give the folder that has one"
                + (f", and name the array in it: {', '.join(names)}" if names else "")
            ) from error
        found = ", ".join(names) or "none"
        raise InputError(
            f"{uri}: no array {key!r} in group {path}. Arrays in it: {found}"
        ) from error


def _store(path: Path | str) -> Any:
    from zarr.storage import LocalStore

    return LocalStore(path, read_only=True) if isinstance(path, Path) else remote_store(path)


def _arrays_in_group(path: Path | str, key: str | None) -> list[str] | None:
    """Return the names of the arrays in a group, nested ones too; None if it is no group."""
    import zarr

    try:
        group = zarr.open_group(_store(path), path=key or "", mode="r", use_consolidated=False)
    except (ValueError, FileNotFoundError):
        return None
    if not _lists(path):
        return []
    members = group.members(max_depth=None)
    return sorted(name for name, node in members if isinstance(node, zarr.Array))


def _lists(path: Path | str) -> bool:
    """Tell whether a store can be asked for what is in it; web servers can't."""
    return isinstance(path, Path) or not path.startswith("http")


def _refuse_pickle(metadata: Any, uri: str) -> None:
    """Refuse v2 codecs that unpickle: that would run whatever code the file holds."""
    codecs = (*(getattr(metadata, "filters", None) or ()), getattr(metadata, "compressor", None))
    if any(getattr(codec, "codec_id", None) == "pickle" for codec in codecs):
        raise InputError(
            f"{uri} is stored with the codec 'pickle', which is never loaded; write it again "
            "as numbers or strings, without that codec"
        )


def _is_of_file_system(error: Exception) -> bool:
    """Return whether reading failed before decoding; zarrs tells so in words only."""
    return getattr(error, "errno", None) is not None or "(os error " in str(error)


def _chunks_of_block(
    block: tuple[int, ...], shape: tuple[int, ...], chunks: tuple[int, ...]
) -> tuple[int, int]:
    """Return how many chunks a block touches at most, and how many it covers at least."""
    touched, whole = 1, 1
    for size, length, chunk in zip(block, shape, chunks, strict=True):
        if size % chunk == 0 or size >= length:
            along = math.ceil(size / chunk)
            touched, whole = touched * along, whole * along
        else:
            along = min((size - 2) // chunk + 2, math.ceil(length / chunk))
            touched, whole = touched * along, whole * max(0, along - 2)
    return touched, whole
