"""groups.csv: a row a group, for spreadsheets."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from typing import Any, TextIO

from streameval.metrics import Metrics
from streameval.metrics.confidence import Confidence
from streameval.protocols.protocol import CAMERA_PAIRS
from streameval.result.cells import harmless


def write_groups(
    file: TextIO, by: str, groups: Mapping[Any, Metrics], intervals: Mapping[Any, Confidence]
) -> None:
    """Write the labels, counts and metrics of each group; what is undefined is empty.

    Parameters
    ----------
    file : text file
    by : str
        The column that groups are of; of ``cam-pair``, two: ``query_cam`` and ``gallery_cam``.
    groups : mapping of label to Metrics
    intervals : mapping of label to Confidence
        Of all groups, or of none: two more columns a metric, ``mAP low`` and ``mAP high``.
    """
    labels = ("query_cam", "gallery_cam") if by == CAMERA_PAIRS else (by,)
    writer = csv.writer(file, lineterminator="\n")
    for at, (label, metrics) in enumerate(groups.items()):
        if at == 0:
            bounds = [f"{name} {end}" for name in metrics.scalars for end in ("low", "high")]
            names = (*metrics.scalars, *(bounds if intervals else ()))
            writer.writerow((*map(harmless, labels), *metrics.counts, *names))
        values = [*metrics.scalars.values()]
        for name in metrics.scalars if intervals else ():
            values += intervals[label].intervals.get(name, (math.nan, math.nan))
        cells = ("" if math.isnan(one) else repr(float(one)) for one in values)
        own = label if by == CAMERA_PAIRS else (label,)
        writer.writerow((*(harmless(str(one)) for one in own), *metrics.counts.values(), *cells))
