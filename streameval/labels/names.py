"""Labels by the names of image files: as public data sets name them, or by a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streameval.arrays.composed import natural_order
from streameval.errors import InputError, OptionError, refuse
from streameval.protocols.labels import KNOWN_COLUMNS, RESERVED_COLUMNS
from streameval.typing import AnyArray

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".npy")
PATTERNS = (
    # Market-1501, DukeMTMC, VeRi:
    # 0002_c1s1_000451_03.jpg, -1_c3s2_002.jpg; 0002_c1_f0044158.jpg; 0002_c002_00030600_0.jpg
    re.compile(r"(?P<id>-?\d+)_c(?P<cam>\d+)(?=[s_.])"),
    # MSMT17: 0000_000_01_0303morning_0008_0.jpg
    re.compile(r"(?P<id>-?\d+)_\d+_(?P<cam>\d+)_\d{4}[a-z]+_"),
)
"""How names begin, by the data sets that use them."""


def read_names(path: Path, pattern: str | None = None) -> dict[str, AnyArray]:
    """Read labels from the names of image files: ``id``, ``cam`` and, the name itself, ``key``.

    Parameters
    ----------
    path : Path
        A folder: its images, or `.npy` files, in natural order, as features are read from it.
        A text file: a name a line, in its order; a label after it is left out.
    pattern : str, optional
        A regular expression whose named groups are the columns: see `labels_by_pattern`. It is
        looked for in the whole line of a text file, folders included. Without one, names begin as
        those of public data sets do.
    """
    if path.is_dir():
        images = (one.name for one in path.iterdir() if one.suffix.lower() in IMAGES)
        names = sorted(images, key=natural_order)
    else:
        lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
        names = [re.sub(r"(\.\w+)\s+-?\d+$", r"\1", line.strip()) for line in lines]
    if not names:
        raise InputError(
            f"{path} has no file names; a folder of images ({', '.join(IMAGES)}) or a text with a "
            "name a line is needed"
        )
    keys = [re.split(r"[/\\]", name)[-1] for name in names]
    if pattern is not None:
        found = labels_by_pattern(names, pattern, str(path))
        return {"key": np.array(keys, object)} | found
    known = next((one for one in PATTERNS if one.match(keys[0])), None)
    ids, cams = np.empty(len(names), np.int64), np.empty(len(names), np.int32)
    for row, name in enumerate(keys):
        match = known.match(name) if known else None
        if match is None or max(map(len, match.groups())) > 9:
            raise InputError(
                f"{path} name {row} (the first is 0) is {name[:100]!r}, which tells no identity "
                "and camera: names such as 0002_c1s1_000451_03.jpg (Market-1501, DukeMTMC, VeRi) "
                "or 0000_000_01_0303morning_0008_0.jpg (MSMT17), all of one kind, are needed; "
                "for others give --pattern (pattern=), or a CSV table with columns id,cam"
            )
        ids[row], cams[row] = int(match["id"]), int(match["cam"])
    return {"id": ids, "cam": cams, "key": np.array(keys, object)}


def columns_of_pattern(pattern: str) -> tuple[str, ...]:
    """Return the named groups of a regular expression: the label columns that it tells.

    Raises
    ------
    OptionError
        If it is none, or has no group ``id``.
    """
    try:
        groups = tuple(re.compile(pattern).groupindex)
    except (re.error, RecursionError) as error:
        raise OptionError(f"pattern {pattern!r} is no regular expression: {error}") from error
    reserved = [name for name in groups if name in RESERVED_COLUMNS and name not in KNOWN_COLUMNS]
    refuse(
        OptionError,
        "id" not in groups
        and f"pattern {pattern!r} has no group id (it has {', '.join(groups) or 'none'}): name the "
        "groups as columns are, such as (?P<id>-?[0-9]+)_c(?P<cam>[0-9])",
        reserved and f"pattern {pattern!r} has a group {reserved[0]}, a name that is reserved",
    )
    return groups


def labels_by_pattern(names: Sequence[str], pattern: str, where: str) -> dict[str, AnyArray]:
    """Return the labels that a regular expression finds in names, by its named groups.

    A column holds integers if all of its labels are integers (0002 is 2), and strings otherwise.

    Raises
    ------
    InputError
        If it does not fit a name, or a group of it takes no part.
    """
    groups, rule = columns_of_pattern(pattern), re.compile(pattern)
    rows = []
    for row, name in enumerate(names):
        match = rule.search(name)
        absent = [group for group in groups if match is not None and not match[group]]
        if match is None or absent:
            lacks = f"tells no {absent[0]}" if absent else "does not fit"
            raise InputError(
                f"{where} name {row} (the first is 0) is {name[:100]!r}, which {lacks} by pattern "
                f"{pattern!r}"
            )
        rows.append([match[group] for group in groups])
    columns: dict[str, AnyArray] = {}
    for group, texts in zip(groups, zip(*rows, strict=True), strict=True):
        whole = all(re.fullmatch(r"[+-]?[0-9]{1,18}", text) for text in texts)
        columns[group] = np.array(texts, object)
        if whole:
            columns[group] = np.array([int(text) for text in texts], np.int64)
    return columns
