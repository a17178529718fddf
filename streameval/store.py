"""A transactional store: an icechunk repository, one snapshot a change, and a lock beside it.

    lock       held by the process that writes; on local storage alone
    INSIDE/    the repository: transactional Zarr

Arrays that are written together are packed into one array of bytes: an array of Zarr takes some
milliseconds to be written and to be read, however small it is. The digests of all arrays are kept
in one more, ``digests``, and what is read is compared with them: a damaged file is an error, as is
one that is lost, for which Zarr reads zeros.
Changes are committed one after the other: on a local folder a lock sees to that, in an object
store the second of two commits is refused. Whenever a process is killed, the store is in the
state before its change, or after it.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import json
import math
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.remote import is_remote
from streameval.errors import OptionError, OutputError, StreamevalError
from streameval.typing import AnyArray, ByteArray

Arrays = Mapping[str, AnyArray]

BRANCH = "main"
CHUNK = 16 << 20  # bytes, at most
DIGESTS = "digests"
MESSAGE = 200  # characters of an error's message that are quoted: icechunk says where, at length

FORMAT = {"spec_version": 1}  # of a repository: every version of icechunk reads and writes it

_TIMES = re.compile(r"timestamp.* parent: `([^.`]+).*child: `([^.`]+)")  # what icechunk says
_LATE = 5.0  # seconds that threads of icechunk are waited for as Python ends
_WORD = 8  # bytes that hold the length of the table of contents; packed arrays begin at multiples


class Store:
    """A repository with its lock.

    Parameters
    ----------
    location : str or Path
        A local folder, or ``s3://bucket/prefix``, ``gs://bucket/prefix``.

    Attributes
    ----------
    inside : str
        Folder of the repository in a local folder.
    busy, read, written : str
        Error messages: another process holds the lock for longer than ``{wait}`` s; the store
        ``{place}`` can't be read, or written, because of ``{error}``, with what to do.
    """

    inside: str
    busy: str
    read: str
    written: str

    def __init__(self, location: str | Path) -> None:
        self.location = str(location)
        self.local = None if is_remote(self.location) else Path(location).absolute()
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
        """Whether there is a repository; what a killed `create` leaves is none."""
        import icechunk

        if self.local is not None:
            return any((self.local / self.inside / "refs").rglob("ref.json"))
        return bool(icechunk.Repository.exists(self._storage()))

    def create(self) -> None:
        """Make the repository, in place of what a killed `create` has left."""
        import icechunk

        if self.local is not None:
            shutil.rmtree(self.local / self.inside, ignore_errors=True)
        create: Any = icechunk.Repository.create
        chosen = FORMAT if hasattr(icechunk, "SpecVersion") else {}  # icechunk 1 knows no other
        self._repository = create(self._storage(), **chosen)

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
            at = {"branch": BRANCH} if snapshot is None else {"snapshot_id": snapshot}
            return self._repository.readonly_session(**at)

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

        Raises OutputError if another process holds it for longer than `wait` seconds.
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
                raise OutputError(
                    self.busy.format(place=self.location, wait=f"{wait:g}")
                ) from error
        try:
            yield
        finally:
            lock.release()

    def refusal(self, what: str, reason: str) -> OutputError:
        """Return the error of a store that can't be "read" or "written"."""
        template: str = getattr(self, what)
        return OutputError(template.format(place=self.location, error=reason))

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
            raise self.refusal(what, _reason(error)) from error

    def _storage(self) -> Any:
        import icechunk

        icechunk.set_logs_filter(
            "off"
        )  # errors are raised; of concurrent local commits see `locked`
        if self.local is not None:
            return icechunk.local_filesystem_storage(str(self.local / self.inside))
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
        known = os.environ
        endpoint = known.get("AWS_ENDPOINT_URL") or known.get("AWS_ENDPOINT")
        return icechunk.s3_storage(
            bucket=bucket,
            prefix=prefix,
            region=known.get("AWS_REGION") or known.get("AWS_DEFAULT_REGION"),
            endpoint_url=endpoint,
            allow_http="AWS_ALLOW_HTTP" in known,
            force_path_style=endpoint is not None,
            from_env=True,
        )


class View:
    """What a session sees of a store: a snapshot, or a change in the making.

    The session is that of `Store.readable`, or of `Store.writable`, which ends with `commit`.

    Attributes
    ----------
    root : zarr.Group
    digests : dict of str to str
        Of each array, by path.
    digested : bool
        Whether the snapshot has them; those of earlier versions have none.
    """

    def __init__(self, store: Store, session: Any) -> None:
        import zarr

        self._store, self._session = store, session
        with store.guard("read" if session.read_only else "written"):
            self.root = zarr.open_group(session.store, mode="r" if session.read_only else "a")
            self.digested = DIGESTS in self.root
            self.digests: dict[str, str] = {}
            if self.digested:
                found, _, content = self._bytes(DIGESTS).tobytes().partition(b"\n")
                self.compare(DIGESTS, found.decode(errors="replace"), _digest(content))
                self.digests = json.loads(content)

    def read(self, path: str) -> dict[str, AnyArray]:
        """Read the arrays that `write` has written."""
        with self._store.guard("read"):
            return unpack(self.read_bytes(path))

    def read_bytes(self, path: str) -> ByteArray:
        """Read what `write_bytes` has written."""
        with self._store.guard("read"):
            content = self._bytes(path)
            self.check(path, _digest(content))
            return content

    def check(self, path: str, found: str) -> None:
        """Raise OutputError unless the digest of what was read is that of what was written.

        Of a snapshot without digests, it is taken as it is.
        """
        if self.digested:
            self.compare(path, self.digests.get(path), found)
        else:
            self.digests[path] = found

    def compare(self, path: str, known: str | None, found: str) -> None:
        """Raise OutputError unless two digests of an array are equal."""
        if known != found:
            raise self._store.refusal(
                "read", f"a file is damaged: the digest of {path!r} is {found}, not {known}"
            )

    def write(self, path: str, arrays: Arrays) -> None:
        """Write arrays as one, in place of what is there."""
        self.write_bytes(path, pack(arrays))

    def write_bytes(self, path: str, content: bytes | ByteArray) -> None:
        """Write bytes, in place of what is there."""
        packed = np.frombuffer(content, np.uint8)
        with self._store.guard("written"):
            chunks = -(-len(packed) // CHUNK)  # of one size: the last would be filled with zeros
            size = -(-len(packed) // chunks)
            create_array(self.root, path, packed.shape, packed.dtype, (size,))[...] = packed
            self.digests[path] = _digest(packed)

    def delete(self, path: str) -> None:
        """Delete what `write_bytes` has written."""
        with self._store.guard("written"):
            del self.root[path]
            self.digests.pop(path, None)

    def commit(self, message: str) -> None:
        """Keep what has been written, at once and as a whole."""
        self.digests.pop(DIGESTS, None)
        content = json.dumps(self.digests, separators=(",", ":")).encode()
        self.write_bytes(DIGESTS, _digest(content).encode() + b"\n" + content)
        with self._store.guard("written"):
            self._session.commit(message)

    def _bytes(self, path: str) -> ByteArray:
        array: Any = self.root[path]
        return np.asarray(array[...])


@atexit.register
def _let_go() -> None:
    """Wait until the threads that Python did not start have returned from it.

    One of icechunk's may still be handing over what has been taken already. As Python ends, the
    process would be aborted with it, until Python 3.14.
    """
    end = time.monotonic() + _LATE
    while sys._current_frames().keys() - {thread.ident for thread in threading.enumerate()}:
        if time.monotonic() > end:
            return
        time.sleep(1e-3)


def _reason(error: Exception) -> str:
    """Return why a store can't be read or written; where it is known, with what to do."""
    text = " ".join(str(error).split())
    if any(os.strerror(number) in text for number in (errno.ENOSPC, errno.EDQUOT)):
        return "the disk is full; make room"
    times = _TIMES.search(text)
    if times is not None:
        last, now = times.groups()
        return f"the clock was set back: it is {now}, and what is there is of {last}; set it right"
    text = text if len(text) < MESSAGE else f"{text[:MESSAGE]} ..."
    return f"{type(error).__name__}: {text}"


def _digest(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


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
