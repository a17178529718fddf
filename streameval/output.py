"""Files and folders that are written whole, or not at all.

An output is written beside its place, under a hidden name, and renamed into it. Its place is
claimed for as long as the process that writes it lives. What a killed process leaves under hidden
names is removed by the next one that claims the same place.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile, mkdtemp
from typing import IO, Self

from streameval.errors import OutputError
from streameval.interruption import at_end, held

ESCAPED = "backslashreplace"  # how JSON shows the bytes of a path that are not UTF-8

_LINES = 10_000  # written at a time
_NAME_KEPT = 40  # characters: a hidden name is longer than the name that it stands for
_ATTEMPTS = 10  # at removing a folder that a thread is still writing to


class Output:
    """A file or folder being written: a context that leaves it whole in its place, or not at all.

    What is in its place, the `target`, is replaced; `partial` is where to write it, beside that.
    Entering and leaving raise OutputError if it can't be written.
    """

    failure, remedy = "{} can't be written", "give a file that can be made"

    def __init__(self, target: Path) -> None:
        self.target = target
        self.partial = hidden_path(target, "partial")
        self._replaced: Path | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with self._refused(), ExitStack() as stack:
            self._enter_folder(stack)
            stack.enter_context(claimed(self.target))
            stack.enter_context(at_end(self.discard))
            stack.callback(self.discard)
            self._make()
            self._opened = stack.pop_all()
        return self

    def _enter_folder(self, stack: ExitStack) -> None:
        """Make the folders above."""

    def _make(self) -> None:
        """Make what is written to."""
        raise NotImplementedError

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._opened.close()

    def put_in_place(self) -> None:
        """Rename what is finished to its place."""
        with held():
            self._replaced = put_in_place(self.partial, self.target)

    def discard(self) -> None:
        """Remove what is unfinished, and what has been replaced."""
        remove(self.partial)
        if self._replaced is not None:
            remove(self._replaced)

    def _refused(self) -> AbstractContextManager[None]:
        return refused(self.failure.format(self.target), self.remedy)


class NewFile(Output):
    """A file being written; it is in its place when the context is left without an error.

    Raises OutputError if the file exists and must not be replaced.
    """

    def __init__(self, path: str | Path, *, overwrite: bool) -> None:
        super().__init__(Path(path))
        self._overwrite = overwrite

    def _make(self) -> None:
        check_new(self.target, overwrite=self._overwrite)
        if self.target.is_dir():
            raise IsADirectoryError(0, "Is a directory")
        self._file = self.partial.open("wb")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            with self._refused():
                self._file.close()
                if error is None:
                    self.put_in_place()
        finally:
            super().__exit__(kind, error, trace)

    def write(self, content: bytes) -> None:
        """Write some more."""
        with self._refused():
            self._file.write(content)

    def write_all(self, lines: Iterable[str]) -> None:
        """Write lines, many at a time."""
        waiting = iter(lines)
        while some := "".join(islice(waiting, _LINES)):
            self.write(some.encode(errors=ESCAPED))


class NewFolder(Output):
    """A folder being written; it is in its place once `fill` is called."""

    remedy = "make room or choose another folder"
    _reserved: IO[bytes] | None = None

    def _enter_folder(self, stack: ExitStack) -> None:
        stack.enter_context(folders_above(self.target))

    def _make(self) -> None:
        self.partial.mkdir()

    def reserve(self, size: int) -> None:
        """Take so many bytes of the disk until the folder is filled, where it can be done.

        They are those of a file without a name, which ends with this process.

        Raises
        ------
        OutputError
            If they are not free.
        """
        with self._refused():
            room = TemporaryFile(dir=self.partial)  # noqa: SIM115 - closed where it is filled
            self._opened.enter_context(room)
            try:
                os.posix_fallocate(room.fileno(), 0, size)
            except AttributeError:  # not on every system
                pass
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
            self._reserved = room

    def fill(self, write: Callable[[Path], None]) -> None:
        """Have the folder written, and put it in its place."""
        with self._refused():
            if self._reserved is not None:
                self._reserved.close()
            write(self.partial)
            self.put_in_place()


def as_json(value: object) -> str:
    """Return JSON that people read, too; NaN and infinite values are refused."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_new(path: str | Path, content: str | bytes, *, overwrite: bool) -> None:
    """Write a file, whole or not at all; see `NewFile`."""
    with NewFile(path, overwrite=overwrite) as file:
        file.write(content if isinstance(content, bytes) else content.encode(errors=ESCAPED))


def check_new(path: str | Path, *, overwrite: bool) -> None:
    """Refuse, with an OutputError, a place where something is that may not be replaced."""
    if not overwrite and (Path(path).exists() or Path(path).is_symlink()):
        raise OutputError(f"{path} exists already; choose another, or replace it: --overwrite")


def put_in_place(partial: Path, target: Path) -> Path | None:
    """Rename a finished file or folder to its place.

    Returns where a folder has stepped aside that was there, to be removed; or None.
    """
    if not target.is_dir():
        partial.rename(target)
        return None
    aside = hidden_path(target, "old")
    try:
        target.rename(aside)
        partial.rename(target)
    except BaseException:
        if aside.exists() and not target.exists():
            aside.rename(target)
        raise
    return aside


def sweep(target: Path) -> None:
    """Remove what killed processes of this host have left of outputs for a claimed place."""
    partial, old = (_hidden_prefix(target, state) for state in ("partial", "old"))
    with suppress(OSError):
        for left in list(target.parent.iterdir()):
            prefix, _, token = left.name.rpartition(".")
            replaced = prefix == old and target.exists()  # else it is the only copy
            if re.fullmatch("[0-9a-f]{8}", token) and (prefix == partial or replaced):
                remove(left)


@contextmanager
def scratch_folder(within: str | None = None) -> Iterator[str]:
    """Make a folder for temporary files, and remove it with all that is in it.

    Parameters
    ----------
    within : str, optional
        Where to make it; by default where the system has such folders.
    """
    with (
        TemporaryDirectory(prefix="streameval-", dir=within, ignore_cleanup_errors=True) as folder,
        at_end(lambda: remove(Path(folder))),
    ):
        yield folder


class TemporaryFolder:
    """A folder for files that are needed as long as something refers to it.

    Parameters
    ----------
    beside : Path, optional
        An output of this process that it lies beside, so that it is swept with what is unfinished
        of that; by default it is where the system has such folders.

    Attributes
    ----------
    path : Path
    """

    def __init__(self, beside: Path | None = None) -> None:
        self.path = path = (
            Path(mkdtemp(prefix="streameval-"))
            if beside is None
            else hidden_path(beside, "partial")
        )
        path.mkdir(exist_ok=True)
        ends = ExitStack()
        ends.callback(remove, path)
        ends.enter_context(at_end(lambda: remove(path)))
        weakref.finalize(self, ends.close)


def hidden_path(target: Path, state: str) -> Path:
    """Return a new hidden path beside a target; a sweep knows it again by its name."""
    return target.parent / f"{_hidden_prefix(target, state)}.{secrets.token_hex(4)}"


def _hidden_prefix(target: Path, state: str) -> str:
    """Return how hidden names begin: with the host, as another's processes can't be known."""
    host = re.sub(r"[^A-Za-z0-9-]", "_", platform.node())[:_NAME_KEPT]
    return f"{_hidden_name(target)}.{host}.{state}"


def _hidden_name(target: Path) -> str:
    """Return a hidden name of no other target of the folder, however long their names are."""
    token = hashlib.blake2b(os.fsencode(target.name), digest_size=4).hexdigest()
    return f".{target.name[:_NAME_KEPT]}.{token}"


@contextmanager
def folders_above(target: Path) -> Iterator[None]:
    """Make the folders above a target, and remove in the end those of them that are empty."""
    made = [parent for parent in target.parents if not parent.exists()]

    def remove_empty() -> None:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()

    with ExitStack() as stack:
        stack.callback(remove_empty)
        stack.enter_context(at_end(remove_empty))
        target.parent.mkdir(parents=True, exist_ok=True)
        yield


@contextmanager
def claimed(target: Path) -> Iterator[None]:
    """Keep a place from other processes, by a lock beside it that dies with this process.

    What killed processes have left there is removed. Where nothing can be locked, nothing is kept.

    Raises
    ------
    OutputError
        If another process writes to it.
    OSError
        If nothing can be written there.
    """
    claim = target.parent / f"{_hidden_name(target)}.lock"
    with ExitStack() as stack:
        with held():
            descriptor, is_locked = _claim(claim, target)
            stack.callback(os.close, descriptor)
            stack.callback(remove, claim)
            stack.enter_context(at_end(lambda: remove(claim)))
        with suppress(FileNotFoundError):
            target.lstat()  # its name may be too long
        if is_locked:
            sweep(target)
        yield


def _claim(claim: Path, target: Path) -> tuple[int, bool]:
    """Return a descriptor of a file, and whether it is locked; see `claimed`."""
    import fcntl  # not on every system

    while True:
        descriptor = os.open(claim, os.O_CREAT | os.O_RDWR, 0o666)  # over NFS, no other is locked
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise OutputError(
                f"another process{f' ({who})' if who else ''} writes to {target}: wait for it, or "
                "choose another place"
            ) from error
        except OSError:
            return descriptor, False
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), claim.stat()):
                with suppress(OSError):  # the disk is full
                    os.truncate(descriptor, 0)
                    os.write(descriptor, f"{os.getpid()} on {platform.node()}".encode())
                return descriptor, True
        os.close(descriptor)  # whoever held it has just removed it


@contextmanager
def refused(failure: str, remedy: str) -> Iterator[None]:
    """While entered, an error of the system is an OutputError: what failed, why, what to do."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)) + (f": {error.filename}" if error.filename else "")
        raise OutputError(f"{failure}: {reason}; {remedy}") from error


def remove(path: Path) -> None:
    """Remove a file or folder, as far as that is possible."""
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return
    for _ in range(_ATTEMPTS):
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)
