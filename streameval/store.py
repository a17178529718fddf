"""A transactional store: an icechunk repository, one snapshot a change, and a lock beside it.

    lock       held by the process that writes; on local storage alone
    INSIDE/    the repository: transactional Zarr

Arrays that are written together are packed into one array of bytes: an array of Zarr takes some
milliseconds to be written and to be read, however small it is. Every chunk has a checksum.
Changes are committed one after the other: on a local folder a lock sees to that, in an object
store the second of two commits is refused. Whenever a process is killed, the store is in the
state before its change, or after it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.remote import is_remote
from streameval.errors import OptionError, OutputError, StreamevalError

Arrays = Mapping[str, npt.NDArray[Any]]
Bytes = npt.NDArray[np.uint8]

BRANCH = "main"
CHUNK = 16 << 20  # bytes, at most
MESSAGE = 200  # characters of an error's message that are quoted: icechunk says where, at length

_ALIGNED = 8  # bytes: where each packed array begins
_LENGTH = 8  # bytes that hold the length of the table of contents
_INTEGERS = ("int8", "int16", "int32")


@dataclass(frozen=True)
class Wording:
    """Error messages of a store: templates with ``{place}``, where it lies.

    Attributes
    ----------
    busy : str
        Another process holds the lock; with ``{wait}``, in seconds.
    read, written : str
        The store can't be read, or written; with ``{error}``.
    """

    busy: str
    read: str
    written: str


class Store:
    """A repository with its lock.

    Parameters
    ----------
    location : str or Path
        A local folder, or ``s3://bucket/prefix``, ``gs://bucket/prefix``.
    inside : str
        Folder of the repository in a local folder.
    wording : Wording
    """

    def __init__(self, location: str | Path, inside: str, wording: Wording) -> None:
        self.location = str(location)
        self.local = None if is_remote(self.location) else Path(location).absolute()
        self._inside, self._wording = inside, wording
        self._repository: Any = None

    @property
    def is_open(self) -> bool:
        """Whether `create` or `open` has been called."""
        return self._repository is not None

    @property
    def is_empty(self) -> bool:
        """Whether there has been no commit."""
        return next(iter(self._repository.ancestry(branch=BRANCH))).parent_id is None

    def exists(self) -> bool:
        """Tell whether there is a repository; what is left of a killed `create` is none."""
        import icechunk

        if self.local is not None:
            return any((self.local / self._inside / "refs").rglob("ref.json"))
        return bool(icechunk.Repository.exists(self._storage()))

    def create(self) -> None:
        """Make the repository, in place of what a killed `create` has left."""
        import icechunk

        if self.local is not None:
            shutil.rmtree(self.local / self._inside, ignore_errors=True)
        self._repository = icechunk.Repository.create(self._storage())

    def open(self) -> None:
        """Open the repository."""
        import icechunk

        self._repository = icechunk.Repository.open(self._storage())

    def snapshots(self) -> list[str]:
        """Return the ids of all snapshots, the first one first."""
        with self.guard("read"):
            ids = [info.id for info in self._repository.ancestry(branch=BRANCH)]
        return ids[-2::-1]  # the last is that of the empty repository

    def readable(self, snapshot: str | None = None) -> Any:
        """Return a session that reads the newest snapshot, or the one of an id."""
        with self.guard("read"):
            if snapshot is None:
                return self._repository.readonly_session(BRANCH)
            return self._repository.readonly_session(snapshot_id=snapshot)

    def writable(self) -> Any:
        """Return a session to write in."""
        with self.guard("written"):
            return self._repository.writable_session(BRANCH)

    def expire(self) -> None:
        """Delete all snapshots but the newest, and what they alone hold."""
        now = datetime.now(UTC)
        self._repository.expire_snapshots(older_than=now)
        self._repository.garbage_collect(now)

    @contextmanager
    def locked(self, wait: float = 0.0) -> Iterator[None]:
        """Hold the lock of a local store; nothing is locked in an object store.

        Parameters
        ----------
        wait : float
            Seconds to wait for another process.

        Raises
        ------
        OutputError
            If another process holds it for longer.
        """
        if self.local is None:
            yield
            return
        from filelock import FileLock, Timeout

        lock = FileLock(self.local / "lock")
        with self.guard("written"):
            self.local.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=wait)
            except Timeout as error:
                text = self._wording.busy.format(place=self.location, wait=f"{wait:g}")
                raise OutputError(text) from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Raise OutputError, in the store's words, where it can't be "read" or "written"."""
        import icechunk

        try:
            yield
        except (StreamevalError, MemoryError):
            raise
        except icechunk.ConflictError as error:
            raise OutputError(
                f"another process has changed {self.location} in the meantime; nothing of this "
                "change has been kept: run it again"
            ) from error
        except Exception as error:  # icechunk's own, zarr's, the codecs', the file system's
            template: str = getattr(self._wording, what)
            place, line = self.location, _in_a_line(error)
            raise OutputError(template.format(place=place, error=line)) from error

    def _storage(self) -> Any:
        import icechunk

        icechunk.set_logs_filter("error")  # that local commits must not be concurrent: see `locked`
        if self.local is not None:
            return icechunk.local_filesystem_storage(str(self.local / self._inside))
        scheme, _, rest = self.location.partition("://")
        bucket, _, prefix = rest.strip("/").partition("/")
        if not bucket or not prefix:
            raise OptionError(
                f"{self.location} names no place in a bucket; expected {scheme}://BUCKET/PREFIX"
            )
        if scheme == "gs":
            return icechunk.gcs_storage(bucket=bucket, prefix=prefix, from_env=True)
        if scheme != "s3":
            raise OptionError(
                f"{self.location}: a ledger lies in a local folder, or at s3:// or gs://"
            )
        endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
        return icechunk.s3_storage(
            bucket=bucket,
            prefix=prefix,
            region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
            endpoint_url=endpoint,
            allow_http="AWS_ALLOW_HTTP" in os.environ,
            force_path_style=endpoint is not None,
            from_env=True,
        )


class View:
    """What a session sees of a store: a snapshot, or a change in the making.

    Parameters
    ----------
    store : Store
    session : icechunk.Session
        Of `Store.readable` or `Store.writable`; nothing of a change is there before `commit`.

    Attributes
    ----------
    root : zarr.Group
    """

    def __init__(self, store: Store, session: Any) -> None:
        import zarr

        self._store, self._session = store, session
        with store.guard("read" if session.read_only else "written"):
            self.root = zarr.open_group(session.store, mode="r" if session.read_only else "a")

    def read(self, path: str) -> dict[str, npt.NDArray[Any]]:
        """Read the arrays that `write` has written."""
        with self._store.guard("read"):
            return unpack(self._bytes(path))

    def read_text(self, path: str) -> bytes:
        """Read what `write_text` has written."""
        with self._store.guard("read"):
            return self._bytes(path).tobytes()

    def write(self, path: str, arrays: Arrays) -> None:
        """Write arrays as one, in place of what is there."""
        self._write(path, pack(arrays))

    def write_text(self, path: str, text: bytes) -> None:
        """Write bytes, in place of what is there."""
        self._write(path, np.frombuffer(text, np.uint8))

    def commit(self, message: str) -> None:
        """Keep what has been written, at once and as a whole."""
        with self._store.guard("written"):
            self._session.commit(message)

    def _bytes(self, path: str) -> Bytes:
        array: Any = self.root[path]
        return np.asarray(array[...])

    def _write(self, path: str, packed: Bytes) -> None:
        with self._store.guard("written"):
            chunks = -(-len(packed) // CHUNK)  # of one size: the last would be filled with zeros
            size = -(-len(packed) // chunks)
            create_array(self.root, path, packed.shape, packed.dtype, (size,))[...] = packed


def create_array(
    group: Any, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]
) -> Any:
    """Return a new array of a group, in place of what is there; its chunks have checksums."""
    from zarr.codecs import ZstdCodec

    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        compressors=ZstdCodec(level=1, checksum=True),
        overwrite=True,
        config={"write_empty_chunks": True},
    )


def check_packages(what: str = "keeping finished work") -> None:
    """Raise OptionError unless the packages that a store needs are installed."""
    from importlib.util import find_spec

    for package in ("icechunk", "filelock"):
        if find_spec(package) is None:
            raise OptionError(
                f"{what} needs the package {package}: pip install 'streameval[checkpoint]'"
            )


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers in the narrowest signed type that holds them; other values as they are."""
    if values.dtype.kind != "i":
        return values
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    for dtype in map(np.dtype, _INTEGERS):
        limits = np.iinfo(dtype)
        if dtype.itemsize >= values.dtype.itemsize:
            break
        if int(limits.min) <= least and most <= int(limits.max):
            return values.astype(dtype)
    return values


def pack(arrays: Arrays) -> Bytes:
    """Return arrays of numbers as bytes: a table of contents, then the arrays, narrowed."""
    narrowed = [narrow(array) for array in arrays.values()]
    contents = [
        [name, array.dtype.str, few.dtype.str, list(array.shape)]
        for (name, array), few in zip(arrays.items(), narrowed, strict=True)
    ]
    text = json.dumps(contents, separators=(",", ":")).encode()
    begin = _aligned(_LENGTH + len(text))
    ends = begin + np.cumsum([_aligned(few.nbytes) for few in narrowed], dtype=np.int64)
    packed = np.zeros(int(ends[-1]) if len(ends) else begin, np.uint8)
    packed[:_LENGTH].view("<i8")[0] = len(text)
    packed[_LENGTH : _LENGTH + len(text)] = np.frombuffer(text, np.uint8)
    for end, few in zip(ends.tolist(), narrowed, strict=True):
        start = end - _aligned(few.nbytes)
        raw = np.ascontiguousarray(few).reshape(-1).view(np.uint8)
        packed[start : start + few.nbytes] = raw
    return packed


def unpack(packed: Bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that `pack` was given; views of the bytes, but for narrowed integers."""
    length = int(packed[:_LENGTH].view("<i8")[0])
    contents = json.loads(packed[_LENGTH : _LENGTH + length].tobytes())
    arrays: dict[str, npt.NDArray[Any]] = {}
    start = _aligned(_LENGTH + length)
    for name, dtype, stored, shape in contents:
        size = math.prod(shape) * np.dtype(stored).itemsize
        values = packed[start : start + size].view(stored).reshape(shape)
        arrays[name] = values.astype(dtype, copy=False)
        start += _aligned(size)
    return arrays


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _in_a_line(error: Exception) -> str:
    """Return an error as one line of a message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) < MESSAGE else text[:MESSAGE] + ' ...'}"
