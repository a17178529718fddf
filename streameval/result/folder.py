"""The folder of a saved result: where it may be written, and its statistics."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.zarr_array import check_complete
from streameval.errors import InputError, OutputError, check_path
from streameval.output import NewFolder, check_new, hidden_path, reason_of
from streameval.statistics import FIELDS, REQUIRED, RankStatistics

SUMMARY, CURVES, PER_QUERY = "summary.json", "curves.npz", "per_query.parquet"
STATISTICS, POSITIVES, GROUPS = "statistics.zarr", "positives.parquet", "groups.csv"
BEST = "best.zarr"
ENTRIES = (SUMMARY, CURVES, PER_QUERY, STATISTICS, POSITIVES, GROUPS, BEST)
FORMAT = 4


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
            f"no result can be written to {path}: {reason_of(error)}; give a folder that can be "
            "made"
        ) from error
    return target


def _check_replaceable(path: str | Path, target: Path, *, overwrite: bool) -> None:
    if not target.is_dir():
        raise OutputError(f"{path} is a file; a folder to be made is expected")
    check_new(path, overwrite=overwrite)
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
    trial = hidden_path(above / target.name, "partial")
    trial.mkdir()
    trial.rmdir()


class ResultFolder(NewFolder):
    """A result being written: a context that leaves nothing but a whole result in its place.

    Parameters
    ----------
    path : str or Path
        Where the result is to be.
    overwrite : bool
        Whether to replace a result that is there.

    Raises
    ------
    OutputError
        See `check_output`.
    """

    refusal = (
        "the result can't be written to {target}: {reason}; make room or choose another folder"
    )

    def __init__(self, path: str | Path, *, overwrite: bool) -> None:
        super().__init__(check_output(path, overwrite=overwrite))


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
