"""groups.csv: a row a group, for spreadsheets."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from typing import Any, TextIO

from streameval.metrics import Metrics
from streameval.protocol import CAMERA_PAIRS
from streameval.result.cells import harmless


def write_groups(file: TextIO, by: str, groups: Mapping[Any, Metrics]) -> None:
    """Write the labels, counts and metrics of each group; what is undefined is empty.

    Parameters
    ----------
    file : text file
    by : str
        The column that groups are of; of ``cam-pair``, two: ``query_cam`` and ``gallery_cam``.
    groups : mapping of label to Metrics
    """
    labels = ("query_cam", "gallery_cam") if by == CAMERA_PAIRS else (by,)
    writer = csv.writer(file, lineterminator="\n")
    for at, (label, metrics) in enumerate(groups.items()):
        if at == 0:
            writer.writerow((*map(harmless, labels), *metrics.counts, *metrics.scalars))
        values = ("" if math.isnan(one) else repr(float(one)) for one in metrics.scalars.values())
        own = label if by == CAMERA_PAIRS else (label,)
        writer.writerow((*(harmless(str(one)) for one in own), *metrics.counts.values(), *values))
