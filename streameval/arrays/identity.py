"""What the files of an array are known by, so that any change of them is seen without reading.

The size, inode and times of every file and folder. One of the times is the file system's own,
which no tool sets back; it goes by a clock that ticks. A file that was changed within the tick in
which it is looked at may be changed again and keep its time, so `identify` waits for the next tick.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from streameval.arrays.composed import is_pattern, matching
from streameval.arrays.remote import remote_state
from streameval.errors import ChangedError, InputError

if TYPE_CHECKING:
    from streameval.arrays.array import Array

_SECOND = 1_000_000_000
_COARSE = 2 * _SECOND  # the tick of a file system that keeps whole seconds, or even ones alone
_PATIENCE = 5 * _SECOND  # longer is not waited for a clock that goes behind the file system's
ABSENT = "absent"  # a file that has gone, or a link to nothing
_CLOCK = 5 if sys.platform == "linux" else time.CLOCK_REALTIME  # CLOCK_REALTIME_COARSE


class Entry(NamedTuple):
    """A file, folder or object of an array.

    Attributes
    ----------
    name : str
    size : str
        In bytes; of an object with its tag; of a folder nothing.
    inode : int
        0 of an object.
    written, changed : int
        When it was last written, and when it, its name or its rights last changed, in ns. Tools
        can set the first; 0 of an object.
    """

    name: str
    size: str
    inode: int = 0
    written: int = 0
    changed: int = 0


class Files(NamedTuple):
    """What the files of an array are known by.

    Attributes
    ----------
    place : Path or str
        File, folder, pattern of files, or URL.
    known_by : str
        Differs once a file has changed, has gone, has come, or is another one.
    copied : str
        The same of copies that keep the time they were written, at the same place elsewhere.
    """

    place: Path | str
    known_by: str
    copied: str

    def anywhere(self) -> Files:
        """Return the same, whatever the current folder of a process is."""
        place = self.place.absolute() if isinstance(self.place, Path) else self.place
        return self._replace(place=place)


def identify(place: Path | str) -> Files:
    """Return what the files of an array are known by; nothing of them is read.

    It waits for some milliseconds where a file has only just been changed.
    """
    parent = ""
    if isinstance(place, Path):
        parent = os.path.dirname(str(place)) or "."  # noqa: PTH120 - of many files, as below
    while True:
        now = time.clock_gettime_ns(_CLOCK)
        known_by, copied = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
        newest, coarse = 0, True
        for entry in entries(place):
            name = entry.name.removeprefix(parent).lstrip("/")
            size, written, changed = entry.size, entry.written, entry.changed
            known_by.update(_line(f"{name} {size} {entry.inode} {written} {changed}"))
            copied.update(_line(f"{name} {size} {written if size else 0}"))
            if changed - now <= _PATIENCE:  # else the clock was set back, or is behind
                newest = max(newest, changed)
            coarse = coarse and changed % _SECOND == 0
        wait = newest + (_COARSE if coarse else 0) - now
        if wait < 0 or wait > _PATIENCE:
            return Files(place, known_by.hexdigest(), copied.hexdigest())
        time.sleep((wait + 1_000_000) / _SECOND)


def _line(text: str) -> bytes:
    return f"{text}\n".encode(errors="surrogateescape")


def check_copies(originals: Iterable[Files]) -> list[Files]:
    """Check that files of another machine are the same here; return those that are copies.

    Files of one file system are known by the same on every machine.

    Raises
    ------
    InputError
        If a file is neither the same nor a copy that keeps the time at which it was written.
    """
    here = [(identify(one.place), one) for one in originals]
    for own, original in here:
        if own.copied != original.copied:
            raise InputError(
                f"{own.place} is another one than where the evaluation was started: names, sizes "
                f"or times differ ({_what_changed(own)}); copy files with their times (cp -p)"
            )
    return [own for own, original in here if own != original]


def check_same(files: Iterable[Files]) -> None:
    """Check that files are what they were.

    Raises
    ------
    ChangedError
    """
    for one in files:
        if identify(one.place) != one:
            raise changed(one)


def state(array: Array) -> str:
    """Return a text that differs once files of an array, as they were opened, may have changed."""
    return " ".join(one.files.known_by for one in array.opened() if one.files is not None)


def check_unchanged(array: Array) -> None:
    """Check that the files of an array are what they were before it was opened.

    Raises
    ------
    ChangedError
    """
    check_same(own.files for own in array.opened() if own.files is not None)


@contextmanager
def unchanging(*read: Array | Path) -> Iterator[None]:
    """Check when the context ends, with an error too, that files are what they were before.

    Those of an array are what they were before it was opened.

    Raises
    ------
    ChangedError
    """
    before = [identify(one) for one in read if isinstance(one, Path)]
    arrays = [one for one in read if not isinstance(one, Path)]
    before += [own.files for one in arrays for own in one.opened() if own.files is not None]

    try:
        yield
    except ChangedError:
        raise
    except Exception:  # data that change show in many ways
        check_same(before)
        raise
    check_same(before)


def changed(files: Files) -> ChangedError:
    """Return the error of files that are no longer what they were."""
    return ChangedError(
        f"{files.place} has changed since it was opened: {_what_changed(files)}; no number is "
        "given of data that change: run it again once nothing writes to them"
    )


def entries(place: Path | str) -> Iterator[Entry]:
    """Yield the files and folders, or objects, of an array."""
    if isinstance(place, str):
        yield from (Entry(line, "") for line in remote_state(place))
        return
    for one in matching(place, str(place)) if is_pattern(place) else [place]:
        yield from _under(str(one))


def _under(path: str) -> Iterator[Entry]:
    """Yield a file, or a folder and all in it; a link to nothing is an entry, too."""
    try:
        status = os.stat(path)  # noqa: PTH116 - of many files: a Path takes as long
    except FileNotFoundError:
        yield Entry(path, ABSENT)
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    size = "" if is_folder else str(status.st_size)
    yield Entry(path, size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    if is_folder:
        try:
            with os.scandir(path) as found:
                names = sorted(entry.path for entry in found)
        except (FileNotFoundError, NotADirectoryError):  # removed, or replaced, since
            yield Entry(path, ABSENT)
            return
        for name in names:
            yield from _under(name)


def _what_changed(files: Files) -> str:
    """Return what has changed of files last, in words."""
    found = list(entries(files.place))
    absent = [entry.name for entry in found if entry.size == ABSENT]
    if absent or not found:
        return f"{absent[0] if absent else files.place} is absent"
    newest = max(found, key=lambda entry: entry.changed)
    if not newest.changed:
        return f"an object of {files.place} has changed"
    when = datetime.fromtimestamp(newest.changed / _SECOND, UTC).astimezone()
    return f"{newest.name} has changed, at {when:%H:%M:%S}"
