"""Rows of trials in files: a row or a line of row numbers a trial, or permutations of SYSU-MM01."""

from __future__ import annotations

from collections.abc import Mapping
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
        return _read_rows(str(path), listed_as)
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


def _read_rows(path: str, listed_as: str | None) -> tuple[IntArray, ...]:
    """Return the row numbers in a file, from 0."""
    known = get_args(NumberedFrom)
    if listed_as not in known:
        raise OptionError(
            f"listed_as is {listed_as!r}; say what the row numbers in {path} count from: "
            f"{' or '.join(known)} (of rand_perm_cam.mat of SYSU-MM01, give shots)"
        )
    is_array = is_remote(path) or parse_uri(path)[0].suffix.lower() in FORMATS
    trials = trials_of(_read_matrix(path) if is_array else _read_lines(Path(path)), path)
    first = known.index(listed_as)
    for number, rows in enumerate(trials, 1):
        if rows[0] < first:
            raise InputError(
                f"{path}, trial {number}, has row {rows[0]}, and rows are said to be {listed_as}"
            )
    return tuple(rows - first for rows in trials)


def _read_matrix(path: str) -> AnyArray:
    """Return an array of integers, [times, n]."""
    array = open_array(path)
    if len(array.shape) != 2:
        raise InputError(
            f"{array.uri} has shape {array.shape}; row numbers of trials, [times, n], are needed"
        )
    with unchanging(array):
        return whole_numbers(array.read_all())


def _read_lines(path: Path) -> list[IntArray]:
    """Return the numbers of each line of a text file."""
    try:
        with unchanging(path):
            lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"rows of trials {path} can't be read: {error}") from error
    trials = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        for word in words:
            if not (word.isdecimal() and len(word) <= 18):
                raise InputError(
                    f"{path}, line {number}, has {word[:100]!r}; row numbers are needed, the rows "
                    "of a trial on a line"
                )
        trials.append(np.array([int(word) for word in words], np.int64))
    return trials


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
