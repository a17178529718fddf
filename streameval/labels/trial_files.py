"""Rows in files: of trials and galleries, a row or a line each; permutations of SYSU-MM01."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np

from streameval.arrays.array import reading
from streameval.arrays.identity import unchanging
from streameval.arrays.remote import is_remote
from streameval.arrays.uri import FORMATS, open_array, parse_uri
from streameval.choices import NumberedFrom
from streameval.errors import InputError, OptionError, check_path, entry_point, is_whole, refuse
from streameval.labels.columns import LabelsLike, labels_of
from streameval.protocols.draws import trials_of
from streameval.protocols.labels import Labels, whole_numbers
from streameval.protocols.protocol import Protocol
from streameval.protocols.row_numbers import ascending
from streameval.protocols.rows import Rows
from streameval.protocols.shipped import with_options
from streameval.protocols.views import selected
from streameval.typing import AnyArray, IntArray

PERMUTATIONS = "rand_perm_cam"  # what the variable of the file of SYSU-MM01 is called


@entry_point
def read_drawn(
    path: str | Path,
    *,
    listed_as: NumberedFrom | None = None,
    shots: int | None = None,
    gallery: LabelsLike | None = None,
    protocol: str | Protocol | None = None,
) -> tuple[IntArray, ...]:
    """Read which rows each trial draws, as a benchmark has drawn them.

    Parameters
    ----------
    path : str or Path
        Row numbers: an array [times, n] by its URI, or a text file with one line for each trial,
        whose numbers are separated by blanks or commas. With `shots`, ``rand_perm_cam.mat`` of
        SYSU-MM01.
    listed_as : {"0-based", "1-based"}
        What row numbers count from. Required without `shots`.
    shots : int, optional
        How many images of each identity and camera a trial draws, as the permutations in the file
        order them: 1 or 10 in SYSU-MM01. Rows of an identity and camera must be in the order of
        file names. All are drawn of one that has fewer.
    gallery : Labels, mapping or table, optional
        Labels of the gallery, with ``cam``, for `shots`. Identities and cameras are the numbers of
        SYSU-MM01, from 1.
    protocol : str or Protocol, optional
        With `shots`, draw only from the items that this protocol selects: ``sysu-mm01/all`` and
        ``sysu-mm01/indoor`` differ in their cameras. By default from all.

    Returns
    -------
    tuple of [n] int64 arrays
        For ``drawn=`` of `evaluate_all`: the rows of each trial, ascending, counted from 0.

    Raises
    ------
    InputError
        If the file can't be read, a trial has no rows or a row twice, or the permutations are not
        of the images of the gallery.
    OptionError
        If it is not said what rows count from, or labels are missing for `shots`.
    """
    check_path(path)
    if shots is None:
        first = _counted_from(
            str(path), listed_as, " (of rand_perm_cam.mat of SYSU-MM01, give shots)"
        )
        return trials_of(_read(str(path), "trial"), str(path), first=first)
    refuse(
        OptionError,
        not is_whole(shots, 1) and f"shots is {shots!r}; a whole number of at least 1 is needed",
        gallery is None
        and f"shots are drawn from the identities and cameras of the gallery, as {path} orders "
        "their images: give the labels of the gallery",
        listed_as is not None
        and f"listed_as is {listed_as!r}, and with shots {path} has no row numbers: leave it out",
    )
    labels = labels_of(gallery, "gallery")
    rows = None if protocol is None else selected(with_options(protocol, {}), "gallery", labels)
    among = np.arange(len(labels)) if rows is None else rows
    return _by_permutations(str(path), labels, among, int(shots))


def rows_of_table(table: Mapping[str, Any], folder: Path, name: str) -> Rows | tuple[Rows, ...]:
    """Return the rows that a table of a protocol file is about; of ``galleries``, those of each.

    Parameters
    ----------
    table : mapping of str to object
        ``rows``, an array by its URI or a text file, and ``listed_as``.
    folder : Path
        Paths are relative to it.
    name : {"queries", "gallery", "galleries"}
        The key of the table.

    Raises
    ------
    InputError
        If the file can't be read, or has no rows, or a row twice.
    OptionError
        If the table has other keys, or it is not said what rows count from.
    """
    path = table.get("rows")
    if set(table) != {"rows", "listed_as"} or not isinstance(path, str):
        raise OptionError(
            f"{name} is {dict(table)!r}; a file of row numbers, and what they count from, are "
            f'needed: {name} = {{ rows = "rows.txt", listed_as = "1-based" }}'
        )
    path = path if is_remote(path) else str(folder / path)
    first = _counted_from(path, table["listed_as"])
    if name == "galleries":
        return tuple(map(Rows, trials_of(_read(path, "gallery"), path, "gallery", first)))
    return Rows(ascending(_read(path), path, first))


def _counted_from(path: str, listed_as: object, also: str = "") -> int:
    known = get_args(NumberedFrom)
    if listed_as not in known:
        raise OptionError(
            f"listed_as is {listed_as!r}; say what the row numbers in {path} count from: "
            f"{' or '.join(known)}{also}"
        )
    return known.index(listed_as)


def _read(path: str, each: str = "") -> AnyArray | list[list[int]]:
    """Return the row numbers in a file: of each trial or gallery; or all, [n]."""
    if not (is_remote(path) or parse_uri(path)[0].suffix.lower() in FORMATS):
        lines = _read_lines(Path(path))
        return lines if each else np.array([*chain.from_iterable(lines)], np.int64)
    array = open_array(path)
    shape = array.shape
    fits = len(shape) == 2 if each else len(shape) == 1 or (len(shape) == 2 and 1 in shape)
    if not fits:
        needed = f"[n] for each {each}" if each else "[n]"
        raise InputError(f"{array.uri} has shape {shape}; row numbers, {needed}, are needed")
    with unchanging(array):
        rows = whole_numbers(array.read_all())
    return rows if each else rows.reshape(-1)


def _read_lines(path: Path) -> list[list[int]]:
    """Return the numbers of each line of a text file."""
    try:
        with unchanging(path):
            lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"row numbers {path} can't be read: {error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        for word in words:
            if not (word.isdecimal() and len(word) <= 18):
                raise InputError(
                    f"{path}, line {number}, has {word[:100]!r}; row numbers are needed, those of "
                    "a trial or gallery on a line"
                )
        rows.append([int(word) for word in words])
    return rows


Group = tuple[int, int]
"""The camera and the identity of some images."""


def _by_permutations(
    path: str, labels: Labels, among: IntArray, shots: int
) -> tuple[IntArray, ...]:
    """Return the rows that come first in the permutations of each group, trial by trial."""
    stored, groups = _read_permutations(path), _groups(labels)
    wanted = set(among.tolist())
    drawn: dict[Group, AnyArray] = {}
    for group, rows in groups.items():
        if wanted.isdisjoint(rows.tolist()):
            continue
        order = stored.get(group, np.empty((0, 0), np.int64))
        where = f"{path}, camera {group[0]}, identity {group[1]},"
        if order.shape[1] != len(rows):
            raise InputError(
                f"{where} has permutations of {order.shape[1]} images, and {labels.source} has "
                f"{len(rows)}: all images of the camera, with the numbers of SYSU-MM01, are needed"
            )
        if (np.sort(order, axis=1) != 1 + np.arange(len(rows))).any():
            raise InputError(f"{where} has no permutations of the numbers 1 to {len(rows)}")
        drawn[group] = rows[order[:, :shots].astype(np.int64) - 1]
    times = {len(rows) for rows in drawn.values()}
    refuse(
        InputError,
        not drawn and f"{path}: there are no items to draw from",
        len(times) > 1
        and f"{path} has {min(times)} permutations of some images, and {max(times)} of others",
    )
    return trials_of([np.concatenate(own) for own in zip(*drawn.values(), strict=True)], path)


def _groups(labels: Labels) -> dict[Group, IntArray]:
    """Return the rows of each camera and identity, ascending."""
    for name in ("id", "cam"):
        column = labels.columns.get(name)
        if column is None or column.dtype.kind not in "iu":
            has = "has none" if column is None else f"has {column.dtype}"
            raise InputError(
                f"permutations are of the numbers of identities and cameras, and {labels.source} "
                f"{has} in column {name}: integers are needed"
            )
    found: dict[Group, list[int]] = {}
    each = zip(labels.columns["cam"].tolist(), labels.id.tolist(), strict=True)
    for row, group in enumerate(each):
        found.setdefault(group, []).append(row)
    return {group: np.array(rows) for group, rows in found.items()}


def _read_permutations(path: str) -> Mapping[Group, AnyArray]:
    """Return the permutations of ``rand_perm_cam.mat``, [times, images] each, from 1.

    It has a cell for each camera, and in that one for each identity.
    """
    import scipy.io

    file, key = parse_uri(path)
    name = key or PERMUTATIONS
    with unchanging(file), reading(path, "read as .mat"):
        read = scipy.io.loadmat(str(file), variable_names=[name])
    if name not in read:
        raise InputError(f"{path} has no variable {name}: rand_perm_cam.mat of SYSU-MM01 is needed")
    found = {
        (cam, own): order
        for cam, people in enumerate(_cells(read[name], path), 1)
        for own, order in enumerate(_cells(people, path), 1)
    }
    for order in found.values():
        if order.dtype.kind not in "iuf" or order.ndim != 2:
            raise InputError(f"{path} holds {order.dtype} {order.shape} in place of permutations")
    return found


def _cells(value: Any, path: str) -> list[Any]:
    """Return the cells of a column of them."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "O":
        raise InputError(
            f"{path} holds no cells of cells, one for each camera and in it one for each identity"
        )
    cells: list[Any] = value.ravel().tolist()
    return cells
