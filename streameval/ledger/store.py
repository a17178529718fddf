"""Where a ledger lies: an icechunk repository, one snapshot a change.

    lock        held by the process that writes; on local storage alone
    snapshots/  the repository: at the root what a ledger is but for its arrays, as JSON

      state       the state, written anew with each change
      record-N    what change N added, but for what is within each threshold, which is in
      within-N    by itself: never changed, and deleted with the one segment that it is of
      gallery/    labels of all items that ever came, one segment behind the other
      queries     labels of the queries

All but the gallery are several arrays in one, see `packing`. Every chunk has a checksum. Changes
are committed one after the other: on a local folder a lock sees to that, in an object store the
commit of the second is refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.remote import is_remote
from streameval.errors import InputError, OptionError, OutputError, StreamevalError, check_path
from streameval.ledger.head import Head
from streameval.ledger.packing import Arrays, pack, unpack
from streameval.ledger.state import Near, Positives, State, Totals
from streameval.metrics.options import is_number
from streameval.store import _in_a_line as in_a_line
from streameval.store import check_packages

BRANCH = "main"
SNAPSHOTS = "snapshots"  # the folder of the repository
HEAD, STATE, GALLERY, QUERIES = "ledger", "state", "gallery", "queries"
RECORD, WITHIN = "record-{}", "within-{}"
CHUNK = 16 << 20  # bytes, at most
LABELS = 1 << 18  # labels in a chunk: the last one is written anew

COUNTS = ("serial", "query", "segment", "index", "closer", "tied", "before")


class Store:
    """The repository of a ledger.

    Parameters
    ----------
    location : str or Path
        A local folder, or ``s3://bucket/prefix``, ``gs://bucket/prefix``.
    """

    def __init__(self, location: str | Path) -> None:
        check_packages("a ledger")
        check_path(location)
        self.location = str(location)
        self.local = None if is_remote(self.location) else Path(location).absolute()
        self._repository: Any = None

    def create(self, state: State, labels: Arrays) -> None:
        """Write the first snapshot.

        Raises
        ------
        OutputError
            If there is something already, or it can't be written.
        """
        import icechunk

        if self.local is not None and self.local.exists():
            self._check_unfinished(self.local)
        with self.telling("written"), self.locked(0):
            if self.local is not None and not self._has_refs(self.local):
                self._check_nothing_lost(self.local)
                shutil.rmtree(self.local / SNAPSHOTS, ignore_errors=True)
            storage = self._storage()
            if icechunk.Repository.exists(storage):
                self._repository = icechunk.Repository.open(storage)
                if self._last().parent_id is not None:
                    raise OutputError(
                        f"{self.location} holds a ledger already: choose another name"
                    )
            else:
                self._repository = icechunk.Repository.create(storage)
            change = Change(self)
            change.write(QUERIES, labels)
            change.commit(state)

    def _check_unfinished(self, folder: Path) -> None:
        """Refuse a folder that holds anything but what a killed creation has left."""
        if not folder.is_dir():
            raise OutputError(f"{folder} is a file; a folder to be made is expected")
        found = {entry.name for entry in folder.iterdir()}
        if found - {"lock", SNAPSHOTS}:
            other = min(found - {"lock", SNAPSHOTS})
            raise OutputError(f"{folder} holds {other}: a ledger needs a folder of its own")

    @staticmethod
    def _check_nothing_lost(folder: Path) -> None:
        """Refuse snapshots without a branch: its file is written before any of their chunks."""
        snapshots = folder / SNAPSHOTS
        if any((snapshots / "chunks").glob("*")):
            raise OutputError(
                f"{folder} has lost {snapshots / 'refs'}, which says what its last snapshot is: "
                "restore it from a copy, or delete the folder and make the ledger again"
            )

    @staticmethod
    def _has_refs(folder: Path) -> bool:
        return any((folder / SNAPSHOTS / "refs").rglob("ref.json"))

    def open(self) -> None:
        """Open the repository.

        Raises
        ------
        OutputError
            If there is none, or it can't be read.
        """
        import icechunk

        if self.local is not None and not self._has_refs(self.local):
            self._check_nothing_lost(self.local)
            raise OutputError(
                f"{self.location} is no ledger; make one: streameval ledger create {self.location}"
            )
        with self.telling("read"):
            storage = self._storage()
            if self.local is None and not icechunk.Repository.exists(storage):
                raise OutputError(
                    f"{self.location} is no ledger; make one: "
                    f"streameval ledger create {self.location}"
                )
            self._repository = icechunk.Repository.open(storage)
            if self._last().parent_id is None:
                raise OutputError(f"the ledger {self.location} was not made whole: create it again")

    def _last(self) -> Any:
        return next(iter(self._repository.ancestry(branch=BRANCH)))

    def _storage(self) -> Any:
        import icechunk

        icechunk.set_logs_filter("error")  # that local commits must not be concurrent: see `locked`
        if self.local is not None:
            return icechunk.local_filesystem_storage(str(self.local / SNAPSHOTS))
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

    @contextmanager
    def locked(self, wait: float) -> Iterator[None]:
        """Hold the lock of a local ledger; nothing is locked in an object store.

        Parameters
        ----------
        wait : float
            Seconds to wait for another process.

        Raises
        ------
        OptionError
            If it is no number of seconds.
        OutputError
            If another process holds it for longer.
        """
        if not (is_number(wait) and wait >= 0):
            raise OptionError(f"wait is {wait!r}; seconds are needed, 0 or more")
        if self.local is None:
            yield
            return
        from filelock import FileLock, Timeout

        lock = FileLock(self.local / "lock")
        with self.telling("written"):
            self.local.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=wait)
            except Timeout as error:
                raise OutputError(
                    f"another process changes {self.location}, and has not ended within "
                    f"{wait:g} s; nothing has been changed: run this again when it has, or wait "
                    "longer (--wait)"
                ) from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Say in our own words what went wrong in the store, and that nothing is lost.

        Raises
        ------
        OutputError
        """
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
            remedy = (
                "the last snapshot is as it was: make room, or mend the permissions, and run it "
                "again"
                if what == "written"
                else "if files of it are damaged, restore them from a copy; other snapshots may be "
                "whole: streameval ledger evaluate --at"
            )
            raise OutputError(
                f"the ledger {self.location} can't be {what} ({in_a_line(error)}): {remedy}"
            ) from error

    def snapshots(self) -> list[str]:
        """Return the ids of all snapshots, the first one first."""
        with self.telling("read"):
            found = [one.id for one in self._repository.ancestry(branch=BRANCH)]
        return found[-2::-1]  # the last is that of the empty repository

    def reader(self, snapshot: str | None = None) -> Reader:
        """Return what reads the newest snapshot, or the one of an id."""
        with self.telling("read"):
            session = (
                self._repository.readonly_session(BRANCH)
                if snapshot is None
                else self._repository.readonly_session(snapshot_id=snapshot)
            )
        return Reader(self, session)

    def writable_session(self) -> Any:
        """Return a session to write in."""
        return self._repository.writable_session(BRANCH)


class Reader:
    """Reads one snapshot.

    Parameters
    ----------
    store : Store
    session : icechunk.Session
    """

    def __init__(self, store: Store, session: Any) -> None:
        import zarr

        self._store = store
        with store.telling("read"):
            self.root = zarr.open_group(session.store, mode="r")

    def head(self) -> Head:
        """Read all but the arrays."""
        with self._store.telling("read"):
            return Head.of(self._bytes(HEAD).tobytes())

    def state(self) -> State:
        """Read the state."""
        head, arrays = self.head(), self.read(STATE)
        with self._store.telling("read"):
            columns = dict(zip(COUNTS, arrays["positives"], strict=True))
            return State(
                head,
                Positives(distance=arrays["distance"], **columns),
                Totals(*(arrays[one.name] for one in fields(Totals))),
                Near(arrays["near_distance"], arrays["near_segment"], arrays["near_reach"]),
                arrays["forgotten"],
            )

    def read(self, path: str) -> dict[str, npt.NDArray[Any]]:
        """Read what `Change.write` has written."""
        with self._store.telling("read"):
            return unpack(self._bytes(path))

    def record(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Read the arrays of a record."""
        return self.outline(number) | self.read(WITHIN.format(number))

    def outline(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Read the arrays of a record but for the large one, ``within``."""
        return self.read(RECORD.format(number))

    def gallery(self) -> dict[str, npt.NDArray[Any]]:
        """Read the labels of all items that ever came."""
        with self._store.telling("read"):
            group: Any = self.root[GALLERY]
            return {name: np.asarray(array[...]) for name, array in group.arrays()}

    def _bytes(self, path: str) -> npt.NDArray[np.uint8]:
        array: Any = self.root[path]
        return np.asarray(array[...])


class Change(Reader):
    """A change in the making: nothing of it is there before `commit`.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        import zarr

        with store.telling("written"):
            self._session = store.writable_session()
            self._store = store
            self.root = zarr.open_group(self._session.store, mode="a")

    def write(self, path: str, arrays: Arrays) -> None:
        """Write arrays as one, in place of what is there."""
        with self._store.telling("written"):
            _write(self.root, path, pack(arrays))

    def write_record(self, number: int, arrays: Arrays) -> None:
        """Write the arrays of a record."""
        rest = dict(arrays)
        self.write(WITHIN.format(number), {"within": rest.pop("within")})
        self.write(RECORD.format(number), rest)

    def delete_record(self, number: int) -> None:
        """Delete the arrays of a record."""
        with self._store.telling("written"):
            for path in (RECORD, WITHIN):
                del self.root[path.format(number)]

    def append(self, begin: int, size: int, labels: Arrays) -> None:
        """Write labels of further items of the gallery; a column that they lack is 0 there.

        Raises
        ------
        InputError
            If there are texts where there were numbers, or numbers where there were texts.
        """
        with self._store.telling("written"):
            group = self.root.require_group(GALLERY)
            there: dict[str, Any] = dict(group.arrays())
            labels = labels if size else {}
            for name in there.keys() - labels.keys():
                there[name].resize((begin + size, *there[name].shape[1:]))
            for name, values in labels.items():
                array = there.get(name)
                if array is None:
                    array = _create_labels(group, name, begin, values)
                if values.ndim != array.ndim:
                    kinds = ["integers" if n == 1 else "strings" for n in (values.ndim, array.ndim)]
                    raise InputError(
                        f"labels {name!r} are {kinds[0]}, those of the gallery {kinds[1]}: give "
                        "both as the same"
                    )
                if values.dtype.itemsize > array.dtype.itemsize:  # the first that need as much
                    known = np.asarray(array[...]).astype(values.dtype)
                    array = _create_labels(group, name, begin, known)
                    array[...] = known
                width = tuple(map(max, array.shape[1:], values.shape[1:]))
                array.resize((begin + size, *width))
                array[(slice(begin, None), *map(slice, values.shape[1:]))] = values

    def commit(self, state: State) -> None:
        """Write the state, and commit all.

        Raises
        ------
        OutputError
            If it can't be written, or another process has committed in the meantime.
        """
        entry = state.head.last
        positives, near = state.positives, state.near
        with self._store.telling("written"):
            _write(self.root, HEAD, np.frombuffer(state.head.as_lines(), np.uint8))
            self.write(
                STATE,
                {
                    "positives": np.stack([getattr(positives, name) for name in COUNTS]),
                    "distance": positives.distance,
                    **{one.name: getattr(state.totals, one.name) for one in fields(Totals)},
                    "near_distance": near.distance,
                    "near_segment": near.segment,
                    "near_reach": near.reach,
                    "forgotten": state.forgotten,
                },
            )
            self._session.commit(f"{entry['number']} {entry['change']}")


def _write(group: Any, path: str, packed: npt.NDArray[np.uint8]) -> None:
    chunks = -(-len(packed) // CHUNK)  # of one size: the last would be filled up with zeros
    array = _create(group, path, packed.shape, packed.dtype, (-(-len(packed) // chunks),))
    array[...] = packed


def _create_labels(group: Any, name: str, items: int, like: npt.NDArray[Any]) -> Any:
    width = like.shape[1:]
    chunks = (max(LABELS // max(width, default=1), 1), *width)
    return _create(group, name, (items, *width), like.dtype, chunks)


def _create(
    group: Any, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]
) -> Any:
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
