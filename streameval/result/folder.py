"""The folder of a saved result: where it may be written, written whole, its statistics.

It is written beside its place, under a hidden name, and renamed into it, so that what is
there is always whole. What a killed process leaves under hidden names is swept by the next
one that writes to the same place: a folder that is being written is locked for as long as its
process lives.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from streameval.arrays.zarr_chunks import check_complete
from streameval.errors import InputError, OutputError, check_path
from streameval.statistics import FIELDS, REQUIRED, RankStatistics

SUMMARY, CURVES, PER_QUERY = "summary.json", "curves.npz", "per_query.parquet"
STATISTICS, POSITIVES, GROUPS = "statistics.zarr", "positives.parquet", "groups.csv"
BEST = "best.zarr"
ENTRIES = (SUMMARY, CURVES, PER_QUERY, STATISTICS, POSITIVES, GROUPS, BEST)
FORMAT = 4

_NAME_KEPT = 40  # characters: a hidden name is longer than the name that it stands for
_ATTEMPTS = 10  # at removing a folder that a thread is still writing to


def check_output(path: str | Path, *, overwrite: bool) -> Path:
    """Return the path where a result may be written, tried out by making a folder beside it.

    Raises
    ------
    OutputError
        If it exists and is not to be replaced, is no folder of a result and nothing else, or
        can't be written.
    """
    check_path(path)
    if not str(path):
        raise OutputError("the name of the output folder is empty; give a folder to be made")
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise OutputError(
            f"the name of the output folder, {path}, is no UTF-8, and what writes tables and "
            "arrays takes no other; give another name"
        ) from error
    try:
        target = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link
        if target.exists() or target.is_symlink():
            _check_replaceable(path, target, overwrite=overwrite)
        _try_writing(target)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"no result can be written to {path}: {_reason(error)}; give a folder that can be made"
        ) from error
    return target


def _check_replaceable(path: str | Path, target: Path, *, overwrite: bool) -> None:
    if not target.is_dir():
        raise OutputError(f"{path} is a file; a folder to be made is expected")
    if not overwrite:
        raise OutputError(f"{path} exists already; choose another, or replace it: --overwrite")
    here = Path.cwd()
    if target.resolve() in (here, *here.parents):
        raise OutputError(
            f"{path} is the current folder, or one that it is in; it is not replaced: choose "
            "another, or run this elsewhere"
        )
    found = sorted(entry.name for entry in target.iterdir())
    if found and SUMMARY not in found:
        raise OutputError(
            f"{path} is a folder without a result in it ({found[0]} is); it is not replaced: "
            "choose another"
        )
    foreign = [name for name in found if name not in ENTRIES]
    if foreign:
        raise OutputError(
            f"{path} holds {foreign[0]}, which is no part of a result ({', '.join(ENTRIES)}); "
            "it is not replaced: move that elsewhere, or choose another"
        )


def _try_writing(target: Path) -> None:
    """Make a folder beside the target and remove it; or in the nearest folder that is there."""
    above = target.parent
    while not above.exists():
        above = above.parent
    with suppress(FileNotFoundError):
        (above / target.name).lstat()  # its name may be too long
    trial = above / _hidden_name(target, "partial")
    trial.mkdir()
    trial.rmdir()


class ResultFolder:
    """A result being written: a context, which leaves nothing but a result in its place.

    Parameters
    ----------
    path : str or Path
        Where the result is to be.
    overwrite : bool
        Whether to replace a result that is there.

    Attributes
    ----------
    partial : Path
        The folder to write to, beside its place.

    Raises
    ------
    OutputError
        See `check_output`.
    """

    def __init__(self, path: str | Path, *, overwrite: bool) -> None:
        self._target = check_output(path, overwrite=overwrite)
        self.partial = self._target.parent / _hidden_name(self._target, "partial")
        self._replaced: Path | None = None
        self._lock: int | None = None

    def __enter__(self) -> ResultFolder:
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            _sweep(self._target)
            self.partial.mkdir()
            with suppress(OSError):  # where folders can't be locked, none is swept either
                self._lock = os.open(self.partial, os.O_RDONLY)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._refusal(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise self._refusal(error) from error

    def put_in_place(self) -> None:
        """Rename the finished folder to its place; a result there steps aside first."""
        if not self._target.exists():
            self.partial.rename(self._target)
            return
        aside = self._target.parent / _hidden_name(self._target, "old")
        try:
            self._target.rename(aside)
            self.partial.rename(self._target)
        except BaseException:
            if aside.exists() and not self._target.exists():
                aside.rename(self._target)
            raise
        self._replaced = aside

    def discard(self) -> None:
        """Remove what is unfinished, and what has been replaced."""
        for folder in (self.partial, self._replaced):
            for _ in range(_ATTEMPTS):
                if folder is not None and folder.exists():
                    shutil.rmtree(folder, ignore_errors=True)

    def _refusal(self, error: OSError) -> OutputError:
        return OutputError(
            f"the result can't be written to {self._target}: {_reason(error)}; make room or "
            "choose another folder"
        )


def _hidden_name(target: Path, state: str) -> str:
    return f"{_hidden_prefix(target, state)}{secrets.token_hex(4)}"


def _hidden_prefix(target: Path, state: str) -> str:
    """Return how hidden names begin: with the host, as another's processes can't be known."""
    host = re.sub(r"[^A-Za-z0-9-]", "_", platform.node())[:_NAME_KEPT]
    return f".{target.name[:_NAME_KEPT]}.{host}.{state}."


def _sweep(target: Path) -> None:
    """Remove what killed processes of this host have left of results for the same place."""
    with suppress(OSError):
        names = [entry.name for entry in target.parent.iterdir()]
        for name in names:
            left = target.parent / name
            if re.fullmatch(re.escape(_hidden_prefix(target, "partial")) + "[0-9a-f]{8}", name):
                if not _is_locked(left):
                    shutil.rmtree(left, ignore_errors=True)
            elif (
                re.fullmatch(re.escape(_hidden_prefix(target, "old")) + "[0-9a-f]{8}", name)
                and target.exists()  # else it is the only copy of a result
            ):
                shutil.rmtree(left, ignore_errors=True)


def _is_locked(folder: Path) -> bool:
    """Return whether a living process writes to it; where that can't be told, it is taken to."""
    try:
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(lock)
    except OSError:
        return True
    return False


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)) + (f": {error.filename}" if error.filename else "")


def save_statistics(statistics: RankStatistics, path: Path) -> None:
    """Write statistics as a Zarr v3 group, an array a field, with checksums."""
    import zarr
    from zarr.codecs import ZstdCodec

    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.attrs["format"] = FORMAT
    values_of = {name: getattr(statistics, name) for name in FIELDS}
    held = {name: values for name, values in values_of.items() if values is not None}
    group.attrs["fields"] = list(held)
    for name, values in held.items():
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=tuple(max(min(size, 1 << 18), 1) for size in values.shape),
            compressors=ZstdCodec(checksum=True),
            config={"write_empty_chunks": True},
        )
        if values.size:
            array[...] = values


def load_statistics(path: Path) -> RankStatistics:
    """Read statistics written by `save_statistics`.

    Raises
    ------
    OutputError
        If a field is missing, incomplete or damaged.
    """
    import zarr

    fields: dict[str, Any] = {}
    try:
        group = zarr.open_group(path, mode="r")
        held: Any = group.attrs.get("fields", sorted(REQUIRED))  # format 1 has no optional ones
        for name in REQUIRED.union(held):
            array = group[name]
            if not isinstance(array, zarr.Array):
                raise OutputError(f"{path}: {name} is no array")
            check_complete(array, path / name, f"{path}::{name}")
            fields[name] = np.asarray(array[...])
        return RankStatistics(**fields)
    except (MemoryError, OutputError):
        raise
    except InputError as error:
        raise OutputError(f"{path.parent} is damaged: {error}") from error
    except Exception as error:  # unreadable JSON, a codec's RuntimeError, a field of other shape
        where = f"statistics.zarr, {type(error).__name__}: {error}"
        raise OutputError(
            f"{path.parent} is damaged ({where}); evaluate again, or restore the folder"
        ) from error
