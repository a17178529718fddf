"""Labels by file names: identity and camera, as the names of public data sets tell them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from streameval.arrays.composed import natural_order
from streameval.errors import InputError
from streameval.protocols.labels import AnyArray

IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".npy")

PATTERNS: Mapping[str, re.Pattern[str]] = {
    # 0002_c1s1_000451_03.jpg, -1_c3s2_002.jpg; 0002_c1_f0044158.jpg; 0002_c002_00030600_0.jpg
    "Market-1501, DukeMTMC, VeRi": re.compile(r"(?P<id>-?\d+)_c(?P<cam>\d+)(?=[s_.])"),
    # 0000_000_01_0303morning_0008_0.jpg
    "MSMT17": re.compile(r"(?P<id>-?\d+)_\d+_(?P<cam>\d+)_\d{4}[a-z]+_"),
}
"""How names begin, by the data sets that use them."""


def read_names(path: Path) -> dict[str, AnyArray]:
    """Read labels from the names of image files: ``id``, ``cam`` and, the name itself, ``key``.

    Parameters
    ----------
    path : Path
        A folder: its images, or `.npy` files, in natural order, as features are read from it.
        A text file: a name a line, in its order; folders before the name, and a label after it,
        are left out.

    Raises
    ------
    InputError
        If there are no names, or one doesn't fit the pattern of the first.
    """
    if path.is_dir():
        names = sorted(
            (one.name for one in path.iterdir() if one.suffix.lower() in IMAGES),
            key=natural_order,
        )
    else:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
        while lines and not lines[-1]:
            lines.pop()
        names = [re.sub(r"(\.\w+)\s+-?\d+$", r"\1", re.split(r"[/\\]", line)[-1]) for line in lines]
    if not names:
        raise InputError(
            f"{path} has no file names; a folder of images ({', '.join(IMAGES)}) or a text with a "
            "name a line is needed"
        )
    pattern = next((one for one in PATTERNS.values() if one.match(names[0])), None)
    matches = [pattern.match(name) if pattern else None for name in names]
    ids, cams = np.empty(len(names), np.int64), np.empty(len(names), np.int32)
    for row, (name, match) in enumerate(zip(names, matches, strict=True)):
        if match is None or max(map(len, match.groups())) > 9:
            raise InputError(
                f"{path} name {row} (the first is 0) is {name[:100]!r}, which tells no identity "
                "and camera: names such as 0002_c1s1_000451_03.jpg (Market-1501, DukeMTMC, VeRi) "
                "or 0000_000_01_0303morning_0008_0.jpg (MSMT17), all of one kind, are needed; "
                "for others give a CSV table with columns id,cam"
            )
        ids[row], cams[row] = int(match["id"]), int(match["cam"])
    return {"id": ids, "cam": cams, "key": np.array(names)}
